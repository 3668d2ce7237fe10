"""Lesson 05: what to divide by, and what a replica adds of a penalty that all of them add."""

from collections.abc import Callable
from typing import Any

from distlab.turns.turn import Turn


def _call_on_replicas(own_part: Callable[[Any], Any], penalty: float) -> Any:
    """Return what each of four replicas adds, with `own_part` called there."""
    import tensorflow as tf

    devices, to_one = [f"CPU:{k}" for k in range(4)], tf.distribute.ReductionToOneDevice()
    strategy = tf.distribute.MirroredStrategy(devices, cross_device_ops=to_one)
    parts = strategy.run(own_part, args=(tf.constant(penalty, tf.float64),))
    if parts is None or parts is ...:
        return parts
    values = [float(part) for part in strategy.experimental_local_results(parts)]
    return values if len(values) == 4 else 4 * values  # all returned one object


DIVISOR = Turn(
    lesson="05",
    name="divisor",
    answer="4 * 16  # the global batch: the examples of all replicas",
    right="The four results are parts of one mean, so each is divided by the count of all examples.",
    mistakes={
        "16": "That's one replica's count: each result is then a mean, and four means are added up.",
        "4": "That's the number of replicas: the sum of all losses, divided by 4, is far too large.",
    },
    otherwise="How many losses does the mean go over, on all replicas together?",
)

PENALTY = Turn(
    lesson="05",
    name="penalty",
    answer="""
        def own_part(penalty):
            return penalty / 4
    """,
    right="Four equal parts add up to the penalty.",
    mistakes={
        "def own_part(penalty):\n    return penalty": (
            "Each of the four adds all of it, so the weights shrink four times too fast."
        ),
        "def own_part(penalty):\n    return penalty / 64": (
            "The penalty isn't a sum over examples. Divided by 64 and added up on four replicas, "
            "it's a sixteenth."
        ),
        "def own_part(penalty):\n    return penalty / 16": (
            "16 is the number of examples of one replica. The penalty doesn't depend on examples."
        ),
    },
    otherwise="The four replicas compute the same penalty, and what they return is added up.",
    cases=[(1.0,), (3.0,)],
    call=_call_on_replicas,
)
