"""Files that are replaced in one step: a reader sees the old or the new one, never half."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

PART = ".part"  # how a file that is not yet whole is named


def write_atomically(path: Path, text: str, durable: bool = False, mode: int = 0o600) -> None:
    """Write `text` so that `path` holds all of it or what it held before.

    `durable` waits for the disk, so that this is true even when the power fails. The
    folder is made if it is not there; `mode` is the file's. Raises OSError where it
    cannot be written.
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
