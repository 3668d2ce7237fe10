"""LocalCluster: real worker processes on this machine, from a cell or a script.

    with LocalCluster(workers=3) as cluster:
        results = cluster.run(train, epochs=2)     # results in rank order

Every task is an operating-system process with its own TF_CONFIG and its own port
on loopback. Nothing outlives the `with` block, nor the process that holds it.
"""

import importlib
import pickle
from collections.abc import Callable, Mapping
from typing import Any

from ..checks import check_choice, check_count
from ..devices import DEVICES
from ..errors import InputError
from ..gpus import list_gpus, share_gpus
from ..tf_config import TaskConfig, deal_addresses
from .group import Task
from .job import Job
from .launcher import Launcher, TaskOrder
from .local_tasks import LocalLauncher
from .supervisor import Supervisor
from .task import pack_call
from .warm_launcher import make_launcher

MAX_TASKS = 32
RUN_SECONDS = 600.0


class LocalCluster:
    """A cluster of processes on this machine that run your function.

    With `ps=0` it is a synchronous group of `workers`: the function runs on every worker, and
    worker 0 is the chief. With one or more `ps` it is a parameter-server cluster: the function
    runs on the coordinator (task "chief 0"), and workers and servers wait for its calls.

    On a machine with GPUs, the workers divide those that this process may use. Servers and the
    coordinator get none, and TensorFlow takes memory as it needs it. `devices="cpu"` keeps all
    tasks on the CPU. `replicas_per_worker` is how many GPUs a worker gets (all of its share, and
    one in a parameter-server cluster), or how many logical devices its CPU is split into (one). An
    engine gives its tasks their GPUs.

    The cluster closes its own launcher, which has a warm process where that is safe. A `launcher`
    that you pass serves several clusters, and you close it. With `engine` ("ray", "spark" or
    "slurm") that starts the tasks, on its cluster at `engine_address` or on a cluster of two nodes
    that is set up here. `restarts` is the default of `start` and `run`. Every task finds
    `environment` in its own, besides TF_CONFIG. `loads` unpickles what a task returns. Give your
    own if you don't trust the tasks. Raises InputError for numbers out of range and for more
    workers than GPUs.

    A rendezvous of machines (`engines.run_at_rendezvous`) can't start these tasks: it sends no
    code, and a job is a function that is sent. There, run a program that every machine has.

        with LocalCluster(workers=2) as cluster:
            results = cluster.run(function, 3)  # [function(3) on worker 0, on worker 1]
    """

    def __init__(
        self,
        workers: int = 2,
        ps: int = 0,
        replicas_per_worker: int | None = None,
        *,
        devices: str = "auto",
        launcher: Launcher | None = None,
        engine: str | None = None,
        engine_address: str | None = None,
        restarts: int = 0,
        environment: Mapping[str, str] | None = None,
        loads: Callable[[bytes], Any] = pickle.loads,
    ) -> None:
        replicas = 1 if replicas_per_worker is None else replicas_per_worker
        for name, value, least in (
            ("workers", workers, 1),
            ("ps", ps, 0),
            ("replicas_per_worker", replicas, 1),
        ):
            check_count(name, value, least, MAX_TASKS)
        self.devices = check_choice("devices", devices, DEVICES)
        if engine is not None and launcher is not None:
            raise InputError(f"Give an engine or a launcher, got both: engine={engine!r}.")
        if engine_address and engine is None:
            raise InputError(f"engine_address={engine_address!r} needs an engine, such as 'ray'.")
        self.restarts = check_count("restarts", restarts, 0)
        self._engine = engine, engine_address
        self.workers, self.ps, self.replicas_per_worker = workers, ps, replicas_per_worker
        self._launcher, self._own_launcher = launcher, launcher is None
        self._environment, self._loads = dict(environment or {}), loads
        self._jobs: list[Job] = []

    @property
    def launcher(self) -> Launcher:
        """The launcher of the tasks, made when it is first needed, and again if it has gone."""
        if self._own_launcher and self._launcher is not None and not self._launcher.alive:
            self._launcher.close()  # ended from outside, as `distlab processes stop` does
            self._launcher = None
        if self._launcher is None:
            self._launcher = self._make_launcher()
        return self._launcher

    def _make_launcher(self) -> Launcher:
        if self._engine[0] is None:
            return make_launcher()
        engines = importlib.import_module("..engines", __package__)  # which build on clusters
        return engines.make_launcher(*self._engine)

    def start(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        restarts: int | None = None,
        stall_seconds: float = 10.0,
        **settings: Any,
    ) -> Job:
        """Start `function(*arguments, **settings)` on fresh processes and return the job at once.

        The function may be defined in a notebook. It finds TF_CONFIG in its environment;
        `utils.events.report` sends events to `job.events()`. With `restarts`, the whole group
        starts again, on new ports, up to that many times when a task dies or is frozen for more
        than `stall_seconds`: a function that resumes from its checkpoint loses little. Raises
        InputError if the function can't be sent to another process.
        """
        try:
            body = pack_call(function, arguments, settings)
        except Exception as error:
            name = getattr(function, "__name__", "The function")
            raise InputError(
                f"{name} can't be sent to another process ({error}). Create what it needs inside "
                "the function."
            ) from None
        self._gpu_variables = self._share_gpus()
        self._jobs = [job for job in self._jobs if not job.finished]
        again = self.restarts if restarts is None else restarts
        job = Job(self._make_tasks, body, self.launcher, again, stall_seconds)
        self._jobs.append(job)
        return job

    def run(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        timeout: float = RUN_SECONDS,
        echo: bool = True,
        restarts: int | None = None,
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
        if self._own_launcher and self._launcher is not None:
            self._launcher.close()
            self._launcher = None

    def __enter__(self) -> "LocalCluster":
        _ = self.launcher  # a warm process starts now
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _make_tasks(self, supervisor: Supervisor) -> list[Task]:
        """Return the tasks of one attempt, with addresses that are free now."""
        chief = int(bool(self.ps))
        wanted = chief + self.workers + self.ps
        addresses = self.launcher.find_addresses(wanted, supervisor.stopped_by)
        spec = deal_addresses(addresses, chief, self.workers)
        return [self._make_task(TaskConfig(spec, job, index)) for job, index in spec.tasks]

    def _share_gpus(self) -> dict[str, dict[str, str]]:
        """Return what each task's environment says of GPUs; an engine gives them itself."""
        if self.devices != "cpu" and not isinstance(self.launcher, LocalLauncher):
            return {}
        gpus = [] if self.devices == "cpu" else list_gpus()
        return share_gpus(gpus, self.workers, self.ps, self.replicas_per_worker, self.devices)

    def _make_task(self, config: TaskConfig) -> Task:
        name, calls = f"{config.job} {config.index}", config.job == "chief" or not self.ps
        order = TaskOrder(
            name=name,
            role="call" if calls else "serve",
            replicas=self.replicas_per_worker or 1,
            environment={
                **self._gpu_variables.get(name, {}),
                **self._environment,
                "TF_CONFIG": config.to_json(),
            },
            address=config.address,
        )
        return Task(order, config.job, config.index, awaited=calls, loads=self._loads)
