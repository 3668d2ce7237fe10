# %% [markdown] shows="Kill a worker and watch; resume to the same weights; how often to save"
# # Runs that survive
#
# Sooner or later a machine under your job reboots or is taken away, and one lost worker stops them all. Without a checkpoint you train everything again; with an incomplete one you resume a slightly different run and never notice. In this hour you kill workers, freeze one, send one a termination notice, and bring every run to the weights it would have had without you.
#
# **Time:** 55 minutes · **Builds on:** [the training loop by hand](04-custom-training-loop.ipynb) and [many workers, one model](09-multi-worker-mirrored.ipynb) · **Hardware:** two CPU cores
#
# ## Objectives
#
# - Restart a killed run from its checkpoint, and prove that its weights are the uninterrupted run's.
# - Count the steps that each of three ways of saving loses, with and without notice.
# - Detect a checkpoint that was cut short, and go on from the one before.
# - Name what a checkpoint must hold besides the weights.
# - Choose the interval between checkpoints after Young and Daly, from a cost you measured.

# %%
from utils.environment import quiet_tensorflow, set_seeds

with quiet_tensorflow():
    import tensorflow as tf
from utils.devices import use_logical_devices

set_seeds(0)
print(use_logical_devices(2))

# %%
import signal
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import keras
import numpy as np

from distlab import figures
from utils.cluster import ClusterError, LocalCluster
from distlab.lessons.chaos import (
    Strike,
    make_attempt_rows,
    make_kill_rows,
    strike_in_turn,
    tell_attempts,
)
from utils.events import report
from distlab.exercises.predict import show_guess
from utils.measure import format_bytes, time_calls
from utils.models import build_cnn
from utils.simulate.failures import (
    daly_interval_seconds,
    expected_run_seconds,
    group_mtbf_seconds,
    overhead_fraction,
    simulate_run_seconds,
    young_interval_seconds,
)
from utils.training.checkpoints import find_newest_whole
from utils.training.recovery import METHODS, RecoverySettings, train_resumably
from utils.training.recovery.trainer import Trainer
from distlab.widgets import cockpit
from distlab.widgets.checkpoint_interval import interval_explorer, say_seconds

# %% [markdown]
# ## What a failure takes
#
# A synchronous group needs every worker: when one dies, the others cannot finish the step. So the group is started again and goes on from what was saved. Each start is an *attempt*. Here is a run of 25 steps of one second each, saved after every fourth step, killed after step 11, and ready again six seconds later.

# %%
rows = make_kill_rows(step_seconds=1.0, restart_seconds=6.0, saved=8, killed=11, total=25)
ends = {lane: end for lane, _, end, _, _ in rows}  # of the last span in each lane
late = ends["killed"] - ends["undisturbed"]
figures.show(figures.timeline(rows, title=f"One kill: {late:.0f} seconds late", unit="s"))
assert late == (11 - 8) * 1.0 + 6.0

# %% [markdown]
# ## A run, and something that kills it
#
# Two workers train a small network on 130 pictures of Fashion-MNIST: five epochs of five steps, float64, SGD with momentum. `Trainer` holds what [lesson 09](09-multi-worker-mirrored.ipynb) wrote by hand: strategy, model, optimizer, compiled step and batches. The last batch of an epoch is smaller, and is weighted correctly.
#
# One setting is for this cluster of ours only. A handler that comes later first asks whether it runs in Google's cloud, for up to 5 s. `GCE_METADATA_IP` sends that question to a closed port, where the answer "no" comes at once. It stands in the cluster's environment and never in your program: on Google Cloud it would switch the notice off.


# %%
def train_unprotected(settings):
    """One worker's program, which saves nothing."""
    trainer = Trainer(settings)
    for epoch, batch in trainer.batches_from(0):
        trainer.take(epoch, batch)  # trains, counts, reports the event "step"
    return trainer.finish()  # step, losses, weights


# %%
folder = tempfile.TemporaryDirectory()  # removed at the end of the lesson
settings = RecoverySettings(folder.name, pause_seconds=0.02)  # slow enough to be killed in time
cluster = LocalCluster(workers=2, environment={"GCE_METADATA_IP": "127.0.0.1:9"})
whole = cluster.run(train_unprotected, settings, timeout=60, echo=False)[0]
print(whole.step, "steps,", len(whole.weights), "arrays of weights")

# %% [markdown]
# `whole` is the uninterrupted run, with which we compare all others. Now the trouble: wait until worker 0 reports a step, act, and wait for the end. `restarts=1` lets the cluster start the group a second time. We kill worker 1 soon after step 11 with SIGKILL, the signal that no program can catch. Nothing was saved.


# %% tags=["nbval-ignore-output"]
def disturb(job, step, act):
    """Call `act(job)` once worker 0 has reported `step`; return the job at its end."""
    for event in job.events():
        if (event["event"], event.get("step"), event["task"]) == ("step", step, "worker 0"):
            act(job)
            break
    job.wait(60)
    return job


def kill(job):
    job.kill("worker", 1)


job = cluster.start(train_unprotected, settings, restarts=1)
panel = cockpit(job)
disturb(job, 11, kill)
begins = [e["step"] - 1 for e in job.events() if e["event"] == "step" and e["attempt"] == 2][0]
print("the second attempt begins after step", begins)
figures.show(panel.picture())
[died] = [event for event in job.events() if event["event"] == "restart"]
print("restarted because", died["task"], died["cause"])
assert died["task"] == "worker 1" and "SIGKILL" in died["cause"] and begins == 0

# %% [markdown]
# Both lanes break off (✕) and begin again (↻) at the top of the loss curve. (To watch live, with buttons for kill, pause and restart, put `panel` on the last line of the cell that starts the job.) Worker 0 was in perfect health, and lost as much as worker 1.
#
# ## CheckpointManager: save, and know where you are
#
# Three additions. Every worker makes a manager and saves, but only the chief saves into the shared folder, as in lesson 09. At the start every worker restores the newest checkpoint. And the run goes on **at its place in the data**: `batches_after` finds it from the number of steps, because the order of an epoch depends on the seed and the epoch alone. (`Trainer.batches_from` is the same function.)


# %%
def batches_after(trainer, done):
    """Yield (epoch, batch) for every step after the first `done`."""
    per_epoch = trainer.plan.steps_per_epoch
    for epoch in range(done // per_epoch, trainer.settings.epochs):
        skipped = max(0, done - epoch * per_epoch)  # of this epoch's batches: trained already
        batches = trainer.make_epoch(epoch, skipped)  # in the order of this seed and epoch
        for batch in trainer.strategy.experimental_distribute_dataset(batches):
            yield epoch, batch


def open_manager(trainer):
    """Return a manager that keeps three checkpoints; the chief's are in the shared folder."""
    place = trainer.settings.folder if trainer.group.is_chief else tempfile.mkdtemp()
    return tf.train.CheckpointManager(trainer.checkpoint, place, max_to_keep=3)


def train_saving(settings):
    """One worker's program: from the newest checkpoint on, saving every `save_every` steps."""
    trainer = Trainer(settings)  # its checkpoint: model, optimizer, number of steps
    manager = open_manager(trainer)
    newest = tf.train.latest_checkpoint(settings.folder)  # the chief's, on every worker
    if newest:
        trainer.checkpoint.restore(newest).assert_existing_objects_matched()
    trainer.restored_step = int(trainer.step.numpy())
    report("restore", step=trainer.restored_step)
    for epoch, batch in batches_after(trainer, trainer.restored_step):
        step = trainer.take(epoch, batch)
        if step % settings.save_every == 0:
            manager.save(checkpoint_number=step)
            report("checkpoint", step=step)
    return trainer.finish()


# %% [markdown]
# **Predict.** The same kill after step 11, a checkpoint every 4 steps. How far are the weights from the uninterrupted run's, at most?

# %%
my_guess = None  # the largest difference of any weight

# %% tags=["nbval-ignore-output"]
saving = replace(settings, folder=f"{folder.name}/saving")
job = disturb(cluster.start(train_saving, saving, restarts=1), 11, kill)
resumed = job.wait()[0]


def largest_difference(mine, theirs):
    return max(float(np.abs(a - b).max()) for a, b in zip(mine.weights, theirs.weights))


show_guess(my_guess, round(largest_difference(resumed, whole), 9))
first, second = tell_attempts(list(job.events()))
rows = make_attempt_rows(list(job.events()))
figures.show(figures.timeline(rows, title="The same picture, by this machine's clock", unit="s"))
print(f"first attempt: {first.done} steps, saved after {first.saved}")
print(f"second attempt: begins after {second.restored}, {second.lost} steps are trained twice")
assert second.restored >= first.saved >= 8 and second.lost <= settings.save_every
np.testing.assert_allclose(resumed.losses, whole.losses[second.restored :], atol=1e-9)

# %% [markdown]
# Not similar: the same weights, to the ninth digit, and the same loss at every step. What the failure cost is the steps since the last checkpoint, at most four, and the time of a start.
#
# ## What must be in a checkpoint
#
# The weights are not enough. Below, a run goes on after step 8 three times. Twice something is left out: the optimizer's momentum (which stays at zero, as in a new program), or the place in the data, so that the epoch starts again. The third time nothing is.


# %%
def resume_without(settings, choices):
    """Go on from step 8 once for each choice, with that part of the checkpoint left out."""
    trainer, reports = Trainer(settings), []
    for missing in choices:
        held = {"model": trainer.model, "optimizer": trainer.optimizer, "step": trainer.step}
        held.pop(missing, None)
        tf.train.Checkpoint(**held).restore(f"{settings.folder}/ckpt-8").expect_partial()
        trainer.losses = []
        start = 5 if missing == "place" else 8  # epoch 2 begins after step 5
        for epoch, batch in batches_after(trainer, start):
            trainer.take(epoch, batch)
        reports.append(trainer.finish())
    return dict(zip(choices, reports))


kept = replace(settings, folder=f"{folder.name}/kept", epochs=2, pause_seconds=0.0)
cluster.run(train_saving, kept, timeout=60, echo=False)
on, choices = replace(kept, epochs=settings.epochs), ("optimizer", "place", "nothing")
off = {}
for missing, ended in cluster.run(resume_without, on, choices, timeout=60, echo=False)[0].items():
    off[missing] = largest_difference(ended, whole)
    ends = f"the last loss is {ended.losses[-1]:.3f}"
    print(f"{missing:<10} left out: {ends}, the weights are {off[missing]:.3f} off")
assert off["nothing"] < 1e-9 and off["optimizer"] > 0.01 and off["place"] > 0.01

# %% [markdown]
# No run raised an error. Without the last line to compare with, the losses of the other two would pass for ordinary training. Random number generators (dropout, shuffling) belong in a checkpoint for the same reason. Here every epoch's order is drawn from the seed and the epoch's number, so there is nothing to save; otherwise, a `tf.data` iterator can go into the `tf.train.Checkpoint` too.
#
# ## A checkpoint cut off in mid-write
#
# What is in the folder of the complete run?

# %%
kept_folder = Path(kept.folder)
for path in sorted(kept_folder.iterdir()):
    print(path.name)
print("newest, says the file `checkpoint`:", Path(tf.train.latest_checkpoint(kept_folder)).name)

# %% [markdown]
# On a local disk, TensorFlow writes in an order that makes a kill harmless. The values go into a folder `ckpt-8_temp` and from there to `ckpt-8.data…`; then comes `ckpt-8.index`; and last, replaced in one piece, the file `checkpoint`, which names the newest. Let us kill worker 0 while it writes. Its first checkpoint is small and complete. The second has 64 MB, and we kill it as soon as its first file appears.


# %% tags=["nbval-ignore-output"]
def save_two(folder):
    """Save a small checkpoint, then a big one. Worker 0 alone: there is no strategy here."""
    if tf.distribute.cluster_resolver.TFConfigClusterResolver().task_id > 0:
        return
    values = tf.Variable(tf.zeros(10), shape=tf.TensorShape(None))
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(values=values), folder, 2)
    for step, size in ((4, 10), (8, 16_000_000)):
        values.assign(tf.fill([size], float(step)))
        manager.save(checkpoint_number=step)
        report("saved", step=step)


cut = Path(folder.name) / "cut"
job = cluster.start(save_two, str(cut))
next(event for event in job.events() if event["event"] == "saved")  # step 4
end = time.monotonic() + 20
while not any(cut.glob("ckpt-8*")) and time.monotonic() < end:
    pass
job.kill("worker", 0)
try:
    job.wait(30)
except ClusterError as error:
    print(error.task, error.cause)
for path in sorted(path for path in cut.rglob("*") if path.is_file()):
    print(f"{format_bytes(path.stat().st_size):>9}  {path.relative_to(cut)}")
print("newest, says the file `checkpoint`:", Path(tf.train.latest_checkpoint(cut)).name)
newest = find_newest_whole(cut, "ckpt")
name = "values/.ATTRIBUTES/VARIABLE_VALUE"  # so TensorFlow calls it in the file
values = tf.train.load_checkpoint(newest.path).get_tensor(name)
assert np.all(values == newest.step), "whole: every value is of one step"

# %% [markdown]
# What the killed save left behind is not named in the file `checkpoint`, so nothing reads it.
#
# That order cannot help against damage that comes later: a full disk, a copy cut short, a file system that lost its last writes. Cut the newest data file of the complete run in half, and ask TensorFlow for its newest checkpoint. `newest_whole` starts at the newest, reads every value to its last byte (each is stored with a checksum), and takes the first checkpoint that is sound.


# %%
def newest_whole(folder):
    """Return the path of the newest checkpoint of which every value can be read, or None."""
    paths = [path.with_suffix("") for path in Path(folder).glob("ckpt-*.index")]
    for path in sorted(paths, key=lambda path: -int(path.name.split("-")[1])):
        try:
            reader = tf.train.load_checkpoint(str(path))
            for name in reader.get_variable_to_shape_map():
                reader.get_tensor(name)
            return str(path)
        except (tf.errors.OpError, IndexError, ValueError, RuntimeError) as error:
            print(path.name, "is damaged:", error)


data = kept_folder / "ckpt-8.data-00000-of-00001"
data.write_bytes(data.read_bytes()[: data.stat().st_size // 2])
newest = tf.train.latest_checkpoint(kept_folder)
print("`checkpoint` says:", Path(newest).name)
found = newest_whole(kept_folder)
print("newest whole checkpoint:", Path(found).name)
assert found == find_newest_whole(kept_folder, "ckpt").path and found.endswith("ckpt-4")

# %% [markdown]
# A program that restores `latest_checkpoint` would now fail at every restart, until a person looks. This is why you keep more than one. (`find_newest_whole` of utils also says what it passed over and why.)
#
# ## PreemptionCheckpointHandler: save on notice
#
# Often you get a warning before a machine is taken away. TensorFlow's handler turns it into one more checkpoint: the worker that got the notice tells the others, all save after the same step, and all leave by `exit_fn`. Ours exits with code 42, on which our cluster starts the group again. How the notice arrives depends on where you run:
#
# | where | how the notice comes | what the handler needs |
# |---|---|---|
# | Slurm, Kubernetes | SIGTERM | nothing: off Google Cloud it listens for SIGTERM |
# | Google Cloud, GPU machines | metadata server | nothing: it polls that server, and does *not* listen for SIGTERM |
# | AWS, Azure | a metadata address of their own | your `termination_watcher_fn` in `TerminationConfig`, which asks it |
#
# (On Google's CPU machines and TPUs the handler of TensorFlow 2.21 does nothing at all.) A watcher for the last row is a function that returns True once there is a notice; the handler asks it every second. These two follow the providers' documentation and were not run here:
#
# ```python
# from urllib.request import Request, urlopen
# METADATA = "http://169.254.169.254"
#
# def azure_notice():  # at least 30 s before the end
#     address = f"{METADATA}/metadata/scheduledevents?api-version=2020-07-01"
#     return b"Preempt" in urlopen(Request(address, headers={"Metadata": "true"}), timeout=5).read()
#
# def aws_notice():  # two minutes before the end; "not found" until then
#     headers = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
#     ask = Request(f"{METADATA}/latest/api/token", headers=headers, method="PUT")
#     headers = {"X-aws-ec2-metadata-token": urlopen(ask, timeout=5).read().decode()}
#     try:
#         ask = Request(f"{METADATA}/latest/meta-data/spot/instance-action", headers=headers)
#         return urlopen(ask, timeout=5).status == 200
#     except OSError:
#         return False
#
# config = tf.distribute.experimental.TerminationConfig(
#     termination_watcher_fn=aws_notice, exit_fn=lambda: sys.exit(42), grace_period=100)
# ```
#
# **Predict.** The worker below saves nothing by itself. It gets SIGTERM after step 11. How many steps does the run lose?

# %%
my_guess = None  # steps trained twice


# %%
def train_listening(settings):
    """As `train_saving`; and a SIGTERM to any worker makes all save and leave."""
    trainer = Trainer(settings)
    newest = tf.train.latest_checkpoint(settings.folder)
    if newest:
        trainer.checkpoint.restore(newest)
    trainer.restored_step = int(trainer.step.numpy())
    report("restore", step=trainer.restored_step)
    handler = tf.distribute.experimental.PreemptionCheckpointHandler(
        trainer.strategy.cluster_resolver,
        open_manager(trainer),
        termination_config=tf.distribute.experimental.TerminationConfig(
            exit_fn=lambda: sys.exit(42)
        ),
    )
    for epoch, batch in trainer.batches_from(trainer.restored_step):
        step = trainer.take(epoch, batch)
        handler.save_checkpoint_if_preempted(checkpoint_number=step)
    return trainer.finish()


# %%
listening = replace(settings, folder=f"{folder.name}/listening")
job = cluster.start(train_listening, listening, restarts=1)
disturb(job, 11, lambda job: job.kill("worker", 1, signal.SIGTERM))
first, second = tell_attempts(list(job.events()))
show_guess(my_guess, second.lost)
[left] = [event for event in job.events() if event["event"] == "restart"]
print("the group", left["cause"], "and started again")
assert second.restored == first.done and largest_difference(job.wait()[0], whole) < 1e-9

# %% [markdown]
# None. But the handler does one thing unasked: when it is made, it restores the *latest* checkpoint of its manager, whatever you restored before. Below, worker 0 alone goes back to the oldest checkpoint of the second run, and then makes a handler.


# %%
def restore_then_handle(folder):
    """Restore the oldest checkpoint, then make the handler; return the step after each."""
    if tf.distribute.cluster_resolver.TFConfigClusterResolver().task_id > 0:
        return None
    step = tf.Variable(0, dtype=tf.int64)
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(step=step), folder, max_to_keep=3)
    manager.checkpoint.restore(manager.checkpoints[0]).expect_partial()
    by_hand = int(step.numpy())
    tf.distribute.experimental.PreemptionCheckpointHandler(None, manager)
    return by_hand, int(step.numpy())


by_hand, handled = cluster.run(restore_then_handle, saving.folder, timeout=60, echo=False)[0]
print("restored by hand: step", by_hand, "· with the handler: step", handled)
assert (by_hand, handled) == (16, 24)

# %% [markdown]
# That has two consequences. A latest checkpoint that is damaged comes back through the handler, unless it is taken off the manager's list first (utils does). And the other workers' managers have empty folders, so they get nothing from it: that is why `train_listening` restores the chief's checkpoint by hand. (Given a `tf.train.Checkpoint` and a `checkpoint_dir` in place of a manager, the handler makes everyone's folders and reads the chief's on all workers.)
#
# And it is no insurance on its own: a SIGKILL or a power cut gives no notice. So save at intervals as well; the method "preemption" below does both.
#
# ## The same through utils: what is lost with each
#
# `train_resumably` is this lesson's loop with the checks built in, for three methods; "backup" is Keras's `fit` with the callback `BackupAndRestore`, made exact (the mistake below shows why). One run of each is killed twice without notice, after steps 6 and 11: SIGKILL. After step 15 it gets a notice: SIGTERM, and SIGKILL for any process still running when the grace period ends. That is 0.15 s here, 20 s for the handler; clouds give 30 s to 2 minutes.


# %% tags=["nbval-ignore-output"]
BLOWS = {6: "SIGKILL", 11: "SIGKILL", 15: "SIGTERM"}


def measure(method):
    """Kill one run three times; return how many steps it trained again after each."""
    own = replace(settings, folder=f"{folder.name}/{method}", method=method)
    strikes = [
        Strike(
            seed=0, method=method, workers=2, victim=1,
            strike=blow, moment="step", place=place, delay_seconds=0.0,
        )
        for place, blow in BLOWS.items()
    ]  # fmt: skip
    end = strike_in_turn(cluster, own, strikes, whole)
    assert end.problem is None and end.error < 1e-9, end.problem
    return end.lost_each


words = [
    f"{'killed' if blow == 'SIGKILL' else 'notice'} after step {n}" for n, blow in BLOWS.items()
]
lost = {name: dict(zip(words, measure(method))) for method, name in METHODS.items()}
title = "Steps trained twice after each, with a checkpoint every 4 steps"
figures.show(figures.grouped_bars(lost, unit="steps", title=title))
for name, each in lost.items():
    print(f"{name:<28}at most {max(each.values())} steps; with notice {each[words[-1]]}")
assert max(max(each.values()) for each in lost.values()) <= settings.save_every
assert lost["PreemptionCheckpointHandler"][words[-1]] == 0

# %% [markdown]
# Every run was started three times more, and ended with the weights of our first, undisturbed loop, to 1e-9. What differs is how much was trained twice: at most the interval, and nothing where the notice met the handler. Without a handler the workers ignored the notice, trained on until they were killed, and lost what they had not saved by then. So for the other two the bar of the notice may stand anywhere from 0 to 4.
#
# A quieter failure: a process that is there and does nothing. If it is frozen, its heartbeats stop, and after about ten seconds the others' step fails. If it is merely stuck, say in its input pipeline, the heartbeats go on and the others wait, as in lesson 09's mistake. While you look for the reason, `tf.distribute.experimental.CommunicationOptions(timeout_seconds=60)` in the strategy's constructor turns such a wait into a `DeadlineExceededError` (for debugging only: it costs a thread for each collective). In production something outside has to look. Our cluster does for the first kind: it starts the group again when a task has been frozen (SIGSTOP) for a given time.

# %%
frozen = replace(settings, folder=f"{folder.name}/frozen", method="manager")
job = cluster.start(train_resumably, frozen, restarts=1, stall_seconds=0.5)
disturb(job, 11, lambda job: job.pause("worker", 1))
[found] = [event for event in job.events() if event["event"] == "restart"]
print(found["task"], found["cause"])
assert largest_difference(job.wait()[0], whole) < 1e-9
cluster.close()  # nobody is left behind

# %% [markdown]
# ## The mistake: a backup in the middle of an epoch
#
# `BackupAndRestore(folder, save_freq=3)` saves every three batches, which looks safer than the default, once an epoch. Six batches an epoch, two epochs; the power is cut in the fifth batch of the second, and `fit` is started again.


# %%
class PowerCut(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if int(self.model.optimizer.iterations) == 11:
            raise RuntimeError("power cut")


def fit_once(*callbacks):
    """Fit two epochs of six batches from a fresh start; return the steps and the weight."""
    targets = tf.data.Dataset.range(6).map(lambda i: (tf.ones((1, 1)), tf.cast(i, "float32")))
    dense = keras.layers.Dense(1, kernel_initializer="zeros")
    model = keras.Sequential([keras.Input((1,)), dense])
    model.compile(keras.optimizers.SGD(0.01), "mse")
    model.fit(targets, epochs=2, verbose=0, shuffle=False, callbacks=list(callbacks))
    return int(model.optimizer.iterations), round(float(dense.kernel[0, 0]), 4)


def fit_through_a_power_cut(save_freq):
    place = f"{folder.name}/backup-{save_freq}"
    try:
        fit_once(keras.callbacks.BackupAndRestore(place, save_freq=save_freq), PowerCut())
    except RuntimeError as error:
        print(error, end="; ")
    return fit_once(keras.callbacks.BackupAndRestore(place, save_freq=save_freq))


undisturbed = fit_once()
print("undisturbed: steps and weight", undisturbed)
ends = {}
for save_freq in (3, "epoch"):
    ends[save_freq] = fit_through_a_power_cut(save_freq)
    print("started again with save_freq", save_freq, ends[save_freq])
assert ends[3][0] == 15 and ends["epoch"] == undisturbed and ends[3] != undisturbed

# %% [markdown]
# With `save_freq=3` the weights came back from the middle of the epoch, the data from its beginning: three batches count twice. No error, no warning. Saving once an epoch fixes it. So does counting: the optimizer's step counter is in the backup, and says where in the data to go on.
#
# One argument more: by default the callback overwrites its only backup, and a kill in that moment leaves half a file. `double_checkpoint=True` keeps the one before. `utils.training.recovery.fit.WholeBackup` does both for you, and lets only the chief write.
#
# ## What it costs: how often to save
#
# Saving often costs time, saving rarely costs work. First your own cost: a checkpoint of the CNN of lesson 04, with Adam's moments. (To train on while the files are written, pass `tf.train.CheckpointOptions(enable_async=True)` when saving.)

# %% tags=["nbval-ignore-output"]
model, adam = build_cnn(), keras.optimizers.Adam()
adam.build(model.trainable_variables)
saved = tf.train.Checkpoint(model=model, optimizer=adam)
timing = time_calls(lambda: saved.write(f"{folder.name}/cost"))
size = sum(path.stat().st_size for path in Path(folder.name).glob("cost.*"))
print(f"{format_bytes(size)} in {1000 * timing.median_seconds:.1f} ms")
print(f"{format_bytes(round(size / timing.median_seconds))} each second")
assert size > 3 * 4 * model.count_params()

# %% [markdown]
# Let a failure come once in *M* seconds on average (the *mean time between failures*, MTBF), and a save take *s*. Saving after every *t* seconds of work costs *s/t*, and a failure throws away *t/2* on average. In all that is *s/t + t/(2M)*, smallest at Young's *t* = √(2*sM*). Daly's estimate adds what Young left out: failures during saving, and more than one in an interval.
#
# **Predict.** A group of 1,000 workers in place of 10 fails a hundred times as often. How many times shorter is Young's interval?

# %%
my_guess = None  # times

# %%
SAVE_SECONDS, YEAR = 30.0, 365 * 86_400.0  # a bigger model; each worker fails once a year
youngs = []
for workers in (10, 1000, 10_000):
    mtbf = group_mtbf_seconds(YEAR, workers)
    youngs.append(young_interval_seconds(SAVE_SECONDS, mtbf))
    daly = daly_interval_seconds(SAVE_SECONDS, mtbf)
    extra = overhead_fraction(daly, SAVE_SECONDS, mtbf, restart_seconds=60)
    words = f"Young {say_seconds(youngs[-1])}, Daly {say_seconds(daly)}"
    print(f"{workers:>6} workers, MTBF {say_seconds(mtbf)}: {words}, overhead {extra:.1%}")
show_guess(my_guess, round(youngs[0] / youngs[1], 6))

# %% [markdown]
# The interval shrinks with the square root. The *overhead* is the time that a run takes beyond its work: saving, work lost, and restarts of 60 s. It comes from a formula. Does that hold? Below, failures are drawn one by one in 4,000 runs, without any formula; next to the result stands what the formula expects.

# %%
means = {}
for factor in (0.1, 0.5, 1.0, 2.0, 4.0):  # of Daly's interval for 10,000 workers
    run = (100 * factor * daly, factor * daly, SAVE_SECONDS, mtbf, 60.0)
    means[factor] = simulate_run_seconds(*run, runs=4000, seed=1).mean() / run[0] - 1
    formula = expected_run_seconds(*run) / run[0] - 1
    print(f"{factor:>5} x Daly's interval: {means[factor]:.1%} drawn, {formula:.1%} expected")
assert min(means, key=means.get) == 1.0

# %% [markdown]
# The valley is flat: twice or half the best interval costs little more, a tenth of it a lot. Move the sliders; the first begins at what your machine needed above (at 0.1 s if that was less). For the second: Meta's report on Llama 3 counts 419 unexpected interruptions in 54 days on 16,384 GPUs. The cell prints how often that is, and for each GPU.

# %% tags=["nbval-ignore-output"]
hours = 54 * 24 / 419
print(f"{hours:.1f} h between failures, {hours * 16_384 / 24:,.0f} days for each GPU")
assert 3 < hours < 3.2
folder.cleanup()  # nothing of this lesson stays on the disk
interval_explorer(timing.median_seconds, workers=1000)

# %% [markdown]
# ## What you saw
#
# - A run killed after step 11 resumed to the uninterrupted run's weights, to 1e-9.
# - Killed at two places, each method lost at most the interval; the handler, with notice, nothing.
# - Half a data file, still named as the newest, was passed over.
# - Without momentum, or without the place in the data, a run resumed quietly to other weights.
# - Your own *s* and an MTBF gave an interval, and 4,000 simulated runs agreed.
#
# ## Take-away card
#
# You bring `model`, `optimizer`, `strategy`, the int64 variable `step`, `save_every`, and `is_chief` and `shared` of [lesson 09](09-multi-worker-mirrored.ipynb):
#
# ```python
# checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, step=step)  # all three
# if newest := newest_whole(shared):  # this lesson's function; None at the first start
#     checkpoint.restore(newest).assert_existing_objects_matched()
# folder = shared if is_chief else tempfile.mkdtemp()  # every worker saves, the chief's counts
# manager = tf.train.CheckpointManager(checkpoint, folder, max_to_keep=3)
# resolver = strategy.cluster_resolver
# handler = tf.distribute.experimental.PreemptionCheckpointHandler(resolver, manager)
# if int(step) % save_every == 0:  # from here on: after every step
#     manager.save(checkpoint_number=int(step))  # every sqrt(2 * save_seconds * mtbf_seconds)
# handler.save_checkpoint_if_preempted(checkpoint_number=int(step))
# ```
#
# A whole program that survives both signals, on one machine or two: [checkpoint_and_resume.py](../examples/checkpoint_and_resume.py).
#
# ## Where it is described
#
# - TensorFlow's guides, [Fault tolerance](https://www.tensorflow.org/guide/migrate/fault_tolerance) and [Training checkpoints](https://www.tensorflow.org/guide/checkpoint), and the tutorial [Custom training loop with several workers](https://www.tensorflow.org/tutorials/distribute/multi_worker_with_ctl)
# - API: [PreemptionCheckpointHandler](https://www.tensorflow.org/api_docs/python/tf/distribute/experimental/PreemptionCheckpointHandler), [CheckpointManager](https://www.tensorflow.org/api_docs/python/tf/train/CheckpointManager), [BackupAndRestore](https://keras.io/api/callbacks/backup_and_restore/)
# - [Young, A first order approximation to the optimum checkpoint interval](https://doi.org/10.1145/361147.361115), 1974, and [Daly, A higher order estimate of the optimum checkpoint interval for restart dumps](https://doi.org/10.1016/j.future.2004.11.016), 2006
# - [The Llama 3 herd of models](https://arxiv.org/abs/2407.21783), 2024, section 3.3.4 on reliability
#
# ## The lab
#
# You practise this in [lab 09, fault tolerance](../labs/lab09-fault-tolerance.ipynb).
