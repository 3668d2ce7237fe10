# %% [markdown] shows="MultiWorkerMirroredStrategy: real worker processes from a cell; who reads what; the chief's duties"
# # Many workers, one model
#
# One machine is too slow, so you rent a second, and now your program runs twice. What goes wrong then often goes wrong quietly: both copies train on the same examples, or add up numbers that never belonged together. By the end you'll have trained one model in two processes, with your own loop and with `fit`. And you'll have proved that a single process would have found the same weights, to nine decimal places.
#
# **Time:** 85 minutes · **Prerequisites:** [the training loop by hand](04-custom-training-loop.ipynb), [TF_CONFIG](08-tf-config.ipynb) · **Hardware:** two CPU cores
#
# ## Objectives
#
# - Train with MultiWorkerMirroredStrategy in real processes, and prove that one process gives the same weights.
# - Run Keras 3's `fit` across workers, and say what had to be fixed in it first.
# - Choose among the auto-shard policies DATA, FILE and OFF from what each worker reads.
# - Give the chief its extra duties: the checkpoint that is kept and the summaries for TensorBoard.
# - Name the calls that every worker must make, and diagnose a run in which one worker didn't.

# %%
from utils.environment import quiet_tensorflow, set_seeds

with quiet_tensorflow():
    import tensorflow as tf
from utils.devices import use_logical_devices

set_seeds(0)
print(use_logical_devices(2))

# %%
import json
import os
import re
import tempfile
from pathlib import Path

import keras
import numpy as np

# %% [markdown]
# ## The same program, started twice
#
# There is no master program: every worker runs your program from top to bottom. (Behind the scenes worker 0 does one thing more. Its process runs the *coordination service*. All others register there at the start, so it has to be reachable.) Once all are connected, the copies wait for each other in *collective* operations, which all of them must call: an [all-reduce](06-all-reduce.ipynb) returns to no worker until all have called it. Worker 0 is the *chief*: it trains like the others, and also does what must happen only once.

# %%
from distlab import figures
from distlab.lessons.cluster_pictures import draw_two_workers

figures.show(draw_two_workers())
Path("runs/lesson09").mkdir(parents=True, exist_ok=True)  # for a program that comes later

# %% [markdown]
# ## A cluster from a cell
#
# `LocalCluster` starts real processes on this machine, each with its own port and TF_CONFIG, and ends them with the notebook. `cluster.run` calls the function below in both workers. What they print arrives here line by line, with the task's name in front. (`replicas_per_worker=2` gives each worker two logical devices. We need the second only at the end of the lesson. Until then each worker is one replica.)
#
# Each worker contributes the number of its examples, 100 for worker 0 and 200 for worker 1, and the numbers are all-reduced with SUM.


# %%
def add_up():
    strategy = tf.distribute.MultiWorkerMirroredStrategy()  # before any other operation
    index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    mine = tf.constant(100.0 * (index + 1))
    total = strategy.reduce("SUM", strategy.run(lambda: mine), axis=None)
    print(f"process {os.getpid()} had {mine:.0f} and got {total:.0f}")
    return os.getpid(), float(total)


# %% tags=["nbval-ignore-output"]
from utils.cluster import LocalCluster

cluster = LocalCluster(workers=2, replicas_per_worker=2)
results = cluster.run(add_up, timeout=60)  # in the order of the workers
assert len({process for process, _ in results} | {os.getpid()}) == 3
assert [total for _, total in results] == [300.0, 300.0]

# %% [markdown]
# Three processes: the notebook and two workers. Both workers printed the same sum: an all-reduce gives the result to everyone.
#
# ## Your own loop, on two workers
#
# This is the loop of [lesson 04](04-custom-training-loop.ipynb), written as a function that a worker runs. Two things are new: the strategy, and the *auto-shard policy* DATA, which splits each batch among the workers (more below). Nothing in the loop asks which worker it is in: every worker runs all of it.


# %%
from utils.data import load
from utils.data.batches import epoch_order


def shard_by(dataset, policy):
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy[policy]
    return dataset.with_options(options)


def make_batches(examples, batch):
    """Return the first `examples` of Fashion-MNIST in a fixed order, in global batches."""
    split, order = load("fashion_mnist").train, epoch_order(examples, seed=0, epoch=0)
    images = split.images[order][..., None] / 255.0  # float64 [examples, 28, 28, 1]
    dataset = tf.data.Dataset.from_tensor_slices((images, split.labels[order]))
    return shard_by(dataset.batch(batch), "DATA")


# %%
from utils.events import report
from utils.models import build_mlp


def train_by_hand(strategy, examples=512, batch=64):
    """Train one epoch with plain SGD; return the weights."""
    with strategy.scope():
        model, sgd = build_mlp(seed=0, dtype="float64"), keras.optimizers.SGD(0.05)
        sgd.build(model.trainable_variables)

    def train_replica(images, labels):
        with tf.GradientTape() as tape:
            logits = model(images, training=True)  # [per_replica_batch, 10]
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss = tf.nn.compute_average_loss(losses, global_batch_size=batch)
        gradients = tape.gradient(loss, model.trainable_variables)
        sgd.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    @tf.function
    def train_step(images, labels):
        losses = strategy.run(train_replica, args=(images, labels))
        return strategy.reduce("SUM", losses, axis=None)

    for number, (images, labels) in enumerate(
        strategy.experimental_distribute_dataset(make_batches(examples, batch)), start=1
    ):
        report("step", step=number, loss=float(train_step(images, labels)))
    return model.get_weights()


# %% [markdown]
# `cluster.run` waits for the results. `cluster.start` returns at once with a *job* that you can watch: `job.events()` yields what the workers pass to `report`, and `job.logs` returns the lines that one of them printed. (`job.kill`, `job.pause` and `job.restart` are for making trouble, in lessons [10](10-fault-tolerance.ipynb) and [11](11-parameter-server.ipynb).)


# %% tags=["nbval-ignore-output"]
def work_by_hand():
    print("training")
    return train_by_hand(tf.distribute.MultiWorkerMirroredStrategy())


job = cluster.start(work_by_hand)
for event in job.events():  # as they arrive
    print(f"{event['task']} · step {event['step']} · loss {event['loss']:.4f}")
by_hand = job.wait(timeout=60)
assert len(list(job.events())) == 2 * 8 and job.logs("worker", 1) == ["training"]

# %% [markdown]
# Both report the same loss in each step, since the loss is reduced over both. Now the claim: one process that gets the whole global batches ends with the same weights. The notebook is such a process, so it trains once more, without a cluster:


# %%
def assert_same(weights, others):
    for mine, theirs in zip(weights, others, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-9)


one_process = train_by_hand(tf.distribute.get_strategy())
assert_same(by_hand[0] + by_hand[1], 2 * one_process)
print(len(by_hand), "workers have the weights of one process, to 1e-9")

# %% [markdown]
# ## Watch them wait for each other
#
# How do two processes stay in step? Here is the cockpit of [lesson 08](08-tf-config.ipynb) again, with its slow training: about ten steps per second. In each step a worker computes its gradient (blue) and waits (gray) until the other has one too. Then the all-reduce runs (green), and both start the next step at the same moment.
#
# Slow down worker 1 with the slider, and look at worker 0: how much of its time does it still compute? Then look at the number of steps that each has done. The job runs for a quarter of an hour, or until you stop it, or until you run the programs below.

# %% tags=["nbval-ignore-output"]
from distlab.explorables import cockpit
from distlab.lessons.watched_training import train_slowly

saved = tempfile.TemporaryDirectory()
played = cluster.start(train_slowly, saved.name)
next(event for event in played.events() if event.get("step", 0) >= 12)
cockpit(played)

# %% [markdown]
# Neither gets a step ahead. A worker that needs three times as long makes the *whole group* three times as slow: the other one spends the difference waiting. So in a synchronous group it pays to look for the slowest member first.
#
# ## A train.py to keep
#
# **Your turn.** Some things only one task may do, such as keeping the checkpoint: the chief. If a cluster has a task called chief, it's that one. If not, it's worker 0. Write it down for a task with a `job`, such as "worker", and an `index`, in a cluster that has the list `jobs`.


# %%
def is_first(job, index, jobs):
    return ...


# %%
from distlab.turns import lesson09 as turns

is_first = turns.CHIEF.take(is_first)
print("two workers:", [is_first("worker", index, ["worker"]) for index in (0, 1)])
large = [("chief", 0), ("worker", 0), ("worker", 1), ("ps", 0)]
print({f"{job} {i}": is_first(job, i, ["chief", "ps", "worker"]) for job, i in large})

# %% [markdown]
# Sending functions from a notebook is fine for lessons. On your own machines the program is a file, and here is one: the strategy, the policy, the loop, and the save. (All workers save, and only the chief's copy is kept. We'll see why below.) Put in your own data and model, and it's yours. Keep the `seed`: without it, each worker would cut its part from its own order, and some examples would reach nobody (more below).

# %% tags=["nbval-ignore-output"]
# %%writefile runs/lesson09/train.py
import tempfile

import keras
import numpy as np
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()  # TF_CONFIG is set; before any operation
me, jobs = strategy.cluster_resolver, strategy.cluster_resolver.cluster_spec().jobs
is_chief = not me.task_id and ("chief" not in jobs or me.task_type == "chief")
keras.utils.set_random_seed(0)  # the same in every worker, and before any dataset
data = np.random.default_rng(0).random((512, 784), "float32"), np.arange(512) % 10  # yours
batches = tf.data.Dataset.from_tensor_slices(data).shuffle(512, seed=0).batch(64)  # global batch
options = tf.data.Options()  # each worker cuts its part: without the seed, examples get lost
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
batches = strategy.experimental_distribute_dataset(batches.with_options(options))
with strategy.scope():
    model = keras.Sequential([keras.Input((784,)), keras.layers.Dense(10)])  # your model
    optimizer = keras.optimizers.SGD(0.05)
    optimizer.build(model.trainable_variables)


@tf.function
def train_step(pixels, labels):
    def replica_step(pixels, labels):
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model(pixels))
            loss = tf.nn.compute_average_loss(losses, global_batch_size=64)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    return strategy.reduce("SUM", strategy.run(replica_step, args=(pixels, labels)), axis=None)


for pixels, labels in batches:
    loss = float(train_step(pixels, labels))
model.save("model.keras" if is_chief else f"{tempfile.mkdtemp()}/model.keras")  # everyone saves
strategy.reduce("SUM", strategy.run(lambda: tf.constant(1.0)), axis=None)  # wait for the others
print(f"{strategy.num_replicas_in_sync} replicas, chief: {is_chief}, last loss {loss:.4f}")

# %% [markdown]
# On two machines you type `TF_CONFIG='…' python train.py` on each, with the texts of [lesson 08](08-tf-config.ipynb). Both need the same file and data, a folder that both can see, and open ports between them. If the start hangs, look at worker 0's log, as [lesson 08](08-tf-config.ipynb) shows: the others say nothing. Here two processes start at once. Then a third trains alone, without a cluster: it should end with the same loss, and the cell asserts that.

# %%
from distlab.lessons.typed_cluster import run_tasks
from utils.tf_config import pick_free_ports

played.stop()
both = {"worker": [f"localhost:{port}" for port in pick_free_ports(2)]}
configs = [json.dumps({"cluster": both, "task": {"type": "worker", "index": i}}) for i in (0, 1)]
printed = run_tasks("runs/lesson09/train.py", configs)
printed += run_tasks("runs/lesson09/train.py", ["{}"])
for lines in printed:
    print(lines[-1].split(", last")[0])
assert np.ptp([float(lines[-1].split("last loss")[1]) for lines in printed]) < 1e-3  # one loss

# %% [markdown]
# ## Keras 3's fit, on two workers
#
# `fit` should need nothing but the strategy's scope. In Keras 3.15.1, the version of this course, it fails before its first step is done:


# %%
from utils.cluster import ClusterError


def fit(patch):
    said = patch() if patch else ()
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model, sgd = build_mlp(seed=0, dtype="float64"), keras.optimizers.SGD(0.05)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, dtype="float64")
        model.compile(sgd, loss)
    model.fit(make_batches(512, 64), verbose=0, shuffle=False)
    return model.get_weights(), said


try:
    cluster.run(fit, None, timeout=60, echo=False)
except ClusterError as error:
    refused = re.sub(r"worker \d", "a worker", str(error))
print(refused)
assert "PerReplica" in refused

# %% [markdown]
# The message says two things: a `PerReplica` (one value per replica) turned up where Keras wanted a tensor, and there's a patch (`--keras patched` is an option of `distlab run`; here we apply it ourselves). Two places in Keras's trainer assume that one process sees all replicas. To find out the model's shapes, it averages the first batch over the replicas, and parts that are in different workers can't be averaged. And it reduces each metric along axis 0, which a scalar doesn't have. Here both are replaced, first by hand and then by `utils`:


# %%
def patch_by_hand():
    """Run in each worker, before fit; for Keras 3.15.1."""
    from keras.src.backend.tensorflow import trainer

    def build(self, iterator=None, data_batch=None):  # shapes: of the first local replica's part
        strategy = self._distribute_strategy
        _, _, batches = next(iter(iterator))

        def find_part(value):
            return strategy.experimental_local_results(value)[0]

        with strategy.scope():
            self._symbolic_build(data_batch=trainer.tree.map_structure(find_part, next(batches)))

    def reduce_per_replica(values, strategy, reduction):  # scalars: over replicas alone
        def find_mean(value):
            return strategy.reduce("MEAN", value, axis=None)

        return trainer.tree.map_structure(find_mean, values)

    trainer.TensorFlowTrainer._maybe_symbolic_build = build
    trainer.reduce_per_replica = reduce_per_replica


# %%
from utils.keras_multi_worker import patch_keras_fit

for patch in (patch_by_hand, patch_keras_fit):
    fitted = cluster.run(fit, patch, timeout=60)
    for weights, _ in fitted:
        assert_same(weights, one_process)
    print(f"{patch.__name__}: fit on two workers has the weights of one process, to 1e-9")
print(*fitted[0][1], sep="\n")

# %% [markdown]
# `patch_keras_fit` of `utils` does the same with more care: it leaves other versions of Keras and other strategies alone, and returns what it changed (the last two printed lines). Call it in every worker.
#
# There's also a supported way that needs no patch. `tf_keras` is the older Keras 2, and its `fit` works across workers. Set `TF_USE_LEGACY_KERAS=1` before TensorFlow is imported.
#
# ## Who reads what: DATA, FILE, OFF
#
# Both workers run the same input pipeline. What keeps them from training on the same examples is the *auto-shard policy*, an option of the dataset. To watch it work, we number 24 examples and write them into four files of unequal length. We take global batches of 8, which is 4 for each worker.
#
# Under DATA an epoch takes 24 / 8 = 3 steps. With OFF nothing is split between the workers, and each still takes 4 examples per step.

# %%
folder = tempfile.TemporaryDirectory()  # removed at the end of the lesson
files = np.split(np.arange(24), [4, 8, 18])  # 4, 4, 10 and 6 examples
for number, ids in enumerate(files):
    with tf.io.TFRecordWriter(f"{folder.name}/part-{number}") as writer:
        for i in ids:
            writer.write(str(i).encode())


def number_batches(folder, policy):
    paths = tf.data.Dataset.from_tensor_slices([f"{folder}/part-{i}" for i in range(4)])
    records = paths.flat_map(tf.data.TFRecordDataset)
    numbers = records.map(lambda record: tf.strings.to_number(record, tf.int64))
    return shard_by(numbers.batch(8), policy)


def read_all(folder):
    """Return, for each policy, the numbers that this worker got in each step."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    seen = {}
    for policy in ("DATA", "FILE", "OFF"):
        batches = strategy.experimental_distribute_dataset(number_batches(folder, policy))
        seen[policy] = [strategy.experimental_local_results(b)[0].numpy() for b in batches]
    return seen


# %%
reads = cluster.run(read_all, folder.name, timeout=60)
for policy in ("DATA", "FILE", "OFF"):
    views = {f"worker {i}": seen[policy] for i, seen in enumerate(reads)}
    steps = len(views["worker 0"])
    title = f"{policy}: {steps} steps; shades alternate from step to step"
    figures.show(figures.shares(views, 24, title=title))
sizes = [[len(step) for step in seen["FILE"]] for seen in reads]
print("FILE, examples in each step:", *sizes)
assert sizes == [[4, 4, 4, 2], [4, 4, 2, 0]]

# %% [markdown]
# A filled square is an example that this worker got.
#
# - **DATA**: every worker runs the whole pipeline. TensorFlow cuts each global batch in two; worker 0 keeps the first half, worker 1 the second. Together they train on exactly the batches of one process, *if they all have the same order*. A `shuffle` needs a seed for that. The price: every worker reads and decodes everything.
# - **FILE**: worker 0 opens files 0 and 2, worker 1 files 1 and 3. Nothing is read twice, but the batches aren't those that one process would train on. The files are unequal, so at the end worker 1 gets an empty batch while worker 0 still trains. A loss that is always divided by 8 is then wrong ([lesson 05](05-loss-scaling.ipynb)).
# - **OFF**: every worker trains on everything, half a global batch a step: six steps, every example twice. Use it only if your pipeline does the sharding itself (`distribute_datasets_from_function`, [lesson 13](13-distributed-input.ipynb)).
#
# The default, AUTO, tries FILE first, and uses DATA if it finds no files to split.
#
# **Your turn.** Your images are in 1,000 files of about the same size. Decoding them takes most of the time, so you start eight workers. Which policy makes an epoch shorter? Write its name as a string.

# %%
policy = ...

# %%
policy = turns.POLICY.take(policy)
chosen = [seen.get(policy.upper(), seen["FILE"]) for seen in reads]  # AUTO finds files
print("of our 24, the workers trained on", [sum(map(len, steps)) for steps in chosen])
print(
    "and decoded", [24 if policy.upper() in ("DATA", "OFF") else sum(map(len, s)) for s in chosen]
)

# %% [markdown]
# How bad is a forgotten seed? We put `.shuffle(512)` into the `train.py` from above, without a seed and with the call of `set_random_seed` after the dataset. Of 512 examples, 123 were trained on by both workers and 123 by nobody. Both reported the same loss, and there was no message. It's the same under AUTO if there are no files. Under FILE you may shuffle the file names without a seed: TensorFlow splits the files before the shuffle.
#
# ## The chief's duties
#
# Some things must happen only once: the checkpoint that is kept, the summaries for TensorBoard, the exported model. But *saving a checkpoint may be a collective operation*, which all workers must call (the mistake below shows why). So all workers save, and only the chief's folder counts. The others write into temporary ones. A resumed run reads the chief's folder, so every worker must be able to see it.


# %%
from utils.tf_config import build_cluster, build_tf_configs, parse_tf_config


def is_chief(resolver):
    """The task called chief, if there is one; otherwise worker 0, or the only process."""
    jobs = resolver.cluster_spec().jobs
    first = "chief" if "chief" in jobs else "worker"
    return not jobs or (resolver.task_type == first and resolver.task_id == 0)


for spec in (build_cluster(workers=2), build_cluster(workers=2, chief=True)):
    for name, text in build_tf_configs(spec).items():
        os.environ["TF_CONFIG"] = text
        answer = is_chief(tf.distribute.cluster_resolver.TFConfigClusterResolver())
        print(f"{name:<9} {'is the chief' if answer else 'is not'}")
        assert answer == parse_tf_config(text).is_chief
del os.environ["TF_CONFIG"]


# %%
def make_counter():  # each replica counts by itself; added up when it is read
    on_read, add = tf.VariableSynchronization.ON_READ, tf.VariableAggregation.SUM
    return tf.Variable(0.0, synchronization=on_read, aggregation=add)


def train_and_save(shared):
    """Train three steps; all save, the chief keeps; the chief writes the summary."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    chief = is_chief(strategy.cluster_resolver)
    with strategy.scope():
        model, seen = build_mlp(seed=0), make_counter()
    mine = shared if chief else tempfile.mkdtemp()
    checkpoint = tf.train.Checkpoint(model=model, seen=seen)
    manager = tf.train.CheckpointManager(checkpoint, f"{mine}/checkpoints", max_to_keep=2)
    summaries = tf.summary.create_file_writer(f"{shared}/logs") if chief else None
    for step in range(1, 4):
        strategy.run(lambda: seen.assign_add(32.0))
        total = float(seen.read_value())  # collective: every worker reads
        if summaries:
            with summaries.as_default(step=step):
                tf.summary.scalar("examples seen", total)
        manager.save()  # collective: every worker saves
    return sorted(os.listdir(f"{mine}/checkpoints")), mine == shared, total


# %%
kept = cluster.run(train_and_save, folder.name, timeout=60)
for number, (names, in_shared_folder, total) in enumerate(kept):
    where = "the shared folder" if in_shared_folder else "a folder of its own"
    print(f"worker {number}: {len(names)} files in {where}; {total:.0f} examples seen by all")
assert [in_shared_folder for _, in_shared_folder, _ in kept] == [True, False]

# %% [markdown]
# `seen` is a special kind of variable. Each replica counts in its own copy, and the copies are *added up when the variable is read*: 32 on each of two workers in each of three steps makes 192. Keras's metrics are made of such variables.
#
# Is the checkpoint any good? The notebook, one process without a strategy, restores what two workers saved, and reads the summaries that the chief wrote:

# %%
plain, seen = build_mlp(seed=1), tf.Variable(0.0)
latest = tf.train.latest_checkpoint(f"{folder.name}/checkpoints")
tf.train.Checkpoint(model=plain, seen=seen).restore(latest).assert_consumed()
[log] = Path(folder.name, "logs").glob("events*")
records = [tf.compat.v1.Event.FromString(r.numpy()) for r in tf.data.TFRecordDataset(str(log))]
written = [(e.step, float(tf.make_ndarray(v.tensor))) for e in records for v in e.summary.value]
print(Path(latest).name, "·", seen.numpy(), "examples ·", written)
assert_same([seen.numpy(), *plain.get_weights()], [192.0, *build_mlp(seed=0).get_weights()])

# %% [markdown]
# ## The mistake: the chief saves alone
#
# "Only the chief saves" sounds like common sense, and many programs do it. With variables that are equal everywhere, such as weights, it even works. But saving a variable means reading it, and a variable that is added up when it is read turns the chief's save into an all-reduce. The other worker isn't there to take part.
#
# **Predict.** Each worker has counted 32 examples; the chief saves alone. Worker 1 continues with three steps. In each of them the loss is 0.5 on every worker, and the losses are all-reduced. What does worker 1 get as the sum of the losses of its first step?

# %%
from distlab.explorables import guess_number

my_guess = guess_number("Sum of the losses", 0, 40, step=0.5)
my_guess


# %%
from distlab.exercises.predict import show_guess


def save_alone(shared):
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        seen = make_counter()
    strategy.run(lambda: seen.assign_add(32.0))
    if is_chief(strategy.cluster_resolver):
        tf.train.Checkpoint(seen=seen).write(f"{shared}/alone")  # the mistake
        report("saved")
    for _ in range(3):  # steps
        loss = strategy.reduce("SUM", strategy.run(lambda: tf.constant(0.5)), axis=None)
        report("loss", total=float(loss))


job = cluster.start(save_alone, folder.name)
events = [event for _, event in zip(range(4), job.events())]
try:
    job.wait(timeout=3)
except ClusterError as error:
    print(f"{error.task} {error.cause.split(';')[0]}")
alone = tf.train.load_checkpoint(f"{folder.name}/alone")
saved = alone.get_tensor("seen/.ATTRIBUTES/VARIABLE_VALUE")
totals = [event["total"] for event in events if event["task"] == "worker 1"]
print(f"worker 1 has the sums {totals}; the checkpoint says {saved} examples")
show_guess(my_guess, totals[0])
assert totals == [32.5] * 3 and saved == 32.5

# %% [markdown]
# It should have been 1.0. This is the worst kind of error, so read slowly. Worker 1 called an all-reduce for its *loss*, and the partner that it got was the chief's *save*. Both are sums of one float, and TensorFlow matches the workers' collectives by the order of the calls. So 32 + 0.5 went into the checkpoint as a number of examples, and to worker 1 as a loss. The save reads the variable three times, so this happened in all three of worker 1's steps. Then the chief reached its own first loss, and had no partner left. By default TensorFlow sets no time limit here and keeps waiting; it was our `job.wait(timeout=3)` that gave up.
#
# When your own run hangs, compare the last line that each worker printed: which collective did one of them never call? While you search, pass `communication_options=tf.distribute.experimental.CommunicationOptions(timeout_seconds=60)` to the strategy. It turns the hang into a `DeadlineExceededError`. On GPUs, set `NCCL_DEBUG=INFO` as well: NCCL then reports how far its connections got. (A worker that has *died* looks different: the others raise an error after some seconds. [Lesson 08](08-tf-config.ipynb) has a table of symptoms.)
#
# The fix is the code of the previous section: everyone saves, and the chief's copy is kept. It's not only about saving. Anything that reads such a variable on one worker alone is the same mistake, for example `if chief: print(metric.result())`.
#
# ## The same through utils
#
# `train` of `utils`, called in every worker, does all of this: it shards the data, patches `fit`, saves with all workers, keeps the chief's checkpoint, and returns the same report everywhere. It gets its strategy from `make_strategy`, which adds one thing. TensorFlow's strategy uses all GPUs of a worker, but only one CPU device. Ours uses all logical devices, here two, so that two workers have four replicas.
#
# The function below trains three times in each worker: with a custom loop, with `fit`, and with sharding OFF, which should end with other weights. Every `train` in a process gets the same strategy object, and that matters. A second `MultiWorkerMirroredStrategy` sets up this worker's collectives again, while another worker may already be waiting in them. We tried it three times, and each time the run hung without an error.


# %%
from utils.strategies import make_strategy
from utils.training import train
from utils.training.input_feed import ReadLog

JOB = {"model": "mlp", "max_examples": 512, "epochs": 1, "optimizer": "sgd", "dtype": "float64"}


def train_with_utils(jobs):
    """Train with each loop and policy; return replicas, weights and examples read."""
    reports = {}
    for name, settings in jobs.items():
        log = ReadLog()
        done = train(strategy="multi-worker", read_log=log, **JOB, **settings)
        reports[name] = done.weights, log.steps
    strategy = make_strategy("multi-worker")
    assert strategy is make_strategy("multi-worker")
    return strategy.num_replicas_in_sync, reports


# %%
jobs = {"custom": {"loop": "custom"}, "fit": {"loop": "fit"}, "OFF": {"auto_shard": "off"}}
trained = cluster.run(train_with_utils, jobs, timeout=90, echo=False)
for name in jobs:
    steps, weights = len(trained[0][1][name][1]), [reports[name][0] for _, reports in trained]
    same = all(np.allclose(a, b, rtol=0, atol=1e-9) for a, b in zip(weights[0], one_process))
    print(f"{name:<8}{trained[0][0]} replicas, {steps:>2} steps, one process's weights: {same}")
    assert same == (name != "OFF")

# %% [markdown]
# In a shell, `distlab train --strategy multi-worker --workers 2 --replicas-per-worker 2` trains in the same way and prints a report. On real machines, leave `--workers` out and start the command on each, with its own TF_CONFIG. They need the same code and data, open ports between them and a folder that all can see.
#
# ## What it costs
#
# Every step now contains an all-reduce. How long does one take for the gradients of our small model, on this machine?


# %% tags=["nbval-ignore-output"]
from utils.measure import Stopwatch, array_bytes, format_bytes


def time_steps(steps):
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        weights = [tf.Variable(w) for w in build_mlp().get_weights()]

    def reduce_replica():
        return tf.distribute.get_replica_context().all_reduce("SUM", [w + 0 for w in weights])

    sum_all = tf.function(lambda: strategy.run(reduce_replica))
    sum_all()  # traces
    with Stopwatch() as watch:
        for _ in range(steps):
            sum_all()
    return watch.seconds / steps


seconds = cluster.run(time_steps, 50, timeout=60)[0]
gradient_bytes = array_bytes(build_mlp().trainable_variables)
print(f"{format_bytes(gradient_bytes)} of gradients, reduced in {1000 * seconds:.1f} ms a step")
assert gradient_bytes == 4 * 101_770
cluster.close()
folder.cleanup()  # the checkpoints and summaries of this lesson

# %% [markdown]
# With two workers, each sends about as many bytes per step as the model's weights have, however large the batch ([lesson 06](06-all-reduce.ipynb) counts them, for more workers too). Here both workers share this computer's cores, so expect no speed-up. On two machines, each computes half of the batch and pays for it with an all-reduce over a real network. Measure it there: here, the messages never leave the computer. The number to report is the *scaling efficiency*: images/s with N workers, divided by N times the images/s of one.
#
# ## Recap
#
# - Two processes and one process ended with the same weights, to 1e-9.
# - `fit` stopped at a `PerReplica`; with two places in Keras patched, it gave those weights too.
# - DATA kept the batches of one process, FILE left one worker without examples in the last step, OFF trained on everything twice.
# - All workers saved, and one process restored the chief's checkpoint.
# - The chief saved alone: 32.5 went into the checkpoint and to worker 1 as a loss, nothing raised an error, and in the end the run hung.
#
# ## Cheat sheet
#
# ```python
# import keras, tempfile, tensorflow as tf
# strategy = tf.distribute.MultiWorkerMirroredStrategy()  # TF_CONFIG is set; before any other op
# me, jobs = strategy.cluster_resolver, strategy.cluster_resolver.cluster_spec().jobs
# is_chief = not me.task_id and ("chief" not in jobs or me.task_type == "chief")
# options = tf.data.Options()  # DATA: a part of every global batch for each worker
# options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
# data = tf.data.Dataset.range(64).shuffle(64, seed=0).batch(8)  # seed: one order for all
# batches = strategy.experimental_distribute_dataset(data.with_options(options))
# with strategy.scope(): model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
# model.save("model.keras" if is_chief else f"{tempfile.mkdtemp()}/model.keras")  # every worker
# ```
#
# Does every example reach exactly one replica? With the examples' numbers as data, as on the cheat sheet, two lines count it. Run them in every worker:
#
#     count = lambda ids: strategy.reduce("SUM", strategy.run(tf.math.bincount, (ids,), {"minlength": 64}), None)
#     times = sum(count(ids) for ids in batches).numpy(); print("seen twice:", sum(times > 1), "seen never:", sum(times == 0))
#
# Your own `train.py` is in `runs/lesson09`. A longer one, with metrics and evaluation, and with both TF_CONFIGs at its top: [multi_worker_custom_loop.py](../examples/multi_worker_custom_loop.py). One with `fit`, using tf_keras: [multi_worker_fit.py](../examples/multi_worker_fit.py).
#
# ## On a real GPU
#
# `distlab train --strategy multi-worker --workers 2 --device gpu` divides this machine's GPUs between two workers.
# Look at its images/s, and compare with `--strategy mirrored`, one process for the same GPUs.
# On two machines, add `--rendezvous HOST:PORT` and type the same line on each: one worker runs on each, with all its GPUs.
#
# ## Further reading
#
# - TensorFlow's tutorials, [Multi-worker training with Keras](https://www.tensorflow.org/tutorials/distribute/multi_worker_with_keras) and [with a custom training loop](https://www.tensorflow.org/tutorials/distribute/multi_worker_with_ctl): neither runs unchanged on TensorFlow 2.21 and Keras 3
# - TensorFlow's guide, [Distributed input](https://www.tensorflow.org/tutorials/distribute/input), on sharding; API: [AutoShardPolicy](https://www.tensorflow.org/api_docs/python/tf/data/experimental/AutoShardPolicy), [MultiWorkerMirroredStrategy](https://www.tensorflow.org/api_docs/python/tf/distribute/MultiWorkerMirroredStrategy)
# - The failure of `fit`: [keras-team/keras issue 20585](https://github.com/keras-team/keras/issues/20585)
#
# ## The lab
#
# You practice this in [lab 08, multi-worker](../labs/lab08-multi-worker.ipynb).
