"""The tasks that a member of a rendezvous runs for its host, and what they say."""

import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from ...cluster.streams import Streams
from ...processes.registry import Mark
from ...tf_config import parse_tf_config
from ..handshake import ChannelLost
from ..settings import RunSettings
from ..signals import end_all, kill_all
from ..task_process import Print, TaskPlan, TaskProcess
from .channel import Frame
from .lines import LineBuffer, cut_tail

LOOK_SECONDS = 2.0  # between two looks for ports that tasks have opened
TAIL_LINES, NOT_STARTED = 200, 127
MAX_HANDOUT = 4096


class MemberTasks:
    """Starts and ends tasks as the host's frames say; `send` takes what it is to know.

    `on_end(task)` is called from another thread when one has ended. `takes_handout` says
    whether tasks get the text that the host hands out.
    """

    def __init__(
        self, command: Sequence[str], settings: RunSettings, logs: Path, mark: Mark, show: Print,
        send: Callable[..., None], on_end: Callable[[TaskProcess], None],
        takes_handout: bool = False,
    ) -> None:  # fmt: skip
        self._command, self._settings, self._logs, self._mark = command, settings, logs, mark
        self._show, self._send, self._on_end = show, send, on_end
        self._takes_handout = takes_handout
        self._streams, self._lines = Streams(), LineBuffer(socket.gethostname())
        self._tasks: dict[str, TaskProcess] = {}
        self._silent: set[str] = set()  # tasks that have not opened their port yet
        self._gpus: list[list[str] | None] = []
        self._next_look = 0.0

    def prepare(self, seats: int) -> None:
        """Divide the GPUs over so many tasks; raises InputError where that cannot be."""
        self._gpus = self._settings.divide_gpus(seats)

    def start(self, frame: Frame) -> None:
        config = parse_tf_config(frame.get("tf_config", str))
        name = f"{config.job} {config.index}"
        seat = frame.get("seat", int)
        if config.job != "worker" or not 0 <= seat < len(self._gpus):
            raise ChannelLost(f"wants to start {name} here")
        handout = frame.get("handout", str, "")[:MAX_HANDOUT]
        settings = replace(self._settings, handout=handout if self._takes_handout else None)
        environment = settings.make_environment(
            config, self._mark.value, frame.get("restart", int), self._gpus[seat]
        )
        log = self._logs / f"{config.job}-{config.index}.log"
        plan = TaskPlan(config, self._command, environment, log)
        try:
            self._tasks[name] = TaskProcess(plan, self._streams, self._take_line, self._on_end)
            self._silent.add(name)
        except OSError as error:
            words = f"{name} was not started: {self._command[0]}: {error.strerror or error}"
            self._send("ended", task=name, status=NOT_STARTED, tail=[words])

    def pass_signal(self, frame: Frame) -> None:
        task = self._tasks.get(frame.get("task", str))
        if task is not None:
            task.send(frame.get("number", int))

    def _take_line(self, task: str, line: str) -> None:
        self._lines.add(task, line)
        self._show(task, line)

    def tell(self) -> None:
        """Send the lines that have come, and now and then who has opened its port."""
        if told := self._lines.take():
            self._send("lines", lines=told)
        if not self._silent or time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + LOOK_SECONDS
        for name in [n for n in self._silent if self._tasks[n].listens]:
            self._silent.discard(name)
            self._send("listens", task=name)

    def tell_end(self, task: TaskProcess) -> None:
        tail = cut_tail(list(task.tail)[-TAIL_LINES:])
        self._send("ended", task=task.plan.name, status=task.status, tail=tail)

    def kill(self) -> None:
        kill_all(self._tasks.values())

    def end(self, grace_seconds: float, number: int = signal.SIGTERM) -> None:
        """Ask every task to end with signal `number`; kill those that are left after the grace."""
        left = [task for task in self._tasks.values() if task.status is None]
        end_all(left, grace_seconds, number)

    def close(self) -> None:
        self._streams.close()
