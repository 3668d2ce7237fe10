"""Lesson 19: how long a search takes apart, and a worker's part of a large prediction."""

import numpy as np

from distlab.turns.turn import Turn

APART = Turn(
    lesson="19",
    name="apart",
    answer="""
def seconds_apart(trials, workers, seconds):
    rounds = -(-trials // workers)
    return rounds * seconds
""",
    right="A worker does one trial at a time, and the last round may not be full.",
    mistakes={
        "def seconds_apart(trials, workers, seconds):\n    return trials * seconds / workers": (
            "That cuts a trial in two. With 5 trials and 4 workers, one worker does a second one."
        ),
        "def seconds_apart(trials, workers, seconds):\n    return trials // workers * seconds": (
            "That forgets the trials of the last round. Round up."
        ),
        "def seconds_apart(trials, workers, seconds):\n    return trials * seconds": (
            "That's one worker. The others do trials at the same time."
        ),
    },
    otherwise="How many rounds of at most `workers` trials?",
    cases=[(4, 4, 10.0), (5, 4, 10.0), (3, 4, 10.0), (12, 4, 2.0)],
)
PART = Turn(
    lesson="19",
    name="part",
    answer="""
def part_of(images, index, workers):
    return images[index::workers]
""",
    right="Every image is in one part, also if the count doesn't divide.",
    mistakes={
        """
def part_of(images, index, workers):
    count = len(images) // workers
    return images[index * count : (index + 1) * count]
""": "If the count doesn't divide, the last images are in no part at all.",
        "def part_of(images, index, workers):\n    return images[::workers]": (
            "All workers take the same images. Each begins at its own index."
        ),
        "def part_of(images, index, workers):\n    return range(index, len(images), workers)": (
            "Those are the places of the images. Return the images that are there."
        ),
        "def part_of(images, index, workers):\n    return images[index:workers]": (
            "That's a slice from `index` to `workers`, a few images at most."
        ),
    },
    otherwise="A slice with a start and a step: begin at the own index, take every `workers`-th.",
    cases=[
        (10 * np.arange(n), index, workers)
        for n, index, workers in ((10, 0, 3), (10, 2, 3), (8, 1, 4))
    ],
    read=lambda part: np.asarray(part).tolist(),
)
