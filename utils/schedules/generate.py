"""The known pipeline schedules: GPipe, 1F1B, interleaved 1F1B, zero-bubble ZB-H1 and ZB-H2."""

from collections.abc import Callable

from ..checks import check_choice, check_count
from ..errors import InputError
from .operations import Operation, Schedule

Order = list[Operation]
MOST_FORWARDS = 5_000_000  # about 2 GB while it is simulated


def make_gpipe(stages: int, micro_batches: int) -> Schedule:
    """All forwards, then all backwards, the last micro-batch first.

    Huang et al. 2019, "GPipe", figure 2c. Every stage keeps all micro-batches.
    """
    _check_sizes(stages, micro_batches)
    forward, backward = _operations("F", micro_batches), _operations("BW", micro_batches)
    return _build("gpipe", stages, micro_batches, lambda stage: forward + backward[::-1])


def make_1f1b(stages: int, micro_batches: int) -> Schedule:
    """One forward, one backward: stage s of P keeps at most P - s micro-batches.

    Narayanan et al. 2019, "PipeDream", with the flush at the end of each step of
    Narayanan et al. 2021, "Memory-efficient pipeline-parallel DNN training".
    """
    _check_sizes(stages, micro_batches)
    forward, backward = _operations("F", micro_batches), _operations("BW", micro_batches)
    return _build(
        "1f1b", stages, micro_batches, lambda stage: _alternate(forward, backward, stages - stage)
    )


def make_interleaved_1f1b(stages: int, micro_batches: int, chunks: int = 2) -> Schedule:
    """1F1B where each stage holds `chunks` parts of the model, so that it starts sooner.

    Narayanan et al. 2021, "Efficient large-scale language model training on GPU
    clusters", section 2.2: micro-batches go in groups of as many as there are
    stages, each group through one chunk after the other. One chunk is 1F1B.
    Raises InputError where micro-batches don't come out in whole groups.
    """
    _check_sizes(stages, micro_batches, chunks)
    if chunks > 1 and micro_batches % stages:
        raise InputError(
            f"Interleaved 1F1B takes micro-batches in groups of {stages} stages. "
            f"micro_batches must be a multiple of {stages}, got {micro_batches}."
        )
    forward = _operations_by_group("F", stages, micro_batches, range(chunks))
    backward = _operations_by_group("BW", stages, micro_batches, range(chunks)[::-1])

    def make_order(stage: int) -> Order:
        ahead = stages - stage
        if chunks > 1:
            ahead = (chunks - 1) * stages + 2 * (stages - stage - 1) + 1
        return _alternate(forward, backward, ahead)

    return _build("interleaved-1f1b", stages, micro_batches, make_order, chunks)


def make_zb_h1(stages: int, micro_batches: int) -> Schedule:
    """Zero-bubble H1: 1F1B whose W fill the gaps. Every stage keeps at most P micro-batches.

    Qi et al. 2023, "Zero Bubble Pipeline Parallelism", section 2, figure 2.
    """
    _check_sizes(stages, micro_batches)
    parts = [_operations(kind, micro_batches) for kind in "FBW"]
    return _build(
        "zb-h1",
        stages,
        micro_batches,
        lambda stage: _defer_weights(*parts, stages - stage, stages),
    )


def make_zb_h2(stages: int, micro_batches: int) -> Schedule:
    """Zero-bubble H2: more forwards ahead. Every stage keeps at most 2P - 1 micro-batches.

    Qi et al. 2023, "Zero Bubble Pipeline Parallelism", section 2, figure 3.
    """
    _check_sizes(stages, micro_batches)
    parts = [_operations(kind, micro_batches) for kind in "FBW"]
    return _build(
        "zb-h2",
        stages,
        micro_batches,
        lambda stage: _defer_weights(*parts, 2 * (stages - stage) - 1, 2 * stages - 1),
    )


MAKERS: dict[str, Callable[..., Schedule]] = {
    "gpipe": make_gpipe,
    "1f1b": make_1f1b,
    "interleaved-1f1b": make_interleaved_1f1b,
    "zb-h1": make_zb_h1,
    "zb-h2": make_zb_h2,
}
SCHEDULES = tuple(MAKERS)


def make_schedule(
    name: str, stages: int, micro_batches: int, chunks: int | None = None
) -> Schedule:
    """Make the schedule `name` (one of SCHEDULES) for any number of `stages` and `micro_batches`.

    `chunks` is for interleaved-1f1b (2 when None). The others hold one part of the model per stage.
    Returns the operations of each stage, in order. Raises InputError for an unknown name and for
    sizes that the schedule can't have.

        >>> make_schedule("1f1b", stages=4, micro_batches=8).micro_batches
        8
    """
    check_choice("schedule", name, SCHEDULES)
    if name == "interleaved-1f1b":
        return make_interleaved_1f1b(stages, micro_batches, 2 if chunks is None else chunks)
    if chunks not in (None, 1):
        check_count("chunks", chunks)
        raise InputError(f"chunks must be 1 for {name}, got {chunks}. interleaved-1f1b takes more.")
    return MAKERS[name](stages, micro_batches)


def _build(
    name: str,
    stages: int,
    micro_batches: int,
    make_order: Callable[[int], Order],
    chunks: int = 1,
) -> Schedule:
    orders = tuple(tuple(make_order(stage)) for stage in range(stages))
    return Schedule(name, micro_batches, chunks, orders)


def _check_sizes(stages: int, micro_batches: int, chunks: int = 1) -> None:
    sizes = {"stages": stages, "micro-batches": micro_batches, "chunks": chunks}
    for what, number in sizes.items():
        check_count(what, number)
    if stages * micro_batches * chunks > MOST_FORWARDS:
        raise InputError(
            f"stages x micro-batches x chunks must be at most {MOST_FORWARDS:,}, got "
            f"{stages} x {micro_batches} x {chunks}."
        )


def _operations(kind: str, micro_batches: int) -> Order:
    return [Operation(kind, micro_batch) for micro_batch in range(micro_batches)]


def _operations_by_group(kind: str, stages: int, micro_batches: int, chunks: range) -> Order:
    """List the operations of one kind, groups of `stages` micro-batches chunk by chunk."""
    return [
        Operation(kind, micro_batch, chunk)
        for first in range(0, micro_batches, stages)
        for chunk in chunks
        for micro_batch in range(first, min(first + stages, micro_batches))
    ]


def _alternate(forward: Order, backward: Order, ahead: int) -> Order:
    """Do `ahead` forwards, then backward and forward in turn, then the backwards that are left."""
    order = forward[:ahead]
    for place, operation in enumerate(backward):
        order.append(operation)
        order += forward[ahead + place : ahead + place + 1]
    return order


def _defer_weights(
    forward: Order, backward: Order, weight: Order, ahead: int, most_live: int
) -> Order:
    """1F1B with `ahead` forwards first, each W put off until its memory is needed.

    A W comes just before a forward that would make more than `most_live`
    micro-batches live; after the last forward, one W follows each B, and the
    others come at the end.
    """
    order = forward[:ahead]
    live, weights_done = len(order), 0
    for place, operation in enumerate(backward):
        order.append(operation)
        coming = forward[ahead + place : ahead + place + 1]
        if live == most_live or not coming:
            order.append(weight[weights_done])
            weights_done += 1
            live -= 1
        order += coming
        live += len(coming)
    return order + weight[weights_done:]
