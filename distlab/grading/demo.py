"""A small class to try grading on: `python -m distlab.grading.demo [FOLDER]` (`make grade-demo`).

Nine submissions of lab 01, made from its solution, its stub and its tests' answers: correct, wrong
in known ways, damaged, late, hostile, and one that isn't a notebook. Then `distlab grade` grades
them.
"""

import argparse
import copy
import json
import runpy
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distlab.authoring.sources import choose_targets, find_root, find_targets
from distlab.errors import CourseError

LAB = "lab01"
DUE = "2026-11-20T12:00"
TIMES = {"on time": "2026-11-19 18:30:00 UTC", "late": "2026-11-21 18:30:00 UTC"}
HOSTILE = """class Right:
    def __eq__(self, other): return True

def plan_epoch(examples, global_batch_size):
    print("<script>document.title = 'owned'</script>")
    return Right()
"""
# student: notebook, mistakes of tests/answers ("" for another right answer) or texts, when
CLASS: dict[str, tuple[str, dict[str, str], str]] = {
    "student-1": ("solution", {}, "on time"),
    "student-2": ("solution", {"epoch": "rest-dropped"}, "on time"),
    "student-3": ("solution", {"batches": "one-worker", "parallelism": "weights-only"}, "on time"),
    "student-4": ("solution", {"batches": ""}, "on time"),
    "student-5": ("stub", {}, "on time"),
    "student-6": ("solution", {"epoch": HOSTILE}, "on time"),
    "student-7": ("solution", {}, "late"),
    "student-8": ("no metadata", {}, "on time"),
}


def make_class(folder: Path) -> Path:
    """Write the submissions to `folder`/submitted as nbgrader collects them; return it."""
    root = find_root(Path.cwd())
    (target,) = choose_targets([t for t in find_targets(root) if t.lab], [LAB])
    if target.lab is None or not target.notebook.is_file():
        raise CourseError(f"{target.notebook} isn't built yet. Run `distlab build {LAB}`.")
    notebooks = {"solution": _read(target.notebook), "stub": _read(target.lab)}
    notebooks["no metadata"] = copy.deepcopy(notebooks["solution"])
    for cell in notebooks["no metadata"]["cells"]:
        cell["metadata"] = {}
    known = runpy.run_path(str(root / "tests" / "answers" / f"{LAB}.py"))
    submitted = folder / "submitted"
    shutil.rmtree(submitted, ignore_errors=True)
    for student, (kind, answers, when) in CLASS.items():
        place = submitted / student / LAB
        place.mkdir(parents=True)
        texts = {
            name: known["WRONG"][name].get(told, told) if told else known["RIGHT"][name][0]
            for name, told in answers.items()
        }
        (place / target.lab.name).write_text(json.dumps(_fill(notebooks[kind], texts)))
        (place / "timestamp.txt").write_text(TIMES[when])
    place = submitted / "student-9" / LAB
    place.mkdir(parents=True)
    (place / "essay.docx").write_text("no notebook")
    return submitted


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _fill(notebook: Any, answers: dict[str, str]) -> Any:
    filled = copy.deepcopy(notebook)
    for cell in filled["cells"]:
        name = cell["metadata"].get("nbgrader", {}).get("grade_id")
        if name in answers:
            cell["source"] = answers[name].splitlines(True)
    return filled


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the class, grade it, and say where the pages are."""
    parser = argparse.ArgumentParser(prog="distlab.grading.demo", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("build/grade-demo"))
    folder = parser.parse_args(arguments).folder
    grade = ["grade", LAB, str(make_class(folder)), "--output", str(folder)]
    grade += ["--due", DUE, "--penalty", "10%/day"]
    print("distlab", *grade, flush=True)
    try:
        status = subprocess.call([sys.executable, "-m", "distlab", *grade])
    except KeyboardInterrupt:
        return 130
    return 0 if status == 1 else status  # one submission waits for a human, as it should


if __name__ == "__main__":
    raise SystemExit(main())
