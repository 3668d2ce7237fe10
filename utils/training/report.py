"""What a training run hands back. Imports no TensorFlow."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ..errors import InputError
from ..events import to_json_line


@dataclass(frozen=True)
class TrainReport:
    """The outcome of one job; `loss` and `accuracy` have one number an epoch, from the very start.

    `loss` and `accuracy` are means over the epoch's training examples, taken
    before each step. `images_per_second` is training alone (no evaluation, no
    checkpoints), this run's first epoch left out because it holds the compilation;
    None where no other epoch ran. `seconds` is the whole job's. `replicas` are those of
    each worker.
    """

    strategy: str
    replicas: int
    workers: int
    dataset: str
    source: str
    examples: int
    loop: str
    global_batch_size: int
    epochs: int
    loss: list[float]
    accuracy: list[float]
    test_loss: float
    test_accuracy: float
    images_per_second: float | None
    seconds: float
    weights_checksum: str
    weights: tuple[np.ndarray, ...] = ()

    def to_json(self) -> str:
        """Return everything but the weights as one JSON object on one line.

        A loss that is not finite, because the run diverged, is null there.
        """
        record = {key: value for key, value in vars(self).items() if key != "weights"}
        return to_json_line(record)

    def _count_replicas(self) -> str:
        replicas = _count(self.replicas, "replica")
        return replicas if self.workers == 1 else f"{self.workers} workers of {replicas}"

    def __str__(self) -> str:
        rate = self.images_per_second
        speed = f"{rate:,.0f} images/s" if rate else "images/s need a second epoch"
        lines = [
            f"{self.dataset}, {self.examples:,} training examples from the {self.source}",
            f"{self.strategy}, {self._count_replicas()}, {self.loop} loop, "
            f"global batch {self.global_batch_size}",
        ]
        for epoch, (loss, accuracy) in enumerate(zip(self.loss, self.accuracy), start=1):
            lines.append(f"epoch {epoch:>3}: loss {loss:.4f}, accuracy {accuracy:.4f}")
        lines.append(f"test:      loss {self.test_loss:.4f}, accuracy {self.test_accuracy:.4f}")
        lines.append(f"{speed}, {self.seconds:.1f} s in all")
        return "\n".join(lines)


class TrainingStopped(InputError):
    """A run that was asked to stop, and did so between two steps; `step` counts from the start."""

    def __init__(self, epoch: int, step: int, folder: str | None) -> None:
        self.epoch, self.step, self.folder = epoch, step, folder
        hint = f"run it again with checkpoint {folder} to go on" if folder else "nothing was saved"
        super().__init__(f"stopped in epoch {epoch + 1} after {step} steps; {hint}")


def weights_checksum(weights: Iterable[np.ndarray]) -> str:
    """Return the SHA-256 of the weights' float64 little-endian bytes, one after the other."""
    digest = hashlib.sha256()
    for weight in weights:
        digest.update(np.ascontiguousarray(weight, dtype="<f8").tobytes())
    return digest.hexdigest()


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
