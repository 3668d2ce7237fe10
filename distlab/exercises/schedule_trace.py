"""A pipeline schedule as an answer gave it, and the first operation that isn't as it should be."""

from collections.abc import Sequence
from typing import Any

from distlab.exercises.exercise import AnswerTable

MAX_PLACES = 24  # of a table on a page
MAX_OPERATIONS = 20_000  # of a simulated schedule
SHOWN = {"F": "forward", "BW": "backward"}


def describe_schedule(orders: Any, stages: int, micro_batches: int) -> dict[str, Any]:
    """Return how a schedule does in the simulator, with F, B and W of one unit each.

    `orders` has, for each stage, pairs of a kind, "F" or "BW", and a micro-batch. A
    schedule that can't run is described by its fault.
    """
    if not isinstance(orders, list | tuple):
        return {"fault": "a schedule is a list with one list of operations for each stage"}
    if sum(len(order) for order in orders if isinstance(order, list | tuple)) > MAX_OPERATIONS:
        return {"fault": f"a schedule of more than {MAX_OPERATIONS} operations"}
    from utils.schedules import check_schedule, read_schedule
    from utils.simulate.pipeline import StageTimes, simulate_pipeline

    try:
        orders = [
            [tuple(item) for item in order] if isinstance(order, list | tuple) else order
            for order in orders
        ]
        fault = check_schedule(orders, micro_batches=micro_batches, stages=stages)
    except (TypeError, ValueError, OverflowError):
        fault = 'an operation is a pair: "F" or "BW", and the number of a micro-batch'
    if fault:
        return {"fault": fault}
    run = simulate_pipeline(read_schedule(orders, micro_batches), StageTimes(1.0, 1.0, 1.0))
    return {
        "bubble": run.bubble_fraction,
        "most micro-batches kept by each stage": list(run.peak_activations_per_stage),
    }


def find_first_wrong(
    case: Sequence[int], orders: Sequence[Sequence[tuple[str, int]]]
) -> tuple[int, int, str] | None:
    """Return stage, place and words of the first operation that 1F1B does differently.

    `case` is (stages, micro-batches). Of a schedule that can't run, the words are its fault, and
    the operation the one at which the stage gets stuck, or differs.
    """
    from utils.schedules import check_schedule, make_1f1b

    stages, micro_batches = case
    due = [[(o.kind, o.micro_batch) for o in order] for order in make_1f1b(*case).orders]
    fault = check_schedule(orders, micro_batches=micro_batches, stages=stages)
    differing = [
        (place, stage)
        for stage, order in enumerate(orders)
        for place in range(max(len(order), len(due[stage])))
        if tuple(order[place : place + 1]) != tuple(due[stage][place : place + 1])
    ]
    if not differing:
        return None
    place, stage = min(differing)
    given, wanted = (_name(each[stage][place : place + 1]) for each in (orders, due))
    words = f"stage {stage} does {given} here, and {wanted} is due"
    return stage, place, f"{fault}. First difference: {words}" if fault else words


def _name(operations: Sequence[tuple[str, int]]) -> str:
    kind, micro_batch = operations[0] if operations else ("", "")
    return f"{SHOWN.get(kind, kind)} {micro_batch}".strip() or "nothing"


def tell_schedule(case: Sequence[int], orders: Any, right: Any) -> AnswerTable | None:
    """Return the orders of all stages as a table with the first wrong operation marked."""
    try:
        orders = [[(str(kind), int(micro)) for kind, micro in order] for order in orders]
        wrong = find_first_wrong(case, orders)
    except (TypeError, ValueError, OverflowError):  # no schedule at all
        return None
    if wrong is None or not orders:
        return None
    stage, place, words = wrong
    first = max(0, place - MAX_PLACES // 2)
    last = min(first + MAX_PLACES, max(map(len, orders)))
    cells = [["".join(map(str, o))[:6] for o in order[first:last]] for order in orders]
    return AnswerTable(
        f"Your schedule: {words}",
        [str(k) for k in range(first, last)],
        [f"stage {k}" for k in range(len(orders))],
        [row + [""] * (last - first - len(row)) for row in cells],
        [[stage, place - first]],
    )
