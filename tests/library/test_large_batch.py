"""Large batches: schedules, LARS and LAMB against the papers, accumulation against one batch."""

import itertools
import re

import numpy as np
import pytest

from utils.errors import DistributedError
from utils.simulate.published import read_source, read_table
from utils.training.large_batch import RatePlan, list_rates, plan_rates, scale_rate

STEPS = 5


# ---- rates -----------------------------------------------------------------------------


def test_scaling_is_linear_in_the_batch():
    assert scale_rate(0.1, 256, 256) == 0.1
    assert scale_rate(0.1, 256, 8192) == pytest.approx(3.2, rel=1e-15)  # the paper's own case
    assert scale_rate(0.1, 256, 64) == pytest.approx(0.025, rel=1e-15)


def test_warm_up_rises_by_equal_amounts_and_then_falls():
    rates = list_rates(RatePlan(0.1, 0.9, warm_up_steps=4, steps=12))
    np.testing.assert_allclose(rates[:5], [0.1, 0.3, 0.5, 0.7, 0.9], rtol=1e-15)
    np.testing.assert_allclose(np.diff(rates[4:]), -0.9 / 8, rtol=1e-12)
    assert rates[-1] == pytest.approx(0.9 / 8)
    at_once = list_rates(RatePlan(0.1, 0.9, warm_up_steps=0, steps=12))
    np.testing.assert_allclose(at_once, 0.9 * np.arange(12, 0, -1) / 12, rtol=1e-12)


def test_a_plan_follows_the_rule():
    plan = plan_rates(0.1, 256, 1024, examples=10_000, epochs=6, warm_up_epochs=2)
    assert plan == RatePlan(0.1, 0.4, warm_up_steps=18, steps=54)  # 9 whole batches an epoch


def test_keras_schedule_equals_the_numbers(tf):
    import keras

    from utils.training.warm_up import WarmUp

    plan = RatePlan(0.1, 0.9, warm_up_steps=4, steps=12)
    schedule = WarmUp(0.1, 0.9, 4, 12)
    rates = [float(schedule(tf.constant(step, tf.int64))) for step in range(12)]
    np.testing.assert_allclose(rates, list_rates(plan), rtol=1e-6)
    optimizer = keras.optimizers.SGD(schedule)
    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert again._learning_rate.plan == plan
    assert float(schedule(40)) == 0.0


# ---- LARS and LAMB against the formulas of their papers, in NumPy -----------------------


def lars_by_hand(w, g, v, rate, momentum=0.9, trust=0.02, decay=0.1):
    """Algorithm 1 of You, Gitman, Ginsburg 2017 for one layer."""
    w_norm, g_norm = np.linalg.norm(w), np.linalg.norm(g)
    local = trust * w_norm / (g_norm + decay * w_norm) if w_norm > 0 and g_norm > 0 else 1.0
    v = momentum * v + rate * local * (g + decay * w)
    return w - v, v


def lamb_by_hand(w, g, state, t, rate=0.0625, decay=0.1):
    """Algorithm 2 of You and others 2019 for one layer; `state` is (m, v)."""
    m, v = state
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
    u = (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-7) + decay * w
    w_norm, u_norm = np.linalg.norm(w), np.linalg.norm(u)
    ratio = w_norm / u_norm if w_norm > 0 and u_norm > 0 else 1.0
    return w - rate * ratio * u, (m, v)


def make_case(start=None):
    """Return a matrix to start from and a gradient for each step: float64."""
    rng = np.random.default_rng(7)
    w = rng.normal(size=(5, 3)) if start is None else np.full((5, 3), start)
    return w, rng.normal(size=(STEPS, 5, 3))


def apply_in_keras(optimizer, w, gradients, dtype="float64"):
    """Return the weights after each step, [step, ...]."""
    import keras

    variable = keras.Variable(w, dtype=dtype)
    optimizer.build([variable])
    seen = []
    for gradient in gradients:
        optimizer.apply_gradients([(keras.ops.convert_to_tensor(gradient, dtype), variable)])
        seen.append(variable.numpy().copy())
    return np.array(seen)


@pytest.mark.parametrize("start", [None, 0.0])
def test_lars_is_the_papers_step_by_step(tf, start):
    from utils.training.layerwise import Lars

    w, gradients = make_case(start)
    optimizer = Lars(0.5, momentum=0.9, trust=0.02, decay=0.1)
    got = apply_in_keras(optimizer, w, gradients)
    v = np.zeros_like(w)
    for step, gradient in enumerate(gradients):
        w, v = lars_by_hand(w, gradient, v, 0.5)
        np.testing.assert_allclose(got[step], w, rtol=0, atol=1e-12)


@pytest.mark.parametrize("start", [None, 0.0])
def test_lamb_is_the_papers_step_by_step(tf, start):
    from utils.training.layerwise import Lamb

    w, gradients = make_case(start)
    got = apply_in_keras(Lamb(0.0625, decay=0.1), w, gradients)
    state = np.zeros_like(w), np.zeros_like(w)
    for step, gradient in enumerate(gradients):
        w, state = lamb_by_hand(w, gradient, state, step + 1)
        np.testing.assert_allclose(got[step], w, rtol=0, atol=1e-9)


def test_keras_lamb_is_the_papers_without_decay_only(tf):
    """Its weight_decay is taken off first, and isn't part of the ratio.

    It rounds its betas to float32, which is why both agree to 1e-5 only.
    """
    import keras

    from utils.training.layerwise import Lamb

    start, gradients = make_case()
    ours = apply_in_keras(Lamb(0.0625), start, gradients)
    theirs = apply_in_keras(keras.optimizers.Lamb(0.0625), start, gradients)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)
    w, state = start, (np.zeros_like(start),) * 2
    for step, gradient in enumerate(gradients):
        w, state = lamb_by_hand(w, gradient, state, step + 1, decay=0)
        np.testing.assert_allclose(theirs[step], w, rtol=0, atol=1e-5)
    ours = apply_in_keras(Lamb(0.0625, decay=0.1), start, gradients)
    theirs = apply_in_keras(keras.optimizers.Lamb(0.0625, weight_decay=0.1), start, gradients)
    assert np.abs(ours - theirs).max() > 1e-3
    first = np.zeros_like(start), np.zeros_like(start)
    decayed = start * (1 - 0.0625 * 0.1)
    w, _ = lamb_by_hand(decayed, gradients[0], first, 1, decay=0)
    np.testing.assert_allclose(theirs[0], w, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["Lars", "Lamb"])
def test_the_step_does_not_see_the_gradients_length(tf, kind):
    from utils.training import layerwise

    w, gradients = make_case()
    one = apply_in_keras(getattr(layerwise, kind)(0.1), w, gradients)
    many = apply_in_keras(getattr(layerwise, kind)(0.1), w, 1000 * gradients)
    np.testing.assert_allclose(one, many, rtol=1e-5)
    first = np.linalg.norm(one[0] - w) / np.linalg.norm(w)
    assert first == pytest.approx(0.1 * (0.001 if kind == "Lars" else 1.0), rel=1e-6)


def test_vectors_take_the_plain_step_unless_asked(tf):
    import keras

    from utils.training.layerwise import Lamb, Lars

    rng = np.random.default_rng(3)
    bias, gradients = rng.normal(size=4), rng.normal(size=(STEPS, 4))
    for plain, ours in (
        (keras.optimizers.SGD(0.1, momentum=0.9), Lars(0.1, decay=0.5)),
        (keras.optimizers.Adam(0.1), Lamb(0.1, decay=0.5)),
    ):
        expected = apply_in_keras(plain, bias, gradients)
        np.testing.assert_allclose(
            apply_in_keras(ours, bias, gradients), expected, rtol=0, atol=1e-5
        )
    v, w = np.zeros(4), bias
    got = apply_in_keras(Lars(0.5, trust=0.02, decay=0.1, adapt_vectors=True), bias, gradients)
    for step, gradient in enumerate(gradients):
        w, v = lars_by_hand(w, gradient, v, 0.5)
        np.testing.assert_allclose(got[step], w, rtol=0, atol=1e-12)


def test_both_can_be_saved_and_made_again(tf):
    import keras

    from utils.training.layerwise import Lamb, Lars

    for optimizer in (Lars(0.5, trust=0.02, decay=0.1, momentum=0.8), Lamb(0.1, decay=0.2)):
        again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
        assert type(again) is type(optimizer) and again.get_config() == optimizer.get_config()


# ---- accumulation -----------------------------------------------------------------------


def make_data(examples=64):
    rng = np.random.default_rng(1)
    return rng.normal(size=(examples, 28, 28, 1)), rng.integers(0, 10, examples)


def loss_of(labels, logits):
    import tensorflow as tf

    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)


def make_trainee(strategy, make_optimizer):
    from utils.models import build_mlp

    with strategy.scope():
        model, optimizer = build_mlp(dtype="float64"), make_optimizer()
        optimizer.build(model.trainable_variables)
    return model, optimizer


def sgd(**options):
    import keras

    return keras.optimizers.SGD(0.1, momentum=0.9, **options)


def read_count(number):
    """Return a counter of an optimizer as int, whether a tensor or a variable on replicas."""
    return int(getattr(number, "value", number).numpy())


def flatten(model):
    return np.concatenate([w.ravel() for w in model.get_weights()])


@pytest.fixture(scope="module")
def large_batch(tf):
    """Return {optimizer: weights after three steps on the same 64, on one device, no strategy}."""
    from utils.training.layerwise import Lars

    images, labels = make_data()
    found = {}
    for name, make in (("sgd", sgd), ("lars", lambda: Lars(0.5, decay=0.01))):
        model, optimizer = make_trainee(tf.distribute.get_strategy(), make)
        for _ in range(3):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(loss_of(labels, model(images, training=True)))
            optimizer.apply(tape.gradient(loss, model.trainable_variables))
        found[name] = flatten(model)
    return found


@pytest.fixture(scope="module")
def strategies(tf):
    from utils.strategies import make_strategy

    return {
        n: make_strategy("mirrored", n) if n else tf.distribute.get_strategy() for n in (0, 1, 2, 4)
    }


def share_out(tf, strategy, batch_size=64):
    """Return the batches as the strategy hands them on: (images, labels, weights of 1 / 64)."""
    from utils.data.batches import without_autotune

    images, labels = make_data()
    arrays = (images, labels, np.full(64, 1 / batch_size))
    batches = tf.data.Dataset.from_tensor_slices(arrays).batch(batch_size)
    return list(strategy.experimental_distribute_dataset(without_autotune(batches)))


@pytest.mark.parametrize(
    "name, replicas, micro_batches",
    [
        *(("sgd", *both) for both in ((0, 4), (1, 1), (2, 8), (4, 16))),
        ("lars", 4, 4),
    ],
)
def test_own_accumulation_equals_the_large_batch(
    tf, strategies, large_batch, replicas, micro_batches, name
):
    from utils.training.accumulation import make_accumulating_step
    from utils.training.layerwise import Lars

    make = sgd if name == "sgd" else lambda: Lars(0.5, decay=0.01)
    strategy = strategies[replicas]
    model, optimizer = make_trainee(strategy, make)
    step = make_accumulating_step(strategy, model, optimizer, loss_of, micro_batches)
    (batch,) = share_out(tf, strategy)
    for _ in range(3):
        step(*batch)
    assert read_count(optimizer.iterations) == 3
    np.testing.assert_allclose(flatten(model), large_batch[name], rtol=0, atol=1e-9)


def step_with_keras(tf, strategy, steps, graph):
    """Return the model after three large batches of four micro-batches each, by Keras's own."""
    model, optimizer = make_trainee(strategy, lambda: sgd(gradient_accumulation_steps=steps))

    def replica(images, labels, weights):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(loss_of(labels, model(images, training=True)) * weights)
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

    def run(*batch):
        strategy.run(replica, args=batch)

    run = tf.function(run) if graph else run
    for batch in 3 * share_out(tf, strategy, 64 // steps):
        run(*batch)
    return model, optimizer


@pytest.mark.parametrize("replicas, graph", [(0, True), (0, False), (4, False)])
def test_keras_accumulation_equals_the_large_batch(tf, strategies, large_batch, replicas, graph):
    model, optimizer = step_with_keras(tf, strategies[replicas], 4, graph)
    np.testing.assert_allclose(flatten(model), large_batch["sgd"], rtol=0, atol=1e-9)
    assert read_count(optimizer.iterations) == 3 and read_count(optimizer._iterations) == 12


@pytest.mark.parametrize("replicas", [1, 2])
def test_keras_accumulation_fails_in_a_graph_under_mirrored(tf, strategies, replicas):
    """A fact about Keras 3.15: the day it is mended, this says so."""
    with pytest.raises(RuntimeError, match="merge_call. called while defining a new graph"):
        step_with_keras(tf, strategies[replicas], 4, graph=True)


def test_fit_accumulates_under_mirrored_only_eagerly(tf, strategies, large_batch):
    import keras

    images, labels = make_data()

    def fit(eagerly):
        model, optimizer = make_trainee(strategies[2], lambda: sgd(gradient_accumulation_steps=4))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, dtype="float64")
        model.compile(optimizer, loss, run_eagerly=eagerly)
        model.fit(images, labels, batch_size=16, epochs=3, shuffle=False, verbose=0)
        return model

    np.testing.assert_allclose(flatten(fit(True)), large_batch["sgd"], rtol=0, atol=1e-9)
    with pytest.raises(RuntimeError, match="merge_call"):
        fit(False)


def test_keras_schedules_count_micro_batches(tf):
    """With accumulation Keras hands a schedule calls, not steps: a warm-up ends n times early."""
    import keras

    from utils.training.warm_up import WarmUp

    variable = keras.Variable([1.0])
    optimizer = keras.optimizers.SGD(WarmUp(0.1, 0.9, 8, 100), gradient_accumulation_steps=4)
    optimizer.build([variable])
    for _ in range(8):
        optimizer.apply([tf.constant([0.0])])
    assert int(optimizer.iterations) == 2
    assert float(optimizer.learning_rate) == pytest.approx(0.9)


# ---- what can't be ---------------------------------------------------------------------


def one_line_of(call):
    with pytest.raises(DistributedError) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_bad_optimizers_and_steps_get_one_line(tf, strategies):
    from utils.training.accumulation import make_accumulating_step

    strategy = strategies[2]
    model, optimizer = make_trainee(strategy, sgd)
    (batch,) = share_out(tf, strategy)
    step = make_accumulating_step(strategy, model, optimizer, loss_of, 5)
    says = one_line_of(lambda: step(*batch))
    assert says.startswith("micro_batches must divide the 32 examples of a replica, got 5")
    _, double = make_trainee(strategy, lambda: sgd(gradient_accumulation_steps=2))
    says = one_line_of(lambda: make_accumulating_step(strategy, model, double, loss_of, 2))
    assert "accumulates already" in says


# ---- the tables -------------------------------------------------------------------------


def test_published_tables_are_whole_and_cited():
    goyal = read_table("goyal_2017_table")
    assert [row["global_batch_size"] for row in goyal] == [2**n for n in range(7, 14)]
    assert all(23 < row["top1_error_percent"] < 24 for row in goyal)
    lamb = read_table("lamb_bert_weak_scaling")
    for before, after in itertools.pairwise(lamb):
        assert after["tpus"] == 2 * before["tpus"]
        assert after["iterations"] == before["iterations"] / 2
    for name, words in (
        ("goyal_2017_table", "Goyal.*2017"),
        ("lamb_bert_weak_scaling", "You.*2019"),
    ):
        assert re.search(words, read_source(name))
