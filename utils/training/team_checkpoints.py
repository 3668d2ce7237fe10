"""Checkpoints of several workers: all of them save, and only the chief's are kept.

Variables that are added up when they are read (metrics, for example) make saving
collective, so every worker must take part, as TensorFlow's tutorial on multi-worker
training says. The chief writes into the run's folder, which all workers must see; the
others write into temporary folders of their own.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from ..errors import InputError
from .checkpoints import NAME, UNREADABLE, CheckpointFolder
from .team import Team

NOTHING = -1


class AsideFolder(CheckpointFolder):
    """A temporary folder for the checkpoints of a worker that is not the chief."""

    def __init__(self, checkpoint: tf.train.Checkpoint) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="aside-")
        super().__init__(self._temporary.name, checkpoint)

    def close(self) -> None:
        super().close()
        self._temporary.cleanup()


def open_checkpoints(
    team: Team, folder: str | Path, checkpoint: tf.train.Checkpoint
) -> CheckpointFolder:
    """Return where this worker saves: in `folder` if it is the chief, else aside."""
    if team.is_chief:
        return CheckpointFolder(folder, checkpoint)
    return AsideFolder(checkpoint)


def restore_together(
    team: Team,
    store: CheckpointFolder,
    folder: str | Path,
    checkpoint: tf.train.Checkpoint,
    check: Callable[[dict[str, Any]], None],
) -> None:
    """Restore on every worker the checkpoint that the chief restored, if there is one.

    Raises InputError where the chief's checkpoint cannot be read by this worker.
    """
    restored = store.restore_newest(check) if team.is_chief else None
    steps = team.share(NOTHING if restored is None else int(restored.rsplit("-", 1)[1]))
    if team.is_chief or steps == NOTHING:
        return
    path = Path(folder) / f"{NAME}-{steps}"
    try:
        checkpoint.restore(str(path)).assert_existing_objects_matched()
    except UNREADABLE:
        raise InputError(
            f"checkpoint {path}: the chief restored it and this worker cannot read it; name a "
            "folder that all workers share"
        ) from None
