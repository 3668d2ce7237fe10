"""The one place that uses a network, and only when asked: a TFDS download with a time limit.

TFDS runs in a child process with its own process group. When the time is up, or
the caller is interrupted, the group is killed: no download can hang its caller or
outlive it.
"""

import contextlib
import math
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from ..environment import quiet_tensorflow
from ..errors import InputError
from ..processes.module_command import make_module_command
from .catalog import find_facts
from .tfds_folder import (
    find_prepared,
    move_into_place,
    read_full_prepared,
    replace_nothing,
    standard_folder,
)

DOWNLOAD_SECONDS = 120.0
RETRIES = 2
FAILURE = "download failed: "  # begins the line in which the child says why


def fetch(
    name: str,
    folder: Path | None = None,
    seconds: float = DOWNLOAD_SECONDS,
    command: list[str] | None = None,
) -> Path:
    """Download the full set `name` through TFDS into `folder` and return its prepared folder.

    `folder` is TFDS's standard one when None. `command` is what to run in the
    child, with three arguments added: the name, a temporary folder, the seconds;
    this module by default. What arrives is compared with the original's checksums before it is
    renamed into place. Raises InputError, in one line, when the time is up, the
    download fails, the content differs, or the data set is there already.
    """
    facts = find_facts(name)
    if not seconds > 0:
        raise InputError(f"The download's time limit must be above 0 seconds, got {seconds}.")
    folder = (standard_folder() if folder is None else folder.expanduser()).absolute()
    present = find_prepared(folder, facts.name)
    if present is not None:
        raise InputError(f"{present} exists already and isn't overwritten. Remove it first.")
    command = command or make_module_command(__spec__.name)
    with replace_nothing(folder / facts.name) as partial:
        arguments = [facts.name, str(partial), str(seconds)]
        _run_limited([*command, *arguments], seconds, facts.title)
        downloaded = find_prepared(partial, facts.name)
        if downloaded is None:
            raise InputError(
                f"The download of {facts.title} left no prepared folder. Start it again."
            )
        read_full_prepared(downloaded, facts)
        move_into_place(downloaded.parent, folder / facts.name)
    return folder / facts.name / downloaded.name


def _run_limited(command: list[str], seconds: float, title: str) -> None:
    """Run `command` to its end within `seconds`; InputError if it fails or isn't done."""
    with tempfile.TemporaryFile() as output, _process_group(command, output) as child:
        try:
            status = child.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise InputError(
                f"The download of {title} wasn't done after {seconds:g} s and was stopped. "
                "Check the network, or allow more with --timeout."
            ) from None
        if status != 0:
            output.seek(0)
            lines = output.read().decode(errors="replace").strip().splitlines()
            stated = [line.removeprefix(FAILURE) for line in lines if line.startswith(FAILURE)]
            reason = (stated or lines or [f"exit status {status}"])[-1].strip()[:200]
            raise InputError(f"The download of {title} failed ({reason}). Is there a network?")


@contextlib.contextmanager
def _process_group(command: list[str], output: object) -> Iterator[subprocess.Popen]:
    """Start `command` as the head of its own process group. Kill the whole group at the end."""
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        cwd=Path(__file__).parents[2],
    )
    try:
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def download_here(name: str, folder: str, seconds: float) -> None:
    """Download and prepare `name` in `folder` with TFDS in this process: what the child runs.

    Exits with one line if it fails. TFDS would retry an unreachable server for
    minutes; here it retries twice. An alarm ends the process some seconds after
    its limit, in case the parent was killed and can no longer do so.
    """
    signal.alarm(math.ceil(seconds) + 5)
    with quiet_tensorflow():
        import tensorflow_datasets as tfds
        from tensorflow_datasets.core.download import downloader

        downloader.MAX_RETRIES = RETRIES
        tfds.disable_progress_bar()
        try:
            tfds.builder(name, data_dir=folder, try_gcs=False).download_and_prepare()
        except Exception as error:  # noqa: BLE001 (whatever it was, the parent gets one line)
            sys.exit(f"\n{FAILURE}{_describe_failure(error)}")


def _describe_failure(error: Exception) -> str:
    request = getattr(error, "request", None)  # `requests` errors carry their request
    if request is not None and getattr(error, "response", None) is None:
        return f"{urlsplit(request.url).hostname} cannot be reached"
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


def main() -> None:
    download_here(sys.argv[1], sys.argv[2], float(sys.argv[3]))
