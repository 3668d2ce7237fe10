"""The folders that a run writes into: made and tried before training starts, held by one run."""

import fcntl
import os
import tempfile
from pathlib import Path

from ..errors import InputError


def make_folder(name: str, folder: Path) -> None:
    """Make `folder` and write a file into it, which vanishes; `name` is what the setting is called.

    Raises InputError now, rather than after the first epoch, if that cannot be done.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
    except OSError as error:
        raise InputError(f"{name} {folder}: cannot be written ({error.strerror})") from None


def hold_folder(folder: Path) -> int:
    """Lock `folder` for this run and return the descriptor; to close it is to let go (flock(2)).

    The lock ends with the process, however it ends, and leaves no file behind. A
    file system that has no locks is used without. Raises InputError if another
    run holds the folder.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise InputError(
            f"checkpoint {folder}: another run is saving there; wait for it, or name another folder"
        ) from None
    except OSError:
        pass
    return descriptor
