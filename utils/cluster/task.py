"""What runs inside one task's process, forked from the warm process or started afresh."""

import ctypes
import os
import pickle
import signal
import sys
import tempfile
import traceback
from typing import Any

from ..environment import quiet_tensorflow
from ..events import EVENTS_VARIABLE
from .protocol import TaskOrder

PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15  # prctl(2)
Descriptors = tuple[int, int, int, int]  # output, events, result, function


def enter_task(order: TaskOrder, descriptors: Descriptors) -> int:
    """Become the task `order`: run its function, send the result, return the exit status.

    The result goes out pickled as ("result", value) or ("error", summary, traceback).
    Then the task waits until its parent has closed the other end of the result
    channel: a worker that leaves early would fail its peers.
    """
    output, events, result, function = descriptors
    os.dup2(output, 1)
    os.dup2(output, 2)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)
    name_process(order.name)
    os.environ.update(order.environment)
    tempfile.tempdir = None  # found afresh from TMPDIR, not the warm process's
    os.environ[EVENTS_VARIABLE] = str(events)
    try:
        message: tuple[Any, ...] = ("result", _run(order, function))
        body, status = pickle.dumps(message), 0
    except BaseException as error:
        body, status = pickle.dumps(_describe(error)), 1
    sys.stdout.flush()
    sys.stderr.flush()
    _send_result(result, body)
    return status


def _run(order: TaskOrder, function: int) -> Any:
    with quiet_tensorflow():
        import tensorflow as tf

        from ..devices import split_cpu
    if order.replicas > 1 and order.role == "call":
        split_cpu(order.replicas)
    if order.role == "serve":
        return serve(tf)
    with os.fdopen(function, "rb") as file:
        file.seek(0)
        paths, body = pickle.load(file)
    sys.path += [path for path in paths if path not in sys.path]  # the caller's own modules
    call, arguments, settings = pickle.loads(body)
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
    first_line = str(error).strip().split("\n")[0]
    summary = f"{type(error).__name__}: {first_line}" if first_line else type(error).__name__
    return ("error", summary, traceback.format_exc())


def _send_result(channel: int, body: bytes) -> None:
    """Send length and body, then wait for the parent to hang up."""
    import socket

    with socket.socket(fileno=channel) as connection:
        try:
            connection.sendall(len(body).to_bytes(8, "big") + body)
            connection.recv(1)
        except OSError:
            pass  # the parent has gone


def die_with_parent() -> None:
    """Ask Linux to kill this process when the process that started it dies."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def name_process(name: str) -> None:
    """Let `ps`, `top` and `distlab cluster list` show this process under `name` (15 letters)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode()[:15])


def main() -> None:
    """Start one task in this process: `python -m …cluster.task` with descriptors and order."""
    import json
    import socket
    import threading

    from .registry import MARK_VARIABLE, parse_mark, remove_folder

    mark = parse_mark(os.environ.get(MARK_VARIABLE, ""))
    descriptors = tuple(int(number) for number in sys.argv[1].split(","))
    channel = socket.socket(fileno=os.dup(descriptors[2]))

    def end_with_parent() -> None:
        try:
            channel.recv(1, socket.MSG_PEEK)  # says something only when the parent hangs up
        finally:
            if mark is not None and not mark.owner_lives:
                remove_folder(mark.folder)  # nobody else will
            os.killpg(os.getpgid(0), signal.SIGKILL)

    threading.Thread(target=end_with_parent, daemon=True).start()
    os._exit(enter_task(TaskOrder(**json.loads(sys.argv[2])), descriptors))


if __name__ == "__main__":
    main()
