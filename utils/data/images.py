"""Labeled images in memory, as plain records of NumPy arrays."""

import hashlib
from dataclasses import dataclass, replace

import numpy as np

from ..errors import InputError
from .catalog import IMAGE_SIZE


@dataclass(frozen=True, eq=False)
class Split:
    """The examples of one split; the arrays are read-only.

    `images`: uint8 [examples, 28, 28], 0 to 255. `labels`: int64 [examples],
    an index into `ImageData.class_names`. Raises ValueError if the arrays are
    of another type or shape, or of different lengths.
    """

    images: np.ndarray
    labels: np.ndarray

    def __post_init__(self) -> None:
        images, labels = self.images, self.labels
        if images.dtype != np.uint8 or images.shape[1:] != (IMAGE_SIZE, IMAGE_SIZE):
            raise ValueError(
                f"images must be uint8 [examples, 28, 28], got {images.dtype} {images.shape}."
            )
        if labels.dtype != np.int64 or labels.shape != images.shape[:1]:
            raise ValueError(
                f"labels must be int64 [{images.shape[0]}], got {labels.dtype} {labels.shape}."
            )
        for array in (images, labels):
            array.setflags(write=False)

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, count: int) -> "Split":
        """Return the first `count` examples, without copying them."""
        return Split(self.images[:count], self.labels[:count])

    def digest(self) -> str:
        """Return what two workers compare to see that they have the same examples."""
        digest = hashlib.sha1(self.images)
        digest.update(self.labels)
        return digest.hexdigest()[:8]


@dataclass(frozen=True, eq=False)
class ImageData:
    """A data set in memory: where it came from, its two splits and its classes.

    `full` says whether it was read from the full set rather than the bundled
    sample; `source` says in words what was read.
    """

    name: str
    source: str
    full: bool
    train: Split
    test: Split
    class_names: tuple[str, ...]

    def take(self, count: int) -> "ImageData":
        """Return the same data with the first `count` training examples (and every test example).

        Raises InputError unless `count` is 1 to the number of training examples.
        """
        if not 1 <= count <= len(self.train):
            raise InputError(
                f"{self.name} has {len(self.train):,} training examples, so max_examples "
                f"must be from 1 to {len(self.train):,}, got {count}."
            )
        return replace(self, train=self.train.take(count))

    def __str__(self) -> str:
        return (
            f"{self.name}: {len(self.train):,} training and {len(self.test):,} test examples "
            f"from the {self.source}"
        )
