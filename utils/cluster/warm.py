"""Starting tasks fast: a warm process that forks them, or fresh processes where fork is not safe.

A fresh Python that imports TensorFlow takes seconds of one core; a fork of a
process that has imported it takes milliseconds. Forking is safe on Linux from a
process with one thread that has run no TensorFlow operation, so it is done from a
process kept for nothing else (`warm_server`). Elsewhere every task imports for
itself.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Protocol

from ..errors import InputError
from .protocol import TaskOrder, receive_message, send_message
from .registry import MARK_VARIABLE, Mark, end_cluster, make_mark, remove_folder

START_SECONDS = 120
FORK_SECONDS = 30
Ended = Callable[[int], None]


class Starter(Protocol):
    """Something that starts tasks as processes and tells when they end.

    `folder` holds the temporary files of its tasks, and goes when it is closed or
    when the process that made it ends, in whatever way.
    """

    how: str

    @property
    def folder(self) -> str: ...

    @property
    def alive(self) -> bool: ...

    def start(self, order: TaskOrder, descriptors: tuple[int, ...], ended: Ended) -> int: ...

    def send_signal(self, process: int, number: int) -> None: ...

    def close(self) -> None: ...


def can_fork() -> bool:
    """Return whether tasks can be forked from a warm process here: Linux only."""
    return sys.platform == "linux"


def make_starter() -> Starter:
    """Return a warm process where forking is safe, else a starter of fresh processes."""
    return WarmProcess() if can_fork() else FreshProcesses()


class WarmProcess:
    """A process that has imported TensorFlow and forks tasks on request.

    It is ready when the constructor returns. `close`, or the end of this process
    in any way, ends it and every task.
    """

    how = "forked from a warm process"

    def __init__(self, start_seconds: float = START_SECONDS) -> None:
        self._connection, theirs = socket.socketpair()
        self._lock, self._answers = threading.Lock(), []
        self._ended: dict[int, Ended] = {}
        self._given_up: list[threading.Event] = []
        self.mark = make_mark()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", f"{__package__}.warm_server", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env={**_mark_environment(self.mark), "OPENBLAS_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        try:
            self._wait_until_ready(start_seconds)
        except BaseException:  # an interrupt, for one
            self.close()
            raise
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    @property
    def folder(self) -> str:
        return self.mark.folder

    @property
    def alive(self) -> bool:
        """Whether it still answers, as far as its process shows."""
        return self._process.poll() is None

    def _wait_until_ready(self, seconds: float) -> None:
        self._connection.settimeout(seconds)
        try:
            received = receive_message(self._connection)
        except TimeoutError:
            received = ({"told": f"nothing in {seconds:.0f} s"}, [])
        self._connection.settimeout(None)
        told = received[0]["told"] if received else "its end"
        if told != "ready":
            raise InputError(f"the warm process did not start ({told}); run `distlab doctor`")

    def start(self, order: TaskOrder, descriptors: tuple[int, ...], ended: Ended) -> int:
        """Fork one task and return its process id; `ended(status)` is called when it ends.

        Raises InputError, naming the task, if the warm process has ended or is frozen.
        """
        forked = threading.Event()
        answer: list[int] = []
        with self._lock:
            self._answers.append((forked, answer, ended))
            try:
                send_message(
                    self._connection, {"ask": "fork", "order": order.to_dict()}, descriptors
                )  # fmt: skip
            except OSError:  # it has gone
                self._answers.pop()
                forked.set()
        if not forked.wait(FORK_SECONDS) or not answer:
            self._given_up.append(forked)
            why = "does not answer" if self.alive else "has ended"
            raise InputError(
                f"{order.name} was not started: the warm process {why}; make a new LocalCluster"
            )
        return answer[0]

    def send_signal(self, process: int, number: int) -> None:
        """Signal the process group of a task that has not ended."""
        with self._lock, contextlib.suppress(OSError):  # gone, and its tasks with it
            send_message(self._connection, {"ask": "signal", "process": process, "number": number})

    def _listen(self) -> None:
        while True:
            try:
                received = receive_message(self._connection)
            except OSError:
                received = None
            if received is None:
                return self._release_all()
            message = received[0]
            if message["told"] == "forked":
                forked, answer, ended = self._answers.pop(0)
                self._ended[message["process"]] = ended
                answer.append(message["process"])
                forked.set()
                if forked in self._given_up:  # too late: nobody reads from it
                    self.send_signal(message["process"], signal.SIGKILL)
            elif message["told"] == "ended":
                self._ended.pop(message["process"])(message["status"])

    def _release_all(self) -> None:
        """The warm process has gone, and its tasks with it."""
        for forked, _, _ in self._answers:
            forked.set()
        for ended in list(self._ended.values()):
            ended(-signal.SIGKILL)
        self._ended.clear()

    def close(self) -> None:
        """End the warm process and every task of it; safe to call twice."""
        try:
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        if hasattr(self, "_listener"):
            self._listener.join(5)
        self._connection.close()
        if self._process.returncode:  # it could not clear up behind itself
            end_cluster(self.mark.identity)
        remove_folder(self.folder)


def _mark_environment(mark: Mark) -> dict[str, str]:
    """Return this process's environment with the mark and the folder of a cluster."""
    return {**os.environ, MARK_VARIABLE: mark.value, "TMPDIR": mark.folder}


class FreshProcesses:
    """Starts every task as a fresh Python: slower, and safe everywhere."""

    how = "started afresh, each importing TensorFlow"

    def __init__(self) -> None:
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self.mark = make_mark()

    @property
    def folder(self) -> str:
        return self.mark.folder

    @property
    def alive(self) -> bool:
        return os.path.isdir(self.folder)

    def start(self, order: TaskOrder, descriptors: tuple[int, ...], ended: Ended) -> int:
        numbers = ",".join(str(descriptor) for descriptor in descriptors)
        process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.task", numbers, json.dumps(order.to_dict())],
            pass_fds=descriptors,
            env=_mark_environment(self.mark),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._processes[process.pid] = process

        def wait() -> None:
            status = process.wait()
            self._kill_group(process.pid)
            ended(status)

        threading.Thread(target=wait, daemon=True).start()
        return process.pid

    def send_signal(self, process: int, number: int) -> None:
        if self._processes[process].poll() is None:
            os.killpg(process, number)

    def close(self) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                self._kill_group(process.pid)
            process.wait()
        remove_folder(self.folder)

    def _kill_group(self, process: int) -> None:
        try:
            os.killpg(process, signal.SIGKILL)
        except ProcessLookupError:
            pass
