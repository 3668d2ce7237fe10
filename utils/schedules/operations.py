"""The parts of a pipeline schedule: operations, and one ordered list of them for each stage."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..checks import check_count
from ..errors import InputError

KINDS = ("F", "B", "W", "BW")


@dataclass(frozen=True, slots=True)
class Operation:
    """One step of one stage: `kind` for `micro_batch`, on the stage's part `chunk` of the model.

    Kinds: "F" forward; "B" backward for the inputs, which the stage before
    waits for; "W" backward for the weights, which nobody waits for; "BW" both
    at once. Micro-batches and chunks count from 0. Stage s of P holds chunk c
    as part c * P + s of the model.
    """

    kind: str
    micro_batch: int
    chunk: int = 0

    def __str__(self) -> str:
        return f"{self.kind}{self.micro_batch}" + (f" of chunk {self.chunk}" if self.chunk else "")


@dataclass(frozen=True)
class Schedule:
    """A pipeline schedule: `orders[stage]` is what that stage does, one after the other.

    `micro_batches` micro-batches go through the stages. Each stage holds
    `chunks` parts of the model.
    """

    name: str
    micro_batches: int
    chunks: int
    orders: tuple[tuple[Operation, ...], ...]

    @property
    def stages(self) -> int:
        return len(self.orders)


def read_schedule(
    orders: Iterable[Iterable[object]], micro_batches: int, chunks: int = 1
) -> Schedule:
    """Make a Schedule of plain lists: for each stage operations, or (kind, micro-batch[, chunk]).

    Raises InputError for what isn't an operation; whether the schedule can
    run is for `check_schedule` to say.
    """
    check_count("micro-batches", micro_batches)
    check_count("chunks", chunks)
    try:
        listed = [list(order) for order in orders]
    except TypeError:
        raise InputError("A schedule must be one list of operations per stage.") from None
    read = (
        tuple(_read_operation(item, stage, place) for place, item in enumerate(order))
        for stage, order in enumerate(listed)
    )
    return Schedule("own", micro_batches, chunks, tuple(read))


def _read_operation(item: object, stage: int, place: int) -> Operation:
    if isinstance(item, Operation):
        return item
    if isinstance(item, Sequence) and not isinstance(item, str) and len(item) in (2, 3):
        return Operation(*item)
    raise InputError(
        f"stage {stage}, place {place} must be an operation, got {item!r}. Write Operation(kind, "
        "micro_batch, chunk) or (kind, micro_batch)."
    )
