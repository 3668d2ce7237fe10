"""A ring all-reduce as an answer ran it, and the first message that isn't what was due."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from distlab.exercises.exercise import AnswerTable

Chunks = list[list[np.ndarray]]  # [rank][chunk]
Place = tuple[int, int]  # step, counted from 0, and rank
Sent = Mapping[Place, tuple[int, np.ndarray]]  # what rank sent in step: to whom, and the values


# the likely causes of a first wrong moment
COUNT = "return one array for each rank"
TOO_MANY = "there are too many steps: the loop goes on after the last one that is due"
STOPPED = "the loop ends too early, or return stands inside it: nothing is sent from step"
NOT_ALL = "in one step all ranks send: hand the messages of all of them to one exchange"
WRONG_WAY = "the messages go to the wrong rank: each rank r sends to r + 1, and the last one to 0"
KEPT = (
    "the messages before are right, and what became of them isn't: chunk message.chunk of rank "
    "message.destination takes message.values, added or in place of its own"
)
WRONG_CHUNK = "that is another chunk of the sender's own: which one is due in this step?"
NO_CHUNK = "that isn't one of the sender's own chunks, as np.array_split cuts them"


@dataclass(frozen=True)
class Moment:
    """The place where an answer leaves the ring: at `rank`, with its message of `step`.

    A result that is wrong after all messages were right has the step after the last one. `words`
    say what is wrong, `why` names the likely cause or is "". `overwrote` is whether the rank had
    thrown away its own numbers a step before, when it should have added.
    """

    step: int
    rank: int
    words: str
    overwrote: bool = False
    why: str = ""


def draw_vectors(seed: int, ranks: int, length: int) -> list[np.ndarray]:
    """Return one gradient, [length] of float64, for each rank."""
    rng = np.random.default_rng(seed)
    return [np.round(rng.normal(size=length), 3) for _ in range(ranks)]


def start_gather(chunks: Chunks) -> Chunks:
    """Return `chunks[rank][k]` as a reduce-scatter leaves them: rank r has the sum of r + 1."""
    sums = [np.sum(column, axis=0) for column in zip(*chunks, strict=True)]
    ranks = len(chunks)
    return [
        [sums[k] if k == (rank + 1) % ranks else own for k, own in enumerate(row)]
        for rank, row in enumerate(chunks)
    ]


def find_moment(got: Mapping[str, Any], right: Mapping[str, Any]) -> Moment | None:
    """Return the first wrong message, or result, of what `describe_traffic` saw; None if none is.

    `got` and `right` have "messages", each [step, source, destination, *values], and either
    "finished chunks" or "vectors".
    """
    if "messages" not in got:  # the network refused a step
        return None
    given, due = (_index(one["messages"]) for one in (got, right))
    if not given and due:
        words = f"nothing was sent; rank 0 sends {_say(due[0, 0][1])} in step 0"
        return Moment(0, 0, words, why="no message went through network.exchange")
    for place in sorted(given.keys() | due.keys()):
        if moment := _compare(place, given, due):
            return moment
    last = 1 + max((step for step, _ in due), default=-1)
    if (count := len(got.get("vectors", ()))) != len(right.get("vectors", ())):
        return Moment(last, 0, f"{count} vectors came back; one for each rank was due", why=COUNT)
    for rank, values, wanted in _list_results(got, right):
        if not _same(values, wanted):
            return _find_wrong((last, rank), values, wanted, given)
    return None


def _index(messages: Sequence[Any]) -> Sent:
    return {(int(s), int(a)): (int(b), np.array(values)) for s, a, b, *values in messages}


def _same(values: np.ndarray, wanted: np.ndarray) -> bool:
    return values.shape == wanted.shape and np.allclose(values, wanted, rtol=1e-6, atol=1e-9)


def _compare(place: Place, given: Sent, due: Sent) -> Moment | None:
    """Return what is wrong with what one rank sent in one step, None if nothing is."""
    step, rank = place
    if place not in due:
        words = f"rank {rank} sent {_say(given[place][1])} in step {step}"
        return Moment(step, rank, f"{words}, after the last step; nothing was due", why=TOO_MANY)
    to, wanted = due[place]
    if place not in given:
        words = f"rank {rank} sent nothing in step {step}; {_say(wanted)} is due"
        stopped = all(at < step for at, _ in given)
        return Moment(step, rank, words, why=f"{STOPPED} {step}" if stopped else NOT_ALL)
    if given[place][0] != to:
        words = f"rank {rank} sent to rank {given[place][0]} in step {step}"
        return Moment(step, rank, f"{words}; its next rank is {to}", why=WRONG_WAY)
    values = given[place][1]
    return None if _same(values, wanted) else _find_wrong(place, values, wanted, given)


def _find_wrong(place: Place, values: np.ndarray, wanted: np.ndarray, given: Sent) -> Moment:
    """Say what is wrong with the values that a rank sent, or has after the last step."""
    step, rank = place
    does = "ends with" if all(step > each for each, _ in given) else "sent"
    when = f" in step {step}" if does == "sent" else ""
    if len(values) != len(wanted):
        counts = f"{len(values)} numbers{when}; {len(wanted)} were due"
        return Moment(step, rank, f"rank {rank} {does} {counts}")
    k = int(np.argmax(~np.isclose(values, wanted, rtol=1e-6, atol=1e-9)))
    before = (sent for (at, _), (to, sent) in given.items() if (at, to) == (step - 1, rank))
    arrived = next(before, np.array([]))
    due = f"{wanted[k]:.4g} was due"
    if _same(values, arrived):
        own = f"its own {wanted[k] - values[k]:.4g} with {values[k]:.4g}"
        return Moment(step, rank, f"rank {rank} overwrote {own} in step {step - 1}; {due}", True)
    return Moment(step, rank, f"rank {rank} {does} {values[k]:.4g}{when}; {due}")


def _say(values: np.ndarray) -> str:
    return f"{values[0]:.4g}" if len(values) else "an empty chunk"


def _list_results(got: Any, right: Any) -> list[tuple[int, np.ndarray, np.ndarray]]:
    """Return rank, its result, and the expected one: for a reduce-scatter its finished chunk."""
    if "vectors" in right:
        pairs = zip(got["vectors"], right["vectors"], strict=True)
        return [(rank, np.ravel(a), np.ravel(b)) for rank, (a, b) in enumerate(pairs)]
    ranks, wanted = len(right["bytes of each rank"]), np.array(right["finished chunks"])
    ends = np.cumsum([len(part) for part in np.array_split(wanted, ranks)])[:-1]
    mine = np.split(np.array(got["finished chunks"]), ends)
    pairs = zip(mine, np.split(wanted, ends), strict=True)
    return [((k - 1) % ranks, a, b) for k, (a, b) in enumerate(pairs)]


@dataclass(frozen=True)
class RingReplay:
    """A run of a ring up to its first wrong message: what a picture of it needs.

    `firsts[rank][chunk]` is the first number before the first step, and `held` where it stops, None
    of an empty chunk. `messages` are (step, source, destination, chunk, first number, whether the
    receiver adds); of one that isn't a chunk's length, chunk is None.
    """

    firsts: list[list[float | None]]
    held: list[list[float | None]]
    messages: list[tuple[int, int, int, int | None, float | None, bool]]
    gathers: bool
    moment: Moment | None
    mine: Sequence[np.ndarray] = ()  # the chunks that the moment's rank holds there


def follow_ring(case: Sequence[Any], got: Any, right: Any) -> RingReplay | None:
    """Return the run of an answer for (seed, ranks, length, …); None without a ring."""
    seed, ranks, length = case[:3]
    if "messages" not in got or ranks < 2:
        return None
    chunks = [np.array_split(vector, ranks) for vector in draw_vectors(seed, ranks, length)]
    gathers = "vectors" in right and len(right["messages"]) == ranks * (ranks - 1)
    chunks = start_gather(chunks) if gathers else chunks
    moment, held = find_moment(got, right), [list(row) for row in chunks]
    adding, messages = 0 if gathers else ranks - 1, []
    last = max((int(m[0]) for m in got["messages"]), default=-1)
    for step in range(1 + (last if moment is None else min(last, moment.step))):
        sent = [m for m in got["messages"] if m[0] == step]
        due = (0 if step < adding else adding + 1) - step  # rank + due is the chunk to send
        thrower = moment.rank if moment and moment.overwrote and moment.step == step + 1 else None
        moves = [_read_move(m, held, due, step < adding, thrower) for m in sent]
        messages += [(*place, _first(values), adds) for *place, values, adds in moves]
        if moment is None or step < moment.step:
            _receive(held, moves)
    mine = held[moment.rank] if moment else ()
    return RingReplay(_list_firsts(chunks), _list_firsts(held), messages, gathers, moment, mine)


def explain_ring(case: Sequence[Any], got: Any, right: Any) -> str:
    """Return the likely cause of an answer's first wrong message or result, or ""."""
    replay, moment = follow_ring(case, got, right), find_moment(got, right)
    if moment is None or replay is None or moment.why or moment.overwrote:
        return moment.why if moment else ""
    sent = _index(got["messages"]).get((moment.step, moment.rank))
    if sent is not None and any(_same(sent[1], chunk) for chunk in replay.mine):
        return WRONG_CHUNK
    return KEPT if moment.step else NO_CHUNK


def _read_move(
    message: Sequence[Any], held: Chunks, due: int, adds: bool, thrower: int | None
) -> tuple[int, int, int, int | None, np.ndarray, bool]:
    """Return a message with its chunk, which an answer need not name: its values tell."""
    step, source, destination, *numbers = message
    source, destination, sent = int(source), int(destination), np.array(numbers)
    mine = held[source]
    order = [(source + due) % len(mine), *range(len(mine))]
    alike = (k for k in order if _same(sent, mine[k]))
    chunk = next(alike, order[0] if len(sent) == len(mine[order[0]]) else None)
    return int(step), source, destination, chunk, sent, adds and destination != thrower


def _receive(held: Chunks, moves: Sequence[Any]) -> None:
    for _, _, destination, chunk, sent, adds in moves:
        if chunk is not None and len(sent) == len(held[destination][chunk]):
            own = held[destination][chunk]
            held[destination][chunk] = own + sent if adds else sent


def _first(values: np.ndarray) -> float | None:
    return float(values[0]) if len(values) else None


def _list_firsts(chunks: Chunks) -> list[list[float | None]]:
    return [[_first(chunk) for chunk in row] for row in chunks]


def tell_ring(case: Sequence[Any], got: Any, right: Any) -> AnswerTable | None:
    """Return the ranks' values when an answer left the ring; None if there is nothing to show."""
    replay = follow_ring(case, got, right)
    if replay is None or replay.moment is None:
        return None
    moment, ranks = replay.moment, range(len(replay.held))
    place = (moment.step, moment.rank)
    chunks = [chunk for step, source, _, chunk, *_ in replay.messages if (step, source) == place]
    rows = [["" if x is None else f"{x:.4g}" for x in row] for row in replay.held]
    return AnswerTable(
        f"The first number of each chunk when {moment.words}",
        [f"chunk {k}" for k in ranks],
        [f"rank {rank}" for rank in ranks],
        rows,
        [[moment.rank, k] for k in chunks if k is not None],
    )
