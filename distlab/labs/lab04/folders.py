"""Folders that a run is resumed from: moved in between, as on another machine."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from distlab.exercises.folder import unpack_folder
from distlab.exercises.refusing import refuse


def make_folder(root: str) -> str:
    """Return a new, empty folder inside `root`."""
    folder = os.path.join(root, "run")
    os.mkdir(folder)
    return folder


@contextmanager
def move_folder(folder: str) -> Iterator[str]:
    """Move a folder, and yield its new path: what a process remembers of it is worth nothing.

    Raises AssertionError if an error within names the old path.
    """
    moved = os.path.join(os.path.dirname(folder), "moved")
    os.rename(folder, moved)
    try:
        yield moved
    except Exception as error:  # whatever TensorFlow or Python raises for a lost path
        if folder not in str(error):
            raise
        raise refuse(
            f"{type(error).__name__}: your code looks for a path in the folder's old place. The "
            "folder has been moved since: write down names, and join them to the folder it gets."
        ) from None


@contextmanager
def bring_folder(files: list[Any]) -> Iterator[str]:
    """Yield the new place of a folder with these `files` (`pack_folder`); it goes in the end."""
    folder = unpack_folder(files)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
