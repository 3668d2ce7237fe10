"""Which checkpoints are whole: read to the last byte before one is trusted.

TensorFlow writes a checkpoint in this order: the values into a folder
`ckpt-8_temp`, from there to `ckpt-8.data-00000-of-00001`, then
`ckpt-8.index` beside it, and last the file `checkpoint`, which names the newest. A
process that dies on the way leaves the file `checkpoint` on the one before. What that
order cannot help against is damage from outside: a disk that was full, a copy cut
short, a file system that lost its last writes. Every block carries a CRC-32C, so
reading every value finds it.
"""

import re
import time
from pathlib import Path

import tensorflow as tf

from ..checkpoints import describe_failure

PREFIX = "ckpt"


def find_damage(path: str) -> str | None:
    """Return why the checkpoint at prefix `path` cannot be trusted, None if it is whole.

    Reads every value of it: as many bytes as the checkpoint has.
    """
    try:
        reader = tf.train.load_checkpoint(path)
        for name in reader.get_variable_to_shape_map():
            reader.get_tensor(name)
    except (tf.errors.OpError, RuntimeError, ValueError, IndexError) as error:
        return describe_failure(error)
    return None


def find_newest_whole(folder: str | Path) -> tuple[int, list[str]]:
    """Return the step of the newest whole checkpoint in `folder`, and what was passed over.

    Checkpoints are named after the steps taken: `ckpt-8`. The step is 0 where there is
    none; each line of the list names a damaged one, newer than the found one, and why.
    """
    names = (re.fullmatch(rf"{PREFIX}-(\d+)\.index", p.name) for p in Path(folder).glob("*.index"))
    passed_over = []
    for step in sorted((int(match[1]) for match in names if match), reverse=True):
        damage = find_damage(f"{folder}/{PREFIX}-{step}")
        if damage is None:
            return step, passed_over
        passed_over.append(f"{PREFIX}-{step}: {damage}")
    return 0, passed_over


def list_whole(folder: str | Path, step: int) -> None:
    """Write the file `checkpoint` anew, so that it ends with the checkpoint of `step`.

    TensorFlow's managers go by that file: their `latest_checkpoint` must not be one
    that `find_newest_whole` passed over. Done by the chief, while nobody saves.
    """
    listed = Path(folder) / "checkpoint"
    if step == 0:
        return listed.unlink(missing_ok=True)
    kept = {name: when for name, when in _read_list(folder) if 0 <= _step_of(name) < step}
    kept[f"{PREFIX}-{step}"] = time.time()
    tf.compat.v1.train.update_checkpoint_state(
        str(folder),
        f"{PREFIX}-{step}",
        list(kept),
        all_model_checkpoint_timestamps=list(kept.values()),
        last_preserved_timestamp=min(kept.values()) - 1,
    )


def _read_list(folder: str | Path) -> list[tuple[str, float]]:
    """Return (name, time) of what the file `checkpoint` lists; nothing if it cannot be read."""
    try:
        state = tf.train.get_checkpoint_state(str(folder))
    except ValueError:  # cut short
        state = None
    if state is None:
        return []
    names = [Path(path).name for path in state.all_model_checkpoint_paths]
    return list(zip(names, state.all_model_checkpoint_timestamps))


def _step_of(name: str) -> int:
    match = re.fullmatch(rf"{PREFIX}-(\d+)", name)
    return int(match[1]) if match else -1
