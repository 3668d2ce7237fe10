"""The process that asks an engine for agents, and keeps them running until it must stop.

It runs apart from the launcher, so that Ray's, Spark's and Slurm's clients, with their threads
and JVM, stay out of it. Its standard input is a pipe: where that ends, it takes down what it has
started. Everything on this machine carries the mark of a cluster, so that a keeper
ends it where the launcher is killed.
"""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..errors import RunError
from ..processes.keeper import keep_marked
from ..processes.module_command import make_module_command
from ..processes.registry import MARK_VARIABLE

AGENT_VARIABLE = "DISTLAB_AGENT"
STOP_SECONDS, REACH_SECONDS, JOIN_SECONDS = 20.0, 10.0, 60.0
LAST_WORDS = "distlab: "  # begins the line with which a driver says why it gives up


@dataclass(frozen=True)
class Call:
    """An agent's call: the address of its launcher, and the key that they share.

    It travels in the environment of the processes that an engine starts.
    """

    address: str
    key: str

    def to_text(self) -> str:
        return json.dumps(asdict(self))


def take_call() -> Call:
    """Return the call of this process, and take it out of what its children inherit."""
    return Call(**json.loads(os.environ.pop(AGENT_VARIABLE)))


@dataclass(frozen=True)
class Wanted:
    """A request to a driver: `count` agents on the cluster at `address`, or on a local one.

    `folder` is for temporary files; `command` starts an agent, with `environment` set and the
    agent's number, from 0, in DISTLAB_RANK (or in Slurm's own variable); `gpus` is the number for
    each. With `apart`, restarting one leaves the others alone. `options` are
    `read_options`'s. Restart an agent that ends with a status other than 0 or 75.
    """

    count: int
    folder: str
    address: str | None = None
    command: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    gpus: int = 0
    apart: bool = False
    options: list[str] = field(default_factory=list)


class Driver:
    """The launcher's end of a driver: `module` is the one that asks the engine."""

    def __init__(
        self,
        module: str,
        count: int,
        address: str | None,
        call: Call,
        **asked: Any,
    ) -> None:
        """`asked` is what `Wanted` has besides."""
        self.count, self._is_local = count, address is None
        self._kept = contextlib.ExitStack()
        self._mark = self._kept.enter_context(keep_marked())
        self._log = Path(self._mark.folder, "driver.log")
        agent = make_module_command(f"{__package__}.agent")
        environment = {AGENT_VARIABLE: call.to_text()}
        wanted = Wanted(count, self._mark.folder, address, agent, environment, **asked)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                make_module_command(module),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, MARK_VARIABLE: self._mark.value, "TMPDIR": self._mark.folder},
            )
        self._process.stdin.write(json.dumps(asdict(wanted)).encode() + b"\n")
        self._process.stdin.flush()

    def check(self) -> None:
        """Raise RunError, with its last words, if the driver has ended."""
        if self._process.poll() is None:
            return
        lines = self._log.read_text(errors="replace").splitlines()
        said = [line.removeprefix(LAST_WORDS) for line in lines if line.startswith(LAST_WORDS)]
        last = next((line for line in reversed(lines) if line.strip()), "it said nothing")
        raise RunError(said[-1] if said else f"its client has ended: {last.strip()}")

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def folder(self) -> str:
        return self._mark.folder

    def close(self) -> None:
        """Have everything taken down, and kill what is left; safe to call twice.

        A cluster of this machine is killed at once, at whatever it is: it may still be starting,
        and when Ray ends in its own way, some of its processes stay for a minute.
        """
        if not self._is_local:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_SECONDS)
        self._kept.close()
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.wait()


# ---- in the driver's own process


class GivesUp(Exception):
    """Raised when a driver can't continue. Says why, in words for the user."""


def check_reachable(address: str | None) -> None:
    """Raise GivesUp if nothing listens at "host:port", or at any of several.

    An engine's own client would try for a minute or more. Anything else is left to it.
    """
    places = re.findall(r"(?:^|[/,])\[?([^\]/,]+?)\]?:(\d+)", address or "")
    for host, port in places:
        with contextlib.suppress(OSError):
            socket.create_connection((host, int(port)), REACH_SECONDS).close()
            return
    if places:
        raise GivesUp(f"nothing listens at {address}. Check the address and that it runs there.")


@contextlib.contextmanager
def limit(seconds: float, stop: threading.Event, why: str) -> Iterator[None]:
    """End this process with `why` if the block takes longer, or `stop` is set meanwhile.

    An engine's client tries for minutes to join another program than its engine, and hears
    nothing.
    """
    done, deadline = threading.Event(), time.monotonic() + seconds

    def watch() -> None:
        while not done.wait(0.1):
            if stop.is_set() or time.monotonic() > deadline:
                print(f"{LAST_WORDS}{why}", flush=True)
                os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        done.set()


@contextlib.contextmanager
def drive() -> Iterator[tuple[Wanted, threading.Event]]:
    """Give a driver's main its order and an event that is set when it shall stop.

    GivesUp becomes the driver's last words.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the pipe says when to stop
    wanted = Wanted(**json.loads(sys.stdin.readline()))
    stop = threading.Event()

    def watch() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield wanted, stop
    except GivesUp as error:
        print(f"{LAST_WORDS}{error}", flush=True)
        sys.exit(1)
