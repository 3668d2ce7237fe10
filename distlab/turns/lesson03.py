"""Lesson 03: a rate that warms up, shares cut from files, what padding does to a weight."""

from distlab.turns.turn import Turn

WARM_UP = Turn(
    lesson="03",
    name="warm-up",
    answer="""
        def warm_up(epoch):  # counted from 0
            return 1e-3 * min(1, (epoch + 1) / 4)
    """,
    right="The first epoch already learns, and the rate stays at 1e-3 once it's there.",
    mistakes={
        "def warm_up(epoch):\n    return 1e-3 * min(1, epoch / 4)": (
            "Epochs are counted from 0, so the first one has the rate 0 and learns nothing."
        ),
        "def warm_up(epoch):\n    return 1e-3 * (epoch + 1) / 4": (
            "This doesn't stop at 1e-3: the eighth epoch has twice that."
        ),
        "def warm_up(epoch):\n    return 1e-3 / (epoch + 1)": "This falls. A warm-up rises.",
    },
    otherwise="It should be 0.25e-3 in epoch 0, 1e-3 in epoch 3, and 1e-3 in epoch 9.",
    cases=[(0,), (1,), (3,), (4,), (9,)],
)

FROM_FILES = Turn(
    lesson="03",
    name="from files",
    answer="[32, 32, 8, 0]",
    right="Each replica is filled up to its usual 32 before the next one gets any.",
    mistakes={
        "[18, 18, 18, 18]": "That's how arrays in memory are split. Files fill one replica after the other.",
        "[32, 40, 0, 0]": "No replica gets more than its usual 32.",
        "[32, 32, 32, 32]": "That's a full batch of 128. Only 72 examples are left.",
    },
    otherwise="Fill replica 0 up to 32, then replica 1, until the 72 are used up.",
)

PADDED = Turn(
    lesson="03",
    name="padded",
    answer="8 / 5  # divided by 8, where 5 is right",
    right="fit divides by 8, so the five real losses have to count 8/5 times.",
    mistakes={
        "1": "Then fit divides five losses by eight: 0.625 of the gradient.",
        "5 / 8": "That's the wrong way round: the step gets shorter still.",
        "8 / 3": "3 is the number of padding examples. How many are real?",
    },
    otherwise="fit adds up the weighted losses and divides by 8. What makes that the mean of 5?",
)
