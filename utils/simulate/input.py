"""Simulate an input pipeline: every element is followed from the file to the step.

The machines stand in the order of tf.data: read (waiting for a store, no processor), map
(decode and augment, on the processor), shuffle, batch, prefetch, and the step that consumes.
A stage that requests an element waits for it, and the stage before does nothing until then, except:

- several reads at once, and several calls of map, work ahead of the requests, as many elements as
  there are reads or calls; at most `cores` calls compute at a time;
- a prefetch asks for batches ahead of the step, as many as it holds;
- a shuffle asks until its buffer is full, and hands on one at random.

All keep the order of the elements (`deterministic`). The run is of an epoch whose cache, if
there is one, is full. The work of the step on the same processor, the cost of threads, and
memory traffic are left out: with a step on the same cores the model promises too much.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields

import numpy as np

from ..checks import check_choice, check_count, check_number
from ..errors import InputError

CACHES = ("nothing", "decoded", "augmented")
MACHINES = ("read", "map", "step")


@dataclass(frozen=True)
class InputCosts:
    """Seconds for each element, alone on one thread. Reading waits and computes nothing.

    Raises InputError for a cost below 0 or not finite.
    """

    read_seconds: float
    decode_seconds: float
    augment_seconds: float

    def __post_init__(self) -> None:
        for each in fields(self):
            check_number(each.name.replace("_", " "), getattr(self, each.name), least=0)

    def left_by(self, cache: str) -> tuple[float, float]:
        """Return the seconds of (reading, mapping) that a full cache doesn't save."""
        if cache == "augmented":
            return 0.0, 0.0
        if cache == "decoded":
            return 0.0, self.augment_seconds
        return self.read_seconds, self.decode_seconds + self.augment_seconds


@dataclass(frozen=True)
class InputChoice:
    """The settings of the pipeline. `shuffle` is in elements, `prefetch` in batches (0: none)."""

    reads: int = 1
    calls: int = 1
    shuffle: int = 1
    prefetch: int = 0
    cache: str = "nothing"

    def __post_init__(self) -> None:
        for name in ("reads", "calls", "shuffle"):
            check_count(name, getattr(self, name))
        check_count("prefetch", self.prefetch, 0)
        check_choice("cache", self.cache, CACHES)


@dataclass(eq=False)
class InputRun:
    """The seconds when each element [element], and each batch [batch], was in each machine.

    `order` [element] holds the elements as they left the shuffle. An element is `pulled` out
    of the map, `emitted` from the shuffle into its batch; a batch is `ready`, and then in
    the step from `starts` to `ends`.
    """

    batch: int
    servers: dict[str, int]  # machine -> how many elements (the step: batches) at a time
    read_begins: list[float] = field(default_factory=list)
    read_ends: list[float] = field(default_factory=list)
    map_begins: list[float] = field(default_factory=list)
    map_ends: list[float] = field(default_factory=list)
    pulled: list[float] = field(default_factory=list)
    emitted: list[float] = field(default_factory=list)
    order: list[int] = field(default_factory=list)
    ready: list[float] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)

    @property
    def batch_seconds(self) -> float:
        """The time from one batch to the next, over the second half of the run."""
        half = len(self.ends) // 2
        return (self.ends[-1] - self.ends[half - 1]) / (len(self.ends) - half)

    @property
    def machine_seconds(self) -> dict[str, float]:
        """Each machine's time for a batch when nothing keeps it waiting."""
        work = {
            "read": self.batch * float(np.mean(np.subtract(self.read_ends, self.read_begins))),
            "map": self.batch * float(np.mean(np.subtract(self.map_ends, self.map_begins))),
            "step": float(np.mean(np.subtract(self.ends, self.starts))),
        }
        return {name: seconds / self.servers[name] for name, seconds in work.items()}

    @property
    def bottleneck(self) -> str:
        """The machine that needs longest: one of MACHINES."""
        return max(MACHINES, key=lambda name: self.machine_seconds[name])

    @property
    def starved(self) -> float:
        """The share of the second half's time that the step waits for its input."""
        return max(0.0, 1 - self.machine_seconds["step"] / self.batch_seconds)


def simulate_input(
    costs: InputCosts,
    choice: InputChoice,
    *,
    cores: int,
    step_seconds: float,
    batch: int,
    batches: int = 16,
    factors: Sequence[Sequence[float]] | None = None,
    picks: Sequence[float] | None = None,
) -> InputRun:
    """Return how `batches` batches of `batch` elements pass through the pipeline.

    `factors` [element, 2] make the reading and the mapping of each element longer or shorter
    (none: all alike), `picks` [element] from 0 to 1 say which of its buffer the shuffle hands
    on (none: the oldest). Raises InputError for counts below 1, fewer than two batches, and a
    step of 0 seconds or less.
    """
    check_count("cores", cores)
    check_count("batch", batch)
    check_count("batches", batches, 2)
    check_number("step seconds", step_seconds, above=0)
    elements = batch * batches
    factors = np.ones((elements, 2)) if factors is None else np.asarray(factors, float)
    picks = np.zeros(elements) if picks is None else np.asarray(picks, float)
    if factors.shape != (elements, 2) or picks.shape != (elements,):
        raise InputError(
            f"factors must be [{elements}, 2] and picks [{elements}] for {batches} batches of "
            f"{batch}, got {factors.shape} and {picks.shape}."
        )
    line = _Line(costs, choice, cores, batch, factors, picks)
    for number in range(batches):
        line.step(number, step_seconds)
    return line.run


class _Line:
    """The stages in a row. Each method takes a request's time, and returns its answer's."""

    def __init__(self, costs, choice: InputChoice, cores: int, batch: int, factors, picks) -> None:
        self.choice, self.batch, self.factors, self.picks = choice, batch, factors, picks
        self.read_seconds, self.map_seconds = costs.left_by(choice.cache)
        servers = min(choice.calls, cores)
        self.run = InputRun(batch, {"read": choice.reads, "map": servers, "step": 1})
        self.free = [0.0] * servers
        self.taken_read: list[float] = []
        self.fetched: list[float] = []
        self.waiting: list[int] = []  # in the shuffle's buffer
        self.handed = [0.0, 0.0]  # when the last element left the reads, the map, in order

    def read(self, asked: float) -> float:
        number, reads = len(self.taken_read), self.choice.reads
        begin = asked
        if reads > 1:
            begin = self.taken_read[number - reads] if number >= reads else 0.0
        end = begin + self.read_seconds * self.factors[number, 0]
        self.run.read_begins.append(begin)
        self.run.read_ends.append(end)
        self.handed[0] = max(end, self.handed[0])
        self.taken_read.append(max(asked, self.handed[0]))
        return self.taken_read[-1]

    def map(self, asked: float) -> float:
        number, calls = len(self.fetched), self.choice.calls
        if calls == 1:
            begin = self.read(asked)
        else:
            room = self.run.pulled[number - calls] if number >= calls else 0.0
            begin = self.read(max(room, self.fetched[-1] if number else 0.0))
        self.fetched.append(begin)
        server = min(range(len(self.free)), key=self.free.__getitem__)
        begin = max(begin, self.free[server])
        end = self.free[server] = begin + self.map_seconds * self.factors[number, 1]
        self.run.map_begins.append(begin)
        self.run.map_ends.append(end)
        self.handed[1] = max(end, self.handed[1])
        self.run.pulled.append(max(asked, self.handed[1]))
        return self.run.pulled[-1]

    def shuffle(self, asked: float) -> float:
        number = len(self.run.emitted)
        while len(self.run.pulled) < min(len(self.picks), number + self.choice.shuffle):
            self.waiting.append(len(self.run.pulled))
            asked = self.map(asked)
        place = min(int(self.picks[number] * len(self.waiting)), len(self.waiting) - 1)
        self.run.order.append(self.waiting.pop(place))
        self.run.emitted.append(asked)
        return asked

    def gather(self, asked: float) -> float:
        for _ in range(self.batch):
            asked = self.shuffle(asked)
        self.run.ready.append(asked)
        return asked

    def step(self, number: int, step_seconds: float) -> None:
        run, ahead = self.run, self.choice.prefetch
        asked = run.ends[-1] if number else 0.0
        if ahead:
            room = run.starts[number - ahead] if number >= ahead else 0.0
            ready = self.gather(max(room, run.ready[-1] if number else 0.0))
        else:
            ready = self.gather(asked)
        run.starts.append(max(asked, ready))
        run.ends.append(run.starts[-1] + step_seconds)
