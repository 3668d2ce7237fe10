"""Kill and freeze training runs at random: `python -m benchmarks.chaos [--runs N] [--seed N]`.

One line a run, then a table. Ends with status 1 if a run didn't survive. A line names
its seed: `--runs 1 --seed THAT` draws the same fault again.
"""

import argparse
import random
import sys
import time

from distlab.lessons.chaos import describe_outcomes, run_chaos


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.chaos", description=__doc__)
    parser.add_argument("--runs", type=int, default=100, help="how many (default 100)")
    parser.add_argument("--seed", type=int, help="of the first run (default: a fresh one)")
    arguments = parser.parse_args()
    if arguments.runs < 1:
        parser.error("--runs must be 1 or more")
    seed = random.SystemRandom().randrange(10**6) if arguments.seed is None else arguments.seed
    begun, outcomes = time.monotonic(), []
    for outcome in run_chaos(arguments.runs, seed):
        print(outcome, flush=True)
        outcomes.append(outcome)
    print(f"\n{describe_outcomes(outcomes)}")
    print(f"seeds {seed} to {seed + arguments.runs - 1}, {time.monotonic() - begun:.0f} s in all")
    sys.exit(any(outcome.problem is not None for outcome in outcomes))


if __name__ == "__main__":
    main()
