"""Lesson 11: the bytes of a step, and the speed that asynchronous training keeps."""

from distlab.turns.turn import Turn

MOVED = Turn(
    lesson="11",
    name="moved",
    answer="2 * 32 * 49 * 16 * 4 / 1024  # rows of 16 float32 numbers, there and back",
    right="The rows come to the worker, and gradients of the same size go back.",
    mistakes={
        "32 * 49 * 16 * 4 / 1024": "That's one way. The gradient of each row goes back to its server.",
        "2 * 200_704 * 16 * 4 / 1024": "That's the whole table. A batch touches 1,568 rows.",
        "2 * 32 * 16 * 4 / 1024": "That's one row for each image. An image has 49 tokens.",
        "2 * 32 * 49 * 16 / 1024": "That's numbers. A float32 has 4 bytes.",
    },
    otherwise="Rows × numbers in a row × bytes of a number, read and written, in KiB.",
)

KEPT = Turn(
    lesson="11",
    name="kept",
    answer="100 * (1 + 1 + 1 / 5) / 3",
    right="Two workers go on as before, and the slow one still gives a fifth.",
    mistakes={
        "100 / 5": "That's the synchronous group, in which all wait for the slowest.",
        "100 * 2 / 3": "The slow worker isn't lost: it gives a gradient five times as rarely.",
        "100": "The slow worker gives fewer gradients, and nobody makes up for it.",
    },
    otherwise="Add up how much each worker still gives, and divide by three.",
)
