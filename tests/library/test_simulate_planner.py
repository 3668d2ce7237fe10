"""Layouts of a Transformer: memory and seconds by hand, measured networks, search, bad input."""

import itertools
import math
import time
from dataclasses import replace

import pytest

from utils.errors import DistributedError
from utils.simulate.collective import Link
from utils.simulate.layouts import (
    Assumed,
    Layout,
    all_reduce_seconds,
    cost_layout,
    find_layout_memory,
    gather_seconds,
    parse_layout,
)
from utils.simulate.machines import find_machine, read_network
from utils.simulate.measured import read_measured
from utils.simulate.planner import Run, describe_overflow, find_cheapest_change, tabulate_layouts
from utils.simulate.published import FOLDER
from utils.simulate.step import Network
from utils.simulate.transformer import Transformer, find_kept_bytes, make_transformer

MODEL = Transformer(7e9, 32, 4096, 4096, 50_000)
MACHINE = find_machine("64 H100, 8x400Gb/s")
SEVEN = Run(
    parameters=7e9, layers=32, hidden=4096, sequence=4096, vocabulary=50_000, tokens=1e12, price=3.0
)
NCCL = """# nThread 1 nGpus 1 minBytes 8 maxBytes 1024
#  Rank  0 Group  0 Pid  1 on host device  0 [0x00] A100
#  Rank  1 Group  0 Pid  2 on host device  1 [0x00] A100
#
#                                             out-of-place               in-place
#   size    count  type   redop root   time  algbw  busbw #wrong   time  algbw  busbw #wrong
#    (B)  (elements)                   (us) (GB/s) (GB/s)          (us) (GB/s) (GB/s)
    1024      256  float    sum   -1  10.00   0.00   0.00      0  99.00   0.00   0.00      0
    2048      512  float    sum   -1  12.00   0.00   0.00      0  99.00   0.00   0.00      0
 1048576   262144  float    sum   -1  100.0   0.00   0.00      0  99.00   0.00   0.00      0
# Avg bus bandwidth    : 0.1
"""


def cost(layout, machine=MACHINE, batch=1024, **settings):
    return cost_layout(MODEL, layout, machine, batch, Assumed(**settings))


def test_flops_are_six_for_each_parameter_and_attention():
    assert MODEL.flops_per_token == 42e9
    assert MODEL.attention_flops_per_token == 12 * 32 * 4096 * 4096
    mixture = Transformer(47e9, 32, 4096, experts=8, active_experts=2, vocabulary=32_000)
    assert mixture.active_parameters == 47e9 - 8 * 32 * 4096**2 * 6


def test_a_shape_that_is_left_out_is_taken_from_the_parameters():
    full = make_transformer(7e9)
    assert full.guessed == ("layers", "hidden", "sequence", "vocabulary")
    assert 28 <= full.layers <= 36 and full.hidden % 128 == 0
    assert make_transformer(7e9, layers=32).hidden == 4096
    assert make_transformer(7e9, hidden=4096).layers in (33, 34)
    for parameters, experts in itertools.product((1e9, 47e9, 300e9), (2, 8, 64)):
        mixture = make_transformer(parameters, experts=experts)  # the experts leave a rest
        assert 0.5 * parameters < mixture.expert_parameters < parameters


def test_memory_by_hand():
    """16 bytes a parameter; 32 bytes per token, width and layer; 4 for each logit."""
    tokens = 2 * 4096
    activations = 32 * 32 * 4096 * tokens + 4 * 50_000 * tokens
    held = find_layout_memory(MODEL, Layout(data=64, micro_batch=2), 8)
    assert (held.weights, held.gradients, held.optimizer) == (14e9, 14e9, 84e9)
    assert held.activations == activations
    third = find_layout_memory(MODEL, Layout(data=64, micro_batch=2, zero_stage=3), 8)
    layer = 7e9 / 32
    assert third.weights == pytest.approx(14e9 / 64 + 2 * 2 * layer)
    assert third.gradients == pytest.approx(14e9 / 64 + 4 * layer)
    assert third.optimizer == pytest.approx(84e9 / 64)
    again = find_layout_memory(MODEL, Layout(data=64, micro_batch=2, recompute=True), 8)
    kept = 32 * 2 * 4096 * tokens + 32 * 4096 * tokens + 4 * 50_000 * tokens
    assert again.activations == kept
    split = find_layout_memory(MODEL, Layout(tensor=8, pipeline=4, context=2, micro_batch=2), 8)
    assert split.weights == 14e9 / 32
    first = 4 * 8 * 32 / 8 * 4096 * tokens / 2  # four micro-batches in flight, 8 of 32 layers
    assert split.activations == first


def test_scores_grow_with_the_square_of_the_sequence():
    without, with_scores = (find_kept_bytes(MODEL, 4096, scores=s) for s in (False, True))
    assert with_scores - without == 4 * 32 * 4096 * 4096
    assert find_kept_bytes(MODEL, 4096, tensor=8) == without / 8 == 4096 * 4096 * 4


def test_each_axis_is_priced():
    """Every axis that is cut costs something, inside a machine less than between machines."""
    base = cost(Layout(data=64, zero_stage=1))
    assert set(base.parts) == {"computation", "memory traffic", "data", "optimizer"}
    tensor = cost(Layout(data=8, tensor=8, zero_stage=1))
    inside = MACHINE.find_link(8)
    assert tensor.parts["tensor"] == pytest.approx(
        128 * 32 * 4 * all_reduce_seconds(inside, 8, 2 * 4096 * 4096)
    )
    pipeline = cost(Layout(data=16, pipeline=4, zero_stage=1))
    each = sum(v for k, v in pipeline.parts.items() if k not in ("bubble", "data", "optimizer"))
    assert pipeline.parts["bubble"] == pytest.approx(3 / 64 * each)
    assert cost(Layout(data=4, context=16, zero_stage=1)).parts.get("context", 0) > 0
    mixture = Transformer(47e9, 32, 4096, 4096, 32_000, experts=8, active_experts=2)
    layout = Layout(data=64, expert=8, zero_stage=1, recompute=True)
    expert = cost_layout(mixture, layout, MACHINE, 1024)
    assert expert.parts["expert"] > 0 and expert.fits
    slow = replace(MACHINE, network=Network(Link(5e-6, 1e9)))
    assert cost(Layout(data=64, zero_stage=1), slow).parts["data"] > 10 * base.parts["data"]
    inner = cost(Layout(data=8, tensor=8, zero_stage=1), slow)
    assert inner.parts["tensor"] == tensor.parts["tensor"]


def test_zero_stages_send_what_they_say():
    slow = Network(Link(0.0, 1e3))
    machine = replace(MACHINE, network=slow, node_bytes_per_second=1e3)  # nothing can be hidden
    whole, moved = 7e9 * 63 / 64 / 1e3, {}
    for stage in range(4):
        layout = Layout(data=64, zero_stage=stage, recompute=True)
        roomy = replace(machine, memory_gb=1e4)
        moved[stage] = cost(layout, roomy, 64).parts["data"] / whole
    assert moved[0] == pytest.approx(8, rel=1e-3)  # an all-reduce of 4 bytes: twice
    assert moved[1] == moved[2] == pytest.approx(6, rel=1e-3)  # 4 down, then 2 of new weights
    assert moved[3] == pytest.approx(8, rel=0.02)  # 2 + 2 + 4, the first layer's gather twice


def test_small_micro_batches_and_launches_cost():
    few, many = (cost(Layout(data=64, zero_stage=1, micro_batch=m)) for m in (1, 2))
    assert few.step_seconds > many.step_seconds
    tiny = Transformer(2e5, 2, 64, 64, 1000)
    small = cost_layout(tiny, Layout(), replace(MACHINE, count=1), 1)
    assert small.bottleneck == "launches"
    assert small.step_seconds == pytest.approx(2 * 14 * 3 * 4e-6, rel=0.05)


def test_rings_by_hand():
    link = Link(1e-6, 1e9)
    assert all_reduce_seconds(link, 8, 8e9) == pytest.approx(14 + 6e-6)
    assert gather_seconds(link, 8, 8e9) == pytest.approx(7 + 7e-6)
    assert all_reduce_seconds(link, 1, 8e9) == 0


def test_layers_that_do_not_divide_go_at_the_pace_of_the_fullest_stage():
    """Llama 3's layout: 126 layers in 16 stages, the first and the last with seven."""
    whole, uneven = (Transformer(405e9, n, 16384, 8192, 128_000) for n in (128, 126))
    machine, layout = (
        find_machine("8192 H100, 8 a node, 8x400Gb/s"),
        Layout(64, 8, 16, zero_stage=1),
    )
    memory = cost_layout(uneven, layout, machine, 2048).memory
    assert memory.total < 80e9 < cost_layout(whole, layout, machine, 2048).memory.total
    per_layer = find_kept_bytes(uneven, 8192, tensor=8)
    assert memory.activations == pytest.approx(15 * 8 * per_layer)  # of the second stage
    roomy = replace(machine, memory_gb=1e3)
    paces = [cost_layout(m, layout, roomy, 2048).parts["memory traffic"] for m in (whole, uneven)]
    assert paces[0] == pytest.approx(paces[1], rel=0.02)


def test_what_overflows_is_named_with_the_cheapest_change():
    over = cost(Layout(data=64, micro_batch=2))
    assert not over.fits and over.step_seconds is None and over.bottleneck == "memory"
    assert over.overflow == "optimizer"
    change, changed = find_cheapest_change(MODEL, over.layout, MACHINE, 1024)
    assert change == "ZeRO stage 1" and changed.fits
    said = describe_overflow(MODEL, over, MACHINE, 1024)
    assert "148 GB" in said and "ZeRO stage 1 makes it fit" in said
    slow = find_machine("64 H100, 8 a node, 400Gb/s")
    change, changed = find_cheapest_change(MODEL, Layout(data=64), slow, 1024)
    cut = cost(Layout(data=4, pipeline=16), slow)  # quicker by less than 5 %, and it cuts the model
    assert change == "ZeRO stage 1"
    assert cut.step_seconds < changed.step_seconds < 1.05 * cut.step_seconds
    long = Transformer(7e9, 32, 4096, 2**17, 50_000)
    change, _ = find_cheapest_change(long, Layout(data=64, zero_stage=1), MACHINE, 64)
    assert "Recomputation" not in change  # even then one sequence is too long
    assert "parallelism over" in change


def test_the_best_layouts_of_ten_thousand_in_two_seconds():
    run = Run(parameters=70e9, layers=80, hidden=8192, sequence=4096, global_batch=2048)
    begun = time.perf_counter()
    plan = run.plan("1024 H100, 8x400Gb/s")
    seconds = time.perf_counter() - begun
    assert plan.tried > 5000 and 0 < plan.fitting < plan.tried
    times = [each.step_seconds for each in plan.best]
    assert times == sorted(times) and len({str(each.layout) for each in plan.best}) == 5
    print(f"{plan.tried:,} layouts in {seconds:.2f} s")


def test_a_plan_adds_up():
    plan = SEVEN.plan("64 H100, 8 a node, 400Gb/s")
    best = plan.best[0]
    hours = 1e12 / (1024 * 4096) * best.step_seconds / 3600
    assert plan.find_hours(best) == pytest.approx(hours)
    assert plan.find_cost(best) == pytest.approx(hours * 64 * 3)
    flops = 1024 * 4096 * (MODEL.flops_per_token + MODEL.attention_flops_per_token)
    assert plan.find_mfu(best) == pytest.approx(flops / best.step_seconds / 64 / 989e12)
    named = {name for name, _, _ in plan.explain()}
    assert {"FLOPs per token", "micro-batch", "MFU", "hours", *best.parts} <= named
    assert plan.tabulate()[0]["memory_gb"] <= 80
    failing = replace(SEVEN, node_mtbf_hours=1000).plan("64 H100, 8 a node, 400Gb/s")
    assert failing.find_hours(best) > hours and failing.effective_time < 1
    alone = SEVEN.plan("64 H100, 8 a node, 400Gb/s", layout=best.layout)
    assert alone.best == (best,)


def test_the_table_of_a_lesson_is_plain_data():
    rows = tabulate_layouts(SEVEN, "H100", "8x400Gb/s", (8, 64))
    ways = {(row["devices"], row["way"]): row for row in rows}
    assert not ways[8, "data, ZeRO 0"]["fits"] and ways[8, "data, ZeRO 0"]["memory_gb"] > 80
    assert ways[64, "data, ZeRO 3"]["fits"] and ways[64, "data, ZeRO 3"]["memory_gb"] < 80
    assert ways[64, "data, tensor"]["step_seconds"] > 0


def test_measured_tables_are_read_as_they_are_printed(tmp_path):
    (tmp_path / "nccl.txt").write_text(NCCL)
    table = read_measured(tmp_path / "nccl.txt")
    assert (table.ranks, table.payload_bytes) == (2, (1024, 2048, 1048576))
    assert table.find_seconds(2048) == pytest.approx(12e-6)
    assert table.find_seconds(2**21) == pytest.approx(188e-6, rel=0.01)
    assert table.find_seconds(2048, ranks=8) == pytest.approx(12e-6 * (7 / 8) / (1 / 2))
    ours = read_measured(FOLDER / "nccl_allreduce_p4de.csv")
    assert len(ours.seconds) == 29 and ours.ranks == 16
    (tmp_path / "own.csv").write_text("# mine\nbytes,seconds\n1000,0.001\n2000,0.002\n")
    line = read_measured(tmp_path / "own.csv")
    for size in (500, 1000, 1500, 4000):  # a latency and a rate come back exactly
        assert line.find_seconds(size) == pytest.approx(size / 1e6)
    network = read_network(str(tmp_path / "own.csv"))
    assert network.ring_seconds(8, 1500) == pytest.approx(0.0015)
    assert read_network("10ms 400Gb/s").link == Link(1e-2, 50e9)


def test_a_measured_table_takes_the_place_of_the_link():
    table = read_measured(FOLDER / "nccl_allreduce_p4de.csv")
    machine = find_machine("16 A100, 100Gb/s")
    measured = replace(machine, network=replace(machine.network, measured=table))
    layout = Layout(data=16, zero_stage=1, recompute=True)
    with_table, without = (
        cost_layout(MODEL, layout, m, 16).parts["data"] for m in (measured, machine)
    )
    assert with_table < without / 3  # four links of 100 Gb/s, and the table says so


@pytest.mark.parametrize(
    "text, says",
    [
        ("bytes,seconds\n1000,0.1\n", "2 or more sizes, got 1"),
        ("bytes,speed\n1,2\n3,4\n", "no column seconds"),
        ("# Collective: all_gather_perf\n" + NCCL, "another collective"),
        ("hello\n", "no header"),
        ("bytes,seconds\n0,1\n1,2\n", "must be above 0"),
    ],
)
def test_bad_tables_get_one_line(tmp_path, text, says):
    (tmp_path / "table").write_text(text)
    with pytest.raises(DistributedError, match=says) as refused:
        read_measured(tmp_path / "table")
    assert "\n" not in str(refused.value)


def test_layouts_are_read_from_a_line():
    text = "data=8, tensor=4, zero=1, micro-batch=2, recompute"
    assert parse_layout(text) == Layout(8, 4, zero_stage=1, micro_batch=2, recompute=True)
    assert math.prod((8, 4)) == parse_layout(text).devices
