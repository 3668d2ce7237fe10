"""Pipelines that run: the measured span of a step beside the simulated one, for each schedule.

Four stages share the cores of this machine, so real work can't overlap as it would on
four devices. Every operation therefore does its real work and then waits until a
stated time is over, the same that the simulator gets: what is measured is whether the
stages keep to their schedule. The ratio is above 1 by what threads, sending and
operations that overrun their time cost.
"""

import statistics

import numpy as np

from utils.environment import quiet_tensorflow

with quiet_tensorflow():
    import keras

from utils.devices import use_logical_devices
from utils.parallel.pipeline import Pipeline, cut_model, run_pipeline
from utils.parallel.stage import Rules
from utils.schedules import make_schedule
from utils.simulate.pipeline import StageTimes, simulate_pipeline

STAGES, MICRO_BATCHES = 4, 8
TIMES = StageTimes(forward=0.02, backward_input=0.02, backward_weight=0.02)  # seconds
CHUNKS = {"gpipe": 1, "1f1b": 1, "interleaved-1f1b": 2}


def run(rounds: int) -> None:
    """Measure `rounds` steps under each schedule; fail if one is shorter than it can be."""
    devices = use_logical_devices(STAGES)
    print(f"\nRunning a pipeline, {STAGES} stages, {MICRO_BATCHES} micro-batches: the longest span")
    print("of a stage in seconds, operations held to 20 ms forward and 40 ms backward")
    print(f"{'schedule':<18}{'simulated':>10}{'median':>10}{'best':>10}{'median ratio':>14}")
    rng = np.random.default_rng(0)
    images, labels = rng.random((32, 28, 28, 1)), rng.integers(0, 10, 32)
    for name, chunks in CHUNKS.items():
        pipeline = cut_model(build_tower(), [1.0] * 8, STAGES, devices, chunks)
        simulated, seconds = measure(pipeline, name, images, labels, rounds)
        median, best = statistics.median(seconds), min(seconds)
        ratio = median / simulated
        print(f"{name:<18}{simulated:>10.3f}{median:>10.3f}{best:>10.3f}{ratio:>14.3f}", flush=True)


def measure(
    pipeline: Pipeline, name: str, images: np.ndarray, labels: np.ndarray, rounds: int
) -> tuple[float, list[float]]:
    """Return the simulated longest span and the measured ones; the first step isn't counted."""
    chunks = pipeline.chunks if pipeline.chunks > 1 else None
    schedule = make_schedule(name, STAGES, MICRO_BATCHES, chunks)
    simulated = simulate_pipeline(schedule, TIMES)
    rules = Rules(slowed_to=TIMES)
    steps = [run_pipeline(pipeline, schedule, images, labels, rules) for _ in range(rounds + 1)]
    assert all(step.makespan >= simulated.makespan - 1e-6 for step in steps), name
    return simulated.longest_stage_span, [step.longest_stage_span for step in steps[1:]]


def build_tower() -> keras.Model:
    """Return a chain of eight layers, so that each of eight parts gets one."""
    dense = [keras.layers.Dense(64, activation="relu") for _ in range(6)]
    return keras.Sequential(
        [keras.Input((28, 28, 1)), keras.layers.Flatten(), *dense, keras.layers.Dense(10)]
    )
