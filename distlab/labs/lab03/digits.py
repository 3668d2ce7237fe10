"""Lab 03: the digits that its exercises train on, and the run of exercise 5."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from distlab.exercises.comparing import as_numbers, show
from distlab.exercises.refusing import refuse

TRAINING, VALIDATION, BATCH = 64, 32, 16  # of exercise 5
HEAVIER = 0.5  # by how much the losses on replica 1 weigh more
RUNS = (582, 2116, 4305, 4332, 5438, 5883)  # seeds of draw_run


def draw_digits(seed: int, examples: int) -> tuple[np.ndarray, np.ndarray]:
    """Return `examples` training examples of MNIST: uint8 [examples, 28, 28], int64 [examples]."""
    from utils.data import load

    picks = np.random.default_rng(seed).choice(10_000, size=examples, replace=False)
    train = load("mnist").train
    return train.images[picks], train.labels[picks]


def read_pass(dataset: Any, examples: int) -> list[tuple[np.ndarray, np.ndarray]] | None:
    """Return the pairs of one pass over a data set, None if it doesn't end."""
    pairs: list[tuple[np.ndarray, np.ndarray]] = []
    for pair in dataset:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise refuse(
                f"make_input: each element must be a pair (images, labels), got {show(pair)}."
            )
        pairs.append((np.asarray(pair[0]), np.asarray(pair[1])))
        if sum(len(np.atleast_1d(y)) for _, y in pairs) > 2 * examples:
            return None
    return pairs


def find_order(pairs: Sequence[tuple[np.ndarray, np.ndarray]], images: np.ndarray) -> list[int]:
    """Return the places among `images` of the images of a pass, told by the sums of pixels."""
    sums = images.reshape(len(images), -1).sum(axis=1)
    seen = np.array([np.sum(image, dtype=float) for x, _ in pairs for image in np.atleast_1d(x)])
    scaled = seen * (sums.max() / seen.max() if len(seen) and seen.max() else 1)
    return [int(np.argmin(np.abs(sums - one))) for one in scaled]


def describe_pairs(pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> dict[str, Any]:
    """Return what a data set holds: batch sizes, shape, type and range of pixels, labels.

    The sum of all pixels is there for each label, which tells images that have got
    another one's label.
    """
    if not pairs:
        return {"ends": True, "batch sizes": []}
    if any(y.ndim != 1 for _, y in pairs):
        return {"ends": True, "shape of a batch of labels": "not [batch]"}
    labels = np.concatenate([y for _, y in pairs]).astype(int)
    sums = [np.sum(image, dtype=float) for x, _ in pairs for image in x]
    seen = len(sums) == len(labels)
    ends = [(float(x.min()), float(x.max())) for x, _ in pairs]
    return {
        "ends": True,
        "batch sizes": [len(x) for x, _ in pairs],
        "labels": "integers" if all(y.dtype.kind in "iu" for _, y in pairs) else "floats",
        "image shape": list(pairs[0][0].shape[1:]),
        "pixel type": str(pairs[0][0].dtype),
        "pixel range": [float(np.min(ends)), float(np.max(ends))],
        "examples of each label": np.bincount(labels, minlength=10).tolist(),
        "pixels of each label": np.bincount(labels, sums, minlength=10).tolist() if seen else [],
    }


def draw_run(seed: int) -> dict[str, Any]:
    """Return a run's data: training and validation images and labels, and a rate an epoch.

    A quarter of the training labels are wrong, the third rate is high, and the last ruins the
    model. With the seeds of RUNS nothing but the validation loss tells which epoch is the best:
    training loss, accuracy and the first rise each point to another one.
    """
    near = np.random.default_rng(seed).uniform(0.99, 1.01)
    seed = RUNS[seed % len(RUNS)]
    images, labels = draw_digits(seed, TRAINING + VALIDATION)
    rng = np.random.default_rng(seed)
    rates = [*rng.uniform(0.1, 0.3, 2), rng.uniform(0.65, 0.9), rng.uniform(0.05, 0.3)]
    rates += [rng.uniform(0.4, 0.9), 2.0]
    labels = labels.copy()
    wrong = rng.random(TRAINING) < 0.25
    labels[:TRAINING][wrong] = (labels[:TRAINING][wrong] + rng.integers(1, 10, wrong.sum())) % 10
    return {
        "training": (images[:TRAINING], labels[:TRAINING]),
        "validation": (images[TRAINING:], labels[TRAINING:]),
        "rates": [float(near * rate) for rate in rates],
    }


def weigh_loss(labels: Any, logits: Any) -> Any:
    """Return the cross-entropy of each example, half as much again on replica 1."""
    import tensorflow as tf

    labels = tf.cast(tf.reshape(labels, [-1]), tf.int64)  # Keras gives floats
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    context = tf.distribute.get_replica_context()
    replica = context.replica_id_in_sync_group if context else 0
    return losses * (1 + HEAVIER * tf.cast(replica, losses.dtype))


def read_run(found: Any, seed: int) -> Any:
    """Add the signs in a kernel [784, 10] of how it was trained, and whether it is correct.

    The weights of a pixel that is black everywhere stay what they were at the start. All
    others are sums over the images of image times slope (one row of 10 for each image).
    """
    kernel = as_numbers(found.get("kernel")) if isinstance(found, dict) else None
    if kernel is None or kernel.shape != (784, 10):
        return found
    run = draw_run(seed)
    images, held_out = (run[part][0].reshape(-1, 784) / 255 for part in ("training", "validation"))
    black = ~(images.any(axis=0) | held_out.any(axis=0))
    return found | {
        "began at zero": bool(np.all(np.abs(kernel[black]) < 1e-6)),
        "each image once an epoch": _count_images(kernel, images, run["training"][1], run["rates"]),
    }


def _count_images(kernel: np.ndarray, images: np.ndarray, labels: np.ndarray, rates: Any) -> bool:
    """Return whether each image had its part in some epochs of batches of the right size.

    An image's part in its own label's weights is at most what it has where the model is quite
    wrong in all of them, and for some image nearly that.
    """
    parts, *_ = np.linalg.lstsq(images.T, kernel, rcond=None)  # [image, class]
    own = parts[np.arange(len(labels)), labels] * BATCH
    spanned = np.allclose(images.T @ parts, kernel, atol=1e-3 * np.abs(kernel).max())
    fits = any(0.8 < own.max() / most < 1 + HEAVIER for most in np.cumsum(rates)[1:5])
    return bool(spanned and own.min() > 0 and fits)
