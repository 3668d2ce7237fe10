"""A process of the course's own that reads hostile files and judges hostile data.

It runs nothing that a learner wrote. Each request is answered by a fork of its own
with limits of time and memory, so that a file or an answer which makes the reader or
a judge slow, large or crash costs only itself.
"""

import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import distlab
from distlab.errors import CourseError
from distlab.grading.labs import LabSpec
from utils.cluster.protocol import receive_message, send_message

START_SECONDS, SPARE_SECONDS = 120.0, 30.0


class Refused(ValueError):
    """The request could not be answered: why, in one line."""


class CleanProcess:
    """`ask` answers one request after the other; a context manager that leaves nothing behind.

    It is given `lab` as it was read here; `data` names the data sets that its requests need.
    """

    def __init__(self, lab: LabSpec, seconds: float = 20.0, data: Sequence[str] = ()) -> None:
        self.seconds = seconds
        self.connection, theirs = socket.socketpair()
        self._errors = tempfile.TemporaryFile()
        command = [sys.executable, "-m", "distlab.grading.clean_server", str(theirs.fileno()),
                   str(seconds), *data]  # fmt: skip
        course = str(Path(distlab.__file__).resolve().parent.parent)
        with theirs, tempfile.TemporaryFile() as given:
            given.write(pickle.dumps(lab))
            given.seek(0)
            self._process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], stdin=given, cwd=course,
                stdout=self._errors, stderr=self._errors, start_new_session=True,
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": course},
            )  # fmt: skip
        self._ready = False

    def ask(self, **request: Any) -> dict[str, Any]:
        """Return the answer to one request; Refused if its process failed or took too long.

        Raises CourseError if the process itself has ended.
        """
        if not self._ready:
            self._receive(START_SECONDS)
            self._ready = True
        try:
            send_message(self.connection, request)
        except OSError:
            raise CourseError(f"the judges' process has ended: {self._read_last_error()}") from None
        answer = self._receive(self.seconds + SPARE_SECONDS)
        if "refused" in answer:
            raise Refused(answer["refused"])
        return answer["result"]

    def _receive(self, seconds: float) -> dict[str, Any]:
        self.connection.settimeout(seconds)
        try:
            received = receive_message(self.connection)
        except TimeoutError:
            raise CourseError(f"the judges' process said nothing in {seconds:.0f} s") from None
        if received is None:
            raise CourseError(f"the judges' process has ended: {self._read_last_error()}")
        return received[0]

    def _read_last_error(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace").strip().split("\n")[-1][:300]

    def close(self) -> None:
        """End the process; safe to call twice."""
        self.connection.close()
        try:
            self._process.wait(1 if self._ready else 0)  # while it imports, it does not listen
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()
        self._errors.close()

    def __enter__(self) -> "CleanProcess":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
