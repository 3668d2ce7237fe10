"""Lab 09, fault tolerance: the steps and weights of killed runs, and which checkpoint is whole."""

from collections.abc import Mapping, Sequence
from typing import Any

from distlab.exercises import softmax
from distlab.labs.lab09 import exercise as lab09
from distlab.labs.lab08.exercise import RATE, read_step
from distlab.labs.lab09.exercise import BATCH
from distlab.grading.regression import mean_gradient
from distlab.grading.judging import Judge, LabRules

STEP_BYTES = 100_000  # at least: two workers send each other gradients [784, 10] of 8 bytes each


def bound_killed(inputs: Mapping[str, Any]) -> tuple[float, float]:
    """Return the least and the most bytes that the kernel may count."""
    steps = 0
    for _, total, every, die_at in inputs["killed_cases"]:
        steps += die_at + total - (die_at - die_at % every)  # before the kill, and after it
    return STEP_BYTES * steps, 2e7


RULES = LabRules(cell_seconds=120, submission_seconds=300, processes=True, visible_checks=False,
                 one_fork=True, traffic={"killed": bound_killed})  # fmt: skip


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
    if way == "index-only":
        whole = sorted(steps)[: -1 if cut == "index" else None]
    if way == "sorted-as-text":
        whole = sorted(whole, key=str)
    return f"ckpt-{whole[0] if way == 'oldest' else whole[-1]}"


def expect_interval(checkpoint_seconds: float, mtbf_seconds: float, way: str = "right") -> float:
    """Return Young's interval in seconds, or a mistaken one."""
    factor = {"two-forgotten": 1.0, "halved": 0.5, "outside": 4.0}.get(way, 2.0)
    product = factor * checkpoint_seconds * mtbf_seconds
    return product if way == "no-root" else product**0.5


def expect_loss(
    interval: float, checkpoint_seconds: float, mtbf_seconds: float, way: str = "right"
) -> float:
    """Return the share of the time that is lost, to first order, or a mistaken one."""
    written, redone = checkpoint_seconds / interval, interval / 2 / mtbf_seconds
    if way == "whole-interval":
        redone *= 2
    if way == "percent":
        return 100 * (written + redone)
    return {"failures-ignored": written, "checkpoints-ignored": redone}.get(way, written + redone)


KILLED = Judge(lab09.KILLED, expect_killed_run)
NEWEST = Judge(lab09.NEWEST, expect_newest)
INTERVAL = Judge(lab09.INTERVAL, expect_interval)
LOSS = Judge(lab09.LOSS, expect_loss)
