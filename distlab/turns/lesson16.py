"""Lesson 16: the bubble, what 1F1B keeps, an order that doesn't wait for itself."""

from collections.abc import Sequence

from distlab.turns.turn import Turn


def _read_order(order: Sequence[tuple[str, int]]) -> str | list[str]:
    """Return what becomes of an order for stage 1; a bare word if it isn't the four operations."""
    names = [f"{kind} {number}" for kind, number in order]
    if sorted(names) != ["BW 0", "BW 1", "F 0", "F 1"]:
        return "other operations"
    if any(names.index(f"BW {n}") < names.index(f"F {n}") for n in (0, 1)):
        return ["a backward comes before its forward"]
    waits = names.index("F 1") < names.index("BW 0")
    return ["it waits for micro-batch 1"] if waits else ["it runs"]


BUBBLE = Turn(
    lesson="16",
    name="bubble",
    answer="""
def bubble(stages, micro_batches):
    return (stages - 1) / (micro_batches + stages - 1)
""",
    right="A stage works for M micro-batches, and waits for the P - 1 other stages.",
    mistakes={
        "def bubble(stages, micro_batches):\n    return (stages - 1) / stages": (
            "That's the bubble of one batch in one piece. Each micro-batch adds work, and no wait."
        ),
        "def bubble(stages, micro_batches):\n    return (stages - 1) / micro_batches": (
            "That's waiting over working. The bubble is waiting over all the time."
        ),
        "def bubble(stages, micro_batches):\n    return stages / (micro_batches + stages)": (
            "Count again for one stage: alone it never waits, so its bubble must be 0."
        ),
    },
    otherwise="Take forwards only: from the first start to the last end, how many slots? How many are idle?",
    cases=[(4, 1), (4, 8), (1, 8), (8, 32)],
)
KEPT = Turn(
    lesson="16",
    name="kept",
    answer="""
def kept(stage, stages, micro_batches):
    return min(micro_batches, stages - stage)
""",
    right="One for itself and one for each stage after it, if there are as many micro-batches.",
    mistakes={
        "def kept(stage, stages, micro_batches):\n    return micro_batches": (
            "That's GPipe. Here a backward comes as soon as the last stage has one."
        ),
        "def kept(stage, stages, micro_batches):\n    return min(micro_batches, stage + 1)": (
            "The other way round: the last stage goes back at once and keeps one, stage 0 most."
        ),
        "def kept(stage, stages, micro_batches):\n    return min(micro_batches, stages - stage - 1)": (
            "Off by one: while later stages have one each, this stage holds its own as well."
        ),
        "def kept(stage, stages, micro_batches):\n    return stages - stage": (
            "With fewer micro-batches than stages there aren't as many to keep."
        ),
    },
    otherwise="How many stages come after this one? Each has one of its micro-batches in work.",
    cases=[(0, 4, 8), (3, 4, 8), (1, 8, 32), (0, 8, 2)],
)
ORDER = Turn(
    lesson="16",
    name="order",
    answer='[("F", 0), ("BW", 0), ("F", 1), ("BW", 1)]',
    right="Stage 1 returns micro-batch 0 at once, and that's what stage 0 is waiting for.",
    mistakes={
        '[("F", 0), ("F", 1), ("BW", 0), ("BW", 1)]': (
            "Stage 1 still waits for micro-batch 1, which stage 0 sends only after BW 0."
        ),
        '[("BW", 0), ("F", 0), ("BW", 1), ("F", 1)]': (
            "A backward needs its forward first: F 0, then BW 0."
        ),
        '[("F", 0), ("BW", 0)]': (
            "Stage 1 has four operations, each once: F and BW of micro-batches 0 and 1."
        ),
    },
    otherwise="The four operations of stage 1: F and BW of micro-batches 0 and 1, each once.",
    read=_read_order,
)
