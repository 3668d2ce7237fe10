"""Lesson 01: a third way to cut a product, what an optimizer keeps, what doesn't spread."""

import numpy as np

from distlab.turns.turn import Turn

_PARTS = [power * np.array([[1.0, 2.0], [3.0, 4.0]]) for power in (1, 10, 100, 1000)]

THIRD_CUT = Turn(
    lesson="01",
    name="third cut",
    answer="""
        def combine(parts):  # [64, 128] from each device
            return sum(parts)
    """,
    right="Each device holds a part of the sum over the pixels, so the parts are added: an all-reduce.",
    mistakes={
        "def combine(parts):\n    return np.concatenate(parts, axis=1)": (
            "That's right if each device has some of the columns. Here each part already has "
            "all 128 columns, but only a quarter of the pixels went into it."
        ),
        "def combine(parts):\n    return np.concatenate(parts, axis=0)": (
            "That's right if each device has some of the images. Here each part already has "
            "all 64 images, but only a quarter of the pixels went into it."
        ),
        "def combine(parts):\n    return sum(parts) / len(parts)": (
            "A product adds up over the pixels; the mean makes it four times too small."
        ),
    },
    otherwise="One number of the product is a sum over 784 pixels. Which part of it has each device?",
    cases=[(_PARTS,)],
)

MOMENTUM = Turn(
    lesson="01",
    name="momentum",
    answer="4 + 4 + 4  # the weight, its gradient, its momentum",
    right="Momentum keeps one number for each weight, where Adam keeps two.",
    mistakes={
        "16": "That's Adam's count, with two numbers for each weight. Momentum is one.",
        "8": "That's the weight and its gradient. What does the momentum need?",
        "3": "That's the number of arrays. How many bytes has one float32 number?",
    },
    otherwise="Count the arrays that are as large as the weights, at 4 bytes a number.",
)

SERIAL = Turn(
    lesson="01",
    name="serial",
    answer="""
        def seconds_on(devices, input_seconds, step_seconds):
            return input_seconds + step_seconds / devices
    """,
    right="Only the step is divided. The input takes as long as before, and comes first.",
    mistakes={
        """
        def seconds_on(devices, input_seconds, step_seconds):
            return (input_seconds + step_seconds) / devices
        """: "That divides the input as well, but one Python process still prepares every image.",
        """
        def seconds_on(devices, input_seconds, step_seconds):
            return max(input_seconds, step_seconds / devices)
        """: "That's the time if both run at once. Here the step waits until its batch is ready.",
    },
    otherwise="First the batch is prepared, by one process. Then the devices split the step.",
    cases=[(1, 1.0, 4.0), (2, 1.0, 4.0), (8, 1.0, 4.0), (4, 3.0, 2.0)],
)
