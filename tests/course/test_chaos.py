"""Training runs that are killed, given notice or frozen: all must survive.

Three named runs here, which together hit every method, every way to die and every moment.
`make chaos` draws a hundred at random; a failed one is drawn again by the seed it prints.
"""

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from distlab.lessons import chaos
from distlab.lessons.chaos import ChaosStart, Fault, draw_fault, read_attempts, run_faults
from utils.cluster import LocalCluster
from utils.training.recovery import METHODS, RecoverySettings

ROOT = Path(__file__).parents[2]
SETTINGS = RecoverySettings("", epochs=3, pause_seconds=0.01)  # 15 steps
KILLED_WHILE_SAVING = Fault(1, "manager", 3, 0, "SIGKILL", "checkpoint", 8, 0.01)
GIVEN_NOTICE_IN_A_STEP = Fault(2, "preemption", 2, 1, "SIGTERM", "step", 6, 0.0)
FROZEN_AT_START_UP = Fault(3, "backup", 2, 1, "freeze", "start-up", 0, 0.3)
NAMED = (KILLED_WHILE_SAVING, GIVEN_NOTICE_IN_A_STEP, FROZEN_AT_START_UP)


def test_the_named_strikes_hit_every_way_to_die():
    assert {s.method for s in NAMED} == set(METHODS)
    assert {s.kind for s in NAMED} == set(chaos.KINDS)
    assert {s.moment for s in NAMED} == set(chaos.MOMENTS)
    assert {s.workers for s in NAMED} == set(chaos.WORKER_COUNTS)
    assert {s.victim for s in NAMED} == {0, 1}, "the chief and another"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_every_run_survives_with_the_undisturbed_weights():
    outcomes = list(run_faults(NAMED, SETTINGS))
    for outcome in outcomes:
        print(outcome)
        assert outcome.problem is None, str(outcome)
        assert outcome.error <= 1e-9
        assert outcome.restarts == 1, "each of these faults must hit"
    assert chaos.describe_outcomes(outcomes).endswith(
        f"3 of 3 runs survived, their weights at most {max(o.error for o in outcomes):.1e} off"
    )


def test_a_seed_draws_the_same_strike_and_many_seeds_draw_everything():
    settings = RecoverySettings("")
    faults = [draw_fault(seed, settings) for seed in range(600)]
    assert faults == [draw_fault(seed, settings) for seed in range(600)]
    drawn = {(s.method, s.kind, s.moment) for s in faults}
    assert len(drawn) == len(METHODS) * len(chaos.KINDS) * len(chaos.MOMENTS)
    assert {s.workers for s in faults} == {2, 3} and all(s.victim < s.workers for s in faults)
    assert {s.place for s in faults if s.moment == "checkpoint"} == {4, 8, 12, 16, 20, 24}
    assert {s.place for s in faults if s.moment == "step"} == set(range(1, 25))


def test_of_several_strikes_each_is_examined_with_its_own_restart():
    settings = RecoverySettings("", checkpoint_every=4)
    kill = replace(draw_fault(0, settings), method="preemption", kind="SIGKILL")
    notice = replace(kill, kind="SIGTERM")
    told = [ChaosStart(0, 6, 4), ChaosStart(4, 11, 8, 2), ChaosStart(8, 25, 25, 3)]
    assert chaos._examine_steps([kill, kill], settings, told) is None
    assert "there was notice" in chaos._examine_steps([kill, notice], settings, told)


def tell(*lines):
    names = ("attempt", "task", "event", "step")
    return [dict(zip(names, line)) for line in lines]


def test_lost_steps_are_counted_from_what_the_tasks_told():
    told = read_attempts(
        tell(
            (1, "worker 0", "restore", 0),
            (1, "worker 0", "step", 6),
            (1, "worker 1", "step", 7),
            (1, "worker 1", "checkpoint", 7),
            (1, "worker 0", "checkpoint", 4),
            (3, "worker 1", "restore", 4),
            (3, "worker 0", "step", 9),
        )
    )
    assert told == [ChaosStart(0, 7, 4, 0), ChaosStart(), ChaosStart(4, 9, 0, 3)]


def test_the_spans_of_an_attempt_are_kept_lost_and_waited_for():
    lines = [(1, "worker 0", "restore", 0), *((1, "worker 0", "step", n) for n in range(1, 7))]
    lines += [(2, "worker 0", "restore", 4), *((2, "worker 0", "step", n) for n in range(5, 9))]
    events = [{**event, "time": 100.0 + n} for n, event in enumerate(tell(*lines))]
    assert chaos.make_attempt_rows(events) == [
        ("attempt 1", 0.0, 3.0, "1 to 4", "kept"),
        ("attempt 1", 3.0, 5.0, "5 to 6", "trained, then lost"),
        ("attempt 2", 5.0, 7.0, "restart", "no training"),
        ("attempt 2", 7.0, 10.0, "5 to 8", "kept"),
    ]


def test_a_kill_costs_the_lost_steps_and_the_restart():
    times = {"step_seconds": 2.0, "restart_seconds": 5.0}
    rows = chaos.make_kill_rows(**times, saved=8, killed=11, total=25)
    assert max(end for lane, _, end, _, _ in rows if lane == "undisturbed") == 50.0
    assert rows[-1][2] == 50.0 + 3 * 2.0 + 5.0
    assert all(before[2] == after[1] for before, after in pairwise(rows[1:]))


@pytest.mark.parametrize(
    "told, method, kind, says",
    [
        ([ChaosStart(0, 7, 4), ChaosStart(0, 25, 25, 7)], "manager", "SIGKILL", "and 4 was saved"),
        ([ChaosStart(0, 9, 4), ChaosStart(4, 25, 25, 5)], "manager", "SIGKILL", "lost 5 steps"),
        (
            [ChaosStart(0, 5, 4), ChaosStart(4, 25, 25, 1)],
            "preemption",
            "SIGTERM",
            "there was notice",
        ),
        ([ChaosStart(0, 5, 5), ChaosStart(5, 25, 25, 0)], "preemption", "SIGTERM", None),
        ([ChaosStart(0, 5, 4), ChaosStart(4, 25, 25, 1)], "preemption", "SIGKILL", None),
    ],
)
def test_a_run_that_lost_too_much_is_found_out(told, method, kind, says):
    settings = RecoverySettings("", checkpoint_every=4)
    drawn = replace(draw_fault(0, settings), method=method, kind=kind)
    problem = chaos._examine_steps([drawn], settings, told)
    assert problem is None if says is None else says in problem


def run_card(program, shared, save=()):
    """Run in each worker: save after these steps, or run `program`; return the step then."""
    import tempfile

    import keras
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
        optimizer = keras.optimizers.Adam()
        optimizer.build(model.trainable_variables)
    step, is_chief = tf.Variable(0, dtype=tf.int64), strategy.cluster_resolver.task_id == 0
    mine = shared if is_chief else tempfile.mkdtemp()
    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, step=step)
    manager = tf.train.CheckpointManager(checkpoint, mine, max_to_keep=3)
    for number in save:
        step.assign(number)
        manager.save(checkpoint_number=number)
    if not save:
        from pathlib import Path

        exec(
            program,
            {**locals(), "tf": tf, "tempfile": tempfile, "Path": Path, "checkpoint_every": 4},
        )
    return int(step)


def read_card():
    """Return the function `latest_intact` and the cheat sheet of lesson 10, as one program."""
    source = (ROOT / "notebooks/src/10_fault_tolerance.py").read_text()
    finder = re.search(r"(?ms)^def latest_intact\(folder\):.*?(?=\n\n\n)", source)[0]
    card = re.search(r"(?ms)^# ```python\n(# checkpoint = .*?)^# ```$", source)[1]
    return finder + "\n" + re.sub(r"(?m)^# ", "", card)


def test_the_card_of_lesson_10_passes_over_a_damaged_checkpoint(tmp_path):
    """The handler in it would otherwise restore what the file `checkpoint` names."""
    folder, program = str(tmp_path / "shared"), read_card()
    environment = {"GCE_METADATA_IP": "127.0.0.1:9"}
    with LocalCluster(workers=2, environment=environment) as cluster:
        assert cluster.run(run_card, "", folder, (4, 8), timeout=240, echo=False) == [8, 8]
        assert cluster.run(run_card, program, folder, timeout=240, echo=False) == [8, 8]
        data = Path(folder, "ckpt-8.data-00000-of-00001")
        data.write_bytes(data.read_bytes()[: data.stat().st_size // 2])
        assert cluster.run(run_card, program, folder, timeout=240, echo=False) == [4, 4]
