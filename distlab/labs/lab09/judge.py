"""Lab 09, fault tolerance: the steps and weights of killed runs, and which checkpoint is whole."""

from collections.abc import Mapping, Sequence
from statistics import mean, median
from typing import Any

from distlab.exercises import softmax
from distlab.grading.judging import Judge, LabRules
from distlab.grading.regression import mean_gradient
from distlab.labs.lab08.exercise import RATE, read_step
from distlab.labs.lab09 import exercise as lab09
from distlab.labs.lab09.exercise import BATCH

STEP_BYTES = 100_000  # at least: two workers send each other gradients [784, 10] of 8 bytes each


def bound_killed(inputs: Mapping[str, Any]) -> tuple[float, float]:
    """Return the least and the most bytes that the kernel may count."""
    steps = 0
    for _, total, every, die_at in inputs["killed_cases"]:
        steps += die_at + total - (die_at - die_at % every)  # before the kill, and after it
    return STEP_BYTES * steps, 2e7


RULES = LabRules(
    own_seconds=60,
    cell_seconds=120,
    submission_seconds=300,
    processes=True,
    traffic={"killed": bound_killed},
)


def expect_killed_run(
    seed: int, total: int, every: int, die_at: int, way: str = "right"
) -> dict[str, Any]:
    saved = {"began-anew": 0, "position-lost": 0, "saved-every-step": die_at}.get(
        way, die_at - die_at % every
    )
    last = saved + total if way == "counted-anew" else total
    steps = [*range(die_at + 1), *range(saved, last)]
    weights = softmax.draw_weights(seed)
    before = range(die_at - die_at % every) if way == "position-lost" else ()
    for step in (*before, *range(last)):
        weights = weights - RATE * mean_gradient(*read_step(seed, step, BATCH), weights)
    saved = way != "chief-only"
    return {"steps taken": steps, "restarts": 1, "worker 1 saved too": saved, "weights": weights}


def expect_newest(seed: int, steps: Sequence[int], cut: str, way: str = "right") -> str:
    """Return the name that `try_newest` should find, or finds for the mistake `way`."""
    whole = sorted(steps)[: -1 if cut else None]
    if way == "newest-by-name":
        whole = sorted(steps)
    unseen = {"index-only": ("data", "block"), "first-values": ("data",), "last-values": ("block",)}
    if cut in unseen.get(way, ()):
        whole = sorted(steps)
    if way == "sorted-as-text":
        whole = sorted(whole, key=str)
    if way == "never-the-newest":
        whole = sorted(steps)[:-1]
    return f"ckpt-{whole[0] if way == 'oldest' else whole[-1]}"


def expect_interval(
    candidates: Sequence[int],
    histories: Sequence[Sequence[float]],
    total: int,
    step: float,
    save: float,
    restart: float,
    way: str = "right",
) -> dict[str, Any]:
    """Return the best candidate, and the mean seconds of a run with each."""
    save, restart = (
        0 if way == f"{name}-free" else seconds
        for name, seconds in (("save", save), ("restart", restart))
    )
    left = [list(h) for h in histories]
    copied = list if way != "histories-emptied" else lambda failures: failures
    runs = [
        [_replay(total, every, step, save, restart, copied(h), way) for h in left]
        for every in candidates
    ]
    unite = {"worst-case": max, "summed": sum, "median": median}.get(way, mean)
    seconds = [unite(run) for run in runs]
    place = seconds.index(min(seconds))
    return {"every": place if way == "place" else candidates[place], "seconds": seconds}


def _replay(
    total: int,
    every: int,
    step: float,
    save: float,
    restart: float,
    failures: list[float],
    way: str,
) -> float:
    """Return the seconds of a run that fails at times `failures`, or what a mistake says."""
    clock, done, saved, last = 0.0, 0, 0, way == "saved-at-the-end"
    if way == "failures-added":
        return (
            total * step
            + (total - 1) // every * save
            + len(failures) * (restart + every * step / 2)
        )
    while done < total or (last and done % every == 0 and saved < done):
        saving = done > saved and done % every == 0
        end = clock + (save if saving else step)
        if failures and failures[0] < end:
            clock = failures.pop(0) + restart
            while failures and failures[0] < clock:
                lost = failures.pop(0)
                begun = clock if way == "restart-added" else lost
                clock = clock if way == "restart-safe" else begun + restart
            saved = done if saving and way == "unfinished-save" else saved
            done = {"nothing-lost": done, "all-lost": 0}.get(way, saved)
            saved = min(saved, done)
        else:
            clock = end
            saved, done = (done, done) if saving else (saved, done + 1)
    return clock


KILLED = Judge(lab09.KILLED, expect_killed_run)
NEWEST = Judge(lab09.NEWEST, expect_newest)
INTERVAL = Judge(lab09.INTERVAL, expect_interval)
