"""Gives the workers of a run their own data when they ask for it: none gets another's.

The process that starts and watches the workers draws the data, and listens at a local socket. The
kernel says which process has called, so a share goes to its own worker. No file ever holds it.
"""

import io
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

import numpy as np

from distlab.exercises.refusing import refuse, refuse_task
from distlab.exercises.worker_runs import RUN_SECONDS

DOOR, ASK_SECONDS, MAX_STEP, MAX_BYTES = "feed", 0.005, 2**20, 20

Share = Mapping[str, np.ndarray]


def ask(root: Path, step: int) -> Share:
    """In a worker: return its share of a step, as soon as it is there.

    Raises AssertionError in other processes, and for a step that isn't 0 to 2^20 - 1.
    """
    while True:
        with suppress(EOFError, ConnectionError), Client(str(root / DOOR), "AF_UNIX") as end:
            end.send_bytes(str(step).encode())
            body = end.recv_bytes()
            break
        time.sleep(ASK_SECONDS)  # after a restart the feed may not know this process yet
    if not body:
        words = f"Only a worker has examples, of steps from 0 to {MAX_STEP - 1:,}"
        raise refuse(f"{words}. This process asked for step {step}.")
    with np.load(io.BytesIO(body)) as share:
        return dict(share)


def _find_caller(end: Connection) -> int:
    """Return the number of the process at the other end, as the kernel says."""
    with socket.fromfd(end.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as copy:
        if sys.platform == "darwin":
            return copy.getsockopt(0, 2)  # SOL_LOCAL, LOCAL_PEERPID
        return struct.unpack("3i", copy.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]


class Feed:
    """Answers the workers of one job: `draw(rank, step)` is what a worker gets for a step."""

    def __init__(self, root: Path, draw: Callable[[int, int], Share]) -> None:
        self.root, self._draw = root, draw
        self._door, self._left = Listener(str(root / DOOR), "AF_UNIX"), False
        self._held: list[Connection] = []  # to workers that get nothing
        self.error: Exception | None = None  # its own fault

    @contextmanager
    def feeding(self, job: Any) -> Iterator[None]:
        """Answer the job's workers within the block, which ends the job.

        Raises its own fault at the end.
        """
        answering = threading.Thread(target=self._run, args=(job,), daemon=True)
        answering.start()
        try:
            yield
        finally:
            job.stop()
            self._left = True
            with suppress(OSError):  # it has failed
                Client(str(self.root / DOOR), "AF_UNIX").close()
            answering.join()
            if self.error is not None:
                raise self.error

    def _run(self, job: Any) -> None:
        with self._door:
            try:
                while not self._left:
                    self._take(job, self._door.accept())
            except Exception as error:  # it stops the job
                self.error = error
                job.stop()

    def _take(self, job: Any, end: Connection) -> None:
        """Answer one caller. One that isn't known yet is hung up on, and asks again."""
        caller = _find_caller(end)
        task = next((task for task in job.tasks if task.process == caller), None)
        try:
            step = int(end.recv_bytes(MAX_BYTES)) if task else -1
        except (EOFError, OSError, ValueError):  # gone, or no question
            step = -1
        body = b""
        if task is not None and task.job == "worker" and 0 <= step < MAX_STEP:
            try:
                share = self.answer(job, task.index, step)
            except BaseException:
                end.close()
                raise
            if share is None:
                return self._held.append(end)
            file = io.BytesIO()
            np.savez(file, **share)
            body = file.getvalue()
        with end, suppress(OSError):  # it was killed meanwhile
            if task is not None:
                end.send_bytes(body)

    def answer(self, job: Any, rank: int, step: int) -> Share | None:
        """Return the share of worker `rank`. None lets it wait for ever."""
        return self._draw(rank, step)


def run_fed(
    cluster: Any, feed: Feed, function: Callable[..., Any], *arguments: Any, restarts: int = 0
) -> tuple[list[Any], int]:
    """Run `function` on a cluster's workers; return their results, and the number of attempts.

    Raises AssertionError with the learner's own error in its first line.
    """
    from utils.cluster.failures import ClusterError

    job = cluster.start(function, *arguments, restarts=restarts)
    try:
        with feed.feeding(job):
            return job.wait(RUN_SECONDS), job.attempt
    except ClusterError as error:
        raise refuse_task(error) from None
