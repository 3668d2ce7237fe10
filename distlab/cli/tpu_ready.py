"""`distlab tpu-ready MODULE:FUNCTION`: what would stop a model's training step on a TPU."""

import argparse
import json

from distlab.cli.parser import Commands
from distlab.cli.user_function import run_on_user_function

DESCRIPTION = (
    "Compile a model's training step with XLA on the CPU, and say what would stop it on a TPU: "
    "which op, in which layer, on which line. FUNCTION takes no arguments and returns a Keras "
    "model, compiled with its loss or not. Exit status 1 if a problem was found."
)
EPILOG = (
    "XLA for the CPU takes some ops that a TPU does not; the graph is read for the usual ones. "
    "A module is looked for in the current folder first; it is loaded in a process of its own."
)


def add_parser(subparsers: Commands) -> None:
    """Declare `distlab tpu-ready`."""
    parser = subparsers.add_parser(
        "tpu-ready",
        help="find what would stop a Keras model on a TPU",
        description=DESCRIPTION,
        epilog=EPILOG,
    )
    add = parser.add_argument
    add("target", metavar="MODULE:FUNCTION", help="for example my_model:make_model")
    add("--batch", type=int, default=32, metavar="N", help="examples on one core (%(default)s)")
    parser.add_json()
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Load, examine and print; return 0 if nothing would stop it, else 1."""
    found = run_on_user_function(
        arguments.target, "my_model:make_model", "training.tpu_ready:examine_function",
        {"batch_size": arguments.batch},
    )  # fmt: skip
    print(json.dumps(found["record"]) if arguments.json else found["text"])
    return 0 if found["record"]["ready"] else 1
