"""The tf.data service: a dispatcher and workers as real processes, started from a cell.

The functions `serve_dispatcher` and `serve_worker` run in their own process and end after a time.
`DataService` starts them on a cluster of one worker, each as a job:

    with LocalCluster(workers=1) as cluster, DataService(cluster, workers=2) as service:
        dataset = through_service(dataset, service.address, "distributed_epoch")

Nothing outlives the `with` block. Follows tf.data.experimental.service.
"""

import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from ..checks import check_count
from ..errors import RunError
from ..events import report

START_SECONDS = 60.0


class Starts(Protocol):
    """Starts a function in its own process: `utils.cluster.LocalCluster(workers=1)`."""

    def start(self, function: Callable[..., Any], *arguments: Any, **settings: Any) -> Any: ...


def serve_dispatcher(seconds: float) -> None:
    """Be a dispatcher for `seconds`; reports its address in the event "ready".

    A worker that says nothing for three seconds counts as lost.
    """
    import tensorflow as tf

    config = tf.data.experimental.service.DispatcherConfig(port=0, worker_timeout_ms=3_000)
    server = tf.data.experimental.service.DispatchServer(config)
    report("ready", address=server.target.split("://")[1])
    time.sleep(seconds)


def serve_worker(dispatcher_address: str, seconds: float, port: int = 0) -> None:
    """Be a worker of the dispatcher at `dispatcher_address` for `seconds`.

    Reports its port, one that is free if `port` is 0, in the event "ready".
    """
    import tensorflow as tf

    config = tf.data.experimental.service.WorkerConfig(
        dispatcher_address=dispatcher_address, heartbeat_interval_ms=200, port=port
    )
    server = tf.data.experimental.service.WorkerServer(config)
    report("ready", port=int(server._address.rsplit(":", 1)[1]))
    time.sleep(seconds)


class DataService:
    """A dispatcher and `workers` workers, each a process; `address` is the dispatcher's.

    They end with the `with` block, after `seconds`, or with the cluster, whatever
    comes first. Raises RunError if one doesn't start in a minute.
    """

    def __init__(self, cluster: Starts, workers: int = 2, seconds: float = 300.0) -> None:
        check_count("workers", workers)
        self._cluster, self._seconds = cluster, seconds
        self.jobs: list[Any] = []
        self.ports: list[int] = []  # of the workers
        try:
            self._dispatcher = self._start(serve_dispatcher, seconds)
            self.address: str = wait_until_ready(self._dispatcher, "dispatcher")["address"]
            for _ in range(workers):
                self.add_worker()
        except BaseException:
            self.close()
            raise

    def _start(self, function: Callable[..., Any], *arguments: Any) -> Any:
        job = self._cluster.start(function, *arguments)
        self.jobs.append(job)
        return job

    @property
    def workers(self) -> list[Any]:
        """The jobs of the workers, in the order of their starts."""
        return self.jobs[1:]

    def add_worker(self, port: int = 0) -> None:
        """Start one more worker, on a free port unless it is given; it takes part at once."""
        job = self._start(serve_worker, self.address, self._seconds, port)
        event = wait_until_ready(job, f"data worker {len(self.jobs) - 2}")
        self.ports.append(event["port"])

    def kill_worker(self, index: int) -> None:
        """End one worker with SIGKILL, and wait until it has gone."""
        job = self.workers[index]
        job.kill("worker", 0)
        deadline = time.monotonic() + 10
        while not job.finished and time.monotonic() < deadline:
            time.sleep(0.02)

    def close(self) -> None:
        """End every process of the service; safe to call twice."""
        for job in reversed(self.jobs):
            job.stop()

    def __enter__(self) -> "DataService":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def wait_until_ready(job: Any, name: str, seconds: float = START_SECONDS) -> dict[str, Any]:
    """Return the first event of `job`; raise RunError if none comes in `seconds`."""
    found: list[dict[str, Any]] = []
    reader = threading.Thread(target=lambda: found.extend(_first(job)), daemon=True)
    reader.start()
    reader.join(seconds)
    if not found:
        state = f"has ended ({job.error})" if job.finished else f"was not ready in {seconds:.0f} s"
        raise RunError(f"the {name} {state}")
    return found[0]


def _first(job: Any) -> list[dict[str, Any]]:
    event = next(iter(job.events()), None)
    return [] if event is None else [event]


def through_service(dataset: Any, address: str, processing_mode: Any) -> Any:
    """Return `dataset`, made by the service at `address` (`host:port`) from the last stage on.

    `processing_mode` is a `tf.data.experimental.service.ShardingPolicy`, or
    "parallel_epochs" or "distributed_epoch".
    """
    import tensorflow as tf

    return dataset.apply(
        tf.data.experimental.service.distribute(
            processing_mode=processing_mode, service=f"grpc://{address}"
        )
    )


def consume(
    address: str, policy: str, job_name: str, examples: int, step_seconds: float = 0.0
) -> list[list[int]]:
    """Read the numbers below `examples`, in batches of 4, through the service at `address`.

    `policy` names a `tf.data.experimental.service.ShardingPolicy`. Every batch is reported as the
    event "batch" with its `ids`, then a step of `step_seconds` is slept. Returns the batches.
    Fetches at most two requests ahead. Made to run in its own process: consumers with one
    `job_name` share one run.
    """
    import tensorflow as tf

    service = tf.data.experimental.service
    batches = tf.data.Dataset.range(examples).batch(4)
    served = batches.apply(
        service.distribute(
            processing_mode=getattr(service.ShardingPolicy, policy),
            service=f"grpc://{address}",
            job_name=job_name,
            max_outstanding_requests=2,
        )
    )
    received = []
    for batch in served:
        received.append(batch.numpy().tolist())
        report("batch", ids=received[-1])
        time.sleep(step_seconds)
    return received
