"""The chaos button: while it is on, a random worker fails every few seconds.

The idea is Basiri et al.'s, "Chaos Engineering", IEEE Software 33(3), 2016.
"""

import random
import threading
from collections.abc import Callable

from distlab.explorables.cockpit_book import JobBook
from utils.cluster.job import Job

MIN_SECONDS, MAX_SECONDS = 3.0, 6.0  # of peace between two failures
PAUSE_SECONDS, AWAY_SECONDS = 2.0, 3.0


class Chaos:
    """Kills or freezes a worker now and then, and repairs tasks that don't come back automatically.

    `act(action, task)` is the cockpit's. It waits until every worker trains, and kills only
    what the job can start again.
    """

    def __init__(self, job: Job, book: JobBook, act: Callable[[str, str], None]) -> None:
        self._job, self._book, self._act = job, book, act
        self._off = threading.Event()
        self._killed_in = 0  # the attempt of the last kill
        self._thread: threading.Thread | None = None

    def switch(self, on: bool) -> None:
        if not on:
            self._off.set()
        elif self._thread is None or not self._thread.is_alive() or self._off.is_set():
            self._off = threading.Event()
            self._thread = threading.Thread(target=self._rage, args=[self._off], daemon=True)
            self._thread.start()

    def _rage(self, off: threading.Event) -> None:
        while not off.wait(random.uniform(MIN_SECONDS, MAX_SECONDS)) and not self._job.finished:
            if self._is_calm():
                self._strike(off)

    def _is_calm(self) -> bool:
        """True if every worker trains: none is down, frozen or starting, or about to be."""
        if self._killed_in == self._job.attempt and self._book.is_synchronous:
            return False  # the job may not have noticed yet
        for task in self._workers():
            last = self._book.lanes[task].last
            if last.get("attempt") != self._job.attempt:
                return False
        return all(t.state == "running" for t in self._job.tasks)

    def _workers(self) -> list[str]:
        return [task.name for task in self._job.tasks if task.job == "worker"]

    def _strike(self, off: threading.Event) -> None:
        victim, alone = random.choice(self._workers()), not self._book.is_synchronous
        if random.random() < 0.5 and (alone or self._job.restarts_left):
            self._killed_in = self._job.attempt
            self._act("kill", victim)
            if alone:
                off.wait(AWAY_SECONDS)
                self._act("restart", victim)
            return
        self._act("pause", victim)
        off.wait(PAUSE_SECONDS)
        self._act("resume", victim)
