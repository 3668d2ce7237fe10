"""Lesson 02: a value for each replica, a variable that they all write to, a mean of means."""

from types import SimpleNamespace

from distlab.turns.turn import Turn

_REPLICAS = [
    (SimpleNamespace(replica_id_in_sync_group=replica, num_replicas_in_sync=4),)
    for replica in range(4)
]

OWN_BLOCK = Turn(
    lesson="02",
    name="own block",
    answer="""
        def own_block(context):
            first = 2 * context.replica_id_in_sync_group
            return np.arange(first, first + 2.0)
    """,
    right="The replica's number says where its part begins.",
    mistakes={
        """
        def own_block(context):
            first = context.replica_id_in_sync_group
            return np.arange(first, first + 2.0)
        """: "These parts overlap: replica 0 has 0 and 1, replica 1 has 1 and 2. Parts begin 2 apart.",
        "def own_block(context):\n    return np.arange(2.0)": (
            "Each replica gets 0 and 1. The context knows which replica it is."
        ),
    },
    otherwise="Replica 0 gets 0 and 1, replica 3 gets 6 and 7. Where does replica r begin?",
    cases=_REPLICAS,
)

TOKENS = Turn(
    lesson="02",
    name="tokens",
    answer="'SUM'",
    right="Each replica adds its own tokens, and every copy has to hold those of all four.",
    mistakes={
        "'MEAN'": "Then each copy holds a quarter of the tokens that were really seen.",
        "'NONE'": "Then each copy counts its own replica alone, and they drift apart.",
        "'ONLY_FIRST_REPLICA'": "Then the tokens of three replicas are never counted.",
        "'SUM, on read'": (
            "Then each copy counts its own replica's tokens, and every read in every step has to "
            "add them up. Here each copy should hold the count of all."
        ),
    },
    otherwise="It's one of the five names in the left column of the picture.",
    read=lambda chosen: getattr(chosen, "name", chosen),  # tf.VariableAggregation.SUM, too
)

MEANS = Turn(
    lesson="02",
    name="means",
    answer="""
        def combine(means, counts):
            total = sum(m * n for m, n in zip(means, counts) if n > 0)
            return total / sum(counts)
    """,
    right="Each mean counts as often as it has examples, and an empty share isn't touched.",
    mistakes={
        "def combine(means, counts):\n    return np.mean(means)": (
            "An example on a replica with few of them counts for more, and one nan is enough "
            "to make everything nan."
        ),
        "def combine(means, counts):\n    return np.dot(means, counts) / np.sum(counts)": (
            "The weights are right, but 0 times nan is nan: the empty share has to be left out."
        ),
        "def combine(means, counts):\n    return np.nanmean(means)": (
            "nan is gone, but a mean over 1 example counts as much as a mean over 2."
        ),
    },
    otherwise="How many examples went into each mean? And what is 0 times nan?",
    cases=[
        ([2.5, 6.5, 20.0, float("nan")], [2, 2, 1, 0]),
        ([0.5, 6.5, 20.5, float("nan")], [2, 2, 2, 0]),
        ([0.5, 6.5, 16.0, 25.0], [2, 2, 1, 1]),
    ],
)
