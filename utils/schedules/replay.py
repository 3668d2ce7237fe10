"""Play a schedule: when does each operation start and end, and which stages wait for ever?

Both the checker (with no durations) and the simulator (with real ones) use
this one loop. It is driven by events: a stage runs its list until an operation
needs a result that isn't there, and the end of that operation wakes it.
"""

from collections import deque
from dataclasses import dataclass

import numpy as np

from ..errors import InputError
from .operations import KINDS, Operation, Schedule

FORWARD, BACKWARD, WEIGHT, BOTH = range(len(KINDS))
_INDEX = {kind: index for index, kind in enumerate(KINDS)}


@dataclass(frozen=True)
class Encoded:
    """A schedule as arrays over all operations, stage after stage, in each stage's order.

    `kinds` indexes KINDS. `firsts[stage]` is where the stage's operations begin
    in the arrays. Its last entry is the number of operations in all.
    """

    schedule: Schedule
    stages: np.ndarray
    kinds: np.ndarray
    micro_batches: np.ndarray
    chunks: np.ndarray
    firsts: np.ndarray

    def operation(self, number: int) -> tuple[int, Operation]:
        """Return the stage and the operation at `number` of the arrays."""
        stage = int(self.stages[number])
        return stage, self.schedule.orders[stage][number - int(self.firsts[stage])]


def encode(schedule: Schedule) -> Encoded:
    """Turn a schedule into arrays. Raises InputError for what isn't an operation of it."""
    if not schedule.orders:
        raise InputError("The schedule must have a list of operations for at least one stage.")
    lengths = [len(order) for order in schedule.orders]
    listed = [operation for order in schedule.orders for operation in order]
    try:
        kinds = np.array([_INDEX[operation.kind] for operation in listed], dtype=int)
        numbers = np.array([operation.micro_batch for operation in listed])
        chunks = np.array([operation.chunk for operation in listed])
        in_range = _within(numbers, schedule.micro_batches) and _within(chunks, schedule.chunks)
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        in_range = False
    if not in_range:
        raise InputError(_name_bad_operation(schedule))
    stages = np.repeat(np.arange(len(lengths)), lengths)
    firsts = np.concatenate([[0], np.cumsum(lengths)])
    return Encoded(schedule, stages, kinds, numbers.astype(int), chunks.astype(int), firsts)


def _within(numbers: np.ndarray, end: int) -> bool:
    if not numbers.size:
        return True
    return numbers.dtype.kind in "iu" and bool(np.all((numbers >= 0) & (numbers < end)))


def _name_bad_operation(schedule: Schedule) -> str:
    for stage, order in enumerate(schedule.orders):
        for place, operation in enumerate(order):
            where = f"stage {stage}, place {place}"
            if not isinstance(operation, Operation):
                return f"{where}: {operation!r} is no Operation"
            if operation.kind not in KINDS:
                return f"{where}: kind {operation.kind!r} is none of {', '.join(KINDS)}"
            for what, number, end in (
                ("micro-batch", operation.micro_batch, schedule.micro_batches),
                ("chunk", operation.chunk, schedule.chunks),
            ):
                whole = hasattr(number, "__index__") and not isinstance(number, bool)
                if not (whole and 0 <= number < end):
                    return f"{where}: {what} {number!r} doesn't exist: there are 0 to {end - 1}"
    return "micro-batches and chunks must be whole numbers"


def find_places(encoded: Encoded, *kinds: int) -> np.ndarray:
    """Return where each operation of `kinds` is in the arrays, -1 where it isn't.

    [stage, chunk, micro-batch]
    """
    schedule = encoded.schedule
    places = np.full((schedule.stages, schedule.chunks, schedule.micro_batches), -1)
    chosen = np.flatnonzero(np.isin(encoded.kinds, kinds))
    places[encoded.stages[chosen], encoded.chunks[chosen], encoded.micro_batches[chosen]] = chosen
    return places


def find_needs(encoded: Encoded) -> np.ndarray:
    """Return, for each operation, the place of the one in another part of the model it waits for.

    [operation]; -1 where it waits for none. A forward waits for the forward in
    the part before, a backward for the backward in the part after.
    """
    needs = np.full(len(encoded.kinds), -1)
    forward = find_places(encoded, FORWARD)
    backward = find_places(encoded, BACKWARD, BOTH)
    needs[_in_model_order(forward)[1:]] = _in_model_order(forward)[:-1]
    needs[_in_model_order(backward)[:-1]] = _in_model_order(backward)[1:]
    return needs


def _in_model_order(places: np.ndarray) -> np.ndarray:
    """[stage, chunk, micro-batch] -> [part of the model, micro-batch]: part c * P + s."""
    return places.swapaxes(0, 1).reshape(-1, places.shape[2])


@dataclass(frozen=True)
class Replay:
    """`starts` and `ends` of each operation [operation], and where each stuck stage waits.

    `stuck` maps a stage that can't continue to the place of its next operation.
    """

    starts: np.ndarray
    ends: np.ndarray
    stuck: dict[int, int]


def replay(encoded: Encoded, durations: np.ndarray, delay: float = 0.0) -> Replay:
    """Play `encoded`, each stage in its own order, every operation as early as it can be.

    `durations` are of each operation [operation], `delay` what a result takes
    from one stage to another, in the same unit. Sending doesn't occupy a
    stage. Since each stage's order is fixed, the order in which stages are
    looked at here changes no time. The schedule must be whole: see
    `find_local_fault`.
    """
    needs = find_needs(encoded)
    foreign = encoded.stages[needs] != encoded.stages
    lags = np.where((needs >= 0) & foreign, delay, 0.0).tolist()
    starts, ends = [0.0] * len(needs), [-1.0] * len(needs)
    last = encoded.firsts[1:].tolist()
    nexts, free = encoded.firsts[:-1].tolist(), [0.0] * encoded.schedule.stages
    needs, lengths = needs.tolist(), np.asarray(durations, dtype=float).tolist()
    waiting: dict[int, int] = {}  # the operation waited for -> the stage that waits
    ready = deque(range(encoded.schedule.stages))
    while ready:
        stage = ready.popleft()
        place, now = nexts[stage], free[stage]
        while place < last[stage]:
            need = needs[place]
            if need >= 0:
                if ends[need] < 0:
                    waiting[need] = stage
                    break
                now = max(now, ends[need] + lags[place])
            starts[place] = now
            now += lengths[place]
            ends[place] = now
            if place in waiting:
                ready.append(waiting.pop(place))
            place += 1
        nexts[stage], free[stage] = place, now
    stuck = {stage: place for stage, place in enumerate(nexts) if place < last[stage]}
    return Replay(np.array(starts), np.array(ends), stuck)
