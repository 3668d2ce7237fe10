"""Scenes, masks and predictions side by side, a color for each class."""

from collections.abc import Sequence

import numpy as np

from distlab import figures
from utils.data.masks import count_pixels, score_masks
from utils.data.scenes import MASK_CLASS_NAMES

# Petroff's ten colors (arXiv:2107.02270), as matplotlib's "petroff10"; black for the background
MIN_PIXELS = 20  # of a named garment
PALETTE = np.array(
    [
        (0, 0, 0),
        (63, 144, 218),
        (255, 169, 14),
        (189, 31, 1),
        (148, 164, 162),
        (131, 45, 182),
        (169, 107, 89),
        (231, 99, 0),
        (185, 172, 112),
        (113, 117, 129),
        (146, 218, 221),
    ],
    np.uint8,
)


def color(mask: np.ndarray) -> np.ndarray:
    """Return class numbers [height, width] as colors, uint8 [height, width, 3]."""
    return PALETTE[np.asarray(mask, np.int64)]


def draw_key() -> figures.Picture:
    """Return a patch of each class's color with its name."""
    patches = np.broadcast_to(PALETTE[:, None, None], (len(PALETTE), 4, 8, 3))
    names = [name.replace("/", "/\n") for name in MASK_CLASS_NAMES]
    return figures.images(patches, names, title="The classes of a mask", columns=6)


def draw_scenes(
    images: Sequence[np.ndarray], masks: Sequence[np.ndarray], title: str
) -> figures.Picture:
    """Return pictures [64, 64], each above its mask [64, 64], with what the mask shows."""
    names = [list_names(mask) for mask in masks]
    columns = [stack(image, mask) for image, mask in zip(images, masks, strict=True)]
    told = "; ".join(name.replace("\n", ", ") for name in names)
    return figures.images(
        np.stack(columns),
        names,
        title=title,
        columns=len(columns),
        alt=f"{title}. Each scene stands above its mask: {told}.",
    )


def draw_predictions(
    images: Sequence[np.ndarray],
    masks: Sequence[np.ndarray],
    predicted: Sequence[np.ndarray],
    title: str,
) -> figures.Picture:
    """Return pictures, each above its mask and its prediction, with the score and names."""
    rows = list(zip(images, masks, predicted, strict=True))
    scores = [f"{100 * score_one(mask, found):.0f} %" for _, mask, found in rows]
    names = [f"{score}\n{list_names(mask)}" for score, (_, mask, _) in zip(scores, rows)]
    told = "; ".join(
        f"{list_names(mask)} taken for {list_names(found)}, {score}".replace("\n", ", ")
        for score, (_, mask, found) in zip(scores, rows)
    )
    return figures.images(
        np.stack([stack(*row) for row in rows]),
        names,
        title=title,
        columns=len(rows),
        alt=f"{title}. Each scene stands above its mask and the prediction: {told}.",
    )


def stack(image: np.ndarray, *masks: np.ndarray) -> np.ndarray:
    """Return a picture above its masks in color, uint8 [height, 64, 3], a light line between."""
    parts = [np.broadcast_to(np.asarray(image, np.uint8)[..., None], (*image.shape, 3))]
    for mask in masks:
        parts += [np.full((2, image.shape[1], 3), 255, np.uint8), color(mask)]
    return np.concatenate(parts)


def score_one(mask: np.ndarray, predicted: np.ndarray) -> float:
    """Return the mean intersection over union of the garments of one scene, from 0 to 1."""
    return score_masks(count_pixels(mask, predicted)).garments


def list_names(mask: np.ndarray) -> str:
    """Return the classes of a mask, one a line, from MIN_PIXELS on."""
    counts = np.bincount(np.asarray(mask, np.int64).ravel(), minlength=len(MASK_CLASS_NAMES))
    shown = [MASK_CLASS_NAMES[k] for k in range(1, len(counts)) if counts[k] >= MIN_PIXELS]
    return "\n".join(shown) or "nothing"
