"""What every launcher must do, tried on each: start, say, return, be killed, leave nothing."""

import importlib
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
import pytest
from machines import CODE, Launcher
from process_watch import Held, lives, wait_for

from utils.cluster.launcher import TaskOrder
from utils.cluster.local_launcher import ColdLauncher, _signal
from utils.cluster.local_tasks import listens_at
from utils.cluster.task import pack_call
from utils.cluster.warm_launcher import WarmLauncher, can_fork
from utils.engines import RendezvousSettings, RunSettings
from utils.engines.rendezvous.host import MeetingLauncher
from utils.engines.rendezvous.settings import open_address
from utils.errors import DistributedError, RunError
from utils.processes.fork_server import ForkServer
from utils.processes.preload import TRAINING_MODULES
from utils.tf_config import TaskConfig, deal_addresses, pick_free_ports

PROGRAM = Path(__file__).parents[1] / "launched_program.py"
NAMES = ("worker 0", "worker 1")


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

    def take_end(self, task, status, why=""):
        self._add(task, "end", status)

    def get(self, task, kind):
        with self.changed:
            return [said[1:] for said in self.said.get(task, []) if said[0] == kind]

    def wait(self, task, kind, count=1, seconds=120):
        with self.changed:
            there = self.changed.wait_for(lambda: len(self.get(task, kind)) >= count, seconds)
        assert there, f"{task}: no {kind} in {self.said}"
        return self.get(task, kind)

    def wait_for_child(self, task):
        """Return the process that the function `wait_with_child` has started."""
        [(line,)] = self.wait(task, "line")
        return int(line.removeprefix("child "))


class Tried:
    """A launcher that is tried: it calls functions of this file or, with `folder`, programs do."""

    def __init__(self, launcher, folder=None):
        self.launcher, self.calls = launcher, folder is None
        self._path = None if folder is None else Path(folder, "call.json")
        self.command = [sys.executable, str(PROGRAM), str(self._path)]

    def start(self, function, *arguments, names=NAMES):
        """Start one task for each name; return who is told of them, and the tasks."""
        found, told = self.launcher.find_addresses(len(names)), Told()
        assert len(found) == len(set(found)) >= len(names)
        cluster = deal_addresses(found, 0, len(found))
        orders = [self._order(TaskConfig(cluster, "worker", int(name[-1]))) for name in names]
        if not self.calls:
            self._path.write_text(json.dumps([function.__name__, arguments]))
        body = pack_call(function, arguments, {}) if self.calls else b""
        return told, self.launcher.start(orders, body, told)

    def _order(self, config):
        if not self.calls:
            return RunSettings().make_order(config, self.command, 0)
        name = f"worker {config.index}"
        environment = {"TEST_ORDER": name, "TF_CONFIG": config.to_json()}
        return TaskOrder(name, "call", 1, environment, config.address)


@contextmanager
def open_cold(folder) -> Iterator[Tried]:
    with closing(ColdLauncher()) as launcher:
        yield Tried(launcher)


@contextmanager
def open_warm(folder) -> Iterator[Tried]:
    with closing(WarmLauncher()) as launcher:
        yield Tried(launcher)


@contextmanager
def open_programs(folder) -> Iterator[Tried]:
    with closing(ColdLauncher()) as launcher:
        yield Tried(launcher, folder)


@contextmanager
def open_meeting(folder) -> Iterator[Tried]:
    """This process hosts, and runs worker 0; worker 1 is on another "machine"."""
    tried = Tried(None, folder)
    address = f"127.0.0.1:{pick_free_ports(1)[0]}"
    settings, where = RunSettings(workers=2), RendezvousSettings(address)
    listener = open_address(address)
    words = tried.command, settings, where, listener, CODE, lambda text: None
    with closing(MeetingLauncher(*words)) as tried.launcher:
        own = [
            "--rendezvous",
            address,
            "--advertise-address",
            "127.0.0.2",
            "--logs",
            folder / "logs",
        ]
        member = Launcher(*own, *tried.command[1:], cwd=folder)
        try:
            yield tried
        finally:
            tried.launcher.close()
            member.close()  # which would call a host again


WAYS = {"cold": open_cold, "programs": open_programs, "meeting": open_meeting}
WAYS |= {"warm": open_warm} if can_fork() else {}


@pytest.fixture(scope="module", params=WAYS)
def tried(request, tmp_path_factory):
    with WAYS[request.param](tmp_path_factory.mktemp(request.param)) as tried:
        yield tried


def speak(count):
    from utils.events import report

    for number in range(count):
        print("line", number, flush=True)
        report("counted", number=number)
    print("to stderr", file=sys.stderr, flush=True)
    os.write(1, b"no end of line")
    return os.environ.get("TEST_ORDER"), os.getpid()


def test_lines_and_events_come_in_order_then_the_result_then_the_end(tried):
    told, tasks = tried.start(speak, 300)
    for name in NAMES if tried.calls else ():
        [(result,)] = told.wait(name, "result")
        assert result[0] == "result" and result[1][0] == name
        assert tasks.find_process(name) in (result[1][1], None)
        assert not told.get(name, "end"), "it stays until it is released"
    tasks.release()
    for name in NAMES:
        assert told.wait(name, "end") == [(0,)]
        lines = [line for (line,) in told.get(name, "line")]
        assert lines == [f"line {n}" for n in range(300)] + ["to stderr", "no end of line"]
        kinds = [said[0] for said in told.said[name]]
        assert kinds[-1] == "end" and tasks.find_host(name)
        if tried.calls:
            assert told.get(name, "event") == [("counted", n) for n in range(300)]
            assert set(kinds[kinds.index("result") :]) <= {"result", "line", "end"}
    tasks.end()


def fail(words):
    raise ValueError(words)


def test_an_error_is_a_result_and_a_status_that_is_not_zero(tried):
    told, tasks = tried.start(fail, "no such column", names=NAMES[1:])
    if tried.calls:
        [((kind, summary, details),)] = told.wait("worker 1", "result")
        assert (kind, summary) == ("error", "ValueError: no such column")
        assert "Traceback" in details
    else:
        told.wait("worker 1", "end")
        assert told.get("worker 1", "line")[-1] == ("ValueError: no such column",)
    tasks.end()
    assert told.get("worker 1", "end") == [(1,)]


def leave(status):
    print("last words", flush=True)
    os._exit(status)


def test_a_task_that_leaves_has_its_last_words_its_status_and_no_result(tried):
    told, tasks = tried.start(leave, 3, names=NAMES[1:])
    assert told.wait("worker 1", "end") == [(3,)]
    assert told.said["worker 1"] == [("line", "last words"), ("end", 3)]
    tasks.start_again("worker 1")
    assert told.wait("worker 1", "end", 2) == [(3,), (3,)]
    tasks.act("worker 1", "kill")  # it has ended: nothing happens
    tasks.end()


def listen():
    import socket

    config = json.loads(os.environ["TF_CONFIG"])
    host, _, port = config["cluster"]["worker"][config["task"]["index"]].rpartition(":")
    with socket.create_server((host, int(port))):
        time.sleep(300)


def test_a_task_is_seen_to_listen_at_its_own_address_and_to_do_nothing_else(tried):
    _, tasks = tried.start(listen)
    wait_for(lambda: all(map(tasks.listens, NAMES)))
    wait_for(lambda: all(tasks.find_idle_seconds(name) > 3 for name in NAMES))
    tasks.end()
    assert not tasks.listens("worker 0")


def wait_with_child():
    import subprocess

    print("child", subprocess.Popen(["sleep", "300"]).pid, flush=True)
    time.sleep(300)


def test_a_killed_task_ends_with_what_it_started_and_the_other_goes_on(tried):
    told, tasks = tried.start(wait_with_child)
    children = {name: told.wait_for_child(name) for name in NAMES}
    assert "kill" in tried.launcher.actions
    tasks.act("worker 1", "kill")
    assert told.wait("worker 1", "end") == [(-signal.SIGKILL,)]
    wait_for(lambda: not lives(children["worker 1"]))
    assert lives(children["worker 0"]) and not told.get("worker 0", "end")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("utils.cluster.local_tasks.KILL_SECONDS", 0.1)
        with pytest.raises(RunError, match="worker 0 can't restart: it hasn't ended"):
            tasks.start_again("worker 0")
    tasks.end()
    assert told.get("worker 0", "end") == [(-signal.SIGKILL,)]
    wait_for(lambda: not lives(children["worker 0"]))


def leave_the_session():
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(writer, str(os.getpid()).encode())
            signal.pause()
        os._exit(0)
    return int(os.read(reader, 20))


@pytest.mark.skipif("warm" not in WAYS, reason="tasks are forked on Linux only")
def test_what_left_its_task_and_its_session_has_ended_when_the_job_has(tmp_path):
    with open_warm(tmp_path) as tried:
        told, tasks = tried.start(leave_the_session)
        orphans = [told.wait(name, "result")[0][0][1] for name in NAMES]
        assert all(map(lives, orphans))
        tasks.end()
        assert not any(map(lives, orphans))


def list_files(launcher):
    """What lies in the folder of a launcher of this machine; others have none here."""
    return sorted(os.listdir(launcher.folder)) if hasattr(launcher, "folder") else []


def test_nothing_is_left_after_an_end_nor_after_the_close(tried):
    before = list_files(tried.launcher)
    tried.start(speak, 1)[1].end()
    held = Held()
    for _ in range(3):
        told, tasks = tried.start(wait_with_child, names=NAMES[1:])
        child = told.wait_for_child("worker 1")
        tasks.end()
        wait_for(lambda child=child: not lives(child))
    held.assert_nothing_stays()
    assert list_files(tried.launcher) == before


@pytest.mark.parametrize("way", WAYS)
def test_closing_ends_the_tasks_and_nothing_starts_any_more(way, tmp_path):
    held = Held()
    with WAYS[way](tmp_path) as tried:
        launcher = tried.launcher
        told, _ = tried.start(wait_with_child)
        children = [told.wait_for_child(name) for name in NAMES]
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
            Tried(launcher).start(time.sleep, 300)
        assert not lives(started[0].number)


@pytest.mark.parametrize("name", TRAINING_MODULES)
def test_what_a_warm_process_imports_is_there(name):
    importlib.import_module(f"utils{name}")


def test_tasks_do_not_inherit_the_log_level_that_jax_sets(monkeypatch):
    """`import keras` imports JAX, which sets 1: tasks would show that CUDA is missing."""
    monkeypatch.setitem(sys.modules, "jax", object())
    with closing(ColdLauncher()) as launcher:
        for level, kept in (("1", None), ("0", "0"), ("3", "3")):
            monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", level)
            assert launcher.environment.get("TF_CPP_MIN_LOG_LEVEL") == kept


ORPHAN = """
import os, time
from utils.processes import fork_server

class Loop(fork_server.ForkLoop):
    def run(self, request, body, descriptors):
        time.sleep(600)

def wait_for_its_end(server=os.getpid()):
    while os.getppid() == server:
        time.sleep(0.01)

fork_server.die_with_parent = wait_for_its_end
fork_server.serve(Loop())
"""


@pytest.mark.skipif(not can_fork(), reason="forking is for Linux")
def test_a_child_ends_although_its_server_was_killed_before_it_could_ask_for_that():
    with closing(ForkServer("the server", [sys.executable, "-c", ORPHAN])) as server:
        server.wait_until_ready(120)
        server.fork({})
        child = server.receive(120)["process"]
        server.process.kill()
        wait_for(lambda: not lives(child))


def test_a_port_is_found_although_a_child_of_its_process_has_just_ended(monkeypatch):
    with subprocess.Popen(["true"]) as process:
        gone = psutil.Process(process.pid)
    monkeypatch.setattr(psutil.Process, "children", lambda *_, **__: [gone])
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert listens_at(server.getsockname()[1], os.getpid())


def test_a_signal_to_a_task_that_another_thread_has_just_collected_is_nothing(monkeypatch):
    """While one thread waits for a process, `poll` in another says that it runs."""
    process = subprocess.Popen(["true"], start_new_session=True)
    process.wait()
    monkeypatch.setattr(process, "poll", lambda: None)
    _signal(process, signal.SIGTERM)
