"""Functions of the library run on a function of the user, `MODULE:FUNCTION`, in a child process.

The child (`user_child`) is a session of its own: when this process ends, is
interrupted, or raises, nothing of it is left.
"""

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
from utils.errors import InputError, RunError


def run_on_user_function(
    target: str, example: str, work: str, settings: dict[str, Any], progress: str = ""
) -> dict[str, Any]:
    """Return {"text", "record"} of the report of `work` on the function that `target` names.

    `work` is a function of our library, "input_pipeline:tune": it takes the user's function
    and `settings` (plain data), and with `progress`, a command's name, a function `say` for
    lines on standard error. Its report has `__str__` and `to_dict`. Raises InputError in
    one line for a target that cannot be loaded and for what `work` refuses, RunError when
    the process ends without an answer.
    """
    room, _, name = work.partition(":")
    order = {"target": target, "example": example, "room": room, "name": name,
             "settings": settings, "progress": progress,
             "library": str(Path(utils.__file__).parent)}  # fmt: skip
    reply, status = _ask(order)
    if not reply:
        raise RunError(f"{target}: its process {_describe_status(status)}")
    answer = json.loads(reply)
    if "error" in answer:
        raise InputError(answer["error"])
    return answer["result"]


def _ask(order: dict[str, Any]) -> tuple[str, int]:
    """Run the child with `order`; return its reply and its exit status."""
    reading, writing = os.pipe()
    with open(reading) as reply:
        try:
            child = subprocess.Popen(
                [sys.executable, "-P", user_child.__file__], stdin=subprocess.PIPE, text=True,
                pass_fds=[writing], start_new_session=True,
            )  # fmt: skip
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
