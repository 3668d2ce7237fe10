"""Checkpoints that the coordinator saves between closures, and going on from the last one.

What dies with a parameter server is its part of the variables: only a checkpoint
brings them back. Workers hold nothing that is not elsewhere.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import InputError
from ...events import report
from .variables import unwrap

if TYPE_CHECKING:
    from .loop import AsynchronousLoop

KEPT = 3
NAME = "step"  # files are step-<steps>.index and step-<steps>.data-*
VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"


def list_weights(model: Any) -> list[Any]:
    """Return the TensorFlow variables of a Keras model, as a checkpoint names them: by place.

    Keras counts up the names of layers within a process, so names differ between
    runs. A variable that was cut is saved whole: a run on another number of servers, or
    a plain model in one process, can read it.
    """
    return [unwrap(variable) for variable in model.variables]


class Checkpoints:
    """The last checkpoints of a loop in `folder`: weights, optimizer and counts.

    The optimizer's variables are saved piece by piece: a run that goes on needs the
    same number of servers.
    """

    def __init__(self, folder: str | Path, loop: AsynchronousLoop) -> None:
        import tensorflow as tf

        self._steps = tf.Variable(0, dtype=tf.int64, trainable=False, name="steps_scheduled")
        self._state = {
            "weights": list_weights(loop.model),
            "optimizer": [unwrap(variable) for variable in loop.optimizer.variables],
        }
        checkpoint = tf.train.Checkpoint(**self._state, **loop.counts, steps=self._steps)
        self._manager = tf.train.CheckpointManager(
            checkpoint, str(folder), max_to_keep=KEPT, checkpoint_name=NAME
        )

    def save(self, steps: int) -> str:
        """Save a checkpoint after `steps` joined steps and return its path."""
        self._steps.assign(steps)
        return self._manager.save(checkpoint_number=steps)

    def restore(self) -> int:
        """Restore the last checkpoint and return its steps; 0 where there is none.

        Raises InputError for a checkpoint of another model or number of servers.
        """
        path = self._manager.latest_checkpoint
        if path is None:
            return 0
        self._check(path)
        self._manager.checkpoint.restore(path).assert_existing_objects_matched()
        return int(self._steps.numpy())

    def _check(self, path: str) -> None:
        """Compare shapes: a server takes a value of another shape without a word."""
        import tensorflow as tf

        saved = tf.train.load_checkpoint(path).get_variable_to_shape_map()
        for kind, variables in self._state.items():
            found = [saved.get(f"{kind}/{i}{VALUE}") for i in range(len(variables))]
            wanted = [list(variable.shape) for variable in variables]
            if found != wanted or f"{kind}/{len(variables)}{VALUE}" in saved:
                raise InputError(
                    f"checkpoint {path}: its {kind} do not fit this run; take the same model, "
                    "optimizer and number of servers, or another folder"
                )


def train_with_checkpoints(
    loop: AsynchronousLoop, folder: str | Path, steps: int, every: int
) -> tuple[list[Any], int]:
    """Take `steps` steps in all, with a checkpoint after each `every`; go on from the last one.

    Returns what `loop.run` did of this run's steps, and the step that it began at. Closures are
    joined before each save, so that what is saved belongs to one step; the pause is
    the price. Reports events "checkpoint" with `step`. Raises InputError for
    numbers below 1, and as `Checkpoints.restore` does.
    """
    if steps < 1 or every < 1:
        raise InputError(f"{steps} steps, a checkpoint every {every}: give 1 or more")
    checkpoints = Checkpoints(folder, loop)
    begun = checkpoints.restore()
    updates: list[Any] = []
    for start in range(begun, steps, every):
        end = min(start + every, steps)
        updates += loop.run(end - start)
        checkpoints.save(end)
        report("checkpoint", step=end, loss=updates[-1].loss)
    return updates, begun
