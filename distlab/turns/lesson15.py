"""Lesson 15: what crosses a cut, a layout by columns, the bytes of ZeRO's stages."""

from collections.abc import Sequence

from distlab.turns.turn import Turn


def _read_layout(words: Sequence[str]) -> str | list[str]:
    """Return the words of a layout; a bare word if DTensor would refuse them."""
    cuts = [word for word in words if word != "unsharded"]
    known = set(cuts) <= {"batch", "model"} and len(set(cuts)) == len(cuts)
    return list(words) if len(words) == 2 and known else "no layout of W"


CROSSING = Turn(
    lesson="15",
    name="crossing",
    answer="2 * 32 * 10 * 8  # ten hidden values of each example, and as many gradients",
    right="Ten numbers of 8 bytes for each of 32 examples, there and back.",
    mistakes={
        "32 * 10 * 8": (
            "That's half of it. Each number crosses forward, and a gradient for it comes back, at 8 "
            "bytes (float64) each time."
        ),
        "2 * 32 * 784 * 8": (
            "Those are the images. They are on CPU:0 already; only what it computes from them "
            "crosses."
        ),
        "2 * 784 * 10 * 8": "Those are weights. They stay where they are.",
    },
    otherwise="How many numbers does dense 1 make for each example, and how often do they cross?",
)
COLUMNS = Turn(
    lesson="15",
    name="columns",
    answer='["unsharded", "model"]',
    right="Rows stay together, and the ten columns are divided over the mesh's dimension model.",
    mistakes={
        '["model", "unsharded"]': "The first axis of W is its rows: that splits by rows.",
        '["unsharded", "batch"]': (
            "That splits the columns over the dimension for examples. x is split over it already, "
            "and y needs both."
        ),
        '["batch", "model"]': "That splits both axes, so each device has a quarter of W.",
        '["rows", "model"]': (
            "A word is the name of a mesh dimension, each at most once, or unsharded."
        ),
    },
    otherwise="Two words, one for each axis of W [784, 10]: the name of a dimension, or unsharded.",
    read=_read_layout,
)
ZERO = Turn(
    lesson="15",
    name="zero",
    answer="""
def bytes_each(stage, ranks):
    weight = 2 / ranks if stage >= 3 else 2
    gradient = 2 / ranks if stage >= 2 else 2
    state = 12 / ranks if stage >= 1 else 12
    return weight + gradient + state
""",
    right="Each stage shards one more of the three, the largest first.",
    mistakes={
        "def bytes_each(stage, ranks):\n    return 16 / ranks if stage else 16": (
            "That's stage 3 for every stage. At stage 1 only the optimizer's state is sharded."
        ),
        """
def bytes_each(stage, ranks):
    weight = 2 / ranks if stage >= 1 else 2
    gradient = 2 / ranks if stage >= 2 else 2
    return weight + gradient + (12 / ranks if stage >= 3 else 12)
""": "The order is the other way round: the optimizer's state is sharded first, weights last.",
        "def bytes_each(stage, ranks):\n    return 16 - 4 * stage": (
            "More devices must leave less on each: what is sharded is divided by `ranks`."
        ),
    },
    otherwise="Add up three parts, 2, 2 and 12 bytes, each divided by `ranks` if it's sharded.",
    cases=[(0, 64), (1, 64), (2, 8), (3, 64)],
)
