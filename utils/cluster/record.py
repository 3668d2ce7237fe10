"""The record of running tasks that readers see: lines, events, and actions on them."""

import threading
import time
from collections.abc import Iterator

from ..events import Event, make_event


class JobRecord:
    """Everything that has happened in a job, over all attempts, in the order of arrival.

    `changed` is the condition that all who wait for news wait on. It guards the record and
    the tasks, and is notified after each change.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.finished = False
        self._events: list[Event] = []
        self._actions: list[Event] = []
        self._output: list[tuple[str, str]] = []

    def add_line(self, task: str, line: str) -> None:
        with self.changed:
            self._output.append((task, line))
            self.changed.notify_all()

    def add_event(self, event: Event) -> None:
        with self.changed:
            self._events.append(event)
            self.changed.notify_all()

    def add_action(self, action: str, task: str, attempt: int) -> None:
        """Note an `action` on a task."""
        with self.changed:
            self._actions.append(make_event(action, task=task, attempt=attempt))

    def say(self, text: str) -> None:
        """Take what the supervisor has to say of all tasks: a job tells it by its events."""

    def note_task(self, event: str, task: str, host: str, attempt: int, **fields: int) -> None:
        """Note that a task has started or ended, on a machine: a job shows it by its states."""

    def note_restart(self, task: str, cause: str, attempt: int) -> None:
        """Note that all start again as the `attempt`-th, because of a task."""
        told = {"event": "restart", "time": time.time(), "task": task}
        self.add_event({**told, "cause": cause, "attempt": attempt})
        self.add_line(task, f"--- {cause}: the group starts again ---")

    def finish(self) -> None:
        """Say that nothing more will come."""
        with self.changed:
            self.finished = True
            self.changed.notify_all()

    def get_output(self, start: int = 0) -> list[tuple[str, str]]:
        with self.changed:
            return self._output[start:]

    def get_events(self, start: int = 0) -> list[Event]:
        with self.changed:
            return self._events[start:]

    def get_actions(self) -> list[Event]:
        with self.changed:
            return list(self._actions)

    def follow_events(self, place: int = 0) -> Iterator[Event]:
        """Yield every event from the `place`-th on, as they arrive, until the job has finished."""
        while True:
            with self.changed:
                while len(self._events) == place and not self.finished:
                    self.changed.wait()
                fresh, finished = self._events[place:], self.finished
            yield from fresh
            place += len(fresh)
            if finished and not fresh:
                return

    def wait_until_finished(self, timeout: float | None, echo: bool) -> bool:
        """Wait for the end, at most `timeout` seconds; return whether it has come.

        With `echo`, the lines of tasks are printed as they come.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        printed = 0
        while True:
            with self.changed:
                if not self.finished and (not echo or printed == len(self._output)):
                    self.changed.wait(timeout=0.2)
                fresh, finished = self._output[printed:], self.finished
            for task, line in fresh if echo else []:
                print(f"[{task}] {line}", flush=True)
            printed += len(fresh)
            if finished:
                return True
            if deadline is not None and time.monotonic() > deadline:
                return False
