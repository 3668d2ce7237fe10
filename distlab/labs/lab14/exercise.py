"""Lab 14, plan a run: useful batch, step, limit, saves and bill; runs that others measured."""

from collections.abc import Callable
from typing import Any

import numpy as np

from distlab.exercises.exercise import Exercise, each
from distlab.labs import ANSWERS

ABSENT = ANSWERS

LATENCY_SECONDS, BANDWIDTH = 1e-4, 11.3e9  # of every link in exercise 5
PARAMETERS, STEPS = 40, 25  # of the gradients that exercise 1 gets


def draw_gradients(seed: int, replicas: int, batch: int) -> np.ndarray:
    """Return the gradients [25, replicas, 40] of replicas that averaged over `batch` examples each.

    The true gradient changes its size from step to step, and the noise doesn't.
    """
    rng = np.random.default_rng(seed)
    sizes = rng.uniform(0.2, 2.0, size=(STEPS, 1, 1))
    true = sizes * rng.normal(size=(STEPS, 1, PARAMETERS))
    noise = rng.uniform(15, 25) * rng.normal(size=(STEPS, replicas, PARAMETERS))
    return true + noise / np.sqrt(batch)


def try_batch(
    plan_batch: Callable[..., Any], seed: int, replicas: int, batch: int, steps: int, examples: int
) -> Any:
    """Return `plan_batch`'s result for gradients drawn for it."""
    return plan_batch(draw_gradients(seed, replicas, batch), batch, steps, examples)


BATCH = Exercise(
    lab="lab14",
    name="batch",
    function="plan_batch",
    examples=((1, 8, 16, 1000, 2_000_000), (2, 4, 64, 500, 800_000), (3, 2, 32, 2000, 3_000_000)),
    mistakes={
        "noise-left": "the mean over all replicas is noisy too, so its squared norm isn't |G|² "
        "yet: it is |G|² + S / (replicas x batch). You have two equations for two unknowns",
        "per-gradient": "the batch is missing: the gradients that you see are means over `batch` "
        "examples, and S is the noise of a single one",
        "replicas-as-batch": "a mean over all replicas is a mean over replicas x batch examples",
        "mean-of-ratios": "average the squared norms over the steps first, and divide once: a mean "
        "of the steps' own ratios is far off",
        "one-replica-too-many": "the mean comes from the same replicas: divide the sum of their "
        "squared distances by replicas - 1, not by replicas",
        "least-steps": "`min_steps` is for an endless batch: yours takes more",
        "noise-added": "a noisier gradient means more steps, so less room for the batch",
        "per-replica": "this is the batch of each replica: the global batch is for all of them",
        "roots": "these are means of norms: the equations hold for the squared norms",
        "noise-left, one": "a replica's squared norm isn't |G|² yet: subtract S / batch from it",
        "steps-averaged": "each step has its own gradient: take the squared norms within each step",
        "upside-down": "the noise scale is S / |G|², not the other way round",
        "noise-scale-as-batch": "the noise scale is where a larger batch begins to pay less; how "
        "large the batch may get is what the examples allow: steps x batch",
        "fewest-steps": "even the smallest possible number of steps grows with noise: "
        "steps = min_steps (1 + noise scale / batch), and steps x batch may be `examples` at most. "
        "So the batch is less than examples / min_steps",
    },
    hint="the mean of |gradient|² for one replica's batch, and for the batch of all replicas: both "
    "are |G|² + S / B",
    run=each(try_batch),
    plain=True,
)
_STEP = (0.1, 0.2, 400e6, 8, 1e-5, 10e9)
STEP = Exercise(
    lab="lab14",
    name="step",
    function="predict_step",
    examples=((*_STEP, 1), (*_STEP, 8), (*_STEP[:3], 6, 1e-3, 1e9, 4)),
    mistakes={
        "never-hidden": "a bucket leaves once its gradients are ready, during the backward pass",
        "all-hidden": "the last bucket is ready when the backward pass ends: it is never hidden",
        "no-queue": "the link carries one bucket at a time: a bucket waits for the one before",
        "latency-once": "each bucket has 2 (P - 1) messages, and each of them pays the latency",
        "whole-messages": "each message carries 1/P of the bucket, not all of it",
        "whole-gradients": "a bucket holds only its part of the gradients: divide by `buckets`",
        "bits": "these are eight times the bytes: size and bandwidth are both in bytes already",
        "one-message": "a bucket doesn't go out as a whole: a ring sends 2 (P - 1) pieces of it",
        "exposed-only": "this is what the backward pass doesn't hide: a step also computes",
        "one-half": "these are the messages of one half of the ring: an all-reduce is a "
        "reduce-scatter and an all-gather, P - 1 messages each",
        "ready-early": "a bucket is full when its *last* gradients are ready: bucket k of n (from "
        "1) after k/n of the backward pass",
        "forward-too": "gradients become ready in the backward pass, not in the forward pass",
    },
    hint="for each bucket: when is it ready, when is the link free, when has it arrived?",
    by_hand=("utils.simulate", "utils.calibrate"),
)
LIMIT = Exercise(
    lab="lab14",
    name="limit",
    function="judge_step",
    examples=(
        (0.3, 0.05, 1.1, 0.36),
        (0.1, 0.25, 1.6, 0.2),
        (0.1, 0.02, 1.05, 0.4),
        (0.1, 0.02, 2.5, 0.0),
        (0.3, 0.24, 1.5, 0.78),
    ),
    mistakes={
        "input-added": "the next batch is read during the step: the longer of the two counts",
        "input-whole": "only the part of the input that the step waits for counts against it",
        "stragglers-forgiven": "the step of one device that never waits is `compute`: the "
        "slowest device's delay is lost as well",
        "upside-down": "efficiency is the step of one device over this step, at most 1",
        "stragglers-whole": "the slowest device *adds* compute x (slowest - 1): the rest of its "
        "time is the computation itself",
        "stragglers-forgotten": "the step waits for the slowest device: compute x slowest",
        "wait-forgotten": "this step is compute and network: if the input takes longer, it decides",
        "network-hidden": "`exposed` is what the backward pass doesn't hide: it's added in full",
        "slowest-added": "`slowest` is a factor, not seconds: it multiplies `compute`",
        "smallest-part": "this is the smallest of the four parts: the limit is the largest",
        "stragglers-twice": "computation is `compute` alone: what the slowest adds is a part, too",
        "factor-as-part": "the slowest device adds compute x (slowest - 1) seconds",
        "network-slowed": "stragglers lengthen the compute, not what the network adds",
    },
    hint="what runs at the same time, what one after the other? Then compare the four parts",
    by_hand=("utils.simulate", "utils.calibrate"),
)
SAVES = Exercise(
    lab="lab14",
    name="saves",
    function="plan_saves",
    examples=((1024, 20_000.0, 300.0, 900.0, 100.0, 2.0), (64, 500.0, 120.0, 60.0, 24.0, 3.0)),
    mistakes={
        "one-node": "with N nodes a failure comes N times as often: divide the hours by N",
        "young": "sqrt(2 D M) is the first approximation: find the minimum of the exact cost",
        "restart-free": "each failure costs the restart as well: the factor e^(R/M)",
        "nodes-multiplied": "more nodes fail more often: divide the hours by N, don't multiply",
        "hours-shortened": "a run takes longer when it fails: divide by the share that trains",
        "in-hours": "M is in seconds, as D and R are: an hour has 3,600 of them",
        "in-minutes": "M is in seconds, as D and R are: an hour has 3,600 of them, not 60",
        "swapped": "you took the restart for the save: D is the save, R the restart",
        "save-counted": "T is the training between two saves: the save itself isn't in it",
        "one-hour-paid": "this is the price of one hour: multiply by the hours that the run takes",
        "planned-hours-paid": "the nodes are paid for as long as the run takes, not as planned",
        "one-node-paid": "every node is paid for every hour",
    },
    hint="M in seconds for all nodes together; then the T with the least exact cost",
    tolerance=5e-3,
    by_hand=("utils.simulate", "utils.calibrate"),
)
MEASURED = Exercise(
    lab="lab14",
    name="measured",
    function="predict_speed_up",
    examples=(
        (219.0, 64, 25_600_000, 8),
        (2987.0, 512, 61_000_000, 8),
        (1000.0, 32, 100_000_000, 16),
        (2000.0, 32, 100_000_000, 2),
        (4000.0, 64, 4_000_000, 64),
    ),
    mistakes={
        "efficiency": "this is the efficiency: times the number of GPUs it is the speed-up",
        "two-bytes": "a float32 gradient takes 4 bytes, not 2",
        "one-way": "half of the ring is missing: 2 (P - 1) messages, P - 1 for each of its halves",
        "bits": "these are eight times the bytes: 11.3 GB/s are bytes already",
        "rate": "these are the images/s of all GPUs: divide them by the rate of one",
        "perfect": "this is nearly the number of GPUs, and too much: after the backward pass all "
        "of them wait for an all-reduce, and nothing hides it",
        "one-image": "a step is a whole batch of images, not one of them",
        "hidden": "nothing overlaps here: a step is computation, and then the all-reduce",
        "one-for-all": "one batch was divided among the GPUs: each of them has its own, whole one",
        "whole-vectors": "a ring sends pieces of 1/P of the gradients in each message, not all",
        "sent-once": "the gradients don't go out once, as a whole: a ring sends 2 (P - 1) "
        "messages, one after the other, each with 1/P of them",
        "no-latency": "each of the 2 (P - 1) messages takes 0.1 ms before its first byte: with 64 "
        "GPUs and a small model that is most of the all-reduce",
        "one-byte": "a float32 gradient takes 4 bytes, and you counted one for each parameter",
    },
    hint="how long is a step of one GPU, how long one of all, and how many batches does each do?",
    tolerance=0.15,
    by_hand=("utils.simulate", "utils.calibrate"),
)
