"""The server's side of the warm process: it asks for kernels, and hears of their ends."""

import contextlib
import os
import signal
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from utils.errors import RunError
from utils.processes.connection import PeerGone
from utils.processes.fork_server import ForkServer, NotStarted
from utils.processes.forked_program import KERNEL, pick_starting

ROOT = Path(__file__).resolve().parents[2]  # holds both packages
# A kernel from scratch imports TensorFlow just as slowly on a machine that is busy: better wait.
START_SECONDS, READY_SECONDS, FORK_SECONDS = 120.0, 60.0, 20.0


class NotForked(RunError):
    """A kernel that can't be forked now; a plain one is to be started."""


class WarmKernel:
    """A forked kernel as its server sees it, in the manner of `subprocess.Popen`."""

    stdin = stdout = stderr = None

    def __init__(self) -> None:
        self.pid, self.returncode = 0, None
        self.told, self.ended = threading.Event(), threading.Event()

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if not self.ended.wait(timeout):
            raise subprocess.TimeoutExpired(KERNEL, timeout or 0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def note_end(self, status: int) -> None:
        self.returncode = status
        self.told.set()
        self.ended.set()


class WarmKernels:
    """One warm process and its kernels. It starts at once, in the background."""

    def __init__(self) -> None:
        self._environment = dict(os.environ)
        self._packages = Path(sysconfig.get_path("purelib"))
        self._installed_at = self._packages.stat().st_mtime_ns
        self._kernels: dict[int, WarmKernel] = {}
        self._lock, self._ready = threading.Lock(), threading.Event()
        self.trouble = ""  # why it can't serve, once known
        own = {"OPENBLAS_NUM_THREADS": "1", "JPY_PARENT_PID": str(os.getpid())}
        self._server = ForkServer(
            "the warm process",
            [sys.executable, "-m", "distlab.kernel.warm_process"],
            cwd=ROOT,
            env=self._environment | own,
        )
        self.pid = self._server.process.pid
        threading.Thread(target=self._listen, daemon=True).start()

    def wait_until_ready(self, seconds: float) -> bool:
        """Wait for the warm process; return whether it can fork kernels now."""
        return self._ready.wait(seconds) and not self.trouble

    def why_not(self, words: Sequence[str], settings: Mapping[str, Any]) -> str:
        """Return why a kernel must start from scratch, "" if it can be forked.

        `words` is its command, `settings` what `subprocess.Popen` would be given.
        """
        if words[:3] != [sys.executable, "-m", KERNEL]:
            return "it is another kind of kernel"
        if unknown := [k for k, v in settings.items() if k not in ("env", "cwd") and v is not None]:
            return f"it wants {', '.join(unknown)}"
        environment = settings.get("env") or os.environ
        if pick_starting(environment) != pick_starting(self._environment):
            return "it has variables that TensorFlow or Python reads when it starts"
        if self._packages.stat().st_mtime_ns != self._installed_at:
            return "packages were installed since"
        return ""

    def start(self, words: Sequence[str], settings: Mapping[str, Any]) -> WarmKernel:
        """Return a kernel forked from the warm process. Waits until that is ready.

        Raises NotForked where it must, or had better, start from scratch.
        """
        why = self.why_not(words, settings)
        if not why and not self._ready.wait(READY_SECONDS):
            why = f"the warm process isn't ready after {READY_SECONDS:.0f} s"
        if why or self.trouble:
            raise NotForked(why or self.trouble)
        environment = {**(settings.get("env") or os.environ), "JPY_PARENT_PID": str(os.getpid())}
        folder = os.path.abspath(settings.get("cwd") or ".")
        request = {"words": list(words), "folder": folder, "environment": environment}
        kernel = WarmKernel()
        try:
            with self._lock:
                number = self._server.fork(request)
                self._kernels[number] = kernel
        except (PeerGone, RunError, OSError) as error:
            raise NotForked(f"the warm process doesn't take it: {error}") from error
        if not kernel.told.wait(FORK_SECONDS):
            with contextlib.suppress(PeerGone):
                self._server.signal(number, signal.SIGKILL)  # should it come after all
            raise NotForked("the warm process doesn't answer")
        if not kernel.pid:
            raise NotForked(self.trouble or "it could not be forked")
        return kernel

    def _listen(self) -> None:
        """Hear the warm process until it has gone, and its kernels with it."""
        try:
            self._server.wait_until_ready(START_SECONDS)
            self._ready.set()
            while True:
                self._note(self._server.receive())
        except NotStarted as error:
            self.trouble = str(error)
            self._server.close()
        except PeerGone:
            self.trouble = "the warm process has ended"
        self._ready.set()
        with self._lock:
            left, self._kernels = list(self._kernels.values()), {}
        for kernel in left:
            kernel.note_end(-signal.SIGKILL)

    def _note(self, told: Mapping[str, Any]) -> None:
        with self._lock:
            kernel = self._kernels[told["id"]]
        if told["told"] == "ended":
            with self._lock:
                del self._kernels[told["id"]]
            kernel.note_end(told["status"])
        else:
            kernel.pid = told["process"]
            kernel.told.set()

    def close(self) -> None:
        """End the warm process and every kernel of it; safe to call twice."""
        self._server.close()
