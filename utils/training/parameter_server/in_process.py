"""Workers and servers as threads of this process: for a sandbox, or a first try.

Quick to start, and with two traps. A worker's threads and a server's share one
process and one machine: an operation that waits for another task's value holds its
thread, and when all are held nothing can answer. TensorFlow makes as many such
threads as there are cores, so on a laptop of two it hangs; give each server more.
And all of them share one Python: nothing can be killed, and nothing runs faster.
"""

from __future__ import annotations

import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING

from ...errors import InputError

if TYPE_CHECKING:
    import tensorflow as tf

INTER_OP_THREADS = 8  # measured on two cores: 2 hangs, 8 works
_servers: list[tf.distribute.Server] = []  # a server ends with its last reference


def start_in_process(
    workers: int = 2, ps: int = 2, inter_op_threads: int = INTER_OP_THREADS
) -> tf.distribute.cluster_resolver.ClusterResolver:
    """Start gRPC servers on loopback in this process; return the resolver for `connect`.

    They end with the process. Raises InputError for fewer than one of either, or
    than one thread.
    """
    if workers < 1 or ps < 1 or inter_op_threads < 1:
        raise InputError(f"{workers} workers, {ps} ps, {inter_op_threads} threads: give 1 or more")
    import tensorflow as tf

    ports = iter(_pick_ports(workers + ps))
    jobs = {"worker": workers, "ps": ps}
    addresses = {job: [f"127.0.0.1:{next(ports)}" for _ in range(n)] for job, n in jobs.items()}
    spec = tf.train.ClusterSpec(addresses)
    threads = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=inter_op_threads)
    for job, count in jobs.items():
        for index in range(count):
            _servers.append(
                tf.distribute.Server(spec, job_name=job, task_index=index, config=threads)
            )
    return tf.distribute.cluster_resolver.SimpleClusterResolver(spec, rpc_layer="grpc")


def _pick_ports(count: int) -> list[int]:
    """Return `count` ports of loopback that were free a moment ago."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
