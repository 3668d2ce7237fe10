"""`distlab tune MODULE:FUNCTION`: settings for an input pipeline, found by measuring."""

import argparse
import json

from distlab.cli.parser import Commands
from distlab.cli.user_function import run_on_user_function

DESCRIPTION = (
    "Measure a tf.data pipeline and find settings for its stages. FUNCTION takes no arguments and "
    "returns a tf.data.Dataset of batches. Prints the rates, what each stage costs, the "
    "bottleneck, what was tried, and the code."
)
EPILOG = (
    "A function given to map may name a form of itself for whole batches, which is then tried: "
    "write of_one.batch_form = of_batch after it (@utils.input_pipeline.batch_form(of_batch) above "
    "it does the same, in a project without a utils of its own). A module is looked for in the "
    "current folder first; it is loaded in a process of its own, and what it prints goes to "
    "standard error."
)


def add_parser(subparsers: Commands) -> None:
    """Declare `distlab tune`."""
    parser = subparsers.add_parser(
        "tune",
        help="find the settings of a tf.data pipeline by measuring",
        description=DESCRIPTION,
        epilog=EPILOG,
    )
    add = parser.add_argument
    add("target", metavar="MODULE:FUNCTION", help="for example my_input:make_dataset")
    add("--step-ms", type=float, default=0.0, metavar="X",
        help="what the training step takes, in milliseconds (0: as fast as it goes)")  # fmt: skip
    add("--seconds", type=float, default=20.0, metavar="S",
        help="how long to measure, about (%(default)g)")  # fmt: skip
    add("--cache-mb", type=float, default=1000.0, metavar="M",
        help="the most memory that a cache may take (%(default)g)")  # fmt: skip
    parser.add_json()
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Load, tune and print; return the exit status."""
    settings = {
        "step_seconds": arguments.step_ms / 1e3,
        "seconds": arguments.seconds,
        "max_cache_bytes": arguments.cache_mb * 1e6,
    }
    progress = "" if arguments.json else "distlab tune"
    found = run_on_user_function(
        arguments.target, "my_input:make_dataset", "input_pipeline:tune", settings, progress
    )
    print(json.dumps(found["record"]) if arguments.json else found["text"])
    return 0
