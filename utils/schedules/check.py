"""Say what is wrong with a pipeline schedule, in one line."""

from collections.abc import Iterable

import numpy as np

from ..errors import InputError
from .operations import KINDS, Schedule, read_schedule
from .replay import (
    BACKWARD,
    BOTH,
    FORWARD,
    WEIGHT,
    Encoded,
    Replay,
    encode,
    find_needs,
    find_places,
    replay,
)

_SHOWN_WAITS = 4


def check_schedule(
    schedule: Schedule | Iterable[Iterable[object]],
    micro_batches: int | None = None,
    chunks: int | None = None,
    stages: int | None = None,
) -> str | None:
    """Return None if `schedule` is complete and can run, else one line that says what is wrong.

    `schedule` is a Schedule, or for each stage a list of Operation or (kind, micro-batch[,
    chunk]) with `micro_batches` and `chunks` (1 when None) as further arguments. If you give
    `stages`, `micro_batches` or `chunks`, they must be the schedule's. Looks, in this order,
    for other sizes, items that aren't operations, a doubled or missing operation, a backward
    before its forward, W before its B, and a deadlock between stages. Raises InputError for
    lists without `micro_batches`.

        >>> check_schedule([[("F", 0), ("BW", 0)], [("F", 0), ("BW", 0)]], micro_batches=1)
    """
    if not isinstance(schedule, Schedule) and micro_batches is None:
        raise InputError(
            "micro_batches must be given with lists: the number of micro-batches in them."
        )
    try:
        if not isinstance(schedule, Schedule):
            schedule = read_schedule(schedule, micro_batches, 1 if chunks is None else chunks)
        wanted = {"stages": stages, "micro_batches": micro_batches, "chunks": chunks}
        for what, number in wanted.items():
            own = getattr(schedule, what)
            if number is not None and own != number:
                label = what.replace("_", "-")
                return f"the schedule has {own} {label}, and {number} are wanted"
        encoded = encode(schedule)
    except InputError as error:
        return str(error)
    fault = find_local_fault(encoded)
    if fault:
        return fault
    return find_deadlock(encoded, replay(encoded, np.zeros(len(encoded.kinds))))


def find_local_fault(encoded: Encoded) -> str | None:
    """Return what is wrong within a stage, whatever the others do; None if nothing is."""
    return _find_doubled(encoded) or _find_missing(encoded) or _find_disorder(encoded)


def _find_doubled(encoded: Encoded) -> str | None:
    schedule = encoded.schedule
    shape = (schedule.stages, len(KINDS), schedule.chunks, schedule.micro_batches)
    labels = (encoded.stages, encoded.kinds, encoded.chunks, encoded.micro_batches)
    flat = np.ravel_multi_index(labels, shape)
    twice = np.flatnonzero(np.bincount(flat, minlength=1) > 1)
    if twice.size:
        first, second = np.flatnonzero(flat == twice[0])[:2]
        stage, operation = encoded.operation(first)
        begin = encoded.firsts[stage]
        places = f"at places {first - begin} and {second - begin}"
        return f"stage {stage}: {operation} is doubled: it stands {places}"
    both, apart = find_places(encoded, BOTH), find_places(encoded, BACKWARD, WEIGHT)
    clash = np.argwhere((both >= 0) & (apart >= 0))
    if clash.size:
        stage, operation = encoded.operation(apart[tuple(clash[0])])
        whole = encoded.operation(both[tuple(clash[0])])[1]
        return f"stage {stage}: {operation} is doubled: {whole} already does it"
    return None


def _find_missing(encoded: Encoded) -> str | None:
    wanted = (
        ("F", find_places(encoded, FORWARD)),
        ("B", find_places(encoded, BACKWARD, BOTH)),
        ("W", find_places(encoded, WEIGHT, BOTH)),
    )
    for kind, places in wanted:
        lost = np.argwhere(places < 0)
        if lost.size:
            stage, chunk, micro_batch = lost[0]
            part = f" of chunk {chunk}" if encoded.schedule.chunks > 1 else ""
            name = f"{kind}{micro_batch}{part}"
            instead = "" if kind == "F" else f" (and no BW{micro_batch}{part})"
            return f"stage {stage}: {name} is missing{instead}"
    return None


def _find_disorder(encoded: Encoded) -> str | None:
    forward = find_places(encoded, FORWARD)
    backward = find_places(encoded, BACKWARD, BOTH)
    weight = find_places(encoded, WEIGHT, BOTH)
    for early, late in ((forward, backward), (backward, weight)):
        wrong = np.argwhere(early > late)
        if wrong.size:
            number, needed = late[tuple(wrong[0])], early[tuple(wrong[0])]
            (stage, operation), (_, first) = encoded.operation(number), encoded.operation(needed)
            return f"stage {stage}: {operation} comes before {first}, whose result it needs"
    return None


def find_deadlock(encoded: Encoded, played: Replay) -> str | None:
    """Return which stages wait for one another for ever; None if `played` came to its end."""
    if not played.stuck:
        return None
    needs = find_needs(encoded)
    stage, seen = next(iter(played.stuck)), []
    while stage not in seen:
        seen.append(stage)
        stage = int(encoded.stages[needs[played.stuck[stage]]])
    circle = seen[seen.index(stage) :]
    parts = []
    for stage in circle[:_SHOWN_WAITS]:
        place = played.stuck[stage]
        other, wanted = encoded.operation(needs[place])
        own = encoded.operation(place)[1]
        parts.append(f"stage {stage} is at {own} and waits for {wanted} of stage {other}")
    more = len(circle) - len(parts)
    return "deadlock: " + "; ".join(parts) + (f"; and {more} more" if more else "")
