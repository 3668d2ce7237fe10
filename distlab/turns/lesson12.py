"""Lesson 12: a map for whole batches, the place of a cache, a cut before the shuffle."""

from collections.abc import Callable
from typing import Any

import numpy as np

from distlab.turns.turn import Turn, call_with_tensors

ENDLESS = "endless"


def _is_endless(made: Any) -> bool:
    return sum(1 for _ in made.take(2001)) > 2000  # twice the examples of the larger task


def _read_epochs(cached: Callable[[Any], Any]) -> Any:
    """Return what two epochs of `cached(numbers)` have in common, and how often it read.

    Returns ENDLESS for a dataset that doesn't end, which is then not used in the lesson.
    """
    import tensorflow as tf

    reads = tf.Variable(0)

    def count(number: Any) -> Any:
        reads.assign_add(1)
        return number

    made = cached(tf.data.Dataset.range(48).map(count))
    if made is None or made is ...:
        return made
    if _is_endless(made):
        return ENDLESS
    epochs = [[tuple(batch.ravel()) for batch in made.as_numpy_iterator()] for _ in range(2)]
    members = [{frozenset(batch) for batch in epoch} for epoch in epochs]
    return {
        "batches of 4": {len(batch) for batch in epochs[0]} == {4},
        "shuffled": epochs[0] != sorted(epochs[0]),
        "read again": int(reads.numpy()) > 48,
        "same order": epochs[0] == epochs[1],
        "same batches": members[0] == members[1],
    }


def _read_cut(cut: Callable[[Any], Any]) -> Any:
    """Return the sizes of the two parts, what they share, and whether training is shuffled.

    Returns ENDLESS if one of them doesn't end.
    """
    import tensorflow as tf

    made = cut(tf.data.Dataset.range(1000))
    if made is None or made is ...:
        return made
    if any(map(_is_endless, made)):
        return ENDLESS
    validation, training = ([int(n) for n in part.as_numpy_iterator()] for part in made)
    return {
        "sizes": [len(validation), len(training)],
        "shared": len(set(validation) & set(training)) > 0,
        "training shuffled": training != sorted(training),
    }


CENTER = Turn(
    lesson="12",
    name="center",
    answer="""
def center_batch(images):
    return images - tf.reduce_mean(images, axis=[1, 2], keepdims=True)
""",
    right="The mean goes over height and width only, so each image keeps its own.",
    mistakes={
        "def center_batch(images):\n    return images - tf.reduce_mean(images)": (
            "That subtracts the mean of the whole batch, so an image changes with its neighbors. "
            "Name the axes of one image."
        ),
        "def center_batch(images):\n    return images - tf.reduce_mean(images, axis=0)": (
            "Axis 0 is the batch: that's the mean image. Each image needs the mean of its pixels."
        ),
    },
    otherwise="Each image, minus its pixels' mean.",
    cases=[(np.arange(24, dtype="float32").reshape(2, 3, 4) ** 2,)],
    call=call_with_tensors,
    read=np.asarray,
)
CACHED = Turn(
    lesson="12",
    name="cached",
    answer="""
def cached(numbers):
    return numbers.cache().shuffle(48).batch(4)
""",
    right="Read once, and each epoch deals the examples into new batches.",
    mistakes={
        "def cached(numbers):\n    return numbers.shuffle(48).cache().batch(4)": (
            "The cache keeps the first epoch's order, so every epoch is the same. "
            "What changes belongs after the cache."
        ),
        "def cached(numbers):\n    return numbers.cache().batch(4).shuffle(12)": (
            "That shuffles whole batches: the same four examples stay together in every epoch."
        ),
        "def cached(numbers):\n    return numbers.shuffle(48).batch(4)": (
            "There is no cache, so every epoch reads everything again."
        ),
        "def cached(numbers):\n    return numbers.cache().batch(4)": (
            "Nothing is shuffled, so every epoch has the numbers in their old order."
        ),
        "def cached(numbers):\n    return numbers.cache().shuffle(48)": (
            "The order of the two stages is right. The batches of 4 are missing."
        ),
        "def cached(numbers):\n    return numbers.cache().shuffle(48).batch(4).repeat()": (
            "repeat() makes a dataset that doesn't end, so no epoch does either. Leave it out: "
            "each `for` loop over a dataset is one epoch."
        ),
    },
    otherwise="What stays the same in every epoch goes into the cache. What changes comes "
    "after it: first the shuffle, then the batches.",
    read=_read_epochs,
)
CUT = Turn(
    lesson="12",
    name="cut",
    answer="""
def cut(numbers):
    return numbers.take(100), numbers.skip(100).shuffle(900)
""",
    right="The cut is made in a fixed order, and only what is trained on is shuffled.",
    mistakes={
        """
def cut(numbers):
    shuffled = numbers.shuffle(1000)
    return shuffled.take(100), shuffled.skip(100)
""": (
            "A shuffle draws a new order each time it is iterated, so the two parts are cut from "
            "two orders, and most of the validation examples are trained on."
        ),
        "def cut(numbers):\n    return numbers.take(100), numbers.shuffle(1000)": (
            "The training part still has all 1,000, the validation examples included."
        ),
        "def cut(numbers):\n    return numbers.take(100), numbers.skip(100)": (
            "The parts are right. Now shuffle the training part."
        ),
        """
def cut(numbers):
    return numbers.take(100), numbers.skip(100).shuffle(900).repeat()
""": "repeat() makes a dataset that doesn't end: 900 examples become endlessly many. Leave it out.",
    },
    otherwise="Cut first: 100 and the other 900. Then shuffle one of the two.",
    read=_read_cut,
)
