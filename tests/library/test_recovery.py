"""Recovery: each way resumes to the uninterrupted weights; what is cut short is never loaded."""

import json
import os
import random
import signal
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from process_watch import wait_for

from distlab.lessons.chaos import read_attempts
from utils.cluster import ClusterError, LocalCluster
from utils.cluster.waiting import is_stopped
from utils.errors import DistributedError
from utils.training.recovery import METHODS, RESTART_CODE, RecoverySettings, train_with_recovery

SETTINGS = RecoverySettings(folder="", epochs=3)  # 15 steps, 5 an epoch
KILLS = 12


@pytest.fixture(scope="module")
def clusters(launcher):
    return [LocalCluster(workers, launcher=launcher) for workers in (1, 2)]


@pytest.fixture(scope="module")
def alone(clusters, tmp_path_factory):
    """The report of an uninterrupted run of one worker, and batches of a run of many epochs."""
    settings = replace(SETTINGS, folder=str(tmp_path_factory.mktemp("alone")))
    many = replace(settings, epochs=11)
    return clusters[0].run(train_and_sum, settings, many, timeout=300, echo=False)[0]


@pytest.fixture(scope="module")
def whole(alone):
    assert (alone[0].step, alone[0].restored_step) == (15, 0)
    return alone[0]


def train_and_sum(settings, many):
    """Train; then return the epoch and the sum of each batch of `many` from each of some steps."""
    from utils.training.recovery.trainer import Trainer

    report, trainer = train_with_recovery(settings), Trainer(many)
    found = {step: trainer.batches_from(step) for step in (0, 3, 25, 27, 54, 55)}
    return report, {s: [(e, batch[0].numpy().sum()) for e, batch in f] for s, f in found.items()}


def train_and_hold(settings, step):
    """Train; after `step` steps stay until a SIGTERM has come, or the file `go` is there."""
    from utils.training.recovery.trainer import Trainer

    go = Path(settings.folder, "go")

    def note_and_hold(trainer, epoch, number, loss):
        if number == step - 1 and settings.method == "preemption":  # before anyone reports `step`
            handler = signal.getsignal(signal.SIGTERM)
            signal.signal(signal.SIGTERM, lambda *told: (go.touch(), handler(*told)))
        note(trainer, epoch, number, loss)
        if number == step:
            while not go.exists():
                time.sleep(0.01)
        return number

    note, Trainer.note = Trainer.note, note_and_hold
    return train_with_recovery(settings)


def has_come(event, step):
    told = event["event"], event.get("step"), event.get("task")
    return told == ("step", step, "worker 0")


def cut_short(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize(
    ("method", "every", "struck", "victim", "cause"),
    [
        ("manager", None, 11, 1, "frozen (SIGSTOP)"),
        ("preemption", 4, 9, 1, "was ended by SIGKILL"),
        ("backup", 4, 9, 0, "was ended by SIGKILL"),
    ],
)
def test_a_run_that_is_struck_goes_on_from_its_newest_whole_checkpoint(
    clusters, whole, tmp_path, method, every, struck, victim, cause
):
    """Frozen or killed after two checkpoints, the second of which is cut off in mid-write."""
    settings = replace(SETTINGS, folder=str(tmp_path), method=method, checkpoint_every=every)
    job = clusters[1].start(train_and_hold, settings, struck, restarts=1, stall_seconds=0.5)
    next(event for event in job.events() if has_come(event, struck))
    every = every or 5
    name = "latest.weights.h5" if method == "backup" else f"ckpt-{2 * every}"
    [path] = tmp_path.glob(name if method == "backup" else f"{name}.data*")
    cut_short(path)
    task = job.tasks[victim]
    if method == "manager":
        job.pause("worker", victim)
        wait_for(lambda: is_stopped(task.process) or job.attempt == 2)
    else:
        job.kill("worker", victim)
        wait_for(lambda: task.status is not None)
    Path(tmp_path, "go").touch()
    results, events = job.wait(300), list(job.events())
    [restart] = [event for event in events if event["event"] == "restart"]
    assert restart["task"] == f"worker {victim}" and cause in restart["cause"]
    first, second = read_attempts(events)
    assert struck <= first.done and first.saved == 2 * every and second.restored == every
    restored = [e for e in events if e["event"] == "restore" and e["attempt"] == 2]
    for [reason] in (event["skipped_checkpoints"] for event in restored):
        assert reason.startswith(f"{name}: ") and len(reason) > len(name) + 7
    for report in results:
        assert_same_weights(report, whole)
        assert (report.step, report.restored_step) == (15, every)
        assert len(report.losses) == 15 - every
        if method != "backup":  # `fit` reports means over the part of the epoch that it ran
            np.testing.assert_allclose(report.losses, whole.losses[every:], rtol=0, atol=1e-9)


def assert_same_weights(report, wanted):
    for mine, theirs in zip(report.weights, wanted.weights):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-9)


def wait_and_train(settings, step):
    """In the first attempt worker 1 says when SIGTERM is held back, and starts once it has come."""
    from utils.events import report
    from utils.training.recovery.custom import hold_notice

    hold_notice()
    first = Path(settings.folder, "first")
    if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 1 and not first.exists():
        first.touch()
        report("held")
        while signal.SIGTERM not in signal.sigpending():
            time.sleep(0.01)
    return train_and_hold(settings, step)


def test_notice_saves_everywhere_at_one_step_and_each_restart_is_counted(clusters, whole, tmp_path):
    """Worker 1 has notice while it starts up, which is held and heeded; later the chief has."""
    settings = replace(SETTINGS, folder=str(tmp_path), method="preemption")
    job = clusters[1].start(wait_and_train, settings, 9, restarts=2)
    for event in job.events():
        if event["event"] == "held":
            job.kill("worker", 1, signal.SIGTERM)
        elif has_come(event, 9):
            job.kill("worker", 0, signal.SIGTERM)
            break
    results, events = job.wait(300), list(job.events())
    causes = [event["cause"] for event in events if event["event"] == "restart"]
    assert causes == [f"left by sys.exit ({RESTART_CODE})"] * 2 and job.attempt == 3
    attempts = read_attempts(events)
    assert attempts[0].done <= 3 and attempts[1].done >= 9
    for number, (before, after) in enumerate(pairwise(attempts), 1):
        left = [e for e in events if e["event"] == "left" and e["attempt"] == number]
        assert {event["task"] for event in left} == {"worker 0", "worker 1"}
        assert {event["step"] for event in left} == {before.done} == {after.restored}
        assert after.lost == 0
    for report in results:
        assert_same_weights(report, whole)


def test_one_changed_byte_is_found(tf, tmp_path):
    from utils.training.checkpoints import Restored, find_damage, latest_intact_checkpoint

    saved = tf.train.Checkpoint(values=tf.Variable(tf.range(5000.0)))
    for step in (4, 8):
        saved.write(str(tmp_path / f"ckpt-{step}"))
    assert latest_intact_checkpoint(tmp_path, "ckpt") == Restored(8, f"{tmp_path}/ckpt-8")
    [data] = tmp_path.glob("ckpt-8.data*")
    body = bytearray(data.read_bytes())
    body[len(body) // 2] ^= 1
    data.write_bytes(body)
    assert "checksum" in find_damage(str(tmp_path / "ckpt-8")).lower()
    found = latest_intact_checkpoint(tmp_path, "ckpt")
    assert found.step == 4 and found.path == f"{tmp_path}/ckpt-4"
    [reason] = found.skipped_checkpoints
    assert reason.startswith("ckpt-8: ")
    for path in tmp_path.glob("ckpt-*.index"):
        path.write_bytes(b"")
    found = latest_intact_checkpoint(tmp_path, "ckpt")
    assert (found.step, found.path) == (0, None) and len(found.skipped_checkpoints) == 2


@pytest.mark.parametrize("is_relative", (False, True))
def test_the_list_never_names_skipped_checkpoints(tf, tmp_path, monkeypatch, is_relative):
    from utils.training.checkpoints import write_list

    monkeypatch.chdir(tmp_path.parent)
    folder = tmp_path.name if is_relative else str(tmp_path)
    saved = tf.train.Checkpoint(value=tf.Variable(1.0))
    manager = tf.train.CheckpointManager(saved, folder, max_to_keep=2)
    for step in (4, 8):
        manager.save(checkpoint_number=step)
    write_list(folder, "ckpt", 4)
    again = tf.train.CheckpointManager(saved, folder, max_to_keep=2)
    assert again.latest_checkpoint == f"{folder}/ckpt-4"
    for step in (8, 12):
        again.save(checkpoint_number=step)
    assert [Path(p).name for p in again.checkpoints] == ["ckpt-8", "ckpt-12"]
    assert not list(tmp_path.glob("ckpt-4.*")), "the manager goes on tidying up"
    (tmp_path / "checkpoint").write_text("model_checkp")
    write_list(tmp_path, "ckpt", 8)
    assert Path(tf.train.latest_checkpoint(tmp_path)).name == "ckpt-8"
    write_list(tmp_path, "ckpt", 0)
    assert tf.train.latest_checkpoint(tmp_path) is None


def save_for_ever(folder):
    """Save 4 MB again and again, every value of them the number of the save."""
    import tensorflow as tf

    from utils.events import report
    from utils.training.checkpoints import latest_intact_checkpoint

    value = tf.Variable(tf.zeros((1400, 700)))
    saved = tf.train.Checkpoint(value=value)
    manager = tf.train.CheckpointManager(saved, folder, max_to_keep=3)
    for number in range(latest_intact_checkpoint(folder, "ckpt").step + 1, 10**6):
        report("saving", step=number)
        value.assign(tf.fill(value.shape, float(number)))
        manager.save(checkpoint_number=number)
        report("checkpoint", step=number)


def back_up_for_ever(folder):
    """The same with AtomicBackup."""
    model, backup = make_backup(folder)
    backup.set_model(model)
    for number in range(backup.restore(model)[0] + 1, 10**6):
        model.set_weights([np.full((700, 700), number)])
        model.optimizer.iterations.assign(number)
        backup._save_model()


def make_backup(folder):
    import keras

    from utils.training.recovery.fit import AtomicBackup

    first = keras.layers.Dense(700, use_bias=False, kernel_initializer="zeros")
    model = keras.Sequential([keras.Input((700,)), first])
    model.compile(keras.optimizers.SGD(momentum=0.9))
    model.optimizer.build(model.trainable_variables)
    return model, AtomicBackup(folder, 1, is_chief=True)


def read_checkpoint(folder):
    """Return the step and the values of what a restart would load."""
    import tensorflow as tf

    from utils.training.checkpoints import latest_intact_checkpoint

    found = latest_intact_checkpoint(folder, "ckpt")
    if found.path is None:
        return 0, None
    reader = tf.train.load_checkpoint(found.path)
    return found.step, reader.get_tensor("value/.ATTRIBUTES/VARIABLE_VALUE")


def read_backup(folder):
    model, backup = make_backup(folder)
    return backup.restore(model)[0], model.get_weights()[0]


@pytest.mark.parametrize(
    "save, read", [(save_for_ever, read_checkpoint), (back_up_for_ever, read_backup)]
)
def test_killed_in_mid_write_many_times_and_never_half_loaded(clusters, tf, tmp_path, save, read):
    """Real SIGKILLs, each up to 12 ms after a save began."""
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    rng, unfinished = random.Random(seed), 0
    for _ in range(KILLS):
        job = clusters[0].start(save, str(tmp_path))
        saves = rng.randrange(1, 4)
        for event in job.events():
            saves -= event["event"] == "saving"
            if saves == 0:
                time.sleep(rng.uniform(0, 0.012))
                job.kill("worker", 0)
                break
        with pytest.raises(ClusterError, match="SIGKILL"):
            job.wait(300)
        events = list(job.events())
        begun = max(event["step"] for event in events)
        whole = max((e["step"] for e in events if e["event"] == "checkpoint"), default=0)
        step, weights = read(str(tmp_path))
        assert whole <= step <= begun, "the last finished save is there"
        if step:
            np.testing.assert_array_equal(weights, step)
        unfinished += begun > whole
    assert unfinished, "no kill came in the middle of a save"


# ---- what Keras's own callback does, as the lesson shows it


def test_the_stock_callback_trains_batches_twice_after_a_backup_in_mid_epoch(tf, tmp_path):
    """Guards the reason for AtomicBackup: when Keras counts batches too, this fails."""
    import keras

    from utils.training.recovery.fit import AtomicBackup

    def fit(model, *callbacks):
        batches = tf.data.Dataset.range(6).map(lambda i: (tf.ones((1, 1)), tf.cast(i, "float32")))
        model.fit(batches.batch(1), epochs=2, verbose=0, shuffle=False, callbacks=list(callbacks))

    def build():
        keras.utils.set_random_seed(0)
        model = keras.Sequential([keras.Input((1, 1)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.01), "mse")
        return model

    class PowerCut(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 4:
                raise RuntimeError("power cut")

    def backup():
        return keras.callbacks.BackupAndRestore(str(tmp_path), save_freq=3, delete_checkpoint=False)

    undisturbed, own = build(), AtomicBackup(str(tmp_path / "own"), "epoch", is_chief=True)
    fit(undisturbed, own)
    assert own.restore(build()) == (12, [])  # ours, saved at the end of each epoch
    Path(own._weights_path).unlink()
    assert own.restore(build()) == (6, [])
    with pytest.raises(RuntimeError, match="power cut"):
        fit(build(), backup(), PowerCut())
    resumed = build()
    fit(resumed, backup())
    assert undisturbed.optimizer.iterations == 12 and resumed.optimizer.iterations > 12
    assert not np.allclose(undisturbed.get_weights()[0], resumed.get_weights()[0], atol=1e-4)


def test_a_run_of_many_epochs_has_the_same_batches_wherever_it_begins(alone):
    found = alone[1]
    assert [epoch for epoch, _ in found[0]] == [step // 5 for step in range(55)]
    assert len({total for _, total in found[0]}) == 55
    for step, batches in found.items():
        assert batches == found[0][step:]


def test_settings_that_cannot_be_are_refused():
    for settings in ({"method": "hope"}, {"checkpoint_every": 0}, {"pause_seconds": -1}):
        with pytest.raises(DistributedError, match="choose|must be"):
            RecoverySettings("x", **settings)
    assert set(METHODS) == {"manager", "preemption", "backup"}
