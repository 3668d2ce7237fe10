"""Gives the workers of a run their own data when they ask for it: none has another's.

The process that starts and watches the workers draws the data. A worker asks by an event, and finds
its share in a file, which it removes.
"""

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from distlab.exercises.refusing import refuse_task
from distlab.exercises.worker_runs import RUN_SECONDS
from utils.events import report

ASKED, ASK_SECONDS, MAX_STEP = "exercise step", 0.005, 2**20

Share = Mapping[str, np.ndarray]


def ask(root: Path, rank: int, step: int) -> Share:
    """In a worker: return its share of a step, as soon as it is there."""
    report(ASKED, step=step)
    path = _name_share(root, rank, step)
    while not path.exists():
        time.sleep(ASK_SECONDS)
    with np.load(path) as share:
        path.unlink()
        return dict(share)


def _name_share(root: Path, rank: int, step: int) -> Path:
    return root / f"share-{rank}-{step}.npz"


class Feed:
    """Answers the workers of one job: `draw(rank, step)` is what a worker gets for a step."""

    def __init__(self, root: Path, draw: Callable[[int, int], Share]) -> None:
        self._root, self._draw = root, draw
        self.error: Exception | None = None  # its own fault

    def run(self, job: Any) -> None:
        """Answer until the job has ended. A fault stops the job, and is kept as `error`."""
        try:
            for event in job.events():
                step = event.get("step")
                if event.get("event") == ASKED and isinstance(step, int) and 0 <= step < MAX_STEP:
                    self.answer(job, int(event["task"].split()[1]), step)
        except Exception as error:
            self.error = error
            job.stop()

    def answer(self, job: Any, rank: int, step: int) -> None:
        """Give worker `rank` its share of a step."""
        path = _name_share(self._root, rank, step)
        np.savez(path.with_suffix(".part.npz"), **self._draw(rank, step))
        path.with_suffix(".part.npz").rename(path)


def run_fed(
    cluster: Any, feed: Feed, function: Callable[..., Any], *arguments: Any, restarts: int = 0
) -> tuple[list[Any], int]:
    """Run `function` on a cluster's workers; return their results, and the number of attempts.

    Raises AssertionError with the learner's own error in its first line.
    """
    from utils.cluster.failures import ClusterError

    job = cluster.start(function, *arguments, restarts=restarts)
    answering = threading.Thread(target=feed.run, args=(job,), daemon=True)
    answering.start()
    try:
        return job.wait(RUN_SECONDS), job.attempt
    except ClusterError as error:
        raise refuse_task(error) from None
    finally:
        job.stop()
        answering.join()
        if feed.error is not None:
            raise feed.error
