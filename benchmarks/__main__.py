"""Run every benchmark, or those named: `python -m benchmarks [training …] [--rounds N]`."""

import argparse
import importlib

NAMES = (
    "training",
    "pipeline_simulation",
    "plan",
    "plan_simulators",
    "pipeline_run",
    "ring_processes",
    "cluster_start",
    "kernel_start",
    "notebook_opens",
    "distlab_run",
    "rendezvous_scale",
    "many_jobs",
    "input_pipeline",
    "grading",
    "explorables",
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--rounds", type=int, default=9, help="interleaved rounds (default 9)")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(NAMES):
        parser.error(f"{', '.join(sorted(unknown))}: choose from {', '.join(NAMES)}")
    for name in arguments.names or NAMES:
        importlib.import_module(f"benchmarks.{name}").run(arguments.rounds)


if __name__ == "__main__":
    main()
