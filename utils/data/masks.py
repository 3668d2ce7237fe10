"""Score predicted masks: intersection over union, from one table of counts.

For a class, the pixels that are of it in both masks over the pixels that are of it in either
(the Jaccard index, as PASCAL VOC scores segmentation, Everingham and others 2010). It is
counted over all scenes together, so a class that is missing from one of them costs nothing.
"""

from dataclasses import dataclass

import numpy as np

from .scenes import MASK_CLASSES


@dataclass(frozen=True)
class MaskScore:
    """Intersection over union, each from 0 to 1; nan for a class that is in neither mask.

    `foreground` takes all garments as one class, `garments` is the mean over the classes of
    clothing, `of_class` has each class, the background first.
    """

    foreground: float
    garments: float
    of_class: tuple[float, ...]


def count_pixels(masks: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Return how often each true class was predicted as each: int64 [true class, predicted].

    Both are class numbers of the same shape. Counts of several batches may be added.
    """
    pairs = np.asarray(masks, np.int64).ravel() * MASK_CLASSES + np.asarray(predicted).ravel()
    return np.bincount(pairs, minlength=MASK_CLASSES**2).reshape(MASK_CLASSES, MASK_CLASSES)


def score_masks(counts: np.ndarray) -> MaskScore:
    """Return the scores of a table of counts, [true class, predicted class]; class 0 is background.

    The mean over garments leaves out classes that are in neither mask.
    """
    counts = np.asarray(counts, np.float64)
    both = np.diagonal(counts)
    either = counts.sum(axis=0) + counts.sum(axis=1) - both
    with np.errstate(invalid="ignore"):
        of_class = both / either
    shown = of_class[1:][either[1:] > 0]
    anything = counts.sum() - counts[0, 0]
    return MaskScore(
        foreground=float(counts[1:, 1:].sum() / anything) if anything else float("nan"),
        garments=float(shown.mean()) if len(shown) else float("nan"),
        of_class=tuple(float(value) for value in of_class),
    )
