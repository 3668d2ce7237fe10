"""Scenes: pictures of one to three garments with a mask that says what each pixel shows.

A scene is 64 by 64 pixels of faint noise, on which garments of Fashion-MNIST lie
at random places, one over the other. Its mask has a class for every pixel: 0 is background,
k + 1 the k-th class of Fashion-MNIST. A scene depends on the garments, a seed and its own number,
so any one of them can be drawn again at any time, and none need be kept. NumPy only.
"""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ..checks import check_count
from .catalog import FASHION_MNIST, IMAGE_SIZE
from .images import ImageData, Split
from .loading import load

SCENE_SIZE = 64
MASK_CLASSES = 11  # the background and the ten classes of Fashion-MNIST
MASK_CLASS_NAMES = ("Background", *FASHION_MNIST.class_names)
MAX_GARMENTS = 3
MAX_NOISE = 24  # of 255: the background is darker than nearly all that garments show
MIN_INK = 16  # of 255: where a garment's picture is darker, the background shows
SCENES = {"train": 6_000, "test": 1_000}  # drawn from the sample; six times as many from the full
SEEDS = {"train": 1, "test": 2}


@dataclass(frozen=True, eq=False)
class SceneSplit:
    """`scenes` scenes, drawn with `seed` from the garments of a split; none is kept."""

    garments: Split
    scenes: int
    seed: int

    def __len__(self) -> int:
        return self.scenes

    def draw(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return scene `number`: image uint8 [64, 64], 0 to 255, and mask uint8 [64, 64]."""
        return draw_scene(self.garments, self.seed, number)

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        return (self.draw(number) for number in range(self.scenes))

    def take(self, count: int) -> "SceneSplit":
        """Return the first `count` scenes."""
        return replace(self, scenes=count)

    def digest(self) -> str:
        """Return what two workers compare to see that they draw the same scenes."""
        digest = hashlib.sha1(f"{self.scenes} {self.seed}".encode())
        digest.update(self.garments.digest().encode())
        return digest.hexdigest()[:8]


class SceneData(ImageData):
    """Training and test scenes; no garment of one is in the other."""

    train: SceneSplit  # type: ignore[assignment] - as a Split, but that it draws its pairs
    test: SceneSplit  # type: ignore[assignment]

    def take(self, count: int) -> "SceneData":
        """Return the first `count` training scenes, and at most as many test scenes."""
        return replace(super().take(count), test=self.test.take(min(count, len(self.test))))


def load_scenes(
    full: bool = False,
    folder: str | os.PathLike[str] | None = None,
    train: int | None = None,
    test: int | None = None,
) -> SceneData:
    """Return `train` and `test` scenes of Fashion-MNIST, which `load` finds.

    The defaults are 6,000 and 1,000 from the bundled sample, 36,000 and 6,000 from the `full` set,
    whose `folder` is as in `load`. A scene and its mask are uint8 [64, 64]. Raises
    InputError as `load` does, and for numbers below 1.

        >>> image, mask = load_scenes(train=8, test=4).train.draw(0)
        >>> image.shape, mask.shape
        ((64, 64), (64, 64))
    """
    garments = load("fashion_mnist", full=full, folder=folder)
    counts = {"train": train, "test": test}
    splits = {}
    for name, usual in SCENES.items():
        count = (6 * usual if full else usual) if counts[name] is None else counts[name]
        check_count(f"{name} scenes", count)
        splits[name] = SceneSplit(getattr(garments, name), count, SEEDS[name])
    source = f"scenes of {garments.source}"
    return SceneData("fashion-scenes", source, full, **splits, class_names=MASK_CLASS_NAMES)


def draw_scene(garments: Split, seed: int, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Return image and mask, each uint8 [64, 64], of one scene with garments from `garments`.

    A later garment covers what was there before.
    """
    rng = np.random.default_rng([seed, number])
    image = rng.integers(0, MAX_NOISE, (SCENE_SIZE, SCENE_SIZE), dtype=np.uint8)
    mask = np.zeros((SCENE_SIZE, SCENE_SIZE), np.uint8)
    for place in rng.integers(0, len(garments), rng.integers(1, MAX_GARMENTS + 1)):
        top, left = rng.integers(0, SCENE_SIZE - IMAGE_SIZE + 1, 2)
        window = np.s_[top : top + IMAGE_SIZE, left : left + IMAGE_SIZE]
        garment = garments.images[place]
        covers = garment >= MIN_INK
        image[window][covers] = garment[covers]
        mask[window][covers] = 1 + garments.labels[place]
    return image, mask
