"""What the simulators say of published runs, each within its tolerance or shown beside it."""

from itertools import pairwise

import pytest

from utils.simulate.comparisons import (
    COMPARISONS,
    compare_foundry,
    compare_llama,
    find_bucket_error,
    fit_resnet_link,
    llama_mtbf_hours,
    transformer_flops,
)
from utils.simulate.llm_foundry import find_fitted_row, predict_foundry
from utils.simulate.machines import MACHINES
from utils.simulate.published import FOLDER, read_table

MEASURED_BESIDE = {"goyal_2017_table"}  # of accuracy, in lesson 17
PROMISED = {
    "zero_bubble_2023: bubbles": 24,
    "zero_bubble_2023: samples a second": 12,
    "gpipe_table3_2019": 2,
    "tf_benchmarks_2017": 16,
    "tf_benchmarks_2017: several machines": 9,
    "lamb_bert_weak_scaling": 2,
    "nccl_allreduce_p4de": 15,
    "nccl_allreduce_p4de: as a table": 29,
    "h200_ring_busbw": 4,
    "megatron_2021_table1: parameters": 6,
    "zero_memory": 3,
    "llama3_2024": 0,
    "llm_foundry_2024": 49,
}


def test_every_table_is_compared_or_measured_beside():
    compared = {name.partition(":")[0] for name in COMPARISONS}
    assert compared | MEASURED_BESIDE == {path.stem for path in FOLDER.glob("*.csv")}
    assert set(PROMISED) == set(COMPARISONS)


@pytest.mark.parametrize("name", COMPARISONS)
def test_published_runs_come_out_within_what_is_promised(name):
    rows = COMPARISONS[name]()
    held = [row for row in rows if row.tolerance is not None]
    assert len(held) == PROMISED[name] and rows
    for row in held:
        assert abs(row.error) <= row.tolerance, row


@pytest.mark.parametrize("gpu", ["A100", "H100"])
def test_an_efficiency_is_fitted_on_one_row_and_written_in_the_catalog(gpu):
    row, efficiency = find_fitted_row(gpu), MACHINES[gpu].efficiency
    low, high = (predict_foundry(row, efficiency + off) for off in (-0.0015, 0.0015))
    assert low < row["mfu_percent"] < high


def test_49_runs_of_llm_foundry_from_one_efficiency_for_each_gpu():
    """Beside it: every row has the fitted row's MFU. Both ways to state a relative error."""
    rows, table = compare_foundry(), read_table("llm_foundry_2024")
    plain = [
        find_fitted_row(row["system"][:4])["mfu_percent"] / row["mfu_percent"] - 1 for row in table
    ]
    errors = [row.error for row in rows]
    assert all(row.predicted > 0 for row in rows), "every row fits in memory, because it ran"
    assert sum(map(abs, errors)) <= 0.5 * sum(map(abs, plain))
    assert sum(abs(error) <= 0.15 for error in errors) >= 0.8 * len(rows)
    assert max(map(abs, errors)) <= 0.3

    def turn(errors):  # relative to the prediction: then the plain one has 39 rows within 15 %
        return [abs(1 / (1 + error) - 1) for error in errors]

    assert sum(error <= 0.15 for error in turn(plain)) == 39
    assert sum(turn(errors)) <= 0.65 * sum(turn(plain))


# Published 51.4 to 39.4 with a micro-batch of 1. 73 of its 80 GB are full, which isn't modeled;
# the micro-batch has twice the tokens, for which ours rises.
ANOTHER_REASON = "A100-80G 30b 8192 x8"


def test_utilization_falls_with_the_sequence_as_published():
    """Where the published MFU falls by more than 1 %, so does ours, but for one named row."""
    found, falls = {}, 0
    for row, compared in zip(read_table("llm_foundry_2024"), compare_foundry(), strict=True):
        key = (row["system"], row["model"], row["recompute"], row["gpus"])
        found.setdefault(key, []).append((row["sequence"], compared))
    for rows in found.values():
        for (_, before), (_, after) in pairwise(sorted(rows, key=lambda each: each[0])):
            fell = after.published < 0.99 * before.published
            if fell and after.label != ANOTHER_REASON:
                assert after.predicted < before.predicted, after
                falls += 1
    assert falls >= 15


def test_two_numbers_are_half_of_what_medium_all_reduces_take():
    assert -0.53 < find_bucket_error() < -0.5


def test_the_link_of_2017_is_one_that_could_have_been():
    link = fit_resnet_link()
    assert 0 <= link.latency_seconds <= 1e-4
    assert 1e9 < link.bandwidth_bytes_per_second < 40e9  # PCIe 3 to NVLink 1


def test_llama_was_interrupted_every_three_hours():
    assert llama_mtbf_hours() == pytest.approx(3.1, abs=0.05)
    quick, slow = (compare_llama(10, r)[0].predicted for r in (300, 1200))
    assert slow < 0.9 < quick < 1


def test_the_formula_for_operations_gives_the_papers_training_time():
    """Narayanan et al. 2021, section 5.1: 175 billion parameters, 300 billion tokens, 34 days."""
    tokens_of_one = 2048
    each = transformer_flops(96, 12288, batch=1) / tokens_of_one
    days = 300e9 * each / (1024 * 140e12) / 86400
    assert days == pytest.approx(34, rel=0.05)
