"""What every launcher must do, tried on each: start, say, return, be killed, leave nothing."""

import importlib
import os
import pickle
import signal
import threading
import time
from contextlib import closing

import pytest
from process_watch import Held, lives, wait_for

from utils.cluster.launcher import TaskOrder
from utils.cluster.local_launcher import ColdLauncher
from utils.cluster.task import pack_call
from utils.cluster.warm_launcher import WarmLauncher, can_fork
from utils.errors import DistributedError, RunError
from utils.processes.preload import TRAINING_MODULES

LAUNCHERS = [ColdLauncher, *([WarmLauncher] if can_fork() else [])]


class Told:
    """A listener that keeps what it is told of each task, in order."""

    def __init__(self):
        self.changed, self.said = threading.Condition(), {}

    def _add(self, task, *what):
        with self.changed:
            self.said.setdefault(task, []).append(what)
            self.changed.notify_all()

    def take_line(self, task, line):
        self._add(task, "line", line)

    def take_event(self, task, event):
        self._add(task, "event", event["event"], event.get("number"))

    def take_result(self, task, body):
        self._add(task, "result", pickle.loads(body))

    def take_end(self, task, status):
        self._add(task, "end", status)

    def get(self, task, kind):
        with self.changed:
            return [said[1:] for said in self.said.get(task, []) if said[0] == kind]

    def wait(self, task, kind, count=1, seconds=60):
        with self.changed:
            there = self.changed.wait_for(lambda: len(self.get(task, kind)) >= count, seconds)
        assert there, f"{task}: no {kind} in {self.said}"
        return self.get(task, kind)


@pytest.fixture(scope="module", params=LAUNCHERS, ids=lambda kind: kind.__name__)
def launcher(request):
    with closing(request.param()) as launcher:
        yield launcher


def start(launcher, function, *arguments, names=("worker 0", "worker 1")):
    addresses = launcher.find_addresses(len(names))
    assert len(set(addresses)) == len(names) and all(
        a.rpartition(":")[2].isdigit() for a in addresses
    )
    told = Told()
    orders = [TaskOrder(name, "call", 1, {"TEST_ORDER": name}) for name in names]
    return told, launcher.start(orders, pack_call(function, arguments, {}), told)


def speak(count):
    import os
    import sys

    from utils.events import report

    for number in range(count):
        print("line", number)
        report("counted", number=number)
    print("to stderr", file=sys.stderr)
    os.write(1, b"no end of line")
    return os.environ["TEST_ORDER"], os.getpid()


def test_lines_and_events_come_in_order_then_the_result_then_the_end(launcher):
    told, tasks = start(launcher, speak, 300)
    for name in ("worker 0", "worker 1"):
        [(result,)] = told.wait(name, "result")
        assert result[0] == "result" and result[1][0] == name
        assert tasks.find_process(name) in (result[1][1], None)
        assert not told.get(name, "end"), "it stays until it is released"
    tasks.release()
    for name in ("worker 0", "worker 1"):
        assert told.wait(name, "end") == [(0,)]
        lines = [line for (line,) in told.get(name, "line")]
        assert lines == [f"line {n}" for n in range(300)] + ["to stderr", "no end of line"]
        assert told.get(name, "event") == [("counted", n) for n in range(300)]
        kinds = [said[0] for said in told.said[name]]
        assert kinds[-1] == "end" and set(kinds[kinds.index("result") :]) <= {
            "result",
            "line",
            "end",
        }
    tasks.end()


def fail(words):
    raise ValueError(words)


def test_an_error_is_a_result_and_a_status_that_is_not_zero(launcher):
    told, tasks = start(launcher, fail, "no such column", names=["worker 0"])
    [((kind, summary, details),)] = told.wait("worker 0", "result")
    assert (kind, summary) == ("error", "ValueError: no such column") and "Traceback" in details
    tasks.end()
    assert told.get("worker 0", "end") == [(1,)]


def leave(status):
    import os

    print("last words", flush=True)
    os._exit(status)


def test_a_task_that_leaves_has_its_last_words_its_status_and_no_result(launcher):
    told, tasks = start(launcher, leave, 3, names=["worker 0"])
    assert told.wait("worker 0", "end") == [(3,)]
    assert told.said["worker 0"] == [("line", "last words"), ("end", 3)]
    tasks.start_again("worker 0")
    assert told.wait("worker 0", "end", 2) == [(3,), (3,)]
    tasks.act("worker 0", "kill")  # it has ended: nothing happens
    tasks.end()


def wait_with_child():
    import subprocess
    import time

    from utils.events import report

    report("child", number=subprocess.Popen(["sleep", "300"]).pid)
    time.sleep(300)


def test_a_killed_task_ends_with_what_it_started_and_the_other_goes_on(launcher):
    told, tasks = start(launcher, wait_with_child)
    children = {name: told.wait(name, "event")[0][1] for name in ("worker 0", "worker 1")}
    assert "kill" in launcher.actions
    tasks.act("worker 1", "kill")
    assert told.wait("worker 1", "end") == [(-signal.SIGKILL,)]
    wait_for(lambda: not lives(children["worker 1"]))
    assert lives(children["worker 0"]) and not told.get("worker 0", "end")
    with pytest.raises(RunError, match="worker 0 has not ended"):
        tasks.start_again("worker 0")
    tasks.end()
    assert told.get("worker 0", "end") == [(-signal.SIGKILL,)]
    wait_for(lambda: not lives(children["worker 0"]))


def list_files(launcher):
    """What lies in the folder of a launcher of this machine; others have none here."""
    return sorted(os.listdir(launcher.folder)) if hasattr(launcher, "folder") else []


def test_nothing_is_left_after_an_end_nor_after_the_close(launcher):
    before = list_files(launcher)
    start(launcher, os.getpid)[1].end()
    held = Held()
    for _ in range(3):
        told, tasks = start(launcher, wait_with_child, names=["worker 0"])
        child = told.wait("worker 0", "event")[0][1]
        tasks.end()
        wait_for(lambda child=child: not lives(child))
    held.assert_nothing_stays()
    assert list_files(launcher) == before


@pytest.mark.parametrize("kind", LAUNCHERS)
def test_closing_ends_the_tasks_and_nothing_starts_any_more(kind):
    held = Held()
    launcher = kind()
    told, _ = start(launcher, wait_with_child)
    children = [told.wait(name, "event")[0][1] for name in ("worker 0", "worker 1")]
    folder = getattr(launcher, "folder", "")
    launcher.close()
    launcher.close()
    wait_for(lambda: not any(lives(child) for child in children))
    assert not os.path.exists(folder) and not launcher.alive
    held.assert_nothing_stays()


def test_tasks_that_cannot_be_started_are_named_and_none_is_left(monkeypatch):
    with closing(ColdLauncher()) as launcher:
        started = []

        def start_one(order, ends, on_end, first=launcher.start_process):
            if started:
                raise RunError(f"{order.name} was not started: no room")
            started.append(first(order, ends, on_end))
            return started[0]

        monkeypatch.setattr(launcher, "start_process", start_one)
        with pytest.raises(DistributedError, match="worker 1 was not started"):
            start(launcher, time.sleep, 300)
        assert not lives(started[0].number)


@pytest.mark.parametrize("name", TRAINING_MODULES)
def test_what_a_warm_process_imports_is_there(name):
    importlib.import_module(f"utils{name}")
