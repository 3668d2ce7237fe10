"""`distlab run --rendezvous` with real launchers on loopback, each with an address of its own."""

import contextlib
import functools
import hashlib
import hmac
import json
import os
import re
import signal
import socket
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from machines import CODE, WAITS_FOR_ALL, Launcher
from process_watch import lives, wait_for

from utils.cluster.signals import Signals
from utils.engines import RendezvousSettings, RunSettings, run_at_rendezvous
from utils.engines.rendezvous.calling import check_host, connect_to_host
from utils.engines.rendezvous.channel import MeetingChannel, MeetingFrame, introduce, open_door
from utils.engines.rendezvous.code import ask_for_code, stretch_code
from utils.engines.rendezvous.compare import describe_machine, hash_file
from utils.engines.rendezvous.copies import CheckpointCopy, read_copy
from utils.engines.rendezvous.member import HostLost, Member
from utils.engines.rendezvous.trial import describe_rates
from utils.errors import InputError, RunError
from utils.processes import door
from utils.processes.connection import Connection
from utils.processes.handshake import ChannelLost, admit, make_connection
from utils.tf_config import pick_free_ports

FIRST_LINES = """
import json, os, signal, subprocess, sys, time
config = json.loads(os.environ["TF_CONFIG"])
index, workers = config["task"]["index"], config["cluster"]["worker"]
restart, kind = int(os.environ["DISTLAB_RESTART"]), config["task"]["type"]
if "ps" not in config["cluster"]:  # what Keras on JAX reads
    told = [os.environ["KERAS_DISTRIBUTION_" + name]
            for name in ("JOB_ADDRESSES", "NUM_PROCESSES", "PROCESS_ID")]
    assert told == [",".join(workers), str(len(workers)), str(index)]
"""


HERE = RendezvousSettings("127.0.0.1:2950")
OLD = (
    "import runpy, utils; utils.__version__ = '0.1'; runpy.run_module('distlab', None, '__main__')"
)
# a host whose minute of wrong codes isn't over before a test on a busy machine is
PATIENT = (
    "import runpy; from utils.processes import door; door.FAILURE_SECONDS = 3600.0; "
    "runpy.run_module('distlab', None, '__main__')"
)


@pytest.fixture
def meeting(tmp_path, monkeypatch):
    """Start launchers at one address, which is this test's own; nothing of them is left."""
    monkeypatch.chdir(tmp_path)
    address, started = f"127.0.0.1:{pick_free_ports(1)[0]}", []

    class Meeting:
        def __init__(self):
            self.address, self.port = address, int(address.rpartition(":")[2])

        def write(self, text, name="program.py"):
            Path(name).write_text(FIRST_LINES + textwrap.dedent(text))
            return name

        def start(self, number, *words, **settings):
            own = ["--rendezvous", address, "--advertise-address", f"127.0.0.{number}"]
            launcher = Launcher(*own, "--logs", f"logs-{number}", *words, **settings)
            started.append(launcher)
            if number == 1:
                launcher.wait_for("hosting at")
            return launcher

        def start_all(self, count, *words, **settings):
            return [self.start(number, *words, **settings) for number in range(1, count + 1)]

    yield Meeting()
    for launcher in started:
        launcher.close()


def read_log(number, index):
    """Return what a worker wrote to stdout, in all attempts of its machine."""
    paths = Path(f"logs-{number}").glob(f"attempt-*/worker-{index}/stdout.log")
    return "".join(path.read_text() for path in sorted(paths))


def test_ranks_are_given_or_follow_the_addresses_and_every_machine_has_the_report(meeting):
    name = meeting.write(
        "print('here', index, *[w.split(':')[0] for w in workers], sys.argv[1:], "
        "os.environ.get('DISTLAB_CODE'))"
    )
    words = ["--workers", 4, name, "--epochs", "3"]
    launchers = [meeting.start(1, *words)]
    for number, rank in ((3, ()), (2, ()), (4, ("--node-rank", 1))):
        launchers.append(meeting.start(number, *rank, *words))
        launchers[0].wait_for(f"(127.0.0.{number}) has joined")
    ends = [launcher.end() for launcher in launchers]
    assert [status for status, _, _ in ends] == [0, 0, 0, 0]
    assert all(report == ends[0][1] for _, report, _ in ends)
    tasks = ends[0][1]["tasks"]
    assert [task["task"] for task in tasks] == [f"worker {index}" for index in range(4)]
    for index, number in enumerate((1, 4, 2, 3)):
        line = f"here {index} 127.0.0.1 127.0.0.4 127.0.0.2 127.0.0.3 ['--epochs', '3'] None"
        assert read_log(number, index) == line + "\n" == Path(tasks[index]["log"]).read_text()
        assert f"[worker {index}] {line}" in ends[0][2]


def test_machines_bring_several_workers_and_the_host_has_coordinator_and_servers(meeting):
    """Each machine's ports are of the range, and its network card is named to NCCL and gloo."""
    name = meeting.write("""
        port = int(config["cluster"][kind][index].rpartition(":")[2])
        cards = os.environ["NCCL_SOCKET_IFNAME"], os.environ["GLOO_SOCKET_IFNAME"]
        print(kind, index, sorted(config["cluster"]), len(workers), port, *cards)
        open(f"told-{kind}-{index}", "w").close()
        others = ["worker-0", "worker-1", "worker-2", "ps-0"]
        while kind != "chief" or not all(os.path.exists("told-" + one) for one in others):
            time.sleep(0.05)
    """)
    first, last = meeting.port + 1, meeting.port + 40
    words = ["--workers", 3, "--ps", 1, "--port-range", f"{first}:{last}", "--preflight", name]
    variables = {"GLOO_SOCKET_IFNAME": "mine"}
    host = meeting.start(1, *words)
    member = meeting.start(2, "--local-workers", 2, *words, variables=variables)
    rule = f"ip saddr 127.0.0.0/8 tcp dport '{{ {meeting.port}, {first}-{last} }}' accept"
    for launcher in (host, member):
        assert launcher.wait_for("nft add rule inet filter input ").endswith(rule)
    status, report, said = host.end()
    rates = re.search(r"127\.0\.0\.1 +([\d.]+)\n.* 127\.0\.0\.2 +([\d.]+)\n", said)
    assert float(rates[1]) > 0 and float(rates[2]) > 0
    assert member.end()[0] == status == 0
    names = ["chief 0", "worker 0", "worker 1", "worker 2", "ps 0"]
    assert [task["task"] for task in report["tasks"]] == names
    assert [task["status"] for task in report["tasks"]] == [0] * 5
    told = read_log(2, 2)
    assert told.startswith("worker 2 ['chief', 'ps', 'worker'] 3 ")
    assert told.endswith(" =lo mine\n") and first <= int(told.split()[-3]) <= last


def test_the_first_error_of_another_machine_is_shown_with_its_traceback(meeting):
    name = meeting.write("""
        if index:
            raise ValueError("no such column: price")
        time.sleep(300)
    """)
    host, member = meeting.start_all(2, name)
    for status, report, said in (host.end(), member.end()):
        assert status == 1 and "Traceback (most recent call last)" in said
        assert "worker 1 on " in report["cause"] and "no such column: price" in report["cause"]
        assert [task["status"] for task in report["tasks"]] == [143, 1]


def test_all_start_again_on_every_machine_after_a_kill(meeting):
    name = meeting.write("""
        print("attempt", restart, workers[index], flush=True)
        open(f"told-{index}", "w").close()
        while index == 1 and restart == 0:
            if os.path.exists("told-0"):
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(0.05)
        time.sleep(300 if restart == 0 else 0)
    """)
    host, member = meeting.start_all(2, "--max-restarts", 2, name)
    status, report, said = host.end()
    assert (status, report["restarts"], report["cause"]) == (0, 1, None) and member.end()[0] == 0
    assert "worker 1 was ended by SIGKILL; all tasks start again, restart 1 of 2" in said
    for number in (1, 2):
        lines = read_log(number, number - 1).splitlines()
        assert [line.split()[1] for line in lines] == ["0", "1"]
        assert lines[0].split()[2] != lines[1].split()[2]


def test_a_member_that_is_lost_makes_room_for_one_that_waits(meeting):
    """The fourth machine is one too many, until the launcher of another one is killed."""
    name = meeting.write("""
        print("on", workers[index].split(":")[0], restart, flush=True)
        if restart == 0:
            open(f"pid-{index}", "w").write(str(os.getpid()))
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(300)
    """)
    words = ["--workers", 3, "--max-restarts", 1, name]
    launchers = [meeting.start(1, *words)]
    for number in (2, 3, 4):
        launchers.append(meeting.start(number, *words))
        launchers[0].wait_for(f"(127.0.0.{number}) has joined")
    wait_for(
        lambda: all(os.path.exists(f"pid-{i}") and os.path.getsize(f"pid-{i}") for i in range(3))
    )
    processes = [int(Path(f"pid-{i}").read_text()) for i in range(3)]
    launchers[1].kill()
    status, report, said = launchers[0].end()
    assert status == 0 and report["restarts"] == 1 and len(report["tasks"]) == 3
    assert "is lost with its machine" in said
    assert read_log(3, 1) == "on 127.0.0.3 1\n" and read_log(4, 2) == "on 127.0.0.4 1\n"
    assert launchers[2].end()[0] == launchers[3].end()[0] == 0
    wait_for(lambda: not any(map(lives, processes)))


def test_a_member_that_was_frozen_comes_back_by_itself_and_the_run_grows(meeting):
    """It is lost, calls again once it can, and takes part after the next checkpoint.

    A third machine, for which there is no place then, was never needed.
    """
    name = meeting.write("""
        print(len(workers), "workers", flush=True)
        open(f"here-{index}-{restart}", "w").close()
        while restart == 1 and not os.path.exists("save"):
            time.sleep(0.05)
        if restart == 1:
            open(os.environ["DISTLAB_CHECKPOINT_DIR"] + "/step-1", "w").write("whole")
        while restart < 2 or not os.path.exists("end"):
            time.sleep(0.05)
    """)
    words = ["--workers", "1:2", "--max-restarts", 1, "--heartbeat-timeout", 8]
    words += ["--grow", "at-checkpoint", "--checkpoint-dir"]
    host = meeting.start(1, *words, "kept-1", name, program=["-c", WAITS_FOR_ALL])
    member = meeting.start(2, *words, "kept-2", name)
    wait_for(lambda: os.path.exists("here-0-0") and os.path.exists("here-1-0"))
    member.freeze()
    host.wait_for("is lost with its machine, which has said nothing for 8 s")
    wait_for(lambda: os.path.exists("here-0-1"))
    member.process.send_signal(signal.SIGCONT)
    member.wait_for("calling the host again for 300 s")
    member.wait_for("joined; the run has begun, and you take part from the next checkpoint")
    Path("save").touch()
    host.wait_for("a checkpoint is complete, so 2 workers can resume from it, not 1")
    wait_for(lambda: os.path.exists("here-1-2"))
    third = meeting.start(3, *words, "kept-3", name)
    third.wait_for("joined; the run has begun")
    Path("end").touch()
    status, report, _ = host.end()
    assert (status, report["workers"], report["restarts"]) == (0, 2, 2) and member.end()[0] == 0
    status, _, said = third.end()
    assert status == 75 and "this machine wasn't needed: the run had its 2 workers" in said
    assert read_log(1, 0) == "2 workers\n1 workers\n2 workers\n"
    assert read_log(2, 1) == "2 workers\n2 workers\n"


def test_a_lost_host_ends_everything_and_is_called_again(meeting):
    """What to type if it doesn't come back names the same machine everywhere."""
    name = meeting.write("""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open(f"pid-{index}", "w").write(str(os.getpid()))
        time.sleep(300)
    """)
    host, member = meeting.start_all(2, "--checkpoint-dir", "kept", "--join-timeout", 200, name)
    wait_for(
        lambda: all(os.path.exists(f"pid-{i}") and os.path.getsize(f"pid-{i}") for i in range(2))
    )
    processes = [int(Path(f"pid-{i}").read_text()) for i in range(2)]
    host.kill()
    said = member.wait_for("should host")
    assert "is lost" in said and "newest copy of kept" in said and "(127.0.0.2) should host" in said
    assert f"--rendezvous 127.0.0.2:{meeting.port} --logs logs-2" in said
    assert said.endswith(f" {name}")  # nothing follows what is to be typed
    wait_for(lambda: not any(map(lives, processes)))
    member.wait_for("waiting up to 200 s for a host")
    member.process.send_signal(signal.SIGINT)
    assert member.end()[0] == 130


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_reach_the_tasks_of_every_machine(meeting, number):
    name = meeting.write("""
        def leave(number, frame):
            print("saved before", number)
            sys.exit(0)
        signal.signal(signal.SIGINT, leave)
        signal.signal(signal.SIGTERM, leave)
        open(f"ready-{index}", "w").close()
        time.sleep(300)
    """)
    host, member = meeting.start_all(2, name)
    wait_for(lambda: os.path.exists("ready-0") and os.path.exists("ready-1"))
    host.process.send_signal(number)
    status, report, _ = host.end()
    assert status == member.end()[0] == 128 + number
    assert [task["status"] for task in report["tasks"]] == [0, 0]
    assert read_log(2, 1) == f"saved before {number}\n"


def test_a_member_may_leave(meeting):
    name = meeting.write("""
        open(f"ready-{index}", "w").close()
        time.sleep(300)
    """)
    host, member = meeting.start_all(2, name)
    wait_for(lambda: os.path.exists("ready-0") and os.path.exists("ready-1"))
    member.process.send_signal(signal.SIGINT)
    status, report, _ = host.end()
    assert status == 255 and "stopped there by SIGINT" in report["cause"]
    assert member.end()[0] == 130


def test_a_flood_of_lines_is_bounded_and_whole_in_the_log(meeting):
    name = meeting.write("""
        if index:
            for number in range(40000):
                print(number, "x" * 100)
            print("the last")
            sys.exit(3)
        time.sleep(300)
    """)
    host, member = meeting.start_all(2, name)
    status, _, said = host.end()
    assert status == 3 and member.end()[0] == 3
    assert len(read_log(2, 1).splitlines()) == 40001
    shown = [line for line in said.splitlines() if line.startswith("[worker 1] ")]
    left_out = [line for line in shown if "lines left out here" in line]
    counted = sum(int(line.split()[3]) for line in left_out)
    assert counted + len(shown) - len(left_out) == 40001


def test_the_table_of_rates_names_a_slow_link():
    rates = dict.fromkeys(((a, b) for a in range(3) for b in range(3) if a != b), 1.2e9)
    lines = describe_rates(["10.0.0.1", "10.0.0.2", "10.0.0.3"], {**rates, (2, 0): 1.1e8})
    assert lines[2:5] == [
        "10.0.0.1               1.2      1.2",
        "10.0.0.2      1.2               1.2",
        "10.0.0.3     0.11      1.2",
    ]
    said = "10.0.0.3 sends 0.11 GB/s to 10.0.0.1, but the median is 1.2 GB/s"
    assert lines[5:] == [f"slow link: {said}"]


# What differs, and who may not come in


def test_the_machine_that_differs_is_named_with_what_differs(meeting, tmp_path):
    name = meeting.write("print('ran')")
    host = meeting.start(1, name)
    other = tmp_path / "other"
    other.mkdir()
    (other / name).write_text("print('another program')")
    old = tmp_path / "old"
    (old / "tensorflow-2.20.0.dist-info").mkdir(parents=True)
    (old / "tensorflow-2.20.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: tensorflow\nVersion: 2.20.0\n"
    )
    before = str(old) + os.pathsep + os.environ.get("PYTHONPATH", "")
    wrong = [
        (meeting.start(2, name, cwd=other), "program must be the host's, "),
        (
            meeting.start(3, name, variables={"PYTHONPATH": before}),
            "TensorFlow must be the host's, ",
        ),
        (
            meeting.start(4, name, "--epochs", "3"),
            "options must be the host's, none, got --epochs 3",
        ),
        (meeting.start(5, "--workers", 3, name), "--workers must be the host's, 2, got 3"),
        (meeting.start(7, name, program=["-c", OLD]), "distkit must be the host's, "),
        (meeting.start(8, "--max-restarts", 3, name), "--max-restarts must be the host's, 0, got"),
        (
            meeting.start(9, "--idle-timeout", 60, name),
            "--idle-timeout must be the host's, not given, got 60",
        ),
    ]
    for member, says in wrong:
        status, _, said = member.end()
        assert status == 2 and "The host refuses this machine. " in said and says in said
        assert len(said.splitlines()) == 1
        host.wait_for(f"can't join. {says}")
    member = meeting.start(6, name)
    assert member.end()[0] == host.end()[0] == 0


def test_a_module_is_compared_wherever_its_python_is(tmp_path, monkeypatch):
    """It is found in this folder, as `python -m` does, and nothing of it is imported."""
    monkeypatch.chdir(tmp_path)
    package = tmp_path / "project_of_mine"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    seen = set()
    for name in ("train.py", "__main__.py"):
        for text in ("print(1)", "print(2)"):
            (package / name).write_text(text)
            module = "project_of_mine" + ".train" * (name == "train.py")
            command = [sys.executable, "-m", module]
            seen.add(describe_machine(command, RunSettings(), HERE)["same"]["program"])
    assert len(seen) == 2  # the same two texts, by their hashes
    for module in ("project_of_mine.nothing", "nothing_at_all.train", "..", "train..x"):
        same = describe_machine([sys.executable, "-m", module], RunSettings(), HERE)["same"]
        assert (same["program"], same["options"]) == (f"-m {module}", module)


def test_two_runs_at_one_port_are_refused_in_one_line(meeting):
    """Whoever wanted to host a run of their own is told so; the first run goes on."""
    first, second = meeting.write("print(1)", "a.py"), meeting.write("print(2)", "b.py")
    host = meeting.start(1, first)
    for code in (CODE, None, "wrong-code-2345"):
        status, _, said = meeting.start(2, second, code=code).end()
        assert status == 2 and len(said.splitlines()) == 1, said
        assert f"already listens at {meeting.address}. To host" in said
    assert meeting.start(3, first).end()[0] == host.end()[0] == 0


def test_another_program_at_the_port_is_named(monkeypatch):
    """One that speaks first, as ssh's does, and one that waits to be spoken to, as the web's."""
    with socket.create_server(("127.0.0.1", 0)) as service:
        address, callers = f"127.0.0.1:{service.getsockname()[1]}", []

        def answer(banner):
            callers.append(service.accept()[0])
            callers[-1].sendall(banner)

        host = lambda: run_at_rendezvous(["true"], RunSettings(), RendezvousSettings(address))  # noqa: E731
        for ask in (lambda: check_host(address), host):
            for banner, does, seconds in (
                (b"SSH-2.0-x", "begins with 'SSH-'", 90.0),
                (b"", "has said nothing", 0.3),
            ):
                monkeypatch.setattr("utils.processes.handshake.HANDSHAKE_SECONDS", seconds)
                threading.Thread(target=answer, args=[banner]).start()
                with pytest.raises(InputError) as raised:
                    ask()
                assert f"got {address}: another program answers there, which {does}" in str(
                    raised.value
                )
                assert str(raised.value).endswith("Name another port, the same on every machine.")


def test_a_wrong_code_is_refused_and_five_a_minute_are_the_most(meeting):
    name = meeting.write("print('ran')")
    host = meeting.start(1, name, program=["-c", PATIENT])
    status, _, said = meeting.start(2, name, code="wrong-code-2345").end()
    assert status == 2 and "says that the code is wrong" in said
    stranger = Stranger(meeting.port, "127.0.0.2")  # the address of that launcher
    for _ in range(4):
        assert stranger.guess("another-wrong-one") == {"refused": "code"}
    assert stranger.guess(CODE) == {"refused": "wait"}
    status, _, said = meeting.start(2, "--join-timeout", 1, name).end()
    assert status == 2 and "Waited 1 s" in said and "Wait a minute" in said
    host.process.send_signal(signal.SIGTERM)
    assert host.end()[0] == 143


def test_a_right_code_gets_in_after_five_wrong_ones_once_their_time_is_over(monkeypatch):
    listener = socket.create_server(("127.0.0.1", 0))
    where = RendezvousSettings(f"127.0.0.1:{listener.getsockname()[1]}", join_seconds=60)

    def hear(line):
        assert "too many wrong codes from this machine" in line
        monkeypatch.setattr(door, "FAILURE_SECONDS", 0.0)  # a minute later

    monkeypatch.setattr(door, "FAILURE_SECONDS", 3600.0)
    with contextlib.closing(open_door(listener, CODE, lambda channel: None)):
        stranger = Stranger(listener.getsockname()[1])
        for _ in range(5):
            stranger.guess("another-wrong-one")
        connect_to_host(where, CODE, hear, Signals()).close()
    assert door.FAILURE_SECONDS == 0


def test_a_host_that_was_there_may_be_silent_or_hang_up_at_once(tmp_path, monkeypatch):
    """A member calls again then: the host may have much to do, or may just have come back."""
    listener = socket.create_server(("127.0.0.1", 0))
    where = RendezvousSettings(f"127.0.0.1:{listener.getsockname()[1]}", join_seconds=60)
    with contextlib.ExitStack() as stack:
        monkeypatch.setattr("utils.processes.handshake.HANDSHAKE_SECONDS", 0.3)

        def hear(line):
            assert "has said nothing" in line
            monkeypatch.undo()
            door_of_host = open_door(listener, CODE, lambda channel: None)
            stack.enter_context(contextlib.closing(door_of_host))

        channel = connect_to_host(where, CODE, hear, Signals(), was_there=True)
    show = say = lambda *_: None
    member = Member(channel, ["true"], RunSettings(), where, tmp_path, show, say)
    channel.close()
    with pytest.raises(HostLost):
        member.run(Signals())


def test_no_code_is_asked_for_without_a_terminal_and_the_host_makes_one(meeting):
    name = meeting.write("print('ran')")
    host = meeting.start(1, name, code=None)
    code = host.wait_for("the code is ").rpartition(" ")[2]
    assert len(code.replace("-", "")) == 12
    status, _, said = meeting.start(2, name, code=None).end()
    assert status == 2 and "Set DISTLAB_CODE" in said
    assert meeting.start(2, name, code=code.upper()).end()[0] == host.end()[0] == 0
    status, _, said = meeting.start(3, name, code="short").end()
    assert status == 2 and "DISTLAB_CODE" in said


class Stranger:
    """Somebody who talks to the door without being a launcher."""

    def __init__(self, port, address="127.0.0.1"):
        self.port, self.address = port, address

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), 120, (self.address, 0))

    def guess(self, code):
        """Return what the host answers to a handshake with `code`."""
        with self.connect() as end:
            hello = read_message(end)
            if "refused" in hello:
                return hello
            send_message(end, **self.prove(hello, code))
            return read_message(end)

    @staticmethod
    def prove(hello, code):
        """Return a member's answer to `hello`, by the description in `handshake`."""
        salt, nonce = bytes.fromhex(hello["salt"]), bytes(32)
        told = b"member" + salt + bytes.fromhex(hello["nonce"]) + nonce
        key = hashlib.scrypt(
            code.replace("-", "").encode(), salt=salt, n=2**15, r=8, p=1, maxmem=2**26, dklen=32
        )
        return {"nonce": nonce.hex(), "proof": hmac.digest(key, told, "sha256").hex()}


def is_cut_off(end):
    try:
        return not end.recv(1000)
    except ConnectionResetError:
        return True


def read_message(end):
    with end.makefile("rb", buffering=0) as file:  # not more than the message
        size = int.from_bytes(read_exactly(file, 4), "big")
        told = read_exactly(file, size)
    return json.loads(told)[0] if size else None  # [content, bytes of the body]


def read_exactly(file, size):
    """Return `size` bytes in as many pieces as they come; fewer at the end."""
    told = b""
    while len(told) < size and (piece := file.read(size - len(told))):
        told += piece
    return told


def send_message(end, **data):
    told = json.dumps([data, 0]).encode()
    end.sendall(len(told).to_bytes(4, "big") + told)


def test_replayed_garbled_and_half_handshakes_lead_nowhere(meeting):
    """A recorded proof is worth nothing with the next nonce; noise counts as a wrong code."""
    name = meeting.write("print('ran')")
    host = meeting.start(1, name)
    stranger = Stranger(meeting.port)
    with stranger.connect() as end:
        hello = read_message(end)
        right = stranger.prove(hello, CODE)
        send_message(end, **right)
        assert set(read_message(end)) == {"proof"}  # it was right, once
    with stranger.connect() as end:
        assert read_message(end)["salt"] == hello["salt"]
        send_message(end, **right)
        assert read_message(end) == {"refused": "code"}
    for noise in (b"GET / HTTP/1.1\r\n\r\n", b"\x00\x00\x00\x05hello", b"\xff" * 64):
        with stranger.connect() as end:
            read_message(end)
            end.sendall(noise)
            assert is_cut_off(end)
    with stranger.connect() as end:  # who hangs up half-way has tried nothing
        read_message(end)
        end.sendall(b"\x00\x00")
    assert meeting.start(2, name).end()[0] == host.end()[0] == 0


def test_silence_a_port_scan_and_thirty_at_once_disturb_nobody(meeting):
    name = meeting.write("print(len(workers))")
    words = ["--workers", 3, "--local-workers", 1, name]
    host = meeting.start(1, *words)
    stranger = Stranger(meeting.port)
    silent = [stranger.connect() for _ in range(30)]
    for _ in range(100):
        stranger.connect().close()
    members = [meeting.start(number, *words) for number in (2, 3)]
    assert [launcher.end()[0] for launcher in (host, *members)] == [0, 0, 0]
    for end in silent:
        end.close()


def test_who_stays_silent_is_sent_away_and_too_many_callers_are_told(monkeypatch):
    limit, admitted = "utils.processes.handshake.HANDSHAKE_SECONDS", []
    monkeypatch.setattr(limit, 120.0)
    listener = socket.create_server(("127.0.0.1", 0), backlog=60)
    stranger = Stranger(listener.getsockname()[1])
    with contextlib.closing(open_door(listener, CODE, admitted.append)):
        callers = [stranger.connect() for _ in range(60)]
        told = [read_message(end) for end in callers]
        assert sum(hello == {"refused": "busy"} for hello in told) == 60 - 48
        for end in callers:  # there is room again, once the door has seen them leave
            end.close()
        wait_for(lambda: "proof" in stranger.guess(CODE))
        wait_for(lambda: admitted)
        monkeypatch.setattr(limit, 0.1)
        with stranger.connect() as silent:
            read_message(silent)
            assert is_cut_off(silent)
        monkeypatch.undo()
        wait_for(lambda: "proof" in stranger.guess(CODE))
        wait_for(lambda: len(admitted) == 2)
    for channel in admitted:
        channel.close()


def test_thirty_join_at_once(meeting):
    """As many as thirty laptops whose owners press Enter together: all are served."""
    host = meeting.start(1, "--workers", 31, meeting.write(""))
    gate, joined, lock = threading.Barrier(30), [], threading.Lock()
    stretch = functools.cache(lambda salt: stretch_code(CODE, salt))

    def stretch_once(salt):  # here all thirty share two cores
        with lock:
            return stretch(salt)

    def join():
        gate.wait(60)
        channel = introduce(Stranger(meeting.port).connect(), "host", stretch_once)
        channel.send("join", host="x", address="127.0.0.1", logs="", seats=1, same={})
        joined.append((channel, channel.receive()))

    threads = [threading.Thread(target=join) for _ in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(joined) == 30
    assert all(frame.kind == "refuse" and "got none" in frame.data["why"] for _, frame in joined)
    for channel, _ in joined:
        channel.close()
    assert host.process.poll() is None


def test_what_a_known_member_sends_is_doubted_too(meeting):
    """Frames that make no sense, or are too long, lose the one who sends them, not the run."""
    name = meeting.write("print(len(workers))")
    host = meeting.start(1, name)
    channel = introduce(Stranger(meeting.port).connect(), "host", lambda s: stretch_code(CODE, s))
    same = describe_machine([sys.executable, name], RunSettings(workers=2), HERE)["same"]
    channel.send("join", host="odd", address="127.0.0.9", logs="", seats=1, same=same)
    assert channel.receive().kind == "say" and channel.receive().kind == "prepare"
    channel.send("ready", ports=[1], token="of a round before", copy=None, question=0)
    channel.send("ready", ports="all", token=3, copy=None, question=1)
    host.wait_for("another round")
    with pytest.raises(ChannelLost):
        while True:
            channel.receive()
    assert meeting.start(2, name).end()[0] == host.end()[0] == 0


# The frames after the handshake


@pytest.fixture
def channels():
    """Two ends that know each other; `wire` is what goes from one to the other."""
    ends = socket.socketpair()
    key, salt = b"k" * 32, b"s" * 16
    made = {}

    def be_host():
        connection = make_connection(ends[0])
        admit(connection, key, salt)
        made["host"] = MeetingChannel(connection)

    helper = threading.Thread(target=be_host)
    helper.start()
    made["member"] = introduce(ends[1], "h", lambda given: key)
    helper.join()
    yield made["host"], made["member"], ends
    made["host"].close()
    made["member"].close()


def test_frames_arrive_in_order_with_what_belongs_to_them(channels):
    host, member, _ = channels
    member.send("first", b"\n{}" * 5, number=1)
    member.send("second", text="é")
    assert (frame := host.receive()).kind == "first" and frame.body == b"\n{}" * 5
    assert frame.get("number", int) == 1 and host.receive().data == {"text": "é"}
    with pytest.raises(ChannelLost, match="wrong number: 'x'"):
        MeetingFrame("odd", {"number": "x"}).get("number", int)


@pytest.mark.parametrize("change", ["flip", "repeat", "reflect", "announce"])
def test_a_frame_that_was_tampered_with_ends_the_connection(change):
    """Between two who know each other stands one who changes, repeats or returns a frame."""
    left, right = socket.socketpair(), socket.socketpair()
    made = []
    for end, keys in ((left[0], (b"a" * 32, b"b" * 32)), (right[0], (b"b" * 32, b"a" * 32))):
        connection = Connection(end, "the other")
        connection.seal(*keys)
        made.append(MeetingChannel(connection))
    sender, receiver = made
    sender.send("start", task="worker 0")
    told = left[1].recv(1000)
    if change == "flip":
        right[1].sendall(told[:-2] + bytes([told[-2] ^ 1]) + told[-1:])
    elif change == "repeat":
        right[1].sendall(told + told)
        assert receiver.receive().kind == "start"
    elif change == "announce":
        right[1].sendall((2**31).to_bytes(4, "big") + told)
    else:
        left[1].sendall(told)
        receiver.close()
        receiver = sender
    with pytest.raises(ChannelLost, match="wrong seal|isn't a message .at most"):
        receiver.receive()
    for end in (sender, receiver):
        end.close()
    for end in (*left, *right):
        end.close()


# Copies of the checkpoint


def test_every_machine_has_a_copy_and_a_run_resumes_from_any(meeting, tmp_path):
    name = meeting.write("""
        from pathlib import Path
        folder = Path(os.environ["DISTLAB_CHECKPOINT_DIR"])
        saved = sorted(folder.glob("step-*"))
        step = int(saved[-1].name[5:]) if saved else 0
        print("goes on at", step, flush=True)
        read = [Path("..", f"read-{k}-{workers[0]}") for k in range(2)]  # of this attempt
        read[index].touch()
        while index == 0 and not read[1].exists():
            time.sleep(0.05)  # what is saved next may be on the other machine at once
        if index == 0:
            (folder / "deep").mkdir(exist_ok=True)
            (folder / "deep" / "weights").write_bytes(bytes(range(256)) * 4000 + bytes([step]))
            (folder / f"step-{step + 1}").write_text(str(step + 1))
            (folder / "half_temp").mkdir(exist_ok=True)
            (folder / "half_temp" / "part").write_text("not whole")
        time.sleep(300)
    """)

    def start(numbers):
        launchers = []
        for number in numbers:
            home = tmp_path / f"machine-{number}"
            home.mkdir(exist_ok=True)
            (home / name).write_text((tmp_path / name).read_text())
            words = ["--checkpoint-dir", "kept", "--logs", "logs", name]
            address = f"127.0.0.{number}"
            own = ["--rendezvous", meeting.address, "--advertise-address", address, *words]
            launchers.append(Launcher(*own, cwd=home))
            if len(launchers) == 1:
                launchers[0].wait_for("hosting at")
        return launchers

    def find(number, file):
        return tmp_path / f"machine-{number}" / "kept" / file

    def is_whole(number, step):
        note = find(number, ".distlab-copy.json")
        try:
            noted = json.loads(note.read_text())
        except (OSError, ValueError):
            return False
        return noted["whole"] and any(f[0] == f"step-{step}" for f in noted["files"])

    launchers = start([1, 2])
    try:
        wait_for(lambda: is_whole(2, 1))
        weights = [find(number, "deep/weights") for number in (1, 2)]
        assert weights[0].read_bytes() == weights[1].read_bytes()
        assert not find(2, "half_temp").exists()
        wait_for(lambda: not find(2, ".distlab-copy.part").exists())
        launchers[0].kill()  # the host, and with it worker 0's machine
        launchers[1].wait_for("calling the host again")
        launchers += start([3])  # it has nothing, and hosts in place of the first
        said = launchers[2].wait_for("the newest checkpoint is the copy on")
        assert "empty the folder on every machine" in said
        launchers[2].wait_for("[worker 0] goes on at 1")
        launchers[2].wait_for("[worker 1] goes on at 1")
        wait_for(lambda: is_whole(2, 2) and is_whole(3, 2))
        assert hash_file(find(2, "deep/weights")) == hash_file(find(3, "deep/weights"))
        launchers[2].process.send_signal(signal.SIGTERM)
        assert launchers[2].end()[0] == launchers[1].end()[0] == 143
    finally:
        for launcher in launchers:
            launcher.close()


def test_what_is_saved_last_is_on_every_machine_when_the_run_ends(meeting, tmp_path):
    name = meeting.write("""
        if index == 0:
            with open(os.path.join(os.environ["DISTLAB_CHECKPOINT_DIR"], "last"), "wb") as file:
                file.write(os.urandom(700_000))
    """)
    for folder in ("one", "two", "three"):
        Path(folder).mkdir()
        Path(folder, name).write_text(Path(name).read_text())
    Path("three", "kept", "last").mkdir(parents=True)  # no file can take its place
    words, places = ["--workers", 3, "--checkpoint-dir", "kept", name], ((1, "one"), (2, "two"))
    places += ((3, "three"),)
    launchers = [meeting.start(n, *words, cwd=tmp_path / f) for n, f in places]
    ends = [launcher.end() for launcher in launchers]
    assert [status for status, _, _ in ends] == [0, 0, 0]
    assert "has no copy of the checkpoint: checkpoint-dir " in ends[0][2]
    kept = [Path(folder, "kept", "last").read_bytes() for folder in ("one", "two")]
    assert kept[0] == kept[1] and len(kept[0]) == 700_000


def test_a_copy_that_is_cut_short_or_leads_elsewhere_is_refused(tmp_path):
    origin, other = tmp_path / "origin", tmp_path / "other"
    origin.mkdir(), other.mkdir()
    (origin / "weights").write_bytes(b"w" * 1000)
    (origin / "train-1.data-00000-of-00001").write_bytes(b"no index yet")
    source, target = CheckpointCopy(origin, True), CheckpointCopy(other, False)
    copy = source.find_state()
    assert [file.path for file in copy.files] == ["weights"] and copy.number == 1
    assert not target.fetch(copy, lambda path, offset: source.read_piece(path, offset)[:-1] + b"x")
    assert not target.fetch(copy, lambda path, offset: None)
    assert list(other.iterdir()) == [] and target.find_state().number == 0
    assert target.fetch(read_copy(copy.to_data()), source.read_piece)
    assert (other / "weights").read_bytes() == b"w" * 1000 and target.find_state().number == 1
    (other / "weights").write_bytes(b"somebody trained here")
    assert target.find_state().number == 2
    for path in ("../weights", "/etc/passwd", ".hidden", "a/../../b", "", "a\\b"):
        odd = {"number": 9, "files": [[path, 1, 0, "0"]]}
        with pytest.raises(RunError, match="must be relative, not hidden"):
            read_copy(odd)
        assert source.read_piece("weights", 990) == b"w" * 10


def test_ctrl_d_in_place_of_the_code_is_no_code(monkeypatch):
    def end(*words, **settings):
        raise EOFError

    monkeypatch.delenv("DISTLAB_CODE", raising=False)
    monkeypatch.setattr("getpass.getpass", end)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    with pytest.raises(InputError, match="The code is missing. Set DISTLAB_CODE"):
        ask_for_code(lambda: None)


def test_nobody_who_hosts_is_said_after_the_time_given(meeting):
    """The address is of a machine that is there, and where nobody listens."""
    Path("program.py").write_text("")
    words = ["--trust-network", "--join-timeout", 1, "program.py"]
    launcher = Launcher("--rendezvous", "203.0.113.1:2950", *words)
    status, _, said = launcher.end()
    assert status == 2 and "waiting up to 1 s" in said and "Waited 1 s for a host" in said
    launcher.close()


def test_a_host_whose_name_is_every_machines_own_says_so(meeting):
    Path("program.py").write_text("")
    address = f"localhost:{meeting.port}"
    host = Launcher("--rendezvous", address, "--join-timeout", 1, "program.py")
    status, _, said = host.end()
    assert status == 2 and "The run needs 2 workers, got 1 within 1 s." in said
    assert "On each machine localhost leads to 127.0.0.1, which is that machine itself" in said
    host.close()
