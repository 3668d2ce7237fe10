"""Lesson 07: what mirroring sends, and what to assign where assignments are added up."""

from distlab.turns.turn import Turn

MIRRORED = Turn(
    lesson="07",
    name="mirrored",
    answer="""
        def sent_by_mirroring(replicas):  # in V
            return 2 * (replicas - 1)
    """,
    right="The replica that adds up has its own gradient already, and keeps its own sum.",
    mistakes={
        "def sent_by_mirroring(replicas):\n    return 2 * replicas": (
            "That's central storage. Here one of the replicas adds up, and sends itself nothing."
        ),
        "def sent_by_mirroring(replicas):\n    return replicas - 1": (
            "That's the gradients. The sum has to come back."
        ),
        "def sent_by_mirroring(replicas):\n    return 0": "The weights never travel, but gradients do.",
    },
    otherwise="Who sends a gradient, and who needs the sum? Each time it's V.",
    cases=[(1,), (2,), (3,), (8,)],
)

ASSIGNED = Turn(
    lesson="07",
    name="assigned",
    answer="""
        def assigned(total, value):
            return total / 3 + value
    """,
    right="Three thirds of the old total make it once, and each new value is added once.",
    mistakes={
        "def assigned(total, value):\n    return total + value": (
            "That's Keras's way: the old total comes back three times."
        ),
        "def assigned(total, value):\n    return (total + value) / 3": (
            "That keeps the old total, but only a third of what's new: a count of examples would "
            "be three times too small."
        ),
        "def assigned(total, value):\n    return value": "The old total is lost.",
    },
    otherwise="What three replicas assign is added up: old total + three values has to come out.",
    cases=[(0.0, 1.0), (3.0, 2.0), (9.0, 3.0)],
)
