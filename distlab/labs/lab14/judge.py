"""Lab 14, plan a run: closed forms, the queue of buckets, Daly's exact cost, published runs."""

import math
from typing import Any

import numpy as np

from distlab.exercises.comparing import AnyOf
from distlab.grading.judging import Judge, LabRules
from distlab.labs.lab14 import exercise as lab14

RULES = LabRules(cell_seconds=60, submission_seconds=120, data=())
PUBLISHED = {  # (rate of one GPU, parameters, GPUs): speed-up; TensorFlow's benchmarks, May 2017
    (219.0, 25_600_000, 8): 1734 / 219,
    (91.8, 60_200_000, 8): 716 / 91.8,
    (2987.0, 61_000_000, 8): 17822 / 2987,
    (154.0, 138_400_000, 8): 1081 / 154,
    (142.0, 23_900_000, 8): 1131 / 142,
    (684.0, 61_000_000, 8): 4853 / 684,
    (36.3, 138_400_000, 8): 260 / 36.3,
    (52.4, 25_600_000, 16): 751 / 52.4,
    (19.4, 60_200_000, 16): 291 / 19.4,
}


def expect_batch(
    seed: int, replicas: int, batch: int, min_steps: int, examples: int, way: str = "right"
) -> dict[str, Any]:
    """Return noise scale, largest batch and steps: McCandlish et al. 2018, appendix A."""
    gradients = lab14.draw_gradients(seed, replicas, batch)
    if way == "steps-averaged":
        gradients = gradients.mean(axis=0, keepdims=True)
    small = (gradients**2).sum(axis=-1)  # [step, replica]: |G|^2 + S / batch
    large = (gradients.mean(axis=1) ** 2).sum(axis=-1)  # [step]: |G|^2 + S / (replicas batch)
    small, large = (np.sqrt(n) if way == "roots" else n for n in (small, large))
    small = small.mean(axis=1)
    if way != "mean-of-ratios":
        small, large = small.mean(), large.mean()
    sizes = {"per-gradient": (1, replicas), "replicas-as-batch": (batch, replicas)}
    one, all_of_them = sizes.get(way, (batch, replicas * batch))
    noise = (small - large) / (1 / one - 1 / all_of_them)
    noise = noise * (1 - (way == "one-replica-too-many") / replicas)
    signal = {"noise-left": large, "noise-left, one": small}.get(way, large - noise / all_of_them)
    scale = float(np.mean(signal / noise if way == "upside-down" else noise / signal))
    largest = scale if way == "noise-scale-as-batch" else examples / min_steps - scale
    largest = examples / min_steps if way == "fewest-steps" else largest
    largest /= replicas if way == "per-replica" else 1
    largest += 2 * scale if way == "noise-added" else 0
    steps: Any = min_steps * (1 + (way != "least-steps") * scale / largest)
    steps = AnyOf((min_steps, steps)) if way == "fewest-steps" else steps
    return {"noise scale": scale, "batch": largest, "steps": steps}


def expect_step(
    forward: float,
    backward: float,
    gradient_bytes: float,
    devices: int,
    latency: float,
    bandwidth: float,
    buckets: int,
    way: str = "right",
) -> Any:
    """Return the seconds of a step with its gradients in `buckets` equal buckets."""
    compute, size = forward + backward, gradient_bytes / buckets
    size *= {"whole-messages": devices, "whole-gradients": buckets, "bits": 8}.get(way, 1)
    messages = (1 if way == "one-half" else 2) * (devices - 1)
    ring = messages * (latency + size / devices / bandwidth)
    if way == "latency-once":
        ring = latency + messages * size / devices / bandwidth
    if way == "one-message":
        ring = latency + size / bandwidth
    if way == "all-hidden":
        return AnyOf((max(compute, buckets * ring), forward + max(backward, buckets * ring)))
    free = 0.0
    for number in range(1, buckets + 1):
        ready = forward + backward * number / buckets
        ready -= backward / buckets if way == "ready-early" else 0
        ready = compute if way == "never-hidden" else ready
        ready = compute * number / buckets if way == "forward-too" else ready
        free = (ready if way == "no-queue" else max(ready, free)) + ring
    free -= compute if way == "exposed-only" else 0
    return free if way in ("ready-early", "exposed-only") else max(compute, free)


def expect_limit(
    compute: float, exposed: float, slowest: float, input_seconds: float, way: str = "right"
) -> dict[str, object]:
    """Return efficiency and limit."""
    worked = {
        "network-slowed": (compute + exposed) * slowest,
        "stragglers-forgotten": compute + exposed,
        "network-hidden": max(compute * slowest, exposed),
        "slowest-added": compute + slowest + exposed,
    }.get(way, compute * slowest + exposed)
    step = worked + input_seconds if way == "input-added" else max(worked, input_seconds)
    waited = input_seconds if way == "input-whole" else step - worked
    parts = {
        "computation": compute * (slowest if way == "stragglers-twice" else 1),
        "network": exposed,
        "stragglers": (slowest - (way != "stragglers-whole"))
        * (1 if way == "factor-as-part" else compute),
        "input": waited,
    }
    alone = compute * slowest if way == "stragglers-forgiven" else compute
    efficiency = step / compute if way == "upside-down" else alone / step
    efficiency = alone / worked if way == "wait-forgotten" else efficiency
    choose = min if way == "smallest-part" else max
    limit: Any = choose(parts, key=parts.__getitem__)
    if way == "input-added":  # to the step alone, or to its parts too
        parts["input"] = max(0.0, input_seconds - worked)
        limit = AnyOf((limit, max(parts, key=parts.__getitem__)))
    return {"efficiency": efficiency, "limit": limit}


def expect_saves(
    nodes: int,
    mtbf_hours: float,
    save: float,
    restart: float,
    hours: float,
    price: float,
    way: str = "right",
) -> dict[str, float]:
    """Return the best interval, the share of time that trains, hours and cost."""
    mtbf = mtbf_hours / {"one-node": 1, "nodes-multiplied": 1 / nodes}.get(way, nodes)
    mtbf *= {"in-hours": 1, "in-minutes": 60}.get(way, 3600)
    save, restart = (restart, save) if way == "swapped" else (save, restart)
    x = min(1.0, math.sqrt(2 * save / mtbf))
    for _ in range(60):
        x -= (x + math.expm1(-x - save / mtbf)) / -math.expm1(-x - save / mtbf)
    interval = math.sqrt(2 * save * mtbf) if way == "young" else x * mtbf
    lost = 0.0 if way == "restart-free" else restart
    cost = mtbf * math.exp(lost / mtbf) * math.expm1((interval + save) / mtbf) / interval
    taken = hours / cost if way == "hours-shortened" else hours * cost
    paid = price * (1 if way == "one-node-paid" else nodes)
    paid *= {"planned-hours-paid": hours, "one-hour-paid": 1}.get(way, taken)
    interval += save if way == "save-counted" else 0
    return {"interval": interval, "share": 1 / cost, "hours": taken, "cost": paid}


def expect_measured(
    rate: float, batch: int, parameters: int, devices: int, way: str = "right"
) -> float:
    """Return the published speed-up, of an invented run the model's, or what a mistake predicts."""
    if way == "right" and (rate, parameters, devices) in PUBLISHED:
        return PUBLISHED[rate, parameters, devices]
    step = (1 if way == "one-image" else batch) / rate
    pieces = 1 if way == "whole-vectors" else devices
    size = {"one-byte": 1, "two-bytes": 2, "bits": 32}.get(way, 4) * parameters / pieces
    moved = size / lab14.BANDWIDTH
    messages = (1 if way == "one-way" else 2) * (devices - 1)
    ring = messages * ((0 if way == "no-latency" else lab14.LATENCY_SECONDS) + moved)
    if way == "sent-once":
        ring = lab14.LATENCY_SECONDS + 4 * parameters / lab14.BANDWIDTH
    if way == "hidden":
        return devices * step / max(step, ring)
    if way == "rate":
        return devices * batch / (step + ring)
    if way == "one-for-all":
        return step / (step / devices + ring)
    if way == "efficiency":
        return step / (step + ring)
    return float(devices) if way == "perfect" else devices * step / (step + ring)


BATCH = Judge(lab14.BATCH, expect_batch)
STEP = Judge(lab14.STEP, expect_step)
LIMIT = Judge(lab14.LIMIT, expect_limit)
SAVES = Judge(lab14.SAVES, expect_saves)
MEASURED = Judge(lab14.MEASURED, expect_measured)
