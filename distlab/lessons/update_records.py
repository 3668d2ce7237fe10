"""Plain records of updates on parameter servers. Imports no TensorFlow."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from distlab.errors import CourseError


@dataclass(frozen=True)
class Update:
    """The record of one closure: its worker, the version that it read, its place among the updates.

    `version` is the number of updates (or tickets) that there were when it read the parameters,
    `ticket` its own. `written` is False for an update dropped as too stale. `began` and `ended` are
    seconds since the epoch on the worker's clock.
    """

    worker: int
    version: int
    ticket: int
    written: bool
    loss: float
    began: float
    ended: float

    @property
    def staleness(self) -> int:
        """The number of other updates between this one's read and its ticket."""
        return self.ticket - self.version


def mean_staleness(updates: Sequence[Update]) -> float:
    """Return the mean staleness.

    Counted by tickets it is at most the number of workers minus one, whatever their speeds:
    a ticket falls between another worker's read and ticket at most once for each of them.
    Raises CourseError for no updates.
    """
    if not updates:
        raise CourseError("There are no updates yet. Run some steps first.")
    return sum(update.staleness for update in updates) / len(updates)


def count_by_worker(updates: Iterable[Update]) -> dict[int, int]:
    """Return how many updates each worker gave: worker -> count."""
    return dict(sorted(Counter(update.worker for update in updates).items()))


def make_spans(updates: Sequence[Update]) -> list[tuple[str, float, float, str, str]]:
    """Return a row of a timeline for each update, its staleness as its label.

    Rows are (lane, start, end, label, kind), sorted by lane. Seconds count from the
    first update's beginning.
    """
    start = min((update.began for update in updates), default=0.0)
    return sorted(
        (f"worker {u.worker}", u.began - start, u.ended - start, str(u.staleness), "update")
        for u in updates
    )


def mean_staleness_by_worker(updates: Sequence[Update]) -> dict[int, float]:
    """Return the mean staleness of each worker's own updates: worker -> mean."""
    return {
        worker: mean_staleness([update for update in updates if update.worker == worker])
        for worker in count_by_worker(updates)
    }
