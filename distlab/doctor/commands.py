"""Run another program with a time limit, and leave nothing of it behind."""

import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_running: set[subprocess.Popen] = set()
_lock = threading.Lock()


@dataclass(frozen=True)
class Outcome:
    """The end of a program.

    `status` is its exit status, the negative signal number if a signal ended it,
    None if it was killed at its time limit.
    """

    status: int | None
    output: str
    errors: str

    @property
    def last_error_line(self) -> str:
        lines = [line.strip() for line in self.errors.splitlines() if line.strip()]
        return lines[-1] if lines else ""


def run_command(
    command: Sequence[str],
    limit_seconds: float,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Outcome:
    """Run `command`, at most `limit_seconds`, in its own process group.

    Output goes through files, so that a grandchild that keeps a pipe open can't
    make the wait longer. Raises OSError if the program can't be started.
    """
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
        with _lock:
            _running.add(process)
        try:
            status = process.wait(limit_seconds)
        except subprocess.TimeoutExpired:
            status = None
            _kill(process)
        finally:
            with _lock:
                _running.discard(process)
        return Outcome(status, _read(output), _read(errors))


def end_running_commands() -> None:
    """Kill the process group of every command that still runs."""
    with _lock:
        processes = list(_running)
    for process in processes:
        _kill(process)


def describe_signal(number: int) -> str:
    """Return what the signal that ended a program means, in plain words."""
    meanings = {
        "SIGILL": "an illegal instruction: the processor lacks one that this build needs (AVX)",
        "SIGSEGV": "a crash: a damaged installation, or packages that don't fit together",
        "SIGABRT": "it gave up: a failed check inside, or no memory",
        "SIGBUS": "a bus error: a damaged file, or a full disk or /dev/shm",
        "SIGKILL": "it was killed from outside, most often because memory ran out",
        "SIGALRM": "it took longer than allowed",
    }
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
    return f"{name}, {meanings[name]}" if name in meanings else name


def _kill(process: subprocess.Popen) -> None:
    if process.poll() is not None:
        return
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        process.wait(1.0)


def _read(file) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")
