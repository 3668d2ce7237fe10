"""A class as a cluster: laptops are processes with addresses of their own on loopback."""

import contextlib
import io
import json
import os
import re
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
import warm_start
from machines import CODE, Launcher
from page_checks import find_with_axe
from process_watch import lives, wait_for

from distlab.classroom import ClassSettings, start
from distlab.classroom.events import read_event
from distlab.classroom.meeting import add_port
from distlab.classroom.roll import Roll
from distlab.classroom.settings import read_settings
from distlab.classroom.table import Table
from distlab.classroom.watching import ClassCockpit
from distlab.explorables.screenshots import write_page
from utils.cluster import LocalCluster
from utils.cluster.streams import clean_line
from utils.cluster.waiting import is_stopped
from utils.engines.rendezvous.host import Presence
from utils.engines.rendezvous.names import clean_name
from utils.tf_config import pick_free_ports
from utils.training.recovery import train_with_recovery

STEPS = 30
SETTINGS = ClassSettings(
    epochs=3,
    examples=160,
    global_batch_size=16,
    checkpoint_every=4,
    seed=3,
    hidden_units=8,
    pause_seconds=0.1,
)
CELL = """
import pathlib, sys, time
from distlab.classroom import join
print("ready", file=sys.stderr, flush=True)
while not pathlib.Path("go").exists():
    time.sleep(0.05)
address, number, name = sys.argv[1:]
own = f"127.0.0.{number}"
print(join(address, name=name, advertise_address=own, logs=f"student-{number}").status)
"""

SILENT = """
import os, signal, sys, time

pauses, sleep = [], time.sleep


def fall_silent(seconds):  # in the sixth step: the others wait in its all-reduce, none saves
    if sys._getframe(1).f_code.co_name == "pause":
        pauses.append(seconds)
        if len(pauses) == 6:
            os.kill(os.getpid(), signal.SIGSTOP)
    sleep(seconds)


time.sleep = fall_silent
"""


class Room:
    """A class on loopback: the teacher is 127.0.0.1, students have the other addresses."""

    def __init__(self):
        self.port, self.started, self.frozen = pick_free_ports(1)[0], [], []
        self.address = f"127.0.0.1:{self.port}"

    def run(self, *words, **settings):
        self.started.append(Launcher(*words, **settings))
        return self.started[-1]

    def start(self, workers, **settings):
        where = (
            f"--advertise-address 127.0.0.1 --port {self.port} --json --workers {workers}".split()
        )
        options = [
            word
            for name, value in json.loads(replace(SETTINGS, **settings).to_text()).items()
            for word in (f"--{name.replace('_', '-')}", value)
        ]
        own = ["--name", "Teacher", "--logs", "teacher"]
        teacher = self.run(*where, *own, *options, command=("classroom", "start"))
        teacher.wait_for("each student types")
        return teacher

    def join(self, number, name, action="join", **settings):
        own = [
            "--advertise-address",
            f"127.0.0.{number}",
            "--name",
            name,
            "--logs",
            f"student-{number}",
        ]
        return self.run(self.address, *own, command=("classroom", action), **settings)

    def join_from_a_cell(self, number, name):
        """Return a student in a notebook, who joins once the file "go" is there."""
        Path("cell.py").write_text(CELL)
        student = self.run(self.address, number, name, program=["cell.py"], command=())
        student.wait_for("ready")
        return student

    def join_and_fall_silent(self, number, name):
        """Return a student whose task stops in its sixth step."""
        folder = Path(f"silent-{number}")
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(SILENT)
        path = os.pathsep.join(filter(None, [str(folder.resolve()), os.environ.get("PYTHONPATH")]))
        return self.join(number, name, variables={"PYTHONPATH": path})

    def freeze_children(self, launcher):
        """Once the task of a laptop has stopped, freeze all else that the laptop has started."""
        laptop = psutil.Process(launcher.process.pid)
        wait_for(lambda: any(map(is_stopped, list_numbers(laptop))))
        self.frozen = laptop.children(recursive=True)
        for process in self.frozen:
            process.suspend()

    def thaw(self):
        for process in self.frozen:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()
        self.frozen = []

    def find_processes(self):
        """Return all processes that the laptops have started."""
        owners = [
            psutil.Process(launcher.process.pid)
            for launcher in self.started
            if launcher.process.poll() is None
        ]
        return [number for owner in owners for number in list_numbers(owner)]


def list_numbers(owner):
    return [child.pid for child in owner.children(recursive=True)]


@pytest.fixture
def room(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(warm_start, "FOLDERS", (*warm_start.FOLDERS, tmp_path.resolve()))
    made = Room()
    yield made
    made.thaw()  # before: what is frozen holds its launcher's pipes open
    for launcher in made.started:
        launcher.close()


@pytest.mark.long
def test_a_class_loses_a_laptop_and_takes_in_a_late_one(room):
    """Three train; one falls silent and is left out; a late one comes in with that start.

    The weights are those of a run that goes on from the checkpoint at which they began again.
    """
    teacher = room.start(3)
    wrong, tester = room.join(9, "Eve", code="wrong-code-2345"), room.join(8, "Tess", "test")
    assert wrong.process.wait(90) == 2 and wrong.wait_for("the code is wrong")
    assert tester.process.wait(90) == 0 and tester.wait_for("2 machines reach each other")
    ada = room.join(2, "Ada\x1b[2J")
    teacher.wait_for("(127.0.0.2) has joined")
    ben = room.join_and_fall_silent(3, "Ben")
    late = room.join_from_a_cell(4, "Ada2J")  # a name that is taken
    room.freeze_children(ben)  # now all wait in the all-reduce
    processes = room.find_processes()
    shutil.copytree("teacher/checkpoint", "kept")
    Path("go").touch()
    late.wait_for("the run has begun")
    ben.freeze()
    teacher.wait_for("all tasks start again")
    status, report, said = teacher.end(180)
    assert (status, report["workers"], report["restarts"]) == (0, 3, 1), said
    assert [task["host"] for task in report["tasks"]][1:] == ["Ada2J", "Ada2J 2"]
    assert f"after step {STEPS} the weights are" in said and "the same on 3 laptops" in said
    assert "❚❚ silent" in said and "◌ waits for Ben" in said and "\x1b" not in said
    for student in (ada, late):
        assert student.process.wait(120) == 0 and student.wait_for(f"done after step {STEPS}")
    assert late.process.stdout.read() == "0\n"
    room.thaw()
    ben.process.send_signal(signal.SIGCONT)
    assert ben.process.wait(120) == 2 and ben.wait_for("Type the same command again")
    assert not any("Traceback" in line for line in (*ada.lines, *ben.lines))
    assert len(processes) >= 6
    wait_for(lambda: not any(map(lives, processes)))
    compare_with_restart("kept", "teacher/checkpoint")


def compare_with_restart(kept, ended):
    """Alone, train on from what was kept; the weights are those that the class has ended with."""
    with LocalCluster(workers=1) as cluster:
        jobs = [
            cluster.start(train_with_recovery, SETTINGS.to_recovery(folder))
            for folder in (kept, ended)
        ]
        alone, whole = (job.wait(120)[0] for job in jobs)
    assert 4 == alone.restored_step < STEPS == alone.step == whole.restored_step
    for one, other in zip(alone.weights, whole.weights, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-9)


def test_the_end_of_the_teacher_is_the_end_of_all(room):
    """Ctrl-C while all start; what was started on any laptop is gone."""
    teacher, student = room.start(2, epochs=1000), room.join(2, "Ada")
    teacher.wait_for("Ada")
    teacher.wait_for("○ starting")
    processes = wait_for(lambda: len(found := room.find_processes()) >= 4 and found)
    teacher.process.send_signal(signal.SIGINT)
    status, report, said = teacher.end()
    assert status == 130 == student.process.wait(120), said
    student.wait_for("ended before its last step")
    wait_for(lambda: not any(map(lives, processes)))


def test_from_a_notebook_a_class_begins_with_those_who_are_there(room, monkeypatch):
    monkeypatch.setenv("DISTLAB_CODE", CODE)
    told = []
    long = {"epochs": 1000, "pause_seconds": 0.1}
    running = start(5, "127.0.0.1", room.port, told.append, name="Teacher", logs="teacher", **long)
    try:
        Path("go").touch()
        student = room.join_from_a_cell(2, "Ada")
        wait_for(lambda: any("has joined" in line for line in told))
        cockpit = running.cockpit
        names = ["Teacher", "Ada"]  # the page follows the printed line
        wait_for(lambda: [lane["name"] for lane in cockpit.data["lanes"]] == names)
        assert cockpit.data["watchOnly"] and "2 of 5 laptops" in cockpit.data["status"]
        assert f"join {room.address}\n" in cockpit.data["message"]
        assert not any(lane["spans"] for lane in cockpit.data["lanes"])
        cockpit.act("begin")
        wait_for(lambda: all(map(shows_training, cockpit.data["lanes"])))
        lanes = cockpit.data["lanes"]
        assert not any(value for lane in lanes for value in lane["can"].values())
        cockpit.act("kill", "Ada")
        cockpit.act("stop")
        assert running.wait().status == 130 and student.process.wait(120) == 0
        assert student.process.stdout.read() == "130\n"
        wait_for(lambda: cockpit.data["finished"])
        assert "stopped" in cockpit.data["status"]
    finally:
        running.stop()


def shows_training(lane):
    """Return whether it is at its tenth step or later, and has computed and sent."""
    late = re.match(r"step \d[\d,]", lane["facts"])
    return late and {"compute", "send"} <= {kind for _, _, kind in lane["spans"]}


# What comes from other people's laptops


def test_a_handout_is_read_as_it_was_written():
    assert read_settings(SETTINGS.to_text()) == SETTINGS


@pytest.mark.parametrize(
    "line",
    [
        "step 3",
        '{"event": "step"}',
        '{"event": "step", "time": 1, "step": -1, "loss": 0}',
        '{"event": "step", "time": NaN, "step": 1, "loss": 0}',
        '{"event": "kill", "time": 1}',
        '{"event": "step", "time": 1, "step": 1e3, "loss": 0}',
        '{"event": ' + "[" * 400,
        '{"event": "step", "time": 1, "step": 1, "loss": "' + "x" * 600 + '"}',
        '{"event": "weights", "time": 1, "step": 1, "checksum": "\\u001b[2J"}',
    ],
)
def test_a_line_that_is_no_event_is_words(line):
    assert read_event(line) is None


def test_names_and_lines_are_cleaned():
    assert clean_name("  Ada \x1b[31m\u202e<b>$x$\n") == "Ada 31mbx"
    assert clean_name("Zoë O'Neil") == "Zoë O'Neil" and clean_name("李雷") == "李雷"
    assert clean_name("\x00\u202e$") == "somebody" and len(clean_name("x" * 99)) == 32
    assert clean_name("a" + "\u0301\u0302\u0303\u0304\u0305") == "á\u0302\u0303"
    assert clean_line("a\x1b[2J\u202eb") == "a b"


def test_addresses_get_a_port():
    assert add_port("10.0.0.5") == "10.0.0.5:2950" and add_port("[::1]:7") == "[::1]:7"
    assert add_port("::1") == "[::1]:2950" and add_port("laptop:80") == "laptop:80"


class FakeRun:
    """A hosted run of two, as a roll sees it."""

    def __init__(self):
        self.starts, self.group = 1, SimpleNamespace(first_failed=None)
        self.here = [Presence("T", "", "worker 0"), Presence("李", "", "worker 1")]

    def look(self):
        return self.here


def write_event(kind, seconds, **fields):
    return json.dumps({"event": kind, "time": seconds, **fields})


def test_clocks_that_differ_are_put_on_the_teachers():
    """One laptop's clock is a year behind: its step stands next to the others', in the table."""
    now, stream = [time.time()], io.StringIO()
    roll = Roll("T", lambda: now[0])
    roll.follow(FakeRun())
    begun = now[0]
    for task, behind, computing in (("worker 0", 0.0, 0.01), ("worker 1", 3e7, 0.4)):
        told = [
            ("restore", 0.0, {"step": 0}),
            ("batch", 1.0, {}),
            ("ready", 1 + computing, {}),
            ("step", 1.5, {"step": 7, "loss": 0.5}),
        ]
        for kind, seconds, fields in told:
            now[0] = begun + seconds + 0.001 * (kind != "restore")
            roll.take_line(task, write_event(kind, begun + seconds - behind, **fields))
    assert all(abs(event["time"] - begun) < 2 for event in roll.history())
    roll.take_line("worker 1", "\x1b[2Jhello")
    roll.take_line("worker 9", "from nobody")
    assert roll.output() == [("李", "hello")]
    Table(roll, stream).close()
    head, teacher, other, whole = stream.getvalue().splitlines()[:4]
    assert teacher.split()[3:] == ["7", "10", "ms", "490", "ms", "李"]
    assert other.split()[3:] == ["7", "400", "ms", "100", "ms", "–"]
    assert whole == "start 1, step 7, loss 0.5000"


def test_the_cockpit_of_a_class_only_watches():
    roll, ended = Roll("T"), []
    roll.follow(FakeRun())
    roll.take_line("worker 1", write_event("restore", time.time(), step=0))
    room = SimpleNamespace(roll=roll, address="10.0.0.1:2950", stop=lambda: ended.append(True))
    shown = ClassCockpit(room)
    try:
        assert [lane["name"] for lane in shown.data["lanes"]] == ["T", "李"]
        assert "image/svg+xml" in shown._repr_mimebundle_() and "李" in shown.picture().alt
        shown.act("kill", "李")
        assert not ended
        shown.act("stop")
        assert ended and shown.data["message"] == "You ended the class."
    finally:
        shown.close()


def test_the_cockpit_of_a_class_fits_a_narrow_panel_and_both_themes(show_page, tmp_path):
    run, name, now = FakeRun(), "Maximiliane-Katharina", [time.time() - 9.0]
    run.here += [Presence("Bo", ""), Presence(name, "", "worker 2")]
    roll = Roll("T", lambda: now[0])
    roll.follow(run)
    for step in range(12):
        for kind, later in (("batch", 0.0), ("ready", 0.2), ("step", 0.5)):
            now[0] += 0.25
            for task in range(3):
                told = {"step": step, "loss": 1 / (1 + step)} if kind == "step" else {}
                roll.take_line(f"worker {task}", write_event(kind, now[0] + later, **told))
    run.here[-1] = replace(run.here[-1], silent_seconds=5.0)
    shown = ClassCockpit(SimpleNamespace(roll=roll, address="10.0.0.1:2950", workers=4))
    shown.close()
    for theme, width in (("dark", 480), ("light", 480), ("dark", 1000)):
        path = write_page(shown, tmp_path / f"{theme}.html", theme)
        page = show_page(path, viewport={"width": width, "height": 900})
        page.get_by_text("Nothing has been heard from").wait_for()
        assert find_with_axe(page, theme, width) == []
        shape = "node => getComputedStyle(node).display"
        assert page.locator(".ck-row").first.evaluate(shape) == "grid"
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator(".ck-time canvas").first.bounding_box()["width"] > width / 2
        assert page.locator("canvas:not([aria-hidden=true]):not([aria-label])").count() == 0
        page.screenshot(path=tmp_path / f"{theme}-{width}.png", full_page=True)


def test_a_flood_of_lines_stays_within_bounds(monkeypatch):
    monkeypatch.setattr("distlab.classroom.roll.MAX_KEPT", 50)
    roll = Roll("T")
    roll.follow(FakeRun())
    for number in range(500):
        roll.take_line("worker 1", f"{number}")
    kept = roll.output(400)
    assert len(kept) == 100 and kept[-1] == ("李", "499") and kept[0] == ("T", "")
