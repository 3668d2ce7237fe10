"""Recovery: each way resumes to the uninterrupted weights; what is cut short is never loaded."""

import json
import os
import random
import signal
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from process_watch import wait_for

from distlab.lessons.chaos import read_attempts
from utils.cluster import ClusterError, LocalCluster, make_launcher
from utils.cluster.waiting import is_stopped
from utils.errors import DistributedError
from utils.training.recovery import METHODS, RESTART_CODE, RecoverySettings, train_with_recovery

SETTINGS = RecoverySettings(folder="")


@pytest.fixture(scope="module")
def clusters():
    launcher = make_launcher()
    made = [LocalCluster(workers, launcher=launcher) for workers in (1, 2)]
    yield made
    for cluster in made:
        cluster.close()


@pytest.fixture(scope="module")
def pair(clusters):
    return clusters[1]


@pytest.fixture(scope="module")
def whole(pair, tmp_path_factory):
    """The report of an uninterrupted run of two workers."""
    return run_to_end(pair, tmp_path_factory.mktemp("whole"), "manager")[0]


def run_to_end(cluster, folder, method, **changes):
    settings = replace(SETTINGS, folder=str(folder), method=method, **changes)
    return cluster.run(train_with_recovery, settings, timeout=300, echo=False)


def assert_same_weights(report, wanted):
    for mine, theirs in zip(report.weights, wanted.weights):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-9)


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


def strike(cluster, folder, method, step, act, **changes):
    """Start a run, call `act(job)` once worker 0 has reported `step`; return results and events."""
    settings = replace(SETTINGS, folder=str(folder), method=method, **changes)
    job = cluster.start(train_and_hold, settings, step, restarts=1, stall_seconds=0.5)
    for event in job.events():
        if event["event"] == "step" and event["step"] == step and event["task"] == "worker 0":
            act(job)
            break
    return job.wait(300), list(job.events()), job


def kill(job, index):
    """Kill a worker and let the others go on, once it is dead."""
    victim = job.tasks[index]
    job.kill("worker", index)
    wait_for(lambda: victim.status is not None)


def let_go(folder):
    Path(folder, "go").touch()


def test_one_worker_and_two_end_with_the_same_weights(clusters, whole, tmp_path):
    [alone] = run_to_end(clusters[0], tmp_path / "one", "manager")
    assert_same_weights(alone, whole)
    np.testing.assert_allclose(alone.losses, whole.losses, atol=1e-9)
    assert (whole.step, whole.restored_step) == (25, 0)


@pytest.mark.parametrize(("method", "every"), [("backup", None), ("preemption", 4)])
def test_a_killed_run_goes_on_from_its_last_checkpoint(pair, whole, tmp_path, method, every):
    """25 steps, 5 an epoch; killed after step 11, in the middle of an epoch.

    A frozen run with "manager" does below. All methods save every four steps in
    `test_a_newest_checkpoint_cut_short…`, where a second job resumes.
    """
    results, events, job = strike(
        pair,
        tmp_path,
        method,
        11,
        lambda job: (kill(job, 1), let_go(tmp_path)),
        checkpoint_every=every,
    )
    assert_ends_whole(results, events, job, whole, method, struck=11, every=every or 5)


def assert_ends_whole(results, events, job, whole, method, struck, every):
    """Assert that the second attempt went on from the last step that was saved, every `every`."""
    assert job.attempt == 2
    first, second = read_attempts(events)
    assert struck <= first.done <= 25 and second.restored >= first.saved >= struck // every * every
    assert second.restored % every == 0
    for report in results:
        assert_goes_on(report, whole, method, second.restored)


def assert_goes_on(report, whole, method, restored):
    """Assert that a worker began at step `restored`, and ended as the uninterrupted run did."""
    assert_same_weights(report, whole)
    assert (report.step, report.restored_step) == (25, restored)
    assert len(report.losses) == 25 - restored
    if method != "backup":  # `fit` reports means over the part of the epoch that it ran
        np.testing.assert_allclose(report.losses, whole.losses[restored:], rtol=0, atol=1e-9)


def test_notice_saves_everywhere_at_one_step_and_the_restart_is_counted(pair, whole, tmp_path):
    """The chief is told; the next test tells the other worker."""
    results, events, job = strike(
        pair, tmp_path, "preemption", 9, lambda job: job.kill("worker", 0, signal.SIGTERM)
    )
    [restart] = [event for event in events if event["event"] == "restart"]
    assert restart["cause"] == f"left by sys.exit ({RESTART_CODE})" and job.attempt == 2
    left = {event["task"]: event["step"] for event in events if event["event"] == "left"}
    first, second = read_attempts(events)
    assert set(left) == {"worker 0", "worker 1"} and len(set(left.values())) == 1
    assert second.restored == first.done == left["worker 0"] and second.lost == 0
    assert_same_weights(results[0], whole)


def test_notice_during_start_up_is_held_and_heeded(pair, whole, tmp_path):
    settings = replace(SETTINGS, folder=str(tmp_path), method="preemption")
    job = pair.start(hold_and_train, settings, restarts=1)
    assert next(event for event in job.events() if event["event"] == "held")
    job.kill("worker", 1, signal.SIGTERM)
    assert_same_weights(job.wait(300)[0], whole)
    first, second = read_attempts(list(job.events()))
    assert job.attempt == 2 and first.done == second.restored <= 3 and second.lost == 0


def hold_and_train(settings):
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
    return train_with_recovery(settings)


def test_a_frozen_task_is_found_named_and_restarted(pair, whole, tmp_path):
    def freeze(job):
        process = job.tasks[1].process
        job.pause("worker", 1)
        wait_for(lambda: is_stopped(process) or job.attempt == 2)
        let_go(tmp_path)

    results, events, job = strike(pair, tmp_path, "manager", 6, freeze, checkpoint_every=None)
    [restart] = [event for event in events if event["event"] == "restart"]
    assert restart["task"] == "worker 1" and "frozen (SIGSTOP)" in restart["cause"]
    assert_ends_whole(results, events, job, whole, "manager", struck=6, every=5)


# ---- a checkpoint cut off in mid-write


def stop_half_way(cluster, folder, method):
    """Leave the checkpoints of a run that was killed for good after step 13."""
    settings = replace(SETTINGS, folder=str(folder), method=method)
    job = cluster.start(train_and_hold, settings, 13)
    for event in job.events():
        if event["event"] == "checkpoint" and event["step"] == 12 and event["task"] == "worker 0":
            job.kill("worker", 0)
            break
    with pytest.raises(ClusterError, match="worker 0: was ended by SIGKILL"):
        job.wait(300)


def resume(cluster, folder, method):
    settings = replace(SETTINGS, folder=str(folder), method=method)
    job = cluster.start(train_with_recovery, settings)
    results = job.wait(300)
    found = [e for e in job.events() if e["event"] == "restore" and e["task"] == "worker 0"]
    return results, found[0]


def newest(folder, method):
    if method == "backup":
        return folder / "latest.weights.h5", "latest.weights.h5: "
    path = max(folder.glob("ckpt-*.data*"), key=lambda path: int(path.name[5:].split(".")[0]))
    return path, f"{path.name.split('.')[0]}: "


@pytest.mark.parametrize("method", METHODS)
def test_a_newest_checkpoint_cut_short_is_skipped_with_a_reason(clusters, whole, tmp_path, method):
    stop_half_way(clusters[1], tmp_path, method)
    path, name = newest(tmp_path, method)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    results, restored = resume(clusters[1], tmp_path, method)
    assert restored["step"] == 8
    [reason] = restored["skipped_checkpoints"]
    assert reason.startswith(name) and len(reason) > len(name) + 5
    for report in results:
        assert_goes_on(report, whole, method, 8)


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


def save_for_ever(folder, method):
    """Save 4 MB again and again, every value of them the number of the save."""
    import keras
    import tensorflow as tf

    from utils.events import report
    from utils.training.checkpoints import latest_intact_checkpoint
    from utils.training.recovery import fit

    model = keras.Sequential([keras.Input((700,)), keras.layers.Dense(700, use_bias=False)])
    model.compile(keras.optimizers.SGD(momentum=0.9))
    model.optimizer.build(model.trainable_variables)
    backup = fit.AtomicBackup(folder, 1, is_chief=True)
    backup.set_model(model)
    value = tf.Variable(tf.zeros((1400, 700)))
    saved = tf.train.Checkpoint(value=value)
    manager = tf.train.CheckpointManager(saved, folder, max_to_keep=3)
    is_backup = method == "backup"
    start = backup.restore(model)[0] if is_backup else latest_intact_checkpoint(folder, "ckpt").step
    for number in range(start + 1, 10**6):
        if method == "backup":
            model.set_weights([np.full((700, 700), number)])
            model.optimizer.iterations.assign(number)
            backup._save_model()
        else:
            report("saving", step=number)
            value.assign(tf.fill(value.shape, float(number)))
            manager.save(checkpoint_number=number)
            report("checkpoint", step=number)


def read_back(folder, method):
    """Return the step and the values of what a restart would load."""
    import keras
    import tensorflow as tf

    from utils.training.checkpoints import latest_intact_checkpoint
    from utils.training.recovery import fit

    if method != "backup":
        found = latest_intact_checkpoint(folder, "ckpt")
        if found.path is None:
            return 0, None
        reader = tf.train.load_checkpoint(found.path)
        return found.step, reader.get_tensor("value/.ATTRIBUTES/VARIABLE_VALUE")
    model = keras.Sequential([keras.Input((700,)), keras.layers.Dense(700, use_bias=False)])
    model.compile(keras.optimizers.SGD(momentum=0.9))
    model.optimizer.build(model.trainable_variables)
    step, _ = fit.AtomicBackup(folder, 1, is_chief=True).restore(model)
    return step, model.get_weights()[0]


@pytest.mark.parametrize("method", ["manager", "backup"])
def test_killed_in_mid_write_many_times_and_never_half_loaded(clusters, tf, tmp_path, method):
    """Twelve real SIGKILLs, each up to 12 ms after a save began."""
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")
    rng, unfinished = random.Random(seed), 0
    for _ in range(12):
        job = clusters[0].start(save_for_ever, str(tmp_path), method)
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
        step, weights = read_back(str(tmp_path), method)
        assert whole <= step <= begun, "the last finished save is there"
        if step:
            np.testing.assert_array_equal(weights, step)
        unfinished += begun > whole
    assert unfinished, "no kill came in the middle of a save"


# ---- what Keras's own callback does, as the lesson shows it


def test_the_stock_callback_trains_batches_twice_after_a_backup_in_mid_epoch(tf, tmp_path):
    """Guards the reason for AtomicBackup: when Keras counts batches too, this fails."""
    import keras

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

    undisturbed = build()
    fit(undisturbed)
    with pytest.raises(RuntimeError, match="power cut"):
        fit(build(), backup(), PowerCut())
    resumed = build()
    fit(resumed, backup())
    assert undisturbed.optimizer.iterations == 12 and resumed.optimizer.iterations > 12
    assert not np.allclose(undisturbed.get_weights()[0], resumed.get_weights()[0], atol=1e-4)


def sum_batches(settings, steps):
    """Return the epoch and the sum of each batch from each of `steps`."""
    from utils.training.recovery.trainer import Trainer

    trainer = Trainer(settings)
    found = {step: trainer.batches_from(step) for step in steps}
    return {s: [(epoch, batch[0].numpy().sum()) for epoch, batch in f] for s, f in found.items()}


def test_a_run_of_many_epochs_has_the_same_batches_wherever_it_begins(clusters, tmp_path):
    settings = replace(SETTINGS, folder=str(tmp_path), epochs=11)
    [found] = clusters[0].run(sum_batches, settings, [0, 3, 25, 27, 54, 55], timeout=300)
    assert [epoch for epoch, _ in found[0]] == [step // 5 for step in range(55)]
    assert len({total for _, total in found[0]}) == 55
    for step, batches in found.items():
        assert batches == found[0][step:]


def test_settings_that_cannot_be_are_refused():
    for settings in ({"method": "hope"}, {"checkpoint_every": 0}, {"pause_seconds": -1}):
        with pytest.raises(DistributedError, match="choose|must be"):
            RecoverySettings("x", **settings)
    assert set(METHODS) == {"manager", "preemption", "backup"}
