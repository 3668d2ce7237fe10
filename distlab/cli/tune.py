"""`distlab tune MODULE:FUNCTION`: settings for an input pipeline, found by measuring."""

import argparse
import importlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from distlab.errors import CourseError
from utils.environment import quiet_tensorflow

DESCRIPTION = (
    "Measure a tf.data pipeline and find settings for its stages. FUNCTION takes no arguments and "
    "returns a tf.data.Dataset of batches. Prints the rates, what each stage costs, the "
    "bottleneck, what was tried, and the code."
)
EPILOG = (
    "A function given to map may name a form of itself for whole batches, which is then tried: "
    "put @utils.input_pipeline.batch_form(of_batch) above it. A module is looked for in the "
    "current folder first."
)


def add_parser(subparsers: Any) -> None:
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
    add("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Load, tune and print; return the exit status."""
    make_dataset = load_function(arguments.target)
    from utils.input_pipeline import tune

    report = tune(
        make_dataset,
        step_seconds=arguments.step_ms / 1e3,
        seconds=arguments.seconds,
        most_cache_bytes=arguments.cache_mb * 1e6,
    )
    print(json.dumps(report.to_dict()) if arguments.json else report)
    return 0


def load_function(target: str, example: str = "my_input:make_dataset") -> Callable[[], Any]:
    """Return the function that `MODULE:FUNCTION` names; `example` goes into an error.

    Raises CourseError in one line for another form, for a module that is not there
    or fails when it is imported, and for a name that it lacks or that is no function.
    """
    module_name, colon, name = target.partition(":")
    if not (colon and module_name and name):
        raise CourseError(f"{target!r}: write MODULE:FUNCTION, for example {example}")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        with quiet_tensorflow():
            module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and module_name.startswith(error.name):
            raise CourseError(
                f"no module {module_name!r} in this folder or the environment: run in the folder "
                "of the file, and leave out .py"
            ) from None
        raise CourseError(f"{module_name} needs a module that is missing: {error}") from None
    except Exception as error:
        first = (str(error).strip().split("\n") or [""])[0][:200]
        raise CourseError(f"{module_name} failed: {type(error).__name__}: {first}") from None
    function = getattr(module, name, None)
    if not callable(function):
        what = "has no function" if function is None else "has, and it is no function,"
        raise CourseError(f"{module_name} {what} {name!r}")
    return function
