"""Lesson 13: a batch that divides evenly, a worker's part, what an epoch lost and doubled."""

from collections.abc import Callable
from typing import Any

import numpy as np

from distlab.turns.turn import Turn

_FILES = 16  # two random orders of them fit together once in 12,870


def _read_part(part_of: Callable[..., Any]) -> Any:
    """Return what two workers read of files of eight numbers, in order."""
    import tensorflow as tf

    opened: list[int] = []

    def note(file: Any) -> Any:
        opened.append(int(file))
        return file

    def read(file: Any) -> Any:
        start = tf.numpy_function(note, [file], tf.int64)
        return tf.data.Dataset.range(8 * start, 8 * start + 8)

    numbers: list[list[int]] = []
    for index in range(2):
        part = part_of(tf.data.Dataset.range(_FILES), read, 2, index)
        if part is None or part is ...:
            return part
        numbers.append([int(n) for n in part.as_numpy_iterator()])
    seen = np.bincount(sum(numbers, []), minlength=8 * _FILES)
    return {
        "all once": bool((seen == 1).all()),
        "numbers of a worker": [len(part) for part in numbers],
        "files opened": len(opened),
        "shuffled": all(map(_is_mixed, numbers)),
    }


def _is_mixed(numbers: list[int]) -> bool:
    """Return whether the numbers of some file come in another order than in the file."""
    of_files = [[n for n in numbers if n // 8 == file] for file in range(_FILES)]
    return any(own != sorted(own) for own in of_files)


BATCH = Turn(
    lesson="13",
    name="batch",
    answer="""
def fit_batch(wanted, replicas):
    return wanted // replicas * replicas
""",
    right="Every replica gets the same number of examples, and no step is larger than you wanted.",
    mistakes={
        "def fit_batch(wanted, replicas):\n    return wanted // replicas": (
            "That's the share of one replica. The global batch is the share times the replicas."
        ),
        "def fit_batch(wanted, replicas):\n    return -(-wanted // replicas) * replicas": (
            "That rounds up, so the batch can be larger than wanted and no longer fit into memory."
        ),
        "def fit_batch(wanted, replicas):\n    return wanted - replicas": (
            "That's smaller, but it divides evenly only if `wanted` did."
        ),
    },
    otherwise="Round the share of one replica down, then multiply.",
    cases=[(30, 4), (35, 4), (32, 8), (100, 6)],
)
PART = Turn(
    lesson="13",
    name="part",
    answer="""
def part_of(files, read, workers, index):
    return files.shard(workers, index).flat_map(read).shuffle(16)
""",
    right="The files are cut before anything is read or shuffled, so the parts fit together.",
    mistakes={
        """
def part_of(files, read, workers, index):
    return files.flat_map(read).shard(workers, index).shuffle(16)
""": "Nothing is lost, but each worker reads every file and throws half away. Cut the files.",
        """
def part_of(files, read, workers, index):
    return files.flat_map(read).shuffle(64).shard(workers, index)
""": (
            "That's the mistake above: the workers cut two different orders, so some numbers go "
            "to both and just as many to neither."
        ),
        """
def part_of(files, read, workers, index):
    return files.shuffle(16).shard(workers, index).flat_map(read)
""": (
            "Each worker shuffles the files and then cuts its own order, so some files go to both "
            "workers and just as many to neither. Cut first."
        ),
        """
def part_of(files, read, workers, index):
    return files.shard(workers, index).shuffle(4).flat_map(read)
""": ("The parts are right, but the numbers of a file stay in order. Shuffle what was read."),
        """
def part_of(files, read, workers, index):
    return files.flat_map(read).shuffle(16)
""": "Each worker trains on everything: an epoch has become two.",
    },
    otherwise="Three stages: cut the files, read them, shuffle what was read.",
    read=_read_part,
)
FAULTS = Turn(
    lesson="13",
    name="faults",
    answer="""
def count_faults(times):
    return np.sum(times == 0), np.sum(times > 1)
""",
    right="Lost examples are zeros, doubled ones are above 1.",
    mistakes={
        "def count_faults(times):\n    return np.sum(times == 0), np.sum(times)": (
            "The second number adds up how often all of them were seen. Count those above 1."
        ),
        "def count_faults(times):\n    return len(times) - np.sum(times), np.sum(times > 1)": (
            "Lost and doubled examples cancel in that difference: an epoch of the right length "
            "gives 0. Count the zeros."
        ),
        "def count_faults(times):\n    return np.sum(times == 0), np.sum(times >= 1)": (
            "The second number counts those seen once as well."
        ),
    },
    otherwise="`times == 0` marks the examples that were never seen. Count the marks.",
    cases=[(np.array([1, 0, 2, 1, 0, 3, 1, 0, 0, 1]),), (np.array([1, 1, 1, 1]),)],
    read=lambda pair: [int(n) for n in pair],
)
