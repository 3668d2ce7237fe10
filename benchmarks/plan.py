"""Planning: predicted steps of 2 and 4 local workers beside measured ones; the speed of a plan.

Each round calibrates anew with two processes and then runs the workers. Nine of ten have to
come within 25 %, and inside the range that was stated. The method was worked out on the MLP and
the CNN; the Transformer is the one that it hasn't seen. On a machine that does other work
the errors are that work's.
"""

import time

from utils.calibrate import Profile, Scenario, calibrate, check_locally, predict
from utils.cluster import make_launcher
from utils.simulate.collective import Link
from utils.simulate.step import Network

MODELS = (("cnn", 64), ("mlp", 256), ("transformer", 64))
SIZES, LIMIT_SECONDS, LIMIT_ERROR = 10_000, 2.0, 0.25


def run(rounds: int) -> None:
    """Measure `rounds` calibrations of each model, then a plan for 10,000 sizes."""
    time_a_plan(rounds)
    print("\nA step of local workers, milliseconds, predicted beside measured")
    print(f"{'model':<12}{'workers':>8}{'predicted':>12}{'measured':>12}{'error':>8}  in range")
    good = total = 0
    launcher = make_launcher()
    try:
        for _ in range(rounds):
            for model, batch in MODELS:
                profile = calibrate(model, batch, launcher=launcher)
                for check in check_locally(model, profile, launcher=launcher):
                    inside = check.low <= check.measured <= check.high
                    good += inside and abs(check.error) <= LIMIT_ERROR
                    total += 1
                    numbers = f"{1e3 * check.predicted:>12.2f}{1e3 * check.measured:>12.2f}"
                    print(
                        f"{model:<12}{check.workers:>8}{numbers}{check.error:>+8.0%}  {inside}",
                        flush=True,
                    )
    finally:
        launcher.close()
    print(f"{good} of {total} within {LIMIT_ERROR:.0%} and in range (promised: 9 of 10)")


def time_a_plan(rounds: int) -> None:
    """Print the seconds of a plan for 10,000 sizes; fail if the best takes 2 seconds or more."""
    profile = Profile(0.1, 0.2, 400e6, batch=256, straggler_sigma=0.05, checkpoint_seconds=30.0)
    network = Network(Link(1e-5, 50e9))
    scenario = Scenario(tuple(range(1, SIZES + 1)), network=network, node_mtbf_hours=5000.0)
    seconds = []
    for _ in range(rounds):
        begun = time.perf_counter()
        assert len(predict(profile, scenario)) == SIZES
        seconds.append(time.perf_counter() - begun)
    print(f"\nA plan for {SIZES:,} sizes: {min(seconds):.2f} s at best")
    assert min(seconds) < LIMIT_SECONDS, f"{min(seconds):.2f} s is not under {LIMIT_SECONDS} s"
