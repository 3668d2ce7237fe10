"""Checkpoints that the coordinator saves between closures, and resuming from the last one.

What dies with a parameter server is its part of the variables: only a checkpoint
brings them back. Workers hold nothing that isn't elsewhere.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import tensorflow as tf

from ...checks import check_count
from ...errors import InputError
from ...events import report
from ..checkpoints import CheckpointFolder
from .loop import AsynchronousLoop
from .variables import list_weights, unwrap

VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"


def train_with_checkpoints(
    loop: AsynchronousLoop, folder: str | Path, steps: int, every: int
) -> tuple[list[Any], int]:
    """Take `steps` steps in all, with a checkpoint after each `every`; resume from the last one.

    Returns what `loop.run` did of this run's steps, and the step that it began at.
    Closures are joined before each save, so that what is saved belongs to one step; the
    pause is the price. A checkpoint holds weights, optimizer and counts. The optimizer's
    variables are saved piece by piece, so a run that resumes needs the same number of
    servers. Reports events "checkpoint" with `step` and `loss`. Raises InputError for
    numbers below 1, for a checkpoint of another model or number of servers, and as
    `CheckpointFolder` does.
    """
    for name, value in (("steps", steps), ("every", every)):
        check_count(name, value)
    state = {
        "weights": list_weights(loop.model),
        "optimizer": [unwrap(variable) for variable in loop.optimizer.variables],
    }
    done: list[Any] = []
    with CheckpointFolder(folder, tf.train.Checkpoint(**state, **loop.counts)) as store:
        begun = store.restore_newest(partial(check_shapes, state)).step
        for start in range(begun, steps, every):
            end = min(start + every, steps)
            done += loop.run(end - start)
            store.save(end)
            report("checkpoint", step=end, loss=done[-1].loss)
    return done, begun


def check_shapes(state: Mapping[str, list[tf.Variable]], path: str) -> None:
    """Raise InputError unless the checkpoint at `path` holds variables shaped like `state`'s.

    A server takes a value of another shape without a word, so it must be seen before.
    """
    saved = tf.train.load_checkpoint(path).get_variable_to_shape_map()
    for kind, variables in state.items():
        found = [saved.get(f"{kind}/{i}{VALUE}") for i in range(len(variables))]
        wanted = [list(variable.shape) for variable in variables]
        if found != wanted or f"{kind}/{len(variables)}{VALUE}" in saved:
            raise InputError(
                f"Checkpoint {path} doesn't fit this run: its {kind} differ. Use the same "
                "model, optimizer and number of servers, or another folder."
            )
