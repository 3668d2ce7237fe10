"""Training runs that are killed, given notice or frozen: all must survive.

Three named runs here, which together hit every method, every way to die and every moment.
`make chaos` draws a hundred at random; a failed one is drawn again by the seed it prints.
"""

from dataclasses import replace
from itertools import pairwise

import pytest

from distlab.lessons import chaos
from distlab.lessons.chaos import Attempt, Strike, draw_strike, run_strikes, tell_attempts
from utils.training.recovery import METHODS, RecoverySettings

SETTINGS = RecoverySettings("", epochs=3, pause_seconds=0.01)  # 15 steps
KILLED_WHILE_SAVING = Strike(1, "manager", 3, 0, "SIGKILL", "checkpoint", 8, 0.01)
GIVEN_NOTICE_IN_A_STEP = Strike(2, "preemption", 2, 1, "SIGTERM", "step", 6, 0.0)
FROZEN_AT_START_UP = Strike(3, "backup", 2, 1, "freeze", "start-up", 0, 0.3)
NAMED = (KILLED_WHILE_SAVING, GIVEN_NOTICE_IN_A_STEP, FROZEN_AT_START_UP)


def test_the_named_strikes_hit_every_way_to_die():
    assert {s.method for s in NAMED} == set(METHODS)
    assert {s.strike for s in NAMED} == set(chaos.STRIKES)
    assert {s.moment for s in NAMED} == set(chaos.MOMENTS)
    assert {s.workers for s in NAMED} == set(chaos.WORKER_COUNTS)
    assert {s.victim for s in NAMED} == {0, 1}, "the chief and another"


@pytest.mark.timeout(400)
def test_every_run_survives_with_the_undisturbed_weights():
    outcomes = list(run_strikes(NAMED, SETTINGS))
    for outcome in outcomes:
        print(outcome)
        assert outcome.problem is None, str(outcome)
        assert outcome.error <= 1e-9
        assert outcome.restarts == 1, "each of these strikes must hit"
    assert chaos.describe_outcomes(outcomes).endswith(
        f"3 of 3 runs survived, their weights at most {max(o.error for o in outcomes):.1e} off"
    )


def test_a_seed_draws_the_same_strike_and_many_seeds_draw_everything():
    settings = RecoverySettings("")
    strikes = [draw_strike(seed, settings) for seed in range(600)]
    assert strikes == [draw_strike(seed, settings) for seed in range(600)]
    drawn = {(s.method, s.strike, s.moment) for s in strikes}
    assert len(drawn) == len(METHODS) * len(chaos.STRIKES) * len(chaos.MOMENTS)
    assert {s.workers for s in strikes} == {2, 3} and all(s.victim < s.workers for s in strikes)
    assert {s.place for s in strikes if s.moment == "checkpoint"} == {4, 8, 12, 16, 20, 24}
    assert {s.place for s in strikes if s.moment == "step"} == set(range(1, 25))


def test_of_several_strikes_each_is_examined_with_its_own_restart():
    settings = RecoverySettings("", save_every=4)
    kill = replace(draw_strike(0, settings), method="preemption", strike="SIGKILL")
    notice = replace(kill, strike="SIGTERM")
    told = [Attempt(0, 6, 4), Attempt(4, 11, 8, 2), Attempt(8, 25, 25, 3)]
    assert chaos._examine_steps([kill, kill], settings, told) is None
    assert "there was notice" in chaos._examine_steps([kill, notice], settings, told)


def tell(*lines):
    names = ("attempt", "task", "event", "step")
    return [dict(zip(names, line)) for line in lines]


def test_lost_steps_are_counted_from_what_the_tasks_told():
    told = tell_attempts(tell(
        (1, "worker 0", "restore", 0), (1, "worker 0", "step", 6), (1, "worker 1", "step", 7),
        (1, "worker 1", "checkpoint", 7), (1, "worker 0", "checkpoint", 4),
        (3, "worker 1", "restore", 4), (3, "worker 0", "step", 9),
    ))  # fmt: skip
    assert told == [Attempt(0, 7, 4, 0), Attempt(), Attempt(4, 9, 0, 3)]


def test_the_spans_of_an_attempt_are_kept_lost_and_waited_for():
    lines = [(1, "worker 0", "restore", 0), *((1, "worker 0", "step", n) for n in range(1, 7))]
    lines += [(2, "worker 0", "restore", 4), *((2, "worker 0", "step", n) for n in range(5, 9))]
    events = [{**event, "time": 100.0 + n} for n, event in enumerate(tell(*lines))]
    assert chaos.make_attempt_rows(events) == [
        ("attempt 1", 0.0, 3.0, "1 to 4", "kept"),
        ("attempt 1", 3.0, 5.0, "5 to 6", "trained, and lost"),
        ("attempt 2", 5.0, 7.0, "restart", "nobody trains"),
        ("attempt 2", 7.0, 10.0, "5 to 8", "kept"),
    ]


def test_a_kill_costs_the_lost_steps_and_the_restart():
    times = {"step_seconds": 2.0, "restart_seconds": 5.0}
    rows = chaos.make_kill_rows(**times, saved=8, killed=11, total=25)
    assert max(end for lane, _, end, _, _ in rows if lane == "undisturbed") == 50.0
    assert rows[-1][2] == 50.0 + 3 * 2.0 + 5.0
    assert all(before[2] == after[1] for before, after in pairwise(rows[1:]))


@pytest.mark.parametrize("told, method, strike, says", [
    ([Attempt(0, 7, 4), Attempt(0, 25, 25, 7)], "manager", "SIGKILL", "and 4 was saved"),
    ([Attempt(0, 9, 4), Attempt(4, 25, 25, 5)], "manager", "SIGKILL", "lost 5 steps"),
    ([Attempt(0, 5, 4), Attempt(4, 25, 25, 1)], "preemption", "SIGTERM", "there was notice"),
    ([Attempt(0, 5, 5), Attempt(5, 25, 25, 0)], "preemption", "SIGTERM", None),
    ([Attempt(0, 5, 4), Attempt(4, 25, 25, 1)], "preemption", "SIGKILL", None),
])  # fmt: skip
def test_a_run_that_lost_too_much_is_found_out(told, method, strike, says):
    settings = RecoverySettings("", save_every=4)
    drawn = replace(draw_strike(0, settings), method=method, strike=strike)
    problem = chaos._examine_steps([drawn], settings, told)
    assert problem is None if says is None else says in problem
