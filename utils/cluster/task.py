"""Code that runs inside one task's process: `perform` anywhere, the rest on this machine."""

import mmap
import os
import pickle
import socket
import sys
import tempfile
import traceback
from typing import Any, NamedTuple

from ..environment import quiet_tensorflow
from ..events import EVENTS_VARIABLE
from ..processes.connection import Connection, PeerGone
from ..processes.lifetime import name_process
from .launcher import TaskOrder

FOR_EVER = float("inf")


class TaskEnds(NamedTuple):
    """The descriptors that a task of this machine gets, in the order of travel."""

    output: int  # its standard output, and a function's error
    errors: int  # a program's standard error
    events: int  # a pipe for lines of JSON
    result: int  # a socket: the result goes out, and the parent hangs up when the task may leave
    function: int  # a file with the pickled function


def perform(order: TaskOrder, function: bytes | mmap.mmap) -> tuple[int, bytes]:
    """Be the task `order`: call the function, or serve; return exit status and result.

    `function` is as `pack_call` made it. The result is pickled: ("result", value) with
    status 0, ("error", summary, traceback) with 1. Nothing is raised.
    """
    os.environ.update(order.environment)
    try:
        return 0, pickle.dumps(("result", _run(order, function)))
    except BaseException as error:
        return 1, pickle.dumps(_describe(error))


def pack_call(call: Any, arguments: tuple[Any, ...], settings: dict[str, Any]) -> bytes:
    """Return a call as bytes for `perform` in another process.

    The function may be defined in a notebook (cloudpickle). Modules travel by name: the
    caller's `sys.path` goes along, and is searched after the task's own.
    """
    import cloudpickle

    return pickle.dumps((sys.path, cloudpickle.dumps((call, arguments, settings))))


def _run(order: TaskOrder, function: bytes | mmap.mmap) -> Any:
    with quiet_tensorflow():
        import tensorflow as tf

        from ..devices import split_cpu
    if order.replicas > 1 and order.role == "call":
        split_cpu(order.replicas)
    if order.role == "serve":
        return serve(tf)
    paths, body = pickle.loads(function)
    sys.path += [path for path in paths if path not in sys.path]
    call, arguments, settings = pickle.loads(body)
    del body
    return call(*arguments, **settings)


def serve(tf: Any) -> None:
    """Be the worker or parameter server that TF_CONFIG names, until killed."""
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    server = tf.distribute.Server(
        resolver.cluster_spec(),
        job_name=resolver.task_type,
        task_index=resolver.task_id,
        protocol=resolver.rpc_layer or "grpc",
    )
    server.join()


def _describe(error: BaseException) -> tuple[str, str, str]:
    from ..tf_config.tracebacks import unwrap  # not for tasks that end well: it costs their start

    first_line, *rest = str(error).strip().split("\n")
    if first_line.endswith(("(", "[", "{")) and rest:  # a value over many lines: how it ends
        first_line = f"{first_line} … {rest[-1].strip()}"
    name = type(error).__name__
    summary = unwrap([f"{name}: {first_line}" if first_line else name, *rest])
    return ("error", summary, traceback.format_exc())


def enter_task(order: TaskOrder, ends: TaskEnds) -> int:
    """Become the task `order` on this machine; return the exit status.

    Once there is a result, the task sends it and waits until its parent hangs up: a worker
    that leaves early would fail its peers.
    """
    os.dup2(ends.output, 1)
    os.dup2(ends.output, 2)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)
    name_process(order.name)
    tempfile.tempdir = None  # looked up again in TMPDIR: the fork server has its own
    os.environ[EVENTS_VARIABLE] = str(ends.events)
    with mmap.mmap(ends.function, 0, access=mmap.ACCESS_READ) as function:  # shared, not copied
        status, body = perform(order, function)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    connection = Connection(socket.socket(fileno=ends.result), "the parent", FOR_EVER)
    try:
        connection.send("result", body)
        connection.receive()
    except PeerGone:
        pass
    return status
