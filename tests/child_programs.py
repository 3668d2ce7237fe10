"""Programs that a test runs to their end: any, Python's, and `distlab`."""

import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

SECONDS = 280  # only so that a hang ends


def run_child(
    *words: object,
    status: int | None = None,
    variables: Mapping[str, str] | None = None,
    **options: Any,
) -> subprocess.CompletedProcess[str]:
    """Return what a program printed, and said, and how it ended: with `status`, if that is given.

    `variables` are added to the environment; `options` are those of `subprocess.run`.
    """
    if variables is not None:
        options["env"] = os.environ | variables
    usual = {"capture_output": True, "text": True, "timeout": SECONDS}
    done = subprocess.run(list(map(str, words)), **usual | options)
    said = f"status {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    assert status in (None, done.returncode), said
    return done


def run_python(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    return run_child(sys.executable, *words, **options)


def run_distlab(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    return run_python("-m", "distlab", *words, **options)
