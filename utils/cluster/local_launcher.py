"""Tasks as processes of this machine, started from scratch: programs, and functions.

Such a function imports TensorFlow itself. `warm_launcher` forks functions.
"""

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import RunError
from ..events import EVENTS_VARIABLE
from ..processes.keeper import keep_marked
from ..processes.module_command import make_module_command
from ..processes.registry import MARK_VARIABLE
from .launcher import TaskOrder
from .local_tasks import LocalLauncher, OnEnd, Process
from .task import TaskEnds


class ColdLauncher(LocalLauncher):
    """Starts every task from scratch: a program, or a fresh Python that imports TensorFlow.

    What tasks started and took out of their process groups ends with the launcher. A keeper
    ends everything if the process that holds the launcher is killed.
    """

    description = "started from scratch"

    def __init__(self) -> None:
        self._kept = contextlib.ExitStack()
        super().__init__(self._kept.enter_context(keep_marked()))
        self._waiting: list[threading.Thread] = []

    @property
    def alive(self) -> bool:
        return os.path.isdir(self.folder)

    def make_environment(self) -> dict[str, str]:
        """Return the variables that a program gets in addition to its order's environment."""
        kept = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
        return {**kept, MARK_VARIABLE: self.mark.value, "PYTHONUNBUFFERED": "1"}

    def start_process(self, order: TaskOrder, ends: TaskEnds, on_end: OnEnd) -> Process:
        try:
            process = subprocess.Popen(
                **self._describe(order, ends), stdin=subprocess.DEVNULL, start_new_session=True
            )
        except OSError as error:
            why = explain_start(order.command[0], error)
            raise RunError(f"{order.name} was not started: {why}") from None

        def wait() -> None:
            status = process.wait()
            _signal_group(process.pid, signal.SIGKILL)
            on_end(status)

        self._waiting = [thread for thread in self._waiting if thread.is_alive()]
        self._waiting.append(threading.Thread(target=wait, daemon=True))
        self._waiting[-1].start()
        return Process(process.pid, lambda what: _signal(process, what))

    def _describe(self, order: TaskOrder, ends: TaskEnds) -> Mapping[str, Any]:
        if order.role == "program":
            told = {EVENTS_VARIABLE: str(ends.events)}  # a program may report, too
            return {
                "args": list(order.command),
                "env": {**self.make_environment(), **order.environment, **told},
                "stdout": ends.output,
                "stderr": ends.errors,
                "pass_fds": [ends.events],
            }
        descriptors = ",".join(map(str, ends))
        words = f"{__package__}.cold_task", descriptors, json.dumps(order.to_dict())
        return {"args": make_module_command(*words), "env": self.environment, "pass_fds": ends}

    def close(self) -> None:
        super().close()
        self._kept.close()
        for waiting in self._waiting:
            waiting.join(60)


def explain_start(program: str, error: OSError) -> str:
    """Return why a program couldn't be started, and what to do.

    The system's own words mislead about folders and about files from Windows.
    """
    path = Path(program)
    if path.is_dir():
        return f"{program} is a folder. Name a program in it."
    try:
        with path.open("rb") as file:
            first = file.readline(200)
    except OSError:
        first = b""
    if first.startswith(b"#!") and first.endswith(b"\r\n"):
        return (
            f"{program} has Windows line endings (CRLF), so its first line names no program. "
            "Convert it with dos2unix, or save it with LF."
        )
    return f"{program} can't be run ({error.strerror or error}). Name a program that runs here."


def _signal(process: "subprocess.Popen[bytes]", number: int) -> None:
    if process.poll() is None:
        _signal_group(process.pid, number)


def _signal_group(process: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process, number)
