"""A run's checkpoints: held by one run at a time, written whole, found again newest first.

TensorFlow writes a checkpoint in this order: the values into a folder `train-8_temp`, from
there to `train-8.data-00000-of-00001`, then `train-8.index`, and last the file `checkpoint`,
which lists the newest. A process that dies on the way leaves an earlier checkpoint and no
half of a new one. What that order can't help against is damage from outside: a disk that
was full, a copy cut short. Every block carries a CRC-32C, so reading every value finds it.

Several workers all save, because reading a variable that has one copy for each replica takes
all of them. The chief's files alone are kept
(https://www.tensorflow.org/tutorials/distribute/multi_worker_with_ctl).
"""

import contextlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import tensorflow as tf

from ..errors import InputError, RunError
from ..files import hold_folder, make_folder
from .worker_group import WorkerGroup

KEPT = 3
NAME = "train"  # files are train-<steps>.index and train-<steps>.data-*
LIST = "checkpoint"  # TensorFlow's own list of what is in the folder
UNREADABLE = (tf.errors.OpError, RuntimeError, ValueError, LookupError, AssertionError)

Check = Callable[[str], None]


@dataclass(frozen=True)
class Restored:
    """The place where a run resumes: `step` 0 and no `path` if it begins from the start.

    `skipped_checkpoints` names each damaged checkpoint that is newer than the restored one, and
    says why.
    """

    step: int = 0
    path: str | None = None
    skipped_checkpoints: tuple[str, ...] = ()


class CheckpointFolder:
    """The last checkpoints of one job in `folder`, named by the steps taken: `train-8`.

    What to restore is found by the files themselves: TensorFlow's list lags behind after a
    kill and leaves entries out after the clock was set back. A damaged one is written anew.
    With a `group` of several workers `save` and `restore_newest` are collective, and all
    workers but the chief save into a temporary folder. Use it in a `with` block, or call
    `close`. Raises InputError if the folder can't be written, is held by another run, or
    holds what another program wrote.
    """

    def __init__(
        self,
        folder: str | Path,
        checkpoint: tf.train.Checkpoint,
        group: WorkerGroup | None = None,
        *,
        name: str = NAME,
    ) -> None:
        self.shared, self.name, self._checkpoint = Path(folder), name, checkpoint
        self._group, self._newest = group, None
        self._manager: tf.train.CheckpointManager | None = None
        self._on_close = contextlib.ExitStack()
        with contextlib.ExitStack() as undo:
            if self.is_kept:
                self.folder = self.shared
                make_folder("checkpoint", self.folder)
                undo.callback(os.close, hold_folder("checkpoint", self.folder))
                self._refuse_other_programs()
                self._remove_partial()
            else:
                aside = undo.enter_context(tempfile.TemporaryDirectory(prefix="not-chief-"))
                self.folder = Path(aside)
            self._on_close = undo.pop_all()

    @property
    def is_kept(self) -> bool:
        """True on the chief, whose files are kept."""
        return self._group is None or self._group.is_chief

    @property
    def manager(self) -> tf.train.CheckpointManager:
        """TensorFlow's manager, for what wants one (`PreemptionCheckpointHandler`)."""
        if self._manager is None:
            if self.is_kept:
                write_list(self.folder, self.name, self._newest)
            self._manager = tf.train.CheckpointManager(
                self._checkpoint, str(self.folder), max_to_keep=KEPT, checkpoint_name=self.name
            )
        return self._manager

    def save(self, step: int) -> str:
        """Save a checkpoint after `step` steps; return its path, whole or not there at all.

        Raises InputError if it can't be written. Earlier checkpoints stay as they were.
        """
        try:
            return self.manager.save(checkpoint_number=step)
        except (tf.errors.OpError, OSError) as error:
            self._remove_partial()
            raise InputError(
                f"checkpoint_dir {self.folder} can't be written ({describe_failure(error)}). "
                "Name another folder, or make room."
            ) from None

    def restore_newest(self, check: Check | None = None) -> Restored:
        """Restore the newest intact checkpoint, the same on every worker; return which.

        `check` is called with its path before anything is restored, and raises if the run can't
        resume from it. Raises InputError if there are checkpoints and none is intact, and if the
        newest intact one belongs to a different run.
        """
        found = self._find(check)
        if found.path is not None:
            self._restore(str(self.shared / Path(found.path).name))
        return found

    def _find(self, check: Check | None) -> Restored:
        """Return what the chief found, on every worker. What it refuses, all of them refuse."""
        found, refusal = Restored(), None
        if self.is_kept:
            try:
                found = self._find_here(check)
            except InputError as error:
                refusal = str(error)
        if self._group is not None:
            step, path, skipped_checkpoints, refusal = self._group.broadcast(
                [found.step, found.path, found.skipped_checkpoints, refusal]
            )
            found = Restored(step, path, tuple(skipped_checkpoints))
        if refusal is not None:
            raise InputError(refusal)
        return found

    def _find_here(self, check: Check | None) -> Restored:
        found = latest_intact_checkpoint(self.shared, self.name)
        if found.path is None and found.skipped_checkpoints:
            raise InputError(
                f"checkpoint_dir {self.shared}: none of its {len(found.skipped_checkpoints)} "
                f"checkpoints can be read ({found.skipped_checkpoints[0]}). Name another "
                "folder."
            )
        if found.path is not None and check is not None:
            check(found.path)
        self._newest = found.step if found.skipped_checkpoints else None
        return found

    def _restore(self, path: str) -> None:
        try:
            self._checkpoint.restore(path).assert_existing_objects_matched()
        except UNREADABLE as error:
            if self.is_kept:
                raise InputError(
                    f"Checkpoint {path} doesn't fit this run ({describe_failure(error)}). "
                    "Use the same model and optimizer, or another folder."
                ) from None
            raise RunError(
                f"The chief restored checkpoint {path}, and {self._group.name} can't read it "
                f"({describe_failure(error)}). Name a folder that all workers share."
            ) from None

    def _refuse_other_programs(self) -> None:
        for name, _ in read_list(self.folder):  # the manager would delete them in time
            if step_of(name, self.name) is None:
                raise InputError(
                    f"checkpoint_dir {self.folder} holds {name} of another program. Name "
                    "another folder."
                )

    def _remove_partial(self) -> None:
        """Remove the half-written files of a killed or failed save."""
        for folder in self.folder.glob(f"{self.name}-*_temp"):
            shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """Let go of the folder. Safe to call twice."""
        self._on_close.close()

    def __enter__(self) -> "CheckpointFolder":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def latest_intact_checkpoint(folder: str | Path, name: str = NAME) -> Restored:
    """Return the newest intact checkpoint `name` in `folder`, and the damaged newer ones.

    A checkpoint is intact if every value of it can be read; `step` is 0 if there is none.

        print(latest_intact_checkpoint("checkpoints").step)
    """
    skipped_checkpoints = []
    for step in list_steps(folder, name):
        path = f"{folder}/{name}-{step}"
        damage = find_damage(path)
        if damage is None:
            return Restored(step, path, tuple(skipped_checkpoints))
        skipped_checkpoints.append(f"{name}-{step}: {damage}")
    return Restored(skipped_checkpoints=tuple(skipped_checkpoints))


def find_damage(path: str) -> str | None:
    """Return why the checkpoint at prefix `path` can't be trusted, None if it is whole.

    Reads every value of it: as many bytes as the checkpoint has.
    """
    try:
        reader = tf.train.load_checkpoint(path)
        for name in reader.get_variable_to_shape_map():
            reader.get_tensor(name)
    except UNREADABLE as error:
        return describe_failure(error)
    return None


def list_steps(folder: str | Path, name: str = NAME) -> list[int]:
    """Return the steps of all checkpoints in `folder`, the newest first, whole or not."""
    matches = (re.fullmatch(rf"{name}-(\d+)\.index", file) for file in os.listdir(folder))
    return sorted((int(match[1]) for match in matches if match), reverse=True)


def write_list(folder: str | Path, name: str = NAME, newest: int | None = None) -> None:
    """Write TensorFlow's list anew from the files, up to and with step `newest` (None: all).

    TensorFlow's managers go by it: their `latest_checkpoint` must not be a skipped one, and they
    never tidy up files that it doesn't list. Done by the chief, while no worker saves.
    """
    steps = [s for s in reversed(list_steps(folder, name)) if newest is None or s <= newest]
    if not steps:
        return (Path(folder) / LIST).unlink(missing_ok=True)
    known, now = dict(read_list(folder)), time.time()
    times = [known.get(f"{name}-{step}", now) for step in steps]
    tf.compat.v1.train.update_checkpoint_state(
        os.path.abspath(folder),  # names in a relative folder would count from the working folder
        f"{name}-{steps[-1]}",
        [f"{name}-{step}" for step in steps],
        all_model_checkpoint_timestamps=times,
        last_preserved_timestamp=min(times) - 1,
    )


def read_list(folder: str | Path) -> list[tuple[str, float]]:
    """Return (name, time) of what TensorFlow's list holds; nothing if it can't be read."""
    try:
        state = tf.train.get_checkpoint_state(str(folder))
    except (ValueError, tf.errors.OpError):  # cut short
        state = None
    if state is None:
        return []
    names = [Path(path).name for path in state.all_model_checkpoint_paths]
    return list(zip(names, state.all_model_checkpoint_timestamps))


def step_of(file: str, name: str = NAME) -> int | None:
    """Return the step in the name of a checkpoint, None if it is another program's."""
    match = re.fullmatch(rf"{name}-(\d+)", file)
    return int(match[1]) if match else None


def describe_failure(error: Exception) -> str:
    """Return what the system said, on one line, without TensorFlow's names of nodes and files."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return re.sub(r"\[Op:\w+\]", "", lines[0].rsplit(";", 1)[-1]).strip()
