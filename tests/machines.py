"""Machines of a rendezvous, as tests have them: launchers with an address each.

On loopback they are 127.0.0.1, 127.0.0.2, …; with root, four network namespaces joined by a
bridge, each with an address and a link of its own (`Namespaces`).
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

CODE = "test-code-2345"
# a host with a range of workers that waits for all of them before its first start: on a busy
# machine the others may take longer to come than a host waits once there are enough
WAITS_FOR_ALL = """
import runpy
from utils.engines.rendezvous.lobby import Lobby

def gather_all(lobby, seats, least, most, *limits):
    Lobby.gather = gather
    return gather(lobby, seats, most, most, *limits)

gather, Lobby.gather = Lobby.gather, gather_all
runpy.run_module("distlab", None, "__main__")
"""


class Launcher:
    """One `distlab run`, or another `command`, that goes on while its lines are read."""

    def __init__(self, *words, inside=(), code=CODE, command=("run", "--json"), **settings):
        environment = {**os.environ, "DISTLAB_CODE": code}
        if code is None:
            del environment["DISTLAB_CODE"]
        program = settings.pop("program", ["-m", "distlab"])
        command = [*inside, sys.executable, *program, *command, *map(str, words)]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**environment, **settings.pop("variables", {})},
            **settings,
        )
        self.lines, self._told = [], threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stderr:
            with self._told:
                self.lines.append(line.rstrip("\n"))
                self._told.notify_all()

    def wait_for(self, text, seconds=90.0):
        """Return the first line that holds `text`, once it is there."""

        def find():
            return next((line for line in list(self.lines) if text in line), None)

        with self._told:
            self._told.wait_for(lambda: find() or not self._reader.is_alive(), seconds)
        assert find(), "\n".join(self.lines)
        return find()

    def end(self, seconds=120.0):
        """Return (status, report or None, what it said)."""
        output = self.process.stdout.read()
        status = self.process.wait(seconds)
        self._reader.join(90)
        return status, json.loads(output) if output.strip() else None, "\n".join(self.lines)

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()

    def freeze(self):
        self.process.send_signal(signal.SIGSTOP)

    def close(self):
        self.kill()
        self.process.wait()
        self._reader.join(90)
        self.process.stdout.close()
        self.process.stderr.close()


class Namespaces:
    """Network namespaces 10.77.0.1, … behind one bridge; `slow` is a rate as `tc tbf` has it.

    The bridge has a namespace of its own, the hub: a browser that runs beside a test drops its
    downloads (ERR_NETWORK_CHANGED) whenever an interface of this machine comes or goes.
    """

    def __init__(self, count, slow=None):
        self.prefix, self._count = f"dl{os.getpid() % 100000}", count
        self._hub, self._bridge = f"{self.prefix}h", f"{self.prefix}b"
        self.close()
        self._run("ip", "netns", "add", self._hub)
        self._run("ip", "-n", self._hub, "link", "add", self._bridge, "type", "bridge")
        self._run("ip", "-n", self._hub, "link", "set", self._bridge, "up")
        for index in range(count):
            self._add(index, slow)

    def _add(self, index, slow):
        name, outer, inner = self.name(index), f"{self.prefix}o{index}", f"{self.prefix}i{index}"
        self._run("ip", "netns", "add", name)
        pair = ["link", "add", outer, "type", "veth", "peer", "name", inner, "netns", name]
        self._run("ip", "-n", self._hub, *pair)
        self._run("ip", "-n", self._hub, "link", "set", outer, "master", self._bridge, "up")
        for words in (
            ["addr", "add", f"{self.address(index)}/24", "dev", inner],
            ["link", "set", inner, "up"],
            ["link", "set", "lo", "up"],
        ):
            self._run("ip", "-n", name, *words)
        if slow:
            shape = ["root", "tbf", "rate", slow, "burst", "32kbit", "latency", "400ms"]
            self._run("tc", "-n", name, "qdisc", "add", "dev", inner, *shape)

    def name(self, index):
        return f"{self.prefix}n{index}"

    def address(self, index):
        return f"10.77.0.{index + 1}"

    def inside(self, index):
        """Return what to put in front of a command that runs on machine `index`."""
        return ["ip", "netns", "exec", self.name(index)]

    def block(self, index, other):
        """Machine `index` sends nothing to machine `other` any more."""
        self._run(
            "ip", "-n", self.name(index), "route", "add", "blackhole", f"{self.address(other)}/32"
        )

    def unplug(self, index, state="down"):
        """Pull the cable of machine `index`: no word comes through, and no connection is closed.

        It is back with state "up".
        """
        outer = f"{self.prefix}o{index}"
        self._run("ip", "-n", self._hub, "link", "set", outer, state)

    def map_host_name(self):
        """Let this machine's name lead to each machine's own address there."""
        for index in range(self._count):
            folder = Path("/etc/netns", self.name(index))  # what `ip netns exec` puts in /etc
            folder.mkdir(parents=True)
            lines = ("127.0.0.1 localhost", f"{self.address(index)} {socket.gethostname()}", "")
            (folder / "hosts").write_text("\n".join(lines))

    def close(self):
        for index in range(self._count):
            shutil.rmtree(Path("/etc/netns", self.name(index)), ignore_errors=True)
        for name in (self._hub, *map(self.name, range(self._count))):
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    @staticmethod
    def _run(*words):
        subprocess.run(words, check=True, capture_output=True, text=True)
