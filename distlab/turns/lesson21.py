"""Lesson 21: counts of replicas, what belongs inside the scope, a server's links, runs apart."""

from collections.abc import Callable
from typing import Any

from distlab.turns.turn import Turn


def _read_aggregation(given: Any) -> str | list[str]:
    """Return the name, also of the enum; in a list if TensorFlow would refuse to count with it."""
    name = str(getattr(given, "name", given)).strip().upper()
    return name if name in ("SUM", "MEAN", "ONLY_FIRST_REPLICA") else [name]


def _read_make(make: Callable[[Any], Any]) -> Any:
    """Return whether model and optimizer know the strategy that `make` was given.

    A bare word says that the model can't be trained.
    """
    import tensorflow as tf

    strategy = tf.distribute.MirroredStrategy(
        ["CPU:0"], cross_device_ops=tf.distribute.ReductionToOneDevice()
    )
    model = make(strategy)
    if model is None or model is ...:
        return model
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        return "not compiled"
    with strategy.scope():
        counter = type(tf.Variable(0.0, aggregation=tf.VariableAggregation.MEAN))
    inside = isinstance(getattr(optimizer.iterations, "_value", None), counter)
    knows = model.distribute_strategy is strategy
    with strategy.scope():
        outputs = model(tf.zeros([1, 4])).shape[-1]
    return [
        f"outputs: {outputs}",
        f"model: {'inside' if knows else 'outside'}",
        f"optimizer: {'inside' if inside else 'outside'}",
    ]


AGGREGATION = Turn(
    lesson="21",
    name="aggregation",
    answer='"SUM"',
    right="Each replica adds its own examples, and all of them count.",
    mistakes={
        '"MEAN"': "The mean of 16 and 16 is 16: one replica's share. That's right for a step counter.",
        '"ONLY_FIRST_REPLICA"': "That counts the first replica's examples only.",
        '"NONE"': "With NONE, TensorFlow refuses an update on several replicas.",
    },
    otherwise='One of "SUM", "MEAN" and "ONLY_FIRST_REPLICA".',
    read=_read_aggregation,
)
MAKE = Turn(
    lesson="21",
    name="make",
    answer="""
def make(strategy):
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    return model
""",
    right="Model and optimizer are made in the scope, so both know every replica.",
    mistakes={
        """
def make(strategy):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model
""": "Nothing here uses the strategy: this trains, on one device, without a word.",
        """
def make(strategy):
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model
""": (
            "compile makes the optimizer, and here that's outside the scope: its steps count once "
            "for each replica."
        ),
        """
def make(strategy):
    with strategy.scope():
        return keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
""": "The model isn't compiled, so `fit` has neither a loss nor an optimizer.",
    },
    otherwise="Three lines, two of them under `with strategy.scope():`.",
    read=_read_make,
)
SERVER = Turn(
    lesson="21",
    name="server",
    answer="""
def through_server(workers, servers):
    return workers / servers
""",
    right="Every worker fetches the whole model, and each server has its part of it.",
    mistakes={
        "def through_server(workers, servers):\n    return 2 * (workers - 1) / workers": (
            "That's what a rank of a ring sends. A server isn't in a ring."
        ),
        "def through_server(workers, servers):\n    return workers": (
            "That's one server. The model is divided over all of them."
        ),
        "def through_server(workers, servers):\n    return 1 / servers": (
            "That's for one worker, and all of them fetch it."
        ),
    },
    otherwise="How much of the model does a server hold, and how many workers fetch that part?",
    cases=[(2, 1), (64, 4), (256, 16)],
)
HOURS = Turn(
    lesson="21",
    name="hours",
    answer="""
def hours(runs, devices, alone, together):
    rounds = np.ceil(runs / devices)
    return rounds * alone, runs * together
""",
    right="Apart goes in full rounds; in turn, each run waits for the one before.",
    mistakes={
        """
def hours(runs, devices, alone, together):
    return runs / devices * alone, runs * together
""": "Apart, a run doesn't split: nine runs on eight devices take two full rounds.",
        """
def hours(runs, devices, alone, together):
    return np.ceil(runs / devices) * alone, together
""": "In turn, that's one run. All of them have to be done.",
        """
def hours(runs, devices, alone, together):
    return runs * alone, runs * together
""": "Apart, that's one device doing all the runs. The others have work too.",
        """
def hours(runs, devices, alone, together):
    return alone, runs * together
""": "Apart, that's right as long as there are as many devices as runs.",
    },
    otherwise="Two numbers: how many rounds of `alone`, and how many runs of `together`?",
    cases=[(1, 8, 70.0, 9.0), (8, 8, 70.0, 9.0), (9, 8, 70.0, 9.0), (40, 8, 70.0, 9.0)],
)
