"""Programs that a test runs to their end, or starts: any, Python's, and `distlab`."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from process_watch import start_process

from utils.events import Event, read_events

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


def start_python(
    *words: object, variables: Mapping[str, str] | None = None, **options: Any
) -> "subprocess.Popen[str]":
    """Return a running program, which ends with the test."""
    if variables is not None:
        options["env"] = os.environ | variables
    usual = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return start_process([sys.executable, *map(str, words)], **usual | options)


def start_distlab(*words: object, **options: Any) -> "subprocess.Popen[str]":
    return start_python("-m", "distlab", *words, **options)


def events_of(path: Path, kind: str) -> list[Event]:
    """Return the events of one kind that a run has written so far, also before it wrote any."""
    return [e for e in read_events(path) if e["event"] == kind] if path.exists() else []
