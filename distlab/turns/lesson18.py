"""Lesson 18: where a policy ends, and how far off a gradient is."""

from collections.abc import Callable
from typing import Any

import numpy as np

from distlab.turns.turn import Turn


def _read_build(build: Callable[[str], Any]) -> Any:
    """Return the types of the model's computation, weights and answers.

    A bare word says that every later layer would have the policy too, ours included.
    """
    import keras

    before = keras.config.dtype_policy()
    try:
        model = build("mixed_bfloat16")
        changed = keras.config.dtype_policy() != before
    finally:
        keras.config.set_dtype_policy(before)
    if model is None or model is ...:
        return model
    if changed:
        return "changes the policy of all later layers"
    hidden = next(layer for layer in model.layers if layer.weights)
    return [
        f"computes in {hidden.compute_dtype}",
        f"keeps {hidden.weights[0].dtype}",
        f"answers in {model.outputs[0].dtype}",
    ]


BUILD = Turn(
    lesson="18",
    name="build",
    answer="""
def build(policy):
    hidden = keras.layers.Dense(8, "relu", dtype=policy)
    output = keras.layers.Dense(3, dtype="float32")
    return keras.Sequential([keras.Input((4,)), hidden, output])
""",
    right="The hidden layer multiplies in 16 bits, weights and logits stay in 32.",
    mistakes={
        """
def build(policy):
    layers = [keras.layers.Dense(n, dtype=policy) for n in (8, 3)]
    return keras.Sequential([keras.Input((4,)), *layers])
""": (
            "The output is in 16 bits too, so the softmax and the loss lose digits. "
            "The last layer takes float32."
        ),
        """
def build(policy):
    hidden = keras.layers.Dense(8, "relu", dtype="bfloat16")
    output = keras.layers.Dense(3, dtype="float32")
    return keras.Sequential([keras.Input((4,)), hidden, output])
""": (
            "bfloat16 without mixed_ keeps the weights in 16 bits as well, and small updates are "
            "rounded away. Pass the policy on."
        ),
        """
def build(policy):
    layers = [keras.layers.Dense(n, dtype="float32") for n in (8, 3)]
    return keras.Sequential([keras.Input((4,)), *layers])
""": "That's all float32. The hidden layer takes the policy.",
        """
def build(policy):
    keras.mixed_precision.set_global_policy(policy)
    layers = [keras.layers.Dense(8, "relu"), keras.layers.Dense(3, dtype="float32")]
    return keras.Sequential([keras.Input((4,)), *layers])
""": (
            "That sets the policy of every layer made from now on, in the whole notebook. "
            "Give `dtype=policy` to the hidden layer."
        ),
    },
    otherwise="Every Keras layer takes `dtype=`: the policy for one, float32 for the other.",
    read=_read_build,
)
_EXACT = np.array([3.0, -4.0, 12.0])
_BLOCK = np.array([[[3.0, -4.0], [12.0, 1.0]], [[5.0, 2.0], [-7.0, 6.0]]])  # as a head's kernel
ERROR = Turn(
    lesson="18",
    name="error",
    answer="""
def find_error(got, exact):
    return np.linalg.norm(got - exact) / np.linalg.norm(exact)
""",
    right="0 is exact, and 1 is as far off as no gradient at all.",
    mistakes={
        "def find_error(got, exact):\n    return np.linalg.norm(got - exact)": (
            "That's a distance: a large gradient is always far away. Divide by its norm."
        ),
        """
def find_error(got, exact):
    return np.abs(np.linalg.norm(got) - np.linalg.norm(exact)) / np.linalg.norm(exact)
""": (
            "That compares two norms, so a gradient in a wrong direction looks perfect. "
            "Subtract first, then take the norm."
        ),
        "def find_error(got, exact):\n    return np.mean(np.abs(got - exact) / np.abs(exact))": (
            "That divides weight by weight, so the tiniest entries decide, and a zero gives inf."
        ),
    },
    otherwise="The norm of the difference, over the norm of the exact gradient.",
    cases=[
        *((got, _EXACT) for got in (_EXACT, _EXACT * 1.5, _EXACT[::-1], _EXACT * 0)),
        (_BLOCK[::-1], _BLOCK),
    ],
    tolerance=1e-6,
)
