"""`distlab diagnose`: from the logs of a failed TensorFlow cluster to the cause and the fix."""

import argparse
import errno
import json
import os
import re
import stat
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO

from distlab.cli.parser import Commands, add_command, declare
from distlab.errors import CourseError
from utils.errors import shorten
from utils.measure import count

TAIL_BYTES = 1_000_000  # of each log: the end is what counts
ERROR = re.compile(  # what logs say when something went wrong
    r"\w*(?:Error|Exception)\b|"
    r"(?i:\berror:|\bfatal\b|\bkilled\b|\babort|core dumped|segmentation fault)"
)


def add_parser(subparsers: Commands) -> None:
    parser = add_command(
        subparsers,
        "diagnose",
        run,
        "find out from its logs why a cluster failed",
        "Read the logs of the tasks of a TensorFlow or JAX cluster, started by this course or not, "
        "and print which task failed first, why, and what to do. The exit status is 1 if a cause "
        "was found, 0 if not, and 2 if a log can't be read.",
    )
    text = "one log per task, or their folder; - reads standard input [-]"
    parser.add_argument("logs", nargs="*", metavar="LOG", default=["-"], help=text)
    text = "the TF_CONFIG of one task: a file, or the JSON itself; it helps to name the tasks that "
    declare(parser, f"--tf-config FILE  {text}others wait for")
    parser.add_json()


def run(arguments: argparse.Namespace) -> int:
    """Print what went wrong; return 1 if a cause was found, else 0."""
    from utils.tf_config import diagnose_cluster

    texts = {}
    for name in arguments.logs:
        texts |= read_logs(name)
    configs = read_configs(arguments.tf_config, texts) if arguments.tf_config else {}
    if not configs and not any(text.strip() for text in texts.values()):
        names = ", ".join(texts)
        raise CourseError(
            f"{names} must not be empty. Name the tasks' logs, or add --tf-config FILE."
        )
    found = diagnose_cluster(texts, configs)
    if arguments.json:
        print(json.dumps(asdict(found) if found else None, indent=2))
    elif found is None:
        print(describe_unknown(texts))
    else:
        print(f"{found.task or 'cause'}: {found.cause}\ncure: {found.cure}")
        if found.evidence:
            print(f"seen: {found.evidence}")
        if found.place:
            print(f"at: {found.place}")
    return 1 if found else 0


def describe_unknown(texts: dict[str, str]) -> str:
    """Return what there is to say of logs without a known cause."""
    lines = [f"{name}: is empty" for name, text in texts.items() if not text.strip()]
    if any(ERROR.search(text) for text in texts.values()):
        said = "no known cause. The first error is in the log of the task that ended first."
    else:
        said = "no error found. If the run failed, its error is in another log."
    return "\n".join([*lines, f"{count(len(texts), 'log')}: {said}"])


def read_configs(given: str, logs: Iterable[str]) -> dict[str, str]:
    """Return the TF_CONFIG of each log: that cluster with the task that the log's name says.

    A log whose name says no task has `given` as it stands. Raises CourseError for a file that
    can't be read, or no JSON.
    """
    try:
        text = given if given.lstrip().startswith("{") else Path(given).read_text()
        config = json.loads(text)
        jobs = dict(config["cluster"])
    except OSError as error:
        raise CourseError(
            f"--tf-config {given} can't be read ({error.strerror}). Name another file."
        ) from None
    except (ValueError, TypeError, KeyError):
        raise CourseError(
            f"--tf-config {shorten(given)} must be JSON with a cluster. `distlab tf-config "
            "lint` shows every mistake in it."
        ) from None
    found = {}
    for name in logs:
        said = re.search(
            rf"\b({'|'.join(map(re.escape, jobs))})[^0-9a-z]?(\d+)\b",
            "/".join(Path(name).parts[-2:]),
        )
        task = {"type": said[1], "index": int(said[2])} if said else config.get("task")
        found[name] = json.dumps({**config, "task": task})
    return found


def read_logs(name: str) -> dict[str, str]:
    """Return name -> text of a log, of every *.log in a folder, or of standard input for "-".

    A run's folder stands for its last attempt, with both logs of a task as one text.

    Raises CourseError, naming it, for what can't be read.
    """
    if name == "-":
        if sys.stdin.isatty():
            said = "distlab diagnose: reading a log from here, up to Ctrl-D; or name the logs"
            print(said, file=sys.stderr)
        return {"input": _read_tail(sys.stdin.buffer)}
    if not name:
        raise CourseError("LOG must not be empty. Name the tasks' logs, or their folder.")
    path = Path(name)
    try:
        if not path.is_dir():
            return {name: _read_end(path)}
        found = {str(each): _read_end(each) for each in sorted(path.glob("*.log"))}
        kept = [] if found else _find_last_attempt(path).rglob("std*.log")
        for each in sorted(kept, reverse=True):
            task = str(each.parent)  # stdout.log and stderr.log of one task
            found[task] = "\n".join(filter(None, (found.get(task), _read_end(each))))
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise CourseError(f"{name}: {reason}. Name the tasks' logs, or their folder.") from None
    if not found:
        raise CourseError(f"{name} has no *.log file. Name the tasks' logs.")
    return found


def _find_last_attempt(folder: Path) -> Path:
    """Return the newest attempt of a run in its folder; `folder` itself if there is none."""
    found = [path for path in folder.glob("attempt-*") if path.name[8:].isdecimal()]
    return max(found, key=lambda path: int(path.name[8:]), default=folder)


def _read_end(path: Path) -> str:
    with path.open("rb") as file:
        kind = os.fstat(file.fileno()).st_mode
        if stat.S_ISREG(kind):
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
        elif not stat.S_ISFIFO(kind):  # as in `distlab diagnose <(kubectl logs pod)`
            raise OSError(errno.EINVAL, "neither a file nor a pipe")
        return _read_tail(file)


def _read_tail(stream: BinaryIO) -> str:
    """Return the end of what a stream holds, however much that is."""
    tail = b""
    while piece := stream.read(TAIL_BYTES):
        tail = (tail + piece)[-TAIL_BYTES:]
    # without zeros: half of what PowerShell writes (UTF-16), and the holes of a sparse file
    return tail.replace(b"\0", b"").decode(errors="replace")
