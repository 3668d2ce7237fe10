"""The pipeline simulator: closed forms, a slow reference, published figures, the shell."""

import json

import numpy as np
import pytest
from test_schedules import draw_sizes

from distlab import figures
from distlab.cli import main
from distlab.cli import simulate as command
from distlab.cli.parser import OneLineParser
from utils.schedules import SCHEDULES, check_schedule, make_schedule, read_schedule
from utils.simulate.pipeline import (
    KIND_NAMES,
    StageTimes,
    simulate_pipeline,
)
from utils.simulate.published import read_table

EVEN = StageTimes(1.0, 1.0, 1.0)


def simulate(name, stages, micro_batches, times=EVEN, chunks=None):
    return simulate_pipeline(make_schedule(name, stages, micro_batches, chunks), times)


# --- closed forms ---


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("stages", "micro_batches"), [(1, 1), (1, 5), (4, 4), (4, 9), (16, 3)])
def test_flushed_schedules_idle_for_stages_less_one_micro_batches(name, stages, micro_batches):
    """(P - 1) / M of the ideal time, without communication (GPipe, section 2.3)."""
    run = simulate(name, stages, micro_batches, StageTimes(1.5, 2.25, 0.5))
    ideal = micro_batches * 4.25
    assert run.longest_stage_span == pytest.approx(ideal + (stages - 1) * 4.25, rel=1e-12)
    idle = (stages - 1) / micro_batches
    assert run.bubble_fraction == pytest.approx(idle / (1 + idle), rel=1e-12, abs=1e-12)
    assert run.makespan == pytest.approx(run.longest_stage_span, rel=1e-12)


@pytest.mark.parametrize(
    ("stages", "micro_batches", "chunks"), [(1, 3, 3), (2, 2, 2), (4, 8, 2), (8, 24, 3), (5, 5, 4)]
)
def test_interleaving_divides_the_bubble_by_the_chunks(stages, micro_batches, chunks):
    """(P - 1) / (V M) of the ideal time (Narayanan et al. 2021, section 2.2)."""
    run = simulate("interleaved-1f1b", stages, micro_batches, StageTimes(1.5, 2.25, 0.5), chunks)
    ideal = micro_batches * 4.25
    wanted = ideal * (1 + (stages - 1) / (chunks * micro_batches))
    assert run.longest_stage_span == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 8), (4, 12), (8, 24), (8, 64)])
def test_zero_bubble_schedules_idle_as_the_paper_says(stages, micro_batches):
    """(P-1)(F+B-W) for H1, (P-1)(F+B-2W) for H2: Qi et al. 2023, table 2."""
    times = StageTimes(1.25, 1.5, 1.0)
    ideal = micro_batches * 3.75
    h1 = simulate("zb-h1", stages, micro_batches, times)
    assert h1.longest_stage_span - ideal == pytest.approx((stages - 1) * 1.75, rel=1e-12)
    h2 = simulate("zb-h2", stages, micro_batches, times)
    assert h2.longest_stage_span - ideal == pytest.approx((stages - 1) * 0.75, rel=1e-12)
    assert simulate("zb-h2", stages, micro_batches).bubble_fraction == 0.0


def test_communication_by_hand():
    """Two stages, one micro-batch: F, hop, F, BW, hop, BW."""
    run = simulate("1f1b", 2, 1, StageTimes(1, 2, 3, communication=0.5))
    spans = [(s.stage, s.kind, s.start, s.end) for s in run.timeline()]
    assert spans == [(0, "F", 0, 1), (0, "BW", 8, 13), (1, "F", 1.5, 2.5), (1, "BW", 2.5, 7.5)]
    assert run.makespan == run.longest_stage_span == 13
    assert run.bubble_fraction == pytest.approx(1 - 6 / 13)


def test_one_stage_has_no_hop_even_between_chunks():
    run = simulate("interleaved-1f1b", 1, 4, StageTimes(1, 1, 1, communication=9), chunks=3)
    assert run.makespan == pytest.approx(12) and run.bubble_fraction == pytest.approx(0, abs=1e-12)


# --- memory ---


@pytest.mark.parametrize(("stages", "micro_batches"), [(1, 1), (4, 2), (4, 12), (7, 30)])
def test_peak_activations(stages, micro_batches):
    def peaks(name):
        return list(simulate(name, stages, micro_batches).peak_activations_per_stage)

    every = range(stages)
    assert peaks("gpipe") == [micro_batches] * stages
    assert peaks("1f1b") == [min(stages - stage, micro_batches) for stage in every]
    assert peaks("zb-h1") == [min(stages, micro_batches)] * stages
    assert peaks("zb-h2") == [min(2 * stages - 1, micro_batches)] * stages


def test_a_chunk_counts_as_its_share_of_the_stage():
    """P + (P - 1) / V micro-batches on the first stage: Narayanan et al. 2021, section 2.2."""
    run = simulate("interleaved-1f1b", 4, 16, chunks=3)
    assert run.peak_activations_per_stage[0] == pytest.approx(4 + 3 / 3)
    assert run.peak_activations_per_stage[3] == pytest.approx((2 * 4 + 1) / 3)


def test_activations_live_until_the_weights_are_done():
    late = read_schedule([[("F", 0), ("B", 0), ("F", 1), ("B", 1), ("W", 0), ("W", 1)]], 2)
    soon = read_schedule([[("F", 0), ("B", 0), ("W", 0), ("F", 1), ("B", 1), ("W", 1)]], 2)
    assert simulate_pipeline(late, EVEN).peak_activations_per_stage == (2,)
    assert simulate_pipeline(soon, EVEN).peak_activations_per_stage == (1,)


# --- against a slow reference, and what must hold for all times ---


def draw_times(random, stages, chunks):
    """Draw times of every permitted shape, with zeros among them, and a delay."""
    shapes = ((), (stages,), (chunks, stages))
    shape = shapes[random.integers(3)]
    f, b, w = (random.choice([0.0, 1.0, 2.5], size=shape) + random.random(shape) for _ in range(3))
    return StageTimes(f, b, w if random.random() < 0.7 else w * 0, random.choice([0.0, 0.3, 4.0]))


def run_slowly(schedule, table, delay):
    """Return {(stage, kind, micro-batch, chunk): end} by sweeping until nothing changes."""
    parts = schedule.stages * schedule.chunks
    ends, changed = {}, True
    while changed:
        changed = False
        for stage, order in enumerate(schedule.orders):
            now = 0.0
            for o in order:
                part = o.chunk * schedule.stages + stage
                after = part - 1 if o.kind == "F" else part + 1
                begin = now
                if o.kind != "W" and 0 <= after < parts:
                    other, chunk = after % schedule.stages, after // schedule.stages
                    kinds = "F" if o.kind == "F" else ("B", "BW")
                    found = [ends.get((other, k, o.micro_batch, chunk), 0.0) for k in kinds]
                    begin = max(now, max(found) + (delay if other != stage else 0.0))
                now = begin + table["F B W BW".split().index(o.kind), stage, o.chunk]
                key = (stage, o.kind, o.micro_batch, o.chunk)
                changed |= ends.get(key) != now
                ends[key] = now
    return ends


def test_simulation_equals_a_slow_reference():
    random = np.random.default_rng(5)
    for name, stages, micro_batches, chunks in draw_sizes(seed=6, draws=60):
        stages, micro_batches = min(stages, 6), min(micro_batches, 12)
        if chunks > 1:
            micro_batches = 2 * stages
        schedule = make_schedule(name, stages, micro_batches, chunks)
        times = draw_times(random, stages, chunks)
        run = simulate_pipeline(schedule, times)
        wanted = run_slowly(schedule, times.tabulate(stages, chunks), times.communication)
        spans = run.timeline()
        got = {(s.stage, s.kind, s.micro_batch, s.chunk): s.end for s in spans}
        assert got.keys() == wanted.keys()
        assert all(got[key] == pytest.approx(wanted[key], rel=1e-12) for key in wanted)


def test_work_is_conserved_order_kept_and_no_bound_broken():
    random = np.random.default_rng(7)
    for name, stages, micro_batches, chunks in draw_sizes(seed=8, draws=120):
        schedule = make_schedule(name, stages, micro_batches, chunks)
        times = draw_times(random, stages, chunks)
        run = simulate_pipeline(schedule, times)
        table = times.tabulate(stages, chunks)  # [kind, stage, chunk]
        work = micro_batches * (table[0] + table[3]).sum(axis=1)
        assert run.busy_per_stage == pytest.approx(work)
        hops = 2 * (stages * chunks - 1) * times.communication if stages > 1 else 0.0
        path = table[:2].sum() + hops  # one micro-batch, forward through all parts and back
        slack = 1 - 1e-9
        assert run.makespan >= max(path, run.longest_stage_span) * slack
        assert run.longest_stage_span >= work.max() * slack
        assert 0.0 <= run.bubble_fraction < 1.0
        check_stage_order(schedule, run)


def check_stage_order(schedule, run):
    """Each stage does its own list, one operation at a time."""
    spans = run.timeline()
    for stage, order in enumerate(schedule.orders):
        own = [span for span in spans if span.stage == stage]
        assert [(s.kind, s.micro_batch, s.chunk) for s in own] == [
            (o.kind, o.micro_batch, o.chunk) for o in order
        ]
        for earlier, later in zip(own, own[1:], strict=False):
            assert later.start >= earlier.end >= earlier.start
        assert run.span_per_stage[stage] == pytest.approx(own[-1].end - own[0].start)


def test_time_scales_and_more_time_never_ends_sooner():
    random = np.random.default_rng(9)
    for name, stages, micro_batches, chunks in draw_sizes(seed=10, draws=40):
        schedule = make_schedule(name, stages, micro_batches, chunks)
        f, b, w, c = random.random(4) + 0.1
        run = simulate_pipeline(schedule, StageTimes(f, b, w, c))
        thrice = simulate_pipeline(schedule, StageTimes(3 * f, 3 * b, 3 * w, 3 * c))
        assert thrice.makespan == pytest.approx(3 * run.makespan)
        assert thrice.bubble_fraction == pytest.approx(run.bubble_fraction, abs=1e-9)
        for slower in ((f + 1, b, w, c), (f, b + 1, w, c), (f, b, w + 1, c), (f, b, w, c + 1)):
            later = simulate_pipeline(schedule, StageTimes(*slower)).makespan
            assert later >= run.makespan * (1 - 1e-12)


def test_unequal_stages_are_as_slow_as_the_slowest():
    """Many micro-batches: the slowest stage never stops, the others wait for it."""
    forward = np.array([1.0, 2.0, 1.0])
    run = simulate("1f1b", 3, 200, StageTimes(forward, forward, forward))
    assert run.longest_stage_span == pytest.approx(200 * 6, rel=0.02)
    assert run.bubble_fraction == pytest.approx(1 - 4 / 6, rel=0.03)  # mean work 4 of 6


def test_chunks_may_have_times_of_their_own():
    schedule = make_schedule("interleaved-1f1b", 2, 2, 2)
    whole = simulate_pipeline(schedule, StageTimes([2, 4], 1.0, 1.0))
    each = simulate_pipeline(schedule, StageTimes([[1, 2], [1, 2]], 1.0, 1.0))
    assert each.ends.tolist() == whole.ends.tolist()
    uneven = simulate_pipeline(schedule, StageTimes([[0, 2], [2, 2]], 1.0, 1.0))
    assert uneven.busy_per_stage.tolist() == whole.busy_per_stage.tolist()
    assert uneven.ends.tolist() != whole.ends.tolist()


# --- published figures ---


RATES = {"1f1b": "bub_1F1B", "zb-h1": "bub_ZBH1", "zb-h2": "bub_ZBH2"}


def simulate_published(name, row):
    times = StageTimes(row["TF"], row["TB"], row["TW"], row["Tcomm"])
    chunks = 3 if name == "interleaved-1f1b" else None  # the paper's models have 3 parts a stage
    return simulate(name, int(row["p"]), int(row["m"]), times, chunks)


@pytest.mark.parametrize(
    "row", read_table("zero_bubble_2023"), ids=lambda r: f"{r['model']}-{r['m']:g}"
)
def test_theoretical_bubble_rates_of_qi_et_al(row):
    for name, column in RATES.items():
        assert simulate_published(name, row).bubble_fraction == pytest.approx(row[column], abs=1e-4)
    interleaved = simulate_published("interleaved-1f1b", row).bubble_fraction
    assert interleaved == pytest.approx(row["bub_1F1BI"], rel=0.05)


@pytest.mark.parametrize(
    "row", read_table("zero_bubble_2023"), ids=lambda r: f"{r['model']}-{r['m']:g}"
)
def test_measured_ratios_between_schedules_of_qi_et_al(row):
    """Samples a second go as 1 / span; ZB-1p was run, whose bubble is that of ZB-H1."""
    columns = {"1f1b": "sps_1F1B", "interleaved-1f1b": "sps_1F1BI", "zb-h1": "sps_ZB1p"}
    assert row["bub_ZB1p"] == row["bub_ZBH1"]
    spans = {name: simulate_published(name, row).longest_stage_span for name in columns}
    for first in columns:
        for second in columns:
            measured = row[columns[first]] / row[columns[second]]
            assert spans[second] / spans[first] == pytest.approx(measured, rel=0.10)


@pytest.mark.parametrize("recomputed", [False, True])
def test_throughput_against_partitions_of_gpipe(recomputed):
    """K equal stages share the layers; M = 32; normalized to K = 2. GPipe recomputes forwards."""
    rows = read_table("gpipe_table3_2019")
    speeds = {}
    for row in rows:
        stages = int(row["K"])
        times = StageTimes(1 / stages, 1 / stages, 1 / stages)
        times = times.recompute() if recomputed else times
        speeds[stages] = 1 / simulate("gpipe", stages, int(row["M"]), times).longest_stage_span
    for row in rows:
        ratio = speeds[int(row["K"])] / speeds[2]
        assert ratio == pytest.approx(row["Transformer_24"], rel=0.20)


def test_rematerialization_adds_a_forward_to_each_backward():
    run = simulate("gpipe", 4, 8, StageTimes([1, 1, 1, 2], 2, 3).recompute())
    assert run.busy_per_stage.tolist() == [56, 56, 56, 72]
    chunked = StageTimes(1.0, [[1, 1], [2, 1]], 1.0).recompute()  # a chunk's forward is 0.5
    assert chunked.backward_input.tolist() == [[1.5, 1.5], [2.5, 1.5]]


# --- size, picture, shell ---


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_large_pipeline_is_simulated(name):
    """64 stages, 1,024 micro-batches; `make bench` asserts how fast."""
    run = simulate(name, 64, 1024, StageTimes(1.0, 1.1, 0.9, 0.05))
    assert 0 < run.bubble_fraction < 0.15
    assert len(run.starts) == 64 * 1024 * {"zb-h1": 3, "zb-h2": 3, "interleaved-1f1b": 4}.get(
        name, 2
    )


def test_timeline_is_drawn():
    run = simulate("interleaved-1f1b", 2, 2, chunks=2)
    picture = figures.timeline(run.rows(), title="Interleaved", unit="")
    assert "stage 1" in picture.alt and picture.svg.startswith("<svg")
    rows = run.rows()
    both = [f"{KIND_NAMES[kind]}, chunk {chunk}" for kind in ("F", "BW") for chunk in (0, 1)]
    assert {row[4] for row in rows} == set(both)
    assert {"0", "1"} == {row[3] for row in rows}
    assert {row[4] for row in simulate("1f1b", 2, 2).rows()} == {"forward", "backward"}


GIVEN = (
    "simulate pipeline --schedule zb-h1 --stages 8 --micro-batches 24 --forward 18.522 "
    "--backward-input 18.086 --backward-weight 9.337 --communication 0.601"
).split()


def call(capsys, *arguments):
    """Run the shell command; return (status, standard output, standard error)."""
    return main([*arguments]), *capsys.readouterr()


def changed(**options):
    """Return GIVEN with options put in place."""
    words = list(GIVEN)
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if option in words:
            words[words.index(option) + 1] = value
        else:
            words += [option, value]
    return words


def test_command_prints_json(capsys):
    status, out, err = call(capsys, *GIVEN, "--json")
    assert status == 0 and err == "" and out.count("\n") == 1
    told = json.loads(out)
    keys = ["bubble_fraction", "makespan", "longest_stage_span", "peak_activations_per_stage"]
    assert list(told) == keys
    assert told["bubble_fraction"] == pytest.approx(0.1585, abs=1e-4)
    assert told["peak_activations_per_stage"] == [8] * 8
    work = 24 * (18.522 + 18.086 + 9.337)
    assert told["bubble_fraction"] == pytest.approx(1 - work / told["longest_stage_span"])


def test_command_prints_a_table(capsys):
    status, out, _ = call(capsys, *GIVEN)
    lines = out.splitlines()
    assert status == 0 and len(lines) == 5
    assert lines[0].startswith("pipeline: schedule zb-h1, stages 8, micro batches 24, forward 18.5")
    assert lines[1].split() == ["bubble", "fraction", "15.85%"]
    assert lines[-1].split("  ")[-1] == ", ".join(["8"] * 8)


def test_command_takes_chunks(capsys):
    two, three = (
        json.loads(call(capsys, *changed(schedule="interleaved-1f1b", chunks=v), "--json")[1])
        for v in "23"
    )
    usual = json.loads(call(capsys, *changed(schedule="interleaved-1f1b"), "--json")[1])
    assert usual == two and three["bubble_fraction"] < two["bubble_fraction"]


def test_command_names_its_options():
    parser = OneLineParser()
    command.add_parser(parser.add_subparsers())
    arguments = parser.parse_args(GIVEN)
    assert arguments.run.args == ("pipeline",) and arguments.communication == 0.601


def test_generated_schedules_pass_the_check_that_learners_get():
    for name in SCHEDULES:
        assert check_schedule(make_schedule(name, 8, 16)) is None
