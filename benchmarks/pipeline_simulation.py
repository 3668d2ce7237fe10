"""Pipeline simulation: seconds to make and simulate each schedule, 64 stages x 1,024 micro-batches.

The simulator promises to be done in under 2 seconds; the best round is held to it.
"""

import statistics
import time

from utils.schedules import SCHEDULES, make_schedule
from utils.simulate.pipeline import StageTimes, simulate_pipeline

STAGES, MICRO_BATCHES, LIMIT_SECONDS = 64, 1024, 2.0


def run(rounds: int) -> None:
    """Measure `rounds` simulations of each schedule; fail if the best takes 2 seconds or more."""
    print(f"\nPipeline simulation, {STAGES} stages x {MICRO_BATCHES:,} micro-batches, seconds")
    print(f"{'schedule':<18}{'operations':>12}{'median':>10}{'best':>10}")
    for name in SCHEDULES:
        seconds, operations = [], 0
        for _ in range(rounds):
            begin = time.perf_counter()
            schedule = make_schedule(name, STAGES, MICRO_BATCHES)
            done = simulate_pipeline(schedule, StageTimes(1.0, 1.1, 0.9, 0.05))
            seconds.append(time.perf_counter() - begin)
            operations = len(done.starts)
        best = min(seconds)
        print(f"{name:<18}{operations:>12,}{statistics.median(seconds):>10.2f}{best:>10.2f}")
        assert best < LIMIT_SECONDS, f"{name}: {best:.2f} s is not under {LIMIT_SECONDS} s"
