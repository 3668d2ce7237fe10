# %% [markdown] shows="Micro-batches through stages for real; schedules drawn from the run, bubbles and activations counted"
# # Pipeline parallelism
#
# Cut a model over four devices and train it the obvious way, and three of the four are always waiting. You pay for four and use one. Micro-batches fix that; how well depends on the schedule, and the schedule also decides how much memory you need. In an hour you will have run four schedules, drawn them from their own traces, and know what each one wastes and keeps.
#
# **Time:** 60 minutes · **Builds on:** [model parallelism](15-model-parallelism.ipynb) · **Hardware:** two CPU cores
#
# ## Objectives
#
# - Cut a network into stages of balanced, measured cost.
# - Run a pipeline under GPipe, 1F1B and interleaved 1F1B with the gradients of the unsplit model.
# - Predict the bubble of a schedule and the activations that each stage keeps, and count them on a run.
# - Choose between memory and time with rematerialisation.
# - Measure the error of a gradient that comes back to changed weights, and repair it by stashing.

# %%
from utils.environment import quiet_tensorflow, set_seeds

with quiet_tensorflow():
    import keras
    import tensorflow as tf
from utils.devices import use_logical_devices

set_seeds(0)
devices = use_logical_devices(4)
print(devices)

# %%
import numpy as np

from distlab import figures
from utils.data import load
from distlab.exercises.predict import show_guess
from utils.models import build_cnn
from utils.parallel.parts import measure_layers, run_unsplit
from utils.parallel.pipeline import cut_model, run_pipeline
from distlab.lessons.replicated_pipeline import run_replicas
from utils.parallel.stage import Rules
from distlab.lessons.weight_stashing import measure_errors, run_without_flush
from utils.schedules import check_schedule, make_schedule, partition_layers, read_schedule
from utils.simulate.pipeline import StageTimes, simulate_pipeline
from utils.simulate.published import read_table
from distlab.widgets.pipeline_explorer import pipeline_explorer

# %% [markdown]
# ## One device works, three wait
#
# A model is cut into four stages, each on its own device. A batch goes through them forward, and its gradients come back. On each stage the forward takes one unit of time, the backward two.
#
# **Predict.** What percentage of their time are the devices idle?

# %%
my_guess = None  # in %

# %%
units = StageTimes(forward=1.0, backward_input=1.0, backward_weight=1.0)
alone = simulate_pipeline(make_schedule("gpipe", stages=4, micro_batches=1), units)
title = "One batch through four stages"
figures.show(figures.timeline(alone.rows(), title=title, unit="forwards"))
show_guess(my_guess, 100 * alone.bubble_fraction, unit="%")

# %% [markdown]
# The idle part is called the *bubble*. The cure is to cut the batch into *micro-batches*: as soon as stage 0 has passed the first one on, it can begin with the second.
#
# ## A batch in pieces
#
# The result stays the same as long as every micro-batch divides its loss by the size of the whole batch: then the gradients simply add up. By hand, on a network of eight dense layers:

# %%
split = load("fashion_mnist").train.take(64)
images, labels = split.images[..., np.newaxis] / 255.0, split.labels
dense = [keras.layers.Dense(32, activation="relu", dtype="float64") for _ in range(7)]
ends = keras.layers.Flatten(dtype="float64"), keras.layers.Dense(10, dtype="float64")
model = keras.Sequential([keras.Input((28, 28, 1)), ends[0], *dense, ends[1]])
reference = run_unsplit(model, images, labels)

total = [np.zeros_like(gradient) for gradient in reference.gradients]
weights = [variable.value for variable in model.trainable_variables]
for own_images, own_labels in zip(np.split(images, 8), np.split(labels, 8)):
    with tf.GradientTape() as tape:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(own_labels, model(own_images))
        loss = tf.reduce_sum(losses) / 64  # the whole batch, not these 8
    total = [a + b.numpy() for a, b in zip(total, tape.gradient(loss, weights))]
for ours, theirs in zip(total, reference.gradients, strict=True):
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-9)
print("eight micro-batches of 8: the gradients of one batch of 64, to 1e-9")

# %% [markdown]
# ## Where to cut
#
# A pipeline is as fast as its slowest stage, so stages should cost the same. We measure the cost layer by layer, and `partition_layers` minimises the cost of the most expensive stage. Here it cuts the convolutional network of earlier lessons into three stages:

# %% tags=["nbval-ignore-output"]
cnn = build_cnn()
costs = [1e3 * cost.seconds for cost in measure_layers(cnn, images[:32])]
cut = partition_layers(costs, stages=3)
names = {layer.name: cost for layer, cost in zip(cnn.layers, costs, strict=True)}
title = "Forward and backward of each layer, 32 images"
figures.show(figures.bars(names, unit="ms", title=title))
for stage, layers in enumerate(cut):
    own = [cnn.layers[number].name for number in layers]
    print(f"stage {stage}: {sum(costs[n] for n in layers):.2f} ms, {', '.join(own)}")
assert [n for layers in cut for n in layers] == list(range(7)) and len(cut) == 3

# %% [markdown]
# Equal numbers of layers would be far from equal work. And no cut is perfect, since a layer can't be halved here. From now on we use the network of eight dense layers, two on each of four stages, and treat them as equally expensive.
#
# ## GPipe
#
# A schedule says what each stage does, and in which order: F3 is the forward of micro-batch 3, BW3 its backward. GPipe does all forwards, then all backwards.

# %%
gpipe = make_schedule("gpipe", stages=4, micro_batches=8)
print("stage 0:", *gpipe.orders[0])
print("check:", check_schedule(gpipe))
equal = [0.0] + [1.0] * 8  # Flatten costs nothing
pipeline = cut_model(model, costs=equal, stages=4, devices=devices)
print("layers:", [list(part) for part in pipeline.layers])

# %% [markdown]
# In outline, a stage does this with its order (`utils/parallel/stage.py` has it whole):
#
# ```python
# for kind, m in order:                           # ("F", 0), ("F", 1), …
#     if kind == "F":
#         x = receive("F", m)                     # from the stage before
#         with tf.GradientTape() as tape:
#             tape.watch(x)
#             y = layers(x)
#         kept[m] = tape, x, y                    # this is what costs memory
#         send("F", m, y)                         # the last stage takes the loss instead
#     else:
#         tape, x, y = kept.pop(m)
#         for_x, own = tape.gradient(y, (x, weights), receive("B", m))
#         totals = [a + b for a, b in zip(totals, own)]
#         send("B", m, for_x)                     # to the stage before
# ```
#
# `run_pipeline` does this for real, with a thread and a device for each stage. One thing is arranged: two cores can't do the work of four devices at once. So each operation does its real work, a fraction of a millisecond, then waits until its chosen time is over: 20 ms forward, 40 ms backward. The order, the waiting for each other and the results are real; the lengths are chosen.
#
# **Predict.** Four stages and eight micro-batches: what percentage is idle now?

# %%
my_guess = None  # in %

# %%
times = StageTimes(forward=0.02, backward_input=0.02, backward_weight=0.02)  # seconds
run_pipeline(pipeline, gpipe, images, labels)  # warm up: the first operation of a kind is slow


def run_beside(pipeline, schedule, times=times, **options):
    """Run a schedule three times, and simulate it; return the shortest run and the simulated."""
    rules = Rules(slowed_to=times, **options)
    steps = [run_pipeline(pipeline, schedule, images, labels, rules) for _ in range(3)]
    assert max(reference.find_difference(step) for step in steps) < 1e-9  # loss and gradients
    return min(steps, key=lambda step: step.makespan), simulate_pipeline(schedule, times)


def draw_beside(step, simulated, title):
    rows = step.rows("run, ") + [(f"simulated, {lane}", *rest) for lane, *rest in simulated.rows()]
    in_ms = [(lane, 1e3 * start, 1e3 * end, *rest) for lane, start, end, *rest in rows]
    figures.show(figures.timeline(in_ms, title=title, unit="ms"))


# %% tags=["nbval-ignore-output"]
step, simulated = run_beside(pipeline, gpipe)
draw_beside(step, simulated, "GPipe, as it ran and as simulated")
assert step.makespan >= simulated.makespan - 1e-6
assert step.orders() == [[(o.kind, o.micro_batch, 0) for o in order] for order in gpipe.orders]
show_guess(my_guess, 100 * simulated.bubble_fraction, unit="%")
print("kept at most, simulated:", simulated.peak_activations_per_stage)
print("kept at most, counted:  ", step.peak_activations_per_stage)
assert step.peak_activations_per_stage == simulated.peak_activations_per_stage
assert abs(simulated.bubble_fraction - 3 / 11) < 1e-12

# %% [markdown]
# The labels are the numbers of the micro-batches. The run looks like the simulation, a little longer because of sending, threads and other programs. (It is the shortest of three.) Its gradients are those of the unsplit model.
#
# With P stages of equal cost and M micro-batches the bubble is (P - 1) / (M + P - 1): here 3 of 11. More micro-batches make it smaller. But GPipe keeps every micro-batch's activations on every stage until the backwards begin, so memory grows with M.
#
# GPipe's first aim was *models that fit*: cut over enough devices, they may be far larger than one device's memory. Here are its paper's speeds relative to two partitions, next to those of our simulator, whose messages take no time:

# %%
rows = read_table("gpipe_table3_2019")
spans = {}
for row in rows:
    share = 1 / row["K"]  # K equal stages share the layers
    paper = StageTimes(share, share, share).rematerialise()
    schedule = make_schedule("gpipe", int(row["K"]), int(row["M"]))
    spans[row["K"]] = simulate_pipeline(schedule, paper).longest_stage_span
table = [[row["Transformer_24"], spans[2.0] / spans[row["K"]]] for row in rows]
names = [f"{row['K']:.0f} partitions, {row['M']:.0f} micro-batches" for row in rows]
title = "Speed against 2 partitions: a Transformer on GPipe"
columns = ["published", "simulated"]
figures.show(figures.matrix(np.array(table), names, columns, title=title, format="{:.2f}"))
assert all(abs(simulated / published - 1) < 0.2 for published, simulated in table)

# %% [markdown]
# ## 1F1B
#
# Nothing forces a stage to do all forwards first. In 1F1B, *one forward, one backward*, the last stage does each micro-batch's backward at once. Every stage takes in only as many as are still on their way behind it.
#
# **Predict.** Four stages, eight micro-batches. How many micro-batches does stage 0 keep at most?

# %%
my_guess = None  # micro-batches

# %% tags=["nbval-ignore-output"]
one_f_one_b = make_schedule("1f1b", stages=4, micro_batches=8)
early, simulated = run_beside(pipeline, one_f_one_b)
draw_beside(early, simulated, "1F1B, as it ran and as simulated")
assert early.peak_activations_per_stage == simulated.peak_activations_per_stage

# %%
show_guess(my_guess, early.peak_activations_per_stage[0])
groups = {
    name: {f"stage {s}": held / 1e3 for s, held in enumerate(ran.peak_bytes_per_stage)}
    for name, ran in (("GPipe", step), ("1F1B", early))
}
title = "The most activations kept at once, counted on the run"
figures.show(figures.grouped_bars(groups, unit="kB", title=title))
print("kept at most under 1F1B:", early.peak_activations_per_stage)
assert abs(simulated.bubble_fraction - 3 / 11) < 1e-12

# %% [markdown]
# The bubble is the same, 3 of 11. The memory isn't: stage s of P keeps at most P - s micro-batches, however many there are. So you can make M large, and the bubble small. (Stage 0 holds most bytes here because its inputs are whole images.)
#
# ## Interleaved 1F1B
#
# To make the bubble itself smaller, let each stage hold several smaller parts of the model. With two *chunks* the model is cut into eight parts: stage 0 has parts 0 and 4, stage 1 parts 1 and 5, and so on. The pipeline fills twice as fast, and each micro-batch goes round twice.

# %% tags=["nbval-ignore-output"]
interleaved = make_schedule("interleaved-1f1b", stages=4, micro_batches=8, chunks=2)
chunked = cut_model(model, equal, stages=4, devices=devices, chunks=2)
run_pipeline(chunked, interleaved, images, labels)
round_twice, simulated = run_beside(chunked, interleaved)
draw_beside(round_twice, simulated, "Interleaved 1F1B, as it ran and as simulated")
assert round_twice.peak_activations_per_stage == simulated.peak_activations_per_stage

# %%
print(f"bubble, simulated: {simulated.bubble_fraction:.3f}, which is 3 / (2 x 8 + 3)")
print("kept at most, counted:", round_twice.peak_activations_per_stage)
for name, ran in (("1F1B", early), ("interleaved", round_twice)):
    print(f"{name:<12} sent {ran.traffic.count_bytes() / 1e3:6.1f} kB in a step")
assert abs(simulated.bubble_fraction - 3 / 19) < 1e-12
assert round_twice.traffic.count_bytes() * 3 == early.traffic.count_bytes() * 7  # cuts: 7 and 3

# %% [markdown]
# The bars are half as long, and most are too narrow for a label; the explorer below, with four micro-batches, has the numbers. The idle time is divided by the number of chunks. The price: more is sent, since there are seven cuts instead of three, and more is kept.
#
# ## Rematerialisation
#
# You can buy memory with time. A stage keeps only the *input* of each micro-batch, and computes its forward again when the backward comes. Each backward pass then costs one extra forward pass. (It is also called recomputation or gradient checkpointing.)

# %%
again, simulated = run_beside(pipeline, gpipe, times, rematerialise=True)
longer = simulate_pipeline(gpipe, times.rematerialise()).makespan / simulated.makespan
groups = {
    name: {f"stage {s}": held / 1e3 for s, held in enumerate(ran.peak_bytes_per_stage)}
    for name, ran in (("GPipe", step), ("GPipe, computed again", again))
}
title = "The most activations kept at once, counted on the run"
figures.show(figures.grouped_bars(groups, unit="kB", title=title))
print(f"the step takes {longer:.2f} times as long, simulated")

# %% [markdown]
# A step takes a third longer, if a backward costs two forwards. The system of the GPipe paper does this as a rule. It saves most where stages have many layers; ours have two.
#
# ## Zero bubble
#
# A backward does two things: B, the gradient for the inputs, which the stage before is waiting for; and W, the gradient for the weights, which nothing waits for. Zero-bubble schedules separate the two and fill the gaps with W. The simulator draws both:

# %%
for name in ("zb-h1", "zb-h2"):
    split_run = simulate_pipeline(make_schedule(name, 4, 8), units)
    title = f"{name.upper()}, simulated: B and W apart"
    figures.show(figures.timeline(split_run.rows(), title=title, unit="forwards"))
    kept = split_run.peak_activations_per_stage
    print(f"bubble {split_run.bubble_fraction:.3f}, kept at most {kept}")

# %% [markdown]
# ZB-H1 keeps no more than 1F1B does on its first stage. ZB-H2 keeps nearly twice as much, and no stage waits between its first start and its last end, which is what the bubble counts. Both pictures end at 27. But under ZB-H2 each stage is done 24 after it started, so stage 0 could begin the next batch while stage 3 is still busy. That needs an optimizer step that doesn't wait for all stages.
#
# Our runner can separate B and W too, with the same gradients:

# %%
apart = run_pipeline(pipeline, make_schedule("zb-h2", 4, 8), images, labels)
assert reference.find_difference(apart) < 1e-9
print("ZB-H2, kept at most, counted:", apart.peak_activations_per_stage)
pipeline_explorer()

# %% [markdown]
# Three things to try:
#
# 1. Raise the micro-batches under `gpipe`, then under `1f1b`: the bubble shrinks alike, the memory doesn't.
# 2. Give a hop a delay of half a forward. Which schedule suffers most?
# 3. Under `interleaved-1f1b`, choose 10 micro-batches, and read the line that appears.
#
# ## Pipeline times data parallelism
#
# Large models use both: several copies of the pipeline, each with its own examples. After the last backward, each stage sums its gradients over its copies. Two pipelines of two stages:

# %%
halves = [cut_model(model, equal, 2, pair) for pair in (devices[:2], devices[2:])]
replicated = run_replicas(halves, make_schedule("1f1b", 2, 4), images, labels)
assert reference.find_difference(replicated) < 1e-9
for number, own in enumerate(replicated.steps):
    sent = {" to ".join(link): count for link, count in own.traffic.count_links().items()}
    print(f"pipeline {number}, bytes sent:", sent)
print("all-reduce of each stage, bytes sent:", replicated.reduced_bytes)

# %% [markdown]
# Activations cross the cut often, here in small messages. Gradients cross between the copies once, and are as large as the weights. That is why the stages of a pipeline may sit in different machines. Lesson 20, planning, chooses the numbers of stages and copies together.
#
# TensorFlow has no pipeline runner for production. Teams that need one use PyTorch (Megatron-LM, DeepSpeed) or JAX; the schedules and the counts are the same.
#
# ## The mistake: new weights on the way back
#
# All schedules so far stop at the end of a batch, update the weights everywhere, and fill the pipeline again. PipeDream doesn't stop: each stage updates its weights after each micro-batch. So a micro-batch may meet other weights on its way back than on its way there.
#
# **Predict.** Four stages, 1F1B without a stop. How many updates does stage 0 make between the forward and the backward of a micro-batch?

# %%
my_guess = None  # updates

# %%
fresh = cut_model(model, equal, 4, devices)
naive = run_without_flush(fresh, one_f_one_b, images, labels, learning_rate=0.2, stash=False)
behind = np.arange(8)[:, None] - np.array(naive.versions)  # [micro-batch, stage]
show_guess(my_guess, behind[-1, 0])
names = [f"micro-batch {number}" for number in range(8)]
title = "Updates made between a forward and its backward"
figures.show(figures.matrix(behind, names, [f"stage {s}" for s in range(4)], title=title))

# %% [markdown]
# Here the backward computes its forward again with the weights it finds, as a system does that keeps only inputs. There is no error message. So compare each gradient with the true one: that of the whole model with the weights that the forward used. Then the fix: *stash* the weights of each micro-batch until it has come back.

# %% tags=["nbval-ignore-output"]
errors = {"present weights": measure_errors(fresh, naive, images, labels)}
other = cut_model(model, equal, 4, devices)
stashed = run_without_flush(other, one_f_one_b, images, labels, learning_rate=0.2)
errors["stashed weights"] = measure_errors(other, stashed, images, labels)
series = {name: (np.arange(8), values) for name, values in errors.items()}
title = "Error of the gradient, as a part of its length"
figures.show(figures.lines(series, x_label="micro-batch", y_label="relative error", title=title))
assert max(errors["stashed weights"]) < 1e-9 < 1e-3 < max(errors["present weights"])

# %%
print("versions of its weights that each stage keeps:", stashed.peak_versions_per_stage)
held = [part.parameter_bytes for part in other.parts]
extra = [(kept - 1) * own for kept, own in zip(stashed.peak_versions_per_stage, held, strict=True)]
print("bytes of weights:", held, "· stashed besides:", extra)

# %% [markdown]
# Stashing makes the gradient correct for the weights that were used. But they are still old ones, up to three updates behind on stage 0. No stashing fixes this *staleness*, which is why most systems today stop at the end of the batch instead.
#
# A `GradientTape` stashes without being asked: it keeps the tensors that the forward read, and an update makes new ones. The mistake comes in with rematerialisation.
#
# A second mistake is a schedule that can't run. Here stage 0 wants micro-batch 0 back before it sends micro-batch 1, and stage 1 wants micro-batch 1 before it sends anything back:

# %%
wrong = [
    [("F", 0), ("BW", 0), ("F", 1), ("BW", 1)],
    [("F", 0), ("F", 1), ("BW", 1), ("BW", 0)],
]
print(check_schedule(read_schedule(wrong, micro_batches=2)))
right = [wrong[0], [("F", 0), ("BW", 0), ("F", 1), ("BW", 1)]]
print(check_schedule(read_schedule(right, micro_batches=2)))

# %% [markdown]
# ## What it costs
#
# All schedules next to each other, for four stages and eight micro-batches: the bubble, the most that any stage keeps in micro-batches, and the longest time that a stage is in use, in forwards. Then what the same schedules took here.

# %%
table, names = [], ["gpipe", "1f1b", "interleaved-1f1b", "zb-h1", "zb-h2"]
for name in names:
    result = simulate_pipeline(make_schedule(name, 4, 8), units)
    peak = max(result.peak_activations_per_stage)
    table.append([100 * result.bubble_fraction, peak, result.longest_stage_span])
columns = ["bubble, %", "kept at most", "step, forwards"]
title = "Five schedules, simulated"
figures.show(figures.matrix(np.array(table), names, columns, title=title, format="{:.1f}"))

# %% tags=["nbval-ignore-output"]
ran = {"gpipe": step, "1f1b": early, "interleaved-1f1b": round_twice}
groups = {
    "simulated": {n: 20 * table[names.index(n)][2] for n in ran},
    "as it ran": {n: 1e3 * each.longest_stage_span for n, each in ran.items()},
}
figures.show(figures.grouped_bars(groups, unit="ms", title="The longest span of a stage"))
assert all(each.longest_stage_span > 0.5 for each in ran.values())

# %% [markdown]
# ## What you saw
#
# - Measured costs decided the cut; the most expensive stage sets the pace.
# - Every schedule gave the unsplit model's gradients, to 1e-9.
# - GPipe and 1F1B left 3 of 11 idle and kept 8 and 4 micro-batches on stage 0; two chunks left 3 of 19.
# - Rematerialisation kept only inputs, for a third more time.
# - Changed weights gave wrong gradients without a word; stashing corrected them.
#
# ## Take-away card
#
# ```python
# loss = tf.reduce_sum(losses) / global_batch_size       # in every micro-batch: gradients add up
# # bubble: GPipe and 1F1B (P - 1) / (M + P - 1), interleaved (P - 1) / (V M + P - 1)
# # kept on stage s: GPipe M micro-batches, 1F1B min(M, P - s)
# # rematerialise: keep only inputs, one extra forward for each backward
# pipeline = cut_model(model, costs, stages=4, devices=devices)
# step = run_pipeline(pipeline, make_schedule("1f1b", 4, 8), images, labels)
# figures.timeline(step.rows(), title="what ran when")
# # updates without a stop: keep the weights of each micro-batch until it is back (P - s versions)
# ```
#
# ## Where it is described
#
# - Huang and others, [GPipe](https://arxiv.org/abs/1811.06965), 2019
# - Harlap, Narayanan and others, [PipeDream](https://arxiv.org/abs/1806.03377), 2018: 1F1B and weight stashing
# - Narayanan and others, [Efficient large-scale language model training](https://arxiv.org/abs/2104.04473), 2021: interleaved 1F1B, and all kinds of parallelism together
# - Qi and others, [Zero Bubble Pipeline Parallelism](https://arxiv.org/abs/2401.10241), 2023
#
# ## The lab
#
# You write a 1F1B schedule, graded on its bubble and its memory, in [lab 12, pipelines and shards](../labs/lab12-pipelines-and-shards.ipynb).
