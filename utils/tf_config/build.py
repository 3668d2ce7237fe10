"""Builds cluster specifications and TF_CONFIG: addresses, ports, texts, views for resolvers."""

import contextlib
import random
import shlex
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..checks import check_count
from ..errors import InputError
from .lint import parse_tf_config
from .spec import (
    MAX_PORT,
    MIN_PORT,
    ClusterSpec,
    TaskConfig,
    deal_addresses,
    join_address,
    split_address,
)

BASE_PORT = 12345
LOWEST_PORT = 20_000  # of those picked at random: Ray gives 10002 to 19999 to its workers
PORT_TRIES = 20
SYSTEM_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")  # Linux


def build_cluster(
    workers: int = 2,
    ps: int = 0,
    chief: bool = False,
    *,
    hosts: Sequence[str] = ("127.0.0.1",),
    base_port: int = BASE_PORT,
    ports: Sequence[int] | None = None,
) -> ClusterSpec:
    """Return a cluster of `workers`, `ps` and, with `chief`, a chief on `hosts`.

    Tasks go to the hosts in turn, in the order chief, workers, ps; on each host ports count up from
    `base_port`. `ports`, one for each task in that order, replaces them. Raises InputError for
    numbers, hosts or ports that make no cluster.

        >>> build_cluster(workers=2, hosts=["a", "b"], base_port=2222).worker
        ('a:2222', 'b:2222')
    """
    counts = {"chief": int(chief), "worker": workers, "ps": ps}
    total = sum(counts.values())
    _check_counts(counts, hosts)
    used = [base_port + number // len(hosts) for number in range(total)]
    used = used if ports is None else list(ports)
    if len(used) != total:
        raise InputError(f"ports must have one entry per task, got {len(used)} for {total} tasks.")
    for port in used:
        check_count("port", port, MIN_PORT, MAX_PORT)
    names = [hosts[number % len(hosts)] for number in range(total)]
    return deal_addresses(list(map(join_address, names, used)), int(chief), workers)


def _check_counts(counts: dict[str, int], hosts: Sequence[str]) -> None:
    for job, count in counts.items():
        check_count(f"tasks of job {job}", count, 0)
    if counts["worker"] + counts["chief"] == 0:
        raise InputError("A cluster needs at least one worker or a chief, got neither.")
    if counts["ps"] and not counts["worker"]:
        raise InputError("A cluster with parameter servers needs at least one worker, got 0.")
    if not hosts or not all(hosts):
        raise InputError("hosts must name at least one host, such as 127.0.0.1, got none.")


def build_tf_config(cluster: ClusterSpec, job: str, index: int = 0, **extras: Any) -> str:
    """Return the TF_CONFIG of one task as JSON text on one line.

    An evaluator gets the training cluster, which doesn't list it. Raises InputError, with the fix,
    if the linter finds an error in the result.
    """
    text = TaskConfig(cluster, job, index, extras).to_json()
    parse_tf_config(text)
    return text


def build_tf_configs(cluster: ClusterSpec, evaluator: bool = False) -> dict[str, str]:
    """Return "job:index" -> TF_CONFIG for every task of `cluster`, and one more with `evaluator`.

    >>> list(build_tf_configs(build_cluster(workers=2)))
    ['worker:0', 'worker:1']
    """
    tasks = cluster.tasks + ([("evaluator", 0)] if evaluator and not cluster.evaluator else [])
    return {f"{job}:{index}": build_tf_config(cluster, job, index) for job, index in tasks}


def format_export(text: str) -> str:
    """Return TF_CONFIG as a line that a POSIX shell can read."""
    return f"export TF_CONFIG={shlex.quote(text)}"


@contextlib.contextmanager
def hold_free_ports(count: int, host: str = "127.0.0.1") -> Iterator[list[int]]:
    """Keep `count` free ports of `host` bound while the block runs; free them at its end.

    All are held at once, so they differ. From the end of the block on, any program may take them:
    start the tasks at once, and start all again if one was lost.
    """
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(_bind_quiet(host)) for _ in range(count)]
        yield [one.getsockname()[1] for one in sockets]


def pick_free_ports(
    count: int, host: str = "127.0.0.1", among: Sequence[int] | None = None
) -> list[int]:
    """Return `count` different ports that are free on `host` now, from `among` if given.

    Another program may take one a moment later. Raises InputError if too few are free.

        >>> len(pick_free_ports(2))
        2
    """
    if among is None:
        with hold_free_ports(count, host) as ports:
            return ports
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(one) for one in bind_ports(count, host, among)]
        return [one.getsockname()[1] for one in sockets]


def bind_ports(count: int, host: str, among: Sequence[int] | None = None) -> list[socket.socket]:
    """Return sockets that hold `count` free ports of `host`, of these if `among` names some.

    A port counts as free although connections of an ended program linger on it. Raises
    InputError if too few are free.
    """
    if among is None:
        return [_bind_quiet(host) for _ in range(count)]
    held: list[socket.socket] = []
    for port in among:
        with contextlib.suppress(InputError):  # taken
            held += [_bind(host, port, lingers=True)] if len(held) < count else []
    if len(held) < count:
        for one in held:
            one.close()
        raise InputError(
            f"port-range must have {count} free ports on {host}, got {min(among)}:{max(among)} "
            f"with {len(held)}. Name a longer range."
        )
    return held


def _bind_quiet(host: str) -> socket.socket:
    """Return a socket on a free port below those that the system hands out, if it names them.

    Each outgoing connection takes one of the system's, perhaps the one that was free just now.
    """
    with contextlib.suppress(OSError):
        lowest = int(SYSTEM_PORTS.read_text().split()[0])
        quiet = range(LOWEST_PORT, max(lowest, LOWEST_PORT))
        for port in random.SystemRandom().sample(quiet, min(PORT_TRIES, len(quiet))):
            with contextlib.suppress(InputError):
                return _bind(host, port)
    return _bind(host)


def _bind(host: str, port: int = 0, lingers: bool = False) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    one = socket.socket(family)
    try:
        if lingers:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind((host, port))
    except OSError as error:
        one.close()
        raise InputError(
            f"No port is free on host {host!r} ({error}). Use an address of this machine."
        ) from error
    return one


def view_as_simple(config: TaskConfig) -> dict[str, Any]:
    """Return the arguments of `SimpleClusterResolver`, `cluster_spec` as a plain dict.

    Pass `tf.train.ClusterSpec(view["cluster_spec"])` in its place.
    """
    view = {"cluster_spec": config.cluster.jobs, "task_type": config.job, "task_id": config.index}
    return view | {"rpc_layer": config.extras.get("rpc_layer", "grpc")}


def view_as_slurm(config: TaskConfig) -> dict[str, str]:
    """Return the variables that `SlurmClusterResolver` reads, for tasks in the cluster's order.

    One task a node. Node names are a plain list, not sorted: Slurm itself
    writes ranges, and the resolver then sorts names as text (n1, n10, n2).
    """
    places = [place for place in config.cluster.tasks if place[0] != "evaluator"]
    nodes = [split_address(config.cluster.address_of(*place) or "")[0] for place in places]
    return {
        "SLURM_PROCID": str(places.index((config.job, config.index))),
        "SLURM_STEP_NUM_TASKS": str(len(places)),
        "SLURM_STEP_NODELIST": ",".join(dict.fromkeys(nodes)),
        "SLURM_STEP_TASKS_PER_NODE": ",".join(str(nodes.count(n)) for n in dict.fromkeys(nodes)),
    }
