"""Lesson 11: training on parameter servers that one can watch, update by update."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from distlab.lessons.stale_updates import StalenessLoop
from utils.events import report

MAX_STEPS, AT_ONCE = 10_000, 4  # closures in all; closures under way


def train_and_tell(make_loop: Callable[[], StalenessLoop], steps: int = MAX_STEPS) -> int:
    """Run in the coordinator: train until `steps` updates are made, and report each as it comes.

    The event "step" has `of` (the worker), `began`, `time` (when it was written), `step` and
    `loss`. A few closures are always under way, each has its own waiting thread: a slow or dead
    worker doesn't hold up the others' reports. Returns the number of updates.
    """
    loop = make_loop()

    def keep_busy(number: int) -> int:
        done = 0
        for _ in range(number, steps, AT_ONCE):
            [update] = loop.fetch(loop.schedule(1))
            report(
                "step",
                of=f"worker {update.worker}",
                step=update.ticket + 1,
                loss=update.loss,
                began=update.began,
                time=update.ended,
            )
            done += 1
        return done

    with ThreadPoolExecutor(AT_ONCE) as threads:
        return sum(threads.map(keep_busy, range(AT_ONCE)))
