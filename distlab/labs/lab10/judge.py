"""Lab 10, parameter servers: what a coordinator should be asked, where tables lie, staleness."""

from collections.abc import Mapping, Sequence
from typing import Any

from distlab.labs.lab10 import exercise as lab10
from distlab.exercises.comparing import AnyOf, Anything
from distlab.labs.lab10.exercise import SERVERS, draw_events, draw_values
from distlab.grading.judging import Judge, LabRules

# To connect takes 32 kB, each closure of a worker's 3 to 4 kB, one that is called here 1.4 kB.
CONNECTED_BYTES, CLOSURE_BYTES = 30_000, 2_400


def bound_closures(inputs: Mapping[str, Any]) -> tuple[float, float]:
    """Return the least and the most bytes that the kernel may count."""
    count = sum(count for _, count in inputs["closure_cases"])
    return CONNECTED_BYTES + CLOSURE_BYTES * count, 2e7


RULES = LabRules(cell_seconds=120, submission_seconds=300, processes=True, visible_checks=False,
                 one_fork=True, traffic={"closures": bound_closures})  # fmt: skip


def expect_closures(seed: int, count: int, way: str = "right") -> dict[str, Any]:
    values = draw_values(seed, 4 * count + 4)
    scheduled = {"ran-here": 0, "one-too-few": count - 1}.get(way, count)
    ran = count - 1 if way == "one-too-few" else count
    joined: Any = {
        "fetched-in-loop": AnyOf((0, 1)),
        "joined-each-time": count,
        "never-joined": 0,
        "ran-here": 0,
    }.get(way, 1)
    total = values[:ran].sum() / (ran if way == "averaged" else 1)
    early = {"fetched-in-loop": 1, "joined-each-time": Anything(), "ran-here": None}
    return {
        "scheduled": scheduled,
        "joined": joined,
        "scheduled before the first fetch": early.get(way, scheduled),
        "closures run": ran,
        "sum": float(total),
    }


def expect_partitioner(rows: int, way: str = "right") -> dict[str, Any]:
    pieces = {"not-cut": 1, "twice-as-many": 2 * SERVERS, "one-too-few": SERVERS - 1}
    count = pieces.get(way, SERVERS)
    sizes = [rows // count + (k < rows % count) for k in range(count)]
    others = {"not-cut": [1, 1], "twice-as-many": [4, 10], "one-too-few": [1, 4],
              "fixed-number": [3, 3]}  # fmt: skip
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
        between = [what for what, _ in events[first + 1 : last]
                   if what == kind or way == "everything-counted"]  # fmt: skip
        before = [what for what, _ in events[:last] if what == "apply"]
        count = len(before) if way == "since-the-start" else len(between)
        found.append(count + (way == "itself-counted"))
    return found


def expect_start(own: int, clocks: Sequence[int], bound: int, way: str = "right") -> bool:
    """Return whether a worker may begin its next step, or what a mistake says."""
    if way == "behind-the-fastest":
        return max(clocks) - own <= bound
    if way == "never-equal":
        return own - min(clocks) < bound
    if way == "spread":
        return max(clocks) - min(clocks) <= bound
    if way in ("always", "never"):
        return way == "always"
    if way == "only-the-slowest":
        return own == min(clocks)
    if way == "mean":
        return own - sum(clocks) / len(clocks) <= bound
    return own - min(clocks) <= bound


CLOSURES = Judge(lab10.CLOSURES, expect_closures)
PARTITIONER = Judge(lab10.PARTITIONER, expect_partitioner)
STALENESS = Judge(lab10.STALENESS, expect_staleness)
START = Judge(lab10.START, expect_start)
