"""Checkpoint intervals: Young's and Daly's formulas against failures drawn one by one."""

import math

import numpy as np
import pytest

from utils.simulate.failures import (
    best_interval_seconds,
    daly_interval_seconds,
    expected_run_seconds,
    group_mtbf_seconds,
    overhead_fraction,
    simulate_run_seconds,
    young_interval_seconds,
)


def test_intervals_by_hand():
    assert young_interval_seconds(60, 24 * 3600) == pytest.approx(math.sqrt(2 * 60 * 86400))
    assert daly_interval_seconds(2, 100) == pytest.approx(20 * (1 + 0.1 / 3 + 0.01 / 9) - 2)
    assert daly_interval_seconds(200, 100) == daly_interval_seconds(500, 100) == 100
    assert group_mtbf_seconds(1000, 8) == 125


@pytest.mark.parametrize(
    "interval, save, mtbf, restart",
    [
        (20, 2, 100, 0),
        (60, 5, 100, 10),
        (5, 20, 60, 30),
        (200, 1, 100, 5),
        (50, 0, 1e6, 0),
    ],
)
def test_expected_time_is_the_mean_of_simulated_runs(interval, save, mtbf, restart):
    seconds = simulate_run_seconds(interval * 10, interval, save, mtbf, restart, runs=20000)
    expected = expected_run_seconds(interval * 10, interval, save, mtbf, restart)
    error = seconds.std() / math.sqrt(len(seconds))
    assert abs(seconds.mean() - expected) < 4.5 * error + 1e-9 * expected
    assert seconds.min() >= 10 * (interval + save) - 1e-6


@pytest.mark.parametrize("save", [0.5, 2, 10, 50])
def test_the_intervals_are_the_simulated_optimum(save):
    """Of intervals around Daly's, none is clearly better in the simulation."""
    mtbf, daly = 100.0, daly_interval_seconds(save, 100.0)
    factors = (0.25, 0.5, 1.0, 2.0, 4.0)
    work = 40 * daly
    means = [
        simulate_run_seconds(work, daly * f, save, mtbf, runs=3000, seed=3).mean() for f in factors
    ]
    assert int(np.argmin(means)) == 2
    best = best_interval_seconds(save, mtbf)
    at_best = overhead_fraction(best, save, mtbf)
    assert overhead_fraction(daly, save, mtbf) < at_best * 1.005
    for factor in (0.9, 1.1):
        assert overhead_fraction(best * factor, save, mtbf) > at_best


def test_daly_is_better_than_young_when_saving_is_dear_and_equal_when_it_is_cheap():
    for save, most in ((0.01, 1.001), (50, 1.5)):
        young = overhead_fraction(young_interval_seconds(save, 100), save, 100)
        daly = overhead_fraction(daly_interval_seconds(save, 100), save, 100)
        assert daly <= young < daly * most
    assert young > 1.03 * daly


def test_a_run_that_cannot_end_is_infinite():
    assert expected_run_seconds(1e6, 1e6, 1, 100) == math.inf


def test_the_explorer_shows_young_and_daly_and_says_when_a_run_makes_no_progress():
    from distlab.explorables.checkpoint_interval import interval_explorer, show_intervals

    picture = show_intervals(30, 1000, 365)
    mtbf = 365 * 86400 / 1000
    young = overhead_fraction(young_interval_seconds(30, mtbf), 30, mtbf, 60)
    assert f"Young: every 22.9 min, {100 * young:.3g} % overhead" in picture.alt
    explorer = interval_explorer(save_seconds=0.004)
    assert explorer.values == {"save_seconds": 0.1, "workers": 1000, "mtbf_days": 365}
    assert '"kind": "lines"' in explorer.result and "Daly: every" in explorer.result
    for values in (
        (0.1, 1, 3000),
        (300, 20000, 3000),
        (300, 1, 1),
        (0.1, 1000, 1),
        (30, 16384, 2112),
    ):
        assert "overhead" in show_intervals(*values).alt
    for values in ((300, 20000, 1), (0.1, 20000, 1)):  # a failure every 4 s, a minute to restart
        assert "almost no progress" in show_intervals(*values)
