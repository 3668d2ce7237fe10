"""Folders that a run is resumed from: moved in between, as on another machine."""

import os


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
