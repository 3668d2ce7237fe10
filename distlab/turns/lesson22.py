"""Lesson 22: the loss of many pixels, and what a class is most often taken for."""

import numpy as np

from distlab.turns.turn import Turn, call_with_tensors

_EACH = np.random.default_rng(0).uniform(0.5, 3.0, size=(4, 64, 64)).astype("float32")
_COUNTS = np.random.default_rng(1).permutation(121).reshape(11, 11)  # no number twice
_COUNTS[np.diag_indices(11)] += 1000
_COUNTS[:, 0] += 500

AVERAGE = Turn(
    lesson="22",
    name="average",
    answer="""
def average(each, global_batch_size):
    of_scenes = tf.reduce_mean(each, axis=[1, 2])
    return tf.reduce_sum(of_scenes) / global_batch_size
""",
    right="First over the pixels of a scene, then over the scenes of all replicas.",
    mistakes={
        "def average(each, global_batch_size):\n    return tf.reduce_sum(each) / global_batch_size": (
            "The pixels are added up and only the scenes divide: that's too large by height times "
            "width."
        ),
        "def average(each, global_batch_size):\n    return tf.reduce_mean(each)": (
            "That divides by this replica's scenes. Its share is part of the global batch."
        ),
        """
def average(each, global_batch_size):
    return tf.reduce_mean(each) / global_batch_size
""": "That divides by the scenes twice: once in the mean, once by the global batch.",
    },
    otherwise="A mean over each scene's pixels, [replica's scenes], then their sum over the global batch.",
    cases=[(_EACH, 8), (_EACH, 4)],
    call=call_with_tensors,
    read=float,
    tolerance=1e-4,
)
TAKEN_FOR = Turn(
    lesson="22",
    name="taken_for",
    answer="""
def taken_for(counts, label):
    others = counts[label].copy()
    others[[0, label]] = 0
    return int(np.argmax(others))
""",
    right="A row holds what the pixels of one true class were called.",
    mistakes={
        "def taken_for(counts, label):\n    return int(np.argmax(counts[label]))": (
            "Most pixels are named correctly, or called background. Leave both out."
        ),
        """
def taken_for(counts, label):
    others = counts[:, label].copy()
    others[[0, label]] = 0
    return int(np.argmax(others))
""": "A column is the other question: which true classes were called `label`?",
        """
def taken_for(counts, label):
    others = counts[label].copy()
    others[label] = 0
    return int(np.argmax(others))
""": "That finds the background, class 0, which isn't a garment.",
    },
    otherwise="Take the row of the true class, set two entries to 0, and find the largest.",
    cases=[(_COUNTS, 1), (_COUNTS, 2), (_COUNTS, 4)],
)
