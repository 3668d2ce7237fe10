"""Evaluation of a run on parameter servers: inline on its workers, or alongside it.

Inline: the coordinator schedules test batches as closures. The answer belongs to one
step; training waits. Sidecar: another process, outside the cluster, restores each
checkpoint as it appears. Training doesn't wait; the answers come later and
checkpoints may be skipped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import InputError
from ...events import report
from ..checkpoints import NAME, list_steps
from .coordination import Coordination
from .variables import list_weights

if TYPE_CHECKING:
    import keras
    import numpy as np
    import tensorflow as tf

POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Evaluation:
    """Loss and accuracy over `examples` after `step` steps."""

    step: int
    loss: float
    accuracy: float
    examples: int


def evaluate_inline(
    coordination: Coordination,
    model: keras.Model,
    images: np.ndarray,
    labels: np.ndarray,
    step: int,
    batch_size: int = 256,
) -> Evaluation:
    """Return loss and accuracy over all examples, computed on the workers; joins them first.

    `images` is [examples, 28, 28, 1] in [0, 1], `labels` [examples]. Each closure
    is given its batch and returns its sums: a batch that is run again because its worker
    died is still counted once.
    """
    import tensorflow as tf

    sums = tf.function(_make_sums(model), reduce_retracing=True)
    coordinator = coordination.coordinator
    coordinator.join()
    parts = [
        coordinator.schedule(sums, args=(images[i : i + batch_size], labels[i : i + batch_size]))
        for i in range(0, len(images), batch_size)
    ]
    coordinator.join()
    return _average(step, coordinator.fetch(parts))


def follow_checkpoints(
    folder: str | Path,
    build: Callable[[], keras.Model],
    images: np.ndarray,
    labels: np.ndarray,
    last_step: int,
    timeout_seconds: float = 60.0,
) -> list[Evaluation]:
    """Evaluate the checkpoints of another process's run as they appear, until `last_step`.

    `build` makes the same model in this process. Reports events "evaluation" with
    `step`, `loss` and `accuracy`. Raises InputError if `last_step` hasn't been saved
    after `timeout_seconds`.
    """
    import tensorflow as tf

    model = build()
    weights = tf.train.Checkpoint(weights=list_weights(model))
    sums = tf.function(_make_sums(model), reduce_retracing=True)
    found = []
    for step, path in _wait_for_checkpoints(Path(folder), last_step, timeout_seconds):
        try:
            weights.restore(path).expect_partial().assert_existing_objects_matched()
        except (tf.errors.NotFoundError, tf.errors.DataLossError):
            continue  # its run has deleted it meanwhile: a newer one is there
        found.append(_average(step, [sums(images, labels)]))
        report("evaluation", step=step, loss=found[-1].loss, accuracy=found[-1].accuracy)
    return found


def _wait_for_checkpoints(
    folder: Path, last_step: int, timeout_seconds: float
) -> Iterator[tuple[int, str]]:
    """Yield (step, path) of the newest checkpoint whenever there is a newer one."""
    deadline, seen = time.monotonic() + timeout_seconds, -1
    while seen < last_step:
        newest = max(list_steps(folder) if folder.is_dir() else [], default=-1)
        if newest > seen:
            seen = newest
            yield newest, str(folder / f"{NAME}-{newest}")
        elif time.monotonic() > deadline:
            last = f"the last was {seen}" if seen >= 0 else "there was none"
            raise InputError(
                f"The evaluator found no checkpoint of step {last_step} in "
                f"{timeout_seconds:.0f} s, {last}. Is the training still running?"
            )
        else:
            time.sleep(POLL_SECONDS)


def _make_sums(model: keras.Model) -> Callable[..., tuple[tf.Tensor, ...]]:
    """Return a function of a batch: the sum of its losses, its right answers, its size."""
    import tensorflow as tf

    def sums(images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, ...]:
        images, labels = tf.cast(images, tf.float32), tf.cast(labels, tf.int64)
        logits = tf.cast(model(images, training=False), tf.float32)  # [batch, 10]
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        right = tf.math.count_nonzero(tf.equal(tf.argmax(logits, axis=-1), labels))
        return tf.reduce_sum(losses), right, tf.size(labels)

    return sums


def _average(step: int, parts: list[Any]) -> Evaluation:
    loss, right, examples = (sum(float(part[i]) for part in parts) for i in range(3))
    if not examples:
        raise InputError("The evaluation needs at least one example, got none.")
    return Evaluation(step, loss / examples, right / examples, int(examples))
