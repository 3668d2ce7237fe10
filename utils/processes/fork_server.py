"""A process that has imported what its children need, and forks them on request: Linux only.

A fresh Python that imports TensorFlow takes seconds of one core. A fork of a process that
has imported it takes milliseconds. Forking is safe from a process with one thread that has
run no TensorFlow operation, so it is done from one that does nothing else, and that
refuses to start otherwise (`OPENBLAS_NUM_THREADS=1` keeps NumPy from making threads).

The parent holds a `ForkServer`. The server is `python -m MODULE … DESCRIPTOR`, a module
that calls `serve` with its `ForkLoop`, whose hooks say what is imported and what a child
does. The server owns its children: when the parent hangs up, for whatever reason, every
child's process group is killed and the server clears up and ends.
"""

import contextlib
import gc
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, NoReturn

from ..errors import RunError
from .connection import Connection, PeerGone, PeerSilent, WireMessage
from .lifetime import count_threads, die_with_parent, ending_with_parent, signal_group

CLOSE_SECONDS = 5.0


class NotStarted(RunError):
    """A fork server that can't serve; `why` says what it said, or that it said nothing."""

    def __init__(self, name: str, why: str) -> None:
        self.why = why
        super().__init__(f"{name} did not start ({why})")


class ForkServer:
    """A fork server as its parent sees it. It starts at once; `wait_until_ready` comes next.

    `command` starts the module, without the descriptor, which is put behind it; `name` names
    it in errors. `errors` is where its standard output and error go (else to the parent's).
    `close`, or the end of this process in any way, ends it and every child. Threads may
    share it, if one of them alone receives.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        errors: IO[bytes] | None = None,
        passed: Sequence[int] = (),
        **options: Any,
    ) -> None:
        self.name, self.ready, self._forks = name, False, 0
        self._errors, self._lock = errors, threading.Lock()
        ours, theirs = socket.socketpair()
        self.connection = Connection(ours, name)
        output = {} if errors is None else {"stdout": errors, "stderr": errors}
        with theirs:
            self.process = subprocess.Popen(
                [*command, str(theirs.fileno())],
                pass_fds=[theirs.fileno(), *passed],
                start_new_session=True,
                **{"stdin": subprocess.DEVNULL} | output | options,
            )

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def wait_until_ready(self, seconds: float) -> dict[str, Any]:
        """Return what the server's `prepare` tells; raises NotStarted if it doesn't in time."""
        try:
            told = self.connection.receive(seconds).content
        except PeerSilent:
            told = {"why": f"nothing in {seconds:.0f} s"}
        except PeerGone:
            told = {"why": self.read_last_error() or "it has ended"}
        if "why" in told:
            raise NotStarted(self.name, told["why"])
        self.ready = True
        return told

    def fork(self, request: Any, body: bytes = b"", descriptors: Sequence[int] = ()) -> int:
        """Ask for one child and return its number here; `receive` returns what became of it.

        `request` and `body` go to the loop's `run` with copies of the descriptors. Raises
        PeerGone if the server has ended.
        """
        with self._lock:
            self._forks += 1
            message = {"ask": "fork", "id": self._forks, "request": request}
            self.connection.send(message, body, descriptors)
            return self._forks

    def signal(self, child: int, number: int) -> None:
        """Signal a child of that number here. One that has ended is left alone."""
        with self._lock:
            self.connection.send({"ask": "signal", "id": child, "number": number})

    def receive(self, limit_seconds: float = float("inf")) -> dict[str, Any]:
        """Return what the server tells next, with the `id` of a child.

        `told` is "forked", with its `process`, or "ended", with its `status` (as
        `subprocess` has it) and `why`, which is "" unless the loop ended it. Raises
        PeerGone if the server has ended.
        """
        return self.connection.receive(limit_seconds).content

    def read_last_error(self) -> str:
        """Return the last line that the server wrote to `errors`."""
        if self._errors is None:
            return ""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace").strip().split("\n")[-1][:300]

    def close(self) -> None:
        """End the server and every child; safe to call twice."""
        self.connection.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(CLOSE_SECONDS if self.ready else 0)  # it listens late, as it imports
        if self.process.returncode is None:
            signal_group(self.process.pid, signal.SIGKILL)
            self.process.wait()


@dataclass
class Child:
    """One child of the loop; `why` says why the loop has ended it."""

    process: int
    request: Any
    why: str = ""


class ForkLoop:
    """The server's side: forks a child for each request, and tells when it has ended.

    Made for subclasses. `run` is what a child does; the other hooks may stay as they are.
    """

    watch_seconds: float | None = None  # how often `watch` is called while there are children

    def __init__(self) -> None:
        self.children: dict[int, Child] = {}
        self.connection: Connection | None = None

    # ---- hooks

    def check(self) -> str:
        """Before anything is imported: return why this server can't serve, "" if it can."""
        return ""

    def prepare(self) -> Mapping[str, Any]:
        """Import what children need; return plain data for the parent."""
        return {}

    def run(self, request: Any, body: bytes, descriptors: Sequence[int]) -> int:
        """In the child, the leader of its own process group: return its exit status."""
        raise NotImplementedError

    def send_signal(self, child: Child, number: int) -> None:
        """Signal a child and whatever it started."""
        signal_group(child.process, number)

    def watch(self) -> None:
        """Check the children, and end those that must stop."""

    def sweep(self) -> None:
        """A child has ended, which the parent isn't told yet: end what it has left behind."""

    def clear_up(self) -> None:
        """Remove what the server leaves behind. It is about to end, in whatever way."""

    # ---- the loop

    def answer_until_left(self, connection: Connection) -> None:
        """Serve until the parent hangs up, which raises PeerGone."""
        self.connection = connection
        with self._waking_for_children() as awake, selectors.DefaultSelector() as selector:
            selector.register(connection, selectors.EVENT_READ, self._answer)
            selector.register(awake, selectors.EVENT_READ, lambda: awake.recv(4096))
            while True:
                seconds = self.watch_seconds if self.children else None
                for key, _ in selector.select(seconds):
                    key.data()
                self._report_ended()
                self.watch()

    @contextlib.contextmanager
    def _waking_for_children(self) -> Iterator[socket.socket]:
        """Give a socket that can be read from when a child may have ended."""
        awake, wake = self._wakers = socket.socketpair()
        for end in self._wakers:
            end.setblocking(False)
        signal.set_wakeup_fd(wake.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        with awake, wake:
            try:
                yield awake
            finally:
                signal.set_wakeup_fd(-1)  # it would name a closed socket

    def _answer(self) -> None:
        message = self.connection.receive()
        asked = message.content
        if asked["ask"] == "fork":
            self._fork(asked["id"], message)
        elif asked["id"] in self.children:  # not reaped yet, so the number is still its own
            self.send_signal(self.children[asked["id"]], asked["number"])

    def _fork(self, number: int, message: WireMessage) -> None:
        server = os.getpid()
        try:
            process = os.fork()
        except OSError as error:  # no memory, too many processes
            process, why = -1, f"it could not be forked ({error.strerror})"
        if process == 0:
            self._be_child(message, server)
        for descriptor in message.descriptors:
            os.close(descriptor)
        if process < 0:
            told = {"told": "ended", "id": number, "status": 1, "why": why}
            return self.connection.send(told)
        self.children[number] = Child(process, message.content["request"])
        self.connection.send({"told": "forked", "id": number, "process": process})

    def _be_child(self, message: WireMessage, server: int) -> NoReturn:
        """Leave the server behind, run, and never return."""
        status = 1
        try:
            os.setsid()
            die_with_parent()
            if os.getppid() != server:  # it died a moment ago
                os._exit(1)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            self.connection.drop_copy()
            for end in self._wakers:
                end.close()
            status = self.run(message.content["request"], message.body, message.descriptors)
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(status)

    def _report_ended(self) -> None:
        for number, child in list(self.children.items()):
            if not os.waitid(os.P_PID, child.process, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                continue
            signal_group(child.process, signal.SIGKILL)  # before its number can be another's
            status = os.waitstatus_to_exitcode(os.waitpid(child.process, 0)[1])
            del self.children[number]
            self.sweep()
            told = {"told": "ended", "id": number, "status": status, "why": child.why}
            self.connection.send(told)

    def end_all(self) -> None:
        """Kill every child and wait for it."""
        for child in self.children.values():
            self.send_signal(child, signal.SIGKILL)
            signal_group(child.process, signal.SIGKILL)
        for child in self.children.values():
            os.waitpid(child.process, 0)


def serve(loop: ForkLoop) -> NoReturn:
    """Be a fork server: the whole `main` of its module. The last argument is the descriptor."""
    end = socket.socket(fileno=int(sys.argv[-1]))
    connection = Connection(end, "the parent")
    gc.disable()  # it would look through what is imported again and again: 0.5 s
    try:
        why, told = loop.check(), {}
        if not why:
            with ending_with_parent(end, loop.clear_up):
                told = loop.prepare()
            threads = count_threads()
            why = f"{threads} threads before the fork" if threads > 1 else ""
        connection.send({"why": why} if why else {"told": "ready", **told})
        if not why:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
            gc.freeze()
            gc.enable()
            loop.answer_until_left(connection)
    except PeerGone:
        pass
    finally:
        loop.end_all()
        loop.clear_up()
    os._exit(0)  # taking all the modules apart takes 0.1 s
