"""The grace of a task: what is asked to end may save, and what does nothing isn't waited for."""

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios

import pytest
from process_watch import wait_for

from utils.engines import RunSettings, run_program

GRACE = 300.0  # far above what any of these tasks needs

PROGRAM = """
import json, os, signal, sys, time
index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]

def compute():
    end = time.monotonic() + 3.5
    while time.monotonic() < end:
        sum(range(10_000))

def write():
    with open("big", "wb", 0) as file:
        for _ in range(12):
            file.write(bytes(8192))
            time.sleep(0.3)

def save(number, frame):
    {save}
    with open(f"saved-{{index}}", "w") as file:
        file.write(os.environ["DISTLAB_GRACE_SECONDS"])
    sys.exit(0)

signal.signal(signal.SIGTERM, signal.SIG_IGN if {is_deaf} else save)
open(f"ready-{{index}}", "w").close()
if index == 2:
    while not os.path.exists("ready-0") or not os.path.exists("ready-1"):
        time.sleep(0.01)
    sys.exit(5)
end = time.monotonic() + {grace}
while time.monotonic() < end:
    time.sleep(0 if {is_deaf} else 1)
"""


def fail(save, is_deaf="False"):
    """Run the program on three workers; the last fails. Return the others' statuses.

    `save` is what the others do at SIGTERM, for longer than a task may be idle.
    """
    text = PROGRAM.format(save=save, is_deaf=is_deaf, grace=2 * GRACE)
    settings = RunSettings(workers=3, grace_seconds=GRACE)
    report = run_program([sys.executable, "-c", text], settings, lambda *_: None, print)
    assert report.status == 5 and "worker 2" in report.cause
    return [task.status for task in report.tasks[:2]]


def test_tasks_that_save_after_a_peer_has_failed_may_finish(tmp_path, monkeypatch):
    """One uses the processor, the other writes; nothing else shows that they are at work."""
    monkeypatch.chdir(tmp_path)
    assert fail("compute() if index else write()") == [0, 0]
    assert [(tmp_path / f"saved-{i}").read_text() for i in (0, 1)] == [f"{GRACE:g}"] * 2


@pytest.mark.timeout(GRACE)  # who waits for them waits longer
def test_tasks_that_do_nothing_or_hear_nothing_are_not_waited_for(tmp_path, monkeypatch):
    """Worker 0 catches SIGTERM and sleeps, as TensorFlow does; worker 1 ignores it and works on."""
    monkeypatch.chdir(tmp_path)
    assert fail(f"time.sleep({2 * GRACE})", is_deaf="index == 1") == [137, 137]
    assert not list(tmp_path.glob("saved-*"))


STUCK = """
import json, os, time
index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
end = time.monotonic() + 9
with open(os.devnull, "wb", 0) as file:
    while index == 1 and time.monotonic() < end:
        file.write(bytes(8192))  # without a line
        time.sleep(0.2)
time.sleep(600 * (index > 0))
"""


def test_a_run_ends_once_nobody_does_anything(monkeypatch, tmp_path):
    """Worker 0 has ended; the others are named, but only once both have done nothing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("utils.cluster.waiting.IDLE_WORD_SECONDS", 3.0)
    settings, said = RunSettings(workers=3, idle_timeout_seconds=6.0), []
    report = run_program([sys.executable, "-c", STUCK], settings, lambda *_: None, said.append)
    assert report.status == 124
    assert "worker 1 on" in report.cause and "did nothing for" in report.cause
    assert said == ["worker 1, worker 2 did nothing for 6 s (--idle-timeout)"]
    settings, idle = RunSettings(workers=3), STUCK.replace("+ 9", "+ 0")
    with pytest.raises(Told):
        run_program([sys.executable, "-c", idle], settings, lambda *_: None, tell)


class Told(Exception):
    """What the launcher had to say has come."""


def tell(text):
    assert text.startswith("worker 1, worker 2 wrote nothing and used next to no processor time")
    assert text.endswith("To end such a run automatically, add --idle-timeout SECONDS.")
    raise Told


def test_a_closed_terminal_ends_a_run_with_its_grace(tmp_path):
    """The terminal's program dies, as with a lost SSH session, and nobody can be told."""
    text = PROGRAM.format(save="pass", is_deaf="False", grace=GRACE)
    (tmp_path / "program.py").write_text(text)
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "distlab", "run", "--workers", "1", "program.py"]

    def enter_terminal():
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # tests may run under nohup

    running = subprocess.Popen(
        words, cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs, preexec_fn=enter_terminal
    )
    os.close(theirs)
    try:
        wait_for((tmp_path / "ready-0").exists)
        os.close(ours)
        assert running.wait(120) == 128 + signal.SIGHUP
        assert (tmp_path / "saved-0").exists()
    finally:
        running.kill()
