# %% [markdown] shows="A 7-billion-parameter model on 1 to 512 GPUs: ZeRO, a mesh, ring attention, experts and FlashAttention by hand, each equal to one device"
# # Which way to cut?
#
# You have a model of 7 billion parameters, 512 GPUs and six ways to cut. Frameworks offer them as switches with names such as FSDP, TP, PP, CP and EP, and a wrong mix can cost you most of what you pay for. Here you build each cut in a few lines, see what it sends and what it saves, and then let a planner compare them.
#
# **Time:** 95 minutes, in sittings of 50 and 45 · **Prerequisites:** [model parallelism](15-model-parallelism.ipynb), [pipeline parallelism](16-pipeline-parallelism.ipynb), [precision and memory](18-precision-and-memory.ipynb) and [planning](20-planning.ipynb) · **Hardware:** two CPU cores
#
# ## Objectives
#
# - Take a step of ZeRO by hand, and say what stages 2 and 3 change in memory and in bytes.
# - Lay devices out as a mesh, and cut one model along three axes at once.
# - Cut a sequence: for the norms next to tensor parallelism, and for attention round a ring.
# - Send tokens to experts and back, and count those that find no room.
# - Choose the cut for a model, a sequence length and a number of GPUs, and give the reason.

# %%
from utils.environment import quiet_tensorflow, set_seeds

with quiet_tensorflow():
    import tensorflow as tf
import dataclasses
import tracemalloc

import numpy as np

from utils.devices import use_logical_devices

set_seeds(0)
devices = use_logical_devices(8)
print(len(devices), "devices:", devices[0], "to", devices[-1])

# %% [markdown]
# ## Which cut would you pay for?
#
# Our model is a Transformer of 32 layers, 4,096 wide. It has N = 7 billion parameters, and we want to train it on a trillion tokens, D. Here it is on 64 H100 GPUs of 80 GB, computed by the planner behind `distlab plan --parameters`: what each GPU must hold, and how long a step of about 4 million tokens takes. **Make it fit, with the shortest step you can find. Then ask for sequences of 131,072 tokens, and do it again.** You don't have to know yet what the ways to cut are. The three questions on top show you around.

# %%
from distlab.explorables.cut_explorer import cut_explorer
from utils.simulate.planner import Run, tabulate_layouts

run = Run(parameters=7e9, layers=32, hidden=4096, sequence=4096, vocabulary=50_000, tokens=1e12)
lengthened = dataclasses.replace(run, sequence=131_072, global_batch=32)
lengths = {"4,096 tokens": run, "131,072 tokens": lengthened}
sizes = tuple(2**power for power in range(3, 10))
tables = {
    name: tabulate_layouts(each, "H100", "8x400Gb/s", sizes) for name, each in lengths.items()
}
cut_explorer(tables, capacity_gb=80, name="H100")

# %% [markdown]
# The explorer comes back at the end, when you've built the cuts. Then you can say why one of them wins.
#
# ## One model, one GPU
#
# Why cut at all? Each parameter takes part in one multiplication and one addition per token on the way forward, and in twice as many on the way back. That makes about 6 · N · D FLOPs. An H100 can do 989 · 10¹² per second in bfloat16. In practice a good run reaches about 40 % of that.
#
# **Predict.** How many years would one H100 need, if the model fit?

# %%
from distlab.explorables import guess_number

my_guess = guess_number("Years on one H100", 0.01, 1000, "years", log=True)
my_guess

# %%
from distlab import figures
from distlab.exercises.predict import show_guess
from utils.simulate.transformer import find_kept_bytes

seconds = 6 * run.parameters * run.tokens / (0.4 * 989e12)
show_guess(my_guess, seconds / (365 * 24 * 3600), unit=" years", how="computed")
kept = [32 * find_kept_bytes(run.model, 4096, scores=s) / 1e9 for s in (False, True)]
parts = {"weights": 14.0, "gradients": 14.0, "Adam's state": 84.0, "activations": kept[0]}
parts["activations with scores"] = kept[1]
title = "What one GPU would have to hold, one sequence at a time"
figures.show(figures.bars(parts, unit="GB", title=title, reference=("an H100: 80 GB", 80.0)))

# %% [markdown]
# (Computed, not measured.) So there are two reasons to cut. Three years is too long, and 112 GB of weights, gradients and state don't fit into 80. The last bar is the activations again, if attention also stores every token's score for every other token: 69 GB more. Remember it for the second sitting.
#
# The first sitting begins with *store less*: every GPU computes as before and keeps only a part of what it holds. Then it cuts the model itself, along a mesh. The second sitting cuts the sequence and spreads experts, so every GPU does a part of the work on each sequence or token.
#
# ## First sitting: store less, then cut the model
#
# In data parallelism all ranks hold the same Adam state and make the same update. [Lesson 15](15-model-parallelism.ipynb) has ZeRO's memory table. Here is the step itself. Four ranks train two small layers, in float64 so that differences show. Rank k computes the gradient of its own 16 images on its own device.

# %%
from utils.parallel.group import DeviceGroup

RANKS = 4
group = DeviceGroup(devices[:RANKS])
rng = np.random.default_rng(0)
images, targets = rng.normal(size=(64, 28)), rng.normal(size=(64, 4))
start = rng.normal(size=28 * 12 + 12 * 4) / 4  # both kernels in one vector: 384 weights


def find_gradient(weights, images, targets):
    """Return the gradient of the mean squared error, in one vector."""
    kernels = tf.constant(weights[: 28 * 12]), tf.constant(weights[28 * 12 :])
    with tf.GradientTape() as tape:
        tape.watch(kernels)
        hidden = tf.nn.relu(images @ tf.reshape(kernels[0], (28, 12)))
        outputs = hidden @ tf.reshape(kernels[1], (12, 4))
        loss = tf.reduce_mean((outputs - targets) ** 2)
    return tf.concat(tape.gradient(loss, kernels), axis=0)


own = np.split(images, RANKS), np.split(targets, RANKS)  # [rank][16, ...]

# %% [markdown]
# An all-reduce is a reduce-scatter followed by an all-gather ([lesson 06](06-all-reduce.ipynb)). ZeRO pulls the two apart and puts the update between them. So we need the halves on their own. `ORDER` turns the ring by one place, so that the sum of piece k ends up on rank k.

# %%
from utils.collectives import ring_all_gather, ring_reduce_scatter, split_into_chunks

ORDER = [1, 2, 3, 0]  # the ranks round the ring, from position 0


def reduce_scatter(parts, network):
    """Return the sum of all `parts`, in pieces: rank k gets piece k."""
    chunks = [split_into_chunks(np.asarray(parts[rank]), RANKS) for rank in ORDER]
    ring_reduce_scatter(chunks, network, ORDER)
    return [chunks[rank - 1][rank] for rank in range(RANKS)]


def all_gather(pieces, network):
    """Return all pieces together, on each rank."""
    chunks = [[None] * RANKS for _ in range(RANKS)]
    for rank, piece in enumerate(pieces):
        chunks[rank - 1][rank] = np.asarray(piece)
    ring_all_gather(chunks, network, ORDER)
    return [np.concatenate(chunks[rank - 1]) for rank in range(RANKS)]


# %% [markdown]
# Stage 1 of ZeRO: each rank keeps Adam's two averages for its quarter of the weights only, and updates only that quarter.
#
# **Predict.** Compared with the all-reduce of plain data parallelism, how many times the bytes does each rank send?

# %%
my_guess = guess_number("Times the bytes of the all-reduce", 0, 3, "x")
my_guess


# %%
def adam(weights, gradient, state, step, rate=0.01):
    """Return the new weights, and change the two averages in `state` in place."""
    state[0] += 0.1 * (gradient - state[0])
    state[1] += 0.001 * (gradient**2 - state[1])
    mean, square = state[0] / (1 - 0.9**step), state[1] / (1 - 0.999**step)
    return weights - rate * mean / (np.sqrt(square) + 1e-7)


def zero_step(weights, states, step, network):
    """Take one step of ZeRO stage 1; `weights` are whole on each rank, `states` in pieces."""
    gradients = group.apply(find_gradient, weights, *own)
    sums = reduce_scatter(gradients, network)
    pieces = [split_into_chunks(weights[rank], RANKS)[rank] for rank in range(RANKS)]
    new = [adam(w, g / RANKS, state, step) for w, g, state in zip(pieces, sums, states)]
    return all_gather(new, network)


# %%
from utils.collectives import Network, count_bytes, ring_all_reduce

weights, states = [start] * RANKS, [np.zeros((2, 96)) for _ in range(RANKS)]
whole, state = start, np.zeros((2, 384))
for step in range(1, 6):
    network = Network(RANKS)
    weights = zero_step(weights, states, step, network)
    whole = adam(whole, find_gradient(whole, images, targets).numpy(), state, step)
    assert all(np.allclose(mine, whole, rtol=0, atol=1e-12) for mine in weights)
sent = max(count_bytes(network.messages, RANKS))
plain = ring_all_reduce([start] * RANKS).bytes_per_rank[0]
print(f"after 5 steps every rank has one device's weights; each sent {sent:,} bytes a step")
show_guess(my_guess, sent / plain, unit="x")

# %% [markdown]
# The same bytes, and a quarter of the state on each rank. That's why stage 1 is almost free. What the later stages change:
#
# - **Stage 2** also throws the gradient away, except for the rank's own piece, as soon as each bucket is reduced. The bytes stay the same, until you accumulate several micro-batches: each of them then needs its own reduce-scatter.
# - **Stage 3** keeps only a piece of the weights too. Each layer's weights are gathered before its forward pass, dropped, gathered again before its backward pass, and dropped again. The new weights aren't gathered at the end, because the next step does it.
#
# PyTorch's FSDP (`fully_shard`) is stage 3. Here it is, with the two gathers in view:


# %%
def zero3_gradient(pieces, network):
    """Return each rank's piece of the mean gradient; ranks hold pieces of the weights alone."""
    all_gather(pieces, network)  # for the forward pass, then dropped
    gathered = all_gather(pieces, network)  # for the backward pass
    sums = reduce_scatter(group.apply(find_gradient, gathered, *own), network)
    return [total / RANKS for total in sums]


network = Network(RANKS)
pieces = zero3_gradient(np.split(whole, RANKS), network)
expected = find_gradient(whole, images, targets).numpy()
assert np.allclose(np.concatenate(pieces), expected, rtol=0, atol=1e-12)
print(f"stage 3 sends {max(count_bytes(network.messages, RANKS)) / plain:.2f} times the bytes")

# %% [markdown]
# Half as much again, for weights that no rank has to hold. (A network of this size is gathered in one piece. A real one is gathered layer by layer, so only one or two layers are whole at a time.)
#
# **Your turn.** In mixed precision a parameter takes 2 bytes for the weight, 2 for the gradient and 12 for the optimizer. Write how many bytes a rank holds at each stage, 0 to 3.


# %%
def held(parameters, ranks, stage):
    return ...  # bytes on each rank


# %%
from distlab.turns import lesson23 as turns

held = turns.HELD.take(held)
stages = {f"stage {stage}": held(7e9, 64, stage) / 1e9 for stage in range(4)}
title = "Each of 64 GPUs, without activations"
figures.show(figures.bars(stages, unit="GB", title=title, reference=("an H100: 80 GB", 80.0)))

# %% [markdown]
# ## A mesh
#
# ZeRO cuts what is stored. To cut the model as well, arrange the devices as a grid with one axis for each cut, a *mesh*. Each device then belongs to one group along each axis. Data and tensor groups add up with an all-reduce (or its two halves), and the stages of a pipeline send to each other.
#
# Which axis goes where matters. Tensor parallelism sends the most and hides the least, so its groups are neighbors inside a node, and it's the last axis. Data parallelism sends once a step and hides it behind the backward pass. It comes first, and crosses nodes.
#
# **Your turn.** A run on 512 GPUs uses tensor parallelism over 8 and a pipeline of 4 stages. How many copies of the model are left for data parallelism?

# %%
copies = ...  # write it as a calculation

# %%
from distlab.lessons.mesh_pictures import draw_mesh

copies = turns.COPIES.take(copies)
ranks = np.arange(8).reshape(2, 2, 2)  # [data, pipeline, tensor]
axes = ("data", "pipeline", "tensor")
figures.show(draw_mesh(ranks, axes))
for axis, name in enumerate(axes):
    print(f"{name:<9}", np.moveaxis(ranks, axis, -1).reshape(-1, 2).tolist())

# %% [markdown]
# Now one step on all eight devices. The model has two blocks, y = x + relu(x A) B. Each stage of the pipeline has one block. The tensor axis cuts A by columns and B by rows. The data axis cuts the batch, so at the end each device adds its gradient to its partner's, in the other copy of the model. One device with the full model is the reference.

# %%
x, target = rng.normal(size=(2, 8, 16))  # [example, width]
blocks = [(rng.normal(size=(16, 32)) / 4, rng.normal(size=(32, 16)) / 6) for _ in range(2)]
cut = {}  # (data, stage, tensor): its columns of A and rows of B
for d, s, t in np.ndindex(2, 2, 2):
    with tf.device(devices[ranks[d, s, t]]):
        columns, rows = np.split(blocks[s][0], 2, axis=1)[t], np.split(blocks[s][1], 2)[t]
        cut[d, s, t] = [tf.Variable(columns), tf.Variable(rows)]


def run_block(y, weights):
    return tf.nn.relu(y @ weights[0]) @ weights[1]


with tf.GradientTape() as tape:
    losses = []
    for d, (y, wanted) in enumerate(zip(np.split(x, 2), np.split(target, 2))):
        for s in range(2):  # y arrives from the stage before
            terms = []
            for t in range(2):
                with tf.device(devices[ranks[d, s, t]]):
                    terms.append(run_block(y, cut[d, s, t]))
            y = y + tf.add_n(terms)  # all-reduce along the tensor axis
        losses.append(tf.reduce_sum((y - wanted) ** 2) / target.size)
    loss = tf.add_n(losses)
gradients = tape.gradient(loss, cut)

# %%
whole_blocks = [[tf.Variable(each) for each in block] for block in blocks]
with tf.GradientTape() as tape:
    y = x
    for weights in whole_blocks:
        y = y + run_block(y, weights)
    reference = tf.reduce_mean((y - target) ** 2)
expected = tape.gradient(reference, whole_blocks)

# %%
for s, t in np.ndindex(2, 2):
    for k, axis in enumerate((1, 0)):  # A by columns, B by rows
        pair = [gradients[d, s, t][k].numpy() for d in range(2)]
        summed = ring_all_reduce(pair).vectors[0]
        own_part = np.split(expected[s][k].numpy(), 2, axis=axis)[t]
        assert np.allclose(summed, own_part, rtol=0, atol=1e-12)
print("loss and all gradients equal one device's:", np.isclose(loss, reference, rtol=1e-12))

# %% [markdown]
# Nothing in the three cuts knows of the others, and that's why they combine. (The pipeline here has one micro-batch. [Lesson 16](16-pipeline-parallelism.ipynb) fills the bubble.)
#
# **Take a break here.** That was the first sitting, 50 minutes. When you come back, run all cells above once: it takes ten seconds or so.
#
# ## Second sitting: cut the sequence, spread the experts
#
# Tensor parallelism leaves one thing whole: between two split layers, each device normalizes *all* tokens and keeps all of them for the backward pass. *Sequence parallelism* gives each device a quarter of the tokens there. The all-reduce becomes an all-gather before the split layer and a reduce-scatter after it.


# %%
def normalize(x):
    return (x - tf.reduce_mean(x, -1, True)) / (tf.math.reduce_std(x, -1, keepdims=True) + 1e-6)


tokens = rng.normal(size=(16, 16))  # [token, width]
up, down = blocks[0]
one_device = tokens + run_block(normalize(tokens), (up, down))
split = list(zip(np.split(up, RANKS, axis=1), np.split(down, RANKS)))

whole_norms = group.apply(normalize, [tokens] * RANKS)  # tensor parallel alone
terms = group.apply(run_block, whole_norms, split)
reduced = ring_all_reduce([term.numpy() for term in terms])
assert np.allclose(tokens + reduced.vectors[0], one_device, atol=1e-9)

network, quarters = Network(RANKS), np.split(tokens, RANKS)
norms = group.apply(normalize, quarters)  # and with sequence parallelism
terms = group.apply(run_block, all_gather(norms, network), split)
outputs = [mine + total for mine, total in zip(quarters, reduce_scatter(terms, network))]
assert np.allclose(np.concatenate(outputs), one_device, atol=1e-9)
print("bytes sent:", reduced.bytes_per_rank[0], "and", count_bytes(network.messages, RANKS)[0])
print("tokens that a device normalizes:", whole_norms[0].shape[0], "and", norms[0].shape[0])

# %% [markdown]
# The same result, the same bytes in this forward pass, a quarter of the norms and of what they keep. (On the way back, Megatron-LM gathers the tokens once more instead of keeping them all, and hides that behind other work.) So the two are usually switched on together.
#
# ## A sequence that is too long: the online softmax
#
# Inside attention each token still needs the keys and values of *all* tokens. With 131,072 tokens even one sequence doesn't fit. Can softmax be computed from blocks of keys, one after the other, without ever having all scores?
#
# Softmax divides e to each score by the sum of them all. Scores can be large, so everyone subtracts the maximum first. For a block, keep two numbers: its maximum (`top`) and the sum of e^(score - top).
#
# **Your turn.** Two blocks have their own maximum and sum. Return both for the two blocks together, without an exponent above 0.


# %%
def join(top_a, sum_a, top_b, sum_b):
    return ...  # the common maximum, and the sum relative to it


# %%
join = turns.JOIN.take(join)
scores = rng.normal(size=12) * 3
first, second = [(b.max(), np.exp(b - b.max()).sum()) for b in scores.reshape(2, 6)]
top, total = join(*first, *second)
print(f"in blocks {top + np.log(total):.6f}, at once {np.log(np.exp(scores).sum()):.6f}")

# %% [markdown]
# ## Ring attention: context parallelism
#
# With that, attention works on a ring. Each rank keeps the queries of its own tokens. Keys and values travel: in each round a rank uses the block that it has, and passes it on. The sum of the values shrinks along with the sum of the weights whenever a larger score turns up.


# %%
from utils.collectives import Send


def add_block(state, query, block):
    """Take one block of keys and values into the running softmax of `query` [token, width]."""
    total, top, weight = state
    key, value = block
    scores = query @ tf.transpose(key) / np.sqrt(query.shape[1])  # [token, token of the block]
    higher = tf.maximum(top, tf.reduce_max(scores, axis=1, keepdims=True))
    shrink, own = tf.exp(top - higher), tf.exp(scores - higher)
    weight = weight * shrink + tf.reduce_sum(own, axis=1, keepdims=True)
    return total * shrink + own @ value, higher, weight


def ring_attention(queries, keys, values, network):
    """Return each rank's rows of attention; the keys and values go once round the ring."""
    held = list(zip(keys, values))
    states = [(0.0, np.float64(-np.inf), 0.0)] * RANKS
    for turn in range(RANKS):
        states = group.apply(add_block, states, queries, held)
        if turn < RANKS - 1:
            sends = [Send(r, (r + 1) % RANKS, np.stack(held[r])) for r in range(RANKS)]
            arrived = network.exchange(sends, "keys and values")
            held = [tuple(arrived[rank - 1].values) for rank in range(RANKS)]
    return [total / weight for total, _, weight in states]


# %%
def attend(query, key, value):
    """Return attention on one device, with all scores at once."""
    scores = query @ key.T / np.sqrt(query.shape[1])
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True) @ value


query, key, value = rng.normal(size=(3, 32, 8))  # [token, width]
network = Network(RANKS)
parts = ring_attention(*(np.split(each, RANKS) for each in (query, key, value)), network)
assert np.allclose(np.concatenate(parts), attend(query, key, value), rtol=0, atol=1e-12)
print(f"equal to one device; each rank sent {count_bytes(network.messages, RANKS)[0]:,} bytes")
print(f"largest table of scores: {32 // RANKS} × {32 // RANKS} instead of 32 × 32")

# %% [markdown]
# Three blocks of keys and values, 8 × 8 numbers of 8 bytes each, twice: 3,072 bytes. A GPU can pass its block on while it computes with it, so a ring that is fast enough costs no time. (A decoder's mask makes almost half of the blocks empty, and the rank with the first tokens has the least to do. So real systems give each rank a piece from the beginning of the sequence and one from its end. The lab asks what becomes of the maximum in an empty block.)
#
# ## FlashAttention: the same on one device
#
# FlashAttention is this idea without a network. The blocks are tiles that fit into a GPU's fast memory, and the scores never reach the slow one. Here NumPy plays the GPU, and Python's own memory tracer counts.


# %% tags=["nbval-ignore-output"]
def flash(query, key, value, tile):
    """Return attention tile by tile: no array of scores is larger than tile x tile."""
    cuts, rows = range(tile, len(query), tile), []
    for q in np.split(query, cuts):
        total, top, weight = 0.0, -np.inf, 0.0
        for k, v in zip(np.split(key, cuts), np.split(value, cuts)):
            scores = q @ k.T / np.sqrt(q.shape[1])
            higher = np.maximum(top, scores.max(axis=1, keepdims=True))
            shrink, own = np.exp(top - higher), np.exp(scores - higher)
            weight = weight * shrink + own.sum(axis=1, keepdims=True)
            total, top = total * shrink + own @ v, higher
        rows.append(total / weight)
    return np.concatenate(rows)


long = rng.normal(size=(3, 1024, 32))  # query, key and value
peaks, results = {}, []
for name, function in {"all scores": attend, "tiles": lambda *qkv: flash(*qkv, 64)}.items():
    tracemalloc.start()
    results.append(function(*long))
    peaks[name] = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
assert np.allclose(*results, rtol=0, atol=1e-12) and peaks["all scores"] > 10 * peaks["tiles"]
print({name: f"{peak:.1f} MiB" for name, peak in peaks.items()})

# %% [markdown]
# All scores take 1,024² numbers several times over. The tiles take the result and little else, however long the sequence. The backward pass computes the scores again, tile by tile, from the queries and keys. For that a real kernel also keeps `top` and `weight` of each row (ours throws them away), which turn the scores into the same softmax. That costs FLOPs and saves traffic, and on GPUs Dao and others measured it as faster all the same. With it, the last bar of the first picture shrinks to the one before it.
#
# ## Experts, and the fourth collective
#
# One more way to have more parameters without more work: several MLPs, the *experts*. Each token visits a few of them: one in Switch Transformers, two in GShard, eight of 256 in DeepSeek-V3. Here each device holds one expert, and each token visits one. So each device sends each other device the tokens that want its expert: an *all-to-all*. In GShard and Switch buffers have a fixed size, so each expert takes a limited number of tokens from each rank, its *capacity*, and the rest pass the layer by. (*Dropless* systems such as MegaBlocks have no such limit, and take what the router sends.)
#
# **Your turn.** `choices` has the expert that each token of one rank chose. Return the places of the tokens that get into `expert`: first come, first served.


# %%
def keep(choices, expert, capacity):
    return ...  # a list of places in choices


# %%
keep = turns.KEEP.take(keep)


def all_to_all(blocks, network):
    """Deliver blocks[source][destination]; return [destination][source]."""
    got = [[None] * RANKS for _ in range(RANKS)]
    for shift in range(RANKS):
        ends = [(rank, (rank + shift) % RANKS) for rank in range(RANKS)]
        sends = [Send(a, b, blocks[a][b]) for a, b in ends]
        for sent in network.exchange(sends, "all-to-all") if shift else sends:
            got[sent.destination][sent.source] = sent.values
    return got


def run_experts(tokens, choices, capacity, network):
    """Send tokens [rank][token, width] to their experts and back; without room: zeros."""
    kept = [[keep(own, e, capacity) for e in range(RANKS)] for own in choices]
    sent = [[tokens[r][kept[r][e]] for e in range(RANKS)] for r in range(RANKS)]
    arrived = all_to_all(sent, network)  # [expert][source]
    done = group.apply(run_block, [np.concatenate(rows) for rows in arrived], experts)
    cuts = [np.cumsum([len(rows) for rows in got])[:-1] for got in arrived]
    back = all_to_all([np.split(d.numpy(), c) for d, c in zip(done, cuts)], network)
    outputs = [np.zeros_like(own) for own in tokens]
    for r, e in np.ndindex(RANKS, RANKS):
        outputs[r][kept[r][e]] = back[r][e]
    return outputs


# %% [markdown]
# 64 tokens, 16 on each rank, four experts. A router, here a random matrix, scores the experts, and the best one wins. On average each expert is chosen by 4 tokens of a rank.
#
# **Predict.** With a capacity of exactly 4, what share of the tokens finds no room?

# %%
my_guess = guess_number("Tokens without room", 0, 100, "%")
my_guess

# %%
experts = [(rng.normal(size=(16, 32)) / 4, rng.normal(size=(32, 16)) / 6) for _ in range(RANKS)]
everyone, router = rng.normal(size=(64, 16)), rng.normal(size=(16, RANKS))
wanted = np.argmax(everyone @ router, axis=1)  # [token]
whole = np.array([run_block(row[None], experts[e])[0] for row, e in zip(everyone, wanted)])

dropped = {}
for capacity in (4, 5, 6, 8, 16):
    parts = np.split(everyone, RANKS), np.split(wanted, RANKS)
    outputs = np.concatenate(run_experts(*parts, capacity, Network(RANKS)))
    got = np.any(outputs != 0, axis=1)
    assert np.allclose(outputs[got], whole[got], rtol=0, atol=1e-12)
    dropped[f"capacity {capacity}"] = 100 * (1 - got.mean())
assert got.all()
figures.show(figures.bars(dropped, unit="%", title="Tokens that no expert processed"))
show_guess(my_guess, dropped["capacity 4"], unit="%")

# %% [markdown]
# Each token that got in has exactly one device's result. A router that sends too much to one expert loses tokens, or, with a generous capacity, makes everyone wait for the fullest expert. That's why such models are trained with a second loss that spreads the tokens.
#
# ## The mistake: averaging what each block attended to
#
# Four blocks, four results of attention, and the mean of them. It has the correct shape, and nothing complains. Compare it with attention over all keys, and with the same four results weighted by their sums.

# %%
blocks_of = list(zip(np.split(key, RANKS), np.split(value, RANKS)))
each = [attend(query, *block) for block in blocks_of]
begin = (0.0, np.float64(-np.inf), 0.0)
states = [add_block(begin, query, block) for block in blocks_of]
top = np.max([state[1] for state in states], axis=0)  # [token, 1]
sums = np.array([np.exp(state[1] - top) * state[2] for state in states])  # [block, token, 1]
right = attend(query, key, value)
for name, merged in {
    "mean": np.mean(each, axis=0),
    "weighted by the sums": (sums * each).sum(axis=0) / sums.sum(axis=0),
}.items():
    error = np.linalg.norm(merged - right) / np.linalg.norm(right)
    print(f"{name:<21} off by {100 * error:.0f}%")
assert error < 1e-12

# %% [markdown]
# Each block's softmax adds up to 1 on its own, so a block full of unimportant keys gets as much say as the one that matters. Weight each block by its sum of exponentials, all relative to one maximum.
#
# ## What it costs
#
# | cut along | a device holds less of | it sends | idle time | choose it |
# |---|---|---|---|---|
# | data | activations (a smaller batch) | gradients, once a step | none | first, while the batch is large enough |
# | ZeRO 1, 2, 3 | state; gradients; weights | the same; stage 3 half as much again, for each micro-batch | none | as soon as there are several copies |
# | tensor, with sequence | weights, state, activations | all tokens, four times a layer, not hidden | none | inside a node, when a layer is too large |
# | pipeline | weights, state | activations at the cuts only | the bubble, (p - 1)/m of the work | between nodes, with many micro-batches m |
# | context | activations | keys and values, round the ring | none if the ring is fast and the mask's work is spread evenly | when one sequence is too long |
# | expert | the experts' weights | each token there and back, not hidden | waits for the fullest expert | if the model has experts |
#
# Now numbers for our model. The planner goes beyond the `predict` of [lesson 20](20-planning.ipynb). Its tables, which the explorer has shown since the beginning, hold memory and seconds of every layout on H100s, eight to a node, with a link of 400 Gb/s for each GPU, which is 3,200 Gb/s per node. A step takes about 4 million tokens at both sequence lengths.
#
# These are predictions. We compared the planner with 49 published runs, and it was 6 % off on average and 26 % at most, after one run of each type of GPU had set that type's efficiency. All of them were data-parallel, and all but one used ZeRO 3. Its times for tensor, pipeline and context parallelism haven't been compared with any run. So differences of a few percent mean nothing, and the order between these cuts is untested. The explorer of the beginning is back. Set it to your first choice. Can you beat it now, and say what that costs? Why would you use a cut through the model at 4,096 tokens, although none beats ZeRO 1?

# %%
cut_explorer(tables, capacity_gb=80, name="H100")

# %% [markdown]
# Here is what the planner chooses, from all layouts that fit:

# %%
winners = set()
for name, rows in tables.items():
    for size in (8, 64, 512):
        here = [row for row in rows if row["devices"] == size and row["fits"]]
        best = min(here, key=lambda row: row["step_seconds"])
        says = f"{best['way']}: {best['hours']:,.0f} hours, {100 * best['mfu']:.0f} % MFU"
        print(f"{name}, {size:>3} GPUs: {says}")
        winners.add((name, best["way"]))

assert winners == {("4,096 tokens", "data, ZeRO 1"), ("131,072 tokens", "data, context")}
alone = [row for row in tables["131,072 tokens"] if row["way"].startswith("data, ZeRO")]
assert not any(row["fits"] for row in alone)  # without a cut through the sequence or the model

# %% [markdown]
# With short sequences nothing in this table beats the simplest cut, because 7 billion parameters fit once the state is sharded. (Some other cuts tie with it.) Cuts through the model pay when the model is larger, when memory is smaller, or when there are more GPUs than sequences in a batch. With long sequences one sequence no longer fits next to the weights. Data parallelism alone doesn't fit on up to 32 GPUs, and on more there are fewer sequences than GPUs. So the sequence or the layers must be cut. By these numbers *data, context* is ahead of *data, tensor* by 1 to 4 % on up to 256 GPUs, except on 16. There it recomputes, and *data, tensor* needn't. (On 16 GPUs context alone, without data parallelism, is quickest. On 512 there are too few sequences for *data, tensor*. MFU counts attention too. By 6 · N · D alone the 434 hours are 42 %.)
#
# ### The 7 B model, at last
#
# And the model that began in [lesson 15](15-model-parallelism.ipynb), once more:

# %%
from distlab.explorables.one_model import one_model_explorer

one_model_explorer(23)

# %% [markdown]
# ZeRO 1 cuts nothing that computes. It holds less than two stages do, and its step is the shortest of the five. (These bars take one sequence at a time. The explorer picks the quickest micro-batch: two sequences, 65.3 GB, 6.56 s. Its 114 GB for plain copies recompute.)
#
# ## On a real GPU
#
# Print the most memory that a step has used, at the end of your training program:
#
#     tf.config.experimental.get_memory_info("GPU:0")["peak"]
#
# Compare it with the bytes that `distlab plan --parameters … --explain` gives for your layout. Don't take the number from `nvidia-smi`: TensorFlow reserves nearly all of a GPU's memory at its start, whatever the layout needs.
#
# ## Recap
#
# - ZeRO 1 took one device's steps with a quarter of the state and the bytes of an all-reduce. Stage 3 sent half as much again.
# - A mesh of 2 × 2 × 2 gave one device's loss and gradients, with all-reduces along two axes and a send along the third.
# - Sequence parallelism cut the norms at no cost in bytes, and ring attention computed exact attention from blocks.
# - An all-to-all brought tokens to their experts, and a tight capacity left some of them out.
# - The best cut depended on sequence length and memory. By the planner's numbers it was ZeRO 1 for 4,096 tokens, and a cut through the sequence for 131,072.
#
# The same ideas elsewhere, by the names to search for ([three lines of each](../docs/counterparts.md), with versions):
#
# | here | PyTorch | JAX |
# |---|---|---|
# | ZeRO 3 | `fully_shard` | a sharding over the data axis |
# | tensor and sequence | `parallelize_module`, `SequenceParallel` | `PartitionSpec` of each kernel |
# | pipeline | `torch.distributed.pipelining` | `jax.lax.ppermute` |
# | context | `context_parallel` | a sharding of the sequence axis |
# | experts | `all_to_all_single` | `jax.lax.all_to_all` |
#
# ## Cheat sheet
#
# ```python
# flops = 6 * parameters * tokens  # and 12 * layers * hidden * sequence * tokens for attention
# state_bytes = parameters * (2 + 2 + 12 / ranks)  # ZeRO 1; stage 2: (2 + 14 / ranks); 3: 16 / ranks
# mesh = np.arange(512).reshape(16, 4, 8)  # data, pipeline, tensor: the last axis inside a node
# # ZeRO: reduce-scatter the gradients, update your own piece, all-gather the weights
# # tensor: columns, then rows; sequence: all-gather before, reduce-scatter after
# # context: keys and values round the ring; keep (sum of values, maximum, sum of weights)
# # experts: all-to-all there, all-to-all back; capacity = factor * tokens / experts
# # distlab plan --parameters 7e9 --layers 32 --hidden 4096 --sequence 4096 --tokens 1e12 --machine "64 H100, 8x400Gb/s"
# ```
#
# ## Further reading
#
# - Rajbhandari and others, [ZeRO](https://arxiv.org/abs/1910.02054), and the [FSDP paper](https://arxiv.org/abs/2304.11277)
# - Korthikanti and others, [Reducing Activation Recomputation](https://arxiv.org/abs/2205.05198): sequence parallelism
# - Liu, Zaharia and Abbeel, [Ring Attention](https://arxiv.org/abs/2310.01889); Dao and others, [FlashAttention](https://arxiv.org/abs/2205.14135)
# - Lepikhin and others, [GShard](https://arxiv.org/abs/2006.16668), and Fedus and others, [Switch Transformers](https://arxiv.org/abs/2101.03961): experts and their capacity; Gale and others, [MegaBlocks](https://arxiv.org/abs/2211.15841), without one; [DeepSeek-V3](https://arxiv.org/abs/2412.19437): eight of 256
# - Narayanan and others, [Efficient Large-Scale Training with Megatron-LM](https://arxiv.org/abs/2104.04473): which axis goes where
#
# ## The lab
#
# You practice this in [lab 16, which way to cut](../labs/lab16-which-way-to-cut.ipynb): ZeRO with momentum and clipping, a masked merge, two experts for each token, and a layout for a machine that you haven't seen.
