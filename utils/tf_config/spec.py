"""A cluster and its tasks as plain, frozen data.

The vocabulary is TensorFlow's (`tf.train.ClusterSpec` and TF_CONFIG): a *job* is a
kind of task (chief, worker, ps, evaluator), a *task* one process of it, an *address*
"host:port".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

JOBS = ("chief", "worker", "ps", "evaluator")
TRAINING_JOBS = ("chief", "worker", "ps")
JAX_VARIABLES = (  # of keras.distribution.initialize(), and one of jax.distributed.initialize()
    "KERAS_DISTRIBUTION_JOB_ADDRESSES",
    "KERAS_DISTRIBUTION_NUM_PROCESSES",
    "KERAS_DISTRIBUTION_PROCESS_ID",
    "JAX_COORDINATOR_ADDRESS",
)
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")
MIN_PORT, MAX_PORT = 1, 65535


@dataclass(frozen=True)
class ClusterSpec:
    """The addresses of every task, by job: `ClusterSpec(worker=("a:2222", "b:2222"))`.

    Task i of a job listens at the i-th address. `evaluator` is here for clusters
    that list one; TensorFlow wants it outside the training cluster.
    """

    chief: tuple[str, ...] = ()
    worker: tuple[str, ...] = ()
    ps: tuple[str, ...] = ()
    evaluator: tuple[str, ...] = ()

    @property
    def jobs(self) -> dict[str, list[str]]:
        """Job -> addresses, without empty jobs: what `tf.train.ClusterSpec` takes."""
        return {job: list(getattr(self, job)) for job in JOBS if getattr(self, job)}

    @property
    def tasks(self) -> list[tuple[str, int]]:
        """(job, index) of every task, chief first."""
        return [(job, index) for job, all_ in self.jobs.items() for index in range(len(all_))]

    @property
    def leader(self) -> tuple[str, int] | None:
        """(job, index) of the task that the others of a multi-worker run connect to, or None.

        TensorFlow's coordination service runs in the chief, in worker 0 where no
        chief is listed.
        """
        return ("chief", 0) if self.chief else ("worker", 0) if self.worker else None

    @property
    def uses_parameter_servers(self) -> bool:
        return bool(self.ps)

    def address_of(self, job: str, index: int) -> str | None:
        """Return "host:port" of a task, None where the cluster doesn't list it."""
        addresses = self.jobs.get(job, [])
        return addresses[index] if 0 <= index < len(addresses) else None


@dataclass(frozen=True)
class TaskConfig:
    """One process's view: the cluster, and which of its tasks this one is.

    `extras` holds what else TF_CONFIG carried, such as `environment` and `rpc_layer`.
    """

    cluster: ClusterSpec
    job: str
    index: int
    extras: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.job}:{self.index}"

    @property
    def address(self) -> str | None:
        """Its own "host:port"; None for an evaluator, which the cluster need not list."""
        return self.cluster.address_of(self.job, self.index)

    @property
    def is_chief(self) -> bool:
        """True if it has the chief's duties: checkpoints, exports, summaries.

        As `tf.distribute` decides: the chief, worker 0 if no chief is listed, and the evaluator,
        which works alone.
        """
        return (self.job, self.index) in {self.cluster.leader, ("evaluator", 0)}

    def to_json(self) -> str:
        """Return the text of TF_CONFIG on one line."""
        task = {"type": self.job, "index": self.index}
        return json.dumps({"cluster": self.cluster.jobs, "task": task, **self.extras})

    def to_variables(self) -> dict[str, str]:
        """Return the environment variables that tell a program which task it is.

        TF_CONFIG for TensorFlow. Tasks that train without parameter servers also get what
        `keras.distribution.initialize()` reads for JAX, and the coordinator's address, which
        `jax.distributed.initialize()` reads. Process 0 is the leader.
        """
        variables = {"TF_CONFIG": self.to_json()}
        if self.cluster.ps or self.job not in ("chief", "worker"):
            return variables
        addresses = [*self.cluster.chief, *self.cluster.worker]
        rank = self.index + (len(self.cluster.chief) if self.job == "worker" else 0)
        values = (",".join(addresses), str(len(addresses)), str(rank), addresses[0])
        return variables | dict(zip(JAX_VARIABLES, values))


def split_address(address: str) -> tuple[str, str | None]:
    """Return host and port of "host:port" or "[v6]:port" as text; port None if there is none."""
    if address.startswith("["):
        host, bracket, rest = address[1:].partition("]")
        return (host, rest[1:]) if bracket and rest.startswith(":") else (host, None)
    host, colon, port = address.rpartition(":")
    return (host, port) if colon else (address, None)


def join_address(host: str, port: int) -> str:
    """Return "host:port", or "[v6]:port"; `host` may stand in brackets already."""
    bare = host.strip("[]")
    return f"[{bare}]:{port}" if ":" in bare else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Return whether the address leads back to the machine that uses it."""
    return host.lower() in LOOPBACK_HOSTS or host.startswith("127.")


def deal_addresses(addresses: Sequence[str], chief: int, workers: int) -> ClusterSpec:
    """Return a cluster with `addresses` in the order chief (0 or 1), workers, parameter servers."""
    first_ps = chief + workers
    return ClusterSpec(
        tuple(addresses[:chief]), tuple(addresses[chief:first_ps]), tuple(addresses[first_ps:])
    )


def describe_role(config: TaskConfig) -> str:
    """Return in one sentence what the task of `config` does in its cluster.

    For people: whether it trains, and which task has the chief's duties.

        print(describe_role(parse_tf_config(os.environ["TF_CONFIG"])))
    """
    cluster = config.cluster
    if config.job == "ps":
        return "a parameter server: it holds variables and waits for others, and trains nothing"
    if config.job == "evaluator":
        return "evaluates checkpoints while the others train, with a strategy of its own machine"
    if cluster.uses_parameter_servers:
        return _describe_coordination(config)
    if config.job == "chief":
        return "the chief: it trains as the first worker, and also saves and writes summaries"
    if config.is_chief:
        return "trains and has the chief's duties (saving, summaries), as no chief is listed"
    leader = "{}:{}".format(*cluster.leader)
    return f"trains only: {leader} has the chief's duties, and must be up before this task connects"


def _describe_coordination(config: TaskConfig) -> str:
    if config.job == "chief":
        return "the coordinator: it makes the variables on the ps tasks and sends steps to workers"
    return "a server: it runs the steps that the coordinator sends, whatever its index"
