# %% [markdown] shows="From a naive pipeline to a tuned one, one measured stage at a time"
# # Input pipelines
#
# Your training is slow, you rent a faster accelerator, and the training stays slow: the step was waiting for its input all along. Here you rebuild one pipeline a stage at a time, measure what each stage is worth, and watch on a time line who waits for whom. Afterwards you can find such a wait in your own job, and fix it in a few lines.
#
# **Time:** 90 minutes, in two sittings, and 10 for *And then*, which can wait · **Prerequisites:** [custom training loop](04-custom-training-loop.ipynb) · **Hardware:** two CPU cores
#
# ## Objectives
#
# - Write TFRecord shards, and prove that a pipeline delivers each example once.
# - Find the bottleneck of a pipeline by timing its stages.
# - Build a pipeline that delivers several times the images per second of the naive one, with the same elements.
# - Put cache, shuffle, take and prefetch where they do what you mean.
# - Tune a pipeline by measuring, and know how far it is from the limit.

# %%
from utils.environment import quiet_tensorflow, set_seeds

with quiet_tensorflow():
    import keras
    import tensorflow as tf
from utils.devices import use_logical_devices

set_seeds(0)
print(use_logical_devices(1))

# %%
import tempfile
import time
from itertools import pairwise

import numpy as np
import psutil

# %% [markdown]
# ## Who waits for whom?
#
# Here is an input pipeline as a conveyor, with made-up costs. On the left files are read, then the images are decoded and augmented, and on the right a training step takes batch after batch. While the accelerator has no batch, it's hatched: you pay for it, and it does nothing. **Make the hatching go away.** You don't have to know yet what the settings mean; the three questions on top show you around.

# %% tags=["nbval-ignore-output"]
from distlab.explorables import conveyor
from utils.simulate.input import InputCosts

conveyor(InputCosts(2.6e-4, 1.2e-4, 1e-4), step_seconds=0.02)

# %% [markdown]
# That was a drawing. Now you build the same pipeline and measure each of its costs, and in the end the conveyor comes back with your numbers.
#
# ## Write the data first
#
# An input pipeline *extracts* bytes from files, *transforms* them into tensors and *loads* those into the step. The files come first: 4,000 real images, each packed as a PNG with its label and its number into a `tf.train.Example`, in 8 TFRecord files, the *shards*. Several files can be read at once, and split between workers ([distributed input](13-distributed-input.ipynb)). PNGs have to be decoded, which takes time, as in real life.
#
# Augmentation flips and shifts each image at random. Columns that leave on one side come back on the other, so every row keeps its pixels, in another order. That lets us check later which images were delivered, however they were flipped and shifted.

# %%
from distlab import figures
from utils.data import load
from utils.input_pipeline import write_shards
from utils.input_pipeline.parsing import augment, parse

split, folder = load("fashion_mnist").train.take(4000), tempfile.TemporaryDirectory()
shards = write_shards(split, folder.name, shards=8)
image, label, number = parse(next(iter(tf.data.TFRecordDataset(shards.files[0]))))
assert np.array_equal(image[..., 0], split.images[0]) and label == split.labels[0]
versions = [augment(image, label, number)[0][..., 0] for _ in range(7)]
pictures, names = [split.images[0] / 255, *versions], ["as it is", *["augmented"] * 7]
title = "One image, and what augmentation makes of it"
figures.show(figures.images(pictures, names, title=title, columns=8))

# %% [markdown]
# ## Four numbers first
#
# The naive pipeline reads one shard after another and handles one example after another. (`read_shard` is `tf.data.TFRecordDataset`, from a disk that we can make slow.) We time it alone, then with a training step behind it. For comparison, the same step runs on a batch that is ready in memory. The better of two runs counts. `as_written` keeps TensorFlow from improving the pipeline behind our back; more on that under *AUTOTUNE* below.


# %%
from utils.input_pipeline import LOCAL
from utils.input_pipeline.store import read_shard


def naive(shards, store=LOCAL, batch=128):
    files = tf.data.Dataset.from_tensor_slices(list(shards.files))
    records = files.flat_map(lambda file: read_shard(file, store))
    return records.map(parse).map(augment).batch(batch)


# %%
from utils.measure import Stopwatch
from utils.models import build_mlp

model, optimizer = build_mlp(), keras.optimizers.SGD(0.01)
optimizer.build(model.trainable_variables)


@tf.function
def train_step(images, labels, ids):
    with tf.GradientTape() as tape:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model(images))
        loss = tf.reduce_mean(losses)
    gradients = tape.gradient(loss, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


def rate_of_training(dataset):  # images/s of an epoch of steps
    with Stopwatch() as watch:
        np.array([train_step(*batch) for batch in dataset])  # waits for the last step
    return len(split) / watch.seconds


# %% tags=["nbval-ignore-output"]
from utils.input_pipeline.ladder import as_written
from utils.input_pipeline.measuring import make_limit, measure_rates

plain = as_written(naive(shards))
ready = make_limit(plain)  # its first batch, again and again
train_step(*next(iter(ready)))
four = {
    "input alone": max(measure_rates({"naive": plain}, 1).by_name["naive"]),
    "steps on ready tensors": max(rate_of_training(ready) for _ in range(2)),
    "steps on naive input": max(rate_of_training(plain) for _ in range(2)),
}
busy = four["steps on naive input"] / four["steps on ready tensors"]
print(*[f"{name:<24}{rate:>10,.0f} images/s" for name, rate in four.items()], sep="\n")
print(f"{'the step computes':<24}{busy:>10.0%} of the time")
assert busy < 1

# %% [markdown]
# The rest of the time the step mostly waits for input. You may object that the network is tiny; but so are the cores. On an accelerator the step gets faster, and the processor that feeds it doesn't. That wait is what this lesson fixes.
#
# ## Where does the time go?
#
# Read, parse, augment or batch: which stage takes most of the time of one image? We take the chain apart and time it.


# %%
from utils.input_pipeline import TuneSettings
from utils.input_pipeline.chain import take_apart
from utils.input_pipeline.rebuild import rebuild


def make_epoch(dataset):
    """Return a function that makes one epoch and drops it, already traced."""
    make_all = tf.function(lambda: dataset.skip(10**9).reduce(0, lambda so_far, *_: so_far + 1))
    return make_all.get_concrete_function()


def costs_of_stages(dataset):
    """Return what each stage after the source adds to one image, in processor seconds."""
    stages = take_apart(dataset)
    chains = [rebuild(stages[:end], TuneSettings()) for end in range(2, len(stages) + 1)]
    epochs = [make_epoch(as_written(chain)) for chain in chains]
    best = np.full(len(epochs), np.inf)
    for number in 4 * list(range(len(epochs))):  # in turn: what slows one round slows all alike
        begun = time.process_time()
        assert epochs[number]().numpy() == 0  # made, and skipped
        best[number] = min(best[number], time.process_time() - begun)
    added = np.diff(best, prepend=0) / len(split)
    return {s.name.split()[-1]: max(0.0, c) for s, c in zip(stages[1:], added)}


# %% tags=["nbval-ignore-output"]
costs = dict(zip(("read", "parse", "augment", "batch"), costs_of_stages(naive(shards)).values()))
slowest = max(costs, key=costs.get)
title, marks = "One image through the naive pipeline, stage by stage", {"highlight": slowest}
figures.show(figures.bars({n: 1e6 * c for n, c in costs.items()}, unit="µs", title=title, **marks))
assert slowest in ("parse", "augment")

# %% [markdown]
# A dataset remembers what it was made from. So `take_apart` can walk back to the source, and `rebuild` can make the chain again up to any stage. Each bar is the time of the chain up to that stage, minus the time of the chain before it. (`skip` makes the images and drops them. Passing each one to a function would cost more than most stages.) It is processor time, so waiting doesn't count, and the best of four rounds. But it's the difference of two larger numbers: if one chain was slowed down, its stage gets too much and the next too little. A bar near 0 is lost in that noise. If a bar surprises you, run the cell again.
#
# One of the two maps, parse or augment, costs most, although such a small image gives it little to do. How much of that is the price of *calling* a function for each image?
#
# ## One stage at a time
#
# Now the same pipeline again and again, with one thing changed each time. First the reading: `interleave` takes a record from each of 8 shards in turn, and with `num_parallel_calls` the 8 are read at the same time. Then the maps. You can run them on two threads. Or you can *vectorize* them: batch the records first, and call each map once for 128 of them. That needs maps that take a whole batch. The cell after yours has both ways of parsing.
#
# **Your turn.** `center` subtracts an image's mean from it. Write it for a batch: one line, no loop.


# %%
def center(image):  # [28, 28]
    return image - tf.reduce_mean(image)


def center_batch(images):  # [batch, 28, 28]
    return ...  # your line


# %%
from distlab.turns import lesson12 as turns
from utils.input_pipeline.parsing import augment_batch, parse_batch

center_batch = turns.CENTER.take(center_batch)
pixels = tf.constant(split.images[:128] / 255, tf.float32)
alone, together = np.array([center(image) for image in pixels]), center_batch(pixels)
print("equal to 128 calls of center:", np.allclose(alone, together, atol=1e-5))

png, number = (tf.io.FixedLenFeature([], kind) for kind in ("string", "int64"))


def parse_one(record):  # a call for each record
    found = tf.io.parse_single_example(record, {"image": png, "label": number})
    return tf.io.decode_png(found["image"]), found["label"]


def parse_many(records):  # one call for all; PNGs are still decoded one by one
    found = tf.io.parse_example(records, {"image": png, "label": number})
    return tf.map_fn(tf.io.decode_png, found["image"], fn_output_signature="uint8"), found["label"]


records = next(iter(tf.data.TFRecordDataset(shards.files[0]).batch(128)))
images = np.array([parse_one(record)[0] for record in records])
for batch_of_images in (parse_many(records)[0], parse_batch(records)[0]):  # ours, and utils'
    assert np.array_equal(batch_of_images, images)


# %% tags=["nbval-ignore-output"]
from utils.input_pipeline.ladder import list_files, read_at_once


def interleaved(shards, store=LOCAL, batch=128):
    records = list_files(shards).interleave(lambda f: read_shard(f, store), cycle_length=8)
    return records.map(parse).map(augment).batch(batch)


def vectorized(shards, store=LOCAL, batch=128):
    batches = read_at_once(shards, store).batch(batch)
    return batches.map(parse_batch, 2).map(augment_batch, 2)


def tuned(shards, store=LOCAL, batch=128):
    examples = read_at_once(shards, store).map(parse, 2).cache()
    batches = examples.shuffle(shards.examples).batch(batch, num_parallel_calls=2)
    return batches.map(augment_batch, 2).prefetch(2)


batch_costs = costs_of_stages(vectorized(shards))
for name in ("parse", "augment"):
    one, of_batch = 1e6 * costs[name], 1e6 * batch_costs[f"{name}_batch"]
    print(f"{name:<8} one by one {one:6.1f} µs an image, in batches of 128 {of_batch:6.1f} µs")
maps = costs["parse"] + costs["augment"]
assert maps > 1.2 * (batch_costs["parse_batch"] + batch_costs["augment_batch"])

# %% [markdown]
# The work is the same, the calls are fewer, and the two maps together are cheaper: that's what the cell asserts. In the code, `read_at_once` is the parallel interleave, and `parse_batch` is our `parse_many` that also returns each example's number. `augment_batch` still draws a flip and a shift *for each image*, and moves all columns with one matrix product.
#
# `tuned` adds two more ideas: keep what is the same in every epoch (`cache`), and make the next batches while the step computes (`prefetch`). It caches single examples rather than batches, so that each epoch can shuffle them again.
#
# From `naive` to `tuned` is a ladder of eight variants, each a small change to the one before. The variants in between are in [`utils/input_pipeline/ladder.py`](../utils/input_pipeline/ladder.py), one function of a few lines each. Read them as a diff. `LADDER` holds all eight by name. Speed is worth nothing if examples get lost, so before any timing `count_elements` compares the number, label and pixels (row by row) of everything that an epoch of each variant delivers.
#
# ### The ladder on the local disk
#
# We measure images per second after the first epoch, all variants in turn, and then once more. The limit is the same loop over one batch that is ready.
#
# **Predict.** How many times as fast as naive is tuned? A hint: which of the bars above, read, parse and augment, does a tuned epoch still have to pay for?

# %%
from distlab.explorables import guess_number

my_guess = guess_number("Tuned over naive", 1, 100, "x", log=True)
my_guess

# %%
from utils.input_pipeline.ladder import LADDER
from utils.input_pipeline.measuring import count_elements

by_hand = {"naive": naive, "interleave": interleaved, "vectorized map": vectorized, "tuned": tuned}
variants = {**LADDER, **by_hand}
wanted = count_elements(naive(shards))
for name, make in variants.items():
    dataset = as_written(make(shards))
    assert count_elements(dataset) == wanted and count_elements(dataset) == wanted, name
print(len(wanted), "examples, each once, in two epochs each of:", ", ".join(variants))

# %% tags=["nbval-ignore-output"]
from distlab.exercises.predict import show_guess

datasets = {name: as_written(make(shards)) for name, make in variants.items()}
datasets["limit: ready tensors"] = ready
local = measure_rates(datasets, rounds=2)
show_guess(my_guess, local.median("tuned") / local.median("naive"), unit="×")
title = "Images per second after the first epoch, local disk"
marks = {"log": True, "highlight": "tuned"}
figures.show(figures.bars(local.medians(), unit="images/s", title=title, **marks))
assert local.processor_ratio("vectorized map", "naive") > 1.2
assert local.ratio("cache", "vectorized map") > 1.5
assert local.ratio("tuned", "naive") > 2
assert local.ratio("limit: ready tensors", "tuned") > 1
worth = {name: local.median(name) / local.median(before) for before, name in pairwise(LADDER)}
print("each bar over the one above it:", ", ".join(f"{n} ×{r:.1f}" for n, r in worth.items()))
print("largest gain in this run:", max(worth, key=worth.get))

# %% [markdown]
# Why this factor? A tuned epoch neither reads nor parses, so only augment and batch are left of the four costs above. And augment is now *called* once for 128 images: the work on each image stays, the price of 127 calls is gone. If you guessed 2 or 3, you may have counted the cache and forgotten the calls.
#
# (Mind the scale: it's logarithmic, so a bar twice as long is far more than twice the rate. Read the numbers.) The line below the picture divides each bar by the one above it. Why does a line of code help, or not?
#
# - **Reading in parallel** hides waiting. A fast local disk leaves little to hide, and threads cost time too.
# - **Parallel maps** need spare cores. On two cores, passing a small image to another thread can cost as much as it saves.
# - **Whole batches** replace 128 calls with one.
# - **The cache** skips reading and decoding. Work you skip is free.
# - **Prefetch** overlaps making a batch with whatever the loop does. This loop has no step, so the bar says little about training; the time line below says more.
# - **`tuned`** pays for a new order of the examples in each epoch, so it may well come out slower than `cache`, which repeats the same batches forever. For training, the new order is worth it.
#
# Only compare bars within one picture, since those were measured in turn. From cell to cell even the naive rate changes, with whatever else the computer is doing.
#
# ### A slow store
#
# Data often sits behind a network. `SLOW` emulates that: each shard answers 50 ms after it is opened, then takes 20 ms for each block of 128 records. The delays are real, and while one request waits, others can continue. The pipelines are the same. First we read one shard alone, then we run five of the variants:

# %% tags=["nbval-ignore-output"]
from utils.input_pipeline import SLOW

one_shard = as_written(read_shard(shards.files[0], SLOW))
count_all = tf.function(lambda: one_shard.reduce(0, lambda so_far, record: so_far + 1))
count_all()  # built once, unmeasured
with Stopwatch() as watch:
    count = int(count_all())
least = SLOW.wait_seconds(count)
print(f"{count} records: {watch.seconds * 1e3:.0f} ms, of which {least * 1e3:.0f} ms waiting")
assert count == 500 and watch.seconds >= least
chosen = ("naive", "interleave", "parallel interleave", "vectorized map", "tuned")
slow = measure_rates({n: as_written(variants[n](shards, SLOW)) for n in chosen}, rounds=2)
title = "Images per second after the first epoch, slow store"
figures.show(figures.bars(slow.medians(), unit="images/s", title=title, **marks))
at_most = len(split) / (8 * SLOW.wait_seconds(500))  # images a second, waits one after another
assert max(slow.by_name["naive"]) < at_most and max(slow.by_name["interleave"]) < at_most
assert slow.median("tuned") > at_most and slow.ratio("tuned", "naive") > 2
print(
    f"one request at a time gives {at_most:,.0f} images/s at most, tuned {slow.median('tuned'):,.0f}"
)

# %% [markdown]
# Interleaving alone still waits for one request at a time. In the parallel interleave eight requests wait together: compare these two bars. (`tuned` doesn't touch the store after its first epoch, so its bar says nothing about reading.) On the local disk there was hardly anything to wait for. The same line of code can be worth nothing on one machine and a lot on another, so measure where the job will run.
#
# ## Who waits for whom
#
# Next we draw a time line of the first eight batches. The times come from inside the pipeline: every map reads the clock before and after its work, and so does the reader around each request. The step is a sleep of 20 ms, as if an accelerator were computing. When several reads overlap, each gets its own lane: `read 2`, `read 3` and so on.

# %% tags=["nbval-ignore-output"]
from utils.input_pipeline.trace import timeline_rows, trace

stages = ["read", "parse", "parse_batch", "augment", "augment_batch", "wait", "step"]
spans = {
    name: trace(variants[name](shards, SLOW, batch=64), steps=8, step_seconds=0.02)
    for name in ("naive", "prefetch")
}
for name, found in spans.items():
    title = f"{name}: 8 batches of 64 from the slow store"
    figures.show(figures.timeline(timeline_rows(found, stages), title=title, unit="ms"))


def waited(found):
    """Return the seconds that the loop waited after the first batch."""
    return sum([span.seconds for span in found if span.stage == "wait"][1:])


assert waited(spans["prefetch"]) < waited(spans["naive"])
for name, found in spans.items():
    print(f"{name}: the loop waited {1e3 * waited(found):.0f} ms after the first batch")

# %% [markdown]
# In the naive pipeline only one thing happens at a time. (Records alternate so fast that the picture joins their bars, so read, parse and augment seem to overlap.) The step doesn't overlap with them: it stands still while they work. In the second picture, the long first wait is the start: the pipeline is built, and eight shards are opened at once. After that, whole batches are made *ahead*, while a step runs, and the loop waits less. This pipeline opens its shards in the first epoch only, because it has a cache. Without one, the start would be paid in every epoch. With only eight batches it can cost more than the rest saves, so don't compare where the two pictures end. Compare the printed waits after the first batch.
#
# Those clocks were ours. TensorFlow has its own profiler, which needs no change to the pipeline: start it, name the steps, stop it. It writes a file that TensorBoard's profile plugin draws. We only add up the events by name, for one epoch of training on the naive pipeline from the local disk.

# %% tags=["nbval-ignore-output"]
from distlab.lessons.profiles import add_up_profile

with tempfile.TemporaryDirectory() as logs:
    tf.profiler.experimental.start(logs)
    for number, batch in enumerate(plain):
        with tf.profiler.experimental.Trace("step", step_num=number, _r=1):
            train_step(*batch)
    tf.profiler.experimental.stop()
    events = add_up_profile(logs)
stages = [name for name in events if name.startswith("Iterator::Root::") and "[" not in name]
for name in ["step", *sorted(stages, key=len)]:
    print(f"{1e3 * events[name]:8.1f} ms  {name}")
assert stages and events["step"] > 0

# %% [markdown]
# Below `step`, each longer name runs inside the one above it, and the difference between two lines is what a stage costs. The step is the training; everything under `Iterator` is input. In the first picture parse and augment cost most. If they cost nearly the same, the profiler may put them in the other order.
#
# **A good place for a break.** When you come back, run all cells above once.
#
# ## AUTOTUNE, and when it doesn't help
#
# Write `tf.data.AUTOTUNE` in place of a number, and TensorFlow chooses it while the pipeline runs. By default TensorFlow goes further: it makes stateless maps parallel (`parse`, but not `augment`, which draws random numbers) and fuses maps with the batch, even in a pipeline written naively. `as_written` switched that off, so that each line showed its own effect:
#
# ```python
# options = tf.data.Options()
# options.autotune.enabled = False
# options.experimental_optimization.apply_default_optimizations = False
# dataset = dataset.with_options(options)
# ```
#
# In your own program these defaults are on.

# %% tags=["nbval-ignore-output"]
from utils.input_pipeline.ladder import autotuned

auto = {
    "naive, as written": as_written(naive(shards)),
    "naive, by default": naive(shards),
    "AUTOTUNE everywhere": autotuned(shards),
    "vectorized map": as_written(vectorized(shards)),
}
for name in ("naive, by default", "AUTOTUNE everywhere"):  # the others were counted above
    assert count_elements(auto[name]) == wanted
rates = measure_rates(auto, rounds=2)
title = "Images per second, without a cache"
figures.show(figures.bars(rates.medians(), unit="images/s", title=title))
gain = rates.processor_ratio("vectorized map", "naive, as written")
print(f"an image costs the processor {gain:.1f} times less in the vectorized map than naively")
assert gain > 1.2

# %% [markdown]
# AUTOTUNE chooses how many calls run at once and how much is buffered. It doesn't batch before the map, it doesn't place a cache, and it can't turn two cores into four. With many cores and heavy maps it has most to gain. On two cores noise can swap these bars, so run the cell again before you believe an order. `options.autotune.ram_budget` and `options.threading.private_threadpool_size` limit the memory and the threads it may use.
#
# ## Shuffling: how well?
#
# `shuffle(n)` holds n examples and passes on one of them at random. An example can be delayed for as long as chance allows, but it can't come out more than n places early. So a small buffer leaves sorted data nearly sorted. To see it, we sort the examples by label first, as many data sets come: all of one class, then all of the next.

# %%
from utils.input_pipeline.measuring import classes_per_batch, shuffle_quality

by_label = np.argsort(split.labels, kind="stable")  # [place] -> example
print("buffer   quality   classes in a batch of 128")
for buffer in (1, 128, 1000, 4000):
    places = tf.data.Dataset.range(4000).shuffle(buffer, seed=0)
    order = next(places.batch(4000).as_numpy_iterator())
    classes = classes_per_batch(split.labels[by_label][order], 128)
    print(f"{buffer:>6}{shuffle_quality(order):>10.2f}{classes:>20.1f}")

# %% [markdown]
# Quality is how far examples move, compared with a perfect shuffle: 0 is the old order, 1 is as good as random. A batch of 128 should hold all ten classes. With a buffer of 128 it holds two or three. If the whole set doesn't fit into the buffer, shuffle the *files* as well, and interleave: that mixes over long distances and holds almost nothing in memory.
#
# ## Where to put the cache
#
# **Predict.** An image has 10 augmented versions: flipped or not, shifted by -2 to 2 columns. With the cache *after* augmentation, how many versions of an image does the model see in five epochs?

# %%
my_guess = guess_number("Versions seen, cache after augmentation", 0, 10, step=0.5)
my_guess


# %%
def versions_seen(dataset, epochs=5):
    """Return the mean number of different versions of an image after `epochs` epochs."""
    seen = {}
    for _ in range(epochs):
        for images, _, ids in dataset.as_numpy_iterator():
            for image, number in zip(images, ids):
                seen.setdefault(number, set()).add(image.tobytes())
    return float(np.mean([len(each) for each in seen.values()]))


parsed = tf.data.TFRecordDataset(shards.files[0]).batch(100).map(parse_batch)
after = versions_seen(as_written(parsed.map(augment_batch).cache()))
before = versions_seen(as_written(parsed.cache().map(augment_batch)))
show_guess(my_guess, after)
print("cache before augmentation:", before)
assert after == before == 1

# %% [markdown]
# One version, both times. With the cache after augmentation, the cache kept the first epoch's flips and shifts, and nothing warns you.
#
# But *before*? There the cache is innocent. The set-up cell called `set_seeds(0)`, and with a global seed `tf.random.uniform` inside a map starts from the same seed in every epoch: the same flips again. Plenty of scripts set a seed like this. There are two ways out. A `tf.random.Generator` keeps its state from epoch to epoch, and is just as reproducible. A shuffle before the map, as in `tuned`, helps too: the random numbers are the same, but each goes to another image. (Five draws from ten versions give 4.1 different ones on average.)
#
# **Your turn.** So the order of the stages matters. Give 48 numbers, which are slow to read, a cache, a shuffle of 48 and batches of 4: read once, and in every epoch other batches.


# %%
def cached(numbers):
    return ...  # numbers, then three stages in the right order


# %%
cached = turns.CACHED.take(cached)
again = cached(tf.data.Dataset.range(48))
first, second = ([batch.tolist() for batch in again.as_numpy_iterator()] for _ in range(2))
print("your two epochs, in the same batches:", first == second)
generator = tf.random.Generator.from_seed(0)


def flip_batch(images, labels, ids):
    """Flip each image or not, drawn from a generator that keeps its state from epoch to epoch."""
    seed = generator.make_seeds(1)[:, 0]
    flip = tf.random.stateless_uniform([tf.shape(images)[0], 1, 1, 1], seed) < 0.5
    return tf.where(flip, tf.reverse(images, axis=[2]), images), labels, ids


flips = versions_seen(as_written(parsed.cache().map(flip_batch)))
dealt = parsed.unbatch().cache().shuffle(500, seed=0).batch(100).map(augment_batch)
dealt = versions_seen(as_written(dealt))
print(f"with a generator, of 2 versions: {flips:.1f}")
print(f"with a shuffle, of 10 versions: {dealt:.1f}")
assert flips > 1.8 and dealt > 3

# %% [markdown]
# Three rules. Put the cache after the last stage that gives the same result each time. Shuffle after the cache, or the order is frozen too. And look at the second epoch, not only the first. A cache after augmentation would also take four times the memory, since pixels are float32 there and uint8 before.
#
# ## The mistake: cache, then take
#
# To try something out, you take a few examples of a cached dataset. Does the cache work? A counter in the map shows how often parsing runs in two epochs of 100 examples.

# %%
calls, parses = tf.Variable(0), {}


def counted(record):
    calls.assign_add(1)
    return parse(record)


records = tf.data.TFRecordDataset(list(shards.files))
for name, dataset in {
    "cache().take(100)": records.map(counted).cache().take(100),
    "take(100).cache()": records.map(counted).take(100).cache(),
}.items():
    calls.assign(0)
    epochs = [len(list(as_written(dataset))) for _ in range(2)]
    parses[name] = int(calls.numpy())
    print(f"{name}: epochs of {epochs}, parsed {parses[name]} times")
assert parses == {"cache().take(100)": 200, "take(100).cache()": 100}

# %% [markdown]
# A cache in memory is used only once it has seen the *end* of its input. `take` stops before that, so what was kept is thrown away and every epoch parses again. The one sign that we saw is a warning in the C++ log. The fix: `take` first, or read the dataset to its end once.
#
# `take` has a second trap. `shuffled.take(100)` for validation and `shuffled.skip(100)` for training looks fine. Count what the two share.
#
# **Your turn.** Cut 1,000 numbers into 100 for validation and 900 for training, which must be shuffled, so that they share nothing.


# %%
def cut(numbers):
    return ...  # two datasets: validation, training


# %%
def shared(validation, training):
    return len({*validation.as_numpy_iterator()} & {*training.as_numpy_iterator()})


cut, numbers = turns.CUT.take(cut), tf.data.Dataset.range(1000)
shuffled = numbers.shuffle(1000, seed=0)
wrong = shared(shuffled.take(100), shuffled.skip(100))
print(
    "of 100 validation examples, trained on as well:",
    wrong,
    "and by your cut",
    shared(*cut(numbers)),
)
assert wrong > 50

# %% [markdown]
# `shuffle` draws a new order each time it is iterated, so `take` and `skip` cut two different orders. Most of the validation examples are in the training set, and the score looks better than it is. Split first, by file or by number; then shuffle the training part alone.
#
# ## Larger than memory
#
# A pipeline without a cache holds only what its buffers hold, so the data may be larger than memory. Here are the same shards listed 25 times over: 100,000 images, 299 MiB as float32 tensors. How much does the memory of this process grow while they stream through?

# %% tags=["nbval-ignore-output"]
from utils.measure import format_bytes

large = shards.repeat(25)
process, sizes, images = psutil.Process(), [], 0
batches = iter(as_written(vectorized(large)).prefetch(2))
next(batches)
before = process.memory_info().rss
for step, (batch, _, _) in enumerate(batches):
    images += len(batch)
    if step % 20 == 0:
        sizes.append(process.memory_info().rss - before)
whole = large.examples * 28 * 28 * 4
print(f"all images: {format_bytes(whole)}; streaming took {format_bytes(max(0, *sizes))} more")
assert images > 99_000 and max(sizes) < whole / 2

# %% [markdown]
# Three things would hold the whole set: a cache, a shuffle buffer as long as the set, and a list of all batches. `tuned` has the first two, so it is for data that fits. For a set beyond memory, give `cache` a file name on a fast disk, shuffle the files and then use a buffer of a few thousand, and skip the list.
#
# ## The same through `utils`
#
# First your four pipelines, compared with the ladder's on 1,000 images. Then `tune`, which looks for such settings automatically: it takes the naive chain apart, tries one change after another against the best so far, and prints the code. In a shell that's `distlab tune-input my_input:make_dataset --step-ms 5`. Read its report in this order:
#
# 1. *Ready tensors* at the top shows how far the pipeline is from the limit.
# 2. The bottom is a pipeline to copy. Read the warning above it, if there is one. If the cache holds whole batches, the same examples stay together in every epoch. To train, cache single examples, then `shuffle`, then `batch`, as in `tuned`.
# 3. In between are the costs of the stages and the changes it tried: a change that made it at least 5 % faster "stays", any other "goes". Seven seconds may be too short for all of them, and then the report says so. For your own job leave `seconds` at its 20, or raise it.
#
# The last line compares the bottleneck it found with the tallest bar of your first picture. If they differ, look at the numbers: parse and augment often cost nearly the same, and then either can come out on top.

# %% tags=["nbval-ignore-output"]
from utils.input_pipeline import tune
from utils.input_pipeline.measuring import ids_of

few = write_shards(split.take(1000), f"{folder.name}/few", shards=8)
for name, make in by_hand.items():
    ours, theirs = (ids_of(as_written(m(few))) for m in (make, LADDER[name]))
    assert sorted(sum(ours, [])) == sorted(sum(theirs, [])) and (ours == theirs or name == "tuned")
report = tune(lambda: naive(shards), seconds=7)
print(report)
print(f"the bottleneck: {report.bottleneck}; the tallest bar above: {slowest}")
assert count_elements(rebuild(take_apart(naive(shards)), report.settings)) == wanted

# %% [markdown]
# ## What it costs

# %% tags=["nbval-ignore-output"]
pixels = shards.examples * 28 * 28
print(f"shards on disk          {format_bytes(shards.bytes)}")
print(f"cache of parsed images  {format_bytes(pixels)}   (uint8; so is a shuffle buffer)")
print(f"cache of augmented ones {format_bytes(4 * pixels)}   (float32: four times as much)")
print(f"prefetch of 2 batches   {format_bytes(2 * 128 * 28 * 28 * 4)}")
naive_seconds, tuned_seconds = (shards.examples / local.first(n) for n in ("naive", "tuned"))
print(f"first epoch             {naive_seconds:.2f} s naive, {tuned_seconds:.2f} s tuned")
assert shards.bytes < 4 * pixels

# %% [markdown]
# The first epoch of the tuned pipeline still reads and parses everything: it fills the cache. If you pass over a large set only once, a cache is pure cost. Whole batches, parallel reading and prefetch are what's left then.
#
# This is the end of the core. Take a break if you like.
#
# ## And then: what if?
#
# The conveyor is back. This time it's your naive pipeline, with the costs that you measured and the slow store. A box is 16 images, and a batch is 8 boxes. The model behind it knows only who waits for whom ([`utils/simulate/input.py`](../utils/simulate/input.py)); there is no measurement in it apart from yours. Press Play, then move the controls:
#
# 1. Raise *Prefetch* first. Which buffer stays empty, and why?
# 2. Raise the files read at once until reading is no longer the bottleneck. Which stage is next?
# 3. More calls than cores: does it help? And how large must a prefetch be once reads have *jitter* (under *More*)?

# %% tags=["nbval-ignore-output"]
wait = SLOW.wait_seconds(500) / 500  # seconds for each image of a shard
conveyor(InputCosts(wait, costs["parse"], costs["augment"]), step_seconds=0.005)

# %% [markdown]
# ## And then: the order of parallel stages
#
# By default a parallel stage passes on its results in order, and waits for a late one. With `deterministic = False` it passes on whatever is ready. A late shard then holds nothing up, but two epochs may come in different orders.

# %% tags=["nbval-ignore-output"]
loose = tf.data.Options()
loose.deterministic = False
strict = LADDER["vectorized map"](shards, SLOW)
ordered = [sum(ids_of(strict), []) for _ in range(2)]  # two epochs
free = [sum(ids_of(strict.with_options(loose)), []) for _ in range(2)]
print("two epochs in the same order, deterministic = False:", free[0] == free[1])
print("two epochs in the same order, by default:            ", ordered[0] == ordered[1])
assert ordered[0] == ordered[1] and sorted(free[0]) == sorted(ordered[0])

# %% [markdown]
# ## On a real GPU
#
# The step gets faster and the processor that feeds it doesn't, so the wait grows. Put the milliseconds of your own step in place of 5:
#
#     distlab tune-input my_input:make_dataset --step-ms 5
#
# Divide *ready tensors* by *as written*: a better input alone can't speed up your training by more than that factor.
#
# ## Cheat sheet
#
# You bring the file `names`, `parse` (one record to an example) and `augment_batch` (random changes to a whole batch):
#
# ```python
# files = tf.data.Dataset.from_tensor_slices(names).shuffle(len(names), seed=0)
# records = files.interleave(tf.data.TFRecordDataset, cycle_length=8, num_parallel_calls=8)
# examples = records.map(parse, tf.data.AUTOTUNE).cache()  # same every epoch: cache it (uint8)
# batches = examples.shuffle(10_000, seed=0).batch(128)  # shuffle examples, after the cache
# batches = batches.map(augment_batch, tf.data.AUTOTUNE)  # random: after the cache
# dataset = batches.prefetch(2)  # always last
# ```
#
# The seeds matter as soon as several workers run this pipeline: without one, each shuffles differently and cuts its part from another order. We ran such a pipeline on two workers with 64 examples, without seeds and under the policy DATA: 15 examples came twice, and 15 never. [Lesson 13](13-distributed-input.ipynb) shows how to count that.
#
# **Recap**
#
# - Every variant delivered each example once: counted, not assumed.
# - Timing the chain up to each stage found the two expensive ones, parse and augment.
# - `tuned` ran at more than twice the naive rate, from the local disk and from the slow store.
# - A cache in the wrong place, or a global seed, froze the augmentation, and no error said so.
# - Ready tensors are the limit; `tune` shows how far away you are.
#
# ## Further reading
#
# - TensorFlow's guides [Better performance with the tf.data API](https://www.tensorflow.org/guide/data_performance) and [Analyze tf.data performance with the TF Profiler](https://www.tensorflow.org/guide/data_performance_analysis)
# - TensorFlow's tutorial [TFRecord and tf.train.Example](https://www.tensorflow.org/tutorials/load_data/tfrecord)
# - Murray and others, [tf.data: A Machine Learning Data Processing Framework](https://arxiv.org/abs/2101.12127)
#
# ## The lab
#
# You practice this in [lab 11, tf.data](../labs/lab11-tf-data.ipynb): make a slow pipeline fast, graded on the ratio to the naive one in the same run.
