"""Lab 01, batches and words: references."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from distlab.exercises.comparing import AnyOf, Anything
from distlab.grading.judging import Judge, LabRules
from distlab.labs.lab01 import exercise as lab01
from utils.data import split_batch

RULES = LabRules(cell_seconds=10, submission_seconds=30, data=())


def expect_epoch(examples: int, batch: int, way: str = "right") -> tuple[int, int]:
    whole, rest = divmod(examples, batch)
    return {
        "right": (whole + (rest > 0), rest or batch),
        "rest-dropped": (whole, batch),
        "rounded-down": (whole, rest or batch),
        "zero-left-over": (whole + (rest > 0), rest),
        "one-too-many": (whole + 1, rest),
        "last-is-full": (whole + (rest > 0), batch),
        "whole-and-rest": (whole, rest),
        "rounded-to-nearest": (round(examples / batch), Anything()),
        "what-is-missing": (whole + (rest > 0), (batch - rest) % batch),
        "one-left-alone": (whole + (rest > 1), rest or batch),
    }[way]


def expect_batches(batch: int, workers: int, each: int, way: str = "right") -> Any:
    replicas = workers * each
    share, rest = divmod(batch, replicas)
    up = share + (rest > 0)
    right = split_batch(batch, replicas)
    return {
        "right": right,
        "one-worker": split_batch(batch, each),
        "per-worker": split_batch(batch, workers),
        "rounded-down": [share] * replicas,
        "rounded-up": [up] * replicas,
        "below-nothing": AnyOf(
            (
                [min(up, batch - k * up) for k in range(replicas)],
                [up] * (replicas - 1) + [batch - (replicas - 1) * up],
            )
        ),
        "one-more-each": [share + (k < rest) for k in range(replicas)],
        "rest-to-last": [share] * (replicas - 1) + [share + rest],
        "worker-by-worker": [s for w in split_batch(batch, workers) for s in split_batch(w, each)],
        "larger-last": right[::-1],
        "added": split_batch(batch, workers + each),
        "at-least-a-share": [max(up, batch - k * up) for k in range(replicas)],
        "rest-to-first": [share + rest] + [share] * (replicas - 1),
    }[way]


BYTES = {"weights-only": 4, "no-weight": 12, "no-gradient-no-state": 8}


def expect_parallelism(
    parameters: int,
    activation_gib: float,
    device_gib: float,
    copy_hours: float,
    allowed_hours: float,
    way: str = "right",
) -> Any:
    state_gib = BYTES.get(way, 16) * parameters / (1e9 if way == "decimal-gigabytes" else 2**30)
    need_gib = state_gib + (0 if way == "no-activations" else activation_gib)
    fits = need_gib <= device_gib or way == "memory-ignored"
    if way == "no-room-to-spare":
        fits = need_gib < device_gib
    in_time = copy_hours <= allowed_hours
    if way == "no-time-to-spare":
        in_time = copy_hours < allowed_hours
    if fits:
        late = {"time-ignored": "one device", "split-needlessly": "model"}.get(way, "data")
        return "one device" if in_time else late
    late = {"time-ignored": "model", "split-needlessly": "model", "time-first": "data"}.get(
        way, "both"
    )
    return AnyOf(("model" if in_time else late, "sharded data"))


def expect_scaling(
    replicas: Sequence[int],
    step_seconds: Sequence[float],
    images: int,
    each: int,
    allowed_hours: float,
    way: str = "right",
) -> Any:
    n, t = np.asarray(replicas, float), np.asarray(step_seconds, float)  # [run]
    one = 0 if way == "first-is-reference" else list(replicas).index(1)
    shorter = t / t[one] if way == "upside-down" else t[one] / t
    speed_ups = shorter if way == "times-not-images" else n / n[one] * shorter
    scale = {"not-divided": n, "percentage": 100.0, "efficiency-times-n": n**2}.get(way, 1.0)
    choice = _choose(n, t, images, each, allowed_hours, way)
    found = {"speed_ups": speed_ups, "efficiencies": scale * speed_ups / n, "choice": choice}
    if way == "first-is-reference":  # its own images per second, or one replica's
        other = {"speed_ups": n * shorter, "efficiencies": shorter, "choice": choice}
        return AnyOf((found, other))
    return found


def _choose(
    n: np.ndarray, t: np.ndarray, images: int, each: int, allowed_hours: float, way: str
) -> int | None:
    """Return the number of replicas in time with the fewest replica-hours, or another one."""
    steps = images / each / (1 if way == "same-steps" else n)
    unit = {"seconds-not-hours": 1, "minutes-not-hours": 60}.get(way, 3600)
    hours = (steps if way == "one-per-step" else np.ceil(steps)) * t / unit
    late = hours > allowed_hours
    rank = {"fastest": hours, "fewest-replicas": n}.get(way, n * hours)
    rank = rank if way == "too-late" else np.where(late, np.inf, rank)
    if way == "never-none" and late.all():
        rank = hours
    return None if np.isinf(rank).all() else int(n[np.argmin(rank)])


EPOCH = Judge(lab01.EPOCH, expect_epoch)
BATCHES = Judge(lab01.BATCHES, expect_batches)
PARALLELISM = Judge(lab01.PARALLELISM, expect_parallelism)
SCALING = Judge(lab01.SCALING, expect_scaling)
