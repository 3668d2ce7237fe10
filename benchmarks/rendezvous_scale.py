"""One host and 255 machines: seconds to meet, the host's processor, lines/s; what copies cost.

The host is a real `distlab run --rendezvous`. The other machines are threads of this process that
speak its protocol on loopback: real handshakes, ports, frames, beats and lines. They don't try
each other's ports (65,025 connections), since that would load this machine and not the host;
the host tries all of theirs. The cost of copies is computed, not measured.
"""

import functools
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from utils.engines.rendezvous.channel import MeetingChannel, MeetingFrame, introduce
from utils.engines.rendezvous.code import stretch_code
from utils.engines.rendezvous.compare import describe_machine
from utils.engines.rendezvous.copies import PIECE_BYTES
from utils.engines.rendezvous.reach import OpenPorts
from utils.engines.settings import RunSettings
from utils.processes.connection import split_address
from utils.tf_config import parse_tf_config, pick_free_ports

WORKERS, LINES, BATCH, CODE, HOST = 256, 400, 100, "for-the-benchmark", "127.0.0.1"
QUIET_SECONDS = 5.0
PROGRAM = "import time\ntime.sleep(3600)\n"
CHECKPOINT_BYTES, COPIES, ROUND_TRIP_SECONDS = 10e9, 7, 0.0002
GIGABITS = (1, 10, 25)


class Agent:
    """A machine that has joined: answers its host as a member does, but starts nothing."""

    def __init__(self, channel: MeetingChannel, about: dict[str, object], name: str) -> None:
        self.channel, self.started = channel, threading.Event()
        self._ports: OpenPorts | None = None
        channel.send("join", **about, seats=1, address=HOST, logs="logs", id=name)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while (frame := self.channel.receive()).kind != "finish":
            self._answer(frame)

    def _answer(self, frame: MeetingFrame) -> None:
        if frame.kind == "prepare":
            self._ports = OpenPorts(HOST, 1)
            told = {"ports": self._ports.ports, "token": self._ports.token, "copy": None}
            self.channel.send("ready", question=frame.data.get("question"), **told)
        elif frame.kind == "probe":
            answers = [None] * len(frame.data["targets"])
            self.channel.send("reached", question=frame.data.get("question"), answers=answers)
        elif frame.kind == "start":
            self._ports.release()
            config = parse_tf_config(frame.data["tf_configs"][0])
            self.task = f"{config.job} {config.index}"
            self.started.set()

    def write(self) -> None:
        """Send the lines of its task, and its end."""
        for first in range(0, LINES, BATCH):
            lines = [f"step {number}: loss 0.12345678" for number in range(first, first + BATCH)]
            self.channel.send("lines", task=self.task, lines=lines)
        self.channel.send("ended", task=self.task, status=0)


def run(rounds: int) -> None:
    """Print what one host needs for 255 machines, once: `rounds` change nothing."""
    print(f"\nOne host, {WORKERS - 1} machines with one worker each, on this machine's loopback")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "program.py").write_text(PROGRAM)
        measure(folder)
    print_copies()


def measure(folder: str) -> None:
    address = f"{HOST}:{pick_free_ports(1, HOST)[0]}"
    words = ["run", "--rendezvous", address, "--workers", str(WORKERS), "program.py"]
    begun = time.monotonic()
    with open(os.path.join(folder, "output"), "w+") as output:
        host = subprocess.Popen(
            [sys.executable, "-m", "distlab", *words],
            cwd=folder,
            env={**os.environ, "DISTLAB_CODE": CODE},
            stdout=output,
            stderr=subprocess.DEVNULL,
        )
        try:
            _measure_host(psutil.Process(host.pid), address, folder, begun)
        finally:
            host.terminate()
            host.wait(60)


def _measure_host(host: psutil.Process, address: str, folder: str, begun: float) -> None:
    about = describe_machine([sys.executable, f"{folder}/program.py"], RunSettings(workers=WORKERS))
    stretch = functools.cache(lambda salt: stretch_code(CODE, salt))
    _wait_for_host(address)
    began = time.monotonic(), _processor(host)

    def join(number: int) -> Agent:
        end = socket.create_connection(split_address(address), 60)
        return Agent(introduce(end, address, stretch), about, f"machine {number}")

    with ThreadPoolExecutor(16) as pool:
        agents = list(pool.map(join, range(WORKERS - 1)))
    joined = time.monotonic() - began[0]
    for agent in agents:
        assert agent.started.wait(120), "the run has not begun"
    met = time.monotonic(), _processor(host)
    print(f"all have joined      {joined:>9.1f} s")
    used = met[1] - began[1]
    print(f"all have begun       {met[0] - began[0]:>9.1f} s  (host's processor {used:.1f} s)")
    time.sleep(QUIET_SECONDS)
    quiet = (_processor(host) - met[1]) / QUIET_SECONDS
    print(f"beats alone          {quiet:>9.1%} of a core")
    wrote = time.monotonic(), _processor(host)
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(Agent.write, agents))
    output = Path(folder, "output")
    wanted = LINES * len(agents)
    while output.read_bytes().count(b"\n") < wanted and time.monotonic() < wrote[0] + 120:
        time.sleep(0.1)
    seconds = time.monotonic() - wrote[0]
    each = (_processor(host) - wrote[1]) / wanted * 1e6
    print(
        f"lines shown          {wanted / seconds:>9,.0f} lines/s  (host's processor {each:.0f} µs)"
    )


def _processor(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def _wait_for_host(address: str) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            return socket.create_connection(split_address(address), 1).close()
        except OSError:
            assert time.monotonic() < deadline, "there is no host"
            time.sleep(0.1)


def print_copies() -> None:
    """Print how long the copies of a checkpoint take that a host hands out."""
    size = f"{CHECKPOINT_BYTES / 1e9:.0f} GB"
    print(f"\nA checkpoint of {size}, copied by the host to {COPIES} machines (computed)")
    for gigabits in GIGABITS:
        seconds = copy_seconds(CHECKPOINT_BYTES, COPIES, gigabits * 1e9 / 8)
        print(f"{gigabits:>3} Gbit/s {seconds / 60:>6.1f} min")


def copy_seconds(size_bytes: float, copies: int, bytes_per_second: float) -> float:
    """Return the seconds that copies take which all leave through one card, piece by piece.

    A machine asks for the next piece once it has one, so it has at most a piece in each round trip.
    """
    alone = PIECE_BYTES / (ROUND_TRIP_SECONDS + PIECE_BYTES / bytes_per_second)
    return size_bytes * copies / min(bytes_per_second, copies * alone)
