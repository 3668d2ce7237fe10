# %% [markdown] shows="What works with what, tried on the spot; sixteen independent trials; a decision with a plan's numbers"
# # Choosing a strategy
#
# You read that multi-worker training needs a custom loop, another page says `fit` just works, and a third recommends parameter servers for anything large. Each was right for some version and some job. At the end of this lesson you will have tried every combination here yourself, and you will have a way to choose that ends with numbers instead of opinions.
#
# **Time:** 90 minutes · **Prerequisites:** [parameter servers](11-parameter-server.ipynb), [planning](20-planning.ipynb) · **Hardware:** two CPU cores
#
# ## Objectives
#
# - Run five strategies with both loops on your own versions, and read the table of what works.
# - Compare the strategies on one job: time, memory, bytes on the network, and what a restart needs.
# - Test a rule of thumb in a simulator before you trust it.
# - Search a learning rate with independent jobs, and say when they beat one synchronous run.
# - Choose for a job by its size, devices and failures, and give the reasons.

# %%
import json
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import numpy as np

from utils.environment import quiet_tensorflow, set_seeds

with quiet_tensorflow():
    import keras
    import tensorflow as tf
from utils.devices import use_logical_devices

set_seeds(0)
devices = use_logical_devices(2)
print(devices)

# %% [markdown]
# ## The choice in five lines
#
# In code the strategies differ by one line each. That is the point of `tf.distribute`, and also the trap. The line is quick to change, but it decides where your variables live, who computes what, and what happens when a machine fails. Here are three of the five lines:

# %%
from utils.models import build_mlp

one = tf.distribute.OneDeviceStrategy(devices[0])
mirrored = tf.distribute.MirroredStrategy(
    devices, cross_device_ops=tf.distribute.ReductionToOneDevice()
)
central = tf.distribute.experimental.CentralStorageStrategy(devices)
for strategy in (one, mirrored, central):
    with strategy.scope():
        model = build_mlp()
    copies = len(strategy.experimental_local_results(model.weights[0].value))
    print(f"{type(strategy).__name__}: replicas {strategy.num_replicas_in_sync}, copies {copies}")
assert model.count_params() == 101_770

# %% [markdown]
# The other two, `MultiWorkerMirroredStrategy()` and `ParameterServerStrategy(resolver)`, need processes with a TF_CONFIG. Below, we start those too.
#
# ## What works, by running it
#
# Tables of what works are out of date with the next release. So you make your own: each row below trains two epochs on 256 images, in new processes, with the versions that you have. `fit` across workers runs with the two patches of lesson 09.
#
# **Predict.** Ten combinations: five strategies, two loops, Keras 3. How many of them train?

# %%
from distlab.explorables import guess_number

my_guess = guess_number("Combinations that train", 0, 10, "of 10")  # or write a number
my_guess


# %%
from distlab.lessons.what_works import try_all


def list_rows(strategies, loops=("custom", "fit"), dtype="float32"):
    return [(name, loop, dtype) for name in strategies for loop in loops]


tried = try_all(list_rows(["one-device", "mirrored", "central-storage"]))
for row in tried:
    print(f"{row.strategy:<17}{row.loop:<8}{row.dtype:<16}{'works' if row.works else 'fails'}")
assert all(row.works for row in tried)

# %%
from distlab.exercises.predict import show_guess

clusters = try_all(list_rows(["multi-worker", "parameter-server"]))
for row in clusters:
    print(f"{row.strategy:<17}{row.loop:<8}{row.dtype:<16}{'works' if row.works else 'fails'}")
tried += clusters
show_guess(my_guess, sum(row.works for row in tried))
assert [row.loop for row in tried if not row.works] == ["fit"]

# %% [markdown]
# Nine of ten. That's with the two patches; plain Keras 3 trains eight, because its `fit` fails across workers. If you said ten: a parameter server's steps have to be handed out by a coordinator, which `fit` doesn't have.
#
# And in another precision? `mixed_bfloat16` computes in 16 bits and keeps the variables in 32. ("Works" means that it trains. On a CPU its bias gradients can be far off: [lesson 18](18-precision-and-memory.ipynb).)

# %%
precise = try_all(list_rows(["mirrored", "parameter-server"], ["custom"], "mixed_bfloat16"))
for row in precise:
    print(f"{row.strategy:<17}{row.loop:<8}{row.dtype:<16}{'works' if row.works else 'fails'}")
assert all(row.works for row in precise)

# %% [markdown]
# One combination doesn't work: Keras 3's `fit` on parameter servers. Steps there have to go through a `ClusterCoordinator`, and `fit` doesn't use one. The course's `train` knows the combination and refuses it, so its row didn't get as far as Keras. Let's call Keras's own `fit` on two workers and a parameter server:


# %%
from utils.cluster import LocalCluster


def fit_on_servers():
    """Run in the chief of a cluster: return what Keras's own `fit` raises there."""
    import keras
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    with strategy.scope():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    data = tf.data.Dataset.from_tensors((tf.ones([16, 4]), tf.ones([16, 1])))
    try:
        model.fit(data, shuffle=False, verbose=0)
    except ValueError as error:
        return str(error).splitlines()[0]


with LocalCluster(workers=2, ps=1) as cluster:
    raised = cluster.run(fit_on_servers, echo=False, timeout=120)
print(textwrap.fill(raised, 96))
assert "create_per_worker_dataset" in raised

# %% [markdown]
# The message asks for a dataset that the coordinator makes, as in [lesson 11](11-parameter-server.ipynb). Keras 3's `fit` hands no steps to a coordinator, so following the advice means writing that lesson's loop.
#
# Keras 2 lives on as `tf_keras`, and there the results differ. Below is the table that the course's tests check, for the three strategies where something fails or is missing:

# %%
from utils.strategies import SUPPORT

words = {True: "works", False: "fails", None: ""}  # its note says what it needs
for row in SUPPORT:
    if row.strategy in ("multi-worker", "parameter-server", "tpu"):
        print(
            f"{row.strategy:<17}{row.loop:<7}{row.keras:<9}{words[row.works]:<7}{row.note}".rstrip()
        )

# %% [markdown]
# Here multi-worker `fit` "fails", and above it works: this table is about plain Keras 3, without the patches. One more question always comes up: does it matter who starts the processes? You by hand, `distlab run`, Ray, Spark, Slurm and Kubernetes all come down to the same: each process is started and finds its place in a TF_CONFIG, which the engine or a small launcher writes. So the table stays the same ([lesson 19](19-engines.ipynb) starts one program in the first five of these ways).
#
# ## The mistake: variables outside the scope
#
# The table says it works, and your program does train, just worse. A common reason is that something was created outside the strategy's scope. Start with the simplest case, a variable. What happens when both replicas add 1 to it?
#
# **Your turn.** A third variable counts *examples*: each of the two replicas adds its 16. Which aggregation gives 32?

# %%
aggregation = ...  # "SUM", "MEAN" or "ONLY_FIRST_REPLICA"

# %%
from distlab.turns import lesson21 as turns

aggregation = turns.AGGREGATION.take(aggregation)
outside = tf.Variable(0.0)
with mirrored.scope():
    inside = tf.Variable(0.0, aggregation=tf.VariableAggregation.MEAN)
    examples = tf.Variable(0.0, aggregation=tf.VariableAggregation[aggregation.strip().upper()])


@tf.function
def add_one():
    def replica_step():
        outside.assign_add(1.0)
        inside.assign_add(1.0)
        examples.assign_add(tf.constant(16.0))

    mirrored.run(replica_step)


add_one()
print("outside the scope:", outside.numpy(), " inside:", inside.numpy())
print("examples, by your aggregation:", examples.numpy())
assert (outside.numpy(), inside.numpy()) == (2.0, 1.0)

# %% [markdown]
# No error, no warning, and every step counts twice. There is only one copy, and each replica updates it. But that's a plain variable with `assign_add`. Whether a real program breaks, and how loudly, depends on *what* is outside. Here is a custom loop on two replicas with one thing outside at a time. It takes two steps of SGD with momentum.


# %%
def take_two_steps(outside):
    """Return the steps counted, the examples counted and a weight, with one thing outside."""

    def make(name, maker):
        if name == outside:
            return maker()
        with mirrored.scope():
            return maker()

    def make_optimizer():
        made = keras.optimizers.SGD(0.01, momentum=0.9)
        made.build(model.trainable_variables)
        return made

    ones = keras.layers.Dense(1, kernel_initializer="ones")
    model = make("weights", lambda: keras.Sequential([keras.Input((4,)), ones]))
    optimizer, mean = make("optimizer", make_optimizer), make("metric", keras.metrics.Mean)

    def replica_step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(tf.ones([8, 4])) ** 2) / 2  # half of the global batch
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        mean.update_state(tf.ones([8]))

    step = tf.function(lambda: mirrored.run(replica_step))
    for _ in range(2):
        step()
    steps, examples = (int(v.numpy()) for v in (optimizer.iterations, mean.count))
    return steps, examples, round(float(model.get_weights()[0][0, 0]), 4)


# %%
seen = {}
for outside in ("nothing", "metric", "optimizer", "weights"):
    try:
        seen[outside] = take_two_steps(outside)
        print("{:<10} outside: steps {}, examples {}, weight {}".format(outside, *seen[outside]))
    except (AssertionError, RuntimeError, ValueError) as error:
        print(f"{outside:<10} outside: {type(error).__name__}")
assert seen["nothing"] == seen["metric"] == (2, 32, seen["nothing"][2])
assert seen["optimizer"][0] == 4 and "weights" not in seen

# %% [markdown]
# Weights outside raise an error: you can't miss it. A metric outside changes nothing. The optimizer is the dangerous one. Nothing complains, its step counter runs twice as fast, and with momentum the weights differ.
#
# With `fit` it's `compile` that makes the optimizer. Outside the scope, SGD is silent and counts every step once for each replica. (Adam, RMSprop and momentum raise "Mixing different tf.distribute.Strategy objects".) Model and `compile` both outside is silent too, and then nothing is distributed at all. That one is easy to write: you make a strategy, and forget the `with`. The loss looks fine, because it's the loss of one device.
#
# **Your turn.** Make a model of one dense layer, 4 features to 1 output, compiled with `"sgd"` and `"mse"`, that really trains on all replicas.


# %%
def make(strategy):
    return ...  # a compiled model


# %%
make = turns.MAKE.take(make)


def make_outside(strategy):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


for name, maker in {"no scope": make_outside, "yours": make}.items():
    model = maker(mirrored)
    model.fit(tf.ones([64, 4]), tf.ones([64, 1]), batch_size=16, shuffle=False, verbose=0)
    where, steps = type(model.distribute_strategy).__name__, int(model.optimizer.iterations.numpy())
    print(f"{name:<9} {where}, {steps} steps counted of 4")
assert make_outside(mirrored).distribute_strategy is not mirrored

# %% [markdown]
# So print `model.distribute_strategy` once, and compare `optimizer.iterations` with the steps that you took. And create model, optimizer and metrics inside `with strategy.scope():`, call `compile` there too, whichever strategy you choose.
#
# ## Side by side on one job
#
# All rows above trained the same network on the same images in the same order. Did they learn the same?

# %% tags=["nbval-ignore-output"]
from distlab import figures

losses = {f"{row.strategy}, {row.loop}": row.loss for row in tried if row.works}
figures.show(figures.bars(losses, unit="", title="Loss after two epochs"))
synchronous = [loss for name, loss in losses.items() if not name.startswith("parameter")]
assert max(synchronous) - min(synchronous) < 0.01

# %% [markdown]
# The synchronous strategies agree: they all take the steps of one device, split over several. Parameter servers can end up elsewhere, because by the time a worker's gradient is applied, others have changed the parameters it was computed on.
#
# ## What it costs
#
# Memory and time of the same runs, with the custom loop:

# %% tags=["nbval-ignore-output"]
custom = {row.strategy: row for row in tried if row.loop == "custom"}
memory = {name: row.memory_bytes / 2**20 for name, row in custom.items()}
figures.show(
    figures.bars(memory, unit="MiB", title="Peak memory of a process, TensorFlow included")
)
seconds = {name: row.seconds for name, row in custom.items()}
figures.show(figures.bars(seconds, unit="s", title="From start to end, processes included"))

# %% [markdown]
# These are mostly the costs of *starting*. The bar of parameter servers is the coordinator's, which neither trains nor holds parameters. And on Linux the tasks start as copies of a process that has already imported TensorFlow, so the seconds don't contain the import. TensorFlow takes hundreds of MiB before the first weight. For a network of 400 KB they say "don't distribute". The bytes that a step sends tell you more, because they grow with the model.
#
# **Your turn.** In a round on parameter servers each worker fetches the whole model, which is divided evenly over the servers. How many times the model does one server send?


# %%
def through_server(workers, servers):
    return ...


# %%
from utils.measure import format_bytes
from utils.simulate.collective import Link, simulate_all_reduce

payload, workers = custom["one-device"].variables_bytes, 2
ring = simulate_all_reduce("ring", workers, payload, Link(0.0, 1e9)).bytes_per_rank
each = {
    "one-device": 0,
    "mirrored": 0,
    "central-storage": 0,
    "multi-worker": ring,
    "parameter-server": 2 * payload,
}
for name, sent in each.items():
    print(f"{name:<17}{format_bytes(workers * sent):>10} when each of two workers takes one step")
assert each["parameter-server"] == 2 * each["multi-worker"]
through_server = turns.SERVER.take(through_server)
print(f"one of 4 servers of 64 workers sends {through_server(64, 4):g} times the model in a round")

# %% [markdown]
# These are all the bytes on the network, each counted once. A ring of two workers sends half as much as the parameter servers do. There, each worker fetches all parameters for its step and sends all gradients back. (With more workers, each still moves twice the model per step on parameter servers. In a ring it sends nearly that much too. What limits parameter servers is the servers' own links. Your line says how much they send, and the workers' gradients bring the same number of bytes back to them.) Strategies that stay in one process send nothing over the network. All of them differ more in what a failure means:
#
# | strategy | a worker dies | what you need |
# |---|---|---|
# | one device, mirrored, central storage | the run ends | a checkpoint, and something that starts it again |
# | multi-worker | all workers stop | the same, for the group: `BackupAndRestore`, or lesson 10's loop |
# | parameter server | its step goes to another worker | nothing; for a *server* or the coordinator, a checkpoint |
#
# ## A rule of thumb, tested in the simulator
#
# "Many weak workers: asynchronous. Few strong ones: synchronous." Why would anyone say so? Cheap, shared machines vary in speed, and a synchronous round waits for the slowest. With many workers there is always a slow one. Asynchronous workers wait for nobody.
#
# **Predict.** Take 256 workers whose step times vary strongly (lognormal, sigma 1). Working asynchronously, how many times as many gradients per second do they apply as in synchronous rounds?

# %%
my_guess = guess_number("Asynchronous over synchronous", 1, 100, "x", log=True)
my_guess


# %%
from utils.simulate.parameter_server import (
    make_cluster,
    simulate_parameter_server,
    synchronous_rate,
)


def compare(workers, sigma, updates=20_000):
    cluster = make_cluster(workers, 1.0, "lognormal", sigma=sigma)
    free = simulate_parameter_server("asynchronous", cluster, updates)
    return free.updates_per_second / synchronous_rate(cluster, updates), free.mean_staleness


gain, stale = {}, {}
for workers, sigma in ((4, 0.1), (4, 1.0), (256, 0.1), (256, 1.0)):
    name = f"{workers} workers, sigma {sigma:g}"
    gain[name], stale[name] = compare(workers, sigma)
figures.show(
    figures.bars(gain, unit="x", title="Gradients a second, asynchronous over synchronous")
)
show_guess(my_guess, gain["256 workers, sigma 1"], unit="x", how="simulated")
assert gain["4 workers, sigma 0.1"] < 1.3 and gain["256 workers, sigma 1"] > 5

# %% [markdown]
# Why so much? A round takes as long as the slowest of 256, and with sigma 1 the slowest takes many times the average; free workers run at the average. So the rule holds for speed. But the reason is that workers vary, not that they're weak: with sigma 0.1, 256 workers gain far less. Now look at the price, the age of the gradients:

# %%
for name, updates in stale.items():
    print(f"{name:<22} a gradient is {updates:5.1f} updates old when it is applied")
cluster = make_cluster(256, 1.0, "lognormal", sigma=1.0)
backup = synchronous_rate(cluster, 20_000, backup=25) / synchronous_rate(cluster, 20_000)
print(f"synchronous, without the slowest 10 %: {backup:.1f} times the gradients a second")
assert stale["256 workers, sigma 1"] > 200 and backup > 1.5

# %% [markdown]
# A gradient that is hundreds of updates old may point anywhere. And a synchronous round that doesn't wait for the slowest tenth is several times faster than one that waits for all, with no stale gradients at all. So here is a better rule: first find out *why* your workers vary; then leave out stragglers; only then think of asynchronous training. Here are four ways to train, side by side on a simulated clock:

# %%
from distlab.explorables import staleness_race

staleness_race()

# %% [markdown]
# Run the cell to play with it. A block is one step, and its number the staleness of its update. (A saved copy of this page may show less.) Raise **Learning rate** until the asynchronous loss runs away. Which of the four ways is stable at the highest rate? (*Backup* leaves out the slowest worker of each round. *Bounded* lets no worker get more than a few steps ahead of the slowest.) Then make the **Slow worker** slower: who pays with staleness, and who with steps thrown away?
#
# ## Independent jobs
#
# All runs so far were one training, split over several devices. On most days a team has other work: forty settings to try, or a million pictures to predict. These jobs share nothing, and a cluster would only make them wait for each other. So one question comes before any strategy: are the jobs independent?
#
# Here are sixteen such jobs. The linear rule of [lesson 17](17-large-batch-training.ipynb) says: eight times the batch, eight times the rate. Does it hold for our network? The program tries eight rates for a batch of 32, and eight times each of them for a batch of 256. It reads its place from two variables, takes every fourth trial, and needs no TF_CONFIG.

# %%
from utils.data import load

home = Path("runs/lesson21")
home.mkdir(parents=True, exist_ok=True)
train = load("fashion-mnist").train
images = train.images[:4096].reshape(-1, 784) / np.float32(255)
np.savez(home / "images.npz", images=images, labels=train.labels[:4096])

# %% tags=["nbval-ignore-output"]
# %%writefile runs/lesson21/trials.py
import json
import os

import keras
import numpy as np

index, count = (int(os.environ[f"DISTLAB_TASK_{name}"]) for name in ("INDEX", "COUNT"))
trials = [(32 * k, k / 2**n) for k in (1, 8) for n in range(8, 0, -1)]
with np.load("runs/lesson21/images.npz") as data:
    images, labels = data["images"], data["labels"]
keras.utils.set_random_seed(0)
layers = [keras.Input((784,)), keras.layers.Dense(128, "relu"), keras.layers.Dense(10)]
model = keras.Sequential(layers)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile("sgd", loss, steps_per_execution=16)  # once, or each trial is traced again
start = model.get_weights()
for size, rate in trials[index::count]:
    keras.utils.set_random_seed(0)
    model.set_weights(start)
    model.optimizer.learning_rate = rate
    model.fit(images, labels, batch_size=size, epochs=3, verbose=0)
    ended = model.evaluate(images, labels, batch_size=256, verbose=0)
    print(json.dumps([size, rate, ended]), flush=True)

# %% [markdown]
# In a shell you'd type `distlab run --independent --workers 4 --max-restarts 1 runs/lesson21/trials.py`. A task that fails starts again alone, and the other three don't notice.
#
# **Predict.** Each batch size has a best rate. By what factor is batch 256's best rate larger than batch 32's?

# %%
my_guess = guess_number("Best rate of 256 over best rate of 32", 0.1, 10, "x", log=True)
my_guess

# %% tags=["nbval-ignore-output"] seconds=400
from utils.engines import RunSettings, run_program

found = {32: {}, 256: {}}


def note(task, line):
    if line.startswith("["):
        size, rate, loss = json.loads(line)
        found[size][rate] = loss


settings = RunSettings(workers=4, independent=True, max_restarts=1, logs=str(home / "logs"))
report = run_program([sys.executable, str(home / "trials.py")], settings, note)
best = {size: min(losses, key=losses.get) for size, losses in found.items()}
show_guess(my_guess, best[256] / best[32], unit="x")
assert report.failed == 0 and [len(losses) for losses in found.values()] == [8, 8]

# %% tags=["nbval-ignore-output"]
series = {}
for size, losses in found.items():
    rates = sorted(losses)
    scaled = [rate * 32 / size for rate in rates]
    series[f"batch {size}"] = scaled, [losses[rate] for rate in rates]
title = "Loss after three epochs: if the rule holds, both lines are one"
words = {"x_label": "learning rate for each 32 images", "y_label": "loss", "log_x": True}
figures.show(figures.lines(series, title=title, **words))
small, large = (losses for _, losses in series.values())
assert abs(small[0] - large[0]) < 0.05 and large[-2] > small[-2] + 0.5 and best[256] < 8 * best[32]

# %% [markdown]
# On the left the lines lie on each other: with small rates, one step of 256 images with eight times the rate does what eight steps of 32 do. On the right they part. In our run both batches did best at the same rate, where the rule says eight times. (We tried factors of two, with one seed.) So the rule holds where you don't want to train, and the best rate of 256 has to be found by trying. (A warm-up moves the point where the lines part, as in lesson 17. It doesn't remove it.)
#
# Now you have eight GPUs and several runs to do. You can run one at a time on all eight, with a batch eight times as large, or eight at a time on one GPU each, with the batch whose rate you know. The planner gives you two numbers: the hours of a run on one device (`alone`), and on all of them (`together`).
#
# **Your turn.** Return the hours for all runs, both ways: apart, on one device each, and in turn, each on all devices.


# %%
def hours(runs, devices, alone, together):
    return ...  # two numbers: apart, in turn


# %%
from distlab.explorables.choosing import HERE, TrainingJob, advise

hours = turns.HOURS.take(hours)
job = TrainingJob(parameters=1e9, examples=1e7, devices=8, place=HERE)
plan = advise(job)
for runs in (1, 8, 9, 40):
    apart, in_turn = hours(runs, 8, plan.alone.hours, plan.row.hours)
    choice = advise(replace(job, runs=runs)).strategy
    print(f"{runs:>2} runs: {apart:6.1f} hours apart, {in_turn:6.1f} in turn: {choice}")
assert advise(replace(job, runs=40)).strategy == "distlab run --independent"

# %% [markdown]
# A single run is quickest on all eight devices. For eight runs, apart is quicker: in the plan, eight devices in step are 7.4 times as fast as one, not eight. With nine runs, in turn wins, since the ninth run would keep one device busy for a whole round while seven stand idle. (Better still: eight apart, and then the ninth on all eight.) The planner's limit: it counts hours of equal epochs. What the larger batch does to the accuracy is the picture above, and no plan knows that.
#
# A search has one more advantage: it can stop its bad trials early. [hyperparameter_search.py](../examples/hyperparameter_search.py) does that, and survives the death of any worker.
#
# ## Ask, and get a plan
#
# Here is the whole decision. Six questions, one after the other; the first *yes* decides. Most have a limit, and the planner of lesson 20 supplies the number that's compared with it, for A100s. The map shows the advice for every size of a model and every number of devices. Click it, or move a control: which colors grow, and which path lights up? On spare machines, don't expect parameter servers at once: the plan counts the servers' links too, and often synchronous steps win.

# %%
from distlab.explorables.choosing import choosing_explorer

choosing_explorer()

# %%
from distlab.explorables.choosing import SPARE, STEADY

jobs = {
    "a small classifier": TrainingJob(1e6, 1e6, 8, HERE),
    "a large one, one machine": TrainingJob(1e9, 1e9, 8, HERE),
    "the same, 64 devices": TrainingJob(1e9, 1e9, 64, STEADY),
    "on spare machines": TrainingJob(1e9, 1e9, 64, SPARE),
    "forty short trials": TrainingJob(1e9, 1e7, 8, HERE, runs=40),
    "a hundred billion": TrainingJob(1e11, 1e9, 1024, STEADY),
}
for name, job in jobs.items():
    advice = advise(job)
    if advice.hours is None:
        print(f"{name}: {advice.strategy}; no plan, because no single device holds it")
        continue
    took = f"{advice.hours:,.0f} hours" if advice.hours >= 1 else "less than an hour"
    print(f"{name}: {advice.strategy}; {took}. {advice.path[-1][0] or advice.path[-2][0]}")
assert advice.strategy == "not TensorFlow"

# %% [markdown]
# The last sentence of a line is what decided. (The forty trials see a hundredth of the examples.) The last job has no plan, because no single device holds it. The tree is data (`QUESTIONS` in `distlab/explorables/choosing.py`): change a limit there, and picture and advice follow. Its weakest limit is the 12 hours: that's patience, not physics.
#
# ## On a real GPU
#
#     distlab doctor
#
# It says what each strategy would use on your machine: how many GPUs, or how many logical CPUs. One GPU and a model that fits means that you're done: no strategy.
#
# ## Recap
#
# - Ten combinations of strategy and loop, tried on your own versions; one doesn't work.
# - Equal losses from the synchronous strategies; what each strategy costs in memory, time and bytes, and what it needs after a failure.
# - A rule of thumb that is right about speed, for another reason than it gives, and leaves out stale gradients.
# - Sixteen independent trials: the linear rule holds for small rates, and fails before the best one.
# - Six jobs, each with a strategy, and five of them with a plan.
#
# ## Cheat sheet
#
# ```python
# # a model larger than a device                           PyTorch FSDP, Megatron-LM, JAX; DTensor
# # many independent runs                                  distlab run --independent trials.py
# # fits one device, and one device is quick enough?       tf.distribute.OneDeviceStrategy, or none
# # several GPUs in one machine                            tf.distribute.MirroredStrategy()
# # several steady machines                                tf.distribute.MultiWorkerMirroredStrategy()
# # machines come and go, and the plan prefers servers     tf.distribute.ParameterServerStrategy(resolver)
# from distlab.explorables.choosing import TrainingJob, advise
#
# advice = advise(TrainingJob(parameters=1e9, examples=1e9, devices=64, runs=1))
# print(advice.strategy, advice.reasons, advice.hours)
# ```
#
# Whole programs to copy are in [examples](../examples).
#
# ## Further reading
#
# - TensorFlow, [Distributed training with TensorFlow](https://www.tensorflow.org/guide/distributed_training): the strategies
# - Chen and others, [Revisiting Distributed Synchronous SGD](https://arxiv.org/abs/1604.00981), 2016: backup workers
# - Dean and others, [Large Scale Distributed Deep Networks](https://research.google/pubs/large-scale-distributed-deep-networks/), 2012: asynchronous training
# - Rajbhandari and others, [ZeRO](https://arxiv.org/abs/1910.02054), 2020: when a model has to be cut
#
# ## The lab
#
# If your jobs are independent, [lab 18, many small jobs](../labs/lab18-many-small-jobs.ipynb) is yours: no kill may lose or double a row. You compute the numbers behind a choice in [lab 14, plan a run](../labs/lab14-plan-a-run.ipynb).
