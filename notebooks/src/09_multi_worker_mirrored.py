# %% [markdown] shows="MultiWorkerMirroredStrategy: real worker processes from a cell; who reads what; the chief's duties"
# # Many workers, one model
#
# One machine is full, so you rent a second, and now your program runs twice. What goes wrong then often goes wrong quietly: both read the same examples, or add numbers that never belonged together. In an hour you will have trained one model in two processes, with your own loop and with `fit`, and proved that the weights are one process's to the ninth digit.
#
# **Time:** 60 minutes · **Builds on:** [the training loop by hand](04-custom-training-loop.ipynb), [TF_CONFIG](08-tf-config.ipynb) · **Hardware:** two CPU cores
#
# ## Objectives
#
# - Train with MultiWorkerMirroredStrategy on real processes, and prove that the result is one process's.
# - Run Keras 3's `fit` across workers, and say what has to be fixed for it.
# - Choose among the auto-shard policies DATA, FILE and OFF from what each worker reads.
# - Write what the chief does alone: the checkpoint that is kept, the summaries, the export.
# - Tell which calls every worker must make, and diagnose a run in which one did not.

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

from distlab import figures
from distlab.exercises.predict import show_guess
from distlab.lessons.cluster_pictures import draw_two_workers
from distlab.lessons.typed_cluster import run_tasks
from utils.cluster import ClusterError, LocalCluster
from utils.data import load
from utils.data.batches import epoch_order
from utils.events import report
from utils.keras_multi_worker import patch_keras_fit
from utils.measure import Stopwatch, array_bytes, format_bytes
from utils.models import build_mlp
from utils.strategies import make_strategy
from utils.tf_config import build_cluster, build_tf_configs, parse_tf_config, pick_free_ports
from utils.training import train
from utils.training.input_feed import ReadLog

# %% [markdown]
# ## The same program, started twice
#
# There is no master process. Every worker runs the whole program, and the copies meet in collective operations: an all-reduce returns to no worker until all have called it. Worker 0 is the *chief*: it trains like the others, and also does what must happen only once.

# %%
figures.show(draw_two_workers())
Path("runs/lesson09").mkdir(parents=True, exist_ok=True)  # for a program that comes later

# %% [markdown]
# ## A cluster from a cell
#
# `LocalCluster` starts real processes on this machine, each with its own port and TF_CONFIG, and ends them with the notebook. The function below runs in both. What they print arrives here line by line, with the task's name in front.
#
# **Predict.** Each worker contributes the number of its examples: 100 for worker 0, 200 for worker 1. What does worker 1 get from the all-reduce with SUM?

# %%
my_guess = None  # a number


# %%
def add_up():
    strategy = tf.distribute.MultiWorkerMirroredStrategy()  # before any other operation
    index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    mine = tf.constant(100.0 * (index + 1))
    total = strategy.reduce("SUM", strategy.run(lambda: mine), axis=None)
    print(f"process {os.getpid()} had {mine:.0f} and got {total:.0f}")
    return os.getpid(), float(total)


# %% tags=["nbval-ignore-output"]
cluster = LocalCluster(workers=2, replicas_per_worker=2)
results = cluster.run(add_up, timeout=60)  # in the order of the workers
show_guess(my_guess, results[1][1])
assert len({process for process, _ in results} | {os.getpid()}) == 3
assert [total for _, total in results] == [300.0, 300.0]

# %% [markdown]
# Three processes: the notebook and two workers. Both workers printed the same sum: an all-reduce gives the result to everyone.
#
# ## Your own loop, on two workers
#
# This is the loop of [lesson 04](04-custom-training-loop.ipynb), written as a function that a worker runs. Three things are new: the strategy, the policy that splits the data among workers (more below), and that every worker runs all of it. Nothing in the loop asks which worker it is.


# %%
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


def work_by_hand():
    print("training")
    return train_by_hand(tf.distribute.MultiWorkerMirroredStrategy())


# %% [markdown]
# `cluster.run` waits for the results. `cluster.start` returns at once, and lets you watch: `job.events()` yields the records that the workers report, `job.logs` the lines that one of them printed. `job.kill`, `job.pause` and `job.restart` make trouble ([lesson 10](10-fault-tolerance.ipynb)).


# %% tags=["nbval-ignore-output"]
job = cluster.start(work_by_hand)
for event in job.events():  # as they arrive
    print(f"{event['task']} · step {event['step']} · loss {event['loss']:.4f}")
by_hand = job.wait(timeout=60)
assert len(list(job.events())) == 2 * 8 and job.logs("worker", 1) == ["training"]

# %% [markdown]
# Both report the same loss in each step, since it was reduced over both. Now the claim: these are the weights of one process that got the whole global batches.


# %%
def assert_same(weights, others):
    for mine, theirs in zip(weights, others, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-9)


one_process = train_by_hand(tf.distribute.get_strategy())
assert_same(by_hand[0] + by_hand[1], 2 * one_process)
print(len(by_hand), "workers have the weights of one process, to 1e-9")

# %% [markdown]
# ## A train.py to keep
#
# Functions sent from a notebook are for lessons. On machines of your own the program is a file, and here is one: the strategy, the policy, the loop, and a save by everyone of which only the chief's is kept. Take it and put your own data and model in.

# %% tags=["nbval-ignore-output"]
# %%writefile runs/lesson09/train.py
import tempfile

import keras
import numpy as np
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()  # TF_CONFIG is set; before any operation
me, jobs = strategy.cluster_resolver, strategy.cluster_resolver.cluster_spec().jobs
is_chief = not me.task_id and ("chief" not in jobs or me.task_type == "chief")
pixels, labels = np.random.default_rng(0).random((512, 784), "float32"), np.arange(512) % 10
batches = tf.data.Dataset.from_tensor_slices((pixels, labels)).batch(64)  # your data, global batch
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
batches = strategy.experimental_distribute_dataset(batches.with_options(options))
keras.utils.set_random_seed(0)
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
# On two machines you type `TF_CONFIG='…' python train.py` on each, with the texts of [lesson 08](08-tf-config.ipynb), the same file, data and shared folder, and open ports between them. Here two processes start at once. Then a third trains alone, without a cluster, for comparison.

# %%
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
# `fit` should need nothing but the strategy's scope. In the Keras of this course, 3.15.1, it does not get through its first step.


# %%
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
# Two places in Keras's trainer assume that one process sees all replicas. To learn the shapes, it averages the first batch over the replicas, and the workers' parts can't be averaged. And it reduces a metric along axis 0, which a scalar doesn't have. Here are both, replaced:


# %%
def patch_by_hand():
    """Run in each worker, before fit; for Keras 3.15.1."""
    from keras.src.backend.tensorflow import trainer

    def build(self, iterator=None, data_batch=None):  # shapes: of the first local replica's part
        strategy = self._distribute_strategy
        _, _, batches = next(iter(iterator))
        part = lambda value: strategy.experimental_local_results(value)[0]  # noqa: E731
        with strategy.scope():
            self._symbolic_build(data_batch=trainer.tree.map_structure(part, next(batches)))

    def reduce_per_replica(values, strategy, reduction):  # scalars: over replicas alone
        reduce = lambda value: strategy.reduce("MEAN", value, axis=None)  # noqa: E731
        return trainer.tree.map_structure(reduce, values)

    trainer.TensorFlowTrainer._maybe_symbolic_build = build
    trainer.reduce_per_replica = reduce_per_replica


for patch in (patch_by_hand, patch_keras_fit):
    fitted = cluster.run(fit, patch, timeout=60)
    for weights, _ in fitted:
        assert_same(weights, one_process)
    print(f"{patch.__name__}: fit on two workers has the weights of one process, to 1e-9")
print(*fitted[0][1], sep="\n")

# %% [markdown]
# `patch_keras_fit` of `utils` does the same with more care: it leaves other versions of Keras and other strategies alone, and returns what it did. Call it in every worker.
#
# The supported way needs no patch: the `fit` of `tf_keras`, the older Keras, works across workers (set `TF_USE_LEGACY_KERAS=1` before TensorFlow is imported).
#
# ## Who reads what: DATA, FILE, OFF
#
# Both workers run the same input pipeline. What keeps them from training on the same examples is the *auto-shard policy*, an option of the dataset. To see it, we number 24 examples, write them into four files of unequal length and take global batches of 8, which is 4 for each worker.
#
# **Predict.** Under DATA an epoch takes 24 / 8 = 3 steps. With OFF nothing is split between the workers. How many steps does an epoch take then?

# %%
my_guess = None  # steps

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


# %%
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
show_guess(my_guess, len(reads[0]["OFF"]), unit=" steps")

# %%
for policy in ("DATA", "FILE", "OFF"):
    views = {f"worker {i}": seen[policy] for i, seen in enumerate(reads)}
    steps = len(views["worker 0"])
    title = f"{policy}: {steps} steps; shades alternate from step to step"
    figures.show(figures.shares(views, 24, title=title))
sizes = [[len(step) for step in seen["FILE"]] for seen in reads]
print("FILE, examples in each step:", *sizes)
assert sizes == [[4, 4, 4, 2], [4, 4, 2, 0]]

# %% [markdown]
# - **DATA**: every worker runs the whole pipeline. TensorFlow cuts each global batch in two, and of these halves each worker keeps every second one. Together they train on exactly the batches of one process. The price: every worker reads and decodes everything.
# - **FILE**: worker 0 opens files 0 and 2, worker 1 files 1 and 3. Nothing is read twice, but the batches differ from one process's. The files are unequal, so in the end worker 1 has an empty batch while worker 0 still trains; a loss that divides by 8 is then wrong ([lesson 05](05-loss-scaling.ipynb)).
# - **OFF**: every worker reads everything, half a global batch a step: six steps, every example twice. Right only if your pipeline does the sharding itself (`distribute_datasets_from_function`, [lesson 13](13-distributed-input.ipynb)).
#
# The default, AUTO, tries FILE, and falls back to DATA where it finds no files to split.
#
# ## The chief's duties
#
# Some things must happen once: the checkpoint that is kept, the summaries for TensorBoard, the export. But *saving a checkpoint may be collective* (the mistake below shows why). So all workers save, and only the chief's folder counts; the others write into temporary ones. A resumed run reads the chief's folder, so every worker must be able to see it.


# %%
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
        total = float(seen.read_value())  # collective: everybody reads
        if summaries:
            with summaries.as_default(step=step):
                tf.summary.scalar("examples seen", total)
        manager.save()  # collective: everybody saves
    return sorted(os.listdir(f"{mine}/checkpoints")), mine == shared, total


# %%
kept = cluster.run(train_and_save, folder.name, timeout=60)
for number, (names, in_shared_folder, total) in enumerate(kept):
    where = "the shared folder" if in_shared_folder else "a folder of its own"
    print(f"worker {number}: {len(names)} files in {where}; {total:.0f} examples seen by all")
assert [in_shared_folder for _, in_shared_folder, _ in kept] == [True, False]

# %% [markdown]
# `seen` is a variable that each replica counts up by itself and that is *added up when it is read*: 32 on each worker in each step, 192 in all. Keras's metrics are made of such variables.
#
# The notebook, one process without a strategy, now restores what two workers saved, and finds the chief's summary:

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
# "Only the chief saves" sounds like common sense, and many programs do it. With variables that are kept equal everywhere it even works. But a variable that is added up when it is read turns the chief's save into an all-reduce, and the other worker isn't there.
#
# **Predict.** Each worker has counted 32 examples; the chief saves alone. Worker 1 goes on with three steps, each with an all-reduce of a loss of 0.5 on each worker. What does worker 1 get as the sum of the losses of its first step?

# %%
my_guess = None  # a number


# %%
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
# It's the worst kind of error, so read this slowly. The chief's *save* met worker 1's *losses*. Both are sums of one float, and TensorFlow matches collectives by their order. (The save reads the variable three times.) So 32 + 0.5 went into the checkpoint as a number of examples, and to worker 1 as a loss, step after step. Then the chief reached its own first loss and had no partner left. By default TensorFlow sets no time limit here; `job.wait(timeout=3)` is what gave up.
#
# When your own run hangs, compare the last line that each worker printed: which collective is one of them missing? While you search, `CommunicationOptions(timeout_seconds=60)`, the strategy's `communication_options`, turns the hang into a `DeadlineExceededError`.
#
# The fix is the code of the section before: everyone saves, the chief's is kept. The same holds for anything that reads such a variable: `if chief: print(metric.result())` is the same mistake.
#
# ## The same through utils
#
# `train`, called in every worker, does all of this: it shards the data, patches `fit`, saves with all workers, keeps the chief's checkpoint, and returns the same report everywhere. `make_strategy` adds one thing. TensorFlow takes all GPUs of a worker, but only one CPU device; ours takes all logical devices, here two, so that two workers have four replicas.
#
# The function below trains three times in one process. Each `train` asks for the strategy and gets the same object: one strategy per process. A second `MultiWorkerMirroredStrategy` would restart this worker's server for collectives, and a peer that is already waiting there would fail.


# %%
JOB = {"model": "mlp", "limit": 512, "epochs": 1, "optimizer": "sgd", "dtype": "float64"}


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
# From a shell, the same run with the same report: `distlab train --strategy multi-worker --workers 2 --replicas-per-worker 2`. On real machines, leave `--workers` out and start it on each, with its own TF_CONFIG, the same code and data, open ports between them and a folder that all can see.
#
# ## What it costs


# %% tags=["nbval-ignore-output"]
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
assert gradient_bytes == 4 * 101_770 and seconds > 0
cluster.close()
folder.cleanup()  # the checkpoints and summaries of this lesson

# %% [markdown]
# With two workers, each sends about as many bytes a step as the model has, whatever the batch ([lesson 06](06-all-reduce.ipynb) counts them, for more workers too). Here the workers share two cores, so expect no speed-up. On two machines each computes half the batch and pays with an all-reduce over a real network: measure it there, since loopback has no wire.
#
# ## What you saw
#
# - Two processes and one returned the same weights, to 1e-9.
# - `fit` stopped at a `PerReplica`; with two patches it gave those weights too.
# - DATA kept one process's batches, FILE left one worker without examples, OFF read everything twice.
# - All workers saved; one process restored the chief's checkpoint.
# - One save without its partner put 32.5 into a checkpoint, and nothing raised an error.
#
# ## Take-away card
#
# ```python
# import keras, tempfile, tensorflow as tf
# strategy = tf.distribute.MultiWorkerMirroredStrategy()  # TF_CONFIG is set; before any other op
# me, jobs = strategy.cluster_resolver, strategy.cluster_resolver.cluster_spec().jobs
# is_chief = not me.task_id and ("chief" not in jobs or me.task_type == "chief")
# options = tf.data.Options()  # DATA: each worker trains on its part of every global batch
# options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
# batches = tf.data.Dataset.range(64).batch(8).with_options(options)  # your data, global batches
# batches = strategy.experimental_distribute_dataset(batches)
# with strategy.scope(): model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
# model.save("model.keras" if is_chief else f"{tempfile.mkdtemp()}/model.keras")  # every worker
# ```
#
# Your own `train.py` lies in `runs/lesson09`. A longer one, with metrics and evaluation, and both TF_CONFIGs at its top: [multi_worker_custom_loop.py](../examples/multi_worker_custom_loop.py). With `fit`, through tf_keras: [multi_worker_fit.py](../examples/multi_worker_fit.py).
#
# ## Where it is described
#
# - TensorFlow's tutorials, [Multi-worker training with Keras](https://www.tensorflow.org/tutorials/distribute/multi_worker_with_keras) and [with a custom training loop](https://www.tensorflow.org/tutorials/distribute/multi_worker_with_ctl): neither runs unchanged on TensorFlow 2.21 and Keras 3
# - TensorFlow's guide, [Distributed input](https://www.tensorflow.org/tutorials/distribute/input), on sharding; API: [AutoShardPolicy](https://www.tensorflow.org/api_docs/python/tf/data/experimental/AutoShardPolicy), [MultiWorkerMirroredStrategy](https://www.tensorflow.org/api_docs/python/tf/distribute/MultiWorkerMirroredStrategy)
# - The failure of `fit`: [keras-team/keras issue 20585](https://github.com/keras-team/keras/issues/20585)
#
# ## The lab
#
# You practise this in [lab 08, multi-worker](../labs/lab08-multi-worker.ipynb).
