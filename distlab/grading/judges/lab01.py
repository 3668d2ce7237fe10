"""Lab 01, batches and words: references and misconceptions."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from distlab.exercises import lab01
from distlab.grading.judging import Judge, LabRules

RULES = LabRules(cell_seconds=10, submission_seconds=30)
Shares = list[int]


def _split(count: int, parts: int) -> Shares:
    return [count // parts + (i < count % parts) for i in range(parts)]


def _give_rest_to_last(count: int, parts: int) -> Shares:
    return [count // parts] * (parts - 1) + [count // parts + count % parts]


def _choose(
    parameters: int,
    activation_gib: float,
    device_gib: float,
    copy_hours: float,
    allowed_hours: float,
    *,
    bytes_each: int = 16,
    activations: bool = True,
    memory: bool = True,
    late: tuple[str, str] = ("data", "both"),
) -> str:
    need = bytes_each * parameters / 2**30 + activation_gib * activations
    in_time = copy_hours <= allowed_hours
    if need <= device_gib or not memory:
        return "one device" if in_time else late[0]
    return "model" if in_time else late[1]


def _scale(
    replicas: Sequence[int],
    step_seconds: Sequence[float],
    *,
    power: int = 1,
    flip: int = 1,
    first: bool = False,
    divide: bool = True,
    factor: float = 1.0,
) -> np.ndarray:
    n, t = np.asarray(replicas, float), np.asarray(step_seconds, float)
    one = 0 if first else list(replicas).index(1)
    speed_up = (n / n[one]) ** power * (t[one] / t) ** flip
    return np.array([speed_up, factor * speed_up / n if divide else speed_up])  # [2, run]


EPOCH = Judge(
    lab01.EPOCH,
    right=lambda n, b: (-(-n // b), n % b or b),
    mistakes={
        "rest-dropped": lambda n, b: (n // b, b),
        "rounded-down": lambda n, b: (n // b, n % b or b),
        "zero-left-over": lambda n, b: (-(-n // b), n % b),
        "one-too-many": lambda n, b: (n // b + 1, n % b),
        "last-is-full": lambda n, b: (-(-n // b), b),
    },
)
BATCHES = Judge(
    lab01.BATCHES,
    right=lambda n, w, r: _split(n, w * r),
    mistakes={
        "one-worker": lambda n, w, r: _split(n, r),
        "per-worker": lambda n, w, r: _split(n, w),
        "rounded-down": lambda n, w, r: [n // (w * r)] * (w * r),
        "rounded-up": lambda n, w, r: [-(-n // (w * r))] * (w * r),
        "rest-to-last": lambda n, w, r: _give_rest_to_last(n, w * r),
        "worker-by-worker": lambda n, w, r: [s for part in _split(n, w) for s in _split(part, r)],
    },
)
PARALLELISM = Judge(
    lab01.PARALLELISM,
    right=_choose,
    mistakes={
        "weights-only": lambda *case: _choose(*case, bytes_each=4),
        "no-activations": lambda *case: _choose(*case, activations=False),
        "memory-ignored": lambda *case: _choose(*case, memory=False),
        "time-ignored": lambda *case: _choose(*case, late=("one device", "model")),
        "split-needlessly": lambda *case: _choose(*case, late=("model", "model")),
    },
)
SCALING = Judge(
    lab01.SCALING,
    right=_scale,
    mistakes={
        "times-not-images": lambda *case: _scale(*case, power=0),
        "upside-down": lambda *case: _scale(*case, flip=-1),
        "first-is-reference": lambda *case: _scale(*case, first=True),
        "not-divided": lambda *case: _scale(*case, divide=False),
        "percentage": lambda *case: _scale(*case, factor=100),
    },
)


def judge_epoch(cases: Sequence[Any], got: Any) -> None:
    """Judge `plan_epoch` of each (examples, global batch); raise WrongAnswer."""
    EPOCH.verify(cases, got)


def judge_batches(cases: Sequence[Any], got: Any) -> None:
    """Judge `replica_batch_sizes` of each (batch, workers, replicas per worker)."""
    BATCHES.verify(cases, got)


def judge_parallelism(cases: Sequence[Any], got: Any) -> None:
    """Judge `choose_parallelism` of each case."""
    PARALLELISM.verify(cases, got)


def judge_scaling(cases: Sequence[Any], got: Any) -> None:
    """Judge `measure_scaling` of each (replicas, step seconds)."""
    SCALING.verify(cases, got)
