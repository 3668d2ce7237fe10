# %% [markdown] shows="One program started by hand, by distlab run, by Ray, Spark and Slurm, and killed under each"
# # Engines
#
# Your program trains on two machines, as long as you sit there and type a TF_CONFIG into each. Then someone asks for eight machines, overnight, with restarts. There are many answers (Ray, Spark, Slurm, Kubernetes, a cloud's job), each with a manual of a thousand pages. For `tf.distribute` they all do the same small thing. They start processes, and tell each one the addresses of all and which of them is its own, usually in TF_CONFIG. Here you run one program under three of them and in three simpler ways, kill a worker in five of the six, and see what you get for the trouble.
#
# **Time:** 90 minutes · **Prerequisites:** [TF_CONFIG](08-tf-config.ipynb), [many workers](09-multi-worker-mirrored.ipynb), [fault tolerance](10-fault-tolerance.ipynb) · **Hardware:** two CPU cores
#
# ## Objectives
#
# - Start one program on several workers by hand, with `distlab run`, and on an engine, without changing it.
# - Build the TF_CONFIG of each task from what an engine knows: addresses and an index.
# - Make a run resume from its checkpoint when a worker is killed.
# - Decide which part of a job needs an all-reduce, and which is many small jobs.
# - Compare the ways in start-up time, memory and restarts, and name what none of them does.

# %%
import json
import os
import re
import shutil
from pathlib import Path

import numpy as np

from utils.environment import quiet_tensorflow, set_seeds

with quiet_tensorflow():
    import keras
    import tensorflow as tf
from utils.devices import use_logical_devices

set_seeds(0)
print(use_logical_devices(1))

# %% [markdown]
# ## A worker dies, and then?
#
# Two workers train together, and one of them dies. Who notices, who starts what again, and how many steps are lost? Six ways to start workers answer differently. The picture counts steps, not seconds. **Lose as few steps as you can, and let nobody be woken up.** The seconds of your machine come [at the end](#What-it-costs), for the ways that you run here. (The picture has Kubernetes, which we don't run, and leaves out the rendezvous, which we do.)

# %%
from distlab.explorables.engine_death import death_explorer

death_explorer()

# %% [markdown]
# ## Who starts whom
#
# Read the picture from the bottom. It has five of the six ways that we try (the sixth, a rendezvous, is `distlab run` on several machines), and Kubernetes (we only write its files). The last line is the same in all columns: a Python process that reads TF_CONFIG. Everything above it is about getting that process onto a machine, and getting it there again when it dies.

# %%
from distlab import figures
from distlab.lessons.engine_pictures import draw_who_starts_whom

figures.show(draw_who_starts_whom())
home = Path("runs/lesson19")
shutil.rmtree(home, ignore_errors=True)  # no checkpoint of an earlier run
home.mkdir(parents=True)

# %% [markdown]
# Here is the program. It's the loop of [lesson 09](09-multi-worker-mirrored.ipynb) with the checkpoint of [lesson 10](10-fault-tolerance.ipynb), and it takes 120 steps. It doesn't know who starts it: it reads TF_CONFIG, and the folder for checkpoints from the variable `DISTLAB_CHECKPOINT_DIR`.

# %% tags=["nbval-ignore-output"]
# %%writefile runs/lesson19/train.py
import os
import numpy as np
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()  # TF_CONFIG is set already
me, workers = strategy.cluster_resolver.task_id or 0, strategy.num_replicas_in_sync
pixels = np.random.default_rng(0).normal(size=(512, 64)).astype("float32")  # your data
data = tf.data.Dataset.from_tensor_slices((pixels, pixels[:, :10].argmax(1))).repeat().batch(64)
options, step = tf.data.Options(), tf.Variable(0, dtype=tf.int64)
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
tf.keras.utils.set_random_seed(0)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input((64,)), tf.keras.layers.Dense(10)])  # your model
    optimizer = tf.keras.optimizers.SGD(0.2)
    optimizer.build(model.trainable_variables)
kept = os.environ.get("DISTLAB_CHECKPOINT_DIR", "kept")
saved = tf.train.Checkpoint(model=model, optimizer=optimizer, step=step)
manager = tf.train.CheckpointManager(saved, kept if me == 0 else f"{kept}-aside", max_to_keep=2)
saved.restore(tf.train.latest_checkpoint(kept))  # None at the first start
print(f"worker {me} of {workers} is process {os.getpid()}, from step {int(step)}", flush=True)

@tf.function
def train_step(pixels, labels):
    def replica_step(pixels, labels):
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model(pixels))
            loss = tf.nn.compute_average_loss(losses, global_batch_size=64)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss
    return strategy.reduce("SUM", strategy.run(replica_step, (pixels, labels)), axis=None)

rest = data.skip(int(step)).take(120 - int(step)).with_options(options)
for pixels, labels in strategy.experimental_distribute_dataset(rest):
    loss = float(train_step(pixels, labels))
    if int(step.assign_add(1)) % 20 == 0:
        manager.save(checkpoint_number=int(step))
        print(f"step {int(step)} loss {loss:.4f}" if me == 0 else "saved", flush=True)
strategy.reduce("SUM", strategy.run(lambda: tf.constant(1.0)), axis=None)  # wait for the others

# %% [markdown]
# ## Two processes by hand
#
# Two shells, two lines, and in each the same TF_CONFIG but for the index. `watch` starts both lines at once, as two people would, and notes when each line of output came. (Lines of a program start with the name of its task; we show every fortieth step.)

# %% tags=["nbval-ignore-output"]
from distlab.lessons.engine_runs import watch
from utils.tf_config import build_cluster, build_tf_configs, pick_free_ports

ports = pick_free_ports(2)
both = {"worker": [f"localhost:{port}" for port in ports]}
configs = [json.dumps({"cluster": both, "task": {"type": "worker", "index": i}}) for i in (0, 1)]
assert configs == list(build_tf_configs(build_cluster(2, hosts=["localhost"], ports=ports)).values())
lines, variables = ["python train.py"] * 2, [{"TF_CONFIG": text} for text in configs]
runs = {"by hand": watch("by hand", lines, variables, folder=home)}
runs["by hand"].show()
assert runs["by hand"].begun == [0] and len(runs["by hand"].lines) >= 2 * 7

# %% [markdown]
# That works, and it's worth doing once. But you chose the ports, you typed two TF_CONFIGs that differ in one digit, you watch two windows, and when one process dies you start both again.
#
# ## distlab run
#
# PyTorch has `torchrun` for this. TensorFlow has nothing like it, so the course brings its own: `distlab run` picks the ports, sets each task's TF_CONFIG, merges what they print, keeps a log for each, and with `--max-restarts` starts them all again when one has failed. The program stays unchanged.
#
# This time we kill worker 1, with SIGKILL, as soon as worker 0 reports step 40. The program saves every 20 steps.
#
# **Predict.** At which step does the second attempt begin?

# %%
from distlab.explorables import guess_number

my_guess = guess_number("The second attempt begins at step", 0, 120, step=10)
my_guess

# %% tags=["nbval-ignore-output"]
from distlab.exercises.predict import show_guess

options = "--workers 2 --max-restarts 1 --checkpoint-dir {} train.py"
way, line = "distlab run", "distlab run " + options.format("local")
runs[way] = watch(way, [line], folder=home, kill_after=40)
show_guess(my_guess, runs[way].begun[-1])
runs[way].show()
assert runs[way].begun[0] == 0 and runs[way].begun[-1] >= 40
assert np.isclose(runs[way].last_loss, runs["by hand"].last_loss, atol=1e-3)

# %% [markdown]
# If you said 0, you forgot the checkpoint; if 50, that only every twentieth step is saved. It's the checkpoint, usually of step 40 or 60: the kill needs a moment too. The last loss is the same as in the run by hand, so the kill changed nothing but the time. Note who did what: the launcher started both processes again, with new ports. Resuming at the right step was the *program's* doing. A program that saves nothing is restarted just as well, and begins at 0. The launcher can't know.
#
# ## Several machines: a rendezvous
#
# On several machines, all must know one address. You type the same line on each, with `--rendezvous` and the address of one machine. The launcher that owns the address hosts. The others join, get an index in the order of their arrival, and try each other's ports before anything starts. The host shows a code that the others need to know. (Here it's in a variable, for both.) Two loopback addresses stand for two machines:

# %% tags=["nbval-ignore-output"]
place = f"127.0.0.1:{pick_free_ports(1)[0]}"
line = f"distlab run --rendezvous {place} --advertise-address {{}} {options}"
way, code = "rendezvous", {"DISTLAB_CODE": "only-for-lesson-19"}
machines = [line.format("127.0.0.1", "a"), line.format("127.0.0.2", "b")]
print(*machines, sep="\n")
runs[way] = watch(way, machines, [code, code], folder=home, kill_after=40)
runs[way].show()
assert runs[way].begun[-1] >= 40
assert sorted(os.listdir(home / "a")) == sorted(os.listdir(home / "b"))  # a copy on each machine
assert np.isclose(runs[way].last_loss, runs["by hand"].last_loss, atol=1e-3)

# %% [markdown]
# Each "machine" was given its own folder for checkpoints, `a` and `b`, and both hold the newest: there is no shared disk, so the launchers copy it. On real machines leave `--advertise-address` out, and expect a warning: TensorFlow's own servers listen on every interface, without a password. Beyond loopback `distlab run` wants `--trust-network` or a yes.
#
# ## Ray, Spark, Slurm
#
# An *engine* is a service that already runs on all of your machines, and that you ask for processes:
#
# - **Ray**: Python actors and tasks. You ask for two actors with one CPU each, and Ray finds places for them.
# - **Spark**: jobs on tables, cut into tasks. A *barrier stage* starts all its tasks at once. If one fails, all of them are repeated, provided that a shuffle follows the stage; otherwise the job fails.
# - **Slurm**: the queue of most university clusters. You submit a script, and `srun` starts it on every node you were given.
#
# With `--engine` the launcher asks one of these instead of starting processes itself. For learning, it first starts a cluster of two nodes on this machine and takes it down afterwards; with `--engine-address` it joins yours. If an engine isn't installed here, the cell says so and shows a stored run with its date. The line and the program stay the same, and so does the kill.



# %% tags=["nbval-ignore-output"]
from distlab.lessons.engine_runs import watch_engine

def kill_on(engine):
    """Run the program on an engine, kill worker 1 after step 40, and show what was printed."""
    line = f"distlab run --engine {engine} {options.format(engine)}"
    run = watch_engine(engine, line, folder=home, kill_after=40)
    print(f"$ {line}")
    run.show()
    assert run.begun[-1] >= 40
    assert np.isclose(run.last_loss, runs["by hand"].last_loss, atol=1e-3)
    return run


runs["Ray"] = kill_on("ray")

# %% tags=["nbval-ignore-output"]
runs["Spark"] = kill_on("spark")
assert not runs["Spark"].status

# %% tags=["nbval-ignore-output"]
runs["Slurm"] = kill_on("slurm")
assert not runs["Slurm"].status

# %% [markdown]
# Six ways, one loss. Under the launcher, each engine noticed the death in its own way: Ray starts the actor again (`max_restarts=-1` says so), Spark repeats the whole stage (a shuffle follows it), and on Slurm our script requeues the job. How little a launcher asks of an engine shows best in the engine's own code. Here is Ray's, a program that you can keep:

# %% tags=["nbval-ignore-output"]
# %%writefile runs/lesson19/with_ray.py
import json
import os
import socket
import subprocess
import sys

import ray


@ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=-1)  # num_gpus=1: and a GPU each
class Worker:
    def find_address(self):
        with socket.create_server(("", 0)) as server:
            return f"{ray.util.get_node_ip_address()}:{server.getsockname()[1]}"

    def train(self, program, tf_config):
        variables = {**os.environ, "TF_CONFIG": tf_config}
        return subprocess.run([sys.executable, program], env=variables, check=True).returncode


program = os.path.abspath(sys.argv[1])  # under the same path on every machine
ray.init()  # RAY_ADDRESS names a cluster that is there
workers = [Worker.remote() for _ in range(2)]
cluster = {"worker": ray.get([worker.find_address.remote() for worker in workers])}
tasks = [{"type": "worker", "index": index} for index in range(2)]
configs = [json.dumps({"cluster": cluster, "task": task}) for task in tasks]
print(ray.get([w.train.remote(program, config) for w, config in zip(workers, configs)]))

# %% [markdown]
# We don't start Ray a second time for this one; the course's tests run it. `python with_ray.py train.py` runs it. What it lacks shows why people want a launcher: if one worker dies, its twin waits for it or fails, and nobody starts *both* again with new ports.
#
# ### The doors you'll see first
#
# Search for "TensorFlow on Ray" or "on Slurm", and you'll find other ways in. Each is right for someone:
#
# - **Ray Train**: `ray.train.tensorflow.TensorflowTrainer` sets TF_CONFIG, and with `FailureConfig(max_failures=…)` (the default is 0) restarts the whole group from a checkpoint after a failure. With a Keras 3 custom loop it worked here. A small run on two workers took 51 s on a quiet machine, and after a SIGKILL the group was back in 15 s. Your program becomes a function that Ray calls, and it has to report its checkpoints to Ray. If you're on Ray anyway, use it.
# - **Spark**: since 3.4 there is `pyspark.ml.torch.distributor.TorchDistributor`. It's Spark's official answer, and it's for PyTorch.
# - **Cluster resolvers** of TensorFlow ask the scheduler instead of reading TF_CONFIG: `strategy = MultiWorkerMirroredStrategy(SlurmClusterResolver())`. Slurm's is built around GPUs. On CPU nodes we had to pretend that there was one (`gpus_per_node=1, gpus_per_task=1, auto_set_gpu=False`), and it sorts host names as strings, so n10 comes before n2. Then worker 1's address may be the machine on which another task runs, and the start hangs. `KubernetesClusterResolver` lists pods through the API server. It can't tell which of them it runs in, so you set its `task_type` and `task_id` yourself.
#
# The course uses TF_CONFIG because it's the same on every engine, your program doesn't change, and you can print it.
#
# ## Tasks, stages and shuffle; batches, steps and all-reduce
#
# Ray and Slurm just start processes. Spark has its own model of computing, which wasn't made for training. Let's count something in both: how many of the 10,000 training images show each kind of clothing? In Spark, the data is cut into *partitions*; a *task* handles one; tasks that need nothing from each other form a *stage*; and where equal keys must come together, a *shuffle* writes all intermediate results to disk and redistributes them.

# %% tags=["nbval-ignore-output"]
# %%writefile runs/lesson19/count_labels.py
import json
from operator import add

import numpy as np
from pyspark import SparkConf, SparkContext

here = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false"}
spark = SparkContext("local[2]", conf=SparkConf().setAll(here.items()))
labels = spark.parallelize(np.load("labels.npy").tolist(), 4)  # four partitions
pairs = labels.map(lambda label: (label, 1))  # within a partition: no data moves
counts = pairs.reduceByKey(add, 2).collect()  # equal labels must meet: a shuffle
print(json.dumps(sorted(counts)))
store, tracker = spark._jsc.sc().statusStore(), spark.statusTracker()
for stage in sorted(tracker.getJobInfo(0).stageIds):
    moved = store.lastStageAttempt(stage).shuffleWriteBytes()
    print(f"stage {stage}: {tracker.getStageInfo(stage).numTasks} tasks, {moved} bytes to the shuffle")

# %% [markdown]
# Four tasks count, and the counts of equal labels are added up in two tasks. So there are two stages, with a shuffle in between.

# %% tags=["nbval-ignore-output"]
from distlab.lessons.engine_runs import run_with_engine
from utils.data import load

labels = load("fashion_mnist").train.labels
np.save(home / "labels.npy", labels)
counted, *stages = run_with_engine("spark", home / "count_labels.py")
print(*stages, sep="\n")
by_spark = [count for _, count in json.loads(counted)]
assert len(stages) == 2 and by_spark == np.bincount(labels).tolist()

# %% [markdown]
# The same count the way a training step does it: every worker handles its part of the batch, and an all-reduce adds up the results. No disk, no keys, no second set of tasks. And each worker has the sum, so each can continue.


# %%
from utils.cluster import LocalCluster

def count_by_all_reduce(labels):
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    index, workers = strategy.cluster_resolver.task_id, strategy.num_replicas_in_sync
    mine = tf.math.bincount(labels[index::workers], minlength=10)  # int32 [10]
    return strategy.reduce("SUM", strategy.run(lambda: mine), axis=None).numpy().tolist()


cluster = LocalCluster(workers=4)
by_workers = cluster.run(count_by_all_reduce, labels.astype("int32"), timeout=120, echo=False)
print(by_workers[3])
assert by_workers == [by_spark] * 4

# %% [markdown]
# | what | Spark | synchronous training |
# |---|---|---|
# | unit of work | a task: one partition, once | a step: one batch, thousands of times |
# | who talks to whom | stage to stage, through files | all to all, in memory, every step |
# | lost worker | its tasks run again elsewhere, the rest continues | all stop and go back to the checkpoint |
# | slow worker | a second copy of its task can be started (`spark.speculation`) | all wait |
# | how many start | as many as there is room for, the rest later | all at once or not at all |
#
# The last two lines are why training on Spark needs barrier stages, and why preparing data on Spark doesn't. **MLlib**, Spark's own library, trains by such jobs, one round of tasks an iteration: fine for regressions and trees. Its only neural network is `MultilayerPerceptronClassifier`, a stack of dense layers. Connectors such as `spark-tensorflow-distributor` and TensorFlowOnSpark do what we did: a barrier stage, and TF_CONFIG from the addresses. The first (1.0.0) still ran here, but Databricks calls it deprecated and recommends Ray. The second had its last release, 2.2.5, in April 2022. The TFRecord connector writes a table as the files that [lesson 12](12-input-pipelines.ipynb) reads. None of them makes a training step faster.
#
# **Horovod** deserves a paragraph, as old code is full of it. It brought ring all-reduce and MPI's launcher to TensorFlow 1 in 2017, when distributing meant parameter servers: `hvd.init()`, `hvd.DistributedOptimizer`, and later `horovodrun -np 4 python train.py`. Its last release, 0.28.1, is from 2023, and it doesn't build unmodified against TensorFlow 2.21. What it did, strategies do now. Read it in old projects, and don't begin a new one with it.
#
# ## Many small jobs: a search
#
# Not everything needs all workers in step. Take four trials of a search for a learning rate. We can give each trial to one worker, which never talks to the others. Or all four workers can do one trial after the other, together. Both do the same arithmetic, and each trial sees the same batches.


# %%
from utils.models import build_mlp

RATES = (0.003, 0.01, 0.03, 0.1)


def iterate(strategy, batch):
    """Return batches of 1,024 images without end, the same in every trial."""
    split = load("fashion_mnist").train
    images = (split.images[:1024, ..., None] / 255.0).astype("float32")
    data = tf.data.Dataset.from_tensor_slices((images, split.labels[:1024]))
    data = data.batch(batch, drop_remainder=True).repeat()
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return iter(strategy.experimental_distribute_dataset(data.with_options(options)))


# %%
def make_trial(strategy, batch=128):
    """Return a function that trains once through 1,024 images, and returns the last loss."""
    with strategy.scope():
        model, sgd = build_mlp(seed=0), keras.optimizers.SGD(0.1)
        sgd.build(model.trainable_variables)
    batches, start = iterate(strategy, batch), model.get_weights()

    def replica_step(images, labels):
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model(images))
            loss = tf.nn.compute_average_loss(losses, global_batch_size=batch)
        gradients = tape.gradient(loss, model.trainable_variables)
        sgd.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    step = tf.function(lambda *b: strategy.reduce("SUM", strategy.run(replica_step, b), axis=None))

    def run_trial(rate):
        model.set_weights(start)
        sgd.learning_rate = rate
        for _ in range(1024 // batch):
            loss = step(*next(batches))
        return float(loss)

    run_trial(RATES[0])  # traces the step: not a part of the search
    return run_trial


# %% [markdown]
# **Your turn.** A trial takes `seconds` on one worker. How long does a search take, if each trial is done by one worker?

# %%
def seconds_apart(trials, workers, seconds):
    return ...


# %% tags=["nbval-ignore-output"]
from distlab.turns import lesson19 as turns
from utils.measure import Stopwatch

def search_apart():
    index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    run_trial = make_trial(tf.distribute.get_strategy())  # alone: no collective anywhere
    with Stopwatch() as watch:
        return [run_trial(RATES[index])], watch


def search_together():
    run_trial = make_trial(tf.distribute.MultiWorkerMirroredStrategy())
    with Stopwatch() as watch:
        return [run_trial(rate) for rate in RATES], watch


apart = cluster.run(search_apart, timeout=120, echo=False)
together = cluster.run(search_together, timeout=120, echo=False)
losses = [losses[0] for losses, _ in apart]
took = [max(watch.seconds for _, watch in one) for one in (apart, together)]
seconds_apart = turns.APART.take(seconds_apart)
print("five trials of 10 s, four workers, apart:", seconds_apart(5, 4, 10), "s")
print(f"our four trials: apart {took[0]:.2f} s, together {took[1]:.2f} s")
print({rate: round(loss, 3) for rate, loss in zip(RATES, losses)})
assert np.allclose(together[0][0], losses, atol=0.02)

# %% [markdown]
# The same losses, so the same winner, and the workers that never talk need less time. They save an all-reduce in every step, which with a network this small is most of the step. That's why searches are what engines are best at: Ray Tune, a Slurm *job array*, Spark tasks or Katib on Kubernetes all start independent trials, and stop the hopeless ones early. Distribute a trial only if one doesn't fit on a device, or takes too long alone.
#
# ## Predictions for a lot of data
#
# The same holds for a trained model. To label a million images, no worker needs another one's gradients. Each worker loads the SavedModel, takes its part and writes its answers. If a worker dies, only its part is done again.
#
# **Your turn.** Give worker `index` every `workers`-th image, so that each image is in one part.

# %%
def part_of(images, index, workers):
    return ...


# %%
part_of = turns.PART.take(part_of)


def predict_part(folder):
    task = json.loads(os.environ["TF_CONFIG"])
    index, workers = task["task"]["index"], len(task["cluster"]["worker"])
    images = part_of(load("fashion_mnist").test.images[..., None] / np.float32(255), index, workers)
    saved = tf.saved_model.load(folder)
    return saved.serve(images).numpy().argmax(axis=1)


model = build_mlp(seed=0)
model.export(str(home / "exported"), verbose=False)
images = load("fashion_mnist").test.images[..., None] / np.float32(255)
parts = cluster.run(predict_part, str(home / "exported"), timeout=120, echo=False)
cluster.close()
print([len(part) for part in parts])
alone = model.predict(images, verbose=0).argmax(axis=1)
same = [np.array_equal(part, part_of(alone, index, 4)) for index, part in enumerate(parts)]
print("the answers of one process alone:", same)

# %% [markdown]
# On Spark this function is what `mapPartitions` takes, on Ray a plain `@ray.remote` task, and on Slurm one task of an array. TF_CONFIG served only to number the parts.
#
# ## Kubernetes and the clouds
#
# A Kubernetes cluster doesn't fit into a lesson. What you hand it does: a *manifest*. `distlab manifest kubernetes` writes a Job with `completionMode: Indexed`, so that each pod has an index, and a headless Service, so that each has a name. A container's files are gone after a restart, so checkpoints go to a volume, here the claim `shared`. It fills in commented templates, which you can read and edit in [examples/deploy](../examples/deploy/). These manifests were checked against published schemas. **They were not run**: this course has no Kubernetes cluster and no cloud account.

# %%
from utils.engines.manifests import ManifestSettings, describe_check, make_manifest

settings = ManifestSettings(("train.py",), workers=2, name="lesson19", checkpoint_dir="pvc:shared")
files = make_manifest("kubernetes", settings)
keys = r"kind|Mode|completions|clusterIP|publishNotReady|subdomain|args|DIST|value|claim|mountPath: /ch"
print(*(line for line in files["job.yaml"].splitlines() if re.search(keys, line)), sep="\n")
print(describe_check("kubernetes"))

# %% [markdown]
# Nothing in it says TF_CONFIG. A pod has the list of all host names, the same in each, and its own index, which Kubernetes puts into the variable `JOB_COMPLETION_INDEX`. The container begins with a small program, `start.py`, which makes TF_CONFIG from these two and then becomes your program. That part needs no cluster, so let's be pod 1:

# %%
from distlab.lessons.typed_cluster import run_tasks

(home / "start.py").write_text(files["start.py"])
(home / "show.py").write_text("import os; print(os.environ['TF_CONFIG'])")
(home / "pod.py").write_text(
    "import os, sys\n"
    "os.environ['JOB_COMPLETION_INDEX'] = '1'\n"
    "os.environ['DISTLAB_HOSTS'] = 'lesson19-0.lesson19:2222,lesson19-1.lesson19:2222'\n"
    "os.execv(sys.executable, [sys.executable, 'start.py', 'show.py'])"
)
(pod,) = run_tasks(home / "pod.py", ["{}"])[0]
print(pod)
assert json.loads(pod)["task"] == {"type": "worker", "index": 1}

# %% [markdown]
# Managed clouds want the same in other words (`distlab manifest vertex`, `sagemaker`, `azureml`), and so does Kubeflow, which adds its own kind of job to Kubernetes:
#
# | service | the job it wants | TF_CONFIG |
# |---|---|---|
# | Vertex AI | CustomJob with worker pools: pool 0 has one machine, the chief | set for you, with `chief` and `worker` |
# | SageMaker | training job with InstanceCount | in your own container you make it from `resourceconfig.json`, as `start.py` does; AWS's TensorFlow containers can set it |
# | Azure ML | command job with `distribution: tensorflow` | set for you |
# | Kubeflow | TFJob, of the Training Operator v1 | set for you; its successor, Trainer v2, has no TensorFlow runtime |
#
# ## The mistake: more workers than places
#
# Spark runs as many tasks as there is room for, and starts the rest when those are done. For counting that's perfect. A worker of `tf.distribute` waits for all others *before* it does anything. Here are three such workers and two slots, first as a plain stage, and then as a barrier stage. (Ours give up after three seconds. TensorFlow's would still be waiting.)

# %% tags=["nbval-ignore-output"]
# %%writefile runs/lesson19/too_few_slots.py
import json
import re
import threading
import time
from pathlib import Path

from pyspark import BarrierTaskContext, SparkConf, SparkContext

check = "spark.scheduler.barrier.maxConcurrentTasksCheck"
conf = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false", f"{check}.interval": "1s", f"{check}.maxFailures": "1"}
spark = SparkContext("local[2]", conf=SparkConf().setAll(conf.items()))
spark.setLogLevel("OFF")


def wait_for_all(numbers):
    """What a worker does first: wait until all three are here, or the first one's patience ends."""
    Path(f"here-{list(numbers)[0]}").touch()
    end = min(path.stat().st_mtime for path in Path().glob("here-*")) + 3
    while (seen := len(list(Path().glob("here-*")))) < 3 and time.time() < end - 0.1:
        threading.Event().wait(0.05)
    threading.Event().wait(max(0, end - time.time()) if seen < 3 else 0)
    yield seen


def make_tf_config(numbers):  # in a barrier stage each task learns the addresses of all
    place = BarrierTaskContext.get()
    addresses = place.allGather(f"127.0.0.1:{2222 + place.partitionId()}")
    task = {"type": "worker", "index": place.partitionId()}
    yield json.dumps({"cluster": {"worker": addresses}, "task": task})


three, two = spark.parallelize(range(3), 3), spark.parallelize(range(2), 2)
print(three.mapPartitions(wait_for_all).collect())
try:
    three.barrier().mapPartitions(wait_for_all).collect()
except Exception as error:
    print(re.search(r"\[SPARK-\d+\].*|$", str(error))[0])
print(*two.barrier().mapPartitions(make_tf_config).collect(), sep="\n")

# %% tags=["nbval-ignore-output"]
seen, refused, *configs = run_with_engine("spark", home / "too_few_slots.py")
print("workers that each one saw:", seen)
print(refused)
print(*configs, sep="\n")
assert seen == "[2, 2, 3]" and "barrier" in refused
assert configs == list(build_tf_configs(build_cluster(2, ports=[2222, 2223])).values())

# %% [markdown]
# In the plain stage, the first two workers waited, and the third came only when they had given up. With TensorFlow that is a run that hangs without a word. The barrier stage refuses, and says why. (The cell lets Spark check once. By default Spark checks 40 times, every 15 seconds, so expect ten minutes of silence first.) The fix is *gang scheduling*: all at once or not at all. Barrier stages do this, and so do Slurm jobs (`--ntasks=3`) and Ray's *placement groups*. A Kubernetes Job doesn't: each pod starts when there is room, so a big job may hold half of a full cluster, waiting for the other half. (Volcano and Kueue add it.) The last two lines are the fixed version, with as many tasks as slots, and they show where TF_CONFIG comes from on Spark: `allGather`.
#
# ## What it costs
#
# All six ways trained the same 120 steps. Here is what each added. First come the seconds from the typed line to the first report (step 20), then those from the kill to the next report. Last comes the memory of all processes other than the two workers, at the moment of the kill.

# %% tags=["nbval-ignore-output"]
from distlab.lessons.engine_pictures import draw_starts
from utils.measure import format_bytes

print(f"{'':<12}{'first report':>14}{'after the kill':>16}{'memory':>12}")
for way, run in runs.items():
    again = f"{run.again_seconds:.1f} s" if run.again_seconds else "by you"
    memory = format_bytes(run.own_bytes) if run.killed_at else "nothing"
    print(f"{way:<12}{run.first_at:>12.1f} s{again:>16}{memory:>12}")
figures.show(draw_starts(runs))
killed = [run for run in runs.values() if run.killed_at]
assert len(killed) == 5 and all(run.again_seconds > 0 and run.own_bytes > 0 for run in killed)

# %% [markdown]
# Green is training. Much of "starting" is the same in every lane: two processes import TensorFlow. What an engine adds on this machine is mostly the cluster, started just for this. On a cluster that already runs you'd pay only for the processes.
#
# And this is what the seconds buy:
#
# | what you get | by hand | `distlab run` | Ray | Spark | Slurm | Kubernetes |
# |---|---|---|---|---|---|---|
# | finds a machine with room | you | no | yes | yes | yes | yes |
# | can start it again after a crash | you | yes | yes | yes | yes | yes |
# | on another machine | you | who has joined | yes | yes | yes | yes |
# | queue, quotas, many users | no | no | little | little | yes | yes |
# | brings your program and its packages | you | no | can | can | no | the image |
# | saves and resumes | your program | your program | your program | your program | your program | your program |
#
# The last line is the one to remember. Here is a run at its worst, started by hand, by a program that saves nothing. **Fix one half by choosing who starts it, and the other half in the program.** Which of the two can no engine do for you?

# %%
death_explorer("by hand", dies=110, saves="never")

# %% [markdown]
# Whatever you choose on the left, all 110 steps are trained again until the program saves. And no engine makes a step faster: inside a step there's only TensorFlow.
#
# **Which one?** The one that your machines already run. If they run nothing, `distlab run` with a rendezvous is enough for a handful of them.
#
# ## On a real GPU
#
#     distlab train --strategy multi-worker --workers 2 --device gpu --epochs 1
#
# Workers on one machine divide its GPUs. Look at the devices in the report: the two workers must name different GPUs, and each one only once.
#
# ## Recap
#
# - One program, started in six ways, ended with one loss, though a worker was killed in five of them.
# - The launcher or the engine restarts the processes; the program's checkpoint lets them resume. Each way added its own seconds and memory, and none makes a step faster.
# - TF_CONFIG is made of addresses and an index, and every engine has these somewhere.
# - A search and predictions need no all-reduce, and are faster without.
# - Training needs all its workers at once. Spark's plain stages don't promise that; its barrier stages do.
#
# ## Cheat sheet
#
# ```python
# # in your program: nothing but this, and a folder for checkpoints
# strategy = tf.distribute.MultiWorkerMirroredStrategy()
# folder = os.environ.get("DISTLAB_CHECKPOINT_DIR", "kept")
# # distlab run --workers 2 --max-restarts 3 --checkpoint-dir kept train.py
# # distlab run --rendezvous 10.0.0.5:2950 --workers 2 train.py     the same line on each machine
# # distlab run --engine slurm --engine-address gpu --workers 4 train.py   (or ray, spark)
# # distlab manifest kubernetes --workers 4 --checkpoint-dir pvc:shared --output job train.py
# # without us, in each task of an engine: addresses of all, and which is mine
# os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": i}})
# ```
#
# Any program of [examples/](../examples/) runs this way; [checkpoint_and_resume.py](../examples/checkpoint_and_resume.py) survives a kill.
#
# ## Further reading
#
# - Zaharia and others, [Resilient Distributed Datasets](https://www.usenix.org/conference/nsdi12/technical-sessions/presentation/zaharia), 2012: Spark's tasks and stages; the design of [barrier stages](https://issues.apache.org/jira/browse/SPARK-24374); [TorchDistributor](https://spark.apache.org/docs/latest/api/python/reference/api/pyspark.ml.torch.distributor.TorchDistributor.html)
# - Moritz and others, [Ray](https://arxiv.org/abs/1712.05889), 2018; Ray's guide [Fault tolerance of actors](https://docs.ray.io/en/latest/ray-core/fault_tolerance/actors.html) and its page on [TensorFlow and Keras](https://docs.ray.io/en/latest/train/distributed-tensorflow-keras.html)
# - Yoo, Jette and Grondona, [SLURM](https://doi.org/10.1007/10968987_3), 2003; the manual of [srun](https://slurm.schedmd.com/srun.html)
# - Kubernetes, [Indexed Job for parallel processing](https://kubernetes.io/docs/tasks/job/indexed-parallel-processing-static/)
# - TensorFlow, [tf.distribute.cluster_resolver](https://www.tensorflow.org/api_docs/python/tf/distribute/cluster_resolver): the resolvers for Slurm, Kubernetes and others
# - Sergeev and Del Balso, [Horovod](https://arxiv.org/abs/1802.05799), 2018
#
# ## The lab
#
# Three labs practice what an engine leaves to you: TF_CONFIG from addresses and an index in [lab 07, cluster doctor](../labs/lab07-cluster-doctor.ipynb), the function that every worker runs in [lab 08, training on several workers](../labs/lab08-multi-worker.ipynb), and a killed run that ends with the same weights in [lab 09, fault tolerance](../labs/lab09-fault-tolerance.ipynb).
