"""Lesson 04: when to save, and how many steps one call may take."""

from distlab.turns.turn import Turn

SAVE = Turn(
    lesson="04",
    name="save",
    answer="""
        def should_save(epoch, epochs):  # epoch counts from 1
            return epoch % 2 == 0 or epoch == epochs
    """,
    right="Every second epoch, and the last one whatever its number.",
    mistakes={
        "def should_save(epoch, epochs):\n    return epoch % 2 == 0": (
            "With five epochs the fifth is trained and never saved."
        ),
        "def should_save(epoch, epochs):\n    return epoch == epochs": (
            "Then a crash in the last epoch costs the whole run."
        ),
        "def should_save(epoch, epochs):\n    return epoch % 2 == 1 or epoch == epochs": (
            "This saves after epochs 1 and 3. Epochs count from 1 here."
        ),
    },
    otherwise="Of five epochs, save after 2, 4 and 5. Of four, after 2 and 4.",
    cases=[(1, 5), (2, 5), (3, 5), (4, 5), (5, 5), (3, 4), (4, 4), (5, 7), (7, 7)],
)

STEPS = Turn(
    lesson="04",
    name="steps per call",
    answer="np.gcd(10, 25)",
    right="Python gets its turn after 5, 10, 15 … steps, so neither a print nor a save is missed.",
    mistakes={
        "10": "Python then gets its turn after 10, 20, 30 steps: the save at 25 is missed.",
        "25": "Python then gets its turn after 25, 50, 75 steps: most prints are missed.",
        "50": "That's when both are due at once. Everything before it is missed.",
        "1": "Nothing is missed, but this is a call per step, and you can do with fewer.",
    },
    otherwise="10 and 25 must both be multiples of it, and it should be as large as possible.",
)
