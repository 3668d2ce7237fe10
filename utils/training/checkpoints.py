"""A run's checkpoints: held by one run at a time, saved whole, found again newest first."""

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from ..errors import InputError
from .folders import hold_folder, make_folder

KEPT = 3
NAME = "train"  # files are train-<steps>.index and train-<steps>.data-*
STATE_KEY = "state/.ATTRIBUTES/py_state"
UNREADABLE = (tf.errors.OpError, RuntimeError, ValueError, LookupError, AssertionError)


class CheckpointFolder:
    """The last checkpoints of one job in `folder`, named by the steps taken.

    What to resume from is found by the files themselves: TensorFlow's own list,
    the file `checkpoint`, lags behind after a kill and leaves entries out after
    the clock was set back. Raises InputError if the folder cannot be written, is
    held by another run, or holds what this program did not write.
    """

    def __init__(self, folder: str | Path, checkpoint: tf.train.Checkpoint) -> None:
        self.folder, self._checkpoint = Path(folder), checkpoint
        make_folder("checkpoint", self.folder)
        self._lock = hold_folder(self.folder)
        try:
            self._remove_partial()
            self._manager = self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> tf.train.CheckpointManager:
        listed = self.folder / "checkpoint"
        try:
            manager = tf.train.CheckpointManager(
                self._checkpoint, str(self.folder), max_to_keep=KEPT, checkpoint_name=NAME
            )
            damaged = listed.exists() and manager.latest_checkpoint is None
        except (ValueError, tf.errors.OpError):
            damaged = True
        if damaged:
            raise InputError(
                f"checkpoint {self.folder}: its file {listed.name!r} is damaged; remove that file, "
                f"and the run goes on from the newest {NAME}-* beside it"
            )
        for path in manager.checkpoints:  # the manager would delete them in time
            if not re.fullmatch(rf"{NAME}-\d+", Path(path).name):
                raise InputError(
                    f"checkpoint {self.folder}: holds {Path(path).name} of another program; "
                    "name another folder"
                )
        return manager

    def find(self) -> list[str]:
        """Return the checkpoints in the folder, the one with the most steps first."""
        steps = (re.fullmatch(rf"{NAME}-(\d+)\.index", name) for name in os.listdir(self.folder))
        newest_first = sorted((int(match[1]) for match in steps if match), reverse=True)
        return [str(self.folder / f"{NAME}-{number}") for number in newest_first]

    def save(self, steps_taken: int) -> str:
        """Save a checkpoint and return its path; raises InputError if it cannot be written."""
        try:
            return self._manager.save(checkpoint_number=steps_taken)
        except (tf.errors.OpError, OSError) as error:
            self._remove_partial()
            raise InputError(
                f"checkpoint {self.folder}: cannot be written ({describe_failure(error)})"
            ) from None

    def _remove_partial(self) -> None:
        """Remove what a save that was killed or failed left half written."""
        for folder in self.folder.glob(f"{NAME}-*_temp"):
            shutil.rmtree(folder, ignore_errors=True)

    def restore_newest(self, check: Callable[[dict[str, Any]], None]) -> str | None:
        """Restore the newest checkpoint that can be read and return its path, None without any.

        `check` gets its fingerprint before anything is restored, and raises if the
        run cannot go on from it. Raises InputError if none can be read.
        """
        found = self.find()
        restored = next((path for path in found if self._restore(path, check)), None)
        if found and restored is None:
            raise InputError(
                f"checkpoint {self.folder}: none of {len(found)} can be read; name another folder"
            )
        return restored

    def _restore(self, path: str, check: Callable[[dict[str, Any]], None]) -> bool:
        try:
            saved = json.loads(tf.train.load_checkpoint(path).get_tensor(STATE_KEY))["fingerprint"]
        except UNREADABLE:
            return False
        check(saved)
        try:
            self._checkpoint.restore(path).assert_existing_objects_matched()
        except UNREADABLE:
            return False
        return True

    def close(self) -> None:
        """Let go of the folder. Safe to call twice."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def describe_failure(error: Exception) -> str:
    """Return what the system said, on one line, without TensorFlow's names of nodes and files."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    last = str(error).strip().splitlines()[0].rsplit(";", 1)[-1]
    return re.sub(r"\[Op:\w+\]", "", last).strip()
