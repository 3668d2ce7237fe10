"""Lesson 05: what to divide by."""

from distlab.turns.turn import Turn

DIVISOR = Turn(
    lesson="05",
    name="divisor",
    answer="4 * 16  # the global batch: the examples of all replicas",
    right="The four results are parts of one mean, so each is divided by the count of all examples.",
    mistakes={
        "16": "That's one replica's count: each result is then a mean, and four means are added up.",
        "4": "That's the number of replicas: the sum of all losses, divided by 4, is far too large.",
    },
    otherwise="How many losses does the mean go over, on all replicas together?",
)
