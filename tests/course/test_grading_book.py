"""The book-keeping of grading: nbgrader's own gradebook, the journal, due dates and penalties."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from child_programs import start_python
from grading_notebooks import make_verdict
from sqlalchemy import URL
from traitlets.config import Config

from distlab.grading import session
from distlab.grading.collect import HandIn
from distlab.grading.gradebook import Book, Entry, to_comment
from distlab.grading.journal import Journal, describe_lab, hold_lock
from distlab.grading.labs import read_lab
from distlab.grading.observation import CellObservation, Observation
from distlab.grading.policy import (
    Penalty,
    Policy,
    override,
    parse_penalty,
    read_policy,
)
from distlab.grading.report.autograded import is_course, write_autograded
from distlab.grading.results import ClassResult, describe_lateness, finish
from distlab.grading.roster import ByHand
from utils.errors import DistributedError
from utils.files import replace_atomically, write_atomically

ROOT = Path(__file__).resolve().parents[2]
DUE = datetime(2026, 11, 20, 12)
EVIL = "gave <script>document.title='owned'</script> $x$ [a](javascript:1)\n<img src=x onerror=1>"


@pytest.fixture(scope="module")
def lab():
    return read_lab("lab01", ROOT)


@pytest.fixture(scope="module")
def empty(lab, tmp_path_factory):
    """An empty gradebook, made once."""
    path = tmp_path_factory.mktemp("empty") / "gradebook.db"
    with Book(path, lab):
        pass
    assert sorted(p.name for p in path.parent.iterdir()) == [path.name, path.name + ".lock"]
    return path.read_bytes()


@pytest.fixture
def path(empty, tmp_path):
    """An empty gradebook whose name needs care in a URL."""
    path = tmp_path / "odd name ?#%.db"
    path.write_bytes(empty)
    return path


def read_grades(path, student, lab):
    with connect(path) as book:
        notebook = book.find_submission_notebook(lab.slug, "lab01", student)
        grades = {
            g.name: (g.auto_score, g.manual_score, g.needs_manual_grade) for g in notebook.grades
        }
        return grades, notebook.score, notebook.late_submission_penalty


def connect(path):
    from nbgrader.api import Gradebook

    return Gradebook(URL.create("sqlite", database=str(path)))


@pytest.fixture(scope="module")
def course(lab, tmp_path_factory):
    """An nbgrader course with the lab as `generate_assignment` records it, and booked marks."""
    from nbgrader.apps import NbGraderAPI
    from nbgrader.coursedir import CourseDirectory

    root = tmp_path_factory.mktemp("course")
    (root / "source" / "lab01").mkdir(parents=True)
    (root / "nbgrader_config.py").touch()
    solution = ROOT / "solutions" / f"{lab.slug}-solution.ipynb"
    (root / "source" / "lab01" / f"{lab.slug}.ipynb").write_bytes(solution.read_bytes())
    config = Config()
    config.CourseDirectory.root = str(root)
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{before}"  # alembic
    try:
        api = NbGraderAPI(CourseDirectory(config=config), config=config)
        done = api.generate_assignment("lab01")
        assert done["success"], done
    finally:
        os.environ["PATH"] = before
    book_marks(lab, root)
    return root, api


def book_marks(lab, root):
    policy = Policy(DUE, parse_penalty("1/day"), {"bela": timedelta(hours=1)})
    said = {"ana": make_verdict(lab, "ana"), "bela": make_verdict(lab, "bela", {"epoch": 0}, EVIL)}
    answer = "def plan_epoch(n, b):\n    return '<b>mine</b>'\n"
    results = []
    for student, verdict in said.items():
        hand_in = HandIn(student, None, "0", DUE + timedelta(hours=20))
        seen = Observation(student, "lab01", "0", 1)
        results.append(finish(hand_in, verdict, seen, policy, {}))
    with Book(root / "gradebook.db", lab) as book:
        book.write(
            [
                Entry(r.verdict, r.hand_in.timestamp, policy.find_extra(r.student), r.penalty)
                for r in results
            ],
            policy.due,
        )
        found = ClassResult(lab, tuple(results), policy, course=book.read_course())
    assert is_course(root)
    write_autograded(found, {"bela": {"epoch": answer}}, root)


def test_an_empty_gradebook_is_as_nbgrader_makes_it(course, path):
    def read_tables(path):
        with closing(sqlite3.connect(path)) as tables:
            made = "SELECT type, name, replace(sql, ';', '') FROM sqlite_master"
            return {*tables.execute(made), *tables.execute("SELECT * FROM alembic_version")}

    root, _ = course
    assert read_tables(path) == read_tables(root / "gradebook.db")


def test_nbgraders_export_reads_the_marks(lab, course, tmp_path):
    from nbgrader.plugins.export import CsvExportPlugin

    root, _ = course
    with connect(root / "gradebook.db") as book:
        CsvExportPlugin(to=str(tmp_path / "grades.csv")).export(book)
    head, *rows = [line.split(",") for line in (tmp_path / "grades.csv").read_text().splitlines()]
    rows = {row[head.index("student_id")]: dict(zip(head, row)) for row in rows}
    assert rows["ana"]["raw_score"] == "10.0" and rows["ana"]["late_submission_penalty"] == "1.0"
    assert rows["ana"]["score"] == "9.0" and rows["ana"]["max_score"] == "10.0"
    assert rows["bela"]["raw_score"] == "8.0" and rows["bela"]["score"] == "7.0"
    assert rows["ana"]["duedate"] == str(DUE) and rows["ana"]["timestamp"].startswith("2026-11-21")


def test_formgrader_lists_the_submissions(lab, course):
    _, api = course
    found = {s["student"]: s for s in api.get_submissions("lab01")}
    assert found["bela"]["score"] == 8 and found["bela"]["autograded"]
    assert not found["bela"]["needs_manual_grade"]
    (notebook,) = api.get_notebooks("lab01")
    assert notebook["name"] == lab.slug and notebook["average_score"] == 9
    with api.gradebook as book:
        late = {s.student.id: s.total_seconds_late for s in book.assignment_submissions("lab01")}
    assert late == {"ana": 20 * 3600, "bela": 19 * 3600}


def test_nbgraders_feedback_shows_marks_and_nothing_acts_or_leaks(lab, course):
    root, api = course
    done = api.generate_feedback("lab01", force=True)
    assert done["success"], done
    text = (root / "feedback" / "bela" / "lab01" / f"{lab.slug}.html").read_text()
    assert "Score: 7.0 / 10.0" in text and "document.title=" in text
    assert "<script>document.title" not in text and "<img src=x" not in text
    assert "<b>mine" not in text and "javascript:1" not in text.partition("Comments:")[0]
    assert "import judge" not in text and "HIDDEN" not in text
    assert (root / "feedback" / "ana").is_dir()


def test_generate_assignment_still_works_after_marks_were_booked(course):
    _, api = course
    assert api.generate_assignment("lab01", force=True)["success"]


def test_a_mark_set_by_a_human_survives_regrading(lab, path):
    with Book(path, lab) as book:
        book.write([Entry(make_verdict(lab, "ana", {"epoch": 0}))])
    with connect(path) as book:  # as formgrader does it
        grade = book.find_grade("epoch-test", lab.slug, "lab01", "ana")
        grade.manual_score, grade.extra_credit = 1.5, 0.25
        comment = book.find_comment("epoch", lab.slug, "lab01", "ana")
        comment.manual_comment = "well tried"
        book.db.commit()
    with Book(path, lab) as book:
        book.set_points("ana", ByHand("2", 1, "half right"))  # by number
        assert book.read_manual() == {"ana": {"epoch": 1.75, "batches": 1}}
        book.write([Entry(make_verdict(lab, "ana", {"epoch": 2}))])
    grades, score, _ = read_grades(path, "ana", lab)
    assert grades["epoch-test"] == (2, 1.5, True)  # another automatic mark: a human is asked
    assert grades["batches-test"] == (3, 1, False) and score == 1.75 + 1 + 2 + 3
    with connect(path) as book:
        assert book.find_comment("epoch", lab.slug, "lab01", "ana").comment == "well tried"
    with Book(path, lab) as book:
        book.set_points("ana", ByHand("epoch", None))
        assert book.read_manual() == {"ana": {"batches": 1}}


def test_what_a_human_must_look_at_has_no_automatic_score(lab, path):
    with Book(path, lab) as book:
        nothing = {e.id: 0 for e in lab.exercises}
        book.write([Entry(make_verdict(lab, "ana", nothing, "", "for a human"))])
    grades, score, _ = read_grades(path, "ana", lab)
    assert set(grades.values()) == {(None, None, True)} and score == 0


def test_all_or_nothing_and_a_second_writing_changes_nothing(lab, path):
    entries = [Entry(make_verdict(lab, s), DUE) for s in ("ana", "bela")]
    with pytest.raises(ZeroDivisionError), Book(path, lab) as book:
        book.write(entries)
        raise ZeroDivisionError
    with Book(path, lab) as book:
        assert book.read_course() == {}
        book.write(entries)
    with Book(path, lab) as book:
        book.write(entries, DUE)
        assert book.read_course() == {s: {"lab01": (10, 10)} for s in ("ana", "bela")}


def test_weights_change_what_exercises_count(lab, path):
    with Book(path, lab, {"epoch": 2.0, "scaling": 0.0}) as book:
        book.write([Entry(make_verdict(lab, "ana"))])
        assert book.read_course() == {"ana": {"lab01": (9, 9)}}


def test_what_is_no_gradebook_is_one_clear_line(lab, path, tmp_path):
    (tmp_path / "text.db").write_text("this is no database " * 100)
    (tmp_path / "folder.db").mkdir()
    for name in ("text.db", "folder.db"):
        with pytest.raises(DistributedError, match="can't be used as a gradebook") as error:
            Book(tmp_path / name, lab).__enter__()
        assert "\n" not in str(error.value)
    with (
        Book(tmp_path / "g.db", lab) as book,
        pytest.raises(DistributedError, match="An exercise of lab01 must be one of epoch"),
    ):
        book.set_points("ana", ByHand("epcoh", 1))


def test_another_version_of_the_lab_is_refused(lab, path):
    with Book(path, lab):
        pass
    with connect(path) as book:
        book.add_assignment("lab01")
        book.add_notebook(lab.slug, "lab01")
        book.add_grade_cell("other-test", lab.slug, "lab01", max_score=3, cell_type="code")
    with Book(path, lab) as book, pytest.raises(DistributedError, match="other-test"):
        book.write([])


def test_comments_cannot_become_html_or_links():
    assert to_comment("") is None
    text = to_comment(EVIL)
    assert not set("<>$&") & set(text) and all(line[:4] == "    " for line in text.split("\n"))


# the journal


def make_seen(lab, student="ana", seed=7):
    cells = [CellObservation(name, "ok", '{"got_x": 1}') for name in lab.graded]
    return Observation(student, lab.name, "f00d", seed, tuple(cells), ("cell 7: joined",))


def test_the_journal_keeps_what_was_seen_and_said(lab, tmp_path):
    seen, said = make_seen(lab), make_verdict(lab, "ana", {"epoch": 0}, "no\ud800 text")
    with Journal(tmp_path, lab) as journal:
        assert journal.find("ana", "f00d") is None
        journal.begin("ana", "f00d", False)
        assert journal.find("ana", "f00d") is None  # begun, not seen
        journal.keep(seen, said)
        seed = journal.seed_for("ana", "f00d", 0)
    with Journal(tmp_path, lab) as journal:
        record = journal.find("ana", "f00d")
        assert journal.recall("ana") == seen and record.verdict.exercises[1] == said.exercises[1]
        light = tuple(replace(cell, got="{}") for cell in seen.cells)
        assert record.observation == replace(seen, cells=light)  # what was judged leaves memory
        assert journal.seed_for("ana", "f00d", 0) == seed
        others = [
            journal.seed_for(*key)
            for key in (("ana", "f00d", 1), ("ana", "beef", 0), ("bo", "f00d", 0))
        ]
        assert len({seed, *others}) == 4 and all(0 <= s < 2**31 for s in others)
        assert journal.find("ana", "beef") is None  # another file
        assert journal.begin("ana", "f00d", True).attempt == 1
    with Journal(tmp_path, lab) as journal:
        assert journal.records["ana"].attempt == 1 and journal.find("ana", "f00d") is None
        assert journal.begin("ana", "beef", True).attempt == 0
        journal.asked = "another text of the lab"
        assert journal.find("ana", "beef") is None
    assert (tmp_path.stat().st_mode & 0o777) >= 0o700 and (tmp_path / "secret").stat().st_size == 64


def test_what_has_run_is_kept_before_it_is_judged(lab, tmp_path, monkeypatch):
    seen, last = make_seen(lab), make_verdict(lab, "ana", {"epoch": 0})
    monkeypatch.setattr(session, "observe", lambda *a, **k: (each for each in [seen, seen]))
    handed = [HandIn("ana", tmp_path / "ana.ipynb", sha256="f00d")]
    for exercises, kept in (((), None), (("epoch",), last)):  # that replaces only its own verdict
        settings = session.Settings(lab, tmp_path, tmp_path, tmp_path / "book", exercises=exercises)
        with Journal(tmp_path / "journal", lab) as journal:
            journal.begin("ana", "f00d", False)
            journal.keep(seen, last)
            run = session._observe(settings, journal, handed, object())
            assert next(run) == seen
            run.close()
        with Journal(tmp_path / "journal", lab) as journal:
            record = journal.find("ana", "f00d")
            assert journal.recall("ana") == seen
            assert (record.verdict is None) == (kept is None)


def test_another_folder_draws_other_seeds(lab, tmp_path):
    seeds = []
    for name in "ab":
        with Journal(tmp_path / name, lab) as journal:
            seeds.append(journal.seed_for("ana", "f00d", 0))
    assert seeds[0] != seeds[1]


def test_a_change_of_hidden_tests_needs_no_new_run_a_change_of_inputs_does(lab):
    exercise = lab.exercises[0]
    for name, same in (("hidden", True), ("inputs", False), ("visible", False)):
        cell = replace(exercise.cells[0], **{name: "changed = 1"})
        changed = (replace(exercise, cells=(cell,)), *lab.exercises[1:])
        assert (describe_lab(replace(lab, exercises=changed)) == describe_lab(lab)) is same


def test_a_damaged_record_is_set_aside_and_said(lab, tmp_path):
    with Journal(tmp_path, lab) as journal:
        for student in ("ana", "bo", "cy"):
            journal.begin(student, "f00d", False)
            journal.keep(make_seen(lab, student), make_verdict(lab, student, {}))
    first, second, third = sorted((tmp_path / "records").iterdir())
    first.write_text(first.read_text()[:50])
    second.write_bytes(b"\xff\xfe")
    with Journal(tmp_path, lab) as journal:
        assert len(journal.records) == 1 and len(journal.notes) == 2
        assert "damaged" in journal.notes[0]
    assert third.exists() and len(list(tmp_path.rglob("*.damaged"))) == 2


def test_a_killed_writer_leaves_whole_files(tmp_path):
    """SIGKILL at any moment: the file holds one whole text or the other."""
    code = (
        "import sys; from pathlib import Path; from utils.files import write_atomically\n"
        "path = Path(sys.argv[1]); k = 0\n"
        "while True:\n"
        "    write_atomically(path, str(k % 10) * 200_000); k += 1\n"
        "    print(k, flush=True)\n"
    )
    path = tmp_path / "record.json"
    for wait in (0, 0.003, 0.011):
        writer = start_python("-c", code, path, cwd=ROOT)
        assert writer.stdout.readline(), writer.stderr.read()
        time.sleep(wait)
        writer.kill()
        writer.communicate()
        assert writer.returncode == -signal.SIGKILL
        text = path.read_text()
        assert len(text) == 200_000 and len(set(text)) == 1
    write_atomically(path, "x")
    there = set(tmp_path.iterdir())
    with pytest.raises(ZeroDivisionError), replace_atomically(path) as stream:
        stream.write(b"y")
        1 / 0  # noqa: B018 - any exception
    assert path.read_text() == "x" and set(tmp_path.iterdir()) == there


def test_a_lock_keeps_others_out_and_goes_with_its_process(lab, tmp_path):
    code = (
        "import sys; from pathlib import Path; from distlab.grading.journal import hold_lock\n"
        "with hold_lock(Path(sys.argv[1]), 'busy'):\n"
        "    print('held', flush=True); sys.stdin.read()\n"
    )
    holder = start_python("-c", code, tmp_path / "lock", cwd=ROOT, stdin=subprocess.PIPE)
    assert holder.stdout.readline() == "held\n", holder.stderr.read()
    with pytest.raises(DistributedError, match="another `distlab grade` is at work"):
        Journal(tmp_path, lab).__enter__()
    holder.kill()
    holder.communicate()
    with Journal(tmp_path, lab), hold_lock(tmp_path / "other", "busy", 1.0):
        pass


# due dates and penalties


@pytest.mark.parametrize(
    "text, hours, points",
    [
        ("10%/day", 0, 0),
        ("10%/day", 0.01, 2),
        ("10%/day", 24, 2),
        ("10%/day", 24.01, 4),
        ("10%/day,50%", 24 * 30, 10),
        ("0.5/hour", 3, 1.5),
        ("0.5/hour,2", 30, 2),
        ("3/day", 200, 20),
    ],
)
def test_penalties(text, hours, points):
    assert parse_penalty(text).find_points(hours * 3600, 20) == points


def test_grace_and_extra_time():
    policy = Policy(DUE, Penalty(1, False, 86400, None, 600), {"ana": timedelta(days=2)})
    late = DUE + timedelta(minutes=5)
    assert policy.find_lateness("bo", late) == 300
    assert policy.penalty.find_points(300, 10) == 0 and policy.penalty.find_points(601, 10) == 1
    assert policy.find_lateness("ana", late) == 0 == policy.find_lateness("bo", None)


def test_a_penalty_takes_no_mark_below_zero_and_words_say_what_it_cost(lab):
    policy = Policy(DUE, parse_penalty("9/day"), weights={"epoch": 2.0})
    seen, said = make_seen(lab), make_verdict(lab, "ana", {"batches": 0, "scaling": 1})
    result = finish(HandIn("ana", None, timestamp=DUE + timedelta(hours=1)), said, seen, policy, {})
    assert (result.verdict.mark, result.penalty, result.mark, result.max) == (7, 7, 0, 12)
    assert "1 h late: 7 points off" in result.notes
    by_hand = finish(result.hand_in, said, seen, policy, {"scaling": 3.0})
    assert by_hand.verdict.mark == 9 and by_hand.by_hand == {"scaling"}
    assert describe_lateness(90000, 1) == "1 day 1 h late: 1 point off"


def test_a_course_file(tmp_path):
    path = tmp_path / "grading.toml"
    path.write_text("""
[penalty]
percent = 10
per = "day"
at_most = 50
grace_minutes = 15
[extra_time]
ana = "2 days"
[labs.lab05]
due = 2026-11-20T23:59:00+01:00
weight = 2
weights = {scale = 1.5}
extra_time = {bela = "90 minutes"}
""")
    policy = read_policy(path, "lab05")
    assert policy.due == datetime(2026, 11, 20, 22, 59) and policy.weight == 2
    assert policy.penalty == Penalty(10, True, 86400, 50, 900) and policy.weights == {"scale": 1.5}
    assert policy.extra == {"ana": timedelta(days=2), "bela": timedelta(minutes=90)}
    assert read_policy(path, "lab01").due is None and read_policy(None, "lab01") == Policy()
    (tmp_path / "extra.csv").write_text("student,extra\nana,1 week\n")
    changed = override(policy, "2026-11-21T00:00", "1/hour", tmp_path / "extra.csv")
    assert changed.due == datetime(2026, 11, 21) and changed.penalty.grace_seconds == 900
    assert changed.extra["ana"] == timedelta(weeks=1) and "bela" in changed.extra


@pytest.mark.parametrize(
    "text, word",
    [
        ("[penalty]\npercent = 10", "per = "),
        ("[penalties]\n", "penalties"),
        ("x = ", "grading.toml"),
        ("[labs.lab01]\ndeu = 3", "deu"),
        ("[labs.lab01]\ndue = 'soon'", "soon"),
        ("[labs.lab01]\nweight = -1", "weight"),
        ("[extra_time]\nana = 'a while'", "a while"),
        ("[labs]\nlab01 = 3", "grading.toml"),
    ],
)
def test_mistakes_in_a_course_file_are_one_clear_line(tmp_path, text, word):
    (tmp_path / "grading.toml").write_text(text)
    with pytest.raises(DistributedError, match=word) as error:
        read_policy(tmp_path / "grading.toml", "lab01")
    assert "\n" not in str(error.value)


def test_a_result_as_json_has_the_keys_that_are_promised(lab):
    said, seen = make_verdict(lab, "ana", {"epoch": 0.5}), make_seen(lab)
    result = finish(HandIn("ana", None, notes=("x",)), said, seen, Policy(), {})
    record = json.loads(json.dumps(ClassResult(lab, (result,), Policy(), seconds=1.5).to_record()))
    assert list(record) == ["lab", "submissions", "seconds"]
    (one,) = record["submissions"]
    assert list(one) == ["student", "mark", "max", "exercises", "notes"] and one["mark"] == 8.5
    assert list(one["exercises"][0]) == ["id", "points", "max", "misconception", "message"]
    assert one["notes"] == ["x", "cell 7: joined"]
