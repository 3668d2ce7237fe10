"""TEACHING.md and its pages in docs: commands parse, names exist, the way works throughout."""

import argparse
import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from child_programs import run_child, run_distlab, run_python

from distlab.cli import make_parser
from distlab.grading.evidence import describe_evidence, fill_guide
from distlab.grading.labs import list_labs, read_lab
from distlab.grading.policy import override, read_policy
from distlab.grading.sandbox import check_can_seal

ROOT = Path(__file__).resolve().parents[1]
GUIDE = (ROOT / "TEACHING.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCS = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")}
TEXT = GUIDE + "".join(DOCS[n] for n in ("grading", "classroom", "hub", "troubleshooting"))
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
SHELL = [line for language, text in BLOCKS if language == "sh" for line in text.splitlines()]
INLINE = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", TEXT, flags=re.M | re.S))
COMMANDS = [text.split("#")[0].strip() for text in SHELL + INLINE]
DISTLAB = [text for text in COMMANDS if re.match(r"(\.venv/bin/)?distlab [a-z]", text)]
SLUG = "lab01-batches-and-words"


def read_commands() -> list[argparse.Namespace]:
    """Return every command of the guide, parsed; a bare `distlab grade` in prose names it only."""
    known = make_parser()._subparsers._group_actions[0].choices
    found = []
    for command in DISTLAB:
        words = shlex.split(command)[1:]
        assert words[0] in known, command
        if len(words) > 1:
            found.append(make_parser().parse_args(words))
    return found


def test_every_distlab_command_parses() -> None:
    assert {"release", "grade", "submit", "check", "reset", "processes"} <= {
        parsed.command for parsed in read_commands()
    }
    for line in (text.split("#")[0] for text in SHELL if "distlab" in text):
        make_parser().parse_args(shlex.split(line)[1:])


def test_labs_and_exercises_that_commands_name_exist() -> None:
    labs = {name: read_lab(name, ROOT) for name in list_labs(ROOT)}
    named = set(re.findall(r"\blab\d\d\b", TEXT))
    assert {"lab01", "lab05"} <= named <= set(labs)
    assert {f"lab{n}" for n in re.findall(r"\blab (\d\d)\b", TEXT)} <= set(labs)
    ids = {exercise.id for exercise in labs["lab05"].exercises}
    for parsed in read_commands():
        if parsed.command == "grade":
            assert set(parsed.exercise) | {name for _, name, _ in parsed.set} <= ids | {"all"}
    assert labs["lab05"].slug in GUIDE


def test_what_a_mark_proves_is_what_the_exercises_say() -> None:
    page = DOCS["grading"]
    assert fill_guide(page, ROOT) == page, "python -m distlab.grading.evidence"
    table = describe_evidence(ROOT)
    assert table in page and "| 01 | epoch (2), " in table


def test_no_lab_is_passed_by_what_is_seen_inside_alone() -> None:
    """Such an exercise is worth 3 points or fewer, and all of a lab's half of it."""
    for line in describe_evidence(ROOT).strip().splitlines()[2:]:
        number, *columns = [column.strip() for column in line.strip("|").split("|")]
        points = [[float(p) for p in re.findall(r"\(([\d.]+)\)", text)] for text in columns]
        assert max(points[2], default=0) <= 3, number
        assert sum(points[2]) <= sum(map(sum, points)) / 2, number


def test_make_targets_and_files_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):(?!=)", makefile, re.MULTILINE))
    named = {text.split()[1] for text in COMMANDS if re.match(r"make [a-z]", text)}
    assert {"lab", "test", "wheels", "doctor", "clean"} <= named <= targets
    assert "WHEELS" in makefile and "PYTHON:-" in makefile
    links = re.findall(r"\]\(([^)\s]+)\)", GUIDE)
    ours = [
        t for t in INLINE if re.fullmatch(r"(tests|utils|benchmarks)/\S*\w", t) and "NN" not in t
    ]
    assert links and ours
    assert [n for n in links + ours if not (ROOT / n.partition("#")[0]).exists()] == []
    assert len(GUIDE.split()) <= 3000 and GUIDE.index("## Grade your first lab") < 300
    headings = {
        line[3:].lower().replace(" ", "-") for line in GUIDE.splitlines() if line[:3] == "## "
    }
    assert {link[1:] for link in links if link.startswith("#")} <= headings
    assert "solutions/src/README.md" in links and "](solutions/src/README.md)" in README
    assert (ROOT / "benchmarks" / "grading.py").is_file()


def test_the_plan_by_weeks_keeps_to_what_builds_on_what() -> None:
    """Each lesson once, after those it builds on; each lab in or after the week of its lesson."""
    plan = GUIDE.split("## The term plan")[1].split("\n## ")[0]
    rows = [line.split("|")[2:4] for line in plan.splitlines() if re.match(r"\| \d", line)]
    week = {n: k for k, (together, _) in enumerate(rows) for n in re.findall(r"\d\d", together)}
    labs = {n: k for k, (_, home) in enumerate(rows) for n in re.findall(r"\d\d", home)}
    mapped = re.findall(r"^\| \[(\d\d) .*\| \d+ \| ([\d, ]*)\|$", README, re.MULTILINE)
    after = {lesson: re.findall(r"\d\d", before) for lesson, before in mapped}
    assert set(week) == set(after), "every lesson has its week"
    assert [n for n, before in after.items() for b in before if week.get(n, 99) < week[b]] == []
    assert set(labs) == {path.stem[3:5] for path in (ROOT / "solutions/src").glob("lab*.py")}
    for lab, place in labs.items():
        (source,) = (ROOT / "solutions" / "src").glob(f"lab{lab}_*.py")
        link = source.stem.replace("_", "-") + ".ipynb"
        lessons = {
            p.name[:2]
            for p in (ROOT / "notebooks" / "src").glob("*.py")
            if f"labs/{link}" in p.read_text(encoding="utf-8")
        }
        assert min(week[lesson] for lesson in lessons & set(week)) <= place, lab


def test_the_offline_line_is_what_make_runs() -> None:
    """`make lab WHEELS=…` and the line by hand install the same, from the folder alone."""
    (line,) = [text for text in SHELL if "--no-index" in text]
    make = ("make", "-n", "-B", "lab")
    shown = run_child(*make, "WHEELS=/path/to/wheels", cwd=ROOT, status=0)
    (install,) = [text for text in shown.stdout.splitlines() if " -c constraints.txt -e " in text]
    options = ["--no-index", "--find-links", "/path/to/wheels", "-c", "constraints.txt", "-e"]
    for words in (shlex.split(line), shlex.split(install)):
        assert [word for word in words if word in options] == options
    assert "--no-index" not in run_child(*make, cwd=ROOT, status=0).stdout


def test_the_rules_file_is_read_as_it_says(tmp_path: Path) -> None:
    (text,) = [text for language, text in BLOCKS if language == "toml"]
    path = tmp_path / "grading.toml"
    path.write_text(text)
    labs = list_labs(ROOT)
    for lab in labs:  # this one file serves every lab
        assert (override(read_policy(path, lab, labs), "", "", None).due is None) == (
            lab != "lab05"
        )
    policy = read_policy(path, "lab05")
    assert str(policy.due) == "2026-11-20 22:59:00" and policy.weight == 2
    assert policy.penalty.find_points(86400 + 1, 10) == 2 and policy.penalty.grace_seconds == 900
    assert {name: str(extra) for name, extra in policy.extra.items()} == {
        "ana": "2 days, 0:00:00",
        "bela": "1:30:00",
    }
    assert set(policy.weights) <= {e.id for e in read_lab("lab05", ROOT).exercises}


def test_messages_in_the_table_are_those_of_the_code() -> None:
    section = DOCS["troubleshooting"].split("## Teaching a class")[1]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("|")]
    quoted = [text for cell in cells for text in re.findall(r"`([^`]+)`|\"([^\"]+)\"", cell)]
    said = {one or other for one, other in quoted}
    said -= {"requires a different Python: 3.11.2 not in '>=3.11.5'"}  # pip's
    said -= {"No matching distribution found"}  # pip's
    assert len(said) > 9
    code = "\n".join(p.read_text() for r in ("utils", "distlab") for p in (ROOT / r).rglob("*.py"))
    code += (ROOT / "Makefile").read_text()
    for message in said:
        parts = re.split(r"\b\d+\b|\blab05\b", message)
        missing = [part.strip() for part in parts if len(part) > 8 and part.strip() not in code]
        assert not missing, message


def run(folder: Path, *words: object, path: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return run_distlab(*words, cwd=folder, variables={"PYTHONPATH": str(path)}, status=0)


def test_release_hand_in_grade_and_formgrader(tmp_path: Path) -> None:
    """The guide's way with one lab: two students, one of them right."""
    try:
        check_can_seal()
    except Exception as error:  # macOS, or a system that forbids user namespaces
        pytest.skip(f"this machine cannot seal: {error}")
    run(ROOT, "release", tmp_path / "release", "--labs", "lab01")
    students, course = tmp_path / "release" / "students", tmp_path / "release" / "nbgrader"
    for student in ("bela", "ana"):
        if student == "ana":
            solve(students, course)
        run(students, "submit", "lab01", "--name", student, path=students)
    kept = ("--output", tmp_path / "grades", "--gradebook", course / "gradebook.db")
    graded = run(ROOT, "grade", "lab01", students / "submissions", *kept, "--json")
    marks = {s["student"]: s["mark"] for s in json.loads(graded.stdout)["submissions"]}
    assert marks == {"ana": 10, "bela": 0}
    out = tmp_path / "grades" / "lab01"
    assert (out / "class.html").is_file() and (out / "marks.csv").is_file()
    assert (tmp_path / "grades" / "course.csv").is_file()
    pages = {path.name.split("-")[0] for path in (out / "feedback").glob("*.html")}
    assert pages == {"ana", "bela"}
    check_gradebook(course)


def solve(students: Path, course: Path) -> None:
    """Write the solution's answers into the students' lab."""
    path = students / "labs" / f"{SLUG}.ipynb"
    lab = json.loads(path.read_text())
    solution = json.loads((course / "source" / SLUG / f"{SLUG}.ipynb").read_text())
    for cell, right in zip(lab["cells"], solution["cells"], strict=True):
        if right["metadata"].get("nbgrader", {}).get("solution"):
            cell["source"] = right["source"]
    path.write_text(json.dumps(lab))


def check_gradebook(course: Path) -> None:
    """The marks stand under the one assignment that nbgrader knows, and it exports them."""
    run_python("-m", "nbgrader", "export", cwd=course, status=0)
    rows = [line.split(",") for line in (course / "grades.csv").read_text().splitlines()]
    place = {name: k for k, name in enumerate(rows[0])}
    found = {(r[place["assignment"]], r[place["student_id"]]): r[place["score"]] for r in rows[1:]}
    assert found == {(SLUG, "ana"): "10.0", (SLUG, "bela"): "0.0"}
    assert (course / "autograded" / "ana" / SLUG / f"{SLUG}.ipynb").is_file()
