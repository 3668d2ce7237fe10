"""A process of the course's own that reads hostile files and judges hostile data.

It never runs a learner's code. Each request gets its own fork
with limits of time and memory, so that a file or an answer which makes the reader or
a judge slow, large or crash costs only itself.
"""

import json
import os
import pickle
import signal
import sys
import tempfile
from collections.abc import Sequence
from multiprocessing import Pipe
from pathlib import Path
from typing import Any, Self

import distlab
from distlab.errors import CourseError
from distlab.grading.labs import LabSpec
from utils.errors import RunError
from utils.processes.fork_server import ForkServer, NotStarted

START_SECONDS, SPARE_SECONDS = 120.0, 30.0
CLOCK = 3  # times its processor seconds, which the fork's own limit holds: others may compute too
MAX_ANSWER_BYTES = 64 * 2**20


class Refused(ValueError):
    """The request couldn't be answered: why, in one line."""


class ReaderProcess(ForkServer):
    """`ask` answers one request after the other. A context manager that leaves nothing behind.

    It is given `lab` as it was read here; `data` names the data sets that its requests
    need. It starts at once; the first `ask` waits until it is ready.
    """

    def __init__(self, lab: LabSpec, seconds: float = 20.0, data: Sequence[str] = ()) -> None:
        self.seconds = seconds
        command = [sys.executable, "-m", "distlab.grading.reader_server", str(seconds), *data]
        course = str(Path(distlab.__file__).resolve().parent.parent)
        with tempfile.TemporaryFile() as given:
            given.write(pickle.dumps(lab))
            given.seek(0)
            super().__init__(
                "the readers' process",
                command,
                errors=tempfile.TemporaryFile(),
                stdin=given,
                cwd=course,
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": course},
            )

    def ask(self, **request: Any) -> dict[str, Any]:
        """Return the answer to one request; Refused if its fork failed or took too long.

        Raises CourseError if the process itself has ended.
        """
        reader, writer = Pipe(duplex=False)
        try:
            with reader:
                with writer:
                    if not self.ready:
                        self.wait_until_ready(START_SECONDS)
                    asked = json.dumps(request).encode()
                    child = self.fork(None, asked, [writer.fileno()])
                try:
                    late = not reader.poll(CLOCK * self.seconds)
                    data = None if late else reader.recv_bytes(MAX_ANSWER_BYTES)
                except EOFError:  # killed before it was done
                    data = b""
                except OSError:  # too much
                    data = None
                if data is None:
                    self.signal(child, signal.SIGKILL)
            while (told := self.receive(SPARE_SECONDS))["told"] != "ended":
                pass
        except NotStarted as error:
            raise CourseError(str(error)) from None
        except RunError as error:
            raise CourseError(f"{error} ({self.read_last_error()})") from None
        return self._read_result(data, told["status"])

    def _read_result(self, data: bytes | None, status: int) -> dict[str, Any]:
        if data is None:
            most = f"{self.seconds:g} s or {MAX_ANSWER_BYTES // 2**20} MiB"
            raise Refused(f"it took more than {most}")
        if not data:
            raise Refused(f"it ended with status {status}")
        answer = json.loads(data)
        if "refused" in answer:
            raise Refused(answer["refused"])
        return answer["result"]

    def close(self) -> None:
        """End the process; safe to call twice."""
        super().close()
        self._errors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
