"""The framed connection and the fork server by themselves."""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import textwrap
import threading
from contextlib import closing
from pathlib import Path

import numpy as np
import psutil
import pytest
from process_watch import Held, end_started, lives, start_process, wait_for

from utils.errors import DistributedError, RunError
from utils.processes.connection import (
    Connection,
    PeerGone,
    PeerSilent,
    accept,
    answers,
    connect,
    listen,
    split_address,
)
from utils.processes.fork_server import ForkServer, NotStarted
from utils.tf_config import hold_free_ports


def make_pair(limit_seconds=120.0):
    ours, theirs = socket.socketpair()
    return Connection(ours, "theirs", limit_seconds), Connection(theirs, "ours", limit_seconds)


def test_content_body_and_descriptors_arrive_as_they_were_sent():
    here, there = make_pair()
    body = np.random.default_rng(0).bytes(3_000_000)  # more than the socket holds
    with tempfile.TemporaryFile() as file:
        sender = threading.Thread(target=here.send, args=({"n": [1, None]}, body, [file.fileno()]))
        sender.start()
        message = there.receive()
        sender.join()
        assert message.content == {"n": [1, None]} and message.body == body
        [descriptor] = message.descriptors
        os.write(descriptor, b"through")
        os.close(descriptor)
        file.seek(0)
        assert file.read() == b"through"
    assert here.send("short") == 4 + len('["short", 0]') and there.receive().content == "short"


def test_a_body_that_fits_arrives_in_place():
    here, there = make_pair()
    into, other = np.zeros(10), np.zeros(3)
    here.send("ten", np.arange(10.0).view(np.uint8).data)
    message = there.pull(into.view(np.uint8).data)
    assert message.body == b"" and message.body_bytes == 80 and into.tolist() == list(range(10))
    here.send("ten", np.arange(10.0).view(np.uint8).data)
    message = there.pull(other.view(np.uint8).data)
    assert len(message.body) == 80 and not other.any()


def test_waits_end_and_name_the_one_waited_for():
    here, there = make_pair(0.2)
    for wait, words in (
        (there.receive, "ours has sent nothing for 0.2 s"),
        (lambda: here.send("much", bytes(10**7)), "theirs has taken nothing for 0.2 s"),
    ):
        with pytest.raises(PeerSilent, match=words):
            wait()
    here.close()
    with pytest.raises(PeerGone, match="ours has hung up") as gone:
        there.receive()
    assert not gone.value.between_messages
    with pytest.raises(PeerGone):
        there.receive()


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n",
        b"\xff\xff\xff\xff",
        struct.pack("!I", 5) + b"[1, 2",
        struct.pack("!I", 2) + b"{}",
        struct.pack("!I", 9) + b'["x", -1]',
        struct.pack("!I", 3) + b"\xff\xfe\0",
    ],
)
def test_what_is_no_message_is_refused(data):
    ours, theirs = socket.socketpair()
    with ours, closing(Connection(theirs, "a stranger", 120)) as connection:
        ours.sendall(data)
        with pytest.raises(PeerGone, match="a stranger has sent something that isn't a message"):
            connection.receive()


def test_addresses_are_listened_at_and_reached_or_named():
    with closing(listen("127.0.0.1:0")) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        assert listener.getsockname()[0] == "127.0.0.1"
        with (
            closing(connect(address, "the host", 120)) as one,
            closing(accept(listener, "you", 120)) as two,
        ):
            one.send("hello")
            assert two.receive().content == "hello"
        with pytest.raises(PeerSilent, match="worker 3 didn't connect within 0.1 s"):
            accept(listener, "worker 3", 0.1)
        with pytest.raises(DistributedError, match=f"Can't listen at {address}"):
            listen(address)
    with hold_free_ports(1) as [port]:  # nobody else may listen there
        said = f"the host doesn't answer at 127.0.0.1:{port} after 0.2 s"
        with pytest.raises(PeerSilent, match=said):
            connect(f"127.0.0.1:{port}", "the host", 0.2)
    assert split_address("[::1]:80") == ("::1", 80)
    for wrong in ("", "host", "host:", ":1", "host:99999", "host:x"):
        with pytest.raises(DistributedError, match="must be host:port"):
            split_address(wrong)


def test_who_listens_answers_and_nobody_else():
    with closing(listen("127.0.0.1:0")) as listener:
        address = "127.0.0.1:{1}".format(*listener.getsockname())
        assert answers(address, 90.0)
    with hold_free_ports(1) as [port]:
        assert not answers(f"127.0.0.1:{port}", 90.0) and not answers("no address", 90.0)


LOOP = """
import json, os, sys, threading, time
from utils.processes.fork_server import ForkLoop, serve

class Loop(ForkLoop):
    watch_seconds = 0.05

    def check(self):
        return "it may not" if "refuse" in sys.argv else ""

    def prepare(self):
        if "thread" in sys.argv:
            threading.Thread(target=time.sleep, args=(300,), daemon=True).start()
        if "fail" in sys.argv:
            raise ImportError("no module named tensorflaw")
        if "slow" in sys.argv:
            open(sys.argv[1] + "/preparing", "w").close()
            time.sleep(300)
        return {"pid": os.getpid()}

    def run(self, request, body, descriptors):
        if request == "sleep":
            time.sleep(300)
        told = [request, body.decode(), os.getpgid(0) == os.getpid()]
        os.write(descriptors[0], json.dumps(told).encode())
        return 7

    def watch(self):
        for child in self.children.values():
            if child.request == "sleep" and not child.why and os.path.exists(sys.argv[1] + "/end"):
                child.why = "the file is there"
                self.send_signal(child, 9)

    def clear_up(self):
        open(sys.argv[1] + "/cleared", "w").close()

serve(Loop())
"""


def start_server(folder, *words, **options):
    (folder / "loop.py").write_text(LOOP)
    root = str(Path(__file__).resolve().parents[2])
    command = [sys.executable, str(folder / "loop.py"), str(folder), *words]
    return ForkServer("the server", command, env={**os.environ, "PYTHONPATH": root}, **options)


linux = pytest.mark.skipif(sys.platform != "linux", reason="forking is for Linux")


@linux
def test_children_are_forked_signaled_watched_and_told_of(tmp_path):
    held = Held()
    with closing(start_server(tmp_path)) as server:
        assert server.wait_until_ready(120)["pid"] == server.process.pid and server.alive
        reader, writer = os.pipe()
        first = server.fork({"x": 1}, b"body", [writer])
        os.close(writer)
        with os.fdopen(reader, "rb") as file:
            assert json.loads(file.read()) == [{"x": 1}, "body", True]
        forked, ended = server.receive(120), server.receive(120)
        assert forked["told"] == "forked" and forked["id"] == first
        assert ended == {"told": "ended", "id": first, "status": 7, "why": ""}
        server.signal(first, signal.SIGKILL)  # it has ended: nothing happens
        asleep = [server.fork("sleep") for _ in range(2)]
        children = [server.receive(120)["process"] for _ in asleep]
        server.signal(asleep[0], signal.SIGTERM)
        assert server.receive(120) == {"told": "ended", "id": asleep[0], "status": -15, "why": ""}
        (tmp_path / "end").touch()
        told = server.receive(120)
        assert told == {"told": "ended", "id": asleep[1], "status": -9, "why": "the file is there"}
    assert not any(psutil.pid_exists(child) for child in children)
    assert server.process.returncode == 0 and (tmp_path / "cleared").exists()
    server.close()
    held.assert_nothing_stays()


@linux
@pytest.mark.parametrize(
    "word, why",
    [
        ("refuse", "it may not"),
        ("thread", "2 threads before the fork"),
        ("fail", "ImportError: no module named tensorflaw"),
        ("slow", "nothing in 2 s"),
    ],
)
def test_a_server_that_cannot_serve_says_why(tmp_path, word, why):
    with tempfile.TemporaryFile() as errors:
        with closing(start_server(tmp_path, word, errors=errors)) as server:
            with pytest.raises(NotStarted, match=f"the server did not start .*{why}") as refused:
                server.wait_until_ready(2 if word == "slow" else 120)
            assert refused.value.why == why and isinstance(refused.value, RunError)
    assert server.process.returncode is not None


OWNER = """
import os, sys, time
sys.path[:0] = {folders!r}
from pathlib import Path
from test_processes import start_server
server = start_server(Path({folder!r}), *{words!r})
if {words!r}:
    print(server.process.pid, flush=True)
else:
    server.wait_until_ready(120)
    server.fork("sleep")
    print(server.process.pid, server.receive(120)["process"], flush=True)
time.sleep(300)
"""


@linux
@pytest.mark.parametrize("words", [[], ["slow"]])
def test_server_and_children_end_with_an_owner_that_was_killed(tmp_path, words):
    here = Path(__file__).resolve().parent
    folders = [str(here.parents[1]), str(here.parent), str(here)]
    code = OWNER.format(folders=folders, folder=str(tmp_path), words=words)
    owner = start_process([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE)
    processes = [int(word) for word in owner.stdout.readline().split()]
    assert all(map(lives, processes)) and processes
    if words:
        wait_for((tmp_path / "preparing").exists)
    owner.kill()
    owner.wait()
    owner.stdout.close()
    wait_for(lambda: not any(map(lives, processes)))
    assert (tmp_path / "cleared").exists()


def test_what_a_test_starts_ends_with_it():
    """`conftest` ends it, so that a test that fails leaves nothing."""
    process = start_process(["sleep", "300"], stdout=subprocess.PIPE)
    end_started()
    assert process.returncode == -signal.SIGKILL and process.stdout.closed
