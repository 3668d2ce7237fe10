"""What a lab remembers: its rules, and marks by hand. No submission is run: none is a notebook."""

import csv
import shlex
import shutil
import sqlite3
import subprocess
import sys
import zipfile
from contextlib import closing
from pathlib import Path

import pytest
from child_programs import run_child
from needs import skip_without

from distlab.cli import main
from distlab.grading.memory import spread
from distlab.grading.roster import ByHand

POINTS = {"epoch": 2, "batches": 3, "parallelism": 2, "scaling": 3}


@pytest.fixture
def term(tmp_path, monkeypatch):
    """A class of four in a folder outside the checkout: two essays, two who handed in nothing."""
    for student in ("ana", "lea.lang"):
        (tmp_path / "class" / student / "lab01").mkdir(parents=True)
        (tmp_path / "class" / student / "lab01" / "essay.docx").write_text("words")
    rows = ["ana,Ana Alt", "lea.lang,Lea Lang", "hugo,Hugo Holm", "zoe,Zoe Zak"]
    (tmp_path / "list.csv").write_text("\n".join(["student,name", *rows]))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def grade(term, capsys):
    def grade(*arguments):
        status = main(["grade", "lab01", *arguments])
        return status, capsys.readouterr()

    return grade


FIRST = ("class", "--roster", "list.csv", "--due", "2026-11-20T23:59", "--gradebook", "b/book.db")


def read_marks(folder, name="marks.csv"):
    with open(folder / "grades/lab01" / name, newline="") as stream:
        return {row["student"]: row for row in csv.DictReader(stream)}


def read_course(folder):
    with open(folder / "grades/course.csv", newline="") as stream:
        return {row["student"]: row["lab01"] for row in csv.DictReader(stream)}


def test_rules_are_remembered_until_others_are_given(term, grade):
    grade(*FIRST)
    status, said = grade()  # nothing but the lab
    assert status == 1 and "remembered from the last grading: SUBMITTED" in said.out
    for text in ("list.csv", "--due 2026-11-20T23:59", "book.db"):
        assert text in said.out.splitlines()[0]
    assert not (term / "grades/gradebook.db").exists() and len(read_course(term)) == 4
    _, said = grade("--due", "none")
    assert "--due" not in said.out
    _, said = grade()
    assert "--due" not in said.out and "--roster" in said.out
    (term / "list.csv").unlink()
    status, said = grade("--set", "ana", "all", "6")
    assert status == 2 and "list.csv is remembered" in said.err and "Give --roster" in said.err


def test_another_list_than_the_last_sets_no_mark(term, grade):
    grade(*FIRST)
    (term / "other.csv").write_text("student,name\nana,Ana Alt\n")
    status, said = grade("--roster", "other.csv", "--set", "ana", "all", "6")
    assert status == 2 and "isn't the last grading's" in said.err
    assert read_course(term) == dict.fromkeys(("ana", "lea.lang", "hugo", "zoe"), "")
    assert "--roster" in grade()[1].out  # still the first list
    (term / "strangers.csv").write_text("student,name\nbob,Bob\n")
    status, said = grade("--roster", "strangers.csv")
    assert status == 2 and "none of the 2 submissions is from a student in the list" in said.err


def test_a_mark_by_hand_without_a_submission_is_in_every_table(term, grade):
    grade(*FIRST)
    status, said = grade("--set", "hugo", "all", "6", "--reason", "by mail")
    assert status == 1 and "4 marks changed since" in said.out
    assert {r["student"]: r["mark"] for r in read_marks(term).values()} == {
        "ana": "",
        "lea.lang": "",
        "hugo": "6",
        "zoe": "",
    }
    assert read_course(term)["hugo"] == "6" and "by mail" in read_marks(term)["hugo"]["notes"]
    assert "by mail" in (term / "grades/lab01/changes.csv").read_text()
    assert any("hugo" in path.name for path in (term / "grades/lab01/feedback").iterdir())
    grade("--set", "zoe", "epoch", "1")
    assert (read_marks(term)["zoe"]["mark"], read_course(term)["zoe"]) == ("1", "1")
    grade("--set", "hugo", "all", "auto")
    assert read_marks(term)["hugo"]["mark"] == ""


def test_one_damaged_submission_is_settled_by_one_mark_and_a_name_is_guessed(term, grade):
    grade(*FIRST)
    status, said = grade("--set", "Lea Lang", "all", "6")
    assert status == 2 and "Did you mean 'lea.lang'?" in said.err
    assert grade("--set", "ana", "all", "11")[0] == 2 and read_marks(term)["ana"]["mark"] == ""
    grade("--set", "ana", "all", "10", "--set", "lea.lang", "all", "7")
    marks = read_marks(term)
    assert {name: marks["ana"][name] for name in POINTS} == {n: str(p) for n, p in POINTS.items()}
    assert marks["lea.lang"]["mark"] == "7"


@pytest.mark.parametrize("answer, mark", [("--restore", "6"), ("--forget", "")])
def test_a_new_gradebook_stops_until_someone_says_what_becomes_of_marks(term, grade, answer, mark):
    grade(*FIRST)
    grade("--set", "hugo", "all", "6", "--reason", "by mail")
    shutil.rmtree(term / "b")
    status, said = grade()
    assert status == 2 and "4 marks set by hand. Add --restore" in said.err
    assert read_marks(term)["hugo"]["mark"] == "6"  # nothing was written
    assert grade(answer)[0] == 1
    assert read_marks(term)["hugo"]["mark"] == mark
    assert ("by mail" in read_marks(term)["hugo"]["notes"]) == bool(mark)
    assert grade()[0] == 1 and read_marks(term)["hugo"]["mark"] == mark


def test_status_says_what_is_remembered_and_who_waits(term, grade):
    status, said = grade("--status")
    assert status == 2 and "wasn't graded yet" in said.err
    grade(*FIRST)
    status, said = grade("--status")
    assert status == 1 and "remembered  --due 2026-11-20T23:59" in said.out
    assert "no mark     Ana Alt: " in said.out and "not a notebook" in said.out
    assert "no mark     Zoe Zak: handed in nothing" in said.out


def test_students_whom_nothing_knows_are_named_and_can_be_removed(term, grade):
    grade(*FIRST)
    (term / "class" / "lea.lang").rename(term / "class" / "lea")
    (term / "list.csv").write_text("student,name\nana,Ana Alt\nlea,Lea Lang\n")
    _, said = grade()
    assert "1 student in the gradebook, but no" in said.out and "--remove lea.lang" in said.out
    assert grade("--remove", "ana")[0] == 2
    _, said = grade("--remove", "lea.lang")
    assert "--remove" not in said.out and set(read_course(term)) == {"ana", "lea"}
    assert grade("--remove", "lea.lang")[0] == 2


@pytest.mark.parametrize("points", [0, 1, 6, 9.99, 10, None])
def test_points_of_a_whole_lab_are_spread_without_loss(points):
    marks = {m.exercise: m.points for m in spread(ByHand("all", points), POINTS)}
    assert set(marks) == set(POINTS)
    if points is None:
        assert set(marks.values()) == {None}
    else:
        assert round(sum(marks.values()), 6) == points
        assert all(0 <= marks[name] <= most for name, most in POINTS.items())


def read_all(folder):
    return {
        path: path.read_bytes()
        for path in (folder / "grades").rglob("*")
        if path.is_file() and path.suffix != ".lock"
    } | {folder / "b/book.db": (folder / "b/book.db").read_bytes()}


LISTS = {
    "twice.csv": "student,name\nana,A\nana,B\n",
    "empty.csv": "",
    "strangers.csv": "Full name,Email address\nQu One,q1@x.org\nQu Two,q2@x.org\n",
    "marks.csv": "student,exercise,points\nana,epoch,1\nana,epoch,x\n",
}
BAD = """
nowhere | no such folder, zip or notebook. Check
empty | must have a submission of lab01
deep.zip | a zip in a zip?
--student anna | 'anna' | Did you mean 'ana'?
--exercise epcoh | 'epcoh' | epoch
--set ana epcoh 1 | 'epcoh' | epoch
--set anna epoch 1 | 'anna'
--set ana epoch many | 'many'
--set ana epoch 99 | 99 | 2 points | --allow-bonus
--marks none.csv | none.csv
--marks marks.csv | line 3
--roster none.csv | none.csv
--roster twice.csv | line 3: 'ana' is in the list twice
--roster empty.csv | list of students is empty
--roster strangers.csv | Is it another course's list
--submission-times none.csv | none.csv
--submission-times strangers.csv | must have a column of times
--due none --penalty 1/day | due date
--due '2026-11-20 25:00' | must look like 2026-11-20T23:59 (UTC)
--jobs 0 | --jobs must be a whole number
--pattern ( | --pattern
--policy none.toml | none.toml
--gradebook class | can't be used as a gradebook
"""


def test_bad_input_is_one_line_and_changes_nothing(term, grade):
    grade(*FIRST)
    grade("--set", "hugo", "all", "6", "--reason", "by mail")
    before, wrong = read_all(term), []
    (term / "empty").mkdir()
    for name, text in LISTS.items():
        (term / name).write_text(text)
    (term / "0").write_text("{")
    inside = ("ana/lab01/lab01-batches-and-words.ipynb", "ana.zip", "class.zip")
    for depth, name in enumerate(inside):
        with zipfile.ZipFile(term / f"{depth + 1}", "w") as archive:
            archive.write(term / f"{depth}", name)
    (term / "3").rename(term / "deep.zip")
    for line in BAD.strip().splitlines():
        words, *said = line.split(" | ")
        status, (output, errors) = grade(*shlex.split(words))
        is_right = (status, output, errors.count("\n")) == (2, "", 1) and read_all(term) == before
        if not is_right or not all(each in errors for each in said):
            wrong.append((line, status, output, errors))
    assert not wrong, "\n".join(map(str, wrong))


def test_a_due_date_is_shown_with_the_zone_that_it_was_read_in(term, grade):
    assert "due         2026-11-20 23:59 UTC" in grade(*FIRST)[1].out
    (term / "grading.toml").write_text('zone = "Europe/Prague"\n')
    assert "due         2026-11-20 23:59 CET" in grade()[1].out


def test_a_gradebook_that_is_open_elsewhere_is_named_and_kept(term, grade, monkeypatch):
    grade(*FIRST)
    monkeypatch.setattr("distlab.grading.gradebook.WAIT_SECONDS", 0.2)
    with closing(sqlite3.connect(term / "b/book.db")) as other:
        other.execute("BEGIN EXCLUSIVE")
        status, said = grade("--set", "hugo", "all", "6")
        assert status == 2 and "another program has it open" in said.err
        other.rollback()
    assert read_marks(term)["hugo"]["mark"] == ""
    grade("--set", "hugo", "all", "6")
    assert read_marks(term)["hugo"]["mark"] == "6"


FULL = """
import sys
from pathlib import Path
from distlab.cli import main
first = main(["grade", "lab01", "class", "--roster", "list.csv", "--set", "hugo", "all", "6"])
book = Path("grades/gradebook.db").read_bytes()
with open("grades/fill", "wb", 0) as fill:
    try:
        while True:
            fill.write(bytes(4096))
    except OSError:
        pass
full = main(["grade", "lab01", "--set", "hugo", "all", "3"])
same = Path("grades/gradebook.db").read_bytes() == book
Path("grades/fill").unlink()
again = main(["grade", "lab01"])
print("found", first, full, same, again)
"""


def test_a_full_disk_is_one_line_and_the_next_run_goes_on(term):
    mount = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    if subprocess.run([*mount, "true"], capture_output=True).returncode:
        skip_without("network namespaces", "no user namespaces here")
    (term / "grades").mkdir()
    words = 'mount -t tmpfs -o size=2m none grades && exec "$@"'
    done = run_child(*mount, words, "sh", sys.executable, "-c", FULL)
    assert "found 1 2 True 1" in done.stdout, done.stdout + done.stderr
    assert "the disk is full. No mark was changed" in done.stderr
    assert done.stdout.count("6.00 of 10 points") == 2


def test_nothing_is_remembered_of_a_grading_that_failed(term, grade):
    status, _ = grade("nowhere", "--due", "2026-11-20T23:59")
    assert status == 2
    status, said = grade("--set", "ana", "epoch", "1")
    assert status == 2 and "SUBMITTED is missing" in said.err
    assert not list(Path(term).rglob("rules.json"))
