"""The files of a run: `runs/ID/attempt-N/worker-I/stdout.log`, stderr.log, events.jsonl.

A log that has reached MAX_LOG_BYTES becomes stdout.log.1, in place of the one before, and begins
anew: the newest lines are always there. `events.jsonl` has one JSON object a line, with its kind
as `event` and its `time` in seconds since the epoch (this machine's clock):

| event | fields |
|---|---|
| run | id, program, workers, host: this machine |
| join | host, address, workers: a machine has joined a rendezvous |
| start, end | task, host, attempt; and at its end status, minus the number of a signal |
| first_step | task, attempt, step: the first of an attempt, if the program reports its steps |
| restart | task, cause, attempt: all start again as that attempt, because of this task |
| cause | task, cause: why the run has failed |
| finish | status, restarts, seconds, goodput: null unless the program reports its steps |

A program that reports (`utils.events.report`, or one such line of JSON written to the descriptor
in DISTLAB_EVENTS_DESCRIPTOR) adds its events, with `task` and `attempt`. `utils.measure_goodput`
reads the file. A machine that joined a run has its own tasks' events.
"""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from ..cluster.record import JobRecord
from ..cluster.streams import ErrorLine
from ..errors import first_line
from ..events import Event, make_event, read_events, to_json_line

MAX_LOG_BYTES = 2**28
OUTPUT, ERRORS, EVENTS = "stdout.log", "stderr.log", "events.jsonl"

Print = Callable[[str, str], None]  # task, line
Say = Callable[[str], None]


def find_log(logs: Path, task: str, attempt: int) -> Path:
    """Return the folder for a task's logs in an attempt, in the run's folder for logs."""
    return logs / f"attempt-{attempt}" / task.replace(" ", "-")


class Log:
    """A file that lines are added to. One that can't be written raises OSError, once."""

    def __init__(self, path: Path) -> None:
        self._path, self._descriptor, self._bytes, self._closed = path, -1, 0, False

    def add(self, line: str) -> None:
        if self._closed:
            return
        data = (line + "\n").encode(errors="replace")
        try:
            if self._descriptor < 0 or self._bytes + len(data) > MAX_LOG_BYTES:
                self._open()
            self._bytes += len(data)
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError:
            self.close()
            raise

    def _open(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            self._path.rename(f"{self._path}.1")
        self._path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._descriptor = os.open(self._path, flags, 0o666)
        self._bytes = os.fstat(self._descriptor).st_size

    def close(self) -> None:
        """Add nothing more; safe to call twice."""
        descriptor, self._descriptor, self._closed = self._descriptor, -1, True
        if descriptor >= 0:
            os.close(descriptor)


class RunRecord(JobRecord):
    """The output and events of a program's tasks: in logs, and shown as they come.

    A disk or a terminal that takes no more ends nothing. A file that can't be written is
    mentioned once.
    """

    def __init__(self, logs: Path, show: Print, say: Say) -> None:
        super().__init__()
        self.logs, self._say, self._show = logs, say, show
        self._logs: dict[str, tuple[Log, Log]] = {}
        self._happened, self._stepped = Log(logs / EVENTS), 0  # the last attempt with a step

    def say(self, text: str) -> None:
        self._say(text)

    def open_log(self, task: str, attempt: int) -> Path:
        """Keep what `task` writes from now on in a folder; return the path of its output."""
        self._close(task)
        folder = find_log(self.logs, task, attempt)
        self._logs[task] = Log(folder / OUTPUT), Log(folder / ERRORS)
        return folder / OUTPUT

    def add_line(self, task: str, line: str) -> None:
        if task in self._logs:
            try:
                self._logs[task][isinstance(line, ErrorLine)].add(line)
            except OSError as error:
                why = error.strerror or first_line(error)
                self._tell(task, f"(its log is incomplete: {why})")
        self._tell(task, line)

    def _tell(self, task: str, line: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # its reader has gone
            self._show(task, line)

    def add_event(self, event: Event) -> None:
        """Add an event of the run, or one that a task reported."""
        try:
            with self.changed:
                if event["event"] == "step" and self._stepped < event.get("attempt", 0):
                    self._stepped = event["attempt"]
                    self._happened.add(to_json_line({**event, "event": "first_step"}))
                self._happened.add(to_json_line(event))
        except OSError as error:
            self._say(f"{self.logs / EVENTS} is incomplete: {error.strerror or error}")

    def note(self, event: str, **fields: object) -> None:
        """Add an event of now."""
        self.add_event(make_event(event, **fields))

    def note_task(self, event: str, task: str, host: str, attempt: int, **fields: int) -> None:
        self.note(event, task=task, host=host, attempt=attempt, **fields)

    def note_restart(self, task: str, cause: str, attempt: int) -> None:
        self.note("restart", task=task, cause=cause, attempt=attempt)

    def measure_goodput(self) -> float | None:
        """Return the share of the time spent on steps that count; None if none was reported."""
        if not self._stepped:
            return None
        from ..goodput import measure_goodput  # only for programs that report their steps

        try:
            return round(measure_goodput(read_events(self.logs / EVENTS)).useful, 3)
        except (OSError, ValueError, KeyError, TypeError):  # a program may write what it likes
            return None

    def _close(self, task: str) -> None:
        for log in self._logs.pop(task, ()):
            log.close()

    def close(self) -> None:
        """Close the files; safe to call twice."""
        for task in list(self._logs):
            self._close(task)
        self._happened.close()
