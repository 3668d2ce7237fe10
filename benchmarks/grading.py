"""Grading a class: `distlab grade`, sealed, against `nbgrader autograde`, in one run.

Both grade the same 40 hand-ins of lab 05, each into a gradebook of its own: three of four
are the solution, one is the stub, and the marks of both are looked at. Both are timed as a
teacher starts them, their start included, and again by what one more submission costs. nbgrader
takes minutes for all of them, so a few are timed and its start is added. Processor time is
shown beside the clock's: other programs disturb it less.

GRADING_LAB, GRADING_SAMPLE and GRADING_CLASS name another lab, another number of
hand-ins for nbgrader (39: all but the first; 0: nbgrader is left out), another size of
the large class. GRADING_BEFORE is a folder with another commit checked out (`git worktree
add FOLDER 60da422`): its benchmark runs first, on its own lab.
"""

import contextlib
import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from nbgrader.api import Gradebook

from distlab.authoring import sources
from distlab.grading.executor import check_can_seal
from distlab.grading.sealing import PR_SET_CHILD_SUBREAPER, call
from utils.errors import DistributedError
from utils.measure import Stopwatch

ROOT = Path(__file__).resolve().parent.parent
CLASS = 40


def run(rounds: int) -> None:
    """Print seconds per submission of both, their ratio, and the seconds of a class of 300."""
    lab = os.environ.get("GRADING_LAB", "lab05")
    sample = min(CLASS - 1, int(os.environ.get("GRADING_SAMPLE", max(2, rounds // 3))))
    large = int(os.environ.get("GRADING_CLASS", 300))
    try:
        check_can_seal()
    except DistributedError as error:
        print(f"not measured: {error}")
        return
    if before := os.environ.get("GRADING_BEFORE"):
        run_before(before)
    with TemporaryDirectory() as name:
        course = Path(name) / "course"
        make_course(course, lab, large)
        compare(course, lab, sample, large)


def compare(course: Path, lab: str, sample: int, large: int) -> None:
    """Time both, and print the table."""
    print(f"\nGrading {CLASS} hand-ins of {lab}: seconds each, processor seconds each")
    few, many = (time_distlab(course, lab, students) for students in (CLASS, large))
    each = few.divide(CLASS)
    print(f"distlab grade, sealed  {each.seconds:>8.2f} {each.used:>8.2f}")
    if large > CLASS:
        one = many.subtract(few).divide(large - CLASS)
        print(f"without its start      {one.seconds:>8.2f} {one.used:>8.2f}")
    print(
        f"{large} hand-ins, sealed: {many.seconds:.1f} s, {many.used:.1f} processor seconds",
        flush=True,
    )
    if sample > 0:
        first, more = time_nbgrader(course.parent / "theirs", course, lab, sample)
        theirs = (first + (CLASS - 1) * more) / CLASS
        print(
            f"nbgrader autograde     {theirs:>8.2f}   {theirs / each.seconds:.1f} times as long "
            f"({1 + sample} of them timed)"
        )
        print(f"without its start      {more:>8.2f}")


class Times(NamedTuple):
    """Seconds by the clock, and processor seconds of all processes."""

    seconds: float
    used: float

    def subtract(self, other: "Times") -> "Times":
        return Times(self.seconds - other.seconds, self.used - other.used)

    def divide(self, count: int) -> "Times":
        return Times(self.seconds / count, self.used / count)


def run_before(folder: str) -> None:
    """Run the benchmark of another commit, checked out in `folder`."""
    print(f"\n{folder}:", flush=True)
    command = [sys.executable, "-m", "benchmarks", "grading", "--rounds", "3"]
    others = {k: v for k, v in os.environ.items() if k != "GRADING_BEFORE"}
    subprocess.run(command, cwd=folder, env={**others, "PYTHONPATH": folder}, check=True)


def make_course(course: Path, lab: str, students: int) -> None:
    """Make an nbgrader course with `students` hand-ins; `few` holds the first CLASS of them."""
    (target,) = sources.choose_targets([t for t in sources.find_targets(ROOT) if t.lab], [lab])
    solution = sources.read_source(target)
    texts = [sources.to_text(n) for n in (solution, sources.make_lab(solution))]
    source = course / "source" / lab / target.notebook.name
    source.parent.mkdir(parents=True)
    source.write_text(texts[0])
    (course / "nbgrader_config.py").touch()
    run_nbgrader(course, "generate_assignment", lab)
    released = json.loads((course / "release" / lab / target.notebook.name).read_text())
    answers = [cell["source"] for cell in solution.cells]
    for k in range(students):
        notebook = released if k % 4 == 3 else fill_in(released, answers)
        notebook["metadata"]["student"] = k  # no two files are the same
        for folder in ["submitted"] + ["few"] * (k < CLASS):
            path = course / folder / f"s{k:03}" / lab / target.notebook.name
            path.parent.mkdir(parents=True)
            path.write_text(json.dumps(notebook))


def fill_in(released: dict, answers: list[str]) -> dict:
    """Return the released notebook with the solution's code in its solution cells."""
    notebook = json.loads(json.dumps(released))
    for cell, answer in zip(notebook["cells"], answers, strict=True):
        if cell["metadata"].get("nbgrader", {}).get("solution"):
            cell["source"] = answer
    return notebook


def run_nbgrader(course: Path, *arguments: str) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # it starts alembic
    done = subprocess.run(
        [sys.executable, "-m", "nbgrader", *arguments],
        cwd=course,
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])


def time_nbgrader(own: Path, course: Path, lab: str, sample: int) -> tuple[float, float]:
    """Return the seconds of `nbgrader autograde` for one submission, and for one more.

    It has a course of its `own`, with a gradebook that nobody else has written: a submission
    whose marks are there already would be left out.
    """
    seconds = []
    copy_course(course, own, lab)
    for first, count in ((0, 1), (1, 1 + sample)):
        shutil.rmtree(own / "submitted", ignore_errors=True)  # it grades all that are there
        students = [f"s{k:03}" for k in range(first, first + count)]
        for student in students:
            shutil.copytree(course / "submitted" / student, own / "submitted" / student)
        with Stopwatch() as watch:
            run_nbgrader(own, "autograde", lab)
        seconds.append(watch.seconds)
        check_marks(own, lab, students)
    return seconds[0], (seconds[1] - seconds[0]) / sample


def copy_course(course: Path, own: Path, lab: str) -> None:
    """Copy what nbgrader needs, and have it make its gradebook."""
    own.mkdir()
    for name in ("source", "release"):
        shutil.copytree(course / name, own / name)
    (own / "nbgrader_config.py").touch()
    run_nbgrader(own, "generate_assignment", lab, "--force")


def check_marks(own: Path, lab: str, students: list[str]) -> None:
    """Raise unless nbgrader has run each of them and given what is deserved."""
    with Gradebook(f"sqlite:///{own / 'gradebook.db'}") as book:
        for student in students:
            found = book.find_submission(lab, student)
            wanted = 0 if int(student[1:]) % 4 == 3 else found.max_score
            assert found.score == wanted, f"nbgrader: {student} has {found.score}, not {wanted}"


def time_distlab(course: Path, lab: str, students: int) -> Times:
    """Return the seconds of `distlab grade` on the first CLASS hand-ins, or on all."""
    folder = "few" if students == CLASS else "submitted"
    command = [sys.executable, "-m", "distlab", "grade", lab, str(course / folder), "--json"]
    call("prctl", PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # what the sandbox leaves is counted here
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with Stopwatch() as watch:
        done = subprocess.run(
            [
                *command,
                "--output",
                str(course / f"report-{folder}"),
                "--gradebook",
                str(course / "gradebook.db"),
            ],
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1):
        raise RuntimeError(done.stderr[-2000:])
    for k, found in enumerate(json.loads(done.stdout)["submissions"]):
        wanted = 0 if k % 4 == 3 else found["max"]
        assert found["mark"] == wanted, f"the wrong mark: {found}"
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Times(watch.seconds, used)
