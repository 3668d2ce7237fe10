"""Lesson 23: a rank's share, the axis left for data, merging softmaxes, dropped tokens."""

import numpy as np

from distlab.turns.turn import Turn

HELD = Turn(
    lesson="23",
    name="held",
    answer="""
    def held(parameters, ranks, stage):
        weights = 2 / ranks if stage >= 3 else 2
        gradients = 2 / ranks if stage >= 2 else 2
        optimizer = 12 / ranks if stage >= 1 else 12
        return parameters * (weights + gradients + optimizer)
    """,
    right="Stage 1 shards the largest part, and each further stage shards one part more.",
    mistakes={
        "lambda parameters, ranks, stage: parameters * 16 / (ranks if stage else 1)": "You sharded "
        "everything from stage 1 on. Stage 1 shards only the optimizer's 12 bytes.",
        "lambda parameters, ranks, stage: parameters * (16 - 2 * (stage >= 1) * (1 - 1 / ranks)"
        " - 2 * (stage >= 2) * (1 - 1 / ranks) - 12 * (stage >= 3) * (1 - 1 / ranks))": "You "
        "sharded in the opposite order. The optimizer's 12 bytes come first, at stage 1.",
        "lambda parameters, ranks, stage: parameters * (4 / (ranks if stage >= 3 else 1)"
        " + 12 / (ranks if stage else 1))": "Stage 2 shards the gradients too; only the weights "
        "wait for stage 3.",
    },
    otherwise="Add up three parts per parameter: 2, 2 and 12 bytes, each divided or not.",
    cases=((7e9, 64, 0), (7e9, 64, 1), (7e9, 64, 2), (7e9, 64, 3)),
)

COPIES = Turn(
    lesson="23",
    name="copies",
    answer="512 // (8 * 4)",
    right="The axes multiply: 16 copies, each cut into 8 × 4 parts.",
    mistakes={
        "512 // (8 + 4)": "You added the two axes. Each of the 4 stages is cut into 8 parts: 8 × 4.",
        "512 // 8": "That leaves out the pipeline: each copy also has 4 stages.",
        "512": "That's all GPUs. One copy of the model takes 8 × 4 of them.",
    },
    otherwise="How many GPUs does one copy of the model take?",
)

JOIN = Turn(
    lesson="23",
    name="join",
    answer="""
    def join(top_a, sum_a, top_b, sum_b):
        top = max(top_a, top_b)
        return top, sum_a * np.exp(top_a - top) + sum_b * np.exp(top_b - top)
    """,
    right="Each sum is brought to the common maximum first, and no exponent is above 0.",
    mistakes={
        "lambda top_a, sum_a, top_b, sum_b: (max(top_a, top_b), sum_a + sum_b)": "The two sums "
        "have different bases: bring each to the common maximum before you add.",
        "lambda top_a, sum_a, top_b, sum_b: (max(top_a, top_b), sum_a * np.exp(max(top_a, top_b)"
        " - top_a) + sum_b * np.exp(max(top_a, top_b) - top_b))": "The exponents have the wrong "
        "sign: a sum with a smaller maximum has to shrink.",
        "lambda top_a, sum_a, top_b, sum_b: (top_a + top_b, sum_a * sum_b)": "That multiplies the "
        "two sums. We need their total.",
    },
    otherwise="Write both sums relative to the larger of the two maxima, then add them.",
    cases=((1.0, 2.0, 3.0, 1.5), (5.0, 1.2, 4.0, 3.0), (2.0, 1.0, 2.0, 1.0)),
)

KEEP = Turn(
    lesson="23",
    name="keep",
    answer="""
    def keep(choices, expert, capacity):
        wanted = [k for k, choice in enumerate(choices) if choice == expert]
        return wanted[:capacity]
    """,
    right="First come, first served, and the rest of them go unprocessed.",
    mistakes={
        "lambda choices, expert, capacity: [k for k, c in enumerate(choices) if c == expert]": "You "
        "kept every token that chose this expert. It takes only the first ones, up to capacity.",
        "lambda choices, expert, capacity: [k for k, c in enumerate(choices[:capacity])"
        " if c == expert]": "You looked at the first tokens of all. The capacity counts only tokens "
        "that chose this expert.",
        "lambda choices, expert, capacity: [k for k, c in enumerate(choices) if c == expert]"
        "[-capacity:]": "You kept the last ones. The first ones come first.",
    },
    otherwise="List the places of the tokens that chose this expert, then cut the list.",
    cases=(
        (np.array([2, 0, 2, 2, 1, 2]), 2, 2),
        (np.array([2, 0, 2, 2, 1, 2]), 1, 2),
        (np.array([1, 1, 1, 0]), 1, 2),
    ),
)
