"""Functions as forks of a warm process, which has imported TensorFlow and has one thread.

So they start in milliseconds: on Linux only.
"""

import contextlib
import signal
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..errors import RunError
from ..processes.connection import PeerGone
from ..processes.fork_server import ForkServer
from ..processes.module_command import make_module_command
from ..processes.preload import TRAINING_MODULES
from ..processes.registry import end_cluster, make_mark, remove_folder
from .launcher import Launcher, TaskOrder
from .local_launcher import ColdLauncher
from .local_tasks import LocalLauncher, OnEnd, Process
from .task import TaskEnds

START_SECONDS, FORK_SECONDS = 300.0, 60.0


def can_fork() -> bool:
    """Return whether tasks can be forked from a warm process here: Linux only."""
    return sys.platform == "linux"


def make_launcher(preload: Sequence[str] = TRAINING_MODULES) -> Launcher:
    """Return a launcher for this machine: warm if forking is safe, else cold.

    `preload` names the modules that a warm process imports besides TensorFlow. A name that begins
    with a dot is in this library. Pass the launcher to several clusters, and close it at the end.

        launcher = make_launcher()
        with LocalCluster(workers=2, launcher=launcher) as cluster:
            cluster.run(function)
        launcher.close()
    """
    return WarmLauncher(preload) if can_fork() else ColdLauncher()


class WarmLauncher(LocalLauncher):
    """Forks tasks from a process that has imported TensorFlow; ready when it is made.

    They call functions, or serve: a program is nothing to be forked.
    """

    description = "forked from a warm process"

    def __init__(self, preload: Sequence[str] = TRAINING_MODULES) -> None:
        super().__init__(make_mark())
        self._lock, self._forks = threading.Lock(), dict[int, _Fork]()
        command = make_module_command(f"{__package__}.task_server", ",".join(preload))
        self.server = ForkServer(
            "the warm process", command, env={**self.environment, "OPENBLAS_NUM_THREADS": "1"}
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        try:
            self.server.wait_until_ready(START_SECONDS)
            self._listener.start()
        except BaseException:  # an interrupt, for one
            self.close()
            raise

    @property
    def alive(self) -> bool:
        return self.server.alive

    def start_process(self, order: TaskOrder, ends: TaskEnds, on_end: OnEnd) -> Process:
        fork = _Fork(on_end)
        try:
            with self._lock:
                number = self.server.fork(order.to_dict(), descriptors=ends)
                self._forks[number] = fork
        except PeerGone:
            raise self._explain(order, "has ended") from None
        answered = False
        try:
            answered = fork.told.wait(FORK_SECONDS)
        finally:
            if not answered:  # too late, or interrupted: it is killed unnoticed
                fork.on_end = lambda status: None
                self._send_signal(number, signal.SIGKILL)
        if not answered:
            raise self._explain(order, f"hasn't answered for {FORK_SECONDS:g} s")
        if fork.process is None:
            raise self._explain(order, "has ended")
        return Process(fork.process, lambda what: self._send_signal(number, what))

    def _explain(self, order: TaskOrder, what: str) -> RunError:
        words = f"{order.name} was not started: the warm process {what}."
        return RunError(f"{words} Make a new LocalCluster.")

    def _send_signal(self, number: int, what: int) -> None:
        with contextlib.suppress(PeerGone):  # and its tasks with it
            self.server.signal(number, what)

    def _listen(self) -> None:
        with contextlib.suppress(PeerGone):
            while True:
                told = self.server.receive()
                with self._lock:
                    fork = self._forks.setdefault(told["id"], _Fork(lambda status: None))
                fork.process = told.get("process", fork.process)
                fork.told.set()
                if told["told"] == "ended":
                    del self._forks[told["id"]]
                    fork.on_end(told["status"])
        with self._lock:  # the warm process has gone, and its tasks with it
            forks, self._forks = list(self._forks.values()), {}
        for fork in forks:
            fork.told.set()
            fork.on_end(-signal.SIGKILL)

    def close(self) -> None:
        """End the warm process and every task of it; safe to call twice."""
        self.server.close()  # and every task with it
        if self._listener.is_alive():
            self._listener.join(60)
        if self.server.process.returncode:  # it couldn't clear up behind itself
            end_cluster(self.mark.identity)
        super().close()
        remove_folder(self.folder)


@dataclass
class _Fork:
    """A requested fork; `process` is None if it never came."""

    on_end: OnEnd
    told: threading.Event = field(default_factory=threading.Event)
    process: int | None = None
