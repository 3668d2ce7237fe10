"""The warm process: it has imported TensorFlow, runs nothing itself, and forks ready tasks.

Forking is safe here because this process has one thread and has run no TensorFlow
operation (`OPENBLAS_NUM_THREADS=1` keeps NumPy from making threads); it refuses to
start otherwise. It owns its tasks: when the parent hangs up, for whatever reason,
every task's process group is killed and the process ends, and the cluster's
temporary folder is removed.

`python -m …cluster.warm_server DESCRIPTOR`, started by `warm.WarmProcess`.
"""

import contextlib
import gc
import os
import selectors
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from ..environment import quiet_tensorflow
from .protocol import TaskOrder, receive_message, send_message
from .registry import MARK_VARIABLE, parse_mark, remove_folder
from .task import die_with_parent, enter_task, name_process


def import_everything() -> None:
    """Import what a task will need, also what Keras and TensorFlow import late."""
    with quiet_tensorflow():
        import cloudpickle  # noqa: F401
        import keras
        import tensorflow as tf

        # attributes that load their module on first use
        _ = keras.optimizers.Adam, keras.losses.SparseCategoricalCrossentropy, tf.data.Dataset
        _ = tf.distribute.MultiWorkerMirroredStrategy, tf.distribute.ParameterServerStrategy
        _ = tf.distribute.coordinator.ClusterCoordinator, tf.train.CheckpointManager

        from .. import devices  # noqa: F401
        from ..data import batches  # noqa: F401
        from ..training import custom_loop, keras_fit, progress  # noqa: F401


class WarmServer:
    """Answers fork and signal requests, and tells when a task has ended."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.tasks: set[int] = set()

    def serve(self) -> None:
        """Run until the parent hangs up."""
        awake, wake = socket.socketpair()
        for end in (awake, wake):
            end.setblocking(False)
        signal.set_wakeup_fd(wake.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
        self._private = (awake, wake, self.connection)
        with selectors.DefaultSelector() as selector:
            selector.register(self.connection, selectors.EVENT_READ)
            selector.register(awake, selectors.EVENT_READ)
            while True:
                ready = {key.fileobj for key, _ in selector.select()}
                if awake in ready:
                    awake.recv(1024)
                    self.report_ended()
                if self.connection in ready and not self.answer():
                    return

    def answer(self) -> bool:
        received = receive_message(self.connection)
        if received is None:
            return False
        message, descriptors = received
        if message["ask"] == "fork":
            process = self.fork(TaskOrder(**message["order"]), descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            self.tell(told="forked", process=process)
        elif message["ask"] == "signal":
            self.send_signal(message["process"], message["number"])
        return True

    def tell(self, **message: Any) -> None:
        send_message(self.connection, message)

    def fork(self, order: TaskOrder, descriptors: list[int]) -> int:
        process = os.fork()
        if process:
            self.tasks.add(process)
            return process
        status = 1
        try:
            os.setsid()
            die_with_parent()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            for end in self._private:
                end.close()
            status = enter_task(order, tuple(descriptors))
        finally:
            os._exit(status)

    def send_signal(self, process: int, number: int) -> None:
        if process in self.tasks:  # not reaped yet, so the number is still this task's
            try:
                os.killpg(process, number)
            except ProcessLookupError:
                os.kill(process, number)  # forked a moment ago, not yet a group of its own

    def report_ended(self) -> None:
        for process in list(self.tasks):
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                self._kill_group(process)
                self.tasks.discard(process)
                self.tell(told="ended", process=process, status=os.waitstatus_to_exitcode(status))

    def end_all(self) -> None:
        for process in self.tasks:
            self._kill_group(process)
        for process in self.tasks:
            os.waitpid(process, 0)

    def _kill_group(self, process: int) -> None:
        try:
            os.killpg(process, signal.SIGKILL)
        except ProcessLookupError:
            pass


@contextlib.contextmanager
def ending_with_parent(connection: socket.socket, folder: str) -> Iterator[None]:
    """While the block runs, end this process as soon as the parent hangs up.

    The import takes seconds, in which nobody reads the connection. The thread that
    watches it has gone when the block is left: forking wants one thread.
    """
    stop, stopped = socket.socketpair()

    def watch() -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(connection, selectors.EVENT_READ)
            selector.register(stopped, selectors.EVENT_READ)
            ready = {key.fileobj for key, _ in selector.select()}
        if stopped not in ready and not connection.recv(1, socket.MSG_PEEK):
            remove_folder(folder)
            os._exit(1)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        stop.close()
        watcher.join()
        stopped.close()


def count_threads(seconds: float = 1.0) -> int:
    """Return how many threads this process has, once those that are ending have ended."""
    deadline = time.monotonic() + seconds
    while (threads := len(os.listdir("/proc/self/task"))) > 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    return threads


def main() -> None:
    connection = socket.socket(fileno=int(sys.argv[1]))
    folder = parse_mark(os.environ[MARK_VARIABLE]).folder
    name_process("distlab-warm")
    gc.disable()  # it would look through what is imported again and again: 0.5 s
    try:
        with ending_with_parent(connection, folder):
            import_everything()
        threads = count_threads()
        if threads > 1:
            send_message(connection, {"told": "unsafe", "threads": threads})
            return
        gc.freeze()
        gc.enable()
        serve(connection)
    finally:
        remove_folder(folder)


def serve(connection: socket.socket) -> None:
    """Say that the process is ready, answer until the parent hangs up, then end every task."""
    server = WarmServer(connection)
    try:
        send_message(connection, {"told": "ready"})
        server.serve()
    except ConnectionError:
        pass
    finally:
        server.end_all()


if __name__ == "__main__":
    main()
