# %% [markdown] shows="A run predicted before it is paid for, from this laptop to thousands of GPUs"
# # Planning a run
#
# You book 64 GPUs because one GPU would take six weeks. A day should do it, you say. Four days later half the budget is gone, the GPUs sit waiting for the network, and nobody can say whether 32 would have been as fast. With this lesson you can predict such a run before it starts: how long, how much, and what will hold it up.
#
# **Time:** 90 minutes, in two sittings · **Prerequisites:** [all-reduce](06-all-reduce.ipynb), [fault tolerance](10-fault-tolerance.ipynb) · **Hardware:** two CPU cores
#
# ## Objectives
#
# - Measure what a step costs on one device, in seconds and bytes.
# - Predict the step of several workers, and compare it with a measurement.
# - Compute efficiency, hours and cost of a run on many devices, and name its bottleneck.
# - Find out from the batch per device, and from a roofline, what holds a step up.
# - Compare such predictions with published runs, and see where they fail.

# %%
import numpy as np

from utils.environment import quiet_tensorflow, set_seeds

with quiet_tensorflow():
    import keras
    import tensorflow as tf
from utils.devices import use_logical_devices

set_seeds(0)
print(use_logical_devices(1))

# %% [markdown]
# ## The bill
#
# Here is the guess that goes wrong: 64 devices, so a 64th of the time. On one device a step of this model takes 0.3 s, and the job would take 200,000 × 64 such steps. The model has 400 MB of gradients, the network between devices carries 100 Gb/s, and the devices' step times vary by 5 %. We pay 2.5 for a device-hour; fill in your own price, in your currency.
#
# Below the bill you see one such step. The network only starts when the backward pass is over. **Make the wait disappear, without buying anything.** How much of it is left? The step comes back at the end, on devices that got faster.

# %%
from distlab.explorables import step_time_line
from utils.simulate.collective import Link
from utils.simulate.step import Network, StepWork, simulate_step

PRICE, STEPS = 2.5, 200_000 * 64  # a device-hour; steps of one device
work = StepWork(forward_seconds=0.1, backward_seconds=0.2, gradient_bytes=400e6)
network = Network(Link(10e-6, 100e9 / 8))  # 10 µs a message, 100 Gb/s in bytes
step = simulate_step(work, 64, network, overlap=False, straggler_sigma=0.05)
hoped, real = (STEPS / 64 * seconds / 3600 for seconds in (0.3, step.step_seconds))
print(f"hoped for {hoped:.1f} hours, predicted {real:.1f}")
print(f"{real / hoped - 1:.0%} more time, and {64 * PRICE * (real - hoped):,.0f} more to pay")
step_time_line(work, 64, network.link, overlap=False)

# %% [markdown]
# Only two things came in between: an all-reduce after every step, and waiting for the slowest worker (which the picture leaves out). Make the devices twice as fast, and the step in the picture gets only 1.64 times as fast, because the network takes as long as before. (With the wait for the slowest it's 1.67, since that wait gets shorter too.) This lesson makes such predictions from measurements, and finds out how far to trust them.
#
# ## One device
#
# A plan begins with one step on one device. Make a few calls before you time any, since the first one traces the function. And end each call with `.numpy()`: it waits for the result. Without it you may time only the launch.

# %%
from utils.data import load
from utils.models import build_cnn

data = load("fashion_mnist").train
images, labels = data.images[:64, ..., None] / np.float32(255), data.labels[:64]
model, optimizer = build_cnn(), keras.optimizers.Adam()
cross_entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
optimizer.build(model.trainable_variables)


@tf.function
def train_step(images, labels):
    with tf.GradientTape() as tape:
        loss = cross_entropy(labels, model(images, training=True))
    variables = model.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
    return loss


# %% tags=["nbval-ignore-output"]
from utils.measure import array_bytes, time_calls

batch = tf.constant(images), tf.constant(labels)
timing = time_calls(lambda: train_step(*batch).numpy(), repeats=20, warm_up=3)
gradient_bytes = array_bytes(model.trainable_variables)
print(f"{1e3 * timing.median_seconds:.1f} ms a step, {gradient_bytes:,} bytes of gradients")
assert gradient_bytes == 4 * model.count_params()

# %% [markdown]
# With these two numbers you can already ask the most important question: how long would these bytes take on your network, compared with the step? `calibrate` measures the rest. It runs two processes, and times a step in one, a step in both at once, all-reduces of three sizes between them, a step of both together, a checkpoint, and the input.
#
# **Predict.** Four workers of this machine train the model together, 64 examples each. How many times as long does their step take as the step of one process alone? (Think of your cores: the stored result comes from two.)

# %%
from distlab.explorables import guess_number

my_guess = guess_number("A step of four workers over a step of one", 1, 8, "x", step=0.1)
my_guess  # or write a number in its place

# %% tags=["nbval-ignore-output"]
from distlab.exercises.predict import show_guess
from utils.calibrate import calibrate, check_locally
from utils.cluster import make_launcher

launcher = make_launcher()
profile = calibrate("cnn", batch=64, launcher=launcher)
checks = list(check_locally("cnn", profile, workers=(2, 4), launcher=launcher))
launcher.close()
show_guess(my_guess, checks[-1].measured / profile.compute_seconds, unit="x")
assert profile.gradient_bytes == gradient_bytes

# %% tags=["nbval-ignore-output"]
from distlab import figures

bars = {
    f"{check.workers} workers": {
        "predicted": 1e3 * check.predicted,
        "measured": 1e3 * check.measured,
    }
    for check in checks
}
figures.show(figures.grouped_bars(bars, unit="ms", title="A step of local workers"))
assert all(check.low < check.predicted < check.high for check in checks)

# %% [markdown]
# If you said 1, you thought of a cluster. The workers share your cores. With more workers than cores, a step takes the processor time of all workers, divided by the number of cores. If you said 2, you divided four by two cores. But one process alone already uses more than one core, and four also spend time on sending, waiting and switching. So a prediction for this machine must know its cores. And so local workers can show you that a program is correct, but not that it's fast. On a quiet machine, predicted and measured should be within a quarter of each other; on a busy one they can differ more.
#
# ## From two workers to many
#
# A real cluster has a device for each worker. Then each worker's compute stays the same, and three things grow: the all-reduce, the wait for the slowest worker (the *straggler*), and the number of nodes that can fail. `predict` simulates all three.
#
# Take ResNet-50 on H100s: 25.6 million parameters, about 24.5 billion FLOPs an example for forward and backward, 256 examples on each device. The outputs of its layers take 74 MB an image in 16 bits, and a traced step with momentum runs 2,988 operations on tensors, and each has to be launched.

# %%
from utils.calibrate import Profile, find_machine

known = {"flops_per_example": 24.5e9, "operations": 2988}
resnet = Profile(
    1.0,
    2.0,
    4 * 25.6e6,
    "ResNet-50",
    256,
    activation_bytes=256 * 74e6,
    straggler_sigma=0.03,
    checkpoint_seconds=5,
    restart_seconds=300,
    **known,
)
machine = find_machine("64 H100 on 100 Gb/s")
MFU = 0.1
print(f"{machine.peak_tflops} TFLOP/s at most, {machine.memory_gb} GB; {machine.source}")

# %% [markdown]
# The profile's first two numbers are the seconds of the forward and the backward pass. Only their ratio matters here, since the seconds are computed from the machine's peak. No device reaches its peak. The part that a model reaches is its *model FLOPs utilization*, MFU.
#
# **Your turn.** A step takes `step_seconds` for a batch, and the data sheet says `peak` FLOPs per second. What's the MFU?


# %%
def find_mfu(flops_per_example, batch, step_seconds, peak):
    return ...


# %% tags=["nbval-ignore-output"]
from distlab.turns import lesson20 as turns

find_mfu = turns.MFU_OF.take(find_mfu)
square = tf.random.stateless_normal([1024, 1024], [0, 0])
product = tf.function(lambda: tf.reduce_sum(square @ square))
product()  # traced
seconds = {"step": [], "product": []}
for _ in range(8):  # in turn, so that a busy moment hits both
    seconds["step"] += time_calls(lambda: train_step(*batch).numpy(), 3).seconds
    seconds["product"] += time_calls(lambda: product().numpy(), 3).seconds
peak = 2 * 1024**3 / min(seconds["product"])
cnn_flops = 0
for layer in model.layers:
    if layer.weights:  # each weight of a kernel is used once for each output pixel
        pixels = np.prod(layer.output.shape[1:-1], dtype=int)
        cnn_flops += 3 * 2 * pixels * np.prod(layer.kernel.shape)
mfu = find_mfu(cnn_flops, 64, min(seconds["step"]), peak)
print(f"our CNN: {cnn_flops / 1e6:.1f} MFLOP an image, forward and backward")
print(f"best product of matrices here: {peak / 1e9:.0f} GFLOP/s; MFU of our step {mfu:.0%}")
assert cnn_flops > 6 * model.count_params()  # a convolution uses its weights many times

# %% [markdown]
# (We took the best rate of one large matrix product for the peak of this machine, and counted 2 FLOPs forward and 4 backward for each weight and output pixel. That is a rough count: the first layer's backward pass is shorter, for example.) Our share above is of what this CPU really reached. Of a GPU's data sheet, well-tuned large language models reach 0.4, and small convolutions less: we take 0.1, and you should measure your own if you can.
#
# **Predict.** 64 GPUs, 8 to a node, 100 Gb/s between the nodes. What percentage of 64 single GPUs' throughput do they reach?

# %%
my_guess = guess_number("Throughput of 64 GPUs, of 64 times one", 0, 100, "%")
my_guess

# %%
from utils.calibrate import Scenario, predict

job = {"examples": 1_281_167, "epochs": 90, "price": PRICE, "mfu": MFU}
(row,) = predict(resnet, Scenario((64,), machine=machine, **job))
show_guess(my_guess, 100 * row.efficiency, unit="%", how="predicted")
print(f"{1e3 * row.step_seconds:.1f} ms a step, {row.hours:.2f} hours, {row.cost:,.0f} to pay")
print({name: f"{1e3 * seconds:.2f} ms" for name, seconds in row.parts.items()})

# %% [markdown]
# The last line splits the step into its parts; the largest is its bottleneck. A faster network saves only what is called network. Here is the table for a budget meeting: for each network, efficiency and bottleneck on 1, 8, 64 and 512 devices.

# %%
sizes, links = (1, 8, 64, 512), ("10GbE", "100GbE", "NDR")
for name in links:
    plan = predict(resnet, Scenario(sizes, machine=find_machine(f"H100 on {name}"), **job))
    cells = [f"{r.devices:,}: {r.efficiency:.0%} ({r.bottleneck})" for r in plan]
    print(f"{name + ':':<7}", ", ".join(cells))
    assert plan[-1].efficiency < plan[0].efficiency < 1.001

# %% [markdown]
# (NDR is InfiniBand at 400 Gb/s. 100GbE is Ethernet, with a longer latency than the network above, so its 64 devices reach a little less.) On 10GbE, 64 devices do the work of 19.
#
# ### The same on the back of an envelope
#
# You can check most of this by hand, and you should. Two lines for the steps above:
#
# - **Compute**: FLOPs per example × examples per device / (peak × MFU).
# - **Network**: in a ring of N devices each sends 2 (N − 1) / N times the gradients' bytes. Divide by the bandwidth, and add 2 (N − 1) times the latency for each bucket of gradients. What the backward pass hides comes off, and only the rest makes the step longer. It's called *exposed communication*: at best, max(0, network − backward pass). (`predict` is more careful about that, and it sends inside each node first.)
#
# And a third one for language models. Each parameter costs 2 FLOPs per token forward, one product and one sum, and twice that backward.
#
# **Your turn.** How many days does a run take, if each GPU really does `flops_each` FLOPs per second?


# %%
def days(parameters, tokens, gpus, flops_each):
    return ...


# %%
days = turns.DAYS.take(days)
compute = 24.5e9 * 256 / (machine.peak_tflops * 1e12 * MFU)
print(f"compute of ResNet-50's step: {1e3 * compute:.1f} ms by hand")
assert np.isclose(compute, row.parts["computation"], rtol=0.01)
sent = 2 * 63 / 64 * work.gradient_bytes / network.link.bandwidth_bytes_per_second
latency = 2 * 63 * network.link.latency_seconds * 16  # 16 buckets of 25 MB
print(f"network of the bill: {1e3 * sent:.0f} ms for bytes, {1e3 * latency:.0f} ms for latency")
run = days(175e9, 300e9, 1024, 140e12)
print(f"175 billion parameters, 300 billion tokens, 1,024 GPUs at 140 TFLOP/s: {run:.0f} days")
print(f"and with each forward pass computed twice to save memory: {run * 8 / 6:.0f} days")

# %% [markdown]
# That product of 6, the parameters N and the tokens D is the *6·N·D* of papers and of `distlab plan --parameters`. Recomputation makes it 8·N·D. (MFU counts what the model needs, so 6 and not 8: extra work doesn't make a run better. With long sequences attention adds 12 × layers × width × sequence per token, and MFU counts that too.)
#
# **A good place for a break.** When you come back, run all cells above once.
#
# ## The mistake: strong scaling by division
#
# In *weak* scaling each device keeps its batch, and the global batch grows with the devices. In *strong* scaling the global batch stays, and each device gets less to do. People often plan the second with the efficiency of the first. They forget that the gradients stay as large as ever, however few examples they come from, and that a step launches just as many operations. The picture has both: 256 examples on each device (weak), and 256 on all devices together (strong). Why not 4,096 on each? They'd need 304 GB, nearly all of it for activations, and an H100 has 80. `predict` then says so and predicts nothing.

# %%
ndr = find_machine("H100 on NDR")
many = Profile(1.0, 2.0, 4 * 25.6e6, batch=4096, activation_bytes=4096 * 74e6, **known)
print(predict(many, Scenario((64,), machine=ndr, mfu=MFU))[0].advice)
many = Profile(1.0, 2.0, 4 * 25.6e6, batch=256, activation_bytes=256 * 74e6, **known)
sizes = tuple(2**k for k in range(9))
curves = {}
for scaling, name in {"weak": "weak: 256 each", "strong": "strong: 256 in all"}.items():
    plan = predict(many, Scenario(sizes, scaling, machine=ndr, mfu=MFU))
    curves[name] = (sizes, [100 * row.efficiency for row in plan])
title = "Efficiency of ResNet-50 under weak and under strong scaling"
words = {"x_label": "devices", "y_label": "% efficiency", "title": title, "log_x": True}
figures.show(figures.lines(curves, **words))
weak, strong = (values for _, values in curves.values())
assert strong[-1] < weak[-1]

# %% [markdown]
# The fix is to look at the batch *per device*. Compute grows with it, communication doesn't. So on a slow network there is a batch below which you wait for the network, and above it for the devices. On NDR, with 64 devices, the network is never what this step waits for most: with small batches, launches are. At the far left the lines are flat: below about 48 images, a step takes as long as its 2,988 launches, whatever the batch. XLA (`jit_compile=True`) leaves 390 of them, those that it can't fuse into others.
#
# Weak scaling ends too, and no network is to blame. On 4,096 devices, 256 images each make a batch of 1,048,576. ImageNet has 1,281,167 images, so that's 1.2 steps an epoch. In [lesson 17](17-large-batch-training.ipynb) too few steps ruined a run long before that.


# %%
def find_efficiency(batch, link):
    own = Profile(1.0, 2.0, 4 * 25.6e6, batch=batch, activation_bytes=batch * 74e6, **known)
    scenario = Scenario((64,), machine=find_machine(f"H100 on {link}"), mfu=MFU)
    return predict(own, scenario)[0].efficiency


batches = [2**k for k in range(1, 11)]
curves = {name: (batches, [100 * find_efficiency(b, name) for b in batches]) for name in links}
words = {"x_label": "examples on each of 64 devices", "y_label": "% efficiency", "log_x": True}
figures.show(figures.lines(curves, title="Waiting on the left, computing on the right", **words))
assert all(line[1][0] < line[1][-1] for line in curves.values())

# %% [markdown]
# ## The roofline
#
# The same question comes up inside one device: does it wait for its arithmetic, or for its memory? A kernel (one operation on the device) that does little work for each byte it reads waits for memory. Its best rate is bytes per second times FLOPs per byte. (FLOPs per byte are also called *arithmetic intensity*.) Once that exceeds the device's peak, the peak is the limit, and the roof is flat. An H100 reads 3.35 TB/s (its data sheet). Where is the corner?
#
# **Your turn.** How many FLOPs per byte has a product of two n × n matrices, if it reads both once, writes the result once, and a number has `bytes_each` bytes?


# %%
def intensity(n, bytes_each):
    return ...


# %%
intensity = turns.INTENSITY.take(intensity)
MEMORY_BYTES_PER_SECOND = 3.35e12
corner = machine.peak_tflops * 1e12 / MEMORY_BYTES_PER_SECOND
print(f"{corner:.0f} FLOPs per byte")
per_byte = np.geomspace(1, 4096, 60)
roof = np.minimum(machine.peak_tflops, per_byte * MEMORY_BYTES_PER_SECOND / 1e12)
words = {"x_label": "FLOPs per byte", "y_label": "TFLOP/s at most", "log_x": True}
kinds = {f"matrices of {n}": intensity(n, 2) for n in (16, 128, 4096)}
marks = {name: (at, float(np.interp(at, per_byte, roof))) for name, at in kinds.items()}
title = "Roofline of an H100"
figures.show(
    figures.lines({"roof": (per_byte, roof)}, log_y=True, title=title, marks=marks, **words)
)

# %% [markdown]
# With two bytes a number it's n/3. Small matrices leave most of the device idle, whatever you paid for it. That is one reason why MFU is far below 1. Another is everything that isn't a matrix product.
#
# That was a data sheet. Now some of our own kernels, on this machine. Its roof comes from two measurements: the best rate of any product for the flat part, and adding two long vectors, 12 bytes for each addition, for the slope.

# %% tags=["nbval-ignore-output"]
long, other = (tf.random.stateless_normal([2**24], [0, seed]) for seed in (1, 2))
add = tf.function(lambda: long + other)
add_seconds = time_calls(add, repeats=5, warm_up=2).best_seconds
here, marks = np.geomspace(1 / 16, 512, 60), {}
for n in (16, 64, 256, 1024):
    a = tf.random.stateless_normal([n, n], [0, 2])
    multiply = tf.function(lambda a=a: tf.reduce_sum(a @ a))
    seconds = time_calls(lambda multiply=multiply: multiply().numpy(), 9, warm_up=2).best_seconds
    marks[f"matrices of {n}"] = (intensity(n, 4), 2 * n**3 / seconds / 1e9)
best = max(peak / 1e9, *(rate for _, rate in marks.values()))
roof = np.minimum(best, here * 12 * 2**24 / add_seconds / 1e9)
words = {"x_label": "FLOPs per byte", "y_label": "GFLOP/s", "log_x": True, "log_y": True}
lines = {"roof of this machine": (here, roof)}
figures.show(figures.lines(lines, title="Our products, measured", marks=marks, **words))

# %% [markdown]
# The small products stay far below the roof, and not because of memory: launching a function takes longer than multiplying two matrices of 16. That's the floor for launches from above. The product of 1,024 is the roof here, and when we stored this, the product of 256 reached about a quarter of it. (The roof is the best rate we saw. Above, where the same product took turns with training steps, it was slower, so against this roof the MFU of our step would be lower.)
#
# ## Published runs
#
# Would these simulators have predicted runs that others have published? For each picture below we feed a paper's inputs to a simulator, and draw its answer next to the published one. The caption says how far apart they are. First four easy cases: pipeline bubbles, memory and numbers of parameters, which the papers computed too, and a ring all-reduce inside one node.

# %%
from distlab.lessons.published_runs import show_published

counted = "zero_bubble_2023: bubbles", "zero_memory", "megatron_2021_table1: parameters"
for name in (*counted, "h200_ring_busbw"):
    rows = show_published(name)
    assert all(abs(row.error) <= row.tolerance for row in rows)

# %% [markdown]
# These agree closely, as they should. Bubbles, bytes and parameters are a matter of counting. (The interleaved schedules are off by up to 4 %, and Megatron's smallest model by 3 %, since the paper rounds it to two digits.) The ring got its bandwidth from the first row of its table. Now measured training runs, where a simulator has to leave something out:

# %%
measured = "tf_benchmarks_2017", "lamb_bert_weak_scaling", "gpipe_table3_2019"
for name in (*measured, "zero_bubble_2023: samples a second"):
    rows = show_published(name)
    assert all(abs(row.error) <= row.tolerance for row in rows if row.tolerance is not None)

# %% [markdown]
# One latency and one bandwidth, fitted on ResNet-50 alone, are enough for the speed-up of four other networks on three systems. LAMB's times on 64 and 128 chips follow from those on 16 and 32. GPipe's Transformer fits because its stages are equal. AmoebaNet's are not, and there the simulator promises too much. For Zero Bubble we compare ratios between schedules: what the simulator leaves out slows all of them, and mostly cancels.
#
# Next, two where it fails or can't tell, and one where the paper's formula needs a measurement:

# %%
from utils.simulate.comparisons import transformer_flops

middle = [r for r in show_published("nccl_allreduce_p4de") if r.tolerance is None]
show_published("llama3_2024")
print(f"worst in the middle: {min(row.error for row in middle):.0%}")
hours = 300e9 / 2048 * transformer_flops(96, 12288, 1) / (1024 * 140e12) / 3600
print(f"Megatron's formula: 175 billion parameters, 300 billion tokens: {hours / 24:.0f} days")

# %% [markdown]
# One latency and one bandwidth describe small and large messages of nccl-tests, and miss the middle by half: in between, the library changes its algorithm. For Llama 3, the paper gives the number of interruptions, but not how long a save and a restart took. With one minute and ten minutes we get less than the 90 % that the paper exceeds. The formula of Megatron's authors for a whole run is printed last. It's the 8·N·D from above plus what attention and the vocabulary cost. The paper itself takes plain 8·N·D and says 34 days. It needs a device's real speed, and their 140 TFLOP/s were measured. Only your own measurement can replace that number. Back to Llama 3: which pairs of times would reach 90 %? (For your own run you don't have to calculate this share. `utils.measure_goodput` measures it from the run's events, as the strip in the cockpit of [lesson 10](10-fault-tolerance.ipynb) shows.)

# %%
from utils.simulate.comparisons import llama_mtbf_hours
from utils.simulate.failures import best_interval_seconds, effective_time_fraction

mtbf = llama_mtbf_hours() * 3600
for save, restart in ((60, 600), (60, 60), (10, 600), (10, 60)):
    share = effective_time_fraction(best_interval_seconds(save, mtbf), save, mtbf, restart)
    print(f"{save} s to save, {restart} s to restart: {share:.1%} of the time trains")

# %% [markdown]
# **Saving a large model.** Take 70 billion parameters with Adam. The float32 weights and two averages take 12 bytes per parameter, or 840 GB. If one process writes them at 2 GB/s, training stops for 420 seconds. Two things shorten that:
#
# - *Sharded* checkpoints: each rank writes what it holds. On 512 GPUs that's 1.64 GB each. Eight to a node and 2 GB/s per node make 6.6 seconds. (The storage must take 128 GB/s from 64 nodes. If it doesn't, divide by what it takes.)
# - *Asynchronous* checkpoints: training stops only while each GPU copies its 1.64 GB to the host. At 25 GB/s that's 0.07 seconds. The host then writes in the background, and needs the memory for it: 13 GB per node.
#
# In the formula of Young and Daly, the time to save is the time that training stops. So a shorter stop also means that you save more often and lose less: the best interval shrinks with its square root, but it can't be shorter than the write. TensorFlow has the second: `tf.train.CheckpointOptions(enable_async=True)`. It has nothing like the first for a mirrored model. Its option `experimental_sharding_callback` decides how one checkpoint is cut into files, and doesn't split the writing among workers.
#
# Two things our simulators don't predict: how much tuning an input pipeline gains, and accuracy as the batch grows. Measure both. [Lesson 12](12-input-pipelines.ipynb) does the first. For the second, ImageNet's error hardly moves up to a batch of 8,192, and small models don't behave like it. So check accuracy on a small run before you multiply devices, as [lesson 17](17-large-batch-training.ipynb) does.
#
# ## What it costs: your own plan
#
# Four sizes, with a node that fails every 5,000 hours. Where do eight times the devices stop making the run nearly eight times shorter? There the bill jumps. Change the network, the batch, the failures or the price, and run the cell again. In a shell, `distlab plan` does the same.

# %%
plan = predict(resnet, Scenario((8, 64, 512, 4096), machine=ndr, node_mtbf_hours=5000, **job))
for row in plan:
    print(
        f"{row.devices:>5} devices: {row.hours:7.3f} h, {row.cost:6,.0f} to pay, {row.bottleneck}"
    )
assert plan[0].hours > plan[-1].hours and plan[0].cost < plan[-1].cost

# %% [markdown]
# The run gets shorter and the bill larger. But don't order what the last line promises. Its hours and its bill follow from the speed, and nothing in the planner asks whether the network still learns. 4,096 devices with 256 images each make a batch of 1,048,576, and ImageNet has 1,281,167 images. That's 1.2 steps an epoch, 110 in the whole run. At 16,384 devices, a single step would take 3.3 epochs' worth of images. Goyal's largest batch without a loss of accuracy, 8,192, takes 32 of these devices and 14,075 steps. So weak scaling has a limit that efficiency doesn't show: steps = epochs × examples / (batch per device × devices). Work that out first, and stop when too few are left to learn in ([lesson 17](17-large-batch-training.ipynb)). Below that limit, it depends on what an hour of waiting costs you.
#
# ### The 7 B model, in two stages
#
# In lessons [15](15-model-parallelism.ipynb), [16](16-pipeline-parallelism.ipynb) and [18](18-precision-and-memory.ipynb) each GPU had most of its memory empty. Suppose pipelines are all you have: cut no more than you must. (Lesson [23](23-which-way-to-cut.ipynb) has something better.)

# %%
from distlab.explorables.one_model import one_model_explorer

one_model_explorer(20)

# %% [markdown]
# With two stages instead of eight, the GPUs are nearly full and the step is the shortest so far, because fewer stages idle less and send less.
#
# ### Back to the step
#
# The 64 devices of the first picture send during the backward pass now, and they have become 16 times as fast. **Give them something to do.** What do you have to buy, and how far does it take you?

# %%
fast = StepWork(forward_seconds=0.1 / 16, backward_seconds=0.2 / 16, gradient_bytes=400e6)
before, after = (simulate_step(each, 64, network).step_seconds for each in (work, fast))
print(
    f"a step of {1e3 * before:.0f} ms takes {1e3 * after:.0f}: {before / after:.1f} times as fast"
)
wider = simulate_step(fast, 64, Network(Link(10e-6, 8 * 100e9 / 8))).step_seconds
assert 0.4 < 1 - (fast.forward_seconds + fast.backward_seconds) / wider < 0.5
step_time_line(fast, 64, network.link)

# %% [markdown]
# Sending during backward doesn't help much here, because there is hardly a backward pass left to hide behind. Even with a network eight times as fast, where the slider ends, the devices wait for nearly half of the step. Fewer bytes help as well: gradients of two bytes each, or a larger batch per device, so that the same bytes are sent less often.
#
# ## On a real GPU
#
#     distlab train --device gpu --model cnn --epochs 2 --global-batch-size 1024
#
# Take the images/s of the second epoch, multiply by the CNN's FLOPs per image from above, and divide by the data sheet's peak for the type that you train in, without sparsity. (For `float32` on an Ampere GPU or later that's TF32. Add `--dtype mixed_bfloat16` to compare with 989.) That's your MFU, and the first number to put into `distlab plan`.
#
# ## Recap
#
# - A step's seconds and bytes, measured on one device.
# - Two and four local workers predicted, run, and compared.
# - Efficiency, hours, cost and bottleneck of 64 GPUs, from a data sheet and a batch, and a limit that none of them shows: the steps that are left.
# - A small batch per device makes communication or launches the bottleneck; few operations per byte make memory the bottleneck.
# - Predictions by counting (bubbles, bytes) came close to the papers, and so did speed-ups. All-reduces of medium size didn't, and Llama 3 can't be checked without its save and restart times.
#
# ## Cheat sheet
#
# ```python
# from utils.calibrate import Profile, Scenario, find_machine, predict
#
# profile = Profile(forward_seconds=0.1, backward_seconds=0.2, gradient_bytes=4 * 25.6e6,
#                   batch=256, flops_per_example=24.5e9)   # or calibrate("cnn", batch=64)
# machine = find_machine("64 H100 on 100 Gb/s")
# scenario = Scenario((8, 64, 512), examples=1_281_167, epochs=90, machine=machine,
#                     node_mtbf_hours=5000, price=2.5, mfu=0.1)
# for row in predict(profile, scenario):
#     print(row.devices, row.step_seconds, row.efficiency, row.bottleneck, row.hours, row.cost)
# ```
#
# In a shell: `distlab plan --builtin-model cnn --devices 1,8,64 --machine "H100 on 100 Gb/s"`.
#
# ## Further reading
#
# - Williams, Waterman and Patterson, [Roofline](https://doi.org/10.1145/1498765.1498785), 2009
# - Chowdhery and others, [PaLM](https://arxiv.org/abs/2204.02311), 2022, appendix B: model FLOPs utilization
# - Li and others, [PyTorch Distributed](https://arxiv.org/abs/2006.15704), 2020: gradient buckets and their overlap
# - Daly, [A higher order estimate of the optimum checkpoint interval](https://doi.org/10.1016/j.future.2004.11.016), 2006
# - Narayanan and others, [Efficient Large-Scale Language Model Training on GPU Clusters](https://arxiv.org/abs/2104.04473), 2021
#
# ## The lab
#
# In [lab 14, plan a run](../labs/lab14-plan-a-run.ipynb) you write such a plan step by step, and then predict published speed-ups to within 15 %.
