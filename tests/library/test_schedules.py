"""Pipeline schedules as data: sound for every size, and every broken one refused by name."""

import itertools

import numpy as np
import pytest

from utils.schedules import (
    SCHEDULES,
    Operation,
    Schedule,
    check_schedule,
    make_schedule,
    partition_layers,
    read_schedule,
)

F, B, W, BW = "F", "B", "W", "BW"


def write_out(schedule: Schedule, stage: int) -> str:
    return " ".join(str(operation) for operation in schedule.orders[stage])


def draw_sizes(seed: int, draws: int):
    """Yield (name, stages, micro-batches, chunks), small and large, P over M and M over P."""
    random = np.random.default_rng(seed)
    for _ in range(draws):
        name = SCHEDULES[random.integers(len(SCHEDULES))]
        stages, micro_batches = int(random.integers(1, 12)), int(random.integers(1, 40))
        chunks = 1
        if name == "interleaved-1f1b":
            chunks = int(random.integers(1, 5))
            micro_batches = stages * int(random.integers(1, 5))
        yield name, stages, micro_batches, chunks


# --- the schedules themselves ---


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_small_size_makes_a_sound_schedule(name):
    for stages, micro_batches in itertools.product(range(1, 7), range(1, 20)):
        chunks = 3 if name == "interleaved-1f1b" and micro_batches % stages == 0 else 1
        schedule = make_schedule(name, stages, micro_batches, chunks)
        assert check_schedule(schedule) is None, (stages, micro_batches)
        assert schedule.stages == stages and schedule.name == name


def test_random_sizes_make_sound_schedules():
    for name, stages, micro_batches, chunks in draw_sizes(seed=1, draws=150):
        assert check_schedule(make_schedule(name, stages, micro_batches, chunks)) is None


def test_gpipe_goes_forward_with_all_and_back_with_the_last_first():
    schedule = make_schedule("gpipe", 2, 3)
    assert write_out(schedule, 0) == write_out(schedule, 1) == "F0 F1 F2 BW2 BW1 BW0"


def test_1f1b_by_hand():
    schedule = make_schedule("1f1b", 3, 4)
    assert write_out(schedule, 0) == "F0 F1 F2 BW0 F3 BW1 BW2 BW3"
    assert write_out(schedule, 1) == "F0 F1 BW0 F2 BW1 F3 BW2 BW3"
    assert write_out(schedule, 2) == "F0 BW0 F1 BW1 F2 BW2 F3 BW3"


def test_interleaved_1f1b_by_hand():
    """Megatron-LM's order for two stages of two chunks: Narayanan et al. 2021, figure 4."""
    schedule = make_schedule("interleaved-1f1b", 2, 2, 2)
    c1 = " of chunk 1"
    assert write_out(schedule, 0) == (
        f"F0 F1 F0{c1} F1{c1} BW0{c1} BW1{c1} BW0 BW1"
    )  # 5 forwards would go ahead, and there are 4
    assert write_out(schedule, 1) == f"F0 F1 F0{c1} BW0{c1} F1{c1} BW1{c1} BW0 BW1"


def test_zb_h1_by_hand():
    schedule = make_schedule("zb-h1", 2, 4)
    assert write_out(schedule, 0) == "F0 F1 B0 W0 F2 B1 W1 F3 B2 W2 B3 W3"
    assert write_out(schedule, 1) == "F0 B0 F1 B1 W0 F2 B2 W1 F3 B3 W2 W3"


def test_zb_h2_by_hand():
    schedule = make_schedule("zb-h2", 2, 4)
    assert write_out(schedule, 0) == "F0 F1 F2 B0 W0 F3 B1 W1 B2 W2 B3 W3"
    assert write_out(schedule, 1) == "F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3"


def test_interleaving_one_chunk_is_1f1b_for_any_number_of_micro_batches():
    assert make_schedule("interleaved-1f1b", 4, 7, 1).orders == make_schedule("1f1b", 4, 7).orders


def test_operations_and_schedules_cannot_be_changed():
    schedule = make_schedule("gpipe", 1, 1)
    with pytest.raises(AttributeError):
        schedule.orders[0][0].kind = "B"
    with pytest.raises(AttributeError):
        schedule.name = "other"


# --- the checker, on schedules that a learner might hand in ---


def test_plain_lists_are_accepted():
    lists = [[[F, 0], [F, 1], [BW, 0], [BW, 1]], [(F, 0, 0), (BW, 0), (F, 1), (B, 1), (W, 1)]]
    assert check_schedule(lists, micro_batches=2) is None
    assert read_schedule(lists, 2).orders[1][4] == Operation("W", 1)
    numpy_numbers = [[(F, np.int64(0)), (BW, np.int64(0))]]
    assert check_schedule(numpy_numbers, micro_batches=1) is None


# a schedule that is broken | the line that says so begins
BROKEN = """
[[(BW, 0)]] | stage 0: F0 is missing
[[(F, 0), (W, 0)]] | stage 0: B0 is missing (and no BW0)
[[(F, 0), (B, 0)]] | stage 0: W0 is missing (and no BW0)
[[(F, 0), (BW, 0)], []] | stage 1: F0 is missing
[[], []] | stage 0: F0 is missing
[[(F, 10**20)]] | stage 0, place 0: micro-batch 100000000000000000000 doesn't exist
[[(F, 0), (F, 0), (BW, 0)]] | stage 0: F0 is doubled: it stands at places 0 and 1
[[(F, 0), (BW, 0), (W, 0)]] | stage 0: W0 is doubled: BW0 already does it
[[(F, 0), (B, 0), (BW, 0)]] | stage 0: B0 is doubled: BW0 already does it
[[(BW, 0), (F, 0)]] | stage 0: BW0 comes before F0, whose result it needs
[[(F, 0), (W, 0), (B, 0)]] | stage 0: W0 comes before B0, whose result it needs
[[('X', 0)]] | stage 0, place 0: kind 'X' is none of F, B, W, BW
[[([], 0)]] | stage 0, place 0: kind [] is none of F, B, W, BW
[[(F, 0), (BW, 0), (F, 1)]] | stage 0, place 2: micro-batch 1 doesn't exist: there are 0 to 0
[[(F, -1)]] | stage 0, place 0: micro-batch -1 doesn't exist: there are 0 to 0
[[(F, 0.5)]] | stage 0, place 0: micro-batch 0.5 doesn't exist: there are 0 to 0
[[(F, 0, 1)]] | stage 0, place 0: chunk 1 doesn't exist: there are 0 to 0
[['F0']] | stage 0, place 0 must be an operation, got 'F0'.
[] | The schedule must have a list of operations for at least one stage.
7 | A schedule must be one list of operations per stage.
[3] | A schedule must be one list of operations per stage.
""".strip().splitlines()


@pytest.mark.parametrize("case", BROKEN)
def test_each_fault_has_its_own_line(case):
    orders, says = case.split(" | ")
    found = check_schedule(eval(orders), micro_batches=1)
    assert found.startswith(says) and "\n" not in found


def test_other_sizes_than_asked_for_are_named():
    schedule = make_schedule("interleaved-1f1b", 3, 6, 2)
    assert check_schedule(schedule, stages=3, micro_batches=6, chunks=2) is None
    says = "the schedule has 3 stages, and 4 are wanted"
    assert check_schedule(schedule, stages=4) == says
    assert check_schedule(schedule.orders, 6, 2, stages=4) == says
    says = "the schedule has 6 micro-batches, and 8 are wanted"
    assert check_schedule(schedule, micro_batches=8) == says
    assert check_schedule(schedule, chunks=1) == "the schedule has 2 chunks, and 1 are wanted"


def test_deadlock_names_who_waits_for_what():
    """Stage 0 wants a gradient before it sends what stage 1 wants first."""
    orders = [
        [(F, 0), (BW, 0), (F, 1), (BW, 1)],
        [(F, 0), (F, 1), (BW, 1), (BW, 0)],
    ]
    assert check_schedule(orders, micro_batches=2) == (
        "deadlock: stage 0 is at BW0 and waits for BW0 of stage 1; "
        "stage 1 is at F1 and waits for F1 of stage 0"
    )


def test_one_stage_can_wait_for_itself():
    orders = [[(F, 0, 1), (F, 0, 0), (BW, 0, 1), (BW, 0, 0)]]
    says = check_schedule(orders, micro_batches=1, chunks=2)
    assert says == "deadlock: stage 0 is at F0 of chunk 1 and waits for F0 of stage 0"


def test_a_long_circle_still_makes_one_short_line():
    stages = 12  # each waits for the one before, but for the first, which waits for the last
    orders = [[(F, 0), (BW, 0), (F, 1), (BW, 1)] for _ in range(stages)]
    orders[-1] = [(F, 0), (F, 1), (BW, 1), (BW, 0)]
    says = check_schedule(orders, micro_batches=2)
    assert says.startswith("deadlock: ") and "\n" not in says and len(says) < 400


def mutate(schedule: Schedule, random: np.random.Generator) -> tuple[str, list]:
    """Break a schedule in one of five ways; return the words that the fault's line must hold."""
    orders = [list(order) for order in schedule.orders]
    stage = int(random.integers(schedule.stages))
    order = orders[stage]
    place = int(random.integers(len(order)))
    way = random.integers(5)
    if way == 0:
        del order[place]
        return "missing", orders
    if way == 1:
        order.insert(int(random.integers(len(order))), order[place])
        return "doubled", orders
    kinds = {(o.micro_batch, o.chunk, o.kind): n for n, o in enumerate(order)}
    chosen = (order[place].micro_batch, order[place].chunk)
    backward = kinds.get((*chosen, "B"), kinds.get((*chosen, "BW")))
    if way == 2 or (*chosen, "W") not in kinds:
        early, late = kinds[(*chosen, "F")], backward
    elif way == 3:
        early, late = backward, kinds[(*chosen, "W")]
    else:
        order[kinds[(*chosen, "W")]] = Operation("BW", *chosen)
        return "doubled", orders
    order[early], order[late] = order[late], order[early]
    return "comes before", orders


def test_every_mutated_schedule_is_refused_for_what_was_done_to_it():
    random = np.random.default_rng(3)
    seen = set()
    for name, stages, micro_batches, chunks in draw_sizes(seed=2, draws=200):
        schedule = make_schedule(name, stages, micro_batches, chunks)
        says, orders = mutate(schedule, random)
        fault = check_schedule(orders, micro_batches, chunks)
        assert fault is not None and says in fault, (name, stages, micro_batches, fault)
        assert fault.startswith("stage ") and "\n" not in fault
        seen.add(says)
    assert seen == {"missing", "doubled", "comes before"}


# --- cutting layers into stages ---


def cut_by_brute_force(costs: list[float], stages: int) -> float:
    best = np.inf
    for cuts in itertools.combinations(range(1, len(costs)), stages - 1):
        edges = [0, *cuts, len(costs)]
        best = min(best, max(sum(costs[a:b]) for a, b in itertools.pairwise(edges)))
    return best


def test_partition_is_the_best_of_all_cuts():
    random = np.random.default_rng(4)
    for _ in range(120):
        layers = int(random.integers(1, 10))
        stages = int(random.integers(1, layers + 1))
        costs = random.choice([random.random(layers), random.integers(0, 4, layers) * 1.0])
        parts = partition_layers(costs, stages)
        assert [layer for part in parts for layer in part] == list(range(layers))
        assert len(parts) == stages and all(len(part) for part in parts)
        largest = max(sum(costs[layer] for layer in part) for part in parts)
        assert largest == pytest.approx(cut_by_brute_force(list(costs), stages))


def test_partition_is_even_where_it_can_be():
    assert partition_layers([1] * 6, 3) == (range(0, 2), range(2, 4), range(4, 6))
    dear_first = partition_layers([10, 1, 1, 1, 1, 1, 1], 3)
    assert dear_first == (range(0, 1), range(1, 4), range(4, 7))  # any cut behind has largest 10
    assert partition_layers([0, 0, 0], 3) == (range(0, 1), range(1, 2), range(2, 3))
