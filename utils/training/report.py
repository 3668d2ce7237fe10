"""The report of a training run. Imports no TensorFlow."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import RunError
from ..events import to_json_line
from ..measure import count
from ..placement import Devices

OWN = "own data"


# left out of the JSON if there is none
ABSENT = (
    "accuracy test_loss test_accuracy test_foreground_iou test_garments_iou loss_scale "
    "skipped_steps metrics test_metrics"
).split()
TESTED = ("loss", "accuracy", "foreground_iou", "garments_iou")  # separate fields
DEVICE_FIELDS = ("devices", "device_kinds", "all_reduce", "unused_gpus", "device_note")


@dataclass(frozen=True)
class TrainReport:
    """The outcome of one job; `loss` and `accuracy` have one number an epoch, from the very start.

    `loss` and `accuracy` are means over the epoch's training examples, taken before each step;
    `accuracy` is None if the loss isn't a classification's, and the test's numbers are None without
    test data. If the answer is a mask, `accuracy` counts pixels, and `test_foreground_iou` and
    `test_garments_iou` are the intersections over union of garments against background and of the
    garment classes, on average (`data.masks`). `metrics` and `test_metrics` hold the requested
    metrics by name, the first with one number per epoch. `images_per_second` is the examples/s of
    training alone (no evaluation, no checkpoints), this run's first epoch left out because it holds
    the compilation; None where no other epoch ran. `seconds` is the whole job's. `loss_scale` is
    float16's at the end, and `skipped_steps` those whose gradients overflowed; None without
    float16, and `skipped_steps` if workers don't wait for each other. `replicas` is the number on
    each worker. `devices` names the device of each replica, of all workers, and `device_kinds` what
    it is; `all_reduce` is how they added up gradients, None for one replica. `unused_gpus` are GPUs
    of these processes that no replica used. `resumed_from` is the checkpoint that the run resumed
    from, None for a run from the start; `skipped_checkpoints` are the damaged ones before it.
    """

    strategy: str
    replicas: int
    workers: int
    devices: list[str]
    device_kinds: list[str]
    all_reduce: str | None
    unused_gpus: int
    device_note: str
    dataset: str
    source: str
    examples: int
    loop: str
    global_batch_size: int
    epochs: int
    resumed_from: str | None
    skipped_checkpoints: tuple[str, ...]
    loss: list[float]
    accuracy: list[float] | None
    test_loss: float | None
    test_accuracy: float | None
    images_per_second: float | None
    seconds: float
    weights_checksum: str
    test_foreground_iou: float | None = None
    test_garments_iou: float | None = None
    loss_scale: float | None = None
    skipped_steps: int | None = None
    metrics: Mapping[str, list[float]] = field(default_factory=dict)
    test_metrics: Mapping[str, float] = field(default_factory=dict)
    weights: tuple[np.ndarray, ...] = ()

    def to_json(self) -> str:
        """Return everything but the weights as one JSON object on one line.

        A loss that isn't finite, because the run diverged, is null there.
        """
        record = {key: value for key, value in vars(self).items() if key != "weights"}
        return to_json_line(
            {k: v for k, v in record.items() if k not in ABSENT or v not in (None, {})}
        )

    def _count_replicas(self) -> str:
        replicas = count(self.replicas, "replica")
        return replicas if self.workers == 1 else f"{self.workers} workers of {replicas}"

    def __str__(self) -> str:
        rate, things = self.images_per_second, "examples" if self.dataset == OWN else "images"
        speed = f"{rate:,.0f} {things}/s" if rate else f"{things}/s need a second epoch"
        lines = [
            f"{self.dataset}, {self.examples:,} training examples from the {self.source}",
            f"{self.strategy}, {self._count_replicas()}, {self.loop} loop, "
            f"global batch {self.global_batch_size}",
            str(read_devices(vars(self))),
        ]
        lines += describe_resumption(self.resumed_from, self.skipped_checkpoints)
        accuracies = self.accuracy or [None] * len(self.loss)
        for epoch, means in enumerate(zip(self.loss, accuracies), start=1):
            others = {name: values[epoch - 1] for name, values in self.metrics.items()}
            lines.append(f"epoch {epoch:>3}: {_describe_means(*means, others)}")
        if self.test_loss is not None:
            means = self.test_loss, self.test_accuracy, self.test_metrics
            lines.append(f"test:      {_describe_means(*means)}")
        if self.test_foreground_iou is not None:
            ious = self.test_foreground_iou, self.test_garments_iou
            lines.append(
                "           IoU of foreground {:.4f}, mean of garments {:.4f}".format(*ious)
            )
        if self.loss_scale is not None:
            skipped = "" if self.skipped_steps is None else f", {self.skipped_steps} steps skipped"
            lines.append(f"loss scale {self.loss_scale:g}{skipped}")
        lines.append(f"{speed}, {self.seconds:.1f} s in all")
        return "\n".join(lines)


def read_devices(record: Mapping[str, Any]) -> Devices:
    """Return the devices that a report or a "start" event names."""
    return Devices(*(record[name] for name in DEVICE_FIELDS))


def describe_resumption(path: str | None, skipped_checkpoints: Iterable[str]) -> list[str]:
    """Return the lines that say where a run resumed, and what it skipped; none for neither."""
    lines = [] if path is None else [f"resumed from {path}, step {path.rsplit('-', 1)[1]}"]
    return lines + [f"skipped the damaged checkpoint {one}" for one in skipped_checkpoints]


def _describe_means(loss: float, accuracy: float | None, others: Mapping[str, float]) -> str:
    known = {"loss": loss} if accuracy is None else {"loss": loss, "accuracy": accuracy}
    return ", ".join(f"{name} {mean:.4f}" for name, mean in {**known, **others}.items())


class TrainingStopped(RunError):
    """Raised when a run stopped on request between two steps; `step` counts from the start."""

    def __init__(self, epoch: int, step: int, folder: str | None) -> None:
        self.epoch, self.step, self.folder = epoch, step, folder
        hint = f"Run it again with checkpoint {folder} to resume" if folder else "Nothing was saved"
        super().__init__(f"stopped in epoch {epoch + 1} after {step} steps. {hint}.")


def weights_checksum(weights: Iterable[np.ndarray]) -> str:
    """Return the SHA-256 of the weights' float64 little-endian bytes, one after the other."""
    digest = hashlib.sha256()
    for weight in weights:
        digest.update(np.ascontiguousarray(weight, dtype="<f8").tobytes())
    return digest.hexdigest()
