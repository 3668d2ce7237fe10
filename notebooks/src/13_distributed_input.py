# %% [markdown] shows="Who gets which example: sharding, rebatching, uneven ends, the tf.data service"
# # Distributed input
#
# Two workers spend a night on one pass through a large data set. In the morning a quarter of the examples have never been seen, and another quarter were seen twice. Nothing crashed; the loss even went down. Here you follow single examples through the usual ways to split data over replicas and workers. At the end you can tell which examples reach nobody, and which are trained on twice.
#
# **Time:** 85 minutes · **Prerequisites:** [input pipelines](12-input-pipelines.ipynb) and [multi-worker training](09-multi-worker-mirrored.ipynb) · **Hardware:** two CPU cores
#
# ## Objectives
#
# - Tell which examples each replica and each worker receives, and prove that none is lost or doubled.
# - Choose an auto-shard policy (how TensorFlow splits a dataset over workers) for the files and the workers you have.
# - Write a dataset function that reads its worker's part, and the size of its batches, from its `InputContext`.
# - Run a tf.data service, which prepares batches on other machines, as real processes, and find out what is lost when one is killed.
# - Repair a pipeline that shards after it shuffles.

# %%
from utils.environment import quiet_tensorflow, set_seeds

with quiet_tensorflow():
    import tensorflow as tf
from utils.devices import use_logical_devices

set_seeds(0)
print(use_logical_devices(4))

# %%
import tempfile

import numpy as np

# %% [markdown]
# ## Nine twice, nine never
#
# Here is such a night in small: two workers and 32 examples in four files. Both workers shuffle, and then each keeps every second example. Each example falls from its file to the worker that reads it, and on into the row of what was trained on. **Empty the two rows at the bottom**, *trained on again* and *never trained on*. You don't have to know yet what the names of the ways mean.

# %%
from distlab.explorables import sharding_belt

sharding_belt("LATE")

# %% [markdown]
# When you know why each way does what it does, the belt comes back with a night that loses nothing and still wastes something.
#
# ## One machine, four replicas
#
# We have 32 examples, a global batch of 8 and four replicas. Each example is a number, so that we can see where it goes. A filled square is an example that the replica received. Light and dark squares are alternate steps.

# %%
from distlab import figures
from utils.input_pipeline.sharding import check_cover, ids_per_replica, sharding_options
from utils.strategies import make_strategy

strategy = make_strategy("mirrored", 4)
numbers = tf.data.Dataset.range(32).with_options(sharding_options("AUTO"))
views = ids_per_replica(strategy, strategy.experimental_distribute_dataset(numbers.batch(8)))
figures.show(figures.shares(views, 32, title="Who gets what: 32 examples, global batch 8"))
print(check_cover(views, range(32)))

# %% [markdown]
# `experimental_distribute_dataset` takes a dataset of *global* batches and splits each: the first replica gets the first two of eight. `views` holds the same thing as numbers: for each replica its *ids*, the numbers of its examples, step by step. `check_cover` counts over all replicas how many examples came exactly once, more than once, or never. We check every claim below like this.
#
# ## Batches that don't divide
#
# **Predict.** 66 examples, a global batch of 32, four replicas. In the third step only 2 are left. How many does each replica get? Guess the largest share.

# %%
from distlab.explorables import guess_number

my_guess = guess_number("The largest share", 0, 8)
my_guess


# %%
from distlab.exercises.predict import show_guess


def sizes_of(views):
    """Return the sizes of the replicas' shares, a list for each step."""
    steps = range(max(len(view) for view in views.values()))
    return [[len(view[step]) for view in views.values()] for step in steps]


def distribute(strategy, examples, batch, policy="AUTO", **options):
    batches = tf.data.Dataset.range(examples).batch(batch, **options)
    batches = batches.with_options(sharding_options(policy))
    return ids_per_replica(strategy, strategy.experimental_distribute_dataset(batches))


views = distribute(strategy, 66, 32)
print(sizes_of(views))
show_guess(my_guess, max(sizes_of(views)[-1]))
print("the mean of an empty share:", float(tf.reduce_mean(tf.zeros([0]))))
assert check_cover(views, range(66)).once == 66

# %% [markdown]
# Nothing is lost, but the shares are uneven, and some replicas get an *empty* tensor. Why 1 and not 2? Each share is the batch over four, rounded up: half an example becomes one, until none is left. The mean of an empty share is nan, and a loss divided by the share's own size is wrong; [loss scaling](05-loss-scaling.ipynb) is about that. If the batch doesn't divide by four, this happens in every step, not just the last:

# %%
for examples, batch in ((20, 5), (12, 6)):
    for policy in ("AUTO", "OFF"):
        views = distribute(strategy, examples, batch, policy)
        print(f"{examples} in batches of {batch}, {policy:<5}", sizes_of(views))
        assert check_cover(views, range(examples)).once == examples

# %% [markdown]
# TensorFlow has two ways to split a batch, and the auto-shard policy (more on it below) decides which. AUTO is the default. Without files, as here, it acts like the policy DATA and rounds each share up. So 6 over four is 2, 2, 2, 0: the last replica never works, and nothing warns you. OFF and FILE split a full batch into shares that differ by one at most. But they deal out a short last batch as if it were a full one: in [lesson 03](03-mirrored-keras.ipynb), a last batch of 40 instead of 128 came out as 32, 8, 0, 0. Choose a global batch size that divides by the number of replicas.
#
# `drop_remainder=True` leaves the short last batch out, so that all shares are equal. On TPUs that is the usual choice, since each new shape has to be compiled ([lesson 14](14-tpu-and-xla.ipynb)).
#
# **Your turn.** Which batch size? Write the rule: at most `wanted`, and equal shares for the replicas.


# %%
def fit_batch(wanted, replicas):
    return ...  # 30 and 4 give 28


# %%
from distlab.turns import lesson13 as turns

fit_batch = turns.BATCH.take(fit_batch)
views = distribute(strategy, 66, int(fit_batch(35, 4)), drop_remainder=True)
figures.show(figures.shares(views, 66, title="66 examples, your batch, drop_remainder=True"))
print(check_cover(views, range(66)))

# %% [markdown]
# The last two examples reach nobody. In training that does little harm if you shuffle each epoch, since others are left out each time. In an evaluation nothing may be missing.
#
# ## A function instead of a dataset
#
# `distribute_datasets_from_function` calls *your* function once for each worker. TensorFlow then splits nothing for you: you read only the worker's own part, and return batches of the per-replica size. Your function's argument, the `InputContext`, has what you need for both.

# %%
asked = []


def make_dataset(context):
    asked.append((context.num_input_pipelines, context.input_pipeline_id))
    batch = context.get_per_replica_batch_size(global_batch_size=8)
    mine = tf.data.Dataset.range(32).shard(context.num_input_pipelines, context.input_pipeline_id)
    return mine.batch(batch).prefetch(2)


views = ids_per_replica(strategy, strategy.distribute_datasets_from_function(make_dataset))
print("called for (pipelines, this one):", asked)
print("first step:", [view[0] for view in views.values()])
assert check_cover(views, range(32)).once == 32

# %% [markdown]
# One machine has one input pipeline, and its four replicas take batches from it in turn. On several workers the function is called once in each process, with that worker's number.
#
# ## Two workers: who reads what?
#
# Each of several workers runs the *whole* program, so each has the whole dataset. TensorFlow then *shards* it: an auto-shard policy gives each worker its own part. This time we use real images, in 4 files of 8; an image's id is its number. `auto_shard` shows in one process what each worker would receive.
#
# Which policy trains on every example twice, and which one reads far more than it trains on? (The belt at the top shows that as well: choose FILE, DATA and OFF.)

# %%
from utils.data import load
from utils.input_pipeline import write_shards
from utils.input_pipeline.parsing import parse
from utils.input_pipeline.sharding import all_ids, auto_shard, shard_examples

folder = tempfile.TemporaryDirectory()
shards = write_shards(load("fashion_mnist").train.take(32), folder.name, shards=4)


def read_ids(files):
    records = tf.data.Dataset.from_tensor_slices(list(files)).flat_map(tf.data.TFRecordDataset)
    return records.map(parse).map(lambda image, label, number: number)


batches = read_ids(shards.files).batch(4)
policies = {policy: auto_shard(batches, 2, policy) for policy in ("FILE", "DATA", "OFF")}
for policy, views in policies.items():
    print(f"{policy:<5}{check_cover(views, range(32))}")
    assert views == shard_examples(np.arange(32).reshape(4, 8).tolist(), 2, policy, 4)
assert all_ids(policies["FILE"]["worker 0"]) == {*range(8), *range(16, 24)}
assert policies["DATA"]["worker 1"][0] == [4, 5, 6, 7]
assert policies["OFF"]["worker 0"] == policies["OFF"]["worker 1"]
no_files = auto_shard(tf.data.Dataset.range(32).batch(4), 2, "AUTO")
print("AUTO without files shards as DATA does:", no_files == policies["DATA"])
assert no_files == policies["DATA"]

# %% [markdown]
# FILE assigns whole files to the workers in turn. With DATA each of the two workers reads everything and keeps every second batch. (So both need the same order: the mistake below shows what a shuffle without a seed does to it.) OFF gives everything to everyone, so an epoch is twice as long as you think. AUTO tries FILE, and falls back to DATA if the data doesn't come from files.
#
# Three files for two workers under FILE: what percentage of the data does worker 0 get? And what about a single file?

# %%
from utils.errors import DistributedError

uneven = auto_shard(read_ids(shards.files[:3]).batch(4), 2, "FILE")
print(f"worker 0 gets {100 * len(all_ids(uneven['worker 0'])) / 24:.0f} % of three files")
for policy in ("FILE", "AUTO"):
    try:
        auto_shard(read_ids(shards.files[:1]).batch(4), 2, policy)
    except DistributedError as error:
        print(error)

# %% [markdown]
# FILE never divides a file, so worker 0 gets two of the three. Have many more files than workers, all of similar size; or equal files, the same number for each worker. Fewer files than workers is an error, in TensorFlow's own words above. AUTO raises it as well, since this data *does* come from files. For a single file choose DATA, and give every shuffle a seed.
#
# ## Two workers for real
#
# So far we stayed in one process. Now two real workers, as in [lesson 09](09-multi-worker-mirrored.ipynb), each a process with its own `TF_CONFIG`. `receive` runs in those processes, so it imports what it needs. Each returns the ids that its replica received.


# %%
from utils.cluster import LocalCluster


def receive(files, policy, global_batch):
    """Run in each worker: distribute the same dataset; return what this replica received."""
    import tensorflow as tf

    from utils.input_pipeline.parsing import parse
    from utils.input_pipeline.sharding import ids_per_replica, sharding_options

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    records = tf.data.Dataset.from_tensor_slices(list(files)).flat_map(tf.data.TFRecordDataset)
    ids = records.map(parse).map(lambda image, label, number: number)
    batches = ids.batch(global_batch).with_options(sharding_options(policy))
    return ids_per_replica(strategy, strategy.experimental_distribute_dataset(batches))["replica 0"]


pair = LocalCluster(workers=2)
real = {}
for policy in policies:
    results = pair.run(receive, shards.files, policy, 8, echo=False, timeout=60)
    real[policy] = {f"worker {index}": view for index, view in enumerate(results)}
    print(f"{policy:<5}{check_cover(real[policy], range(32))}")
for policy, views in policies.items():
    assert all(all_ids(real[policy][who]) == all_ids(view) for who, view in views.items())
print("shares of each step under FILE:", sizes_of(real["FILE"]))
figures.show(figures.shares(real["FILE"], 32, title="FILE on two real workers, global batch 8"))

# %% [markdown]
# Each worker received the same examples as in one process. There we batched by 4. Here we batched by 8, the *global* batch, and each worker *rebatched* it to 4 automatically. Under DATA it then keeps every second batch of 4, which is half of every batch of 8, as [lesson 09](09-multi-worker-mirrored.ipynb) put it. So always pass `experimental_distribute_dataset` a dataset of global batches.
#
# ### Uneven ends
#
# **Predict.** Three files for two workers: worker 0 has 16 examples, worker 1 has 8. Worker 1 runs out after two steps. What happens to worker 0's last 8: trained on, lost, or does it wait forever?

# %%
from distlab.explorables import guess_word

my_guess = guess_word("Worker 0's last 8 examples", "trained", "lost", "waits")
my_guess

# %%
results = pair.run(receive, shards.files[:3], "FILE", 8, echo=False, timeout=60)
views = {f"worker {index}": view for index, view in enumerate(results)}
print(sizes_of(views))
show_guess(my_guess, "trained" if check_cover(views, range(24)).once == 24 else "lost")
assert sizes_of(views)[-1] == [4, 0]

# %% [markdown]
# They are trained on. If you said "lost": that is what a plain loop over the shorter dataset would do, but here nobody stops alone. In every step the workers check whether any of them still has data, and a worker that has run out gets empty batches until all have. So there are as many steps as the longest share needs, and meanwhile the others idle. There's a catch: if the loss divides by the number of examples present, each of worker 0's last examples counts double here, since only half a global batch is left.
#
# ## The mistake: shard after shuffle
#
# This is the story from the beginning: nothing crashed, and a quarter of the examples were never seen. Here is all it takes. Each worker shuffles, then takes every second example:


# %%
def shard_late(index):
    return tf.data.Dataset.range(32).shuffle(32, seed=index).shard(2, index)


def view_of(make):
    return {f"worker {i}": [[int(n)] for n in make(i)] for i in range(2)}


wrong = view_of(shard_late)
figures.show(figures.shares(wrong, 32, title="Shuffle, then shard: two workers, two orders"))
print("shuffle, then shard:", check_cover(wrong, range(32)))
assert check_cover(wrong, range(32)).lost

# %% [markdown]
# Two workers with two orders (two seeds, or no seed at all) cut two different decks. Some examples go to both, and the same number to neither. (On the belt at the top, *shuffle, then shard* lets you watch them fall.) There is no error and no warning, and each worker has its 16.
#
# **Your turn.** Four files of eight numbers: file 0 has 0 to 7, file 1 has 8 to 15, and `read(file)` is the dataset of one file's numbers. Write a worker's part so that it reads only its own files, and shuffles.


# %%
def part_of(files, read, workers, index):
    return ...  # files.…


# %%
part_of = turns.PART.take(part_of)
files = tf.data.Dataset.range(4)
right = {
    f"worker {i}": [
        [int(n)] for n in part_of(files, lambda f: tf.data.Dataset.range(8 * f, 8 * f + 8), 2, i)
    ]
    for i in range(2)
}
print("your part of two workers:", check_cover(right, range(32)))

# %% [markdown]
# With a dataset function, or with policy OFF, the line with `shard` is yours to write. But the policy DATA does the mistake for you: each worker runs your *whole* pipeline, with your shuffle in it, and keeps its part of the result. So does AUTO if there are no files. Let's count it on the two real workers, with 64 numbers and nothing but `.shuffle(64)` in front of the batch.
#
# **Your turn.** `times` says how often each of the `n` examples was trained on, [n]. How many never, and how many more than once?


# %%
def count_faults(times):
    return ...  # two numbers: never, more than once


# %% tags=["nbval-ignore-output"]
def train_on(seed):
    """Run in each worker: return how often each number was trained on, on all workers, [64]."""
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    numbers = tf.data.Dataset.range(64).shuffle(64, seed=seed).batch(8)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    distributed = strategy.experimental_distribute_dataset(numbers.with_options(options))
    count = tf.function(lambda ids: strategy.run(tf.math.bincount, (ids,), {"minlength": 64}))
    counts = [strategy.reduce("SUM", count(ids), axis=None) for ids in distributed]
    return sum(counts).numpy()


count_faults = turns.FAULTS.take(count_faults)
faults = {}
for seed in (None, 0):
    times = pair.run(train_on, seed, echo=False, timeout=60)[0]
    faults[seed] = count_faults(times)
    print(f"shuffle(64, seed={seed}): seen never {faults[seed][0]}, seen twice {faults[seed][1]}")
    assert times.sum() == 64  # an epoch has the right number of steps, whatever is in them
    assert (seed is None) == bool((times != 1).any())

# %% [markdown]
# Without a seed, some of the numbers were never seen, and just as many were seen twice. It changes from run to run. On average it's a quarter, 16 of 64: each worker misses a number with probability one half. (A second epoch misses others, so after two epochs a sixteenth is still unseen. An evaluation has no second epoch.) The epoch was as long as it should be, so nothing else gives it away. What other pipelines gave on two workers (the last two rows read files):
#
# | pipeline | seen once | seen never | seen twice |
# |---|---|---|---|
# | `shuffle` without a seed, after `tf.random.set_seed`, DATA | 64 | 0 | 0 |
# | `shuffle` without a seed, **AUTO**, no files | 26 | **19** | **19** |
# | file names shuffled without a seed, FILE or AUTO | 64 | 0 | 0 |
# | `Dataset.list_files(...)`, which shuffles by default, **DATA** | 32 | **16** | **16** |
#
# So write `shuffle(n, seed=0)`, or shard first. The epochs still differ, because a seeded shuffle draws a new order in each, and it's the same new order on every worker. FILE needs no seed: TensorFlow splits the file names before they are shuffled.
#
# The second trap is TensorFlow's own. `tf.distribute.InputOptions` can ask for one dataset per *replica*:

# %%
options = tf.distribute.InputOptions(
    experimental_fetch_to_device=False,
    experimental_replication_mode=tf.distribute.InputReplicationMode.PER_REPLICA,
)
other, asked = make_strategy("mirrored", 4), []
views = ids_per_replica(other, other.distribute_datasets_from_function(make_dataset, options))
print("called for:", asked)
print("per replica:", check_cover(views, range(32)))
for kind, made in (("another", strategy), ("the same", other)):
    views = distribute(made, 32, 8, "OFF")
    print(f"a dataset with policy OFF, {kind} strategy:", check_cover(views, range(32)))
assert check_cover(views, range(32)).doubled == tuple(range(32))

# %% [markdown]
# The function was called four times and sharded by four, as it should be. But the strategy object remembers the mode. From then on it counts four input pipelines. With policy OFF nothing is sharded, so every replica gets the *whole* dataset, on a single machine that never needed a policy before. We saw this on TensorFlow 2.21. Use a separate strategy object for this mode, as we did here.
#
# `InputOptions` has another switch, and that one is harmless. `experimental_fetch_to_device=False` leaves batches on the host until a replica takes them, for what a device can't hold, such as strings.
#
# ## The tf.data service
#
# Sometimes the processor next to the accelerator is too small for the pipeline. Then other machines can run it: a *dispatcher* assigns the work, *data workers* run the dataset, and *consumers*, your training programs, fetch finished batches from them.
#
# All of them can live in one program, which is the quickest way to try it. In the cell below, everything in front of `.apply(through)` runs on the data workers.

# %%
from distlab.lessons.server_pictures import draw_data_service

figures.show(draw_data_service())
data_service = tf.data.experimental.service
dispatcher = data_service.DispatchServer(data_service.DispatcherConfig(port=0))  # any free port
address = dispatcher.target.split("://")[1]
data_workers = [
    data_service.WorkerServer(data_service.WorkerConfig(dispatcher_address=address))
    for _ in range(2)
]
mode = data_service.ShardingPolicy.DYNAMIC
through = data_service.distribute(processing_mode=mode, service=dispatcher.target, job_name="one")
served = tf.data.Dataset.range(32).batch(4).apply(through)
received = {"this program": [batch.tolist() for batch in served.as_numpy_iterator()]}
print(check_cover(received, range(32)))
assert check_cover(received, range(32)).once == 32
del served, data_workers, dispatcher  # a server stops when no variable holds it

# %% [markdown]
# On several machines the same calls are spread over three programs. What changes is the addresses, and that `join` keeps each server alive:
#
# ```python
# # on node-a: the dispatcher. With a journal in work_dir, it can be restarted mid-epoch
# data_service.DispatchServer(data_service.DispatcherConfig(
#     port=5050, work_dir="/shared/journal", fault_tolerant_mode=True)).join()
# # on node-b, and on every other machine that helps: a data worker
# data_service.WorkerServer(data_service.WorkerConfig(
#     dispatcher_address="node-a:5050", worker_address="node-b:5051", port=5051)).join()
# # in every trainer: service="grpc://node-a:5050"
# ```
#
# The servers have no password, so use a network that you trust. Next we want to kill some, so each must be its own process: `DataService` starts a dispatcher and two data workers that way on this computer. The two consumers are processes too. [`consume`](../utils/input_pipeline/service.py) reads numbers in batches of 4 and reports each batch.

# %% tags=["nbval-ignore-output"]
from utils.input_pipeline.service import DataService, consume

single = LocalCluster(workers=1)
service = DataService(single, workers=2, seconds=240)


def run_two(policy, examples):
    """Two consumers that share the job `policy`; return who received what."""
    shared_job = (service.address, policy, policy, examples, 0.02)
    jobs = [single.start(consume, *shared_job) for _ in range(2)]
    return {f"consumer {i}": job.wait(60)[0] for i, job in enumerate(jobs)}


shared = {policy: run_two(policy, 200) for policy in ("DYNAMIC", "OFF")}
for policy, views in shared.items():
    counts = [sum(map(len, view)) for view in views.values()]
    print(f"{policy:<8}{counts} examples; {check_cover(views, range(200))}")
assert check_cover(shared["DYNAMIC"], range(200)).once == 200
assert check_cover(shared["OFF"], range(200)).doubled == tuple(range(200))

# %% [markdown]
# Consumers that pass the same `job_name` share one run of the dataset, first come, first served. With DYNAMIC the data workers split the source among themselves. With OFF ("parallel_epochs") every data worker runs the whole dataset: two workers, two epochs. That is fine for training on endless, shuffled data, and wrong for evaluation.
#
# ### One consumer is killed
#
# Two consumers share 400 examples under DYNAMIC, and one is killed with SIGKILL after five batches. Does the other one still receive all the rest?

# %% tags=["nbval-ignore-output"]
settings = (service.address, "DYNAMIC", "killed", 400, 0.04)
doomed, survivor = (single.start(consume, *settings) for _ in range(2))
for number, _ in enumerate(doomed.events(), start=1):
    if number == 5:
        doomed.kill("worker", 0)
        break
views = {"survivor": survivor.wait(60)[0], "killed": [e["ids"] for e in doomed.events()]}
cover = check_cover(views, range(400))
print(cover)
assert cover.doubled == () and 0 < len(cover.lost) < 200

# %% [markdown]
# Why not? A batch belongs to the consumer that fetched it, and nobody keeps a list to give it out again. Whatever was on its way to the dead consumer is gone. So in this mode an example arrives *at most once*, not exactly once. The survivor comes to the end of its data and notices nothing.
#
# ### A data worker is killed
#
# When a data worker dies, the part of the source that it was working on may be lost with it. Worse, a consumer keeps asking the dead worker for more, and raises no error while it does. TensorFlow's source gives it 60 minutes. So wait with your own limit; here it's `wait(timeout=6)`, well over what this reader needs when nothing goes wrong. A second reader loses a data worker too, but gets a new one *at the same address*.

# %% tags=["nbval-ignore-output"]
from utils.cluster import ClusterError

reader = single.start(consume, service.address, "DYNAMIC", "left alone", 400, 0.02)
next(iter(reader.events()))  # the first batch has come
service.kill_worker(0)
try:
    reader.wait(timeout=6)
except ClusterError as error:
    print("the first reader", error.cause)
views = {"first reader": [event["ids"] for event in reader.events()]}

reader = single.start(consume, service.address, "DYNAMIC", "replaced", 400, 0.02)
next(iter(reader.events()))
service.kill_worker(1)
for port in service.ports[:2]:
    service.add_worker(port)
views["second reader"] = reader.wait(60)[0]
for name, view in views.items():
    print(f"{name}: {check_cover({name: view}, range(400))}")
    assert check_cover({name: view}, range(400)).doubled == ()
service.close()
print("all processes ended:", all(job.finished for job in service.jobs))

# %% [markdown]
# The first reader was still waiting when its time was up. The second came to the end of its data. Either may have lost what the killed data worker was working on.
#
# In your own loop, call `faulthandler.dump_traceback_later(600, exit=True)` before you fetch each batch. If a batch takes more than ten minutes, Python prints where it hangs and ends the process.
#
# ## The same through `utils`
#
# `split_evenly`, a helper of the course's pictures, computes the shares of a full batch as a strategy deals them out with policy OFF. And `auto_shard` shows in one process what AUTO gives to two workers. Both are compared with what we saw above.

# %%
from distlab.figures import split_evenly
from utils.input_pipeline.sharding import format_ids

print("30 examples over four replicas, policy OFF:", split_evenly(30, 4))
assert sizes_of(distribute(strategy, 30, 30, "OFF")) == [split_evenly(30, 4)]
again = auto_shard(read_ids(shards.files).batch(4), 2, "AUTO")
assert all(all_ids(real["FILE"][who]) == all_ids(view) for who, view in again.items())
print("AUTO on files shards as FILE does:", [format_ids(all_ids(view)) for view in again.values()])

# %% [markdown]
# ## What it costs
#
# Under DATA a worker throws away what the others need, but only *after* it has read and parsed it. A counter in the map shows how many examples the two workers parse to get their 32. Memory is the same story: a cache in front of the split holds everything, on every worker. The last column works that out for a larger case, 60,000 images on 8 workers.

# %%
from utils.measure import format_bytes

parsed = []


def count_one(number):
    parsed.append(int(number))
    return number


counted = read_ids(shards.files).map(
    lambda number: tf.ensure_shape(tf.numpy_function(count_one, [number], tf.int64), [])
)
print("policy  parsed  kept  per-worker cache before the shard, 60,000 images, 8 workers")
for policy in ("FILE", "DATA", "OFF"):
    parsed.clear()
    views = auto_shard(counted.batch(4), 2, policy)
    kept = sum(len(step) for view in views.values() for step in view)
    cache = 60_000 * 784 // (8 if policy == "FILE" else 1)
    print(f"{policy:<8}{len(parsed):>6}{kept:>6}{format_bytes(cache):>12}")
    assert len(parsed) == (32 if policy == "FILE" else 64)
pair.close()
single.close()

# %% [markdown]
# Under DATA two workers parse everything twice; eight would parse it eight times. FILE scales, as long as there are enough files.
#
# ### Back to the belt
#
# Four workers and one large file, under DATA. Each example is trained on once, so nothing is wrong with this night. But the workers read 128 examples to train on 32. **Bring that down to 32, lose nothing, and give each worker equally much.** You may write the data again.

# %%
sharding_belt("DATA", files=1, workers=4)

# %% [markdown]
# It takes FILE, and four or eight files. With five, nothing is lost and only 32 are read, but worker 0 gets two files, and trains about twice as long as worker 3 while the others wait. So the number of files is decided when you write them.
#
# ## On a real GPU
#
# Four replicas are four GPUs then, and each should see a quarter of every batch. On a machine with two or more:
#
#     distlab train --strategy mirrored --max-examples 640 --epochs 1 --json
#
# Look at `replicas` in the report: it should be the number of your GPUs. If it's smaller, some of them saw none of the 640 examples.
#
# ## Cheat sheet
#
# You bring `strategy`, `global_batch_size`, `parse`, the file names `names`, and a function that makes your dataset of single examples, `make_dataset`:
#
# ```python
# options = tf.data.Options()  # many equal files: FILE. Few, or none: DATA, one seed for all
# options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.FILE
# dataset = make_dataset().batch(global_batch_size).with_options(options)  # the GLOBAL batch
# distributed = strategy.experimental_distribute_dataset(dataset)
#
# def make(context):  # or by hand: strategy.distribute_datasets_from_function(make)
#     files = tf.data.Dataset.from_tensor_slices(names)
#     files = files.shard(context.num_input_pipelines, context.input_pipeline_id)  # first
#     examples = files.interleave(tf.data.TFRecordDataset).map(parse).shuffle(10_000)
#     return examples.batch(context.get_per_replica_batch_size(global_batch_size)).prefetch(2)
# ```
#
# And the check that every worker can run. Make the dataset of the examples' *numbers*, `n` of them, with the same shuffle, batch and options, and distribute it in the same way:
#
#     count = lambda ids: strategy.reduce("SUM", strategy.run(tf.math.bincount, (ids,), {"minlength": n}), None)
#     times = sum(count(ids) for ids in distributed).numpy(); print("seen twice:", sum(times > 1), "seen never:", sum(times == 0))
#
# **Recap**
#
# - Every example counted, in one process and on two real workers.
# - FILE needs enough equal files, DATA parses everything on every worker, OFF trains on everything once per worker.
# - An `InputContext` tells a dataset function which part to read.
# - The tf.data service lost what was on its way to a killed consumer. A consumer whose data worker died waited until our limit.
# - Shuffling before sharding loses and doubles examples silently, under DATA too; shard first, or give every shuffle a seed, the same on every worker.
#
# A whole program that serves batches to trainers on other machines: [data_service.py](../examples/data_service.py).
#
# ## Further reading
#
# - TensorFlow's tutorial [Distributed Input](https://www.tensorflow.org/tutorials/distribute/input)
# - API pages [tf.data.experimental.AutoShardPolicy](https://www.tensorflow.org/api_docs/python/tf/data/experimental/AutoShardPolicy), [tf.distribute.InputOptions](https://www.tensorflow.org/api_docs/python/tf/distribute/InputOptions) and [tf.data.experimental.service](https://www.tensorflow.org/api_docs/python/tf/data/experimental/service)
# - Audibert and others, [tf.data service: A Case for Disaggregating ML Input Data Processing](https://arxiv.org/abs/2210.14826)
#
# ## The lab
#
# Sharding data over workers is an exercise of [lab 08, multi-worker](../labs/lab08-multi-worker.ipynb); making a pipeline fast is [lab 11, tf.data](../labs/lab11-tf-data.ipynb).
