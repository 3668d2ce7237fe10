"""Lesson 09: who is the chief, and which policy."""

from typing import Any

from distlab.turns.turn import Turn

_SMALL, _LARGE = ["worker"], ["chief", "ps", "worker"]


def _read_policy(chosen: Any) -> Any:
    """Return the name of a policy, given as a word or as tf.data's own, and FILE for AUTO."""
    name = getattr(chosen, "name", chosen)
    return "FILE" if str(name).strip().upper() == "AUTO" else name


CHIEF = Turn(
    lesson="09",
    name="chief",
    answer="""
        def is_first(job, index, jobs):
            return index == 0 and job == ("chief" if "chief" in jobs else "worker")
    """,
    right="Exactly one task in each cluster.",
    mistakes={
        "def is_first(job, index, jobs):\n    return index == 0": (
            "A cluster with a chief has a worker 0 and a ps 0 as well: three would save."
        ),
        "def is_first(job, index, jobs):\n    return job == 'chief'": (
            "A cluster of workers has no task called chief: nobody would save."
        ),
        "def is_first(job, index, jobs):\n    return job == 'worker' and index == 0": (
            "If there's a chief, worker 0 is a worker like the others."
        ),
    },
    otherwise="With a chief, that one. Without, worker 0. Nobody else.",
    cases=[
        ("worker", 0, _SMALL),
        ("worker", 1, _SMALL),
        ("chief", 0, _LARGE),
        ("worker", 0, _LARGE),
        ("ps", 0, _LARGE),
        ("worker", 0, ["ps", "worker"]),  # the first name of the list isn't always it
        ("ps", 0, ["ps", "worker"]),
    ],
)

POLICY = Turn(
    lesson="09",
    name="policy",
    answer="'FILE'",
    right="Each worker opens and decodes only its own files. (AUTO would do the same.)",
    mistakes={
        "'DATA'": "Then every worker decodes all the images, and throws seven of eight away.",
        "'OFF'": "Then every worker trains on all the images, and an epoch is eight times as long.",
    },
    otherwise="It's one of the titles of the three pictures. What does each worker read?",
    read=_read_policy,
)
