"""Files replaced in one step (a reader sees the old or the new one, never half), and folders.

A folder that a run will write into is made and tried before the run, and held by one run.
"""

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from .errors import InputError

PART = ".part"  # how a file that isn't yet whole is named
LEAVING_SECONDS = 5.0  # that a run which has just been ended may take to let go


def write_atomically(path: Path, text: str, durable: bool = False, mode: int = 0o600) -> None:
    """Write `text` so that `path` holds all of it or what it held before.

    `durable` waits for the disk, so that this is true even when the power fails. The
    folder is made if it isn't there; `mode` is the file's. Raises OSError where it
    can't be written.
    """
    with replace_atomically(path, durable, mode) as stream:
        stream.write(text.encode(errors="backslashreplace"))


@contextlib.contextmanager
def replace_atomically(path: Path, durable: bool = False, mode: int = 0o600) -> Iterator[BinaryIO]:
    """Give a file to write in; when the block ends, it takes the place of `path`.

    After an exception `path` is as it was. For the rest as `write_atomically`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-", suffix=PART)
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            if durable:
                os.fsync(stream.fileno())
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    if durable:
        _sync_folder(path.parent)


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def make_folder(name: str, folder: Path) -> None:
    """Make `folder` and write a file into it, which vanishes; `name` is what the setting is called.

    Raises InputError now, rather than hours later, if that can't be done.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
    except OSError as error:
        raise InputError(
            f"{name} {folder} can't be written ({error.strerror}). Name another folder."
        ) from None


def hold_folder(name: str, folder: Path) -> int:
    """Lock `folder` for this run and return the descriptor. To close it is to let go (flock(2)).

    The lock ends with the process, however it ends, and leaves no file behind. A
    file system that has no locks is used without. Raises InputError if another
    run holds the folder for `LEAVING_SECONDS` more; `name` is what the setting is called.
    """
    descriptor, patience = os.open(folder, os.O_RDONLY), time.monotonic() + LEAVING_SECONDS
    while not _lock(descriptor):
        if time.monotonic() > patience:
            os.close(descriptor)
            raise InputError(
                f"{name} {folder} is in use: another run saves there. Wait for it, or name "
                "another folder."
            )
        time.sleep(0.1)
    return descriptor


def _lock(descriptor: int) -> bool:
    """Return False if another process holds the lock; True also if the file system has none."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True
