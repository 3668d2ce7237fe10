"""LocalCluster: real worker processes on this machine, from a cell or a script.

    with LocalCluster(workers=3) as cluster:
        results = cluster.run(train, epochs=2)     # results in rank order

Every task is an operating-system process with its own TF_CONFIG and its own port
on loopback. Nothing outlives the `with` block, nor the process that holds it.
"""

import atexit
import pickle
import sys
import weakref
from collections.abc import Callable
from typing import Any

import cloudpickle

from ..errors import InputError
from ..tf_config import ClusterSpec, build_cluster, build_tf_config, pick_free_ports
from .group import Task
from .job import Job
from .protocol import TaskOrder
from .warm import Starter, make_starter

MOST_TASKS = 32
RUN_SECONDS = 600.0


class LocalCluster:
    """A cluster of processes on this machine.

    With `ps=0` it is a synchronous group: the function runs on every worker, and
    worker 0 is the chief. With `ps` of one or more it is a parameter-server
    cluster: the function runs on the coordinator (task "chief 0"), workers and
    servers wait to be used. `replicas_per_worker` splits each worker's CPU into
    that many logical devices. Its starter, a warm process where that is safe, is
    closed with the cluster; a `starter` that is given serves several clusters and
    stays the caller's to close. Raises InputError for numbers that cannot be.
    """

    def __init__(
        self,
        workers: int = 2,
        ps: int = 0,
        replicas_per_worker: int = 1,
        *,
        starter: Starter | None = None,
    ) -> None:
        for name, value, least in (
            ("workers", workers, 1), ("ps", ps, 0), ("replicas_per_worker", replicas_per_worker, 1),
        ):  # fmt: skip
            if not isinstance(value, int) or not least <= value <= MOST_TASKS:
                raise InputError(f"{name} {value}: must be a number from {least} to {MOST_TASKS}")
        self.workers, self.ps, self.replicas_per_worker = workers, ps, replicas_per_worker
        self._starter, self._own_starter = starter, starter is None
        self._jobs: list[Job] = []
        close = weakref.WeakMethod(self.close)
        self._at_exit = atexit.register(lambda: (close() or int)())

    @property
    def how(self) -> str:
        """How tasks are started here, in words."""
        return self._get_starter().how

    def start(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        restarts: int = 0,
        stall_seconds: float = 10.0,
        **settings: Any,
    ) -> Job:
        """Start `function(*arguments, **settings)` on fresh processes and return the job at once.

        The function may be defined in a notebook. It finds TF_CONFIG in its
        environment; `utils.events.report` sends events to `job.events()`. With
        `restarts`, the whole group starts again, on new ports, as often when a
        task dies or is frozen for more than `stall_seconds`: a function that
        resumes from its checkpoint goes on from there. Raises InputError if the
        function cannot be sent to another process.
        """
        try:
            body = pickle.dumps((sys.path, cloudpickle.dumps((function, arguments, settings))))
        except Exception as error:
            name = getattr(function, "__name__", "the function")
            raise InputError(
                f"{name} cannot be sent to another process ({error}); make what it needs inside it"
            ) from None
        self._jobs = [job for job in self._jobs if not job.finished]
        job = Job(self._make_tasks, body, self._get_starter(), restarts, stall_seconds)
        self._jobs.append(job)
        return job

    def run(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        timeout: float = RUN_SECONDS,
        echo: bool = True,
        restarts: int = 0,
        **settings: Any,
    ) -> Any:
        """Run the function and return its results in rank order (the coordinator's result with ps).

        What the tasks write is printed as it comes, each line with its task's
        name, unless `echo=False`. Raises ClusterError as `Job.wait` does. An
        interrupt (Ctrl-C, or the kernel's) ends the tasks first.
        """
        job = self.start(function, *arguments, restarts=restarts, **settings)
        try:
            return job.wait(timeout, echo=echo)
        except BaseException:
            job.stop()
            raise

    def close(self) -> None:
        """End every job, every task and its own warm process; safe to call twice."""
        for job in self._jobs:
            job.stop()
        self._jobs.clear()
        if self._own_starter and self._starter is not None:
            self._starter.close()
            self._starter = None
        atexit.unregister(self._at_exit)

    def __enter__(self) -> "LocalCluster":
        self._get_starter()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _get_starter(self) -> Starter:
        if self._own_starter and self._starter is not None and not self._starter.alive:
            self._starter.close()  # ended from outside, as `distlab cluster stop` does
            self._starter = None
        if self._starter is None:
            self._starter = make_starter()
        return self._starter

    def _make_tasks(self) -> list[Task]:
        """Return the tasks of one attempt, with ports that are free now."""
        total = self.workers + self.ps + bool(self.ps)
        ports = pick_free_ports(total)
        spec = build_cluster(self.workers, self.ps, chief=bool(self.ps), ports=ports)
        return [self._make_task(spec, job, index) for job, index in spec.tasks]

    def _make_task(self, spec: ClusterSpec, job: str, index: int) -> Task:
        calls = job == "chief" or not self.ps
        order = TaskOrder(
            name=f"{job} {index}",
            role="call" if calls else "serve",
            replicas=self.replicas_per_worker,
            environment={"TF_CONFIG": build_tf_config(spec, job, index)},
        )
        return Task(order, job, index)
