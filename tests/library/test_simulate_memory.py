"""ZeRO's memory, against its paper's table and its closed forms."""

import pytest

from utils.simulate.memory import ParameterBytes, find_zero_memory
from utils.simulate.published import read_source, read_table


def test_the_published_row_comes_out_within_one_percent():
    (row,) = read_table("zero_memory")
    parameters, ranks = row["parameters_billion"] * 1e9, int(row["data_parallel"])
    for stage in (1, 2, 3):
        gigabytes = find_zero_memory(parameters, ranks, stage).total / 1e9
        assert gigabytes == pytest.approx(row[f"stage{stage}_gb"], rel=0.01)
    assert "ZeRO" in read_source("zero_memory")


def test_without_zero_each_device_holds_sixteen_bytes_a_parameter():
    assert find_zero_memory(7.5e9, 64, 0).total == 16 * 7.5e9
    for stage in range(4):
        assert find_zero_memory(1e6, 1, stage).total == 16e6  # one device shares with nobody


def test_each_stage_shares_out_one_thing_more():
    whole = find_zero_memory(1e9, 10, 0)
    for stage, shared in (
        (1, ["optimizer"]),
        (2, ["optimizer", "gradients"]),
        (3, ["optimizer", "gradients", "weights"]),
    ):
        held = find_zero_memory(1e9, 10, stage)
        for name in ("weights", "gradients", "optimizer"):
            share = 10 if name in shared else 1
            assert getattr(held, name) == pytest.approx(getattr(whole, name) / share)


def test_other_optimizers_have_other_bytes():
    plain = ParameterBytes(weights=4, gradients=4, optimizer=0)
    assert find_zero_memory(1000, 4, 0, plain).total == 8000
    assert find_zero_memory(1000, 4, 2, plain).total == 4000 + 1000
