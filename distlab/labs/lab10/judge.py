"""Lab 10, parameter servers: what survives a lost server, where tables lie, staleness, a bound."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from distlab.exercises.comparing import Anything
from distlab.grading.judging import Judge, LabRules
from distlab.labs.lab10 import exercise as lab10
from distlab.labs.lab10.exercise import FEATURES, SERVERS, draw_events, draw_truth

RULES = LabRules(own_seconds=60, cell_seconds=200, submission_seconds=400, processes=True)


def expect_train(seed: int, every: int, way: str = "right") -> dict[str, Any]:
    """Return what a run that lost a server and a worker leaves, or a mistaken one."""
    ends = {"counted-anew": "more", "too-few-steps": "fewer"}
    found = {
        "a batch for each update": way != "too-few-batches",
        "checkpoints at multiples of every": way != "other-steps",
        "resumed from a checkpoint": way != "began-anew",
        "ended at": ends.get(way, "the number of steps"),
        "weights": np.zeros(FEATURES) if way == "nothing-trained" else draw_truth(seed),
    }
    if way in ("began-anew", "weights-forgotten", "other-steps", "too-few-batches", *ends):
        found["weights"] = Anything()
    if way in ("began-anew", "other-steps"):
        found["ended at"] = Anything()
    return found


def expect_partitioner(rows: int, way: str = "right") -> dict[str, Any]:
    pieces = {"not-cut": 1, "twice-as-many": 2 * SERVERS, "one-too-few": SERVERS - 1}
    count = pieces.get(way, SERVERS)
    sizes = [rows // count + (k < rows % count) for k in range(count)]
    others = {
        "not-cut": [1, 1],
        "twice-as-many": [4, 10],
        "one-too-few": [1, 4],
        "fixed-number": [3, 3],
    }
    return {
        "rows and server of each piece": [[size, k % SERVERS] for k, size in enumerate(sizes)],
        "pieces for 2 and 5 servers": others.get(way, [2, 5]),
    }


def expect_staleness(*case: int, way: str = "right") -> list[int]:
    """Return the staleness of each update, by closure, or what a mistake gives."""
    events = draw_events(*case)
    position = {event: k for k, event in enumerate(events)}
    closures = [number for kind, number in events if kind == "apply"]
    if way != "as-applied":
        closures.sort()
    kind = "read" if way == "reads-counted" else "apply"
    found = []
    for number in closures:
        first, last = position["read", number], position["apply", number]
        between = [
            what
            for what, _ in events[first + 1 : last]
            if what == kind or way == "everything-counted"
        ]
        before = [what for what, _ in events[:last] if what == "apply"]
        read = [what for what, _ in events[:first] if what == "apply"]
        counted = {"since-the-start": before, "version-read": read}.get(way, between)
        count = len(counted)
        if way == "still-open":
            count = sum(what == "read" for what, _ in events[:first]) - len(read)
        found.append(count + (way == "itself-counted"))
    return found


def expect_bound(
    seconds: Sequence[Sequence[float]], bound: int, way: str = "right"
) -> dict[str, Any]:
    """Return when a run under a bound ends, and how long each worker waits."""
    others = {"one-less": -1, "one-more": 1, "never-waited": 10**6, "always-synchronous": -bound}
    bound += others.get(way, 0)
    workers, steps = range(len(seconds)), len(seconds[0])
    ends = np.zeros((len(seconds), steps + 1))  # [worker, steps done]
    waited = np.zeros(len(seconds))
    for step in range(steps):
        done = max(step - bound, 0)
        for worker in workers:
            gate = ends[:, min(done, step)].max()
            gate = ends[worker - 1, done] if way == "neighbor" else gate
            if way == "barrier":
                gate = 0.0 if step % (bound + 1) else ends[:, step].max()
            begins = max(ends[worker, step], gate)
            waited[worker] *= way != "last-wait"
            waited[worker] += begins - ends[worker, step]
            begins = ends[worker, step] if way == "not-delayed" else begins
            ends[worker, step + 1] = begins + seconds[worker][step]
    last = ends[:, -1]
    if way == "busy-as-waiting":
        waited = waited + last.max() - last
    busy = np.sum(seconds, axis=1).max()
    end = {"end-of-the-first": last.min(), "end-without-waiting": busy}.get(way, last.max())
    return {"end": end, "waited": waited}


TRAIN = Judge(lab10.TRAIN, expect_train)
PARTITIONER = Judge(lab10.PARTITIONER, expect_partitioner)
STALENESS = Judge(lab10.STALENESS, expect_staleness)
BOUND = Judge(lab10.BOUND, expect_bound)
