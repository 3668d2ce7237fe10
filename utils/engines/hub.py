"""The place that an engine's agents call: keeps those present, in the order of their ranks."""

import contextlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from ..cluster.launcher import TaskListener, TaskOrder
from ..cluster.streams import ErrorLine, Streams, clean_line
from ..errors import RunError
from ..processes.connection import Connection, listen
from ..processes.door import Door
from ..processes.handshake import HANDSHAKE_SECONDS, KEY_BYTES
from ..tf_config import join_address
from .driver import Call

SEND_SECONDS = 20.0
WAITING_SECONDS = 10.0  # between two words on who hasn't called yet
KILLED, MAX_AGENTS = -9, 1024


class AgentLine:
    """The launcher's end of the connection to one agent, as a source for `Streams`.

    Of its running task, `arrived` says whether the result is there, `ended` and `status` its end,
    `idle_seconds` for how long it had done nothing when that was asked last.
    """

    def __init__(
        self,
        connection: Connection,
        about: Mapping[str, Any],
        on_gone: Callable[["AgentLine"], None],
    ) -> None:
        """`about` is what the agent has said first."""
        self.rank, self.host, self.gone = int(about["rank"]), str(about["host"]), False
        self.cores = tuple(about["cores"])  # the numbers of those that it may use
        self._connection, self._on_gone = connection, on_gone
        self._sending, self._told = threading.Lock(), threading.Condition()
        self._listener: TaskListener | None = None
        self._task, self._address = "", ""
        self.arrived, self.ended, self.status = False, threading.Event(), None
        self.idle_seconds = 0.0

    def fileno(self) -> int:
        return self._connection.fileno()

    def read(self) -> bool | None:
        return self._connection.read(lambda told: self._take(told.content, bytes(told.body)))

    def close(self) -> None:
        """In the hub's thread: hang up. A task that runs there is lost."""
        self.gone = True
        self._connection.close()
        self._end(KILLED)
        with self._told:
            self._told.notify_all()
        self._on_gone(self)

    def _take(self, content: dict[str, Any], body: bytes) -> None:
        said, listener = content["said"], self._listener
        if said == "address":
            with self._told:
                self._address = content["address"]
                self._told.notify_all()
        elif said == "end":
            self._end(content["status"])
        elif said == "idle":
            self.idle_seconds = content["seconds"]
        elif listener is not None and said in ("line", "error"):
            line = clean_line(body.decode(errors="replace"))
            listener.take_line(self._task, ErrorLine(line) if said == "error" else line)
        elif listener is not None and said == "event":
            listener.take_event(self._task, json.loads(body))
        elif listener is not None and said == "result":
            self.arrived = True
            listener.take_result(self._task, body)

    def _end(self, status: int) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            self.status = status
            listener.take_end(self._task, status)
            self.ended.set()

    def send(self, what: str, body: bytes = b"", **fields: Any) -> None:
        """Order something of the agent; nothing if it has gone."""
        with self._sending, contextlib.suppress(RunError):
            self._connection.send({"do": what, **fields}, body, limit_seconds=SEND_SECONDS)

    def find_address(self, seconds: float, ports: tuple[int, int] | None = None) -> str | None:
        """Return "host:port", free a moment ago on the agent's machine; None if it has gone.

        Of `ports`, both ends included, where they are named.
        """
        with self._told:
            self._address = ""
        self.send("address", ports=ports)
        with self._told:
            self._told.wait_for(lambda: self._address or self.gone, seconds)
            return None if self.gone else self._address or None

    def start(
        self,
        order: TaskOrder,
        folder: str,
        listener: TaskListener,
        body: bytes,
        own: tuple[int, int] = (0, 1),
    ) -> None:
        """Have a task started; an agent that has gone tells of its end at once.

        `own` is its number among the tasks of its machine, and how many use the same cores.
        """
        self.arrived, self.ended, self.status = False, threading.Event(), None
        self.idle_seconds = 0.0
        self._task, self._listener = order.name, listener
        self.send("start", body, order=order.to_dict(), folder=folder, own=own)
        if self.gone:
            self._end(KILLED)


class Hub:
    """Listens at a free port of `host`, and keeps who has called with the right key.

    A later agent of the same rank takes the place of the one before.
    """

    def __init__(self, host: str) -> None:
        self.streams, key = Streams(), secrets.token_bytes(KEY_BYTES)
        listener = listen(join_address(host, 0))
        self.call = Call(join_address(host, listener.getsockname()[1]), key.hex())
        self._lines: dict[int, AgentLine] = {}
        self._changed, self._closed = threading.Condition(), False
        self._door = Door(listener, key, self._greet, most_of_one=MAX_AGENTS)

    def _greet(self, connection: Connection) -> None:
        """Take in an agent, which has shown the key. One that makes no sense is dropped."""
        try:
            line = AgentLine(
                connection, connection.receive(HANDSHAKE_SECONDS).content, self._forget
            )
        except (RunError, LookupError, TypeError, ValueError, AttributeError):
            return connection.close()
        with self._changed:
            before = self._lines.get(line.rank)
            self._lines[line.rank] = line
            self._changed.notify_all()
        if before is not None:
            self.streams.call(lambda: self.streams.remove(before))
        self.streams.add(line)

    def _forget(self, line: AgentLine) -> None:
        with self._changed:
            if self._lines.get(line.rank) is line:
                del self._lines[line.rank]
            self._changed.notify_all()

    def gather(
        self, count: int, seconds: float, say: Callable[[str], None], check: Callable[[], None]
    ) -> list[AgentLine]:
        """Return the agents of ranks 0 to `count` - 1, once all are there.

        `check` is called meanwhile and raises where waiting is in vain; `say` gets a word
        on who is missing. Raises RunError after `seconds`.
        """
        deadline, next_word = time.monotonic() + seconds, time.monotonic() + WAITING_SECONDS
        while True:
            with self._changed:
                missing = [rank for rank in range(count) if rank not in self._lines]
                if not missing:
                    return [self._lines[rank] for rank in range(count)]
                self._changed.wait(0.2)
            check()
            words = f"{count - len(missing)} of {count} tasks are started"
            if time.monotonic() > deadline:
                raise RunError(
                    f"{words} after {seconds:g} s. Ask for fewer, or give the engine longer with "
                    "--join-timeout."
                )
            if time.monotonic() > next_word:
                next_word = time.monotonic() + WAITING_SECONDS
                names = f"rank{'s' * (len(missing) > 1)} {', '.join(map(str, missing))}"
                say(f"{words}: waiting for the engine to start {names}")

    def dismiss(self, status: int = 1) -> None:
        """Send all agents away, and forget them. With status 1 their engine starts them again.

        All, as Spark and Slurm start all again when one has gone.
        """
        lines = list(self._lines.values())
        for line in lines:
            line.send("leave", status=status)
        self._drop(lines)

    def _drop(self, lines: list[AgentLine]) -> None:
        with self._changed:
            for line in lines:
                if self._lines.get(line.rank) is line:
                    del self._lines[line.rank]
        for line in lines:
            self.streams.call(lambda line=line: self.streams.remove(line))

    def close(self) -> None:
        """Dismiss all agents and stop listening; safe to call twice."""
        if self._closed:
            return
        self._closed = True
        self._door.close()
        self.dismiss(0)
        self.streams.close()
