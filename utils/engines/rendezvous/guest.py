"""A member as the host sees it, and a task that runs there."""

import contextlib
import ipaddress
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from ...cluster.grace import Notice
from ...cluster.launcher import TaskListener, await_end
from ...cluster.streams import clean_line
from ...errors import RunError
from ...processes.handshake import ChannelLost
from ..settings import MAX_TASKS
from .channel import MeetingChannel, MeetingFrame
from .copies import Copy, read_copy
from .fetching import PieceAsker
from .names import clean_name

LOST_STATUS = 255  # of a task whose machine is lost, as ssh has it
ANSWER_SECONDS, AGAIN_SECONDS = 30.0, 5.0
MAX_TEXT = 4096


@dataclass(frozen=True)
class Opened:
    """A member's open ports for the next attempt, and the checkpoint that it has."""

    ports: list[int]
    token: str
    copy: Copy


class Guest:
    """One member: what it brings, its tasks, and questions to it.

    `lost` says why it takes part no more, None while it does. `on_change` is called, from
    another thread, when that changes.
    """

    def __init__(
        self, channel: MeetingChannel, join: MeetingFrame, on_change: Callable[[], None]
    ) -> None:
        """`join` is what it said first; raises ChannelLost where that makes no sense."""
        self.channel, self._on_change = channel, on_change
        self.host = clean_name(join.get("host", str))
        self.address, self.logs = join.get("address", str)[:100], join.get("logs", str)[:MAX_TEXT]
        self.seats, self.same = join.get("seats", int), join.get("same", dict)
        self.is_wsl, self.only_tests = join.get("wsl", bool, False), join.get("test", bool, False)
        if not 1 <= self.seats <= MAX_TASKS:
            raise ChannelLost(f"offers {self.seats} workers")
        self.identity = join.get("id", str, "")[:100]  # the same when it calls again
        self.rank, self.joined_at = join.get("rank", int, MAX_TASKS), time.monotonic()
        self.lost: str | None = None
        self.copied, self.copy_error = 0, ""
        self.tasks: dict[str, RemoteTask] = {}
        self.read_piece: Callable[[str, int], bytes | None] = lambda path, offset: None
        self.pieces = PieceAsker(self.send, "give")
        self._question, self._answers = 0, queue.Queue[MeetingFrame]()
        self._lock = threading.Lock()

    @property
    def about(self) -> dict[str, Any]:
        return {"host": self.host, "address": self.address, "wsl": self.is_wsl}

    @property
    def order(self) -> tuple[int, int, int]:
        """Sorts members: by the rank that they were given, then by address."""
        with contextlib.suppress(ValueError):
            address = ipaddress.ip_address(self.address.partition("%")[0])
            return self.rank, address.version, int(address)
        return self.rank, 0, 0

    def listen(self) -> None:
        """Read what it says from now on, in a thread."""
        threading.Thread(target=self._read, daemon=True).start()

    def send(self, kind: str, body: bytes = b"", **data: Any) -> None:
        """Send a frame; raises ChannelLost if it is lost."""
        try:
            self.channel.send(kind, body, **data)
        except ChannelLost as lost:
            self.lose(str(lost))
            raise

    def ask(self, kind: str, **data: Any) -> None:
        """Send a question. Answers to earlier ones, as in a round given up, don't count."""
        self._question += 1
        self.send(kind, question=self._question, **data)

    def wait_prepared(self, seats: int) -> Opened:
        """Return its answer to "prepare". Raises RunError if it can't, ChannelLost if lost."""
        frame = self._wait_for("ready")
        if "error" in frame.data:
            raise RunError(f"{self.host}: {str(frame.data['error'])[:MAX_TEXT]}")
        ports, token = frame.data.get("ports"), frame.data.get("token")
        right = isinstance(ports, list) and len(ports) == seats and isinstance(token, str)
        if not right or not all(type(port) is int and 0 < port < 2**16 for port in ports):
            raise self._lose_odd(frame)
        copy = frame.data.get("copy")
        return Opened(ports, token, Copy() if copy is None else read_copy(copy))

    def wait_reached(self, count: int) -> list[str | None]:
        """Return why each of `count` addresses can't be reached from there, None if it can."""
        frame = self._wait_for("reached")
        answers = frame.data.get("answers")
        if not isinstance(answers, list) or len(answers) != count:
            raise self._lose_odd(frame)
        return [None if why is None else str(why)[:MAX_TEXT] for why in answers]

    def wait_measured(self) -> float:
        """Return its answer to "measure": bytes/s."""
        return self._wait_for("measured").get("rate", float)

    def _lose_odd(self, frame: MeetingFrame) -> ChannelLost:
        self.lose(f"has sent an answer {frame.kind!r} that can't be understood")
        return ChannelLost(self.lost)

    def _wait_for(self, kind: str) -> MeetingFrame:
        """Return its answer of `kind` to the last question; raises ChannelLost if none comes."""
        deadline = time.monotonic() + ANSWER_SECONDS
        while self.lost is None and time.monotonic() < deadline:
            try:
                frame = self._answers.get(timeout=0.1)
            except queue.Empty:
                continue
            if frame.kind == kind and frame.data.get("question") == self._question:
                return frame
        self.lose(f"hasn't answered within {ANSWER_SECONDS:.0f} s")
        raise ChannelLost(self.lost)

    def lose(self, why: str) -> None:
        """Note that it takes part no more; its tasks are lost with it. Safe to call twice."""
        with self._lock:
            if self.lost is not None:
                return
            self.lost = why
        self.channel.close()
        self.pieces.take(MeetingFrame("piece", {"gone": True}))
        for task in list(self.tasks.values()):
            task.finish(LOST_STATUS, why)
        self._on_change()

    def _read(self) -> None:
        try:
            while True:
                self._handle(self.channel.receive())
        except ChannelLost as lost:
            self.lose(str(lost))
        except (TypeError, ValueError, AttributeError, KeyError):
            self.lose("has sent a message that can't be understood")

    def _handle(self, frame: MeetingFrame) -> None:
        if frame.kind == "lines":
            if task := self.tasks.get(frame.get("task", str)):
                task.take_lines(frame.get("lines", list))
        elif frame.kind == "ended":
            self._end_task(frame)
        elif frame.kind == "state":
            if task := self.tasks.get(frame.get("task", str)):
                task.listens |= frame.get("listens", bool)
                task.idle_seconds = float(frame.get("idle_seconds", (int, float)))
        elif frame.kind == "want":
            self._give(frame)
        elif frame.kind == "piece":
            self.pieces.take(frame)
        elif frame.kind == "copied":
            self._note_copy(frame)
        elif frame.kind == "leaving":
            self.lose(f"was stopped there by {frame.get('why', str)[:20]}")
        else:
            self._answers.put(frame)

    def _end_task(self, frame: MeetingFrame) -> None:
        if task := self.tasks.get(frame.get("task", str)):
            task.finish(frame.get("status", int))

    def _give(self, frame: MeetingFrame) -> None:
        piece = self.read_piece(frame.get("path", str), frame.get("offset", int))
        self.send("piece", piece or b"", gone=piece is None)

    def _note_copy(self, frame: MeetingFrame) -> None:
        self.copy_error = frame.get("error", str, "")[:MAX_TEXT]
        self.copied = frame.get("number", int)
        self._on_change()


class RemoteTask:
    """A task on a member's machine: passes on what that tells.

    `listens`: its port is open. `idle_seconds`: for how long it has done nothing.
    """

    def __init__(self, name: str, guest: Guest, listener: TaskListener) -> None:
        self.name, self.guest, self._listener = name, guest, listener
        self.listens, self._is_over, self._lock = False, False, threading.Lock()
        self.idle_seconds = 0.0
        self.ended = threading.Event()

    def take_lines(self, lines: list[Any]) -> None:
        for line in lines if not self._is_over else ():
            self._listener.take_line(self.name, clean_line(str(line)))

    def finish(self, status: int, why: str = "") -> None:
        """Tell its end, once; `why` it is lost with its machine."""
        with self._lock:
            if self._is_over:
                return
            self._is_over = True
        self._listener.take_end(self.name, status, why)
        self.ended.set()

    def look_if_lost(self) -> None:
        """Tell its end if its machine has been lost meanwhile."""
        if self.guest.lost:
            self.finish(LOST_STATUS, self.guest.lost)

    def start_again(self) -> None:
        """Start it again on its machine, once it has ended; RunError where that can't be."""
        await_end(self.name, self.ended, AGAIN_SECONDS)
        self._is_over, self.listens, self.idle_seconds = False, False, 0.0
        self.ended.clear()
        with contextlib.suppress(ChannelLost):
            self.guest.send("again", task=self.name)
        self.look_if_lost()

    def act(self, action: str) -> None:
        if not self._is_over:
            with contextlib.suppress(ChannelLost):  # its task has ended with that
                self.guest.send("act", task=self.name, action=action)

    def ask_to_end(self, notice: Notice) -> None:
        if not self._is_over:
            with contextlib.suppress(ChannelLost):
                self.guest.send("ask", task=self.name, **asdict(notice))

    def join(self, seconds: float) -> None:
        """Wait until it has ended; a machine that doesn't end it is lost."""
        if not self.ended.wait(seconds):
            self.guest.lose("did not end its task")
