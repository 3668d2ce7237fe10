"""Fifteen training runs with fresh seeds, each killed or frozen at random: all must survive.

`make chaos` runs a hundred. A failed run is drawn again with the seed that it prints.
"""

import random
from dataclasses import replace

import pytest

from distlab.lessons import chaos
from distlab.lessons.chaos import Attempt, draw_strike, run_chaos, tell_attempts
from utils.training.recovery import METHODS, RecoverySettings

RUNS = 15


@pytest.mark.timeout(900)
def test_every_run_survives_with_the_undisturbed_weights():
    seed = random.SystemRandom().randrange(10**6)
    print(f"seeds {seed} to {seed + RUNS - 1}")
    outcomes = []
    for outcome in run_chaos(RUNS, seed):
        print(outcome)
        assert outcome.problem is None, str(outcome)
        assert outcome.error <= 1e-9
        outcomes.append(outcome)
    assert len(outcomes) == RUNS
    assert sum(o.restarts > 0 for o in outcomes) >= RUNS // 3, "most strikes must hit"
    print(chaos.describe_outcomes(outcomes))


def test_a_seed_draws_the_same_strike_and_many_seeds_draw_everything():
    settings = RecoverySettings("")
    strikes = [draw_strike(seed, settings) for seed in range(600)]
    assert strikes == [draw_strike(seed, settings) for seed in range(600)]
    drawn = {(s.method, s.strike, s.moment) for s in strikes}
    assert len(drawn) == len(METHODS) * len(chaos.STRIKES) * len(chaos.MOMENTS)
    assert {s.workers for s in strikes} == {2, 3} and all(s.victim < s.workers for s in strikes)
    assert {s.place for s in strikes if s.moment == "checkpoint"} == {4, 8, 12, 16, 20, 24}
    assert {s.place for s in strikes if s.moment == "step"} == set(range(1, 25))


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
    problem = chaos._examine_steps(drawn, settings, told)
    assert problem is None if says is None else says in problem
