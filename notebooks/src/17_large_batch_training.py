# %% [markdown] shows="Linear scaling, warm-up, LARS and LAMB, and where they break"
# # Large-batch training
#
# You get eight times the GPUs, the batch grows eightfold, and the model that used to train well gets worse. Keep the old learning rate and it falls short; scale the rate up and it may diverge. At the end you will know how to scale it, what a warm-up saves, and how to tell when no rate can save the run.
#
# **Time:** 90 minutes · **Prerequisites:** [loss scaling](05-loss-scaling.ipynb) · **Hardware:** two CPU cores
#
# ## Objectives
#
# - Scale a learning rate with the global batch size, and measure where the rule breaks.
# - Build a warm-up, and show on three seeds what it saves.
# - Compute a layer's own rate, as LARS and LAMB do, and compare both with a tuned plain optimizer.
# - Combine micro-batches into the update of one large batch, on one device and on four replicas.
# - Estimate what a large batch saves in messages and costs in memory.

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
import functools

import numpy as np

# %% [markdown]
# ## Five numbers first
#
# Take twice as many devices, each as busy as before. The global batch doubles, and an epoch has half as many steps. Each step costs one all-reduce of all gradients, so communication halves too. Here is how many steps eight epochs of 10,000 examples take:

# %%
BATCHES, EPOCHS, EXAMPLES = (32, 128, 512, 1024, 2048), 8, 10_000
for size in BATCHES:
    print(f"global batch {size:>5}: {EPOCHS * (EXAMPLES // size):>5} steps")

# %% [markdown]
# That is the promise of a large batch, and the trouble: 32 steps must do what 2,496 did.
#
# The optimizer doesn't care how many devices computed a batch. In lessons 04 and 05, four replicas took the step of one device, to rounding. So this lesson trains on one device wherever only the global batch counts, and goes back to replicas for accumulation.
#
# ## One long step for four short ones
#
# Take four steps of plain SGD with batches of 32 and rate 0.001. Or take one step with all 128 examples and rate 0.004. If the gradient stayed the same along the way, both would end in the same place: the four gradients of 32 add up to four times the gradient of the 128.
#
# The network for the whole lesson has three hidden layers of 64. Images are scaled to mean 0 and standard deviation 1.

# %%
from utils.data import load

data = load("fashion_mnist")
mean, spread = data.train.images.mean(), data.train.images.std()


def standardize(images):
    """Return [n, 28, 28] uint8 as [n, 784] float32."""
    return tf.constant((images.reshape(len(images), -1) - mean) / spread, tf.float32)


images, labels = standardize(data.train.images), tf.constant(data.train.labels)
test_images, test_labels = standardize(data.test.images), data.test.labels
loss_object = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def build_net(seed):
    keras.utils.set_random_seed(seed)
    hidden = [keras.layers.Dense(64, "relu", kernel_initializer="he_normal") for _ in range(3)]
    return keras.Sequential([keras.Input((784,)), *hidden, keras.layers.Dense(10)])


net = build_net(0)
STARTS = [build_net(seed).get_weights() for seed in (0, 1, 2)]  # one network for each seed


# %%
@tf.function(reduce_retracing=True)
def find_gradients(images, labels):
    with tf.GradientTape() as tape:
        loss = loss_object(labels, net(images, training=True))
    return tape.gradient(loss, net.trainable_variables)


def gradients_of(first, last):
    """Return the mean gradient of examples `first` to `last` at net's weights, as arrays."""
    return [g.numpy() for g in find_gradients(images[first:last], labels[first:last])]


def walk(batch_size, rate):
    """Take plain SGD steps through the first 128 examples; return the movement, [parameters]."""
    start = STARTS[0]
    net.set_weights(start)
    for first in range(0, 128, batch_size):
        moves = zip(net.get_weights(), gradients_of(first, first + batch_size))
        net.set_weights([weight - rate * gradient for weight, gradient in moves])
    return np.concatenate([np.ravel(b - a) for a, b in zip(start, net.get_weights())])


# %% [markdown]
# **Predict.** How far apart do the two walks end, as a percentage of how far the four short steps got from the start, with rate 0.001 (0.004 for the long step)? And with ten times that? Write down the second.

# %%
from distlab.explorables import guess_number

my_guess = guess_number("Distance of the two ends", 0, 100, "%")  # or write a number
my_guess

# %% tags=["nbval-ignore-output"]
from distlab import figures
from distlab.exercises.predict import show_guess

apart = {}  # {rate: %}
for rate in (0.001, 0.003, 0.01):
    four, one = walk(32, rate), walk(128, 4 * rate)
    apart[rate] = 100 * np.linalg.norm(four - one) / np.linalg.norm(four)
values = {f"rate {rate:g}": float(away) for rate, away in apart.items()}
figures.show(figures.bars(values, unit="%", title="Four short steps or one long one: apart by"))
show_guess(my_guess, float(apart[0.01]), unit="%")
assert 5 * apart[0.001] < apart[0.01]

# %% [markdown]
# Why? Over four steps the gradient turns by an amount in proportion to the rate, so ten times the rate makes the error about ten times as large, in percent of that distance.
#
# With the smallest rate the two walks end close together. That is why the *linear scaling rule* works: k times the batch, k times the rate. It holds as long as the gradient hardly changes over the k steps that one long step replaces. With a large rate it does change, and the long step keeps going in a direction that the short ones have already left.
#
# And 0.01 isn't even a large rate. The base rate below is 0.005 with momentum 0.9, and momentum of 0.9 makes steps up to ten times longer: in effect 0.05. So expect trouble at the start of training, where the gradient changes fastest.
#
# ## The loop
#
# It is lesson 04's custom loop with two additions: the rate of every step comes in as data, and everything runs inside one `tf.function`. The optimizer is SGD with momentum 0.9.


# %%
from utils.data.batches import epoch_order


def make_run(optimizer):
    """Return a function of a seed, a batch size and its rates: test error in percent."""
    model = build_net(0)
    variables = model.trainable_variables
    optimizer.build(variables)

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int64), tf.TensorSpec([None])])
    def train_steps(indices, rates):  # [step, example], [step]
        for step in tf.range(tf.shape(indices)[0]):
            optimizer.learning_rate.assign(rates[step])
            chosen = indices[step]
            with tf.GradientTape() as tape:
                logits = model(tf.gather(images, chosen), training=True)
                loss = loss_object(tf.gather(labels, chosen), logits)
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

    def run(seed, batch_size, rates):
        model.set_weights(STARTS[seed])
        for variable in optimizer.variables:
            variable.assign(tf.zeros_like(variable))
        orders = [epoch_order(EXAMPLES, seed, epoch) for epoch in range(EPOCHS)]
        whole = EXAMPLES // batch_size * batch_size
        indices = np.concatenate([order[:whole].reshape(-1, batch_size) for order in orders])
        train_steps(tf.constant(indices), tf.constant(rates, tf.float32))
        return 100 * float(np.mean(np.argmax(model(test_images), axis=-1) != test_labels))

    return run


# %%
from utils.training.large_batch import list_rates

run_sgd = make_run(keras.optimizers.SGD(momentum=0.9))
BASE_RATE, BASE_BATCH, SEEDS = 0.005, 32, (0, 1, 2)
errors = {}  # {(way, batch size): test error of each seed, %}


def measure(way, size, plan):
    """Train with the rates of `plan` from three seeds, keep the errors, print them."""
    errors[way, size] = [run_sgd(seed, size, list_rates(plan)) for seed in SEEDS]
    seen = "  ".join(f"{error:5.1f}" for error in errors[way, size])
    print(f"{way:<14} batch {size:>5}  rate {plan.peak_rate:<6g} error, %: {seen}")


def mean_error(way, size):
    return float(np.mean(errors[way, size]))


# %% [markdown]
# A `RatePlan` holds a rate for each step: first a number of warm-up steps, then a straight line down to 0. For now the warm-up has no steps. We take a rate tuned for batches of 32, and use it unchanged with larger batches.
#
# **Predict.** The error is about 14 % with batches of 32. What is it with batches of 1,024 at the same rate, after the same eight epochs?

# %%
my_guess = guess_number("Error with batches of 1,024", 0, 90, "%")
my_guess

# %% tags=["nbval-ignore-output"]
from utils.training.large_batch import RatePlan

for size in BATCHES:
    measure("same rate", size, RatePlan(BASE_RATE, BASE_RATE, 0, EPOCHS * (EXAMPLES // size)))
show_guess(my_guess, mean_error("same rate", 1024), unit="%")
assert mean_error("same rate", 32) < mean_error("same rate", 512) < mean_error("same rate", 2048)
assert mean_error("same rate", 1024) > mean_error("same rate", 32) + 5

# %% [markdown]
# If you said 14: a step with a larger batch points, on average, in the same direction, but there are only 72 steps. Nothing broke; the run just stopped short. A batch of 1,024 takes about 35 times fewer steps, and at the same rate they don't get as far. Now k times the rate:

# %% tags=["nbval-ignore-output"]
from utils.training.large_batch import plan_rates

rule = functools.partial(plan_rates, BASE_RATE, BASE_BATCH, examples=EXAMPLES, epochs=EPOCHS)
errors["scaled", 32] = errors["same rate", 32]
for size in BATCHES[1:]:
    measure("scaled", size, rule(size))
base = mean_error("same rate", 32)
lost, left = ([mean_error(way, n) - base for n in (128, 512)] for way in ("same rate", "scaled"))
print("recovered at 128 and 512:", *[f"{100 * (1 - b / a):.0f} %" for a, b in zip(lost, left)])
assert left[1] < lost[1] - 2 and mean_error("scaled", 2048) > 40

# %% [markdown]
# The last line says how much of the lost accuracy the rule recovers: most of it at batch 128, a good part at 512. At 1,024 the seeds disagree, and some runs do worse than with the small rate. At 2,048 little or nothing was learned: guessing at random gives an error of 90 %.
#
# ## Warm-up
#
# While the network is still random, the gradient changes fast, and the rule is at its worst. So let the rate grow to its peak over the first epochs. Goyal and others took 5 epochs of 90; we take 2 of 8.
#
# **Your turn.** The rate of a step: in a straight line from `base` at step 0 to `peak` at step `warm`, then in a straight line down, to 0 at step `total`.


# %%
def warm_up(step, base, peak, warm, total):
    return ...


# %%
from distlab.turns import lesson17 as turns

warm_up = turns.WARM_UP.take(warm_up)
steps_per_epoch = EXAMPLES // 512
warm, total, peak = 2 * steps_per_epoch, EPOCHS * steps_per_epoch, BASE_RATE * 512 / BASE_BATCH
cosine = keras.optimizers.schedules.CosineDecay(
    BASE_RATE, total - warm, warmup_target=peak, warmup_steps=warm
)
steps = np.arange(total)
rates = {
    "scaled": list_rates(rule(512)),
    "scaled, warm-up": [warm_up(s, BASE_RATE, peak, warm, total) for s in steps],
}
rates["CosineDecay"] = [float(cosine(step)) for step in steps]
same = np.allclose(rates["scaled, warm-up"], list_rates(rule(512, warm_up_epochs=2)))
print("the rates of plan_rates:", same)
series = {way: (steps, values) for way, values in rates.items()}
words = {"x_label": "step", "y_label": "learning rate"}
figures.show(figures.lines(series, title="The rates of batch 512", **words))

# %% [markdown]
# `plan_rates` makes the same list. Keras has a warm-up too, inside `CosineDecay`: up in the same straight line, down along a cosine. Now train with it:

# %% tags=["nbval-ignore-output"]
errors["scaled, warm-up", 32] = errors["same rate", 32]
for size in BATCHES[1:]:
    measure("scaled, warm-up", size, rule(size, warm_up_epochs=2))
gained = {n: mean_error("scaled", n) - mean_error("scaled, warm-up", n) for n in BATCHES[1:]}
print({size: round(points, 1) for size, points in gained.items()}, "points gained")
assert gained[512] > 0 and gained[1024] > 1 and mean_error("scaled, warm-up", 2048) > 25

ways = ("same rate", "scaled", "scaled, warm-up")
series = {way: (BATCHES, [mean_error(way, size) for size in BATCHES]) for way in ways}
draw = functools.partial(figures.lines, x_label="global batch size", log_x=True)
title = "Test error after 8 epochs, mean of three seeds"
figures.show(draw(series, y_label="error, %", title=title, log_y=True))
assert series["scaled, warm-up"][1][2] < series["scaled"][1][2] < series["same rate"][1][2]

# %% [markdown]
# Choose the batch and the warm-up yourself, and see what our runs gave. Which batch does a warm-up not save, and how many steps are left for it there?

# %% tags=["nbval-ignore-output"]
from distlab.explorables.rates import rates_explorer

rates_explorer(BASE_RATE, BASE_BATCH, examples=EXAMPLES, epochs=EPOCHS, errors=errors)

# %% [markdown]
# A batch of 128 hardly needs a warm-up. At 512 it closes most of the remaining gap; at 1,024 it is the difference between a usable network and luck. At 2,048 it isn't enough. The whole warm-up is 8 steps, and then a rate of 0.32 throws the network off all the same.
#
# ## Next to the paper's result
#
# Goyal and others trained ResNet-50 on ImageNet with the same rule and a gradual warm-up. Their 24 % and our 14 % are errors on different problems. So the picture shows what a larger batch *adds* to the error of the smallest one, in percentage points. The bars span our three seeds (our table of the paper has no spread). Our batch of 2,048 is far off the top. Its number is printed below the picture.

# %% tags=["nbval-ignore-output"]
from utils.simulate.published import read_table

sizes, percents = zip(*(row.values() for row in read_table("goyal_2017_table")))
theirs = np.round(np.subtract(percents, percents[0]), 2)
ours = np.array([errors["scaled, warm-up", n] for n in BATCHES])  # [batch size, seed]
ours, above = np.round(ours - base, 2), "points above the smallest batch's error"
series = {"ImageNet": (sizes, theirs), "ours": (BATCHES[:4], np.round(ours[:4].mean(1), 2))}
ranges = {"ours": (ours[:4].min(1), ours[:4].max(1))}
figures.show(draw(series, ranges=ranges, y_label=above, title="What a larger batch costs"))
print(f"ours at 2,048: {ours[4].mean():.0f} points above")
assert max(theirs) < 0.5 < ours[3].mean() and ours[4].mean() > 10
count, epochs = 1_281_167, 90  # training images of ImageNet; the paper's epochs
low, high = min(percents[:-1]), max(percents[:-1])
print(f"ImageNet, 128 to 4,096: between {low} and {high} %; 8,192: {percents[-1]} %")
print(f"{count / EXAMPLES:.0f} times our images; at 8,192 still {count * epochs // 8192:,} steps")

# %% [markdown]
# Their line is flat, and that was the paper's claim: no loss of accuracy up to 8,192. (The paper also tried larger batches and found where its rule breaks. Those rows aren't in our table, so they aren't drawn.)
#
# Ours holds to about 512. ImageNet has 128 times as many images, and they train for 90 epochs. So the batch alone doesn't decide. What counts is how many steps are left, and how much the gradients of single examples differ. McCandlish and others (below) put a number on the second, the *noise scale*: the variance of one example's gradient, summed over all weights, divided by the squared norm of the mean gradient. Around a batch of that size, more examples stop paying for themselves.
#
# **Your turn.** We have gradients of many batches of `size` examples each, [batch, weight]. Estimate the noise scale from them. Mind that the variance over *batches* isn't the variance over examples.


# %%
def noise_scale(gradients, size):
    return ...


# %% tags=["nbval-ignore-output"]
noise_scale = turns.NOISE.take(noise_scale)
net.set_weights(STARTS[0])
net.compile(keras.optimizers.SGD(BASE_RATE, momentum=0.9), loss_object)
stream = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(EXAMPLES, seed=0).repeat()
done, measured = 0, {}
for steps in (0, 100, 600, 1200):
    if steps:
        net.fit(stream.batch(32), steps_per_epoch=steps - done, shuffle=False, verbose=0)
    done = steps
    each = [gradients_of(n, n + 32) for n in range(0, 3200, 32)]
    measured[steps] = noise_scale(np.array([np.concatenate([*map(np.ravel, g)]) for g in each]), 32)
    print(f"after {steps:>5,} steps: noise scale {measured[steps]:.0f}")
assert 0 < measured[0] < measured[1200]

# %% [markdown]
# It's one seed, and later steps weren't measured. But it fits what you saw. At the start the noise scale is far smaller than later, and that is when the warm-up keeps the rate low. After 600 steps it's about ten times as large, and after 1,200 it's a few hundred examples. Compare that with where scaling broke above: with the rule and a warm-up, 512 was still fine and 2,048 wasn't.
#
# ## Which layer is most at risk
#
# A step that is large compared with the weights it changes wrecks them. So compare the norm (the length) of each layer's weights with the norm of their gradient, at the start:

# %% tags=["nbval-ignore-output"]
net.set_weights(STARTS[0])
gradient = gradients_of(0, 2048)
kernels = [k for k, weight in enumerate(net.get_weights()) if weight.ndim == 2]
ratios = [np.linalg.norm(net.get_weights()[k]) / np.linalg.norm(gradient[k]) for k in kernels]
ratios = {f"layer {number}": float(ratio) for number, ratio in enumerate(ratios)}
figures.show(figures.bars(ratios, unit="", title="Norm of weights / norm of gradient"))
assert max(ratios.values()) > 2 * min(ratios.values())

# %% [markdown]
# We'd expect the layers with the shortest bars to break first, since their gradient is large compared with their weights. (We haven't measured which one does.) One rate for all layers must suit the shortest bar, and is then too small for the longest. *LARS* gives each layer its own rate, so that every layer's step is the same fraction of the norm of its weights. `trust` sets that fraction.
#
# **Your turn.** Which rate does a layer need, if its weights `w` and their gradient `g` are arrays of the same shape?


# %%
def own_rate(w, g, trust):
    return ...


# %%
from utils.training.layerwise import Lars


def lars_step(w, g, v, rate, momentum=0.9):
    """Return weights and velocity after one step of LARS, without weight decay."""
    v = momentum * v + rate * own_rate(w, g, 0.1) * g
    return w - v, v


own_rate = turns.OWN_RATE.take(own_rate)
w, g = net.get_weights()[0].astype("float64"), gradient[0].astype("float64")
variable = keras.Variable(w, dtype="float64")
optimizer = Lars(0.25, trust=0.1, decay=0.0)
optimizer.build([variable])
v = np.zeros_like(w)
for scale in (1, 1000):  # the second gradient is a thousand times as long
    before = w
    w, v = lars_step(w, scale * g, v, 0.25)
    optimizer.apply_gradients([(tf.constant(scale * g), variable)])
    print(f"moved by {100 * np.linalg.norm(w - before) / np.linalg.norm(before):.2f} %")
print("the same weights as with utils' Lars:", np.allclose(variable.numpy(), w, atol=1e-9))

# %% [markdown]
# Two steps on one matrix, by hand and with `Lars`. The first move is rate × trust = 0.25 × 0.1, or 2.5 % of the weights' norm. The second gradient is a thousand times larger, but the second step isn't: it is another 2.5 %, plus 0.9 of the first, which momentum keeps.
#
# > **LARS and LAMB in a box**
# >
# > | | step of a layer, before the common rate | made for |
# > |---|---|---|
# > | LARS (2017) | momentum SGD's, with the gradient rescaled to `trust` × the norm of the weights | ResNet-50 with batches of 32 K, AlexNet with 8 K |
# > | LAMB (2019) | Adam's, rescaled to the norm of the weights | BERT with batches of 65,536 short and 32,768 long sequences |
# >
# > The batch sizes come from the papers' abstracts (LAMB's: of the first version). In LAMB's paper, weight decay is part of the step that gets rescaled. `keras.optimizers.Lamb` leaves it out, `utils.training.layerwise.Lamb` puts it in. Ours take the plain step for biases: a bias starts at zero, and a fraction of zero is zero. `keras.optimizers.Lamb` takes the plain step only while the bias is exactly zero, which is the first step. Take a bias of three numbers, rate 0.1 and a constant gradient: Keras moves it by 0.173, then by 0.017 and 0.019. Ours moves it by 0.173 each time.
#
# ### At the batch that broke
#
# We take batch 2,048, with warm-up, and compare five optimizers: SGD, LARS, LAMB, Adam and Muon. Each gets five rates, each twice the one before, and two seeds. SGD's largest, 0.32, is the one that the linear rule asks for.
#
# The fifth optimizer is `keras.optimizers.Muon`, with its default arguments. It takes the momentum of each weight matrix and makes it nearly orthogonal before it steps, so that every direction moves about equally far. (Keras advises against Muon for the output layer. Here it steps that one too.) Biases take Adam's step. Muon's defaults include a weight decay of 0.004; SGD and Adam have none here.

# %% tags=["nbval-ignore-output"]
from utils.training.layerwise import Lamb

contest = {
    "SGD": (functools.partial(keras.optimizers.SGD, momentum=0.9), 0.02),
    "LARS": (functools.partial(Lars, trust=0.1, decay=1e-4), 0.05),
    "LAMB": (functools.partial(Lamb, decay=1e-4), 0.01),
    "Adam": (keras.optimizers.Adam, 0.002),
    "Muon": (keras.optimizers.Muon, 0.01),
}
factors, found = (1, 2, 4, 8, 16), {}
STEPS = EPOCHS * (EXAMPLES // 2048)
for name, (make, smallest) in contest.items():
    run = make_run(make())
    plans = [RatePlan(n * smallest / 64, n * smallest, STEPS // 4, STEPS) for n in factors]
    tries = [[run(seed, 2048, list_rates(plan)) for seed in SEEDS[:2]] for plan in plans]
    found[name] = np.mean(tries, axis=1)  # [rate]
    print(f"{name:<5}", "  ".join(f"{error:5.1f}" for error in found[name]), "%")
best = {name: float(values.min()) for name, values in found.items()}
print("best:", ", ".join(f"{name} {error:.1f} %" for name, error in best.items()))
assert max(best.values()) < mean_error("scaled, warm-up", 2048)
assert found["LARS"][-1] < found["SGD"][-1]
others = [error for name, error in best.items() if name != "Muon"]
assert best["Muon"] < min(others) and best["Adam"] < min(others) + 3
series = {name: (factors, values) for name, values in found.items()}
words = {"x_label": "rate / the smallest tried", "y_label": "error, %"}
title = "Batch 2,048: the error at five rates"
figures.show(figures.lines(series, title=title, log_x=True, log_y=True, **words))

# %% [markdown]
# At its largest rate, the one the rule asks for, SGD is lost. LARS still learns something at its own largest, because it bounds the step of every weight matrix. That safety is what it offers, and plain Adam has it too. (The five "largest" rates are different numbers, so don't read more into the right end of the picture.)
#
# At their *best* rates the first four are only a few points apart, Adam among the best, and all are well behind the 14 % of small batches. Don't read a winner among them. Each number is a mean of two seeds, and each best rate was chosen on the same test images that give its score, so differences of a point aren't safe. Others found the same at full size: once the rates are tuned, SGD with Nesterov momentum and Adam keep up with LARS and LAMB (Nado and others 2021).
#
# Are the missing steps gone for good, then? Not with Muon: its best error is clearly below the others', though it also had only 32 steps. At batch 32, with 78 times the steps, we measured 13.6 % for Muon (at the best of three rates) next to SGD's 14.2 %. So Muon loses about three points to the large batch, and SGD about eight. A better optimizer can bring back most of what the missing steps cost. It's one small network, two seeds, and rates chosen on test images, so try it on your own problem before you believe it.
#
# ### Where LAMB made its name
#
# The LAMB paper trained BERT-Large on 16 to 128 TPUs, and on more. The batch grows with the chips:

# %%
lamb = read_table("lamb_bert_weak_scaling")
for row in lamb:
    speed_up, more = lamb[0]["minutes"] / row["minutes"], row["tpus"] / lamb[0]["tpus"]
    print(
        f"{row['tpus']:>4.0f} TPUs {row['iterations']:>10,.0f} steps {row['minutes']:>7,.1f} min"
        f"   {speed_up:.2f} times as fast, efficiency {100 * speed_up / more:.0f} %"
    )

# %% [markdown]
# With eight times the chips there are an eighth of the steps, and training is seven times as fast. That is what a large batch buys, if it can be made to work. (Our table stops at 128. The result that gave the paper its title is further up: a whole TPUv3 pod of 1,024 chips, 8,599 steps, 76 minutes.)
#
# ## A large batch made of small ones
#
# If a batch doesn't fit in memory, pass it through in *micro-batches*: add up their gradients, then update once. As in lesson 05, each loss is divided by the size of the whole batch. By hand, in float64, a batch of 64 in four pieces:

# %%
from utils.models import build_mlp

plain = build_mlp(dtype="float64")
variables = plain.trainable_variables
large = (data.train.images[:64, ..., np.newaxis] / 255, data.train.labels[:64])
per_example = tf.nn.sparse_softmax_cross_entropy_with_logits


def sum_of_losses(model, images, labels):
    """Return the sum of the losses over 64, and its gradient."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(per_example(labels, model(images, training=True))) / 64
    return tape.gradient(loss, model.trainable_variables)


whole = sum_of_losses(plain, *large)
parts = [sum_of_losses(plain, large[0][n : n + 16], large[1][n : n + 16]) for n in (0, 16, 32, 48)]
for at_once, pieces in zip(whole, zip(*parts)):
    np.testing.assert_allclose(sum(pieces), at_once, rtol=0, atol=1e-9)
print("four micro-batches of 16: the gradient of one batch of 64, to 1e-9")

# %% [markdown]
# ## The mistake: Keras's accumulation under a strategy
#
# Keras optimizers can accumulate automatically: `gradient_accumulation_steps=4`. They average the micro-batches' gradients, so here each loss is divided by its own 16. Now the same under MirroredStrategy, inside a `tf.function`, where `fit` normally puts its step:

# %%
from utils.strategies import make_strategy

strategy = make_strategy("mirrored", 4)
make_sgd = functools.partial(keras.optimizers.SGD, 0.1, momentum=0.9)


def make_trainee(**options):
    """Return a model and its optimizer, with their variables on every replica."""
    with strategy.scope():
        model, optimizer = build_mlp(dtype="float64"), make_sgd(**options)
        optimizer.build(model.trainable_variables)
    return model, optimizer


def cut_large(batch_size):
    weighted = (*large, np.full(64, 1 / batch_size))
    batches = tf.data.Dataset.from_tensor_slices(weighted).batch(batch_size)
    return list(strategy.experimental_distribute_dataset(batches))


def distance(model):
    """Return how far the model is from the large batch's step: largest difference of a weight."""
    wanted = build_mlp(dtype="float64")
    make_sgd().apply(whole, wanted.trainable_variables)
    pairs = zip(model.get_weights(), wanted.get_weights())
    return max(float(np.abs(a - b).max()) for a, b in pairs)


# %%
model, optimizer = make_trainee(gradient_accumulation_steps=4)


def replica_step(images, labels, weights):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(weights * per_example(labels, model(images, training=True)))
    variables = model.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))


try:
    tf.function(lambda *batch: strategy.run(replica_step, args=batch))(*cut_large(16)[0])
except RuntimeError as error:
    print("RuntimeError:", str(error)[str(error).index("`merge_call`") :].split(". ")[0])

# %% [markdown]
# Keras decides at run time whether this call updates. So the update's all-reduce sits in a branch of the graph, where TensorFlow doesn't allow it. The same four calls without `tf.function` are correct, but not compiled. To get both, write a step without a branch: it loops over all the micro-batches of a global batch, then updates once.

# %%
from utils.training.accumulation import make_accumulating_step

for batch in cut_large(16):
    strategy.run(replica_step, args=batch)
same = [distance(model) < 1e-9]
model, optimizer = make_trainee()
step = make_accumulating_step(strategy, model, optimizer, per_example, micro_batches=4)
step(*cut_large(64)[0])
same.append(distance(model) < 1e-9)
print("the large batch's step, to 1e-9 (Keras without tf.function, own loop):", same)

# %% [markdown]
# ### A second trap: what a step is
#
# With accumulation, Keras passes a schedule the number of *calls*, not of updates. Here is a warm-up of 8 steps, 4 micro-batches each:

# %%
from utils.training.warm_up import WarmUp

schedule = WarmUp(base_rate=0.1, peak_rate=0.9, warm_up_steps=8, steps=100)
optimizer = keras.optimizers.SGD(schedule, gradient_accumulation_steps=4)
optimizer.build([keras.Variable([1.0])])
for _ in range(8):
    optimizer.apply([tf.constant([0.0])])
updates, used = int(optimizer.iterations), float(optimizer.learning_rate)
print(f"updates: {updates}, rate {used:.2f}, meant {schedule(updates):.2f}")
assert np.isclose(used, 0.9) and np.isclose(schedule(4), list_rates(schedule.plan)[4])

# %% [markdown]
# After two updates the warm-up is over. Make the schedule four times as long, or use a loop that calls the optimizer once per update, as ours does.
#
# ## What it costs
#
# Traffic first. In a ring, each of p replicas sends 2 (p − 1) / p times the gradients' bytes per step, whatever the batch. So fewer steps send fewer bytes. Then memory. Activations grow with the number of examples that go through at once; accumulation trades them for one more copy of the gradients. The optimizers keep their own numbers: LARS one for each weight, like SGD with momentum; LAMB two, like Adam. The layer's own rate costs nothing extra.
#
# The cell counts for the MLP that accumulated its gradients, in float64. In float32, weights, gradients and activations are half as large.

# %%
from utils.measure import array_bytes, format_bytes

gradient_bytes = array_bytes(plain.trainable_variables)
for size in BATCHES:
    sent = 2 * 3 / 4 * gradient_bytes * EPOCHS * (EXAMPLES // size)
    print(f"batch {size:>5}: each of 4 replicas sends {format_bytes(sent):>9} in 8 epochs")
makers = {
    "SGD": keras.optimizers.SGD,
    "SGD, momentum": make_sgd,
    "LARS": Lars,
    "Adam": keras.optimizers.Adam,
    "LAMB": Lamb,
}
kept = {name: make() for name, make in makers.items()}
for optimizer in kept.values():
    optimizer.build(plain.trainable_variables)
kept = {name: array_bytes(optimizer.variables) for name, optimizer in kept.items()}
print("weights", format_bytes(gradient_bytes), {n: format_bytes(b) for n, b in kept.items()})
assert kept["LARS"] == kept["SGD, momentum"] and kept["LAMB"] == kept["Adam"]
outputs = [layer.output.shape[1:] for layer in plain.layers]
for examples in (64, 16):
    size = 8 * examples * sum(int(np.prod(shape)) for shape in outputs)
    print(f"{examples} at once: activations {format_bytes(size)}")

# %% [markdown]
# In that small MLP the activations take less memory than one copy of the gradients, so accumulation costs more than it saves. In a large one they often take far more, and then memory decides (lesson 18 measures it). It costs time as well, since many small passes usually take longer than one large one.
#
# ## On a real GPU
#
# How large a batch makes a step efficient is a question for the GPU; how large it may be is one for the noise scale. The first answer:
#
#     for b in 64 256 1024 4096; do distlab train --device gpu --epochs 2 --global-batch-size $b; done
#
# Compare the images/s of the second epochs. Past the batch at which they stop growing, a larger one makes fewer updates in the same time.
#
# ## Recap
#
# - k times the rate won back most of the lost accuracy at 128 and much of it at 512. Then it broke.
# - Warm-up rescued batch 1,024 on all three seeds, and didn't rescue 2,048.
# - LARS bounded the step of every weight matrix; at its best rate, plain Adam did about as well. Muon did better.
# - Micro-batches gave one large batch's update to 1e-9, on one device and on four replicas.
# - Larger batches send fewer messages and hold more activations.
#
# ## Cheat sheet
#
# ```python
# import keras
#
# base_rate, base_batch, global_batch = 0.005, 32, 512  # a rate tuned for batches of 32
# steps_per_epoch, epochs, warm = 10_000 // global_batch, 8, 2
# peak_rate = base_rate * global_batch / base_batch  # k times the batch: k times the rate
# rate = keras.optimizers.schedules.CosineDecay(
#     base_rate, (epochs - warm) * steps_per_epoch,
#     warmup_target=peak_rate, warmup_steps=warm * steps_per_epoch)
# optimizer = keras.optimizers.SGD(rate, momentum=0.9)
# ```
#
# Then measure where it breaks. When few steps are left, the optimizer matters most, so try `keras.optimizers.Muon` too. If the layers' ratios of weights to gradient differ a lot, try `Lars` or `Lamb` from `utils.training.layerwise`, and tune the rate all the same. If the batch is too large for memory, divide each micro-batch's loss by the global batch, add up the gradients, and update once (`utils.training.accumulation`). With Keras's `gradient_accumulation_steps=n`, make the schedule n times as long.
#
# For a whole program to put such an optimizer into, see [mirrored_custom_loop.py](../examples/mirrored_custom_loop.py).
#
# ## Further reading
#
# - Goyal and others, [Accurate, Large Minibatch SGD](https://arxiv.org/abs/1706.02677), 2017: the linear scaling rule and warm-up
# - You, Gitman and Ginsburg, [Large Batch Training of Convolutional Networks](https://arxiv.org/abs/1708.03888), 2017: LARS
# - You and others, [Training BERT in 76 minutes](https://arxiv.org/abs/1904.00962), 2019: LAMB
# - Nado and others, [A Large Batch Optimizer Reality Check](https://arxiv.org/abs/2102.06356), 2021
# - McCandlish and others, [An Empirical Model of Large-Batch Training](https://arxiv.org/abs/1812.06162), 2018: how large is too large
# - Keras, [Lamb](https://keras.io/api/optimizers/lamb/), [Muon](https://keras.io/api/optimizers/muon/) and the argument `gradient_accumulation_steps` of every optimizer
#
# ## The lab
#
# Large batches don't have their own lab. Accumulation relies on dividing by the whole batch, and that is graded in [lab 05, loss scaling](../labs/lab05-loss-scaling.ipynb).
