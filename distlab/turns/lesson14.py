"""Lesson 14: few widths, a mean with a fixed shape, how many steps before Python comes back."""

from collections.abc import Callable
from typing import Any

from distlab.turns.turn import Turn


def _read_mean(mean_above: Callable[[Any], Any]) -> Any:
    """Return the mean, and whether the program has a shape that depends on the data."""
    import tensorflow as tf

    values = tf.constant([4.0, 9.0, 1.0, 7.0, 2.0])
    given = mean_above(values, tf.constant(3.0))
    if given is None or given is ...:
        return given
    spec = tf.TensorSpec([5]), tf.TensorSpec([])
    ops = tf.function(mean_above).get_concrete_function(*spec).graph.get_operations()
    return {"mean": float(given), "fixed": not any(op.type == "Where" for op in ops)}


BUCKET = Turn(
    lesson="14",
    name="bucket",
    answer="""
def bucket(width):
    return -(-width // 4) * 4
""",
    right="Rounded up to the next multiple of 4: nothing is cut off, and few widths are left.",
    mistakes={
        "def bucket(width):\n    return width // 4 * 4": (
            "That rounds down, so pixels would be cut off. Padding goes up."
        ),
        "def bucket(width):\n    return width // 4 * 4 + 4": (
            "A width of 20 is a multiple of 4 already, and you pad it to 24."
        ),
        "def bucket(width):\n    return 28": (
            "That's one size for all: correct, but at width 20 eight of 28 columns are padding. "
            "Use the next multiple of 4."
        ),
    },
    otherwise="Try 20, 21 and 24: they belong into 20, 24 and 24.",
    cases=[(20,), (21,), (24,), (27,), (28,)],
)
MEAN_ABOVE = Turn(
    lesson="14",
    name="mean_above",
    answer="""
def mean_above(values, limit):
    above = values > limit
    kept = tf.where(above, values, 0.0)
    return tf.reduce_sum(kept) / tf.reduce_sum(tf.cast(above, tf.float32))
""",
    right="All five values stay, the small ones as zeros, and the count divides.",
    mistakes={
        """
def mean_above(values, limit):
    return tf.reduce_mean(tf.where(values > limit, values, 0.0))
""": "The shape is fixed, but the zeros are in the mean. Divide by how many are above.",
        """
def mean_above(values, limit):
    return tf.reduce_mean(tf.boolean_mask(values, values > limit))
""": (
            "The number is right, but the mask's length depends on the data, so the shape isn't "
            "fixed. tf.where with three arguments keeps it."
        ),
    },
    otherwise="Set the others to 0, add up, and divide by how many were above.",
    read=_read_mean,
)
STEPS = Turn(
    lesson="14",
    name="steps",
    answer="""
def choose_steps(step_ms, host_ms):
    return int(np.ceil(9 * host_ms / step_ms))
""",
    right="The host's time is then at most a tenth of the whole.",
    mistakes={
        "def choose_steps(step_ms, host_ms):\n    return int(np.ceil(host_ms / step_ms))": (
            "Then the device computes as long as the host takes: busy half of the time."
        ),
        "def choose_steps(step_ms, host_ms):\n    return int(np.ceil(10 * host_ms / step_ms))": (
            "Close: that makes the host's time a tenth of the device's, not of the whole."
        ),
        "def choose_steps(step_ms, host_ms):\n    return int(np.ceil(0.9 * host_ms / step_ms))": (
            "Write the share down first: n steps, over n steps plus the host's time, is 0.9."
        ),
    },
    otherwise="n · step / (n · step + host) must be 0.9 or more. Solve for n, and round up.",
    cases=[(1.0, 20.5), (3.0, 10.5), (50.0, 2.0)],  # 9 host / step isn't a whole number in any
)
