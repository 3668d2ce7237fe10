"""Lab 14, plan a run: bytes, step, limit, saves and bill of supplied profiles; a measured run."""

from distlab.exercises.exercise import Exercise

LATENCY_SECONDS, BANDWIDTH = 1e-4, 11.3e9  # of every link in exercise 5
TRAFFIC = Exercise(
    lab="lab14",
    name="traffic",
    function="count_traffic",
    examples=((25_600_000, 8), (1000, 4)),
    mistakes={
        "in-bits": "bytes are asked for: a float32 has 32 bits, which are four bytes",
        "two-bytes": "gradients are float32 here: four bytes for each parameter",
        "one-way": "a ring goes round twice: reduce-scatter, then all-gather",
        "whole-vectors": "a ring sends pieces of 1/P of the vector, not the whole of it each time",
        "nothing-kept": "each round is P - 1 messages, since a device's own piece is already there",
    },
    hint="count one device's messages in both rounds, then the bytes of one message",
    by_hand=("utils.simulate", "utils.calibrate"),
)
_STEP = (0.1, 0.2, 400e6, 8, 1e-5, 10e9)
STEP = Exercise(
    lab="lab14",
    name="step",
    function="predict_step",
    examples=((*_STEP, 1), (*_STEP, 8), (*_STEP[:-2], 1e-3, 1e9, 4)),
    mistakes={
        "never-hidden": "a bucket leaves as soon as its gradients are ready, during the backward "
        "pass",
        "all-hidden": "the last bucket is ready when the backward pass ends: it is never hidden",
        "no-queue": "the link carries one bucket at a time: a bucket waits for the one before",
        "latency-once": "each bucket is an all-reduce of its own, with 2 (P - 1) messages: each "
        "message pays the latency",
        "forward-too": "gradients become ready during the backward pass, not during the forward "
        "pass",
    },
    hint="for each bucket: when is it ready, when is the link free, when has it arrived?",
    by_hand=("utils.simulate", "utils.calibrate"),
)
LIMIT = Exercise(
    lab="lab14",
    name="limit",
    function="judge_step",
    examples=((0.3, 0.05, 1.1, 0.36), (0.1, 0.25, 1.05, 0.2), (0.1, 0.02, 1.05, 0.4),
              (0.1, 0.02, 2.5, 0.0)),
    mistakes={
        "input-added": "the next batch is read during the step: the longer of the two counts",
        "input-whole": "only the part of the input that the step waits for counts against it",
        "stragglers-forgiven": "the step of one device that never waits is `compute`: what the "
        "slowest device adds is lost as well",
        "upside-down": "efficiency is the step of one device over this step, at most 1",
        "network-slowed": "stragglers lengthen the compute, not what the network adds",
    },
    hint="what runs at the same time, what one after the other? Then compare the four parts",
    by_hand=("utils.simulate", "utils.calibrate"),
)  # fmt: skip
SAVES = Exercise(
    lab="lab14",
    name="saves",
    function="plan_saves",
    examples=((1024, 20_000.0, 300.0, 600.0, 100.0, 2.0), (64, 500.0, 120.0, 60.0, 24.0, 3.0)),
    mistakes={
        "one-node": "with N nodes a failure comes N times as often: divide the hours by N",
        "young": "sqrt(2 D M) is the first approximation: find the minimum of the exact cost",
        "restart-free": "each failure costs the restart as well: the factor e^(R/M)",
        "hours-shortened": "a run takes longer when it fails: divide by the share that trains",
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
    examples=((219.0, 64, 25_600_000, 8), (2987.0, 512, 61_000_000, 8),
              (1000.0, 32, 100_000_000, 16)),
    mistakes={
        "rate": "these are images a second of all GPUs: divide them by the rate of one",
        "perfect": "the step of several devices also holds an all-reduce",
        "one-image": "a step is a whole batch of images, not one of them",
        "whole-vectors": "a ring sends pieces of 1/P of the gradients in each message",
    },
    hint="how long is a step of one GPU, how long one of all, and how many batches does each do?",
    tolerance=0.15,
    by_hand=("utils.simulate", "utils.calibrate"),
)  # fmt: skip
