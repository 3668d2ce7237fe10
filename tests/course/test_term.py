"""A term: an invented class hands in four labs in four ways. The list of marks is made first.

A student solves the first exercises of a lab, so that the mark is the sum of their points.
`make test-all` has 120 students, a shorter run has 24.
"""

import csv
import json
import shutil
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from needs import EVERYTHING, need_sandbox

from distlab.cli import main
from distlab.grading.labs import LabSpec, read_lab

pytestmark = [pytest.mark.slow(120), pytest.mark.more_in_all, pytest.mark.timeout(2400)]
ROOT = Path(__file__).resolve().parents[2]
COUNT = 120 if EVERYTHING else 24
LABS = {"lab01": "moodle", "lab02": "canvas", "lab05": "nbgrader", "lab07": "submit"}
DUE, ON_TIME, LATE = "2026-11-20T12:00", "2026-11-19 18:30", "2026-11-21 18:30"
ACCENTS = ("José", "Łucja", "Zoë", "Åse", "Ève")
RULES = f"""
zone = "UTC"
[penalty]
percent = 10
per = "day"
[extra_time]
s003 = "3 days"
[labs.lab01]
due = {DUE}:00
[labs.lab02]
due = {DUE}:00
[labs.lab05]
due = {DUE}:00
[labs.lab07]
due = {DUE}:00
"""


@dataclass(frozen=True)
class Student:
    """One of the class; `number` is the platforms'."""

    id: str
    name: str
    number: str

    @property
    def email(self) -> str:
        return f"{self.id}@uni.example"


def make_class() -> list[Student]:
    """Invented students: every sixth has an accent, the last two have one name."""
    made = []
    for n in range(COUNT):
        first = ACCENTS[n // 6 % len(ACCENTS)] if n % 6 == 5 else "Student"
        made.append(Student(f"s{n:03}", f"{first} {n:03}", str(4000 + n)))
    return [*made[:-1], Student(made[-1].id, made[-2].name, made[-1].number)]


CLASS = make_class()


@dataclass(frozen=True)
class Plan:
    """What a student does in a lab: exercises solved (None: nothing), when, and what is odd."""

    solved: int | None
    late: bool = False
    odd: str = ""  # "twice": an empty lab before; "damaged": not a notebook


def plan(student: int, lab: int, exercises: int) -> Plan:
    """Return what is planned: by turns, and differently in each lab."""
    turn = (student * 7 + lab * 3) % 12
    if turn == 11:
        return Plan(None)
    odd = {4: "twice", 7: "damaged"}.get(turn, "")
    return Plan((student + lab) % (exercises + 1), turn in (2, 3, 4), odd)


def list_marks(labs: Mapping[str, LabSpec]) -> dict[tuple[str, str], float | None]:
    """Return the mark of each student and lab: None for one that waits, no entry for no file."""
    marks: dict[tuple[str, str], float | None] = {}
    for number, (name, lab) in enumerate(labs.items()):
        sums = [0.0, *accumulate(e.points for e in lab.exercises)]
        for n, student in enumerate(CLASS):
            planned = plan(n, number, len(lab.exercises))
            if planned.odd == "damaged" and planned.solved is not None:
                marks[student.id, name] = None
            elif planned.solved is not None:
                lost = 0.2 * sums[-1] * (planned.late and student.id != "s003")  # two days begun
                marks[student.id, name] = round(max(0.0, sums[planned.solved] - lost), 6)
    return marks


@cache
def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def solve(lab: LabSpec, solved: int) -> str:
    """Return the lab with its first exercises solved."""
    notebook = json.loads(json.dumps(read(ROOT / "labs" / f"{lab.slug}.ipynb")))
    solution = read(ROOT / "solutions" / f"{lab.slug}-solution.ipynb")
    given = {
        c["metadata"]["nbgrader"]["grade_id"]: c["source"]
        for c in solution["cells"]
        if c["metadata"].get("nbgrader", {}).get("solution")
    }
    for cell in notebook["cells"]:
        name = cell["metadata"].get("nbgrader", {}).get("grade_id")
        if name in [exercise.id for exercise in lab.exercises[:solved]]:
            cell["source"] = given[name]
    return json.dumps(notebook)


def list_files(lab: LabSpec, number: int) -> list[tuple[Student, str, str]]:
    """Return (student, time, text) of all that is handed in, in the order of time."""
    files = []
    for n, student in enumerate(CLASS):
        planned = plan(n, number, len(lab.exercises))
        if planned.solved is None:
            continue
        if planned.odd == "twice":
            files.append((student, "2026-11-18 09:00", solve(lab, 0)))
        text = "{" if planned.odd == "damaged" else solve(lab, planned.solved)
        files.append((student, LATE if planned.late else ON_TIME, text))
    return files


def write_moodle(folder: Path, lab: LabSpec, number: int) -> list[str]:
    """Moodle's zip and its worksheet, which is the list of students and of times."""
    times = {}
    files = {student: (time, text) for student, time, text in list_files(lab, number)}
    with zipfile.ZipFile(folder / "moodle.zip", "w") as archive:  # the later one replaces it
        for student, (time, text) in files.items():
            times[student] = time
            place = f"{student.name}_{student.number}_assignsubmission_file"
            archive.writestr(f"{place}/{lab.slug}.ipynb", text)
    head = (
        "Identifier,Full name,Email address,Status,Grade,Maximum Grade,Grade can be changed,"
        "Last modified (submission),Last modified (grade),Feedback comments"
    )
    with open(folder / "worksheet.csv", "w", newline="", encoding="utf-8-sig") as stream:
        sheet = csv.writer(stream)
        sheet.writerow(head.split(","))
        for s in CLASS:
            when = f"{times[s]}+00:00" if s in times else "-"
            sheet.writerow(
                [f"Participant {s.number}", s.name, s.email, "", "", "100.00", "Yes", when, "-", ""]
            )
    return ["moodle.zip", "--submission-times", "worksheet.csv"]


def write_canvas(folder: Path, lab: LabSpec, number: int) -> list[str]:
    with zipfile.ZipFile(folder / "canvas.zip", "w") as archive:
        for k, (student, time, text) in enumerate(list_files(lab, number)):
            late = "_LATE" * (time == LATE)
            key = "".join(reversed(student.name.lower().split()))
            archive.writestr(f"{key}{late}_{student.number}_{9000 + k}_{lab.slug}.ipynb", text)
    rows = [f"{s.id},{LATE if t == LATE else ON_TIME}" for s, t, _ in list_files(lab, number)]
    (folder / "times.csv").write_text("\n".join(["student,handed_in", *dict.fromkeys(rows)]))
    return ["canvas.zip", "--submission-times", "times.csv"]


def write_nbgrader(folder: Path, lab: LabSpec, number: int) -> list[str]:
    for student, time, text in list_files(lab, number):
        place = folder / "submitted" / student.id / lab.slug
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{lab.slug}.ipynb").write_text(text)
        (place / "timestamp.txt").write_text(f"{time}:00 UTC")
    return ["submitted"]


def write_submit(folder: Path, lab: LabSpec, number: int) -> list[str]:
    (folder / "zips").mkdir()
    for student, time, text in list_files(lab, number):
        stamp = time.replace("-", "").replace(":", "").replace(" ", "-") + "00"
        path = folder / "zips" / f"{lab.slug}_{student.id}_{stamp}.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(f"{student.id}/{lab.slug}/{lab.slug}.ipynb", text)
            archive.writestr(f"{student.id}/{lab.slug}/timestamp.txt", f"{time}:00 UTC")
    return ["zips"]


WRITERS: dict[str, Callable[[Path, LabSpec, int], list[str]]] = {
    "moodle": write_moodle,
    "canvas": write_canvas,
    "nbgrader": write_nbgrader,
    "submit": write_submit,
}


@pytest.fixture(scope="module")
def labs() -> dict[str, LabSpec]:
    need_sandbox()
    return {name: read_lab(name, ROOT) for name in LABS}


def read_course(folder: Path) -> dict[tuple[str, str], str]:
    with open(folder / "grades" / "course.csv", newline="") as stream:
        return {
            (row["student"], lab.split("-")[0]): row[lab]
            for row in csv.DictReader(stream)
            for lab in row
            if lab.startswith("lab")
        }


@pytest.fixture(scope="module")
def term(labs, tmp_path_factory):
    """The term graded, all in a folder outside the checkout with relative paths."""
    folder = tmp_path_factory.mktemp("term")
    rows = [f"{s.id},{s.name},{s.email},{s.number},{s.number}" for s in CLASS]
    (folder / "students.csv").write_text("\n".join(["student,name,email,moodle,canvas", *rows]))
    (folder / "grading.toml").write_text(RULES)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for number, (name, way) in enumerate(LABS.items()):
            given = WRITERS[way](folder, labs[name], number)
            assert main(["grade", name, *given]) == 1, "what is damaged waits"
        yield folder


def compare(folder: Path, wanted: Mapping[tuple[str, str], float | None]) -> None:
    """Each mark is what the list says: none lost, doubled, or another's."""
    found = read_course(folder)
    assert {student for student, _ in found} == {s.id for s in CLASS}
    for key, text in found.items():
        mark = wanted.get(key)
        assert (float(text) if text else None) == mark, (key, text, mark)
    assert set(wanted) <= set(found)


def test_each_mark_is_the_one_of_the_list_and_who_waits_is_shown(term, labs):
    wanted = list_marks(labs)
    assert len(CLASS) == COUNT and len(wanted) > 3 * COUNT
    compare(term, wanted)
    for name in LABS:
        with open(term / "grades" / name / "marks.csv", newline="") as stream:
            rows = {row["student"]: row for row in csv.DictReader(stream)}
        assert set(rows) == {s.id for s in CLASS}
        waits = {student for student, row in rows.items() if row["for_a_human"] == "yes"}
        assert waits == {s for (s, lab), mark in wanted.items() if lab == name and mark is None}
        absent = {student for student, row in rows.items() if row["notes"] == "handed in nothing"}
        assert absent == {s.id for s in CLASS if (s.id, name) not in wanted}


def test_marks_by_hand_and_repeated_commands_change_nothing_else(term, labs, capsys):
    wanted = list_marks(labs)
    absent = next(s.id for s in CLASS if (s.id, "lab01") not in wanted)
    waits = next(s for (s, lab), mark in wanted.items() if lab == "lab05" and mark is None)
    total = {name: sum(e.points for e in lab.exercises) for name, lab in labs.items()}
    main(["grade", "lab01", "--set", absent, "all", "1", "--reason", "by mail"])
    main(["grade", "lab05", "--set", waits, "all", str(total["lab05"]), "--reason", "seen"])
    for name in LABS:
        assert main(["grade", name]) == 1  # nothing is given: it is remembered
    wanted |= {(absent, "lab01"): 1.0, (waits, "lab05"): total["lab05"]}
    if plan(int(waits[1:]), 2, len(labs["lab05"].exercises)).late and waits != "s003":
        wanted[waits, "lab05"] *= 0.8
    compare(term, wanted)
    capsys.readouterr()
    shutil.move(term / "grades" / "gradebook.db", term / "grades" / "old.db")
    for name in ("lab01", "lab05"):
        assert main(["grade", name]) == 2 and "--restore" in capsys.readouterr().err
    for name in LABS:
        assert main(["grade", name, *(["--restore"] if name in ("lab01", "lab05") else [])]) == 1
    compare(term, wanted)
    for name, said in (("lab01", "by mail"), ("lab05", "seen")):
        with open(term / "grades" / name / "changes.csv", newline="") as stream:
            reasons = [row["why"] for row in csv.DictReader(stream)]
        assert reasons and all(reasons) and any(said in reason for reason in reasons)


def test_lists_of_other_people_change_no_mark_without_a_word(term, labs, capsys):
    before = read_course(term)
    # all but the two of one name, whom nothing but the number tells apart
    rotated = [*CLASS[1:-2], CLASS[0], *CLASS[-2:]]
    rows = [f"{s.id},{s.name},{other.number}" for s, other in zip(CLASS, rotated)]
    (term / "swapped.csv").write_text("\n".join(["student,name,moodle", *rows]))
    main(["grade", "lab01", "--roster", "swapped.csv"])
    after = read_course(term)
    changed = {key for key in before if before[key] != after[key]}
    assert all(after[key] == "" for key in changed), "a mark waits, and none is another's"
    with open(term / "grades" / "lab01" / "marks.csv", newline="") as stream:
        rows = {row["student"]: row for row in csv.DictReader(stream)}
    assert all("by its number" in rows[student]["notes"] for student, _ in changed)
    main(["grade", "lab01", "--roster", "students.csv"])
    assert read_course(term) == before
