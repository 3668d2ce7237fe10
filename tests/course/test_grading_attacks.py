"""Attacks on grading, each with wrong answers: nothing is gained, nobody else is harmed.

All of them are handed in together, between honest students, and graded in one run.
"""

import dataclasses
import os
import random
import socket
import sqlite3
import textwrap
import threading

import psutil
import pytest
from grading_attacks import ANSWERS, BEFORE, LOUD
from grading_notebooks import LAB, RIGHT, ROOT, WRONG, fill, write
from process_watch import wait_for

from distlab.grading.executor import observe
from distlab.grading.judge_process import JudgeProcess
from distlab.grading.judging import LabRules
from distlab.grading.observation import Observation, Submission

RULES = LabRules(
    data=(),
    cell_seconds=3,
    own_seconds=0.5,
    submission_seconds=10,
    memory_mib=700,
    judge_seconds=5,
)
QUICK = dataclasses.replace(LAB, rules=RULES)
HONEST = ["honest 1", "honest 2", "honest 3", "honest 4"]
SECRET, OTHER = "SECRET-OF-THE-TEACHER", "ANSWER-OF-ANOTHER"
SECRETS = (
    SECRET,
    OTHER,
    "FOUND-A-JUDGE",
    "judge imported",
    "CONNECTED",
    "WROTE",
    "GRADEBOOK-CHANGED",
    "root:x:",
)
# the attack runs as part of an answer, which then says again what it printed
ANSWER = """
import sys
_leak = []
def print(*a, **k):
    _leak.append(" ".join(map(str, a)))
def attack():
{attack}
def plan_epoch(n, b):
    if not _leak:
        print("begun")
        try:
            attack()
        except Exception as error:
            print(type(error).__name__, error)
        sys.stdout.write("\\n".join(_leak)[:15000])
    return n // b, b
"""


LOUD_NAME = "a stranger's characters"


class Teacher:
    """The teacher's side: a secret, a gradebook, a listening port, and the files handed in."""

    def __init__(self, folder) -> None:
        self.folder = folder
        self.submitted = folder / "submitted"
        self.submitted.mkdir()
        (folder / "secret.txt").write_text(SECRET)
        with sqlite3.connect(folder / "gradebook.db") as base:
            base.execute("create table marks (student text, mark real)")
            base.execute("insert into marks values ('everybody', 0)")
        self.heard = []
        self.listener = socket.create_server(("0.0.0.0", 0))
        self.unix = socket.socket(socket.AF_UNIX)
        self.unix.bind("\0" + f"distlab-{os.getpid()}")
        self.unix.listen()
        for server in (self.listener, self.unix):
            threading.Thread(target=self.listen, args=(server,), daemon=True).start()

    def listen(self, server) -> None:
        while True:
            try:
                self.heard.append(server.accept())
            except OSError:
                return

    def fill_in(self, text: str) -> str:
        values = {
            "SECRET": self.folder / "secret.txt",
            "GRADEBOOK": self.folder / "gradebook.db",
            "OTHER": self.submitted / "honest 1.ipynb",
            "PORT": self.listener.getsockname()[1],
            "SOLUTIONS": ROOT / "distlab/labs/lab01/judge.py",
            "HOST": socket.gethostname(),
            "UNIX": f"distlab-{os.getpid()}",
        }
        for name, value in values.items():
            text = text.replace(f"@{name}@", str(value))
        return text


def write_files(teacher) -> list[Submission]:
    """Hand-ins that are no notebooks, and names that are no names."""
    folder, files = teacher.submitted, {}
    wrong = fill(WRONG)
    (folder / "link.ipynb").symlink_to(teacher.folder / "secret.txt")
    os.mkfifo(folder / "pipe.ipynb")
    (folder / "folder.ipynb").mkdir()
    with open(folder / "large.ipynb", "wb") as file:
        file.write(b'{"cells": [')
        file.truncate(200 * 2**20)
    (folder / "deep.ipynb").write_text('{"cells": ' + "[" * 200_000 + "]" * 200_000 + "}")
    (folder / "bytes.ipynb").write_bytes(bytes(range(256)) * 50)
    (folder / "nothing.ipynb").write_text("")
    (folder / "word.ipynb").write_text('{"cells": 7, "metadata": [], "nbformat": "x"}')
    (folder / "numbers.ipynb").write_text('{"cells": [1, null, [], {"source": 5}, {}]}')
    for name in "link pipe folder large deep bytes nothing word numbers absent".split():
        files[f"file: {name}"] = folder / f"{name}.ipynb"
    names = ("../../../etc/passwd", "a\0b", "x" * 5000, "$(touch /tmp/x)", "\ud800")
    for k, name in enumerate(names):
        files[name] = write(wrong, folder / f"name{k}.ipynb")
    return [Submission(name, path) for name, path in files.items()]


def hand_in(teacher) -> list[Submission]:
    folder = teacher.submitted
    handed = write_files(teacher)
    honest = fill(RIGHT, (f"answer = {OTHER!r}",))
    for k, (name, cell) in enumerate(BEFORE.items()):
        cell = teacher.fill_in(cell)
        answer = ANSWER.format(attack=textwrap.indent(cell, "    "))
        notebook = fill({**WRONG, "epoch": answer}, (cell,))
        handed.append(Submission(name, write(notebook, folder / f"attack{k}.ipynb")))
    for k, (name, answers) in enumerate({**ANSWERS, LOUD_NAME: {**WRONG, "epoch": LOUD}}.items()):
        handed.append(Submission(name, write(fill(answers), folder / f"answer{k}.ipynb")))
    random.Random(1).shuffle(handed)
    step = len(handed) // len(HONEST)
    for k, name in enumerate(HONEST):
        handed.insert(k * step + 2, Submission(name, write(honest, folder / f"{name}.ipynb")))
    return handed


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """Everything handed in, graded once: observations and verdicts by student, and the teacher."""
    teacher = Teacher(tmp_path_factory.mktemp("teacher"))
    handed = hand_in(teacher)
    children = psutil.Process().children(recursive=True)
    temporary = set(os.listdir("/tmp")) | set(os.listdir("/dev/shm"))
    seen, verdicts = {}, {}
    with JudgeProcess(QUICK) as bench:
        for observation in observe(QUICK, handed, lambda s: random.randrange(2**32)):
            assert observation.student not in seen
            seen[observation.student] = observation
            verdicts[observation.student] = bench.judge(observation)
    yield dataclasses.make_dataclass(
        "Graded", ["teacher", "handed", "seen", "verdicts", "children", "temporary"]
    )(teacher, handed, seen, verdicts, children, temporary)
    teacher.listener.close()
    teacher.unix.close()


def test_every_submission_is_there_and_the_honest_have_full_marks(graded):
    assert set(graded.seen) == {s.student for s in graded.handed}
    for name in HONEST:
        assert graded.verdicts[name].mark == LAB.points, graded.verdicts[name]
        assert not graded.verdicts[name].notes
    assert len(BEFORE) + len(ANSWERS) >= 25


@pytest.mark.parametrize("name", [*BEFORE, *ANSWERS])
def test_an_attack_earns_nothing(graded, name):
    verdict = graded.verdicts[name]
    assert verdict.mark == 0, verdict
    assert verdict.max == LAB.points
    assert all(e.message for e in verdict.exercises)
    assert Observation.from_json(graded.seen[name].to_json()) == graded.seen[name]


def test_files_that_are_no_notebooks_get_a_note_each_and_no_mark(graded):
    names = [n for n in graded.seen if n.startswith("file: ")]
    assert len(names) == 10
    for name in names:
        verdict = graded.verdicts[name]
        assert verdict.mark == 0 and verdict.notes, name
        assert graded.seen[name].problem and not graded.seen[name].cells, name
    assert "link" in graded.seen["file: link"].problem
    assert "64 MiB, got 200" in graded.seen["file: large"].problem
    assert "too deeply" in graded.seen["file: deep"].problem
    assert graded.seen["file: link"].sha256 == ""


def test_the_attacks_did_run(graded):
    """What the leak shows: it would have shown more."""
    output = {name: o.cells[0].output for name, o in graded.seen.items() if o.cells}
    assert "No such file" in output["other submissions, home and the teacher's files"]
    assert "1 processes" not in output["/proc"] and "processes" in output["/proc"]
    assert "No space left" in output["disk"]
    assert "Network is unreachable" in output["network"]
    assert "Operation not permitted" in output["namespaces, mounts, tracing"]
    assert "DONE" not in output["namespaces, mounts, tracing"]
    assert "Read-only file system" in output["the course's files changed for the next one"]
    assert "ALLOWED" not in output["memory that no process holds"]
    assert output["memory that no process holds"].count("Operation not permitted") >= 7
    status = output["namespaces, mounts, tracing"].split()
    for name, value in (("CapEff:", "0" * 16), ("Seccomp:", "2"), ("NoNewPrivs:", "1")):
        assert status[status.index(name) + 1] == value


def test_nothing_was_read(graded):
    for name, observation in graded.seen.items():
        if name in HONEST:
            continue
        text = observation.to_json()
        for secret in SECRETS:
            assert secret not in text, (name, secret)


def test_nobody_was_reached_and_nothing_was_changed(graded):
    assert graded.teacher.heard == []
    with sqlite3.connect(graded.teacher.folder / "gradebook.db") as base:
        assert base.execute("select * from marks").fetchall() == [("everybody", 0)]
    assert (graded.teacher.folder / "secret.txt").read_text() == SECRET


def test_no_process_and_no_file_is_left(graded):
    wait_for(lambda: set(psutil.Process().children(recursive=True)) <= set(graded.children))
    every = psutil.process_iter
    wait_for(lambda: not any("98765431" in (p.info["cmdline"] or []) for p in every(["cmdline"])))
    left = (set(os.listdir("/tmp")) | set(os.listdir("/dev/shm"))) - graded.temporary
    assert not [name for name in left if "attack" in name]


def test_what_is_said_carries_no_control_characters(graded):
    name = "a stranger's characters"
    cell = graded.seen[name].cells[0]
    assert "<script>" in cell.output and "<script>" in cell.error  # to be escaped by who shows it
    for text in (graded.verdicts[name].exercises[0].message, cell.output, cell.error):
        assert not any(ord(c) < 32 and c not in "\n\t" or 0x202A <= ord(c) <= 0x202E for c in text)


def test_what_ended_a_process_is_said(graded):
    errors = {
        name: " ".join(o.notes) + " ".join(c.error for c in o.cells)
        for name, o in graded.seen.items()
    }
    assert "processes" in errors["more processes than it may have"]
    assert "memory" in errors["memory"]
    assert "output" in errors["output"] and "output" in errors["output on both streams without end"]
    for name in ("endless loop that swallows interrupts", "sleep with signals ignored", "stopped"):
        assert "didn't end within 3 s" in errors[name]
