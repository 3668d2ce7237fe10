"""`distlab tune-input` and `distlab tpu-ready`: our library at work on a function of the user.

That function, MODULE:FUNCTION, is loaded in a child process (`user_child`), a session of
its own: when this process ends, is interrupted, or raises, nothing of it is left.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import utils
from distlab.cli import user_child
from distlab.cli.parser import Commands, add_command, declare
from utils.errors import InputError, RunError
from utils.gpus import VISIBLE

TUNE = (
    "Measure a tf.data pipeline and find settings for its stages. FUNCTION takes no arguments and "
    "returns a tf.data.Dataset of batches. Prints the rates, what each stage costs, the "
    "bottleneck, what was tried, and the code."
)
TUNE_MORE = (
    "A function that you give to map can name a version of itself for batches, and the search "
    "tries it: write of_one.batch_form = of_batch after it. If your project has no utils folder, "
    "the decorator @utils.input_pipeline.batch_form(of_batch) does the same. Modules are found in "
    "the current folder first. Yours is loaded in a separate process, and its output goes to "
    "standard error."
)
TPU_READY = (
    "Compile a model's training step with XLA on the CPU, and name the ops that would fail on a "
    "TPU, with their layers and lines. FUNCTION takes no arguments and returns a Keras model; you "
    "don't have to compile it. The exit status is 1 if a problem was found."
)
TPU_READY_MORE = (
    "XLA for the CPU accepts some ops that a TPU doesn't, so the command also looks for the usual "
    "ones in the graph. Modules are found in the current folder first, and yours is loaded in a "
    "separate process."
)
TUNE_OPTIONS = """
--step-ms X=0  time of a training step in milliseconds; 0 measures at full speed
--seconds S=20  measure for about this long
--cache-mb M=1000  let a cache take at most this much memory
--json  print one JSON object
"""


def add_parser(commands: Commands) -> None:
    text = "find good settings for a tf.data pipeline by measuring"
    tune = add_command(commands, "tune-input", run_tune, text, TUNE, TUNE_MORE)
    tune.add_argument("target", metavar="MODULE:FUNCTION", help="such as my_input:make_dataset")
    declare(tune, TUNE_OPTIONS)
    text = "find ops of a Keras model that would fail on a TPU"
    ready = add_command(commands, "tpu-ready", run_tpu_ready, text, TPU_READY, TPU_READY_MORE)
    ready.add_argument("target", metavar="MODULE:FUNCTION", help="such as my_model:make_model")
    declare(ready, "--batch N=32  examples per TPU core")
    ready.add_json()


def run_tune(arguments: argparse.Namespace) -> int:
    """Load, tune and print; return 0."""
    settings = {
        "step_seconds": arguments.step_ms / 1e3,
        "seconds": arguments.seconds,
        "max_cache_bytes": arguments.cache_mb * 1e6,
    }
    progress = "" if arguments.json else "distlab tune-input"
    _work_and_print(arguments, "my_input:make_dataset", "input_pipeline:tune", settings, progress)
    return 0


def run_tpu_ready(arguments: argparse.Namespace) -> int:
    """Load, examine and print; return 0 if nothing would stop it, else 1."""
    work, settings = "training.tpu_ready:examine_function", {"batch_size": arguments.batch}
    found = _work_and_print(arguments, "my_model:make_model", work, settings)
    return 0 if found["ready"] else 1


def _work_and_print(
    arguments: argparse.Namespace,
    example: str,
    work: str,
    settings: dict[str, Any],
    progress: str = "",
) -> dict[str, Any]:
    """Print the report of `work` on the function that `arguments.target` names; return its record.

    `work` is a function of our library, "input_pipeline:tune": it takes the user's function
    and `settings` (plain data), and with `progress`, a command's name, a function `say` for
    lines on standard error. Its report has `__str__` and `to_dict`. Raises InputError in
    one line for a target that can't be loaded and for what `work` refuses, RunError when
    the process ends without an answer.
    """
    try:
        user_child.split_target(arguments.target, example)  # no process for a slip of the pen
    except user_child.TargetError as error:
        raise InputError(str(error)) from None
    room, _, name = work.partition(":")
    order = {
        "target": arguments.target,
        "example": example,
        "room": room,
        "name": name,
        "settings": settings,
        "progress": progress,
        "library": str(Path(utils.__file__).parent),
    }
    reply, status = _ask(order)
    if not reply:
        raise RunError(f"The process of {arguments.target} {_describe_status(status)}")
    answer = json.loads(reply)
    if "error" in answer:
        raise InputError(answer["error"])
    found = answer["result"]
    print(json.dumps(found["record"]) if arguments.json else found["text"])
    return found["record"]


def _ask(order: dict[str, Any]) -> tuple[str, int]:
    """Run the child with `order`; return its reply and its exit status."""
    reading, writing = os.pipe()
    with open(reading) as reply:
        try:
            child = subprocess.Popen(
                [sys.executable, "-P", user_child.__file__],
                stdin=subprocess.PIPE,
                text=True,
                pass_fds=[writing],
                start_new_session=True,
                env={**os.environ, VISIBLE: ""},
            )
        finally:
            os.close(writing)
        try:
            with contextlib.suppress(BrokenPipeError):  # it ended before it could read
                print(json.dumps({**order, "reply": writing}), file=child.stdin, flush=True)
            line = reply.readline()
            return line, 0 if line else child.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            with contextlib.suppress(BrokenPipeError):
                child.stdin.close()
            child.wait()


def _describe_status(status: int) -> str:
    if status >= 0:
        return f"ended with status {status} and gave no report"
    with contextlib.suppress(ValueError):
        return f"was ended by {signal.Signals(-status).name} and gave no report"
    return f"was ended by signal {-status} and gave no report"
