"""Lesson 10: the place in the data, and what saving and failing cost together."""

from distlab.turns.turn import Turn

PLACE = Turn(
    lesson="10",
    name="place",
    answer="""
        def find_place(done, per_epoch):
            return done // per_epoch, done % per_epoch
    """,
    right="The quotient is the number of finished epochs, and the remainder the batches of the next one that are already trained.",
    mistakes={
        "def find_place(done, per_epoch):\n    return done // per_epoch, 0": (
            "The epoch is right, but it starts at its first batch: some are trained twice."
        ),
        "def find_place(done, per_epoch):\n    return done // per_epoch + 1, done % per_epoch": (
            "Epochs count from 0: after 8 steps, at 5 per epoch, we're in epoch 1."
        ),
        "def find_place(done, per_epoch):\n    return done // per_epoch, done": (
            "The steps of finished epochs don't count: skip only this epoch's."
        ),
    },
    otherwise="After 8 steps, at 5 per epoch: epoch 1, and 3 of its batches are done.",
    cases=[(8, 5), (0, 5), (5, 5), (24, 5)],
)

OVERHEAD = Turn(
    lesson="10",
    name="overhead",
    answer="""
        def overhead(work, save, mtbf):
            return save / work + work / 2 / mtbf
    """,
    right="Saving costs less the rarer it is, and a failure costs more.",
    mistakes={
        "def overhead(work, save, mtbf):\n    return save / work + work / mtbf": (
            "A failure comes anywhere in the interval, so on average half of it is lost."
        ),
        "def overhead(work, save, mtbf):\n    return save / mtbf + work / 2 / mtbf": (
            "You save once in every interval of work, not once for each failure."
        ),
        "def overhead(work, save, mtbf):\n    return save / work": (
            "That's the saving alone: it would tell you never to save."
        ),
    },
    otherwise="Add two fractions: the seconds of a save per second of work, and what failures take.",
    cases=[(600.0, 30.0, 3600.0), (60.0, 30.0, 3600.0), (600.0, 1.0, 86_400.0)],
)
