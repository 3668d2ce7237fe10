# %% [markdown] shows="A whole project: decide, measure, plan, run on two workers, lose one, resume, evaluate, report"
# # The capstone: one project, end to end
#
# On Monday someone hands you pictures and asks which pixels show a shirt. Train it on our machines, they say; they go down now and then. What will it cost, and when will it be done? No single trick answers that. You need most of this course at once, in the right order. Here you take such a project from the first picture to a model that other programs can load. The run loses a worker on the way, and you end with a one-page report.
#
# **Time:** 85 minutes · **Prerequisites:** [input pipelines](12-input-pipelines.ipynb), [fault tolerance](10-fault-tolerance.ipynb), [planning](20-planning.ipynb) · **Hardware:** two CPU cores
#
# ## Objectives
#
# - Stream a data set from shards, and build a U-Net that gives every pixel a class.
# - Log each decision before its measurement, and compare the two: input, precision, replicas.
# - Predict the step of two workers, run them, lose one, and resume.
# - Predict a large batch from the exported model while workers die, score the masks, and look at the bad ones.
# - Report what was run, how fast, how good, and what 64 GPUs would cost.

# %%
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
from IPython.display import Markdown

from utils.environment import quiet_tensorflow, set_seeds

with quiet_tensorflow():
    import keras
    import tensorflow as tf
from utils.devices import use_logical_devices

set_seeds(0)
print(use_logical_devices(2))

# %% [markdown]
# ## The task
#
# A scene has 64 by 64 pixels of faint noise. In it lie one to three garments of Fashion-MNIST, one partly over the other. For every pixel we want a class: background, or one of the ten classes of garments. So the label is a picture too, the *mask*. A scene depends only on a seed and its number, and test scenes are made of garments that never occur in training.

# %% tags=["nbval-ignore-output"]
from distlab import figures
from distlab.lessons.capstone import choose_sizes
from distlab.lessons.mask_pictures import draw_key, draw_scenes
from utils.data import load_scenes

sizes = choose_sizes()
scenes = load_scenes(train=sizes.train, test=sizes.test)
images, masks = zip(*(scenes.train.draw(number) for number in range(7)))
figures.show(draw_scenes(images, masks, "Seven scenes, and what each pixel shows"))
figures.show(draw_key())
print(f"{len(scenes.train):,} scenes to train on, {len(scenes.test):,} to test with")
assert images[0].shape == masks[0].shape == (64, 64)

# %% [markdown]
# How good must it be? *Accuracy* would flatter us: most pixels are background. We use intersection over union, IoU: of all pixels that are a shirt in the mask or in the prediction, the part that is a shirt in both. The model has to reach two numbers on test scenes: 0.95 for any garment against the background, and 0.50 on average over the ten kinds.
#
# Before you train anything, ask what no training at all would get. The noise is dark, so call every pixel that is brighter a garment.

# %%
from utils.data.masks import count_pixels, score_masks
from utils.data.scenes import MAX_NOISE

pictures, truth = (np.stack(part) for part in zip(*scenes.test.take(60)))
bright = score_masks(count_pixels(truth, pictures >= MAX_NOISE))
print(f"one comparison finds the foreground with an IoU of {bright.foreground:.2f}")
print(f"as a guess of the class it's worth {bright.garments:.2f}")

# %% [markdown]
# So the outlines are the easy number, and the classes are what the network is for. Don't expect it to beat the comparison at outlines, though. It must choose one of eleven classes, and where it hesitates between a shirt, a coat and a pullover, each of them can come out less likely than the background. A good network ends a little below the comparison. One that ends far below it has a bug.
#
# A logbook keeps us honest. `decide` writes down a choice and the reason, `measure` what came out, and it refuses to measure what was never decided.

# %%
from distlab.lessons.logbook import Logbook

book = Logbook()
book.decide("storage", "8 TFRecord shards of PNGs", "streamed, they never have to fit in memory")

# %% [markdown]
# ## Feed it
#
# The scenes are drawn one at a time and written to shards, an image and a mask in each record.

# %% tags=["nbval-ignore-output"]
from utils.input_pipeline.scenes import write_scenes
from utils.measure import format_bytes

home = Path("runs/lesson22")
shutil.rmtree(home, ignore_errors=True)  # what an earlier run left
shards = write_scenes(scenes.train, home / "shards", shards=8)
unpacked = 2 * 64 * 64 * shards.examples
book.measure("storage", f"{format_bytes(shards.bytes)} on disk, {format_bytes(unpacked)} unpacked")
assert shards.bytes < unpacked

# %% [markdown]
# The naive pipeline of [lesson 12](12-input-pipelines.ipynb) reads one shard after another and parses one record after another. Below it is the other one: batch first, then parse whole batches, two at a time, and keep two batches ready. It shuffles the records while they're still small.


# %%
from distlab.lessons.capstone import GLOBAL_BATCH_SIZE
from utils.input_pipeline.scenes import parse_scene, parse_scene_batch


def feed_naively(batch=GLOBAL_BATCH_SIZE):
    files = tf.data.Dataset.from_tensor_slices(list(shards.files))
    return files.flat_map(tf.data.TFRecordDataset).map(parse_scene).batch(batch)


def feed(batch=GLOBAL_BATCH_SIZE, seed=0):
    files = tf.data.Dataset.from_tensor_slices(list(shards.files))
    records = files.interleave(tf.data.TFRecordDataset, cycle_length=8, num_parallel_calls=2)
    records = records.shuffle(1024, seed=seed).batch(batch, drop_remainder=True)
    return records.map(parse_scene_batch, num_parallel_calls=2).prefetch(2)


numbers = np.concatenate([ids for _, _, ids in feed(batch=20)])
assert np.array_equal(np.sort(numbers), np.arange(len(numbers)))  # each once
print("each scene once, in a new order:", not np.array_equal(numbers, np.sort(numbers)))

# %% [markdown]
# ## The model
#
# A U-Net goes down and up again. On the way down, convolutions and pooling trade pixels for channels: 32 by 32 with 16 channels becomes 4 by 4 with 128, and there one number can know about a whole garment. On the way up, transposed convolutions bring the size back. What gives it its name are the connections across: at each size the way up also gets what the way down had there, so that edges stay sharp.
#
# Four details decide how fast it learns. The first convolution has stride 2: all but the last layers work on a quarter of the pixels, with a quarter of the arithmetic. That loses the exact edges, so the last layer also gets the scene itself, sharpened: `tanh` of 32 times the brightness minus 3 is below 0 for noise and close to 1 for nearly all that garments show. `Rescaling`, `he_normal` and `elu` keep the numbers in all of these layers at a size of about 1. And the bias of the last layer starts where most pixels are background, so that the first hundred steps aren't spent on finding that out.


# %%
from utils.models import build_unet


def convolve(x, width):
    for _ in range(2):
        x = keras.layers.Conv2D(
            width, 3, padding="same", activation="elu", kernel_initializer="he_normal"
        )(x)
    return x


def build_my_unet(widths=(16, 32, 64, 128)):
    inputs = keras.Input((64, 64, 1))
    scaled = keras.layers.Rescaling(4.0, -0.5)(inputs)
    x = keras.layers.Conv2D(widths[0], 2, strides=2)(scaled)
    across = []
    for width in widths[:-1]:
        across.append(convolve(x, width))
        x = keras.layers.MaxPooling2D()(across[-1])
    x = convolve(x, widths[-1])
    for width, kept in zip(widths[-2::-1], across[::-1]):
        x = keras.layers.Conv2DTranspose(width, 2, strides=2)(x)
        x = convolve(keras.layers.Concatenate()([kept, x]), width)
    x = keras.layers.Conv2DTranspose(widths[0], 2, strides=2, activation="elu")(x)
    sharp = keras.layers.Activation("tanh")(keras.layers.Rescaling(32.0, -3.0)(inputs))
    x = keras.layers.Concatenate()([sharp, x])
    most = keras.initializers.Constant([4.0] + 10 * [0.0])  # most pixels are background
    return keras.Model(inputs, keras.layers.Conv2D(11, 1, bias_initializer=most)(x))  # logits


# %%
mine, ours = build_my_unet(), build_unet()
mine.set_weights(ours.get_weights())
some = tf.constant(images[0][None, ..., None] / np.float32(255))
print(f"{mine.count_params():,} parameters; a scene gives logits of shape", mine(some).shape)
np.testing.assert_allclose(mine(some), ours(some), atol=1e-5)

# %% [markdown]
# `build_unet` of `utils` is the same model with seeded weights.
#
# ## The step, and a baseline
#
# The loss of a scene is the mean over its pixels. The loss of a replica is the sum over its scenes, divided by the *global* batch, because the optimizer adds up the gradients of all replicas. `make_step` takes the strategy and the precision, so that every variant below is the same code.


# %%
def find_losses(masks, logits):
    each = tf.nn.sparse_softmax_cross_entropy_with_logits(masks, logits)  # [batch, 64, 64]
    return tf.reduce_mean(each, axis=[1, 2])  # [batch]


def make_step(strategy, dtype="float32", global_batch_size=GLOBAL_BATCH_SIZE):
    with strategy.scope():
        model, optimizer = build_unet(dtype=dtype), keras.optimizers.Adam(1e-3)
        optimizer.build(model.trainable_variables)

    def replica_step(images, masks):
        with tf.GradientTape() as tape:
            losses = find_losses(masks, model(images, training=True))
            loss = tf.nn.compute_average_loss(losses, global_batch_size=global_batch_size)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    @tf.function
    def step(batch):
        return strategy.reduce("SUM", strategy.run(replica_step, args=batch), axis=None)

    return step


# %% tags=["nbval-ignore-output"]
from utils.measure import time_calls

batch = next(iter(feed().map(lambda i, m, _: (tf.cast(i, "float32") / 255, m))))


def time_step(strategy, batch, **options):
    step = make_step(strategy, **options)
    timing = time_calls(lambda: step(batch).numpy(), repeats=3, warm_up=1)
    return timing.best_seconds, float(step(batch))


one = tf.distribute.OneDeviceStrategy("CPU:0")
book.decide("baseline", "one device, float32, batch 32", "everything else is compared with it")
one_seconds, one_loss = time_step(one, batch)
rate = GLOBAL_BATCH_SIZE / one_seconds
book.measure("baseline", f"{one_seconds:.2f} s a step, {rate:.0f} scenes a second")
assert one_loss < np.log(11)  # it learns: below the loss of a guess

# %% [markdown]
# The pipeline has to deliver as many scenes per second as the step takes in.
#
# **Predict.** The naive pipeline alone, without a step: how many times as many scenes per second does it deliver?

# %%
from distlab.explorables import guess_number

my_guess = guess_number("Naive pipeline over the step", 0.1, 1000, "x", log=True)
my_guess

# %% tags=["nbval-ignore-output"] seconds=400
from distlab.exercises.predict import show_guess
from utils.input_pipeline import tune

book.decide("input", "batch first, two calls at once, prefetch", "two cores, and lesson 12")
found = tune(feed_naively, step_seconds=one_seconds, seconds=sizes.tune_seconds)
costs = {cost.name: 1e6 * cost.seconds_per_image for cost in found.costs}
show_guess(my_guess, 1e6 / max(sum(costs.values()), 1) / rate, unit="x")
figures.show(figures.bars(costs, unit="µs", title="Processor time of one scene in each stage"))
book.measure("input", f"the bottleneck is {found.bottleneck}")
assert found.limit > 0 and costs

# %% [markdown]
# Why so many? A scene costs the pipeline about a hundred microseconds, and the step a few hundred million FLOPs. `tune` put the step behind the pipeline as a pause. We measured the first form only. Read its bottleneck: if it's the step, every further hour spent on this pipeline is wasted here. On a GPU the step may be a hundred times as fast, and then the same pipeline would be too slow. That's why the second form goes into the program.
#
# ## Mixed precision or not
#
# On a GPU, half precision pays. On your processor?

# %% tags=["nbval-ignore-output"] seconds=400
book.decide("precision", "float32", "on a CPU, bfloat16 gets bias gradients wrong (lesson 18)")
few = tuple(part[:4] for part in batch)  # it may be slow here
full_seconds, full_loss = time_step(one, few, global_batch_size=4)
half_seconds, half_loss = time_step(one, few, global_batch_size=4, dtype="mixed_bfloat16")
ratio = half_seconds / full_seconds
book.measure("precision", f"a step of 4 scenes in bfloat16 takes {ratio:.1f} times as long")
print(f"loss after five steps: {full_loss:.3f} in float32, {half_loss:.3f} in bfloat16")
assert abs(half_loss - full_loss) < 0.2

# %% [markdown]
# The losses are close, but that says little. These are five steps with four scenes, and Adam hides a wrong gradient: it divides by the gradient's own size. So we compared the gradients of this U-Net with float32's, one variable at a time. The kernels are off by 0.1 to 8 %, but 12 of the 20 biases by more than 30 %, half of all biases by 56 % or more, and the worst by 188 %. It's the CPU kernel of [lesson 18](18-precision-and-memory.ipynb), which adds up bias gradients in 16 bits. Compiled with XLA, all 20 are within 1 %. So on a CPU, float32 is the choice, whatever the clock says. On a GPU or TPU with bfloat16, time the step and check a gradient again.
#
# ## Replicas
#
# Does a second replica pay on the same cores?

# %% tags=["nbval-ignore-output"] seconds=400
book.decide("replicas", "none on one machine without GPUs", "two replicas share the same cores")
together = tf.distribute.ReductionToOneDevice()
two = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], cross_device_ops=together)
parts = two.experimental_distribute_dataset(tf.data.Dataset.from_tensors(batch))
two_seconds, two_loss = time_step(two, next(iter(parts)))
book.measure("replicas", f"two replicas take {two_seconds / one_seconds:.2f} times as long")
print(f"loss after five steps: {one_loss:.4f} on one, {two_loss:.4f} on two replicas of 16")
assert abs(two_loss - one_loss) < 0.05

# %% [markdown]
# Half the batch on each of two replicas gives the same loss, so the scaling is right. But both replicas compute on the same cores. If two of them were quicker, one replica had left a core partly idle. Don't carry this ratio over to two workers: they're separate processes, and the calibration below measures them. With two GPUs you'd repeat exactly this cell.
#
# ## The plan
#
# The run will have two workers of 16 scenes each. `calibrate` measures the step of one process, of two that compute at the same time, and the all-reduce between them. From that, `predict_local` says what a step of the real program will take. A checkpoint costs time as well, and how often a machine goes down decides how often to save. Suppose one of ours fails every half hour.

# %% tags=["nbval-ignore-output"] seconds=900
from utils.calibrate import calibrate, predict_local
from utils.cluster import make_launcher
from utils.simulate.failures import young_interval_seconds

launcher = make_launcher()
profile = calibrate("unet", batch=sizes.measured_batch, launcher=launcher)
predicted = predict_local(profile.local, workers=2) * GLOBAL_BATCH_SIZE / 2 / profile.batch
save_seconds = profile.checkpoint_seconds
interval = young_interval_seconds(save_seconds, mtbf_seconds=1800)
reason = f"calibrated; {sizes.steps} steps would take {sizes.steps * predicted / 60:.1f} minutes"
book.decide("two workers", f"{predicted:.2f} s a step", reason)
best = f"after Young, a save of {save_seconds:.2f} s pays every {interval / predicted:.0f} steps"
book.decide("checkpoints", f"every {sizes.every} steps", f"{best}; we lose little and see more")
assert profile.gradient_bytes == 4 * mine.count_params()

# %% [markdown]
# The prediction is in the book. Now we can't adjust it any more.
#
# `predict_local` knows that all workers share this machine's cores. `distlab plan` takes the same profile to machines that don't. (With `--builtin-model unet` it calibrates automatically.) This is what it says of two devices like ours that share one batch of that size:

# %% tags=["nbval-ignore-output"]
(home / "profile.json").write_text(json.dumps(profile.to_dict()))
words = f"plan --profile {home}/profile.json --devices 1,2 --scaling strong"
ended = subprocess.run([sys.executable, "-m", "distlab", *words.split()], stdout=subprocess.PIPE)
print(ended.stdout.decode())
assert ended.returncode == 0

# %% [markdown]
# ## The run
#
# The whole job as one program is [examples/capstone.py](../examples/capstone.py): plain TensorFlow, fewer than 300 lines, none of our code. It draws the scenes, trains, saves, resumes, evaluates and exports. Adam's rate rises over the first steps and then falls along a cosine, as in [lesson 17](17-large-batch-training.ipynb). It follows the optimizer's own count of steps. That count is in the checkpoint, so a resumed run continues where the curve was. One detail cost us a long search: all epochs are concatenated into one data set, with one iterator. An iterator that ends waits for tf.data's tuning thread. That thread sleeps between its rounds, longer each time: after six seconds of reading, we waited 4.3 s for it. With an iterator for each epoch, both workers stood still for many seconds after every epoch. Read the program now. In a shell you would start it like this:
#
# ```
# distlab run --workers 2 --max-restarts 1 examples/capstone.py --output runs/lesson22/run --epochs 8 --checkpoint-every 40 --seed 0
# ```
#
# `run_and_kill` does just that, and when the program reports a certain step it kills worker 1 with SIGKILL. This is the one full training of this lesson. The plan's minutes cover the steps alone: starting twice, scoring and exporting come on top.
#
# **Predict.** A third of the way through, worker 1 is killed. How many seconds pass until the next step is reported?

# %%
my_guess = guess_number("Seconds until the next step", 0, 120, "s")
my_guess

# %% tags=["nbval-ignore-output"] seconds=2400
from distlab.lessons.killed_run import run_and_kill

out = home / "run"
job = {"output": out, "epochs": sizes.epochs, "scenes": sizes.train, "seed": 0}
job["checkpoint-every"] = sizes.every
words = [word for name, value in job.items() for word in (f"--{name}", str(value))]
run = run_and_kill([sys.executable, "../examples/capstone.py", *words], sizes.steps // 3)
show_guess(my_guess, run.restart_seconds, unit=" s")
figures.show(run.picture())
print("\n".join(run.said))
report = json.loads((out / "report.json").read_text())
assert report["steps"] == sizes.steps and run.report.restarts == 1
assert report["loss"] < np.log(11)  # better than a guess

# %% [markdown]
# The curve breaks off, the clock runs on while both workers start again, and then the loss continues where the last checkpoint left it. Nobody had to do anything. At most the steps between two checkpoints were trained twice.
#
# What did the kill cost, and what would have made it cheaper? The first row below is the log of the run. The second is calculated from it with your choices, and the third without a kill.

# %% tags=["nbval-ignore-output"]
from distlab.explorables.run_log import run_explorer

run_explorer(run, sizes.every, save_seconds)

# %% [markdown]
# A checkpoint limits the red stretch, but every save makes the blue ones longer. The gray one is the launcher and TensorFlow starting, and no checkpoint makes it shorter.
#
# ## The prediction and the measurement

# %% tags=["nbval-ignore-output"]
seconds = {"predicted": predicted, "measured": run.step_seconds}
figures.show(figures.bars(seconds, unit="s", title="A step of two workers, 16 scenes each"))
error = predicted / run.step_seconds - 1
book.measure("two workers", f"{run.step_seconds:.2f} s a step: {error:+.0%}")
book.measure("checkpoints", f"{run.lost_steps} steps were trained twice")
assert 0.1 < predicted / run.step_seconds < 10 and run.lost_steps <= sizes.every

# %% [markdown]
# If the error is large, something else was busy during one of the two measurements, or the program does what the calibration didn't: reading shards, writing its log, saving. In the stored run the step took about a tenth longer than predicted.
#
# ## How good is it?
#
# The run left a SavedModel, which doesn't need our code. Now predict the masks of all test scenes. No scene needs another one, so the workers need no cluster: these are [lesson 21](21-choosing.ipynb)'s independent jobs. The scenes go into twelve files, and two workers of [batch_prediction.py](../examples/batch_prediction.py) claim one file after the other. A row of a million is easily lost, and nobody would notice. So the worker that finishes the first file is killed.

# %% tags=["nbval-ignore-output"] seconds=400
from distlab.lessons.killed_run import kill_worker
from utils.engines import RunSettings, run_program

launcher.close()
images, answers = (np.stack(part) for part in zip(*scenes.test.take(len(scenes.test))))
(home / "test").mkdir()
for number, rows in enumerate(np.array_split(images, 12)):
    with tf.io.TFRecordWriter(str(home / f"test/scenes-{number:02}.tfrecord")) as writer:
        for row in rows:
            writer.write(row.tobytes())
said, killed = [], []


def watch(task, line):
    """Kill the worker that says that a file is done, once."""
    if line.startswith("done: ") and not killed:
        killed.append(task)
        kill_worker(int(task.split()[1]))


folders = {"model": out / "saved_model", "shards": home / "test", "output": home / "masks"}
words = [word for name, folder in folders.items() for word in (f"--{name}", str(folder))]
settings = RunSettings(workers=2, independent=True, max_restarts=1)
command = [sys.executable, "../examples/batch_prediction.py", *words]
report = run_program(command, settings, watch, said.append)
print("\n".join(said))
assert report.status == 0 and report.restarts == 1 and len(killed) == 1

# %% [markdown]
# The worker started again alone, and the other one kept working. At most one file was under way in it, and that one was predicted again. `manifest.json` has a note for each file: `output` is its name, `rows` the number of its rows, and `first_row` the number of its first row if you count through all files.
#
# **Your turn.** Find row `number` of the whole: the file's place in `notes`, and the row in that file.


# %%
def find_row(notes, number):  # notes[0]["first_row"] is 0
    return ...  # two numbers


# %% tags=["nbval-ignore-output"]
from distlab.turns import lesson22 as turns
from utils.data.scenes import MASK_CLASS_NAMES

manifest = json.loads((home / "masks/manifest.json").read_text())
notes, last = manifest["shards"], len(scenes.test) - 1
named = np.concatenate([np.load(home / "masks" / note["output"]) for note in notes])
find_row = turns.FIND_ROW.take(find_row)
file, row = find_row(notes, last)
print(f"{manifest['rows']:,} rows; the last one is row {row} of file {file}")
score = score_masks(count_pixels(answers, named))
print(f"IoU: foreground {score.foreground:.3f}, mean of ten garments {score.garments:.3f}")
assert sizes.are_reached(score) and named.shape == answers.shape and not manifest["damaged"]
by_class = dict(zip(MASK_CLASS_NAMES, 100 * np.nan_to_num(score.of_class)))
classes_picture = figures.bars(by_class, unit="%", title="IoU of each class on test scenes")
figures.show(classes_picture)
print(f"the hardest is {min(list(by_class)[1:], key=by_class.get)}")

# %% [markdown]
# ## Look at the masks, good and bad
#
# A mean hides how a model fails. So sort test scenes by their score, and look at both ends.

# %% tags=["nbval-ignore-output"]
from distlab.lessons.mask_pictures import draw_predictions, score_one

model = tf.saved_model.load(str(out / "saved_model"))
guesses = tf.argmax(model.serve(tf.constant(pictures[..., None] / np.float32(255))), -1).numpy()
assert np.mean(guesses == named[:60]) > 0.999  # one process, another batch size
order = np.argsort([score_one(*pair) for pair in zip(truth, guesses)])
good, bad = (
    draw_predictions(pictures[places], truth[places], guesses[places], title)
    for places, title in (
        (order[:-8:-1], "The best seven of sixty"),
        (order[:7], "The worst seven"),
    )
)
figures.show(good)
figures.show(bad)

# %% [markdown]
# From top to bottom: the scene, the truth, the prediction. The outlines are nearly always right. What goes wrong is the name: one top becomes another, in cases that make a person hesitate as well, and where one garment covers another, the part that's left over gets the wrong name. More capacity at 4 by 4 pixels, or more scenes, would be the next thing to try. Better hardware wouldn't.
#
# ## The mistake: an average that forgets the pixels
#
# `tf.nn.compute_average_loss` sums whatever it gets and divides by the batch. Give it a loss for each pixel, `[batch, 64, 64]`, and it divides by 32 instead of 32 times 4,096. No error, no warning. How much too large is the gradient?
#
# **Your turn.** Write the average that it should have been, for one replica's scenes, `each` [scenes, height, width].


# %%
def average(each, global_batch_size):
    return ...


# %%
def find_gradient_norm(make_loss):
    model = build_unet(widths=(4, 8))
    with tf.GradientTape() as tape:
        logits = model(batch[0])
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(batch[1], logits)
        loss = make_loss(each)  # each is [batch, 64, 64]
    return float(tf.linalg.global_norm(tape.gradient(loss, model.trainable_variables)))


average = turns.AVERAGE.take(average)
right = find_gradient_norm(lambda each: average(each, 32))
wrong = find_gradient_norm(lambda each: tf.nn.compute_average_loss(each, global_batch_size=32))
print(f"{wrong / right:,.0f} times too large, compared with yours")

# %% [markdown]
# With SGD that run explodes at once, which is lucky. Adam divides by the size of the gradient and trains on as if nothing had happened, until someone adds gradient clipping, an L2 penalty in the loss, or float16, and then none of the usual numbers fit. The fix is the order: average over the pixels first, then over the global batch. (Masks with pixels that don't count need one more care: divide by the pixels that do, counted over all replicas.)
#
# ## What it costs
#
# The same profile, moved to other hardware. Say the real job has ten million scenes and 30 epochs, on 64 A100s with 100 Gb/s between nodes, 16 scenes each, as here. The part of a device's peak that small convolutions reach is our assumption, 0.1, and no GPU has checked it. The price is yours to fill in.

# %% tags=["nbval-ignore-output"]
from utils.calibrate import Scenario, find_machine, predict

PRICE = 2.5  # a device-hour, in your currency
small = {"examples": sizes.train, "epochs": sizes.epochs, "price": PRICE}
large = {"examples": 10_000_000, "epochs": 30, "price": PRICE, "mfu": 0.1}
one_gpu, many = find_machine("A100"), find_machine("64 A100 on 100 Gb/s")
bills = {
    "this job, two devices like this machine": predict(profile, Scenario((2,), **small))[0],
    "10 million scenes, one A100": predict(profile, Scenario((1,), machine=one_gpu, **large))[0],
    "10 million scenes, 64 A100": predict(profile, Scenario((64,), machine=many, **large))[0],
}
for name, row in bills.items():
    step_ms = 1e3 * row.step_seconds
    print(
        f"{name:<40}{step_ms:8.1f} ms a step {row.hours:8.2f} h {row.cost:10,.2f}; {row.bottleneck}"
    )
assert bills["10 million scenes, 64 A100"].hours < bills["10 million scenes, one A100"].hours

# %% [markdown]
# The last word is the bottleneck. All of these are predictions. An A100 computes a step of this small network sooner than TensorFlow can launch its operations one by one, so launches set the pace. XLA (`jit_compile=True`) fuses many of them, and more scenes per GPU give each launch more to do. And here is the report, written from what this notebook measured.

# %% tags=["nbval-ignore-output"]
from distlab.lessons.capstone import write_report
from distlab.lessons.capstone_gallery import save_pictures

page = write_report(home / "report.md", book, run, predicted, score, bills)
save_pictures(home / "pictures", run=run.picture(), classes=classes_picture, good=good, bad=bad)
assert all(entry.measured for entry in book.entries)
Markdown(page)

# %% [markdown]
# ## On a real GPU
#
#     distlab train --device gpu --dataset fashion-scenes --model unet --epochs 2 --global-batch-size 16
#
# Compare the images/s of the second epoch with what *What it costs* predicts for one A100: 16 scenes over the time of a step. If they're far apart, the time of a launch is probably wrong, or the input is too slow. The prediction is the time of the launches: the arithmetic takes about 0.1 ms of it, so the 0.1 hardly matters.
#
# ## What you did
#
# - You streamed scenes from shards, and built a U-Net whose loss is scaled per pixel and per global batch.
# - You wrote decisions down before measuring them, and some of them may have been wrong.
# - You predicted a step of two workers, lost one of them, and resumed.
# - You predicted all test scenes with two workers, lost one of them, and no row.
# - You scored masks by IoU, and looked at the worst.
# - You wrote a page that says what was run, how fast, how good, and what a larger run would cost.
#
# ## Cheat sheet
#
# ```python
# # 1 decide, then measure: input, precision, replicas
# # 2 distlab plan --builtin-model unet --devices 2,64        write the prediction down
# each = tf.nn.sparse_softmax_cross_entropy_with_logits(masks, logits)  # [batch, 64, 64]
# losses = tf.reduce_mean(each, axis=[1, 2])  # first over the pixels ...
# loss = tf.nn.compute_average_loss(losses, global_batch_size=32)  # ... then over all replicas
# # 3 distlab run --workers 2 --max-restarts 3 examples/capstone.py --output run1
# # 4 distlab run --independent --workers 2 --max-restarts 3 examples/batch_prediction.py ...
# # 5 score by IoU, look at the worst, write the page
# ```
#
# The whole program is [examples/capstone.py](../examples/capstone.py). The same model and data, under every strategy: `distlab train --dataset fashion-scenes --model unet`.
#
# ## Further reading
#
# - Ronneberger, Fischer and Brox, [U-Net: Convolutional Networks for Biomedical Image Segmentation](https://arxiv.org/abs/1505.04597), 2015
# - TensorFlow, [Image segmentation](https://www.tensorflow.org/tutorials/images/segmentation): a U-Net on one device
# - TensorFlow, [Multi-worker training with a custom loop](https://www.tensorflow.org/tutorials/distribute/multi_worker_with_ctl)
# - Everingham and others, [The PASCAL Visual Object Classes Challenge](https://doi.org/10.1007/s11263-009-0275-4), 2010: intersection over union as a score
#
# ## The lab
#
# In [lab 15, capstone](../labs/lab15-capstone.ipynb) you write the whole program yourself.
