"""A program started as the tasks of a cluster, each in a process with its own TF_CONFIG.

    lines = run_tasks("train.py", [tf_config_of_worker_0, tf_config_of_worker_1])

What two people do who type `TF_CONFIG='…' python train.py` on two machines, on this one.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from signal import SIGKILL

from distlab.errors import CourseError
from utils.processes.lifetime import die_with_parent, signal_group

LIMIT_SECONDS = 120.0
MAX_LINES = 5  # of what a failed task wrote


def run_tasks(
    program: str | Path, tf_configs: Sequence[str], seconds: float = LIMIT_SECONDS
) -> list[list[str]]:
    """Start `python program` under each of `tf_configs` at once; return the lines each printed.

    Each runs in the program's folder. Raises CourseError when one fails, and when one hasn't
    ended after `seconds`. Whatever happens, none is left: a worker that waits for its peers
    ignores SIGTERM, so it is ended with SIGKILL.
    """
    end, tasks = time.monotonic() + seconds, []
    with tempfile.TemporaryFile("w+") as errors:
        try:
            for text in tf_configs:
                tasks.append(_start(program, text, errors))
            return [_finish(task, number, end, errors) for number, task in enumerate(tasks)]
        finally:
            for task in tasks:
                if task.poll() is None:
                    signal_group(task.pid, SIGKILL)
                    task.wait()
                task.stdout.close()


def _start(program: str | Path, tf_config: str, errors) -> "subprocess.Popen[str]":
    place = Path(program).resolve()
    return subprocess.Popen(
        [sys.executable, place.name],
        cwd=place.parent,
        env={**os.environ, "TF_CONFIG": tf_config},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        start_new_session=True,
        preexec_fn=die_with_parent,
    )


def _finish(task: "subprocess.Popen[str]", number: int, end: float, errors) -> list[str]:
    try:
        printed, _ = task.communicate(timeout=max(0.0, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise CourseError(
            f"Task {number} hasn't ended in time. Does each task have its own index, and did all "
            "of them start?"
        ) from None
    if task.returncode:
        errors.seek(0)
        said = "\n".join(errors.read().splitlines()[-MAX_LINES:])
        raise CourseError(f"task {number} ended with status {task.returncode}:\n{said}")
    return printed.splitlines()
