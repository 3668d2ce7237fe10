# ruff: noqa: E501
"""Lab 13: answers that must pass, in several styles, and answers that must be refused by name."""

HEAD = """import itertools, math
import numpy as np
import tensorflow as tf
import keras
def look(strategy, model):
    copies = strategy.experimental_local_results(model.weights[0].value)
    return np.stack([copy.numpy() for copy in copies])
"""


def define(name, arguments, body):
    lines = "\n".join("    " + line for line in body.strip("\n").split("\n"))
    return f"{HEAD}def {name}({arguments}):\n{lines}\n"


# ---- exercise 1


def overflow(body):
    return define("find_overflow", "kernels, features, labels, scale", body)


TAPE = """
kernels = [tf.constant(k) for k in kernels]
outputs, x = [], tf.constant(features)
with tf.GradientTape() as tape:
    tape.watch(kernels)
    for k, kernel in enumerate(kernels):
        x = tf.matmul(x, kernel)
        outputs.append(x)
        if k < len(kernels) - 1:
            x = tf.nn.relu(x)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, tf.cast(x, tf.float32))
    loss = tf.reduce_mean(losses) * SCALE
gradients = tape.gradient(loss, kernels)
bad = lambda t: not np.isfinite(t.numpy()).all()
"""
FOUND = """
for k, output in enumerate(outputs):
    if bad(output):
        return "forward", k
for k in reversed(range(len(kernels))):
    if bad(gradients[k]):
        return "backward", k
return "none", None
"""
SCALED = TAPE.replace("SCALE", "scale") + FOUND
OVERFLOW = overflow(SCALED)
BY_HAND = """
inputs, x = [], features
with np.errstate(all="ignore"):
    for k, kernel in enumerate(kernels):
        inputs.append(x)
        x = x @ kernel
        if not np.all(np.isfinite(x)):
            return ["forward", k]
        if k + 1 < len(kernels):
            x = np.maximum(x, np.float16(0))
    logits = x.astype(np.float32)
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    p = odds / odds.sum(axis=1, keepdims=True)
    p[np.arange(len(labels)), labels] -= 1
    g = (p * (scale / len(labels))).astype(np.float16)
    for k in range(len(kernels) - 1, -1, -1):
        if not np.isfinite(inputs[k].T @ g).all():
            return ["backward", k]
        g = (g @ kernels[k].T) * (inputs[k] > 0)
return ["none", None]
"""
TWO_TAPES = (
    TAPE.replace("SCALE", "scale")
    .replace(
        "tape.watch(kernels)",
        "tape.watch(kernels[0])\n    _ = [tape.watch(k) for k in kernels[1:]]",
    )
    .replace("tape.gradient(loss, kernels)", "[tape.gradient(loss, k) for k in kernels]")
    .replace("tf.GradientTape()", "tf.GradientTape(persistent=True)")
    + FOUND
)
OUTPUT_GRADIENTS = (
    TAPE.replace("SCALE", "scale").replace(
        "gradients = tape.gradient(loss, kernels)", "gradients = tape.gradient(loss, outputs)"
    )
    + FOUND
)
CHECKED = """
def fine(tensor):
    try:
        tf.debugging.check_numerics(tensor, "bad")
        return True
    except tf.errors.InvalidArgumentError:
        return False
ks = [tf.constant(k) for k in kernels]
x = tf.constant(features)
with tf.GradientTape(watch_accessed_variables=False) as tape:
    tape.watch(ks)
    for at, k in enumerate(ks):
        x = x @ k
        if not fine(x):
            return ("forward", at)
        x = x if at == len(ks) - 1 else tf.nn.relu(x)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)(labels, tf.cast(x, "float32"))
    loss = loss * scale
for at, g in list(enumerate(tape.gradient(loss, ks)))[::-1]:
    if not fine(g):
        return ("backward", at)
return ("none", None)
"""
KERAS_LAYERS = """
layers = [keras.layers.Dense(k.shape[1], use_bias=False, dtype="mixed_float16") for k in kernels[:-1]]
layers.append(keras.layers.Dense(kernels[-1].shape[1], use_bias=False, dtype="mixed_float16"))
x = features
for layer, kernel in zip(layers, kernels):
    layer.build(x.shape)
    layer.set_weights([kernel.astype("float32")])
seen = [tf.constant(features)]
with tf.GradientTape() as tape:
    for layer in layers:
        seen.append(layer(tf.nn.relu(seen[-1]) if seen[1:] else seen[-1]))
    loss = scale * tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, tf.cast(seen[-1], tf.float32)))
finite = [bool(np.isfinite(s.numpy()).all()) for s in seen[1:]]
if not all(finite):
    return "forward", finite.index(False)
grads = tape.gradient(loss, [layer.kernel.value for layer in layers])
finite = [bool(np.isfinite(np.asarray(g)).all()) for g in grads]
return ("none", None) if all(finite) else ("backward", max(k for k, ok in enumerate(finite) if not ok))
"""
COMPILED = """
@tf.function
def go(xs, ks):
    outputs = []
    with tf.GradientTape() as tape:
        tape.watch(ks)
        x = xs
        for k in ks:
            outputs.append(tf.matmul(x, k))
            x = tf.nn.relu(outputs[-1])
        loss = scale * tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, tf.cast(outputs[-1], tf.float32)))
    return outputs, tape.gradient(loss, ks)
outs, grads = go(tf.constant(features), [tf.constant(k) for k in kernels])
ok = [bool(tf.reduce_all(tf.math.is_finite(t))) for t in [*outs, *grads[::-1]]]
if all(ok):
    return ("none", None)
first, n = ok.index(False), len(kernels)
return ("forward", first) if first < n else ("backward", 2 * n - 1 - first)
"""
IN_FLOAT32 = """
LIMIT = 65504
x, inputs = features.astype("float64"), []
for k, w in enumerate(kernels):
    inputs.append(x)
    x = x @ w.astype("float64")
    if np.abs(x).max() > LIMIT:
        return "forward", k
    x = x if w is kernels[-1] else x * (x > 0)
e = np.exp(x - x.max(1)[:, None])
g = (e / e.sum(1)[:, None] - np.eye(x.shape[1])[labels]) / len(x) * scale
for k in range(len(kernels))[::-1]:
    if max(np.abs(g).max(), np.abs(inputs[k].T @ g).max()) > LIMIT:
        return "backward", k
    g = (g @ kernels[k].T.astype("float64")) * (inputs[k] > 0)
return "none", None
"""
ONE_LAYER_AT_A_TIME = """
tapes, x = [], tf.constant(features)
for k, kernel in enumerate(kernels):
    weight = tf.Variable(kernel)
    with tf.GradientTape() as tape:
        tape.watch(x)
        source = x
        raw = x @ weight
        x = raw if k == len(kernels) - 1 else tf.nn.relu(raw)
    if not np.isfinite(raw.numpy()).all():
        return "forward", np.int64(k)
    tapes.append((tape, source, weight, x))
with tf.GradientTape() as tape:
    tape.watch(x)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, tf.cast(x, tf.float32))) * scale
g = tape.gradient(loss, x)
while tapes:
    tape, source, weight, x = tapes.pop()
    g, dw = tape.gradient(x, [source, weight], output_gradients=g)
    if not np.isfinite(dw.numpy()).all():
        return "backward", len(tapes)
return "none", None
"""

# ---- exercise 2


def scale(
    power="math.floor(math.log2(65504 / (top * headroom)))",
    values="np.concatenate([np.ravel(g) for g in gradients])",
    nonzero="values[values != 0]",
    lost="np.mean((values * s).astype(np.float16) == 0)",
    top="np.abs(values).max()",
):
    return define(
        "choose_scale",
        "gradients, headroom",
        f"""
values = {values}
top = float({top})
best = 2.0 ** {power}
values = {nonzero}
lose = lambda s: float({lost})
return {{"scale": best, "lost without": lose(1), "lost with": lose(best)}}
""",
    )


DOUBLING = """
top = max(float(np.abs(g).max()) for g in gradients)
s = 2.0 ** -40
while top * s * 2 * headroom <= 65504:
    s *= 2
lost = {}
for name, times in (("lost without", 1.0), ("lost with", s)):
    zero = total = 0
    for g in gradients:
        there = g[g != 0]
        zero += np.count_nonzero(np.float16(there * times) == 0)
        total += there.size
    lost[name] = zero / total
return {"scale": s} | lost
"""
TENSORS = """
flat = tf.concat([tf.reshape(g, [-1]) for g in gradients], axis=0)
top = tf.reduce_max(tf.abs(flat))
powers = 2.0 ** np.arange(-30, 60)
fits = [p for p in powers if float(top) * p * headroom <= tf.float16.max]
best = max(fits)
there = tf.boolean_mask(flat, flat != 0)
def lost(s):
    gone = tf.cast(there * s, tf.float16) == 0
    return tf.reduce_mean(tf.cast(gone, tf.float64))
return {"scale": best, "lost without": lost(1.0), "lost with": lost(best)}
"""
FREXP = """
flat = np.hstack([np.asarray(g, dtype=float).ravel() for g in gradients])
limit = np.finfo(np.float16).max / headroom / np.abs(flat).max()
_, power = math.frexp(limit)
best = math.ldexp(1.0, power - 1)
flat = flat[np.nonzero(flat)]
counts = [np.sum((flat.astype(np.float32) * s).astype("float16") == 0) for s in (1, best)]
return {"scale": best, "lost without": counts[0] / len(flat), "lost with": counts[1] / len(flat)}
"""
BIT_LENGTH = """
top = max(np.max(np.abs(g)) for g in gradients)
whole = int(65504 / (float(top) * headroom))
best = 1 << (whole.bit_length() - 1)
there = [x for g in gradients for x in g.ravel().tolist() if x]
def lost(s):
    return sum(1 for x in there if np.float16(x * s) == 0) / len(there)
return dict(zip(("scale", "lost without", "lost with"), (best, lost(1), lost(best))))
"""
HALVING = """
s = 2.0 ** 60
while any(np.abs(g).max() * s * headroom > 65504 for g in map(np.float64, gradients)):
    s /= 2
def lost(times):
    before = sum(np.count_nonzero(g) for g in gradients)
    after = sum(np.count_nonzero((g * np.float32(times)).astype(np.float16)) for g in gradients)
    return 1 - after / before
return {"lost with": lost(s), "lost without": lost(1), "scale": s}
"""

# ---- exercise 3


def train(
    loss="tf.reduce_sum(tf.abs(outputs - y)) / 16 * scale",
    share="",
    agree="finite = tf.reduce_all(tf.math.is_finite(total))",
    update="tf.where(finite, total / scale, 0.0)",
    after="""
        if bool(finite):
            good += 1
            if good == growth_steps:
                scale, good = scale * 2, 0
        else:
            scale, good = scale / 2, 0
        scales.append(scale)
""",
    function="@tf.function",
    scope="strategy.scope()",
):
    """Sum in the replicas' context, decide there, assign with no branch."""
    return f"""{HEAD}import contextlib
def train(strategy, make_model, features, targets, scale, growth_steps):
    with {scope}:
        model = make_model()
    (variable,) = model.trainable_variables
    def replica_step(x, y, scale):
        with tf.GradientTape() as tape:
            outputs = tf.cast(model(x, training=True), tf.float32)
            loss = {loss}
        gradient = tape.gradient(loss, variable.value)
        {share}
        total = tf.distribute.get_replica_context().all_reduce("sum", gradient)
        {agree}
        variable.assign_sub({update} * 2.0 ** -5)
        return finite
    {function}
    def step(x, y, scale):
        flags = strategy.run(replica_step, args=(x, y, scale))
        return strategy.experimental_local_results(flags)[0]
    data = tf.data.Dataset.from_tensor_slices((features, targets)).batch(8)
    scales, good = [], 0
    for x, y in strategy.experimental_distribute_dataset(data):
        finite = step(x, y, tf.constant(scale, tf.float32))
{after.strip(chr(10))}
    return look(strategy, model), scales
"""


RULE = """
def move(scale, good, finite, growth_steps):
    good = good + 1 if finite else 0
    if not finite:
        return scale / 2, good
    return (scale * 2, 0) if good == growth_steps else (scale, good)
"""


def program(body, rule=RULE):
    return (
        HEAD
        + rule
        + "def train(strategy, make_model, features, targets, scale, growth_steps):\n"
        + "\n".join("    " + line for line in body.strip("\n").split("\n"))
        + "\n"
    )


OPTIMIZER = """
data = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices((features, targets)).batch(8))
with strategy.scope():
    model = make_model()
    optimizer = keras.optimizers.SGD(2.0 ** -5)
    optimizer.build(model.trainable_variables)
def differentiate(x, y, scale):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.abs(tf.cast(model(x), tf.float32) - y)) / 16
        scaled = loss * scale
    gradients = tape.gradient(scaled, model.trainable_variables)
    finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(g)) for g in gradients])
    return [g / scale for g in gradients], tf.cast(finite, tf.int32)
@tf.function
def find(x, y, scale):
    gradients, finite = strategy.run(differentiate, (x, y, scale))
    return gradients, strategy.reduce("SUM", finite, axis=None)
@tf.function
def apply(gradients):
    strategy.run(lambda g: optimizer.apply_gradients(zip(g, model.trainable_variables)), (gradients,))
good, scales = 0, []
for x, y in data:
    gradients, finite = find(x, y, tf.constant(scale))
    if finite == strategy.num_replicas_in_sync:
        apply(gradients)
    scale, good = move(scale, good, int(finite) == 2, growth_steps)
    scales.append(scale)
return look(strategy, model), scales
"""
IN_GRAPH = """
with strategy.scope():
    model = make_model()
    optimizer = keras.optimizers.SGD(learning_rate=0.03125)
    optimizer.build(model.trainable_variables)
state = tf.Variable([scale, 0.0])
def part(x, y, s):
    with tf.GradientTape() as tape:
        loss = s * tf.reduce_sum(tf.abs(tf.cast(model(x, training=True), tf.float32) - y)) / 16.0
    (g,) = tape.gradient(loss, model.trainable_variables)
    return g
def apply(g):
    optimizer.apply([g], model.trainable_variables)
@tf.function
def step(x, y):
    s, good = state[0], state[1]
    parts = strategy.run(part, (x, y, s))
    total = strategy.reduce(tf.distribute.ReduceOp.SUM, parts, axis=None)
    finite = tf.reduce_all(tf.math.is_finite(total))
    if finite:
        strategy.run(lambda g: apply(g / s), (parts,))
    good = tf.where(finite, good + 1, 0)
    grow = good >= growth_steps
    s = tf.where(finite, tf.where(grow, s * 2, s), s / 2)
    state.assign([s, tf.where(grow, 0.0, good)])
    return s
data = tf.data.Dataset.from_tensor_slices((features, targets)).batch(8)
scales = [float(step(x, y)) for x, y in strategy.experimental_distribute_dataset(data)]
return look(strategy, model), scales
"""
BY_VALUES = """
with strategy.scope():
    model = make_model()
(kernel,) = model.trainable_variables
@tf.function
def gradients(x, y, s):
    def one(x, y):
        with tf.GradientTape() as tape:
            error = tf.abs(tf.cast(model(x), tf.float32) - y)
            loss = tf.reduce_sum(tf.reduce_mean(error, axis=1)) / 8 * s
        return tape.gradient(loss, kernel.value)
    return strategy.run(one, args=(x, y))
def spread(rows):
    halves = np.split(rows, 2)
    return strategy.experimental_distribute_values_from_function(lambda c: tf.constant(halves[c.replica_id_in_sync_group]))
good, scales = 0, []
for start in range(0, len(features), 8):
    x, y = spread(features[start:start + 8]), spread(targets[start:start + 8])
    parts = [p.numpy() for p in strategy.experimental_local_results(gradients(x, y, tf.constant(scale)))]
    ok = all(np.isfinite(p).all() for p in parts)
    if ok:
        kernel.assign(kernel.numpy() - sum(parts) / scale / 32)
    scale, good = move(scale, good, ok, growth_steps)
    scales += [scale]
return look(strategy, model), scales
"""
MERGED = """
with strategy.scope():
    model = make_model()
    rate = 1 / 32
(kernel,) = model.trainable_variables
class Scaler:
    def __init__(self, start):
        self.scale, self.good, self.seen = start, 0, []
    def note(self, finite):
        self.scale, self.good = move(self.scale, self.good, finite, growth_steps)
        self.seen.append(self.scale)
def replica(x, y, s):
    with tf.GradientTape() as tape:
        outputs = tf.cast(model(x, training=True), "float32")
        loss = tf.nn.compute_average_loss(tf.reduce_mean(tf.abs(outputs - y), axis=-1), global_batch_size=8)
        loss = loss * s
    g = tape.gradient(loss, kernel.value)
    bad = tf.cast(tf.reduce_any(~tf.math.is_finite(g)), tf.float32)
    context = tf.distribute.get_replica_context()
    bad, g = context.all_reduce("SUM", [bad, g])
    step = tf.where(bad > 0, tf.zeros_like(g), g / s)
    kernel.assign(kernel.value - rate * step)
    return bad
run = tf.function(lambda x, y, s: strategy.run(replica, args=(x, y, s)))
scaler = Scaler(scale)
batches = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices((features, targets)).batch(8))
for x, y in batches:
    bad = run(x, y, tf.constant(scaler.scale, tf.float32))
    scaler.note(float(strategy.experimental_local_results(bad)[1]) == 0)
return [v.numpy().tolist() for v in kernel.value.values], tuple(scaler.seen)
"""
ALL_STEPS = """
with strategy.scope():
    model = make_model()
    optimizer = keras.optimizers.SGD(0.03125)
    optimizer.build(model.trainable_variables)
variables = model.trainable_variables
def replica(x, y, s):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.abs(tf.cast(model(x), tf.float32) - y)) / 16.0 * s
    grads = tape.gradient(loss, [v.value for v in variables])
    ok = tf.reduce_min([tf.reduce_min(tf.cast(tf.math.is_finite(g), tf.float32)) for g in grads])
    ok = tf.distribute.get_replica_context().all_reduce("SUM", ok) > 1.5
    optimizer.apply_gradients([(tf.where(ok, g / s, tf.zeros_like(g)), v) for g, v in zip(grads, variables)])
    return ok
@tf.function
def epoch(data, scale):
    good, index = tf.constant(0), tf.constant(0)
    scales = tf.TensorArray(tf.float32, size=0, dynamic_size=True, element_shape=[])
    for x, y in data:
        ok = strategy.experimental_local_results(strategy.run(replica, (x, y, scale)))[0]
        good = tf.where(ok, good + 1, 0)
        scale = tf.where(ok, tf.where(good == growth_steps, 2 * scale, scale), scale / 2)
        good = good % growth_steps
        scales = scales.write(index, scale)
        index += 1
    return scales.stack()
data = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices((features, targets)).batch(8))
scales = epoch(data, tf.constant(scale, tf.float32))
return look(strategy, model), scales
"""
KERAS_OWN = """
with strategy.scope():
    model = make_model()
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(2.0 ** -5), initial_scale=scale, dynamic_growth_steps=growth_steps)
    optimizer.build(model.trainable_variables)
return look(strategy, model), [scale] * 12
"""
ALONE = """
data = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices((features, targets)).batch(8))
with strategy.scope():
    model = make_model()
    optimizer = keras.optimizers.SGD(2.0 ** -5)
    optimizer.build(model.trainable_variables)
def replica(x, y, s):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.abs(tf.cast(model(x), tf.float32) - y)) / 16 * s
    grads = tape.gradient(loss, model.trainable_variables)
    finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(g)) for g in grads])
    if finite:
        optimizer.apply_gradients([(g / s, v) for g, v in zip(grads, model.trainable_variables)])
    return finite
@tf.function
def step(x, y, s):
    return strategy.experimental_local_results(strategy.run(replica, (x, y, s)))[0]
good, scales = 0, []
for x, y in data:
    scale, good = move(scale, good, bool(step(x, y, tf.constant(scale))), growth_steps)
    scales.append(scale)
return look(strategy, model), scales
"""

# ---- exercise 4


def plan(
    fixed="16 * parameters + (4 * parameters if n > 1 else 0)",
    held="kept + inputs + back",
    share="batch // n",
    pieces="[n for n in range(1, batch + 1) if batch % n == 0]",
    sets="itertools.product([0, 1], repeat=len(blocks))",
    worth="n * launch + batch * sum(b[2] * (3 + r) for b, r in zip(blocks, again))",
):
    return define(
        "choose_plan",
        "parameters, blocks, batch, budget, launch",
        f"""
best = None
for n in {pieces}:
    for again in {sets}:
        kept = sum(b[0] for b, r in zip(blocks, again) if not r)
        inputs = sum(b[1] for b, r in zip(blocks, again) if r)
        back = max([b[0] for b, r in zip(blocks, again) if r] + [0])
        total = {fixed} + ({share}) * ({held})
        if total <= budget:
            cost = {worth}
            if best is None or cost < best[0]:
                best = cost, n, [k for k, r in enumerate(again) if r]
return None if best is None else {{"micro_batches": best[1], "recomputed": best[2]}}
""",
    )


COMBINATIONS = """
everything = [c for size in range(len(blocks) + 1) for c in itertools.combinations(range(len(blocks)), size)]
def held(n, chosen):
    floats = 4 if n == 1 else 5
    activations = 0
    for k, (kept, entry, _) in enumerate(blocks):
        activations += entry if k in chosen else kept
    if chosen:
        activations += max(blocks[k][0] for k in chosen)
    return floats * 4 * parameters + activations * batch / n
def seconds(n, chosen):
    return n * launch + batch * sum(blocks[k][2] for k in chosen)
fits = [(n, c) for n in range(1, batch + 1) if batch % n == 0 for c in everything if held(n, c) <= budget]
if not fits:
    return None
n, chosen = min(fits, key=lambda p: seconds(*p))
return {"micro_batches": n, "recomputed": list(chosen)}
"""
SORTED = """
plans = []
for n in (d for d in range(1, batch + 1) if not batch % d):
    for mask in range(2 ** len(blocks)):
        on = [k for k in range(len(blocks)) if mask >> k & 1]
        plans.append((n * launch + batch * sum(blocks[k][2] for k in on), n, on))
for _, n, on in sorted(plans):
    memory = 16 * parameters + 4 * parameters * (n > 1)
    rest = [b[0] for k, b in enumerate(blocks) if k not in on] + [blocks[k][1] for k in on]
    memory += (batch // n) * (sum(rest) + max((blocks[k][0] for k in on), default=0))
    if memory <= budget:
        return {"recomputed": tuple(on), "micro_batches": n}
"""
ARRAYS = """
table = np.array(blocks, dtype=float)
masks = np.array(list(itertools.product([False, True], repeat=len(table))))
pieces = np.array([n for n in range(1, batch + 1) if batch % n == 0])
rest = np.where(masks, table[:, 1], table[:, 0]).sum(axis=1) + np.where(masks, table[:, 0], 0).max(axis=1)
memory = (16 + 4 * (pieces > 1))[:, None] * parameters + (batch / pieces)[:, None] * rest
cost = pieces[:, None] * launch + batch * (masks @ table[:, 2])
cost = np.where(memory <= budget, cost, np.inf)
if np.isinf(cost).all():
    return None
i, j = np.unravel_index(cost.argmin(), cost.shape)
return {"micro_batches": pieces[i], "recomputed": np.flatnonzero(masks[j]).tolist()}
"""
RECURSIVE = """
best = [float("inf"), None]
def go(k, chosen, n):
    if k < len(blocks):
        go(k + 1, chosen, n)
        go(k + 1, chosen + [k], n)
        return
    m = batch // n
    memory = parameters * 16 + (parameters * 4 if n >= 2 else 0)
    memory += m * sum(blocks[i][1 if i in chosen else 0] for i in range(k))
    memory += m * max([0, *(blocks[i][0] for i in chosen)])
    cost = launch * n + batch * sum(blocks[i][2] for i in chosen)
    if memory <= budget and cost < best[0]:
        best[:] = [cost, {"micro_batches": n, "recomputed": chosen}]
for n in range(1, batch + 1):
    if batch % n == 0:
        go(0, [], n)
return best[1]
"""
BACKWARD_ORDER = plan(sets="list(itertools.product([1, 0], repeat=len(blocks)))")
FLOATS = plan(fixed="4.0 * parameters * (4 + (n > 1))", share="batch / n")
REVERSED = plan().replace(
    "[k for k, r in enumerate(again) if r]", "[k for k, r in enumerate(again) if r][::-1]"
)

# ---- exercise 5


def gradients(
    call="tf.recompute_grad(block)(x) if k in recomputed else block(x)",
    loss="tf.reduce_sum((x - y) ** 2) / len(inputs)",
    add="[a + b for a, b in zip(total, part)]",
    pieces="micro_batches",
):
    return define(
        "find_gradients",
        "blocks, inputs, targets, micro_batches, recomputed",
        f"""
variables = [v for block in blocks for v in block.variables]
total = [tf.zeros_like(v) for v in variables]
for x, y in zip(tf.split(inputs, {pieces}), tf.split(targets, {pieces})):
    with tf.GradientTape() as tape:
        for k, block in enumerate(blocks):
            x = {call}
        loss = {loss}
    part = tape.gradient(loss, variables)
    total = {add}
return total
""",
    )


SMALL_TAPES = """
variables = [block.variables for block in blocks]
total = [[tf.zeros_like(v) for v in pair] for pair in variables]
size = len(inputs) // micro_batches
for start in range(0, len(inputs), size):
    kept, x = [], inputs[start:start + size]
    for k, block in enumerate(blocks):
        if k in recomputed:
            kept.append((None, x, None))
            x = block(x)
        else:
            with tf.GradientTape() as tape:
                tape.watch(x)
                out = block(x)
            kept.append((tape, x, out))
            x = out
            del tape, out
    upstream = 2 * (x - targets[start:start + size]) / len(inputs)
    del x
    while kept:
        tape, entry, out = kept.pop()
        k = len(kept)
        if tape is None:
            with tf.GradientTape() as tape:
                tape.watch(entry)
                out = blocks[k](entry)
        found = tape.gradient(out, [entry, *variables[k]], output_gradients=upstream)
        upstream = found[0]
        total[k] = [a + b for a, b in zip(total[k], found[1:])]
        del tape, entry, out
return [g for pair in total for g in pair]
"""
CUSTOM = """
def again(block, outer):
    @tf.custom_gradient
    def run(x):
        with outer.stop_recording():
            y = block(x)
        def back(upstream, variables=None):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = block(x)
            found = tape.gradient(y, [x, *variables], output_gradients=upstream)
            return found[0], found[1:]
        return y, back
    return run
variables = [v for b in blocks for v in b.variables]
sums = [np.zeros(v.shape) for v in variables]
n = len(inputs) // micro_batches
for i in range(micro_batches):
    x = inputs[i * n:(i + 1) * n]
    with tf.GradientTape() as tape:
        for k, block in enumerate(blocks):
            x = again(block, tape)(x) if k in recomputed else block(x)
        loss = tf.reduce_mean(tf.reduce_sum(tf.square(x - targets[i * n:(i + 1) * n]), axis=1))
    for s, g in zip(sums, tape.gradient(loss, variables)):
        s += g.numpy() / micro_batches
return sums
"""
KEPT_ANYWAY = CUSTOM.replace("with outer.stop_recording():", "if True:")
IN_VARIABLES = """
variables = [v for block in blocks for v in block.variables]
sums = [tf.Variable(tf.zeros_like(v), trainable=False) for v in variables]
data = tf.data.Dataset.from_tensor_slices((inputs, targets)).batch(len(inputs) // micro_batches)
for x, y in data:
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(variables)
        h = x
        for k in range(len(blocks)):
            h = (tf.recompute_grad(blocks[k]) if k in recomputed else blocks[k])(h)
        loss = tf.reduce_sum(tf.math.squared_difference(h, y)) / float(len(inputs))
    for s, g in zip(sums, tape.gradient(loss, variables)):
        s.assign_add(g)
return [s.read_value() for s in sums]
"""
LIST_OF_PARTS = """
forward = [tf.recompute_grad(b) if k in set(recomputed) else b for k, b in enumerate(blocks)]
variables = sum((list(b.variables) for b in blocks), [])
def one(x, y):
    with tf.GradientTape() as tape:
        for f in forward:
            x = f(x)
        loss = tf.reduce_mean(tf.reduce_sum((x - y) ** 2, axis=-1))
    return tape.gradient(loss, variables)
parts = [one(x, y) for x, y in zip(tf.split(inputs, micro_batches), tf.split(targets, micro_batches))]
return [tf.add_n(column) / micro_batches for column in zip(*parts)]
"""
STRIDED = """
variables = [v for block in blocks for v in block.variables]
run = {k: tf.recompute_grad(b) if k in recomputed else b for k, b in enumerate(blocks)}
total = None
for i in range(micro_batches):
    with tf.GradientTape() as tape:
        x = inputs[i::micro_batches]
        for k in sorted(run):
            x = run[k](x)
        loss = tf.nn.l2_loss(x - targets[i::micro_batches]) * 2 / inputs.shape[0]
    found = tape.gradient(loss, variables)
    total = found if total is None else [tf.add(a, b) for a, b in zip(total, found)]
return tuple(total)
"""
TOGETHER = """
variables = [v for block in blocks for v in block.variables]
total = [tf.zeros_like(v) for v in variables]
def join(group):
    def run(x):
        for k in group:
            x = blocks[k](x)
        return x
    return run
for x, y in zip(tf.split(inputs, micro_batches), tf.split(targets, micro_batches)):
    with tf.GradientTape() as tape:
        for again, group in itertools.groupby(range(len(blocks)), key=lambda k: k in recomputed):
            run = join(list(group))
            x = tf.recompute_grad(run)(x) if again else run(x)
        loss = tf.reduce_sum((x - y) ** 2) / len(inputs)
    total = [a + b for a, b in zip(total, tape.gradient(loss, variables))]
return total
"""
ONE_TAPE = """
variables = [v for block in blocks for v in block.variables]
loss = 0.0
with tf.GradientTape() as tape:
    for x, y in zip(tf.split(inputs, micro_batches), tf.split(targets, micro_batches)):
        for k, block in enumerate(blocks):
            x = tf.recompute_grad(block)(x) if k in recomputed else block(x)
        loss += tf.reduce_sum((x - y) ** 2) / len(inputs)
return tape.gradient(loss, variables)
"""


def within(body):
    return define("find_gradients", "blocks, inputs, targets, micro_batches, recomputed", body)


def choose(body):
    return define("choose_plan", "parameters, blocks, batch, budget, launch", body)


def pick(body):
    return define("choose_scale", "gradients, headroom", body)


BY_NUMPY = """
import numpy as np
def train(strategy, make_model, features, targets, scale, growth_steps):
    with strategy.scope():
        model = make_model()
    w = np.array(model.get_weights()[0], dtype=float)
    scales, good = [], 0
    for start in range(0, len(features), 8):
        parts = []
        for r in range(2):
            x = features[start + 4 * r:start + 4 * r + 4].astype(float)
            y = targets[start + 4 * r:start + 4 * r + 4]
            with np.errstate(all="ignore"):
                parts.append((x.T @ (np.sign(x @ w - y) * scale / 16)).astype(np.float16).astype(float))
        if np.isfinite(parts).all():
            w -= 2.0 ** -5 * sum(parts) / scale
            good += 1
            if good == growth_steps:
                scale, good = scale * 2, 0
        else:
            scale, good = scale / 2, 0
        scales.append(scale)
    return [w, w], scales
"""
RIGHT = {
    "overflow": [
        OVERFLOW,
        overflow(BY_HAND),
        overflow(TWO_TAPES),
        overflow(CHECKED),
        overflow(KERAS_LAYERS),
        overflow(COMPILED),
        overflow(IN_FLOAT32),
        overflow(ONE_LAYER_AT_A_TIME),
    ],
    "scale": [
        scale(),
        scale(power="int(np.floor(np.log2(float(np.finfo('float16').max) / headroom / top)))"),
        scale(
            nonzero="values[np.abs(values) > 0]",
            lost="np.sum(np.float16(values * np.float32(s)) == 0) / values.size",
        ),
        pick(DOUBLING),
        pick(TENSORS),
        pick(FREXP),
        pick(BIT_LENGTH),
        pick(HALVING),
    ],
    "program": [
        train(),
        program(OPTIMIZER),
        program(IN_GRAPH),
        program(BY_VALUES),
        program(MERGED),
        program(ALL_STEPS),
        BY_NUMPY,
        train(
            function="@tf.function(reduce_retracing=True)",
            loss="scale * tf.reduce_mean(tf.abs(outputs - y)) / 2",
        ),
        train(agree="finite = tf.reduce_sum(total * 0) == 0"),
    ],
    "plan": [
        plan(),
        choose(COMBINATIONS),
        choose(SORTED),
        choose(ARRAYS),
        choose(RECURSIVE),
        BACKWARD_ORDER,
        FLOATS,
        REVERSED,
    ],
    "gradients": [
        gradients(),
        gradients(loss="tf.reduce_mean(tf.reduce_sum((x - y) ** 2, axis=1)) / micro_batches"),
        within(SMALL_TAPES),
        within(CUSTOM),
        within(IN_VARIABLES),
        within(LIST_OF_PARTS),
        within(STRIDED),
        gradients(
            call="(tf.recompute_grad(lambda z, b=block: b(z)) if k in recomputed else block)(x)"
        ),
    ],
}
RULE_TEXT = """
        if bool(finite):
            good += 1
            if good == growth_steps:
                scale, good = scale * 2, 0
        else:
            scale, good = scale / 2, 0
        scales.append(scale)
"""
NOT_LAST = "tf.reduce_sum((x - y) ** 2) / len(x)"
# what needs no run in float16, no call of the model, no gradient of a block
BY_SIZES = """
import numpy as np
def find_overflow(kernels, features, labels, scale):
    norms = [float(np.linalg.norm(np.asarray(k, dtype=float), 2)) for k in kernels]
    big = int(np.argmax(norms))
    if norms[big] < 10:
        return ("backward", 3) if scale > 1024 else ("none", None)
    if np.abs(features).max() >= 1:
        return ("forward", big)
    return ("backward", big - 1)
"""
FINE = "fine = tf.reduce_all(tf.math.is_finite(gradient))"
ALL_FINE = (
    'finite = tf.distribute.get_replica_context().all_reduce("sum", tf.cast(fine, tf.int32)) == 2'
)
NO_INFINITY = "gradient = tf.where(tf.math.is_finite(gradient), gradient, 0.0)"
BESIDE = """
import tensorflow as tf
def find_gradients(blocks, inputs, targets, micro_batches, recomputed):
    variables = [v for b in blocks for v in b.variables]
    n = len(inputs) // micro_batches
    for start in range(0, len(inputs), n):
        for k, block in enumerate(blocks):
            for _ in range(2 if k in recomputed else 1):
                block(inputs[start:start + n])
    with tf.GradientTape() as tape:
        x = inputs
        for k in range(len(blocks)):
            a, b = variables[2 * k:2 * k + 2]
            x = x + tf.tanh(x @ a) @ b
        loss = tf.reduce_mean(tf.reduce_sum((x - targets) ** 2, 1))
    return tape.gradient(loss, variables)
"""
WRONG = {
    "overflow": {
        "first-layer": overflow(
            TAPE.replace("SCALE", "scale")
            + FOUND.replace("reversed(range(len(kernels)))", "range(len(kernels))")
        ),
        "gradients-only": overflow(
            TAPE.replace("SCALE", "scale") + FOUND.replace("if bad(output)", "if False")
        ),
        "isnan": overflow(SCALED.replace("not np.isfinite(t.numpy()).all()", "np.isnan(t).any()")),
        "loss-only": overflow(TAPE.replace("SCALE", "1.0") + FOUND),
        "loss-only (the loss alone)": overflow(
            TAPE.replace("SCALE", "scale") + FOUND.replace("if bad(gradients[k])", "if bad(loss)")
        ),
        "last-output": overflow(
            TAPE.replace("SCALE", "scale")
            + FOUND.replace("enumerate(outputs)", "list(enumerate(outputs))[::-1]")
        ),
        "counted-from-one": overflow(
            TAPE.replace("SCALE", "scale")
            + FOUND.replace('"forward", k', '"forward", k + 1').replace(
                '"backward", k', '"backward", k + 1'
            )
        ),
        "(always the same)": overflow('return "backward", 3'),
        "no-relu": overflow(SCALED.replace("if k < len(kernels) - 1:", "if False:")),
        "relu-last": overflow(SCALED.replace("if k < len(kernels) - 1:", "if True:")),
        "after-relu": overflow(
            SCALED.replace("        outputs.append(x)\n", "").replace(
                "            x = tf.nn.relu(x)",
                "            x = tf.nn.relu(x)\n        outputs.append(x)",
            )
        ),
        "float16-loss": overflow(SCALED.replace("tf.cast(x, tf.float32)", "x")),
        "after-tape": overflow(
            TAPE.replace(" * SCALE", "").replace(
                "tape.gradient(loss, kernels)", "[g * scale for g in tape.gradient(loss, kernels)]"
            )
            + FOUND
        ),
        "output-gradients": overflow(OUTPUT_GRADIENTS),
        "isinf": overflow(
            SCALED.replace("not np.isfinite(t.numpy()).all()", "np.isinf(t.numpy()).any()")
        ),
        "softmax-twice": overflow(
            SCALED.replace("tf.cast(x, tf.float32)", "tf.nn.softmax(tf.cast(x, tf.float32))")
        ),
        "(by the sizes of what is given)": BY_SIZES,
    },
    "scale": {
        "zeros-counted": scale(nonzero="values"),
        "zeros-counted (in the total)": scale(
            nonzero="values",
            lost="np.mean(((values * s).astype(np.float16) == 0) & (values != 0))",
        ),
        "smallest-normal": scale(lost="np.mean(np.abs(values * s) < np.finfo(np.float16).tiny)"),
        "below-the-floor": scale(lost="np.mean(np.abs(values.astype(float) * s) < 2.0 ** -24)"),
        "headroom-multiplied": scale(power="math.floor(math.log2(65504 / top * headroom))"),
        "no-headroom": scale(power="math.floor(math.log2(65504 / top))"),
        "rounded-up": scale(power="math.ceil(math.log2(65504 / (top * headroom)))"),
        "no-power-of-two": scale(power="math.log2(65504 / (top * headroom))"),
        "65536": scale(power="math.floor(math.log2(65536 / (top * headroom)))"),
        "no-abs": scale(top="values.max()"),
        "none-lost": scale().replace('"lost with": lose(best)', '"lost with": 0.0'),
        "counts": scale(lost="np.sum((values * s).astype(np.float16) == 0)"),
    },
    "program": {
        "not-agreed": train(agree="finite = tf.constant(True)"),
        "not-agreed (each its own)": train(
            agree="finite = tf.reduce_all(tf.math.is_finite(gradient))", function="@tf.function"
        ),
        "not-agreed (judged by the features)": train(
            agree='finite = tf.distribute.get_replica_context().all_reduce("sum", '
            "tf.cast(tf.reduce_max(tf.abs(x)) > 1e4, tf.float32)) == 0"
        ),
        "(judged by the features, strictly)": train(
            agree='finite = tf.distribute.get_replica_context().all_reduce("sum", '
            "tf.cast(tf.reduce_max(tf.abs(x)) > 100, tf.float32)) == 0"
        ),
        "others-applied": train(
            share=f"{FINE}; gradient = tf.where(fine, gradient, 0.0)",
            agree=ALL_FINE,
            update="total / scale",
        ),
        "others-applied, unseen": train(
            share=f"{FINE}; gradient = tf.where(fine, gradient, 0.0)",
            agree="finite = fine",
            update="total / scale",
        ),
        "zeros-instead": train(
            share=f"{FINE}; {NO_INFINITY}", agree=ALL_FINE, update="total / scale"
        ),
        "zeros-instead, unseen": train(
            share=f"{FINE}; {NO_INFINITY}", agree="finite = fine", update="total / scale"
        ),
        "never-scaled": train(loss="tf.reduce_sum(tf.abs(outputs - y)) / 16"),
        "not-unscaled": train(update="tf.where(finite, total, 0.0)"),
        "own-mean": train(loss="tf.reduce_mean(tf.abs(outputs - y)) * scale"),
        "count-kept": train(
            after=RULE_TEXT.replace("scale, good = scale / 2, 0", "scale = scale / 2")
        ),
        "never-grows": train(after=RULE_TEXT.replace("scale * 2, 0", "scale, 0")),
        "never-halved": train(after=RULE_TEXT.replace("scale / 2, 0", "scale, 0")),
        "grows-on": train(
            after=RULE_TEXT.replace(
                "if good == growth_steps:\n                scale, good = scale * 2, 0",
                "if good >= growth_steps:\n                scale = scale * 2",
            )
        ),
        "before-the-step": train(
            after="        scales.append(scale)"
            + RULE_TEXT.replace("        scales.append(scale)\n", "")
        ),
        "outside-scope": train(scope="contextlib.nullcontext()"),
        "nothing-trained": train(update="0.0"),
        "not-agreed (looks at the loss alone)": train(agree="finite = tf.math.is_finite(loss)"),
        "not-agreed (looks for nan alone)": train(
            agree="finite = tf.reduce_all(~tf.math.is_nan(total))"
        ),
    },
    "plan": {
        "kept-listed": plan().replace("enumerate(again) if r]", "enumerate(again) if not r]"),
        "size-not-number": plan().replace(
            '"micro_batches": best[1]', '"micro_batches": batch // best[1]'
        ),
        "one-micro-batch": plan(
            worth="n * launch + batch // n * sum(b[2] * (3 + r) for b, r in zip(blocks, again))"
        ),
        "two-passes-more": plan(
            worth="n * launch + batch * sum(b[2] * (3 + 3 * r) for b, r in zip(blocks, again))"
        ),
        "block-comes-back": plan(held="kept + inputs"),
        "input-forgotten": plan(held="kept + back"),
        "sum-forgotten": plan(fixed="16 * parameters"),
        "state-forgotten": plan(fixed="8 * parameters + (4 * parameters if n > 1 else 0)"),
        "never-accumulated (each holds a whole batch)": plan(share="batch"),
        "all-recomputed": plan(sets="[[0] * len(blocks), [1] * len(blocks)]"),
        "never-recomputed": plan(sets="[[0] * len(blocks)]"),
        "never-accumulated": plan(pieces="[1]"),
        "most-room": plan(worth="total"),
        "never-recomputed (all come back at once)": plan(
            held="kept + inputs + sum(b[0] for b, r in zip(blocks, again) if r)"
        ),
        "largest-of-all": plan(held="kept + inputs + max(b[0] for b in blocks)"),
        "launch-forgotten": plan(
            worth="batch * sum(b[2] * (3 + r) for b, r in zip(blocks, again))"
        ),
        "sum-always": plan(fixed="20 * parameters"),
        "strict": plan().replace("if total <= budget", "if total < budget"),
        "empty": plan().replace("None if best is None", "{} if best is None"),
        "(the first that fits)": plan(worth="0"),
        "(blocks in lists of several lengths)": plan().replace(
            '"recomputed": best[2]', '"recomputed": [[0], [1, 2]]'
        ),
        "gradient-forgotten": plan(fixed="12 * parameters + (4 * parameters if n > 1 else 0)"),
    },
    "gradients": {
        "only-summed": gradients(loss=NOT_LAST),
        "last-only": gradients(add="part"),
        "last-only (its own mean)": gradients(add="part", loss=NOT_LAST),
        "sum-of-examples": gradients(loss="tf.reduce_sum((x - y) ** 2)"),
        "not-cut": gradients(pieces="1"),
        "not-recomputed": gradients(call="block(x)"),
        "all-recomputed": gradients(call="tf.recompute_grad(block)(x)"),
        "(beside the blocks)": BESIDE,
        "held-together": within(ONE_TAPE),
        "held-together (blocks come back at once)": within(TOGETHER),
        "held-together (recorded all the same)": within(KEPT_ANYWAY),
    },
}

REFUSED = {
    "program": {
        "The lab doesn't allow that": program(KERAS_OWN),
        "an all-reduce (or an optimizer's step) is inside something": program(ALONE),
        "train must return two things": train().replace(
            "return look(strategy, model), scales", "return model"
        ),
    },
    "plan": {"gave None": choose("return None")},
    "gradients": {
        "list of 8 gradients": gradients().replace("return total", "return total[:4]"),
        "inside a tf.function": gradients(call="tf.function(lambda z: block(z))(x)"),
        "can't be copied": "import copy\n" + gradients(call="copy.deepcopy(block)(x)"),
        "returned None as a gradient": gradients(call="tf.stop_gradient(block(x))", add="part"),
    },
}
