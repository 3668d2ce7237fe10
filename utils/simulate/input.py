"""What an input pipeline would deliver: a model whose inputs are stage costs that you measured.

A batch has to be read (waiting for a store, no processor), parsed and augmented
(processor), and then a step consumes it. Waits overlap as far as shards are read at
once. Processor work spreads over calls, at most over the cores. Reading at once goes
on in the background, so it overlaps with the processor's work; so does everything
with the step where batches are prefetched. What overlaps takes the longest of its
parts, what does not takes their sum:

    read = wait / reads          work = (parse + augment) / min(calls, cores)
    input = max(read, work) with several reads, read + work with one
    batch = max(input, step) with prefetch, input + step without

The work of the step on the same processor, the cost of threads, and memory traffic
are left out: with a step on the same cores the model promises too much.
"""

import math
from dataclasses import dataclass, fields

from ..errors import InputError

CACHES = ("nothing", "parsed", "augmented")


@dataclass(frozen=True)
class InputCosts:
    """Seconds for each image, alone on one thread: single forms and forms for whole batches.

    Raises InputError for a cost below 0 or not finite.
    """

    read_wait_seconds: float
    parse_seconds: float
    augment_seconds: float
    parse_in_batches_seconds: float
    augment_in_batches_seconds: float

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not (math.isfinite(value) and value >= 0):
                raise InputError(f"{field.name} {value:g}: give 0 or more seconds")


@dataclass(frozen=True)
class InputChoice:
    """How the pipeline is set: see the module. `cache` holds parsed or augmented images."""

    reads: int = 1
    calls: int = 1
    whole_batches: bool = False
    cache: str = "nothing"
    prefetch: bool = False

    def __post_init__(self) -> None:
        if min(self.reads, self.calls) < 1 or self.cache not in CACHES:
            raise InputError(
                f"{self.reads} reads, {self.calls} calls, cache of {self.cache!r}: give 1 or more, "
                f"and one of {', '.join(CACHES)}"
            )


@dataclass(frozen=True)
class InputPrediction:
    """Seconds for one batch after the first epoch: the parts, and all with what overlaps."""

    images: int
    read_seconds: float
    work_seconds: float
    step_seconds: float
    batch_seconds: float

    @property
    def images_per_second(self) -> float:
        return self.images / self.batch_seconds if self.batch_seconds else math.inf

    @property
    def wait_seconds(self) -> float:
        """How long the step waits for each batch."""
        return self.batch_seconds - self.step_seconds

    @property
    def bottleneck(self) -> str:
        """The longest part: "reading", "the processor" or "the step"."""
        parts = {
            "reading": self.read_seconds,
            "the processor": self.work_seconds,
            "the step": self.step_seconds,
        }
        return max(parts, key=lambda name: parts[name])


def predict_input(
    costs: InputCosts, choice: InputChoice, *, cores: int, step_seconds: float, batch: int
) -> InputPrediction:
    """Return what `choice` gives with `costs`, after the first epoch, for batches of `batch`.

    Raises InputError for fewer than one core or image and a step below 0.
    """
    if cores < 1 or batch < 1 or not step_seconds >= 0:
        raise InputError(
            f"{cores} cores, batches of {batch}, a step of {step_seconds:g} s: give 1 or more "
            "cores and images, and 0 or more seconds"
        )
    read, work = _spend(costs, choice)
    read_seconds = batch * read / choice.reads
    work_seconds = batch * work / min(choice.calls, cores)
    together = max if choice.reads > 1 else _add
    input_seconds = together(read_seconds, work_seconds)
    hidden = max if choice.prefetch else _add
    total = hidden(input_seconds, step_seconds)
    return InputPrediction(batch, read_seconds, work_seconds, step_seconds, total)


def _add(first: float, second: float) -> float:
    return first + second


def _spend(costs: InputCosts, choice: InputChoice) -> tuple[float, float]:
    """Return (waiting, processor) seconds for each image that a cache does not save."""
    whole = choice.whole_batches
    parse = costs.parse_in_batches_seconds if whole else costs.parse_seconds
    augment = costs.augment_in_batches_seconds if whole else costs.augment_seconds
    if choice.cache == "augmented":
        return 0.0, 0.0
    if choice.cache == "parsed":
        return 0.0, augment
    return costs.read_wait_seconds, parse + augment
