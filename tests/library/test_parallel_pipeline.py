"""Pipelines that run: equal gradients, the schedule's own order, activations counted."""

import gc
import signal
import threading
import time

import numpy as np
import pytest
from parallel_models import DEVICES, assert_equal_step, build_tower, make_batch
from process_watch import Held

from distlab import figures
from distlab.lessons.replicated_pipeline import run_replicas
from distlab.lessons.weight_stashing import measure_errors, run_without_flush
from utils.errors import DistributedError
from utils.measure import array_bytes
from utils.models import build_cnn
from utils.parallel.parts import StepResult, measure_layers
from utils.parallel.pipeline import cut_model, run_pipeline
from utils.parallel.stage import Mailbox, Rules, Stage
from utils.schedules import make_schedule, read_schedule
from utils.schedules.replay import encode, find_needs
from utils.simulate.pipeline import StageTimes, simulate_pipeline

EVEN = [1.0] * 8
SCHEDULES = [
    ("gpipe", 1, 6),
    ("1f1b", 1, 6),
    ("1f1b", 1, 2),
    ("interleaved-1f1b", 2, 8),
    ("zb-h1", 1, 6),
    ("zb-h2", 1, 6),
]


@pytest.fixture(scope="module")
def tower():
    return build_tower()


def run_one(tower, name, chunks, micro_batches, rules=None, examples=24):
    stages = 4 // chunks if chunks > 1 else 4
    schedule = make_schedule(name, stages, micro_batches, chunks if chunks > 1 else None)
    pipeline = cut_model(tower, EVEN, stages, DEVICES, chunks)
    images, labels = make_batch(examples)
    step = run_pipeline(pipeline, schedule, images, labels, rules)
    return step, schedule, pipeline, images, labels


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize(("name", "chunks", "micro_batches"), SCHEDULES)
def test_a_pipeline_gives_the_unsplit_gradients(tower, name, chunks, micro_batches, recompute):
    rules = Rules(recompute=recompute)
    step, schedule, _, images, labels = run_one(tower, name, chunks, micro_batches, rules)
    assert_equal_step(step, tower, images, labels)
    wanted = [[(o.kind, o.micro_batch, o.chunk) for o in order] for order in schedule.orders]
    assert step.orders() == wanted
    simulated = simulate_pipeline(schedule, StageTimes(1.0, 1.0, 1.0))
    assert step.peak_activations_per_stage == simulated.peak_activations_per_stage


@pytest.mark.parametrize(("examples", "micro_batches"), [(13, 4), (5, 5), (7, 1)])
def test_uneven_micro_batches_add_up_to_the_batch(tower, examples, micro_batches):
    step, *_, images, labels = run_one(tower, "1f1b", 1, micro_batches, examples=examples)
    assert_equal_step(step, tower, images, labels)


def test_a_real_network_is_cut_where_its_measured_cost_is_balanced():
    model = build_cnn(dtype="float64")
    images, labels = make_batch(12)
    costs = [cost.seconds for cost in measure_layers(model, images[:4], repeats=3)]
    pipeline = cut_model(model, costs, 3, DEVICES)
    sums = [sum(costs[number] for number in run) for run in pipeline.layers]
    cuts = [(a, b) for a in range(1, 6) for b in range(a + 1, 7)]
    best = min(max(sum(costs[:a]), sum(costs[a:b]), sum(costs[b:])) for a, b in cuts)
    assert max(sums) == pytest.approx(best)
    assert sum(pipeline.count_parameter_bytes()) == array_bytes(model.trainable_variables)
    step = run_pipeline(pipeline, make_schedule("1f1b", 3, 4), images, labels)
    assert_equal_step(step, model, images, labels)


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zb-h1"])
def test_operations_wait_for_what_they_need_and_stages_overlap(tower, name):
    """No operation begins before its input is there, so the simulator's time is the least."""
    times = StageTimes(0.01, 0.01, 0.01, communication=0.005)
    step, schedule, *_ = run_one(tower, name, 1, 6, Rules(slowed_to=times))
    encoded = encode(schedule)
    spans = [span for report in step.reports for span in report.spans]
    for number, need in enumerate(find_needs(encoded)):
        if need >= 0:
            assert spans[number].start >= spans[need].end + 0.005 - 1e-6
    for report in step.reports:
        for first, second in zip(report.spans, report.spans[1:], strict=False):
            assert second.start >= first.end
    simulated = simulate_pipeline(schedule, times)
    assert step.makespan >= simulated.makespan - 1e-6
    pairs = [(a, b) for a in spans for b in spans if a.stage < b.stage]
    together = [a for a, b in pairs if max(a.start, b.start) < min(a.end, b.end)]
    assert together, "the stages took turns: nothing ran at the same time"
    assert 0 <= step.bubble_fraction < 1 and step.longest_stage_span <= step.makespan


def test_only_boundaries_cross_and_each_hop_once(tower):
    step, *_ = run_one(tower, "1f1b", 1, 6)
    boundary = 24 * 16 * 8  # the whole batch's 16 hidden values, in float64
    links = {(DEVICES[s], DEVICES[s + 1]) for s in range(3)}
    assert step.traffic.count_links() == {
        link: boundary for pair in links for link in (pair, pair[::-1])
    }


def test_rematerialization_keeps_inputs_and_one_micro_batch(tower):
    """Stage 0 holds Flatten and a dense layer: 784 pixels in, 784 and 16 values out."""
    kept = {}
    for again in (False, True):
        step, *_ = run_one(tower, "gpipe", 1, 6, Rules(recompute=again))
        kept[again] = step.peak_bytes_per_stage[0]
    whole, inputs = 4 * 8 * (784 + 784 + 16), 4 * 8 * 784
    assert kept[False] == 6 * whole
    assert kept[True] == 5 * inputs + whole


def test_1f1b_keeps_less_than_gpipe(tower):
    gpipe, *_ = run_one(tower, "gpipe", 1, 6)
    early, *_ = run_one(tower, "1f1b", 1, 6)
    assert gpipe.peak_activations_per_stage == (6, 6, 6, 6)
    assert early.peak_activations_per_stage == (4, 3, 2, 1)
    per_micro_batch = gpipe.peak_bytes_per_stage[0] // 6
    assert early.peak_bytes_per_stage[0] == 4 * per_micro_batch


def test_a_learners_own_schedule_runs(tower):
    """Two stages, each backward in two parts, the weights' last of all."""
    orders = [
        [("F", 0), ("F", 1), ("B", 1), ("B", 0), ("W", 0), ("W", 1)],
        [("F", 0), ("F", 1), ("B", 1), ("W", 1), ("BW", 0)],
    ]
    pipeline = cut_model(tower, EVEN, 2, DEVICES)
    images, labels = make_batch(8)
    step = run_pipeline(pipeline, read_schedule(orders, 2), images, labels)
    assert_equal_step(step, tower, images, labels)


def test_replicas_of_a_pipeline_give_the_whole_batchs_gradients(tower):
    halves = [cut_model(tower, EVEN, 2, DEVICES[:2]), cut_model(tower, EVEN, 2, DEVICES[2:])]
    images, labels = make_batch(18)
    step = run_replicas(halves, make_schedule("1f1b", 2, 4), images, labels)
    assert_equal_step(step, tower, images, labels)
    held = halves[0].count_parameter_bytes()
    assert step.reduced_bytes == held  # 2 (R - 1) / R of a stage's bytes, and R is 2
    for replica, own in zip(step.steps, (DEVICES[:2], DEVICES[2:]), strict=True):
        assert set(replica.traffic.count_links()) == {tuple(own), tuple(own[::-1])}


def test_a_trace_is_drawn_like_a_simulation(tower):
    step, schedule, *_ = run_one(tower, "1f1b", 1, 4)
    simulated = simulate_pipeline(schedule, StageTimes(1, 1, 1))
    same = [(lane, label, kind) for lane, _, _, label, kind in step.rows()]
    assert same == [(lane, label, kind) for lane, _, _, label, kind in simulated.rows()]
    picture = figures.timeline(step.rows(), title="1F1B")
    assert "stage 3: 8 spans" in picture.alt


# --- without a flush ---


def test_stashed_weights_give_the_true_gradient_of_what_the_forward_used(tower):
    """Against Keras itself, with the weights that each micro-batch's forward saw."""
    images, labels = make_batch(24)
    pipeline = cut_model(tower, EVEN, 4, DEVICES)
    run = run_without_flush(pipeline, make_schedule("1f1b", 4, 8), images, labels, 0.1)
    assert max(measure_errors(pipeline, run, images, labels)) < 1e-9
    other = build_tower()
    for number, (own, answers) in enumerate(
        zip(np.array_split(images, 8), np.array_split(labels, 8), strict=True)
    ):
        other.set_weights(run.weights[number])
        step = StepResult(run.losses[number], run.gradients[number])
        assert_equal_step(step, other, own, answers)
    assert run.peak_versions_per_stage == (4, 3, 2, 1)


def test_versions_are_as_old_as_the_stages_behind(tower):
    """In the steady state stage s of P is P - 1 - s updates behind: PipeDream, section 3.3."""
    images, labels = make_batch(24)
    pipeline = cut_model(tower, EVEN, 4, DEVICES)
    run = run_without_flush(pipeline, make_schedule("1f1b", 4, 8), images, labels, 0.1)
    for number in range(3, 8):
        assert run.versions[number] == tuple(number - (3 - stage) for stage in range(4))
    assert run.versions[0] == (0, 0, 0, 0)


def test_without_stashing_the_gradients_are_wrong_and_more_so_with_larger_steps(tower):
    images, labels = make_batch(24)
    worst = []
    for learning_rate in (1e-4, 1e-2, 0.3):
        pipeline = cut_model(tower, EVEN, 4, DEVICES)
        schedule = make_schedule("1f1b", 4, 8)
        run = run_without_flush(pipeline, schedule, images, labels, learning_rate, stash=False)
        errors = measure_errors(pipeline, run, images, labels)
        assert errors[0] < 1e-12, "nothing was updated before the first one came back"
        assert run.peak_versions_per_stage == (1, 1, 1, 1)
        worst.append(max(errors))
    assert 1e-9 < worst[0] < worst[1] < worst[2] and worst[2] > 0.05


def test_a_tape_keeps_the_weights_that_the_forward_read(tf):
    """Why a plain tape stashes without being asked to."""
    weight, x = tf.Variable([[2.0]]), tf.constant([[3.0]])
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.matmul(x, weight)
    weight.assign_sub([[100.0]])
    assert tape.gradient(y, x).numpy() == 2.0


# --- what goes wrong ---


def test_an_error_in_one_stage_ends_all_of_them(tower, tf):
    images, labels = make_batch(8)
    pipeline = cut_model(tower, EVEN, 4, DEVICES)
    held = Held()
    with pytest.raises(tf.errors.InvalidArgumentError):
        run_pipeline(pipeline, make_schedule("1f1b", 4, 4), images, labels + 99)
    held.assert_nothing_stays()


@pytest.mark.parametrize("begun", [0, 3])
def test_an_interrupt_ends_the_stages(tower, monkeypatch, request, begun):
    """As when the reader presses the kernel's stop button, before all stages run or later."""
    held, run = Held(), Stage.run

    def interrupt_and_run(stage):
        if stage.number == begun:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        return run(stage)

    monkeypatch.setattr(Stage, "run", interrupt_and_run)
    gc.disable()  # Python drops what is raised while it collects, and JAX lets it run code then
    request.addfinalizer(gc.enable)
    with pytest.raises(KeyboardInterrupt):  # to its end it would take longer than a test may
        run_one(tower, "1f1b", 1, 999, Rules(slowed_to=StageTimes(0.8, 0.8, 0.8)), examples=999)
    held.assert_nothing_stays()


def test_a_stage_that_waits_too_long_says_for_what(tower):
    rules = Rules(slowed_to=StageTimes(1.0, 0.0, 0.0), limit_seconds=0.2)
    with pytest.raises(DistributedError, match=r"stage \d at F0 .*(waited|gave up)"):
        run_one(tower, "gpipe", 1, 1, rules, examples=2)


def test_a_message_on_its_way_is_not_there_yet():
    box = Mailbox()
    box.put("late", 1, delay_seconds=0.05)
    begun = time.monotonic()
    assert box.take("late", "a test", 90) == 1
    assert time.monotonic() - begun >= 0.05
    with pytest.raises(DistributedError, match="a test has waited 0 s for never"):
        box.take("never", "a test", 0.01)
