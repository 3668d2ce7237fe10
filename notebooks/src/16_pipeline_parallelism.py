# %% [markdown] shows="Micro-batches through stages for real; schedules drawn from the run, bubbles and activations counted"
# # Pipeline parallelism
#
# Cut a model over four devices and train it the obvious way, and they spend most of their time waiting for each other. Cutting the batch into small pieces, *micro-batches*, fixes that. How well depends on the order of the work, the *schedule*, and so does the memory you need. Here you run four schedules, and find out how much time each one wastes and how much memory it takes.
#
# **Time:** 90 minutes, in two sittings, and 10 for *And then*, which can wait · **Prerequisites:** [model parallelism](15-model-parallelism.ipynb) · **Hardware:** two CPU cores
#
# ## Objectives
#
# - Cut a network into stages of balanced, measured cost.
# - Run a pipeline under three schedules, GPipe, 1F1B and interleaved 1F1B, and get the gradients of the unsplit model.
# - Predict a schedule's idle time (its *bubble*) and the activations that each stage keeps, and compare with a run.
# - Trade time for memory with rematerialization: compute again instead of keeping.
# - Measure the error of a gradient that comes back to changed weights, and show that stashing the old ones removes it.

# %%
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import numpy as np

from utils.environment import quiet_tensorflow, set_seeds

with quiet_tensorflow():
    import keras
    import tensorflow as tf
from utils.devices import use_logical_devices

set_seeds(0)
devices = use_logical_devices(4)
print(devices)

# %% [markdown]
# ## Make the gray disappear
#
# A model is cut into four stages, each on its own device. A batch goes through them forward, and its gradients come back. Three of the four devices wait at any moment, gray and hatched, since there is only one batch to work on. **Make the gray disappear, as far as you can.** Leave the four stages. Watch the hills below the lanes: the micro-batches that each stage keeps. (If you cut one batch, sixteen of them hold no more than one did.)

# %%
from distlab.explorables import schedule_toy

schedule_toy("gpipe", None, micro_batches=1)

# %% [markdown]
# The gray share of the time is called the *bubble*. Several sections from here on fight it, and the others say what that costs. At the end the toy comes back with a schedule that promises no bubble at all.
#
# ## A batch in pieces
#
# Does that change the training? Not if every micro-batch divides its loss by the size of the *whole* batch: then the gradients simply add up. Here it is by hand, on a network of eight dense layers:

# %%
from utils.data import load
from utils.parallel.parts import run_unsplit

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
# A pipeline is as fast as its slowest stage, so stages should cost the same. We measure the time of each layer, and `partition_layers` finds the cut that minimizes the cost of the most expensive stage. Here it cuts the convolutional network of earlier lessons into three stages:

# %% tags=["nbval-ignore-output"]
from distlab import figures
from utils.models import build_cnn
from utils.parallel.parts import measure_layers
from utils.schedules import partition_layers

cnn = build_cnn()
costs = [1e3 * cost.seconds for cost in measure_layers(cnn, images[:32])]
cut = partition_layers(costs, stages=3)
names = [f"{n} {type(layer).__name__}" for n, layer in enumerate(cnn.layers)]
figures.show(figures.bars(dict(zip(names, costs)), unit="ms", title="Each layer, 32 images"))
for s, own in enumerate(cut):
    print(f"stage {s}: {sum(costs[n] for n in own):.2f} ms", *[names[n] for n in own], sep=", ")
assert [n for layers in cut for n in layers] == list(range(7)) and len(cut) == 3

# %% [markdown]
# Equal numbers of layers would be far from equal work. And even the best cut isn't perfect, since a layer can't be halved here. From now on we use the network of eight dense layers, two on each of four stages, and treat them as equally expensive.
#
# ## GPipe
#
# A schedule lists what each stage does, in order: F3 is the forward pass of micro-batch 3, BW3 its backward pass. GPipe's is simple: all forwards, then all backwards.
#
# A stage that follows such an order fits into one cell. It takes a micro-batch from the stage before, runs its own layers on its own device, and passes the result on. On the way back it takes the gradient for what it passed on, and passes on the gradient for what it took. What it keeps in between (`kept`) is what takes memory. Four of these in four threads are a pipeline. The first one finds the images in its inbox.


# %%
def be_stage(stage, layers, order, inbox):
    """Do `order` on one device; return the stage's gradients, summed over micro-batches."""
    weights = [v.value for layer in layers for v in layer.trainable_variables]
    kept, totals = {}, [0.0] * len(weights)
    for kind, m in order:  # ("F", 0), ("F", 1), …
        with tf.device(devices[stage]):
            if kind == "F":
                x = inbox["F", stage].get(timeout=60)  # from the stage before
                with tf.GradientTape() as tape:
                    tape.watch(x)
                    y = x
                    for layer in layers:
                        y = layer(y)
                    if stage == 3:  # the last one has the loss
                        own = labels[8 * m : 8 * m + 8]
                        y = tf.nn.sparse_softmax_cross_entropy_with_logits(own, y)
                        y = tf.reduce_sum(y) / 64  # the whole batch
                kept[m] = tape, x, y
                inbox["F", stage + 1].put(y)
            else:
                tape, x, y = kept.pop(m)
                upstream = inbox["B", stage].get(timeout=60) if stage < 3 else None
                for_x, own = tape.gradient(y, (x, weights), upstream)
                totals = [a + b for a, b in zip(totals, own)]
                inbox["B", stage - 1].put(for_x)  # to the stage before
    return totals


# %%
from utils.schedules import check_schedule, make_schedule

gpipe = make_schedule("gpipe", stages=4, micro_batches=8)
print("stage 0:", *gpipe.orders[0])
print("check:", check_schedule(gpipe))
equal = [0.0] + [1.0] * 8  # Flatten costs nothing
cut = partition_layers(equal, stages=4)
inbox = {(kind, stage): SimpleQueue() for kind in "FB" for stage in range(-1, 5)}
for part in np.split(images.astype("float32"), 8):
    inbox["F", 0].put(tf.constant(part))
with ThreadPoolExecutor(4) as pool:
    own_layers = [[model.layers[n] for n in part] for part in cut]
    orders = [[(o.kind, o.micro_batch) for o in order] for order in gpipe.orders]
    totals = sum(pool.map(be_stage, range(4), own_layers, orders, [inbox] * 4), [])
for ours, theirs in zip(totals, reference.gradients, strict=True):
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-9)
print("layers:", [list(part) for part in cut], "gradients of the unsplit model, to 1e-9")

# %% [markdown]
# `run_pipeline` does the same for any schedule, with a thread and a device for each stage, and a clock. One thing is artificial, because two cores can't do the work of four devices at once. Each operation does its real work, a fraction of a millisecond, and then sleeps until its chosen time is over: 20 ms forward, 40 ms backward. So the order, the waiting for each other and the results are real, and the lengths are chosen. (A bar that comes out longer shows a busy computer.)

# %%
from utils.parallel.pipeline import cut_model, run_pipeline
from utils.parallel.stage import Rules
from utils.simulate.pipeline import StageTimes, simulate_pipeline

pipeline = cut_model(model, costs=equal, stages=4, devices=devices)
times = StageTimes(forward=0.02, backward_input=0.02, backward_weight=0.02)  # seconds
units = StageTimes(forward=1.0, backward_input=1.0, backward_weight=1.0)
run_pipeline(pipeline, gpipe, images, labels)  # warm up: the first operation of a kind is slow


def run_beside(pipeline, schedule, times=times, **options):
    """Run a schedule three times, and simulate it; return the shortest run and the simulated."""
    rules = Rules(slowed_to=times, **options)
    steps = [run_pipeline(pipeline, schedule, images, labels, rules) for _ in range(3)]
    assert max(reference.find_difference(step) for step in steps) < 1e-9  # loss and gradients
    return min(steps, key=lambda step: step.makespan), simulate_pipeline(schedule, times)


def list_ms(run, who):
    return [(f"{who} {lane[-1]}", 1e3 * a, 1e3 * b, *rest) for lane, a, b, *rest in run.rows()]


def draw_beside(step, simulated, title):
    rows = list_ms(step, "run") + list_ms(simulated, "simulated")
    figures.show(figures.timeline(rows, title=title, unit="ms"))


# %% [markdown]
# **Your turn.** P stages of equal cost, M micro-batches. What share of the time is a stage idle? Draw a few slots on paper; forwards alone are enough.


# %%
def bubble(stages, micro_batches):
    return ...


# %% tags=["nbval-ignore-output"]
from distlab.turns import lesson16 as turns

step, simulated = run_beside(pipeline, gpipe)
draw_beside(step, simulated, "GPipe, as it ran and as simulated")
assert step.makespan >= simulated.makespan - 1e-6
assert step.orders() == [[(o.kind, o.micro_batch, 0) for o in order] for order in gpipe.orders]
bubble = turns.BUBBLE.take(bubble)
print(f"bubble: {simulated.bubble_fraction:.4f} simulated, {bubble(4, 8):.4f} by your formula")
print("kept at most, counted on the run:", step.peak_activations_per_stage)
assert step.peak_activations_per_stage == simulated.peak_activations_per_stage
assert abs(simulated.bubble_fraction - 3 / 11) < 1e-12

# %% [markdown]
# Each lane is a stage, each number a micro-batch. The upper four lanes are the run, the lower four the simulation. Both have the same shape, but the run takes longer: there are messages and threads in it, and two cores that other programs use as well. (It is the shortest of three.) Its gradients are the unsplit model's.
#
# With P stages of equal cost and M micro-batches the bubble is (P - 1) / (M + P - 1), here 3/11. More micro-batches make it smaller. But under GPipe every stage keeps the activations of every micro-batch until the backwards begin, so GPipe always keeps the whole batch's activations. If the micro-batches keep their size, memory grows with M. The last line counted them: eight on each stage.
#
# GPipe was made for models far larger than one device's memory. Does it also make them faster? Here are the paper's speeds, compared with two partitions (stages), next to our simulator's. (Its messages take no time, and like the paper it computes each forward twice: see *Rematerialization*, below.)

# %%
from utils.simulate.published import read_table

rows = read_table("gpipe_table3_2019")
spans = {}
for row in rows:
    share = 1 / row["K"]  # K equal stages share the layers
    paper = StageTimes(share, share, share).recompute()
    schedule = make_schedule("gpipe", int(row["K"]), int(row["M"]))
    spans[row["K"]] = simulate_pipeline(schedule, paper).longest_stage_span
table = [[row["Transformer_24"], spans[2.0] / spans[row["K"]]] for row in rows]
names = [f"{row['K']:.0f} partitions, {row['M']:.0f} micro-batches" for row in rows]
title = "Speed against 2 partitions: a Transformer on GPipe"
columns = ["published", "simulated"]
figures.show(figures.matrix(np.array(table), names, columns, title=title, format="{:.2f}"))
assert all(abs(simulated / published - 1) < 0.2 for published, simulated in table)

# %% [markdown]
# Four times the devices, 3.3 times the speed. And these were P100s on PCIe, without fast links between them. That is the point of the table: a pipeline only sends activations across its cuts, so it puts up with slow links. (The Transformer's stages are equal. The paper's other model, AmoebaNet, has unequal stages and gained less: [lesson 20](20-planning.ipynb) compares both.)
#
# **A good place for a break.** When you come back, run all cells above once.
#
# ## 1F1B
#
# Nothing forces a stage to do all forwards first. In 1F1B, *one forward, one backward*, the last stage does each micro-batch's backward right after its forward. The stages before it start with just enough forwards to keep all later stages busy. From then on they alternate, too: one forward, one backward.
#
# **Your turn.** How many micro-batches does stage s (from 0) keep at most?


# %%
def kept(stage, stages, micro_batches):
    return ...


# %% tags=["nbval-ignore-output"]
one_f_one_b = make_schedule("1f1b", stages=4, micro_batches=8)
early, simulated = run_beside(pipeline, one_f_one_b)
draw_beside(early, simulated, "1F1B, as it ran and as simulated")
assert early.peak_activations_per_stage == simulated.peak_activations_per_stage == (4, 3, 2, 1)
kept = turns.KEPT.take(kept)
print("kept at most under 1F1B, by your formula:", [kept(s, 4, 8) for s in range(4)])


def list_kept(step):
    """Return the most kB of activations that each stage kept."""
    return {f"stage {s}": kept / 1e3 for s, kept in enumerate(step.peak_bytes_per_stage)}


groups = {"GPipe": list_kept(step), "1F1B": list_kept(early)}
title = "The most activations kept at once, counted on the run"
figures.show(figures.grouped_bars(groups, unit="kB", title=title))
print("and counted on the run:", early.peak_activations_per_stage)
assert abs(simulated.bubble_fraction - 3 / 11) < 1e-12

# %% [markdown]
# The bubble is the same, 3/11. The memory isn't: stage s of P keeps at most P - s micro-batches, no matter how many there are: its own, and one in each stage after it. So memory no longer stops you from making M large, and with it the bubble small. (Stage 0 keeps most bytes here because its inputs are whole images.)
#
# Something else does, and it's the real trade-off of pipelines. If the global batch stays the same, more micro-batches are smaller micro-batches. A small matrix product leaves most of a GPU idle ([lesson 20](20-planning.ipynb) draws its roofline), so each operation gets less efficient while the bubble shrinks. If the micro-batches stay the same size, the global batch grows with M, and a larger batch leaves fewer steps ([lesson 17](17-large-batch-training.ipynb)). Our simulator can't show this: it assumes a micro-batch takes the same time at any size. On real devices, time several sizes.
#
# ## Interleaved 1F1B
#
# Can the bubble shrink without more micro-batches? Let each stage hold several smaller parts of the model, its *chunks*. With two chunks on each stage the model is cut into eight parts: stage 0 has parts 0 and 4, stage 1 parts 1 and 5, and so on. The pipeline fills twice as fast, and each micro-batch goes round twice.

# %% tags=["nbval-ignore-output"]
interleaved = make_schedule("interleaved-1f1b", stages=4, micro_batches=8, chunks=2)
chunked = cut_model(model, equal, stages=4, devices=devices, chunks=2)
run_pipeline(chunked, interleaved, images, labels)
round_twice, simulated = run_beside(chunked, interleaved)
for run, who in ((simulated, "simulated"), (round_twice, "as it ran")):
    rows = list_ms(run, "stage")
    figures.show(figures.timeline(rows, title=f"Interleaved 1F1B, {who}", unit="ms"))
assert round_twice.peak_activations_per_stage == simulated.peak_activations_per_stage
print(f"bubble, simulated: {simulated.bubble_fraction:.3f}, which is 3 / (2 x 8 + 3)")
print("kept at most, counted:", round_twice.peak_activations_per_stage)
for name, ran in (("1F1B", early), ("interleaved", round_twice)):
    print(f"{name:<12} sent {ran.traffic.count_bytes() / 1e3:6.1f} kB in a step")
assert abs(simulated.bubble_fraction - 3 / 19) < 1e-12
assert round_twice.traffic.count_bytes() * 3 == early.traffic.count_bytes() * 7  # cuts: 7 and 3

# %% [markdown]
# In the simulated picture the bars are half as long as before: dark for the first chunk, light for the second. Follow micro-batch 0 along its dark bars down the four stages, then along the light ones. The idle time is divided by the number of chunks. There is a price. More is sent, since there are seven cuts instead of three. More is kept: a micro-batch's activations of one chunk count as half a micro-batch here, and stage 0 keeps 5.5. And there are twice as many operations, each with its own delays, so on your two cores the run may be far from its simulation.
#
# ## Rematerialization
#
# You can buy memory with time. A stage keeps only the *input* of each micro-batch, and does its forward again just before its backward. So each micro-batch costs one more forward pass on every stage. (This is also called recomputation or gradient checkpointing; [lesson 18](18-precision-and-memory.ipynb) uses it without a pipeline.)

# %%
again, simulated = run_beside(pipeline, gpipe, times, recompute=True)
longer = simulate_pipeline(gpipe, times.recompute()).makespan / simulated.makespan
groups = {"GPipe": list_kept(step), "GPipe, computed again": list_kept(again)}
title = "The most activations kept at once, counted on the run"
figures.show(figures.grouped_bars(groups, unit="kB", title=title))
print(f"the step takes {longer:.2f} times as long, simulated")

# %% [markdown]
# A step takes a third longer if a backward costs two forwards: four units of work instead of three. It saves most where a stage has many layers; ours have two.
#
# ## Zero bubble
#
# A backward pass does two things, hence the name BW. B computes the gradient for the inputs, and the stage before is waiting for it. W computes the gradient for the weights, and nobody is waiting for that. *Zero-bubble* schedules separate the two and fill the gaps with W. Their paper has two that were made by hand, ZB-H1 and ZB-H2. Here are both, simulated:

# %%
for name in ("zb-h1", "zb-h2"):
    split_run = simulate_pipeline(make_schedule(name, 4, 8), units)
    again = split_run.longest_stage_span  # so long after a batch, a stage can start the next one
    rows = split_run.rows()
    coming = [
        (lane, start + again, end + again, label, f"{kind}, next batch")
        for lane, start, end, label, kind in rows
        if start + again < split_run.makespan + 1
    ]
    title = f"{name.upper()}, simulated: B and W apart, then the next batch"
    figures.show(figures.timeline(rows + coming, title=title, unit="forwards"))
    most = split_run.peak_activations_per_stage
    print(f"a batch every {again:g}, bubble {split_run.bubble_fraction:.3f}, kept at most {most}")

# %% [markdown]
# The light bars are the first forwards of the next batch. Under ZB-H1 stage 0 gets to them after 27 units. Under ZB-H2 each stage is done 24 units after it started. Stage 0 takes the next batch at 24, while stage 3 is still busy with this one, and no stage waits. (That is what the bubble counts: waiting between a stage's first start and its last end.)
#
# The zero has two conditions. W must be long enough to fill the gaps, as it is when F, B and W take equally long, and there must be at least 2P - 1 micro-batches, here seven. Let B take 1.2 and W 0.8 in the same simulator, and ZB-H2's bubble is 0.070. Give it four micro-batches instead of eight, and a stage takes 15 units rather than 12, a bubble of 0.2. That's still less than the 0.429 of 1F1B with four micro-batches. Real layers rarely have B equal to W, so the paper also has a scheduler that searches with measured times.
#
# ZB-H2 has its price: an optimizer step that doesn't wait for all stages, and memory. Under ZB-H1 no stage keeps more than the first stage of 1F1B does, four micro-batches. Under ZB-H2 every stage keeps seven.
#
# `run_pipeline` can separate B and W too, with the same gradients:

# %%
apart = run_pipeline(pipeline, make_schedule("zb-h2", 4, 8), images, labels)
assert reference.find_difference(apart) < 1e-9
print("ZB-H2, kept at most, counted:", apart.peak_activations_per_stage)

# %% [markdown]
# ## Pipeline times data parallelism
#
# Large models use both: several copies of the pipeline, each with its own examples. After the last backward, each stage adds up its gradients over its copies, an all-reduce. Here are two pipelines of two stages:

# %%
from distlab.lessons.replicated_pipeline import run_replicas

halves = [cut_model(model, equal, 2, pair) for pair in (devices[:2], devices[2:])]
replicated = run_replicas(halves, make_schedule("1f1b", 2, 4), images, labels)
assert reference.find_difference(replicated) < 1e-9
for number, own in enumerate(replicated.steps):
    sent = {" to ".join(link): count for link, count in own.traffic.count_links().items()}
    print(f"pipeline {number}, bytes sent:", sent)
print("all-reduce of each stage, bytes sent:", replicated.reduced_bytes)

# %% [markdown]
# What crosses the cut, activations and their gradients, is small here. The gradients of the weights cross between the copies only once in a step, but they are as large as the weights. That is why the stages of one pipeline can sit in different machines, even with slower links between them. To compare numbers of stages and copies, give `distlab plan` ([lesson 20](20-planning.ipynb)) `--pipeline-parallel`.
#
# TensorFlow has no pipeline runner for production. Teams that need one use PyTorch (Megatron-LM, DeepSpeed) or JAX. The schedules, bubbles and memory are the same there.
#
# ## The mistake: new weights on the way back
#
# In all schedules so far, weights change only between batches, so a micro-batch finds the same weights on its way there and back. All but ZB-H2 stop for that and fill the pipeline again. PipeDream doesn't stop at all: each stage updates its weights after each micro-batch. So the weights may have changed by the time a micro-batch comes back.
#
# **Predict.** Four stages run 1F1B without a stop. Once the pipeline is full, how many updates does stage 0 make between the forward and the backward of a micro-batch?


# %%
from distlab.explorables import guess_number

my_guess = guess_number("Updates on stage 0", 0, 8)
my_guess

# %%
from distlab.exercises.predict import show_guess
from distlab.lessons.weight_stashing import run_without_flush

fresh = cut_model(model, equal, 4, devices)
naive = run_without_flush(fresh, one_f_one_b, images, labels, learning_rate=0.2, stash=False)
behind = np.arange(8)[:, None] - np.array(naive.versions)  # [micro-batch, stage]
show_guess(my_guess, behind[-1, 0])
names = [f"micro-batch {number}" for number in range(8)]
title = "Updates made between a forward and its backward"
figures.show(figures.matrix(behind, names, [f"stage {s}" for s in range(4)], title=title))

# %% [markdown]
# What happens if a stage keeps only inputs, as with rematerialization? Its backward does the forward again with the weights that it finds *now*. There is no error message. So we compare each gradient with the true one: the whole model's, with the weights that the forward used. Then comes the fix: *stash* the weights that a micro-batch used until it has come back.

# %% tags=["nbval-ignore-output"]
from distlab.lessons.weight_stashing import measure_errors

errors = {"present weights": measure_errors(fresh, naive, images, labels)}
other = cut_model(model, equal, 4, devices)
stashed = run_without_flush(other, one_f_one_b, images, labels, learning_rate=0.2)
errors["stashed weights"] = measure_errors(other, stashed, images, labels)
series = {name: (np.arange(8), values) for name, values in errors.items()}
title = "Relative error of the gradient"
figures.show(figures.lines(series, x_label="micro-batch", y_label="relative error", title=title))
assert max(errors["stashed weights"]) < 1e-9 < 1e-3 < max(errors["present weights"])
print("versions of the weights that each stage keeps:", stashed.peak_versions_per_stage)
held = [part.parameter_bytes for part in other.parts]
extra = [(kept - 1) * own for kept, own in zip(stashed.peak_versions_per_stage, held, strict=True)]
print("bytes of weights on each stage:", held)
print("bytes of stashed copies in addition:", extra)
assert tuple(stashed.peak_versions_per_stage) == (4, 3, 2, 1)

# %% [markdown]
# (A relative error of 0 is exact; 1 is as far off as no gradient at all.) Without stashing every micro-batch after the first is off. With stashing the error is gone: the gradient is correct for the weights that the forward used. But those weights are old by now, up to three updates behind on stage 0. Stashing can't fix this *staleness* (the same as in [lesson 11](11-parameter-server.ipynb)), which is why most systems today stop at the end of the batch instead.
#
# An ordinary `GradientTape` stashes without being asked: it keeps the tensors that the forward read, and an update makes new ones. So it's rematerialization that lets the mistake in. (In PyTorch an optimizer changes the weights in place. There, autograd compares version counters and raises an error if a saved tensor has changed. That's why others meet an error where we got a silent one.)
#
# A second mistake is a schedule that can't run. Here stage 0 waits for micro-batch 0 to come back before it sends micro-batch 1, and stage 1 waits for micro-batch 1 before it sends anything back.
#
# **Your turn.** Leave stage 0 unchanged, and write an order for stage 1 that runs.

# %%
wrong = [
    [("F", 0), ("BW", 0), ("F", 1), ("BW", 1)],  # stage 0
    [("F", 0), ("F", 1), ("BW", 1), ("BW", 0)],  # stage 1
]
stage_1 = ...  # the same four, in an order that runs

# %%
from utils.schedules import read_schedule

print(check_schedule(read_schedule(wrong, micro_batches=2)))
right = [wrong[0], turns.ORDER.take(stage_1)]
print(check_schedule(read_schedule(right, micro_batches=2)))

# %% [markdown]
# ## What it costs
#
# Here are all five schedules for four stages and eight micro-batches. The columns: the bubble; the most that any stage keeps, in micro-batches; and the longest time from a stage's first operation to its last, in forwards. The second picture has that time for the three schedules that we ran with chosen times.

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
title = "From a stage's first operation to its last"
figures.show(figures.grouped_bars(groups, unit="ms", title=title))
assert all(each.longest_stage_span > 0.5 for each in ran.values())

# %% [markdown]
# Each run takes longer than its simulation, since threads, messages and other programs take time as well. Interleaving has the smallest bubble of the three, but twice as many operations and more than twice as many messages. Where each of them brings a delay, as on two busy cores, it can lose more than it gains. So measure a schedule where it will run.
#
# ### Back to the gray
#
# Here is ZB-H2 with four micro-batches. It promised no bubble, and a fifth of the time is gray. **Make the gray disappear now, all of it, with four stages.** What does each stage keep then? Compare with 1F1B, and read the two hills.

# %%
schedule_toy("zb-h2", None, micro_batches=4)

# %% [markdown]
# Seven micro-batches do it, one for each of the 2P - 1 places that a full pipeline has, and each stage keeps all seven. 1F1B idles 30 % of that time and keeps four at most. That was the choice all along: gray, or memory.
#
# This is the end of the core. Take a break if you like.
#
# ## And then: a Transformer on two workers
#
# The stages of a pipeline can be processes, too. Here are two workers that send tensors over sockets, as they would between two machines. The model is a Transformer with an encoder and a decoder. Its encoder turns an image into 49 tokens. Its decoder looks at them by cross-attention and names the class. Only one tensor passes between them, so that is the obvious place to cut. `run_stage` is `be_stage` for a process: it builds the model, keeps its own half, and finds its neighbor in TF_CONFIG ([lesson 08](08-tf-config.ipynb)).

# %% tags=["nbval-ignore-output"]
from utils.cluster import LocalCluster
from utils.models import build_encoder_decoder
from utils.parallel.processes import join_reports, run_stage


def build():
    return build_encoder_decoder(dtype="float64")


transformer = build()
halves = [layer.name for layer in transformer.layers]
costs = [1e3 * cost.seconds for cost in measure_layers(transformer, images[:8])]
figures.show(figures.bars(dict(zip(halves, costs)), unit="ms", title="Cost of 8 images"))
order = make_schedule("1f1b", stages=2, micro_batches=8)
with LocalCluster(workers=2) as cluster:
    reports = cluster.run(run_stage, build, costs, order, images, labels, echo=False)
joined = join_reports(order, reports)
assert run_unsplit(transformer, images, labels).find_difference(joined) < 1e-9
rows, title = list_ms(joined, "worker"), "Encoder and decoder in two processes"
figures.show(figures.timeline(rows, title=title, unit="ms"))
print("bytes sent:", joined.traffic.count_links())
assert joined.traffic.count_bytes() == 2 * 64 * 49 * 32 * 8  # tokens there, their gradients back

# %% [markdown]
# The gradients equal the whole model's, and this time nothing is artificial: these are the real times of two processes on two cores. (Micro-batch 0 takes longest, because each process does everything for the first time.)
#
# Now look at the two bars above. The decoder has one query where the encoder has 49 tokens, so by counting multiplications it should cost far less. But with eight small images most of the time goes into starting operations, and the decoder starts more of them: its graph has 175, the encoder's 139. So measure before you cut. On a GPU with large batches the multiplications decide; then move some of the encoder's blocks to the second worker.
#
# ### The 7 B model, in stages
#
# Here is the model from the end of [lesson 15](15-model-parallelism.ipynb) again. Now eight stages of four layers share it.

# %%
from distlab.explorables.one_model import one_model_explorer

one_model_explorer(16)

# %% [markdown]
# A stage holds more than a tensor-parallel GPU, because it keeps the activations of several micro-batches. But the step is shorter. Inside a copy only activations and their gradients at the cuts are sent, and the all-reduce between the eight copies hides behind the backward pass of the last micro-batch. A step has 1,024 sequences, 128 for each copy, so 128 micro-batches: the bubble is small.
#
# ## On a real GPU
#
# While a pipeline trains, in another terminal:
#
#     nvidia-smi dmon -s u
#
# Look at the column `sm`, the share of the time that each GPU ran a kernel. If the last stage's is far below the first's, move the cut. If all are low, make more micro-batches.
# If your stages send with NCCL, a receive that waits is a kernel too and counts as busy. Then look at a profile instead.
#
# ## Recap
#
# - Measured times decided where to cut; the most expensive stage sets the pace.
# - Every schedule gave the unsplit model's gradients, to 1e-9, and so did two processes.
# - GPipe and 1F1B leave 3/11 of the time idle; stage 0 kept 8 and 4 micro-batches. Two chunks leave 3/19, in the simulation.
# - ZB-H2 leaves no bubble if F, B and W take equally long and there are enough micro-batches. It keeps seven of them on every stage.
# - Rematerialization kept only inputs, for a third more time (simulated).
# - Weights that changed on the way silently gave wrong gradients; stashing the old ones corrected them.
#
# ## Cheat sheet
#
# ```python
# from utils.schedules import check_schedule, make_schedule
# from utils.simulate.pipeline import StageTimes, simulate_pipeline
# times = StageTimes(forward=1.0, backward_input=1.0, backward_weight=1.0)  # measure yours
# for name in ("gpipe", "1f1b", "interleaved-1f1b", "zb-h1", "zb-h2"):
#     schedule = make_schedule(name, stages=4, micro_batches=8)
#     run = simulate_pipeline(schedule, times)
#     print(name, check_schedule(schedule), run.bubble_fraction, run.peak_activations_per_stage)
# # P stages, M micro-batches, V chunks on each stage. Bubble: GPipe and 1F1B
# # (P - 1) / (M + P - 1), interleaved (P - 1) / (V M + P - 1)
# # Kept on stage s (from 0): GPipe M micro-batches, 1F1B min(M, P - s)
# ```
#
# In every micro-batch, divide the loss by the size of the *global* batch; then the gradients add up. The stage to copy is `be_stage` above. The whole runner, with rematerialization and stashing, is [utils/parallel/pipeline.py](../utils/parallel/pipeline.py); the one over sockets is [processes.py](../utils/parallel/processes.py). How two processes find each other: [multi_worker_custom_loop.py](../examples/multi_worker_custom_loop.py).
#
# ## Further reading
#
# - Huang and others, [GPipe](https://arxiv.org/abs/1811.06965), 2019
# - Harlap, Narayanan and others, [PipeDream](https://arxiv.org/abs/1806.03377), 2018: 1F1B and weight stashing
# - Narayanan and others, [Efficient large-scale language model training](https://arxiv.org/abs/2104.04473), 2021: interleaved 1F1B, and all kinds of parallelism together
# - Qi and others, [Zero Bubble Pipeline Parallelism](https://arxiv.org/abs/2401.10241), 2023
#
# ## The lab
#
# You write a 1F1B schedule, graded on its bubble and its memory, in [lab 12, pipelines and shards](../labs/lab12-pipelines-and-shards.ipynb).
