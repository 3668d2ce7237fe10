"""`distlab grade` as a teacher meets it: real sandbox, real gradebook, stopped and gone on with."""

import csv
import json
import signal
import time
from functools import partial
from pathlib import Path

import psutil
import pytest
from child_programs import run_distlab, start_distlab
from grading_notebooks import ANSWERS, RIGHT, WRONG, fill, read_stub, write
from process_watch import wait_for

from distlab.cli import main
from distlab.grading.executor import check_can_seal

ROOT = Path(__file__).resolve().parents[2]
SLUG = "lab01-batches-and-words"
SLOW = {**RIGHT, "epoch": "import time\ntime.sleep(2)\n" + RIGHT["epoch"]}

try:
    check_can_seal()
except Exception as error:  # macOS, or a system that forbids user namespaces
    pytestmark = pytest.mark.skip(reason=f"this machine cannot seal: {error}")


def hand_in(root, student, answers, stamp=""):
    """Write the lab with `answers` by exercise as one student's hand-in."""
    place = root / student / "lab01"
    place.mkdir(parents=True)
    write(fill(answers), place / f"{SLUG}.ipynb")
    if stamp:
        (place / "timestamp.txt").write_text(stamp)


def distlab_grade(*arguments):
    done = run_distlab("grade", "lab01", *arguments, cwd=ROOT)
    return done.returncode, done.stdout, done.stderr


def by_student(text):
    record = json.loads(text)
    assert list(record) == ["lab", "submissions", "seconds"] and record["lab"] == "lab01"
    return {submission["student"]: submission for submission in record["submissions"]}


def points(submission):
    return [exercise["points"] for exercise in submission["exercises"]]


def read_records(out):
    records = out / "lab01" / "journal" / "records"
    return {
        path.name: (path.stat().st_ino, json.loads(path.read_text()))
        for path in records.glob("*.json")
    }


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """A class graded once: (folder, out, arguments, marks by student)."""
    root = tmp_path_factory.mktemp("class")
    submitted = root / "submitted"
    hand_in(submitted, "ana", RIGHT, stamp="2026-11-20 10:00:00 UTC")
    others = {name: answers[-1] for name, answers in ANSWERS.RIGHT.items()}
    hand_in(submitted, "bela", others, stamp="2026-11-22 12:00:00 UTC")
    hand_in(submitted, "cid", WRONG)
    hand_in(submitted, "dora", {})
    (submitted / "eve" / "lab01").mkdir(parents=True)
    (submitted / "eve" / "lab01" / "essay.docx").write_text("I have written a lot")
    (root / "extra.csv").write_text("student,extra\nbela,1 day\n")
    arguments = [submitted, "--output", root / "out", "--gradebook", root / "gradebook.db"]
    arguments += "--due 2026-11-20T23:59 --penalty 10%/day --extensions".split()
    arguments += [root / "extra.csv"]
    status, output, errors = distlab_grade(*arguments, "--json")
    assert errors == "", errors
    return root, status, arguments, by_student(output)


def test_marks_penalties_and_what_waits_for_a_human(graded):
    root, status, _, marks = graded
    assert status == 1  # eve waits for a human
    found = {student: m["mark"] for student, m in marks.items()}
    assert found == {"ana": 10, "bela": 9, "cid": 0, "dora": 0, "eve": None}
    assert {m["max"] for m in marks.values()} == {10}
    assert "12 h late: 1 point off" in marks["bela"]["notes"]
    assert "not a notebook" in " ".join(marks["eve"]["notes"])
    for exercise in marks["cid"]["exercises"]:
        assert exercise["misconception"] == next(iter(ANSWERS.WRONG[exercise["id"]]))
        assert "should give" in exercise["message"]


def test_pages_tables_and_gradebook_are_there(graded):
    root, _, _, marks = graded
    out = root / "out" / "lab01"
    assert len(list((out / "feedback").glob("*.html"))) == 5 and (out / "class.html").is_file()
    with open(out / "marks.csv", newline="") as stream:
        rows = {row["student"]: row for row in csv.DictReader(stream)}
    assert rows["bela"]["mark"] == "9" and rows["bela"]["late_penalty"] == "1"
    assert rows["eve"]["for_a_human"] == "yes" and rows["ana"]["sealed"] == "yes"
    with open(root / "out" / "course.csv", newline="") as stream:
        rows = {row["student"]: row for row in csv.DictReader(stream)}
    assert rows["ana"] == {
        "student": "ana",
        "name": "ana",
        "lab01": "10",
        "percent": "100.0",
        "waiting": "",
    }
    assert (
        rows["eve"]["lab01"] == rows["eve"]["percent"] == "" and rows["eve"]["waiting"] == "lab01"
    )
    from nbgrader.api import Gradebook

    with Gradebook(f"sqlite:///{root}/gradebook.db") as book:
        submission = book.find_submission("lab01", "bela")
        assert submission.score == 10 and submission.late_submission_penalty == 1
        assert submission.total_seconds_late == 12 * 3600 + 60
        assert book.find_submission("lab01", "eve").needs_manual_grade


def test_every_path_is_read_from_where_the_command_is_typed(tmp_path):
    """All of them relative, outside the checkout; if no file can be opened, status 2."""
    hand_in(tmp_path / "class", "ana", RIGHT)
    files = {
        "list.csv": "student,name\nana,Ana Alt\n",
        "extra.csv": "ana,2 days\n",
        "times.csv": "student,handed_in\nana,2026-11-21T10:00\n",
        "rules.toml": "[labs.lab01]\ndue = 2026-11-20T23:59:00\n"
        "[penalty]\npoints = 1\nper = 'day'\n",
        "marks.csv": "student,exercise,points,reason\nana,epoch,1,asked\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    options = (
        "--output out --gradebook book/gradebook.db --roster list.csv --submission-times "
        "times.csv --policy rules.toml --extensions extra.csv "
        "--marks marks.csv --json"
    ).split()
    run = partial(run_distlab, "grade", "lab01", "class", *options, cwd=tmp_path)
    done = run(status=0)
    (ana,) = json.loads(done.stdout)["submissions"]
    assert (ana["student"], ana["mark"]) == ("ana", 9)  # set by hand, and not late
    assert (tmp_path / "out/lab01/class.html").is_file() and (tmp_path / "book").is_dir()
    notebook = next((tmp_path / "class").rglob("*.ipynb"))
    notebook.rename(notebook.with_suffix(".kept"))
    notebook.symlink_to(notebook.with_suffix(".kept"))
    assert "no file of the class can be opened" in run(status=2).stderr


def test_a_second_run_gives_the_same_marks_and_runs_nothing_again(graded):
    root, _, arguments, marks = graded
    before = read_records(root / "out")
    _, output, _ = distlab_grade(*arguments, "--json")
    assert by_student(output) == marks
    after = read_records(root / "out")
    ran = {name for name, (_, record) in before.items() if record["sha256"]}
    assert len(ran) == 4 and all(after[name] == before[name] for name in ran)


def test_one_exercise_of_one_student_again_and_a_mark_by_hand(graded):
    root, _, arguments, marks = graded
    before = {r["student"]: r for _, r in read_records(root / "out").values()}
    once = "--student cid --student ana --exercise batches --rerun".split()
    by_hand = "--set cid epoch 1.5 --set eve scaling 0.5".split()
    status, output, _ = distlab_grade(*arguments, "--json", *once, *by_hand)
    found = by_student(output)
    assert points(found["cid"]) == [1.5, 0, 0, 0] and found["cid"]["mark"] == 1.5
    assert "epoch: set by hand" in found["cid"]["notes"] and found["ana"] == marks["ana"]
    new, old = found["cid"]["exercises"], marks["cid"]["exercises"]
    assert new[1]["message"] != old[1]["message"]  # other numbers
    assert new[2]["message"] == old[2]["message"]  # this one wasn't asked for
    after = {r["student"]: r for _, r in read_records(root / "out").values()}
    assert after["cid"]["observation"]["seed"] != before["cid"]["observation"]["seed"]
    assert after["bela"] == before["bela"]
    status, output, _ = distlab_grade(
        *arguments, "--json", "--student", "cid", "--set", "cid", "epoch", "auto"
    )
    assert by_student(output)["ana"] == marks["ana"]  # right once more: nobody is forgotten
    assert points(by_student(output)["cid"]) == [0, 0, 0, 0]
    assert points(by_student(output)["eve"])[3] == 0.5


def test_marks_by_hand_in_bulk_write_only_what_changes_and_say_why(graded):
    root, _, arguments, _ = graded
    out = root / "out" / "lab01"
    distlab_grade(*arguments)
    pages = {path.name.split("-")[0]: path for path in (out / "feedback").iterdir()}
    before = {name: path.stat().st_mtime_ns for name, path in pages.items()}
    records = read_records(root / "out")
    marks = root / "marks.csv"
    marks.write_text(
        "student,exercise,points,reason\ndora,1,1.25,said it in the room\ncid,batches,2,\n"
    )
    status, output, errors = distlab_grade(*arguments, "--marks", marks)
    assert errors == "" and "2 marks changed since the last grading" in output
    assert "dora: epoch 0 → 1.25 (set by hand: said it in the room)" in output
    assert "TIMES: 3 of 5 submissions have no known time" in output
    changed = {name for name, path in pages.items() if path.stat().st_mtime_ns != before[name]}
    assert changed == {"dora", "cid"} and read_records(root / "out") == records
    assert "said it in the room" in pages["dora"].read_text()
    assert "said it in the room" in (out / "changes.csv").read_text()
    marks.write_text("student,exercise,points\ndora,1,1\nana,epoch,3\n")
    status, _, errors = distlab_grade(*arguments, "--marks", marks)
    assert status == 2 and "at most 2 points, got 3" in errors  # and nothing of it is set
    status, output, _ = distlab_grade(*arguments, "--anonymous", "--json")
    codes = by_student(output)
    assert sorted(m["mark"] or 0 for m in codes.values()) == [0, 1.25, 2, 9, 10]
    assert all(code.startswith("anon-") for code in codes)
    (dora,) = (code for code, marks in codes.items() if marks["mark"] == 1.25)
    status, output, _ = distlab_grade(*arguments, "--set", dora, "epoch", "auto")
    assert "dora: epoch 1.25 → 0 (no longer set by hand)" in output


@pytest.fixture
def start(tmp_path):
    """Starts `distlab grade` in the background."""
    (tmp_path / "scratch").mkdir()
    scratch = {"TMPDIR": str(tmp_path / "scratch")}
    return partial(start_distlab, "grade", "lab01", cwd=ROOT, variables=scratch)


def wait_for_records(process, out, least):
    """Wait until `least` submissions have been seen and some haven't."""
    deadline = time.time() + 240
    while time.time() < deadline and process.poll() is None:
        found = read_records(out) if out.exists() else {}
        if sum(r["observation"] is not None for _, r in found.values()) >= least:
            return
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    raise AssertionError(process.communicate(timeout=240))


def find_family(process):
    return psutil.Process(process.pid).children(recursive=True)


def assert_all_gone(family, scratch):
    gone, alive = psutil.wait_procs(family, timeout=240)
    assert alive == []
    wait_for(lambda: not list(scratch.iterdir()))  # one that began meanwhile tidies up, too


def seen_of(out):
    return {name: r for name, (_, r) in read_records(out).items() if r["observation"]}


def test_stopped_killed_and_gone_on_with(start, capsys, tmp_path):
    """Ctrl-C, SIGKILL, and a second `distlab grade` at the same time: each sees what it should."""
    submitted, out = tmp_path / "submitted", tmp_path / "out"
    for k in range(6):
        wrong = {} if k % 2 else {"batches": "def replica_batch_sizes(b, w, r):\n    return [b]"}
        hand_in(submitted, f"s{k}", SLOW | wrong)
    arguments = [submitted, "--output", out, "--jobs", "1", "--json"]

    process = start(*arguments)
    wait_for_records(process, out, 1)
    process.send_signal(signal.SIGSTOP)  # it stays half-way, however long the other one takes
    assert main(["grade", "lab01", *map(str, arguments)]) == 2
    said = capsys.readouterr()
    assert said.out == "" and "another `distlab grade` is at work" in said.err
    assert said.err.count("\n") == 1
    family = find_family(process)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGCONT)
    output, errors = process.communicate(timeout=240)
    assert process.returncode == 130 and output == "", errors
    assert errors.count("\n") == 1 and "run the same command to continue" in errors
    assert_all_gone(family, tmp_path / "scratch")
    first = seen_of(out)
    assert 1 <= len(first) < 6

    process = start(*arguments)
    wait_for_records(process, out, len(first) + 1)
    family = find_family(process)
    process.kill()
    process.communicate(timeout=240)
    assert_all_gone(family, tmp_path / "scratch")
    second = seen_of(out)
    assert len(first) < len(second) <= 6
    assert all(second[name]["observation"] == first[name]["observation"] for name in first)

    status, output, errors = distlab_grade(*arguments)
    assert status == 0 and errors == ""
    marks = by_student(output)
    assert {s: m["mark"] for s, m in marks.items()} == {
        f"s{k}": 10 if k % 2 else 7 for k in range(6)
    }
    last = seen_of(out)
    assert all(last[name]["observation"] == second[name]["observation"] for name in second)
    assert all(record["attempt"] == 0 for record in last.values())


def test_killed_without_the_sandbox_it_leaves_nothing_either(start, tmp_path):
    for k in range(3):
        hand_in(tmp_path / "in", f"s{k}", SLOW)
    options = ("--output", tmp_path / "out", "--no-sandbox", "--jobs", "1")
    process = start(tmp_path / "in", *options)
    wait_for_records(process, tmp_path / "out", 1)
    family = find_family(process)
    process.kill()
    process.communicate(timeout=240)
    assert_all_gone(family, tmp_path / "scratch")


def test_a_new_hand_in_is_run_and_an_unsealed_run_is_written_on_the_report(tmp_path):
    hand_in(tmp_path / "in", "ana", RIGHT)
    arguments = [tmp_path / "in", "--output", tmp_path / "out"]
    status, output, _ = distlab_grade(*arguments, "--no-sandbox")
    assert status == 0 and "without the sandbox" in output
    (page,) = (tmp_path / "out" / "lab01" / "feedback").iterdir()
    assert "Run without the sandbox" in page.read_text()
    assert "without the sandbox" in (page.parent.parent / "class.html").read_text()
    write(read_stub(), tmp_path / "in" / "ana" / "lab01" / f"{SLUG}.ipynb")
    status, output, _ = distlab_grade(*arguments, "--json")
    assert by_student(output)["ana"]["mark"] == 0
    ((_, record),) = read_records(tmp_path / "out").values()
    assert record["observation"]["sealed"]
    assert "Run without the sandbox" not in page.read_text()
