"""What a teacher takes out of a grading: platforms' files, changes, codes, times, rules."""

import csv
import io
import re
import zipfile
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from grading_notebooks import make_verdict

from distlab.grading.collect import HandIn
from distlab.grading.gradebook import Book, Entry
from distlab.grading.journal import Journal
from distlab.grading.labs import list_labs, read_lab
from distlab.grading.naming import Owner
from distlab.grading.observation import Observation
from distlab.grading.policy import Policy, override, parse_penalty, read_policy
from distlab.grading.report.anonymous import anonymise
from distlab.grading.report.changes import note_changes
from distlab.grading.report.pages import write_report
from distlab.grading.results import ClassResult, finish, hold_back
from distlab.grading.roster import ByHand, Roster, Student, read_marks, read_roster
from utils.errors import DistributedError

ROOT = Path(__file__).resolve().parents[2]
DUE = datetime(2026, 11, 20, 12)
MOODLE = Owner("Ana Novák", "Ana Novák_4001", "4001", "moodle")
CANVAS = Owner("bobela", "bobela_501", "501", "canvas")


@pytest.fixture(scope="module")
def lab():
    return read_lab("lab01", ROOT)


def make_result(lab, student, given=None, owner=None, policy=None, manual=None, **more):
    """`given` maps an exercise to its points, None for one that waits."""
    hand_in = HandIn(student, None, more.pop("sha256", "0"), owner=owner or Owner(student), **more)
    policy = policy or Policy()
    verdict = hold_back(hand_in, make_verdict(lab, student, given), policy)
    seen = Observation(student, lab.name, "0", 1)
    reasons = {name: "well explained" for name in manual or {}}
    return finish(hand_in, verdict, seen, policy, manual or {}, reasons)


def rows_of(path):
    return list(csv.reader(io.StringIO(path.read_text(encoding="utf-8"))))


def test_what_moodle_takes_in(lab, tmp_path):
    results = (
        make_result(lab, "ana", {"epoch": 0.5}, MOODLE),
        make_result(lab, "bo", {"epoch": None}, replace(MOODLE, told="B_o", number="4002")),
        make_result(lab, "cy"),
    )
    roster = Roster({"cy": Student("cy", "Cy Else", "cy@x.org", "4003")})
    write_report(ClassResult(lab, results, Policy(), roster=roster), tmp_path)
    head, ana, bo, cy = rows_of(tmp_path / "moodle.csv")
    assert {"Identifier", "Grade", "Last modified (grade)"} <= set(head)  # else Moodle refuses it
    place = {name: k for k, name in enumerate(head)}
    found = [
        [row[place[name]] for name in ("Identifier", "Full name", "Grade")] for row in (ana, bo, cy)
    ]
    assert found == [
        ["Participant 4001", "Ana Novák", "8.5"],
        ["Participant 4002", "B_o", ""],
        ["Participant 4003", "Cy Else", "10"],
    ]
    assert cy[place["Email address"]] == "cy@x.org" and ana[place["Maximum Grade"]] == "10"
    with zipfile.ZipFile(tmp_path / "moodle-feedback.zip") as archive:
        names = archive.namelist()
        text = archive.read(names[0]).decode()
    # Moodle cuts each name at "_": the second part is the number, then the plugin
    assert [name.split("/")[0].split("_") for name in names] == [
        ["Ana Novák", "4001", "assignsubmission", "file"],
        ["B o", "4002", "assignsubmission", "file"],
        ["Cy Else", "4003", "assignsubmission", "file"],
    ]
    assert "8.5 of 10 points" in text and names[0].endswith("/lab01-feedback.html")
    before = (tmp_path / "moodle-feedback.zip").stat().st_mtime_ns
    write_report(ClassResult(lab, results, Policy(), roster=roster), tmp_path)
    assert (tmp_path / "moodle-feedback.zip").stat().st_mtime_ns == before  # nothing is new


def test_what_canvas_takes_in(lab, tmp_path):
    results = (
        make_result(lab, "bo", {"epoch": 0.5}, CANVAS),
        make_result(lab, "cy", {"epoch": None}, replace(CANVAS, number="502")),
    )
    write_report(ClassResult(lab, results, Policy()), tmp_path)
    head, points, *students = rows_of(tmp_path / "canvas.csv")
    assert head[:5] == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section"]
    assert head[5] == lab.title and "Points Possible" in points[0] and points[5] == "10"
    assert [[row[1], row[5]] for row in students] == [["501", "8.5"]]  # a blank would clear a mark
    assert not (tmp_path / "moodle.csv").exists()


WORKSHEETS = {  # as mod/assign/feedback/offline writes them, in the language of the teacher
    "english": (
        'Identifier,"Full name","Email address",Status,Grade,"Maximum Grade",'
        '"Grade can be changed","Last modified (submission)","Last modified (grade)",'
        '"Feedback comments"\n',
        "Participant ",
        "100.00",
        "85",
        "utf-8-sig",
        ",",
    ),
    "german": (
        "ID;Vollständiger Name;E-Mail-Adresse;Status;Bewertung;Bestwertung;"
        "Bewertung kann geändert werden;Zuletzt geändert (Abgabe);"
        "Zuletzt geändert (Bewertung);Feedback als Kommentar\n",
        "Teilnehmer/in",
        "5,00",
        "4,25",
        "cp1252",
        ";",
    ),
}


@pytest.mark.parametrize("language", WORKSHEETS)
def test_moodles_own_worksheet_comes_back_filled_in(lab, tmp_path, language):
    head, who, most, grade, encoding, sign = WORKSHEETS[language]
    names = {"4003": "Zoë Last", "4001": "Ana Novak", "4002": "Bo Wait"}
    lines = [
        sign.join([f"{who}{n}", name, f"x{n}@x.org", "-", "", most, "-", "-", "-", ""])
        for n, name in names.items()
    ]
    path = tmp_path / "worksheet.csv"
    path.write_bytes((head + "\n".join(lines) + "\n").encode(encoding))
    roster = read_roster(path)
    results = (
        make_result(lab, "x4001@x.org", {"epoch": 0.5}, MOODLE),
        make_result(lab, "x4002@x.org", {"epoch": None}, MOODLE),
    )
    for absent, shown in ((None, ""), (0.0, "0")):
        found = ClassResult(
            lab,
            results,
            Policy(absent=absent),
            roster=roster,
            absent={"x4003@x.org": "handed in nothing"},
        )
        write_report(found, tmp_path)
        data = (tmp_path / "moodle.csv").read_bytes()
        assert data.startswith(b"\xef\xbb\xbf") == (encoding == "utf-8-sig")
        back = list(csv.reader(io.StringIO(data.decode(encoding)), delimiter=sign))
        before = list(csv.reader(io.StringIO((head + "\n".join(lines)).strip()), delimiter=sign))
        assert [row[4] for row in back[1:]] == [shown, grade, ""]
        assert "epoch: 0.5 of 2" in back[2][9]
        for row in back[1:]:
            row[4] = row[9] = ""
        assert back == before  # the same rows, in the same order
        assert read_roster(tmp_path / "moodle.csv").students == roster.students


def test_canvas_own_gradebook_comes_back_with_the_labs_column(lab, tmp_path):
    path = tmp_path / "canvas-in.csv"
    column = f"{lab.title} (99)"
    path.write_text(
        f"Student,ID,SIS User ID,SIS Login ID,Section,Other (98),{column},Final Score\n"
        "    Points Possible,,,,,5,20,(read only)\n"
        '"Zed, Zoe",503,s3,zoe,Mon,4,,80\n"Alt, Ana",501,s1,ana,Mon,5,,90\n'
        '"Bo, Béla",502,s2,bo,Tue,,7,10\n"Student, Test",504,,t,Mon,,,\n',
        encoding="utf-8",
    )
    roster = read_roster(path)
    results = (
        make_result(lab, "ana", {"epoch": 0.5}, replace(CANVAS, number="501")),
        make_result(lab, "bo", {"epoch": None}, replace(CANVAS, number="502")),
    )
    found = ClassResult(lab, results, Policy(absent=0.0), roster=roster, absent={"zoe": "nothing"})
    write_report(found, tmp_path)
    head, *rows = rows_of(tmp_path / "canvas.csv")
    assert head == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", column]
    assert [(row[0], row[5]) for row in rows] == [
        ("    Points Possible", "20"),
        ("Zed, Zoe", "0"),
        ("Alt, Ana", "17"),
        ("Bo, Béla", "7"),
        ("Student, Test", ""),
    ]
    assert read_roster(tmp_path / "canvas.csv").students == roster.students


def test_what_changed_is_noted_once_with_its_reason_whenever_it_is_killed(lab, tmp_path):
    def grade(result):
        return note_changes(ClassResult(lab, (result,), Policy()), tmp_path)

    assert grade(make_result(lab, "ana", {"epoch": 0})) == []  # the first time
    assert grade(make_result(lab, "ana", {"epoch": 0})) == []
    (change,) = grade(make_result(lab, "ana", {"epoch": 2}))
    assert change.describe() == "epoch 0 → 2 (judged again)"
    (change,) = grade(make_result(lab, "ana", {"epoch": 2}, manual={"epoch": 1}))
    assert change.describe() == "epoch 2 → 1 (set by hand: well explained)"
    (change,) = grade(make_result(lab, "ana", {"epoch": 2}))
    assert change.why == "no longer set by hand"
    (change,) = grade(make_result(lab, "ana", {"epoch": None}, sha256="1"))
    assert change.describe() == "epoch 2 → waits (handed in anew)"
    policy = Policy(DUE, parse_penalty("1/day"))
    late = make_result(
        lab, "ana", {"epoch": None}, sha256="1", policy=policy, timestamp=DUE + timedelta(hours=1)
    )
    (change,) = grade(late)
    assert (change.exercise, change.after) == ("lateness", -1)
    (tmp_path / "changes.csv").unlink()  # killed before it was written
    assert grade(late) == []
    lines = rows_of(tmp_path / "changes.csv")
    assert len(lines) == 6 and lines[2][1:] == [
        "ana",
        "epoch",
        "2",
        "1",
        "set by hand: well explained",
    ]
    (tmp_path / "journal" / "marks.json").write_text("{")
    assert grade(late) == []


def test_without_names_nothing_names_a_student(lab, tmp_path):
    names = ("Ana Novák", "bobela", "Cyril")
    results = (
        make_result(lab, names[0], {"epoch": 0}, MOODLE, notes=("'Ana Novák_4001/x' was left",)),
        make_result(lab, names[1], {"epoch": None}, CANVAS, problem="'bobela.pdf': not a notebook"),
        make_result(lab, names[2], question="'Cyril' and 'cyril.' look the same"),
    )
    roster = Roster({names[0]: Student(names[0], "Ana Novák")})
    with Journal(tmp_path / "journal", lab) as journal:
        found = ClassResult(
            lab,
            results,
            Policy(),
            ("Ana Novák: a note",),
            ("Waity",),
            absent={"Zoe": "handed in nothing"},
            roster=roster,
        )
        hidden = anonymise(found, journal.code_for)
        code = journal.code_for(names[0])
    with Journal(tmp_path / "journal", lab) as journal:
        assert journal.code_for(names[0]) == code and journal.code_for(names[1]) != code
    for path in write_report(hidden, tmp_path / "anonymous"):
        for name in (*names, "Waity", "Zoe", "Nov"):
            assert name not in path.name and name not in path.read_text(encoding="utf-8"), path
    marks = {row[0]: row for row in rows_of(tmp_path / "anonymous" / "marks.csv")}
    assert code in marks and re.fullmatch(r"anon-[0-9a-f]{8}", code)
    assert not (tmp_path / "anonymous" / "moodle.csv").exists()


def test_an_uncertain_owner_has_no_mark_until_it_is_confirmed(lab):
    asked = make_result(lab, "ana", question="two files: which counts?")
    assert asked.mark is None and asked.open == tuple(e.id for e in lab.exercises)
    assert asked.notes[0] == "two files: which counts?"
    assert not any("two files" in e.message for e in asked.verdict.exercises)  # a student reads it
    policy = Policy(confirmed=frozenset({"ana 3f2a91cd"}))
    files = {"3f2a91cd" + "0" * 56: 10, "3f2a91ce" + "0" * 56: None}  # another file is asked about
    for sha256, mark in files.items():
        asked = make_result(lab, "ana", question="two files", policy=policy, sha256=sha256)
        assert asked.mark == mark
    assert make_result(lab, "ana", question="?", manual={e.id: 1 for e in lab.exercises}).mark == 4


def test_unknown_times_are_said_loudly(lab, tmp_path):
    policy = Policy(DUE, parse_penalty("1/day"))
    own = {"timestamp": DUE, "clock": "the name of the student's zip"}
    results = (
        make_result(lab, "ana", policy=policy),
        make_result(lab, "bo", policy=policy, **own),
        make_result(lab, "cy", owner=replace(CANVAS, late=True), policy=policy),
    )
    found = ClassResult(lab, results, policy)
    unknown, late, clocks = found.describe_times()
    assert (
        unknown.startswith("2 of 3 submissions have no known time")
        and "--submission-times" in unknown
    )
    assert late.endswith("cy") and clocks.startswith("1 of 3 times")
    write_report(found, tmp_path)
    assert "2 of 3 submissions have no known time" in (tmp_path / "class.html").read_text()
    rows = {row[0]: row for row in rows_of(tmp_path / "marks.csv")}
    assert rows["ana"][2:4] == ["", ""] and rows["bo"][3] == "the name of the student's zip"
    assert ClassResult(lab, results, Policy()).describe_times() == []  # nothing is due


SAMPLE = """
zone = "Europe/Prague"
[penalty]
percent = 10
per = "day"
[labs.lab05]
due = 2026-11-20T23:59:00
weights = {plain = 2}
"""


def write_rules(tmp_path, text):
    (tmp_path / "grading.toml").write_text(text)
    return tmp_path / "grading.toml"


def test_rules_of_one_lab_do_not_stop_another(tmp_path):
    path, labs = write_rules(tmp_path, SAMPLE), list_labs(ROOT)
    for name in labs:
        policy = override(read_policy(path, name, labs), "", "", None)
        assert (policy.due is not None) == (name == "lab05")
    policy = read_policy(path, "lab05", labs)
    assert policy.due == datetime(2026, 11, 20, 22, 59)
    assert policy.show_time(policy.due) == "2026-11-20 23:59 CET"
    with_zone = read_policy(
        write_rules(
            tmp_path, SAMPLE.replace('zone = "Europe/Prague"', "").replace("59:00", "59:00+02:00")
        ),
        "lab05",
    )
    assert with_zone.show_time(with_zone.due) == "2026-11-20 23:59 UTC+02:00"


@pytest.mark.parametrize(
    "old, new, words",
    [
        ("labs.lab05", "labs.lab55", ["'lab55'", "Did you mean 'lab"]),
        ("weights =", "weihgts =", ["labs.lab05", "'weihgts'", "Did you mean 'weights'"]),
        ("percent", "precent", ["penalty", "'precent'", "Did you mean 'percent'"]),
        ("[penalty]", "[penatly]", ["'penatly'", "Did you mean 'penalty'"]),
        ("Europe/Prague", "Europe/Prag", ["zone must be a time zone", "got 'Europe/Prag'"]),
        ("weights = {plain = 2}", 'confirmed = "ana 1"', ["confirmed"]),
    ],
)
def test_a_misspelled_rule_is_named_whichever_lab_is_graded(tmp_path, old, new, words):
    path = write_rules(tmp_path, SAMPLE.replace(old, new))
    lab = "lab01" if old != "weights = {plain = 2}" else "lab05"
    with pytest.raises(DistributedError) as error:
        read_policy(path, lab, list_labs(ROOT))
    assert all(word in str(error.value) for word in words), error.value
    assert "\n" not in str(error.value)


def test_marks_by_hand_in_bulk(tmp_path):
    path = tmp_path / "marks.csv"
    path.write_text("student,exercise,points,reason\nana,epoch,1.5,said it in class\nbo,2,auto,\n")
    assert read_marks(path) == [
        ("ana", ByHand("epoch", 1.5, "said it in class")),
        ("bo", ByHand("2", None)),
    ]
    bad = {
        "student,exercise\n": "must have a column 'points'",
        "student,exercise,points\nana,epoch,much\n": "line 2: points must be .*, got 'much'",
    }
    for text, said in bad.items():
        path.write_text(text)
        with pytest.raises(DistributedError, match=said):
            read_marks(path)


def test_the_book_keeps_reasons_refuses_too_much_and_knows_what_waits(lab, tmp_path):
    waits = make_result(lab, "bo", {"epoch": None}).verdict
    with Book(tmp_path / "g.db", lab, {"epoch": 2.0}) as book:
        roster = Roster({"ana": Student("ana", "Ana Maria Novák", "a@x.org")})
        entries = [Entry(make_result(lab, s).verdict) for s in ("ana", "cy")] + [Entry(waits)]
        book.write(entries, None, ["di"], roster)
        with pytest.raises(DistributedError, match="at most 4 points, got 4.5"):
            book.set_points("ana", ByHand("epoch", 4.5))
        book.set_points("ana", ByHand("epoch", 4.5, "beyond what was asked"), above=True)
        book.set_points("cy", ByHand("epoch", 0.0, "copied"))
        assert book.read_manual() == {"ana": {"epoch": 4.5}, "cy": {"epoch": 0.0}}
        assert book.read_reasons() == {
            "ana": {"epoch": "beyond what was asked"},
            "cy": {"epoch": "copied"},
        }
        marks = {student: labs["lab01"][0] for student, labs in book.read_course().items()}
        assert marks == {"ana": 12.5, "bo": None, "cy": 8, "di": None}
        named = {s.id: (s.first_name, s.last_name, s.email) for s in book._gradebook.students}
        assert named["ana"] == ("Ana Maria", "Novák", "a@x.org") and named["cy"] == (None,) * 3
        book.set_points("cy", ByHand("epoch", None))
        assert "cy" not in book.read_reasons() and "cy" not in book.read_manual()
