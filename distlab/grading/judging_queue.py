"""Judges what was seen while the next submissions run: one thread that feeds the judges.

An answer that makes a judge slow must not stop the executor's clock for the others.
"""

import threading
from collections.abc import Iterator
from queue import SimpleQueue

from distlab.grading.judge_process import JudgeProcess
from distlab.grading.observation import Observation
from distlab.grading.verdict import Verdict


class JudgingQueue:
    """Observations go in with `put`; `take` yields each with its verdict, in that order."""

    def __init__(self, judges: JudgeProcess) -> None:
        self._judges, self._waiting = judges, 0
        self._todo: SimpleQueue[Observation] = SimpleQueue()
        self._done: SimpleQueue[tuple[Observation, Verdict | BaseException]] = SimpleQueue()
        threading.Thread(target=self._work, name="judge", daemon=True).start()

    def _work(self) -> None:
        while True:
            seen = self._todo.get()
            try:
                self._done.put((seen, self._judges.judge(seen)))
            except BaseException as error:  # raised again in `take`
                self._done.put((seen, error))
                return

    def put(self, seen: Observation) -> None:
        """Have `seen` judged."""
        self._waiting += 1
        self._todo.put(seen)

    def take(self, all_of_them: bool = False) -> Iterator[tuple[Observation, Verdict]]:
        """Yield what has been judged, all if asked to wait; raise what a judge has raised."""
        while self._waiting and (all_of_them or not self._done.empty()):
            seen, verdict = self._done.get()
            if isinstance(verdict, BaseException):
                raise verdict
            self._waiting -= 1
            yield seen, verdict
