# %% [markdown] shows="Kill a worker and watch; resume to the same weights; how often to save"
# # Runs that survive
#
# Sooner or later one of your job's machines reboots or is taken away, and one lost worker stops them all. Without a checkpoint you train everything again; with an incomplete one you resume a slightly different run and never notice. Here you kill workers, freeze one, and send one a termination notice. Each time you compare what comes out with a run that was left alone.
#
# **Time:** 90 minutes, in two sittings, and 10 for *And then*, which can wait · **Prerequisites:** [the training loop by hand](04-custom-training-loop.ipynb) and [many workers, one model](09-multi-worker-mirrored.ipynb) · **Hardware:** two CPU cores
#
# ## Objectives
#
# - Restart a killed run from its checkpoint, and compare its weights with an uninterrupted run's.
# - Count the steps that are lost with each of three ways of saving, when the end comes with and without notice.
# - Detect a damaged checkpoint, and continue from the one before.
# - Name what a checkpoint must hold besides the weights.
# - Choose the interval between checkpoints with the formulas of Young and Daly, from a cost you measured.

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

# %% [markdown]
# ## What a failure costs
#
# A synchronous group needs every worker: when one dies, the others can't finish the step. So the whole group is started again and continues from the last checkpoint. Each start is an *attempt*. The picture shows a run of 25 steps of one second each, with and without a kill. It saves after every fourth step, is killed after step 11, and needs six seconds to start again. It ends nine seconds late: six for the restart, and three to train steps 9 to 11 a second time.

# %%
from distlab import figures
from distlab.lessons.chaos import make_kill_rows

rows = make_kill_rows(step_seconds=1.0, restart_seconds=6.0, saved=8, killed=11, total=25)
ends = {lane: end for lane, _, end, _, _ in rows}  # of the last span in each lane
late = ends["killed"] - ends["undisturbed"]
figures.show(
    figures.timeline(rows, title=f"One kill makes the run {late:.0f} seconds longer", unit="s")
)
assert late == (11 - 8) * 1.0 + 6.0

# %% [markdown]
# ## A run, and something that kills it
#
# Two workers train a small network on 130 images of Fashion-MNIST: five epochs of five steps, float64, SGD with momentum. `Trainer` holds what [lesson 09](09-multi-worker-mirrored.ipynb) wrote by hand: strategy, model, optimizer, compiled step and batches. (The last batch of an epoch is smaller, and is weighted correctly.)
#
# (The setting `GCE_METADATA_IP` spares us up to 5 s in which a handler of TensorFlow's, used later, asks whether it runs in Google's cloud. Use it only on your own computer: on Google Cloud it would switch the termination notice off.)


# %%
from utils.training.recovery.trainer import Trainer


def train_unprotected(settings):
    """One worker's program, which saves nothing."""
    trainer = Trainer(settings)
    for epoch, batch in trainer.batches_from(0):
        trainer.take(epoch, batch)  # trains, counts, reports the event "step"
    return trainer.finish()  # step, losses, weights


# %%
from utils.cluster import LocalCluster
from utils.training.recovery import RecoverySettings

folder = tempfile.TemporaryDirectory()  # removed at the end of the lesson
settings = RecoverySettings(folder.name, pause_seconds=0.06)  # slow enough to be killed in time
cluster = LocalCluster(workers=2, environment={"GCE_METADATA_IP": "127.0.0.1:9"})
whole = cluster.run(train_unprotected, settings, timeout=60, echo=False)[0]
print(whole.step, "steps,", len(whole.weights), "arrays of weights")

# %% [markdown]
# `whole` is the uninterrupted run. We compare all others with it. `disturb` waits until worker 0 reports a certain step, does something nasty, and waits for the job to end. With `restarts=1` the cluster may start the group a second time. We kill worker 1 soon after step 11 with SIGKILL, a signal that no program can catch. This program saves nothing, so where does the second attempt begin?


# %% tags=["nbval-ignore-output"]
from distlab.explorables import cockpit


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
# At the very beginning. Worker 1 is killed at ✕, and both start again at ↻, at the top of the loss curve. Everything before is hatched: trained for nothing. Worker 0 was in perfect health, and lost as much as worker 1.
#
# ## CheckpointManager: save, and know where you are
#
# We add three things:
#
# - Every worker makes a `CheckpointManager` and saves, but only the chief saves into the shared folder, as in lesson 09.
# - At the start every worker restores the newest checkpoint.
# - The run continues **at its place in the data**. `batches_after` finds that place from the number of steps, because the order of the examples depends only on the seed and the number of the epoch. (`Trainer.batches_from`, used above, is the same function.)
#
# **Your turn.** A run with `per_epoch` steps an epoch has done `done` steps. In which epoch is it, counted from 0, and how many batches of that epoch must it skip?


# %%
def find_place(done, per_epoch):  # epoch, batches to skip
    return ...


# %%
from distlab.turns import lesson10 as turns

find_place = turns.PLACE.take(find_place)
print({done: find_place(done, 5) for done in (3, 5, 8, 24)})

# %%
from utils.events import report


def batches_after(trainer, done):
    """Yield (epoch, batch) for every step after the first `done`."""
    per_epoch = trainer.plan.steps_per_epoch
    for epoch in range(done // per_epoch, trainer.settings.epochs):
        skipped = max(0, done - epoch * per_epoch)  # of this epoch's batches: trained already
        batches = trainer.make_epoch(epoch, skipped)  # in the order of this seed and epoch
        for batch in trainer.strategy.experimental_distribute_dataset(batches):
            yield epoch, batch


def train_saving(settings):
    """One worker's program: from the newest checkpoint on, saving every `checkpoint_every` steps."""
    trainer = Trainer(settings)  # its checkpoint: model, optimizer, number of steps
    place = settings.folder if trainer.group.is_chief else tempfile.mkdtemp()
    manager = tf.train.CheckpointManager(trainer.checkpoint, place, max_to_keep=3)
    newest = tf.train.latest_checkpoint(settings.folder)  # the chief's, on every worker
    if newest:
        trainer.checkpoint.restore(newest).assert_existing_objects_matched()
    trainer.restored_step = int(trainer.step.numpy())
    report("restore", step=trainer.restored_step)
    for epoch, batch in batches_after(trainer, trainer.restored_step):
        step = trainer.take(epoch, batch)
        if step % settings.checkpoint_every == 0:
            manager.save(checkpoint_number=step)
            report("checkpoint", step=step)
    return trainer.finish()


# %% [markdown]
# The same kill after step 11, now with a checkpoint every 4 steps:

# %% tags=["nbval-ignore-output"]
from distlab.lessons.chaos import make_attempt_rows, read_attempts

saving = replace(settings, folder=f"{folder.name}/saving")
job = disturb(cluster.start(train_saving, saving, restarts=1), 11, kill)
resumed = job.wait()[0]


def largest_difference(mine, theirs):
    return max(float(np.abs(a - b).max()) for a, b in zip(mine.weights, theirs.weights))


first, second = read_attempts(list(job.events()))
rows = make_attempt_rows(list(job.events()))
figures.show(figures.timeline(rows, title="One kill, as measured on this machine", unit="s"))
print(f"first attempt: {first.done} steps, saved after {first.saved}")
print(f"second attempt: begins after {second.restored}, {second.lost} steps are trained twice")
off = largest_difference(resumed, whole)
print(f"largest difference between two weights of the two runs: {off:.0e}")
assert second.restored >= first.saved >= 8 and second.lost <= settings.checkpoint_every
assert off < 1e-9
np.testing.assert_allclose(resumed.losses, whole.losses[second.restored :], atol=1e-9)

# %% [markdown]
# The weights aren't just similar. They are the same to nine decimal places, and so is the loss of every step that the second attempt took. All that the failure cost was the steps since the last checkpoint, at most four, and the time for a restart.
#
# ## Break it yourself
#
# Here is the same program in the cockpit of [lesson 08](08-tf-config.ipynb), with a checkpoint every 20 steps. It runs for a quarter of an hour, or until you run the next code cell. Kill a worker just after a flag, and another time just before the next one. Compare the hatched stretches. Then switch on **Chaos**: can it ever cost you more than 20 steps at once? The strip above the rows keeps score of the time: useful, waiting, restarting, trained twice. Its first share is the run's *goodput*, and `utils.measure_goodput` finds it in the events of any job. (Each step sleeps for 0.08 seconds before its gradient, in place of a larger model. It counts as computing.)

# %% tags=["nbval-ignore-output"]
endless = replace(settings, folder=f"{folder.name}/played", checkpoint_every=20, epochs=2000)
endless = replace(endless, pause_seconds=0.08, watched=True)  # `watched`: tells when it waits
played = cluster.start(train_saving, endless, restarts=100)
next(event for event in played.events() if event.get("step", 0) >= 12)
cockpit(played)

# %% [markdown]
# ## What must be in a checkpoint
#
# A checkpoint of the weights alone restores without any error, so it's easy to believe that it is complete. It isn't. Below, a run is resumed after step 8 three times. The first time the optimizer's state is left out, so its momentum is zero, as in a new program. The second time the place in the data is left out, so the epoch starts again. The third time nothing is left out.


# %%
def resume_without(settings, choices):
    """Continue from step 8 once for each choice, with that part of the checkpoint left out."""
    trainer, reports = Trainer(settings), []
    for missing in choices:
        held = {"model": trainer.model, "optimizer": trainer.optimizer, "step": trainer.step}
        held.pop(missing, None)
        tf.train.Checkpoint(**held).restore(f"{settings.folder}/ckpt-8").expect_partial()
        trainer.losses = []
        start = 5 if missing == "place" else 8  # epoch 1 begins after step 5
        for epoch, batch in trainer.batches_from(start):
            trainer.take(epoch, batch)
        reports.append(trainer.finish())
    return dict(zip(choices, reports))


played.stop()
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
# No run raised an error. Without the third line to compare with, you would take the other two losses for ordinary training. The state of random number generators (dropout, shuffling) belongs in a checkpoint for the same reason. Our order of examples needs no saving, because it follows from the seed and the number of the epoch. If yours doesn't, the iterator of a plain `tf.data` dataset can go into the `tf.train.Checkpoint` too. A distributed iterator can't: `ValueError`. So under a strategy count the steps, as we do.
#
# ## A checkpoint cut off in mid-write
#
# What if the kill comes while a checkpoint is being written? First the healthy ones that we just resumed from:

# %%
kept_folder = Path(kept.folder)
for path in sorted(kept_folder.iterdir()):
    print(path.name)
print("newest in the file checkpoint:", Path(tf.train.latest_checkpoint(kept_folder)).name)

# %% [markdown]
# On a local disk, TensorFlow writes in an order that makes a kill harmless. The values go into a folder `ckpt-8_temp` and from there to `ckpt-8.data…`. Then comes `ckpt-8.index`. The file `checkpoint`, which names the newest one, comes last and is replaced in one piece. Let's test that. Worker 0's first checkpoint is small and complete. The second has 64 MB, and we kill the worker as soon as the first file of that one appears.


# %%
def save_small_then_large(folder):
    """Save a small checkpoint, then a large one. Only worker 0: there is no strategy here."""
    if tf.distribute.cluster_resolver.TFConfigClusterResolver().task_id > 0:
        return
    values = tf.Variable(tf.zeros(10), shape=tf.TensorShape(None))
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(values=values), folder, 2)
    for step, size in ((4, 10), (8, 16_000_000)):
        values.assign(tf.fill([size], float(step)))
        manager.save(checkpoint_number=step)
        report("saved", step=step)


# %% tags=["nbval-ignore-output"]
from utils.cluster import ClusterError
from utils.measure import format_bytes
from utils.training.checkpoints import latest_intact_checkpoint

cut = Path(folder.name) / "cut"
job = cluster.start(save_small_then_large, str(cut))
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
print("newest in the file checkpoint:", Path(tf.train.latest_checkpoint(cut)).name)
newest = latest_intact_checkpoint(cut, "ckpt")
values = tf.train.load_checkpoint(newest.path).get_tensor("values/.ATTRIBUTES/VARIABLE_VALUE")
assert np.all(values == newest.step), "whole: every value is of one step"

# %% [markdown]
# The file `checkpoint` doesn't name what the killed save left behind, so nothing reads it.
#
# The order of writing doesn't help against other damage: a full disk, a copy cut short, a file system that lost its last writes. So we cut the newer data file of the two healthy checkpoints in half, and ask TensorFlow for the newest checkpoint. Then we ask our own function. `latest_intact` starts at the newest, reads every value to its last byte (each is stored with a checksum), and returns the first checkpoint that can be read completely.


# %%
def latest_intact(folder):
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
print("newest in the file checkpoint:", Path(newest).name)
found = latest_intact(kept_folder)
print("newest intact checkpoint:", Path(found).name)
assert found == latest_intact_checkpoint(kept_folder, "ckpt").path and found.endswith("ckpt-4")

# %% [markdown]
# A program that restores `latest_checkpoint` would now fail at every restart, until someone takes a look. This is why you keep more than one. (`latest_intact_checkpoint` in `utils` also returns the checkpoints it skipped and why.)
#
# **A good place for a break.** When you come back, run all cells above once.
#
# ## PreemptionCheckpointHandler: save on notice
#
# Often a machine isn't taken away without a warning. TensorFlow's `PreemptionCheckpointHandler` turns the notice into one more checkpoint. The worker that gets the notice informs the others, all save after the same step, and then all call `exit_fn`. Ours exits with code 42, and when our cluster sees that code, it starts the group again.
#
# On Slurm and Kubernetes the notice is SIGTERM, the signal that asks a program to end. (Unlike SIGKILL, it can be caught.) The handler listens for it without being told, if the signal reaches Python and the machine isn't Google Cloud's. (GKE counts as Google Cloud: see *And then*, at the end of the lesson.) In a container, a shell script that starts Python as a child keeps the signal to itself, so start Python with `exec`. The cheap *spot* machines of a cloud announce their end in another way, and there the handler needs your help, which *And then* has as well.
#
# **Predict.** The program below has no regular checkpoints: only the handler saves. Worker 1 gets SIGTERM after step 11. How many steps does the run lose?

# %%
from distlab.explorables import guess_number

my_guess = guess_number("Steps trained twice", 0, 11)
my_guess


# %%
def train_listening(settings):
    """As `train_saving`; and a SIGTERM to any worker makes all save and leave."""
    trainer = Trainer(settings)
    newest = tf.train.latest_checkpoint(settings.folder)
    if newest:
        trainer.checkpoint.restore(newest)
    trainer.restored_step = int(trainer.step.numpy())
    report("restore", step=trainer.restored_step)
    place = settings.folder if trainer.group.is_chief else tempfile.mkdtemp()
    handler = tf.distribute.experimental.PreemptionCheckpointHandler(
        trainer.strategy.cluster_resolver,
        tf.train.CheckpointManager(trainer.checkpoint, place, max_to_keep=3),
        termination_config=tf.distribute.experimental.TerminationConfig(
            exit_fn=lambda: sys.exit(42)
        ),
    )
    for epoch, batch in trainer.batches_from(trainer.restored_step):
        step = trainer.take(epoch, batch)
        handler.save_checkpoint_if_preempted(checkpoint_number=step)
    return trainer.finish()


# %%
from distlab.exercises.predict import show_guess

listening = replace(settings, folder=f"{folder.name}/listening")
job = cluster.start(train_listening, listening, restarts=1)
disturb(job, 11, lambda job: job.kill("worker", 1, signal.SIGTERM))
first, second = read_attempts(list(job.events()))
show_guess(my_guess, second.lost)
[left] = [event for event in job.events() if event["event"] == "restart"]
print("the group", left["cause"], "and started again")
assert second.restored == first.done and largest_difference(job.wait()[0], whole) < 1e-9

# %% [markdown]
# None: the notice came in time for one more checkpoint. (If you said 3, that's what a save every 4 steps loses when there's no notice.) But the handler does one thing that you didn't ask for: when you make it, it restores the *latest* checkpoint of its manager, whatever you restored before. To show it, worker 0 goes back to the folder of the run that saved every 4 steps. It restores the oldest of the three checkpoints there, and then makes a handler.


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
# That has two consequences. If the latest checkpoint is damaged, the handler tries to read it all the same, unless you take it off the manager's list first (`utils` does). And the managers of the other workers have empty folders, so the handler restores nothing there. That is why `train_listening` restores the chief's checkpoint itself, on every worker. (You can also give the handler a `tf.train.Checkpoint` and a `checkpoint_dir` in place of a manager. It then makes everyone's folders and reads the chief's on all workers.)
#
# A SIGKILL or a power cut gives no notice, so save at intervals as well. In the comparison below, the run with the handler does both.
#
# ## The same through utils: what is lost with each
#
# `train_with_recovery` of `utils` is this lesson's loop with the checks built in, for three methods. Two of them you know: `CheckpointManager`, and the handler with regular checkpoints. The third is Keras's `fit` with the callback `BackupAndRestore`, with an addition that makes it exact (the mistake below shows why).
#
# We train once with each method and disturb each run three times. After steps 6 and 11 it's killed without notice, with SIGKILL. After step 15 it gets a notice: SIGTERM, and SIGKILL for any process that is still running when the *grace period* ends. Clouds give 30 s to 2 minutes. Here the handler gets 20 s, and the other two, which ignore the notice anyway, get 0.15 s.


# %% tags=["nbval-ignore-output"]
from distlab.lessons.chaos import Fault, inject_in_turn
from utils.training.recovery import METHODS

SIGNALS = {6: "SIGKILL", 11: "SIGKILL", 15: "SIGTERM"}  # after which step, which signal


def measure(method):
    """Send one run the three signals; return how many steps it trained again after each."""
    own = replace(settings, folder=f"{folder.name}/{method}", method=method)
    common = {"seed": 0, "method": method, "workers": 2, "victim": 1, "moment": "step"}
    faults = [
        Fault(**common, kind=name, place=step, delay_seconds=0.0) for step, name in SIGNALS.items()
    ]
    end = inject_in_turn(cluster, own, faults, whole)
    assert end.problem is None and end.error < 1e-9, end.problem
    return end.lost_each


words = [f"{name} after step {step}" for step, name in SIGNALS.items()]
lost = {name: dict(zip(words, measure(method))) for method, name in METHODS.items()}
title = "Steps trained twice after each signal, with a checkpoint every 4 steps"
figures.show(figures.grouped_bars(lost, unit="steps", title=title))
for name, each in lost.items():
    print(f"{name:<28}at most {max(each.values())} steps; with notice {each[words[-1]]}")
assert max(max(each.values()) for each in lost.values()) <= settings.checkpoint_every
assert lost["PreemptionCheckpointHandler"][words[-1]] == 0

# %% [markdown]
# Every run was started again three times, and ended with the weights of the undisturbed run, to 1e-9. What differs is how much was trained twice: never more than the interval of 4 steps, and nothing when the handler got the notice. Without a handler the workers ignored the notice, trained on until they were killed, and lost what they hadn't saved by then. (That may surprise you: a plain Python program dies of SIGTERM at once. But in a process with a `MultiWorkerMirroredStrategy`, TensorFlow catches the signal for such handlers, and the training carries on to its end.) So in their groups the bar of the notice can be anything from 0 to 4 steps.
#
# There is a quieter failure: a process that is alive and does nothing. TensorFlow's workers send *heartbeats*, small signs of life, to a service in worker 0. If another worker is frozen, its heartbeats stop, and after ten to fifteen seconds the step of the others fails. If it's merely stuck, say in its input pipeline, the heartbeats continue and the others wait, as in lesson 09's mistake. While you look for the reason, `tf.distribute.experimental.CommunicationOptions(timeout_seconds=60)` in the strategy's constructor turns such a wait into a `DeadlineExceededError`. (For debugging only: it costs a thread for each collective.) In production, something outside the job has to watch it. Our cluster watches for frozen tasks: with `stall_seconds`, it starts the group again when a task has been frozen (by the signal SIGSTOP) for that long.

# %%
from utils.training.recovery import train_with_recovery

frozen = replace(settings, folder=f"{folder.name}/frozen", method="manager")
job = cluster.start(train_with_recovery, frozen, restarts=1, stall_seconds=0.5)
disturb(job, 11, lambda job: job.pause("worker", 1))
[found] = [event for event in job.events() if event["event"] == "restart"]
print(found["task"], found["cause"])
assert largest_difference(job.wait()[0], whole) < 1e-9
cluster.close()  # nobody is left behind

# %% [markdown]
# ## The mistake: a backup in the middle of an epoch
#
# Keras's callback `BackupAndRestore(folder, save_freq=3)` saves every three batches. That looks safer than the default, which is once per epoch. We fit two epochs of six batches and cut the power after the fifth batch of the second epoch. Then we call `fit` again.


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
ends = {save_freq: fit_through_a_power_cut(save_freq) for save_freq in (3, "epoch")}
print("started again, by save_freq:", ends)
assert ends[3][0] == 15 and ends["epoch"] == undisturbed and ends[3] != undisturbed

# %% [markdown]
# With `save_freq=3` the weights came back from the middle of the epoch, but the data started at its beginning. So three batches were trained twice: 15 steps instead of 12, and another weight. No error, no warning. Saving once per epoch fixes it. So does counting: the optimizer's step counter is in the backup, and it tells you how many batches to skip.
#
# One more argument matters. By default the callback overwrites its only backup, and a kill at that moment leaves half a file. `double_checkpoint=True` keeps the previous one. `utils.training.recovery.fit.AtomicBackup` does both for you, and lets only the chief write.
#
# ## What it costs: how often to save
#
# If you save often, saving takes time. If you save rarely, a failure destroys more work. First measure what one save costs on your computer, for the CNN of [lesson 01](01-why-distribute.ipynb) with Adam's two moving averages. (To continue training while the files are written, pass `tf.train.CheckpointOptions(enable_async=True)` when saving.)

# %% tags=["nbval-ignore-output"]
from utils.measure import time_calls
from utils.models import build_cnn

model, adam = build_cnn(), keras.optimizers.Adam()
adam.build(model.trainable_variables)
saved = tf.train.Checkpoint(model=model, optimizer=adam)
timing = time_calls(lambda: saved.write(f"{folder.name}/cost"))
size = sum(path.stat().st_size for path in Path(folder.name).glob("cost.*"))
print(f"{format_bytes(size)} in {1000 * timing.median_seconds:.1f} ms")
print(f"{format_bytes(round(size / timing.median_seconds))} each second")
assert size > 3 * 4 * model.count_params()

# %% [markdown]
# Say that a failure comes once in *M* seconds on average (the *mean time between failures*, MTBF), that a save takes *s* seconds, and that we save after every *t* seconds of work. Saving makes the run longer, and so does every failure, which throws away the work since the last save. (Leave restarts out, and what Daly adds below.)
#
# **Your turn.** By which fraction does a run get longer, saves and lost work together?


# %%
def overhead(work, save, mtbf):  # t, s and M, in seconds
    return ...


# %%
from utils.simulate.failures import young_interval_seconds

overhead = turns.OVERHEAD.take(overhead)
intervals = np.geomspace(60, 6000, 400)
best = min(intervals, key=lambda work: overhead(work, 30.0, 3600.0))
print(f"a save of 30 s, a failure an hour: by your sum, save every {best:.0f} s")
print(f"Young's formula: every {young_interval_seconds(30.0, 3600.0):.0f} s")

# %% [markdown]
# The sum is *s/t + t/(2M)*: one save in *t* seconds, and half an interval lost in *M* seconds. It's smallest at *t* = √(2*sM*), which is Young's formula. Daly's estimate adds what Young left out: failures during saving, and more than one failure in an interval.
#
# With 1,000 workers instead of 10, a group fails a hundred times as often. Compare the intervals.

# %%
from distlab.explorables.checkpoint_interval import say_seconds
from utils.simulate.failures import daly_interval_seconds, group_mtbf_seconds, overhead_fraction

SAVE_SECONDS, YEAR = 30.0, 365 * 86_400.0  # a bigger model; each worker fails once a year
for workers in (10, 1000, 10_000):
    mtbf = group_mtbf_seconds(YEAR, workers)
    young = young_interval_seconds(SAVE_SECONDS, mtbf)
    daly = daly_interval_seconds(SAVE_SECONDS, mtbf)
    extra = overhead_fraction(daly, SAVE_SECONDS, mtbf, restart_seconds=60)
    words = f"Young {say_seconds(young)}, Daly {say_seconds(daly)}"
    print(f"{workers:>6} workers, MTBF {say_seconds(mtbf)}: {words}, overhead {extra:.1%}")

# %% [markdown]
# A hundred times as many failures, and only ten times as many checkpoints: the interval shrinks with the square root. (A hundred times as many would be ten times too often.) The *overhead* is the extra time that a run takes, compared with its work alone: saving, lost work, and restarts of 60 s. It comes from a formula. Can you trust it? Below we simulate 4,000 runs with random failures, without any formula, and print the average overhead next to what the formula expects.

# %%
from utils.simulate.failures import expected_run_seconds, simulate_run_seconds

means = {}
for factor in (0.1, 0.5, 1.0, 2.0, 4.0):  # of Daly's interval for 10,000 workers
    run = (100 * factor * daly, factor * daly, SAVE_SECONDS, mtbf, 60.0)
    means[factor] = simulate_run_seconds(*run, runs=4000, seed=1).mean() / run[0] - 1
    formula = expected_run_seconds(*run) / run[0] - 1
    print(f"{factor:>5} x Daly's interval: {means[factor]:.1%} drawn, {formula:.1%} expected")
assert min(means, key=means.get) == 1.0

# %% [markdown]
# The curve is flat near its lowest point: with twice or half the best interval the overhead is 21 to 22 % instead of 17 %, but with a tenth of it the overhead is 78 %. So you needn't know your MTBF exactly.
#
# Now move the sliders. The first begins at what a save took on your machine above (at 0.1 s if that was less). For the other two, here is a real example: Meta's report on Llama 3 counts 419 unexpected interruptions in 54 days on 16,384 GPUs. The cell prints how often that is, for the whole group and for each GPU. Set *Workers* to 16,384, and *Each fails once in* to the days of one GPU.

# %% tags=["nbval-ignore-output"]
from distlab.explorables.checkpoint_interval import interval_explorer

hours = 54 * 24 / 419
print(f"{hours:.1f} h between failures, {hours * 16_384 / 24:,.0f} days for each GPU")
assert 3 < hours < 3.2
folder.cleanup()  # nothing of this lesson stays on the disk
interval_explorer(timing.median_seconds, workers=1000)

# %% [markdown]
# This is the end of the core. Take a break if you like.
#
# ## And then: notices in a cloud
#
# You can rent machines cheaply as *spot* or *preemptible* ones, which the cloud takes back when it needs them. How the notice arrives depends on where you run:
#
# | where | how the notice comes | what the handler needs |
# |---|---|---|
# | Slurm, Kubernetes, not on Google Cloud | SIGTERM | nothing, if the signal reaches Python |
# | the same on Google Cloud's GPU machines (GKE, say) | SIGTERM, which the handler ignores, or as in the next two rows | your watcher |
# | Google Cloud, GPU machines, host maintenance | metadata server | nothing: the handler asks for `instance/maintenance-event` |
# | Google Cloud, GPU machines, spot | metadata server | your watcher, which asks for `instance/preempted`, and `grace_period=0` |
# | AWS, Azure | their own metadata address | your watcher, which asks that address |
#
# Two details decide whether this works:
#
# - **Spot isn't maintenance.** On Google's GPU machines the handler asks for maintenance only, and doesn't listen for SIGTERM. We gave it a fake metadata server that said `preempted=TRUE`, and it noticed nothing. (On Google's CPU machines and TPUs, the handler of TensorFlow 2.21 does nothing at all.)
# - **Leave `grace_period` at 0.** Then everyone saves once and exits. With more, the handler saves, *trains on*, and saves again at the end of that period: with 6 s we measured saves after 1.1 s and 7.2 s. A spot machine may be gone by then. On Google's GPU machines the default is an hour, so write the 0.
#
# A *watcher* is a function that returns True once there is a notice. You pass it as `termination_watcher_fn`, and the handler calls it about every second, in a thread. Once there is a watcher, the handler no longer listens for SIGTERM. And an error in the watcher ends that thread: no save and no exit, ever after. So a watcher must survive whatever the network does. Azure's first answer, for example, can take minutes. These three follow the providers' documentation. We tried them on a fake metadata server, not in a cloud:
#
# ```python
# from urllib.request import Request, urlopen
#
# def ask(path, headers, method="GET"):
#     request = Request(f"http://169.254.169.254/{path}", headers=headers, method=method)
#     return urlopen(request, timeout=5).read().decode()
#
# def google_notice():  # about 30 s before the end
#     return ask("computeMetadata/v1/instance/preempted", {"Metadata-Flavor": "Google"}) == "TRUE"
#
# def azure_notice():  # at least 30 s before the end
#     return "Preempt" in ask("metadata/scheduledevents?api-version=2020-07-01", {"Metadata": "true"})
#
# def aws_notice():  # two minutes before the end; an error ("not found") until then
#     token = ask("latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"}, "PUT")
#     return "action" in ask("latest/meta-data/spot/instance-action", {"X-aws-ec2-metadata-token": token})
#
# def survive(notice):
#     def watcher():
#         try:
#             return notice()
#         except Exception:  # no answer, or none that we understand: ask again in a second
#             return False
#     return watcher
#
# config = tf.distribute.experimental.TerminationConfig(
#     termination_watcher_fn=survive(google_notice), exit_fn=lambda: sys.exit(42), grace_period=0)
# ```
#
# ## Recap
#
# - A run killed after step 11 was resumed, and ended with the uninterrupted run's weights, to 1e-9.
# - When killed, each method lost at most the steps of one interval; with notice, the handler lost none.
# - A checkpoint with half a data file was still named as the newest; `latest_intact` skipped it.
# - Without momentum, or without the place in the data, a resumed run quietly ended with other weights.
# - The time of a save and an MTBF gave the best interval, and 4,000 simulated runs agreed with the formula.
#
# ## Cheat sheet
#
# You bring `model`, `optimizer`, `strategy`, `step` (an int64 variable that you add 1 to in every step), `checkpoint_every` (in steps), and from [lesson 09](09-multi-worker-mirrored.ipynb) `is_chief` and `shared`, the path of the shared folder. On machines with a notice, pass the handler `termination_config=config` from *And then* as well: its grace period of 0 saves at once.
#
# ```python
# checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, step=step)  # all three
# if newest := latest_intact(shared):  # this lesson's function; None at the first start
#     checkpoint.restore(newest).assert_existing_objects_matched()
#     if is_chief: tf.compat.v1.train.update_checkpoint_state(shared, newest)  # skip damaged ones
# folder = shared if is_chief else tempfile.mkdtemp()  # every worker saves, the chief's counts
# manager = tf.train.CheckpointManager(checkpoint, folder, max_to_keep=3)
# handler = tf.distribute.experimental.PreemptionCheckpointHandler(strategy.cluster_resolver, manager)
# if int(step) % checkpoint_every == 0:  # these last three lines: in your loop, after every step
#     manager.save(checkpoint_number=int(step))  # best about every sqrt(2 * save_seconds * mtbf) s
# handler.save_checkpoint_if_preempted(checkpoint_number=int(step))
# ```
#
# The fourth line matters when `latest_intact` skipped a damaged checkpoint. The file `checkpoint` still names that one, and the handler, as you saw, restores what the file names. So the chief first writes into it the checkpoint that was really restored. A whole program that survives both signals, on one machine or two: [checkpoint_and_resume.py](../examples/checkpoint_and_resume.py).
#
# ## On a real GPU
#
# `make gpu-check ARGS=resume` trains an epoch on GPUs and the next on a CPU, from one checkpoint, and the reverse.
# Look at the largest difference from the weights of a run that was never moved.
# What you learned about places and optimizers holds there too: a checkpoint knows no devices.
#
# ## Further reading
#
# - TensorFlow's guides, [Fault tolerance](https://www.tensorflow.org/guide/migrate/fault_tolerance) and [Training checkpoints](https://www.tensorflow.org/guide/checkpoint), and the tutorial [Custom training loop with several workers](https://www.tensorflow.org/tutorials/distribute/multi_worker_with_ctl)
# - API: [PreemptionCheckpointHandler](https://www.tensorflow.org/api_docs/python/tf/distribute/experimental/PreemptionCheckpointHandler), [CheckpointManager](https://www.tensorflow.org/api_docs/python/tf/train/CheckpointManager), [BackupAndRestore](https://keras.io/api/callbacks/backup_and_restore/)
# - [Young, A first order approximation to the optimum checkpoint interval](https://doi.org/10.1145/361147.361115), 1974, and [Daly, A higher order estimate of the optimum checkpoint interval for restart dumps](https://doi.org/10.1016/j.future.2004.11.016), 2006
# - [The Llama 3 herd of models](https://arxiv.org/abs/2407.21783), 2024, section 3.3.4 on reliability
#
# ## The lab
#
# You practice this in [lab 09, fault tolerance](../labs/lab09-fault-tolerance.ipynb).
