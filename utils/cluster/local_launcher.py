"""Tasks as processes of this machine, started from scratch: programs, and functions.

Such a function imports TensorFlow itself. `warm_launcher` forks functions.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import RunError
from ..events import EVENTS_VARIABLE
from ..processes.keeper import keep_marked
from ..processes.module_command import make_module_command
from ..processes.registry import MARK_VARIABLE, ClusterMark
from ..tf_config import pick_free_ports
from .launcher import Stop, TaskListener, TaskOrder
from .local_tasks import ACTIONS, LocalTasks, OnEnd, Process
from .streams import Streams
from .task import TaskEnds


class LocalLauncher:
    """The base of both launchers: a folder for temporary files, pipes, and their readers.

    The folder goes when the launcher is closed, or when the process that made it ends, in
    whatever way. Subclasses start processes.
    """

    description = ""
    actions = ACTIONS

    def __init__(self, mark: ClusterMark) -> None:
        self.mark, self.streams = mark, Streams()
        self._started: list[LocalTasks] = []

    @property
    def folder(self) -> str:
        return self.mark.folder

    @property
    def environment(self) -> dict[str, str]:
        """The environment of functions: this process's own, the cluster's mark, its folder.

        Without the log level that JAX sets when Keras imports it: a task sets its own, if none is
        there, and JAX's shows that CUDA is missing.
        """
        own = dict(os.environ)
        if "jax" in sys.modules and own.get("TF_CPP_MIN_LOG_LEVEL") == "1":
            del own["TF_CPP_MIN_LOG_LEVEL"]
        return {**own, MARK_VARIABLE: self.mark.value, "TMPDIR": self.folder}

    def find_addresses(self, count: int, stop: Stop = lambda: 0) -> list[str]:
        return [f"127.0.0.1:{port}" for port in pick_free_ports(count)]

    def start(
        self, orders: Sequence[TaskOrder], function: bytes, listener: TaskListener
    ) -> "LocalTasks":
        self._started = [tasks for tasks in self._started if tasks.left]
        tasks = LocalTasks(self, orders, function, listener)
        self._started.append(tasks)
        return tasks

    def start_process(self, order: TaskOrder, ends: TaskEnds, on_end: OnEnd) -> Process:
        """Start a process for one task; `on_end(status)` is called once when it has ended."""
        raise NotImplementedError

    def close(self) -> None:
        for tasks in self._started:
            tasks.end()
        self.streams.close()


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
