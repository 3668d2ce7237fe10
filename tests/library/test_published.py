"""What the simulators say of published runs, each within its tolerance or shown beside it."""

import pytest

from utils.simulate.comparisons import (
    COMPARISONS,
    compare_llama,
    fit_resnet_link,
    llama_mtbf_hours,
    transformer_flops,
)
from utils.simulate.published import FOLDER, read_source, read_table

MEASURED_BESIDE = {"goyal_2017_table", "tf_data_2021"}  # of accuracy and of input pipelines
PROMISED = {"zero_bubble_2023: bubbles": 24, "zero_bubble_2023: samples a second": 12,
            "gpipe_table3_2019": 2, "tf_benchmarks_2017": 16, "lamb_bert_weak_scaling": 2,
            "nccl_allreduce_p4de": 15, "h200_ring_busbw_gbps": 4,
            "megatron_2021_table1: parameters": 6,
            "zero_memory": 3, "llama3_2024": 0}  # fmt: skip


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


def test_tables_that_are_measured_beside_are_whole():
    speeds = read_table("tf_data_2021")
    assert [row["model"] for row in speeds] == ["ResNet50", "MaskRCNN"]
    assert all(1 < row["expert_parallel"] <= row["plus_optimizations"] for row in speeds)
    assert "2101.12127" in read_source("tf_data_2021")
