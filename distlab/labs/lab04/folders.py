"""Folders that a run is resumed from: moved in between, as on another machine."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from distlab.exercises.folder import unpack_folder


def make_folder(root: str) -> str:
    """Return a new, empty folder inside `root`."""
    folder = os.path.join(root, "run")
    os.mkdir(folder)
    return folder


def move_folder(folder: str) -> str:
    """Return where a folder is after a move: what a process remembers of it is worth nothing.

    Its old path leads there too, for paths that were written into its files.
    """
    moved = f"{folder}-moved"
    os.rename(folder, moved)
    os.symlink(moved, folder)
    return moved


@contextmanager
def bring_folder(folder: str, files: list[Any]) -> Iterator[str]:
    """Yield the new place of a folder with these `files` (`pack_folder`); all goes in the end.

    The paths that it has had (`make_folder`, `move_folder`) lead there, too.
    """
    new, old = unpack_folder(files), os.path.dirname(folder)
    os.mkdir(old)
    for path in (folder, folder.removesuffix("-moved")):
        os.symlink(new, path)
    try:
        yield new
    finally:
        for place in (new, old):
            shutil.rmtree(place, ignore_errors=True)
