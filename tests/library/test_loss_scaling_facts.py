"""What lesson 05 teaches about loss scaling, measured again: the day Keras changes, this says so.

Each number is the least-squares ratio of the update that four replicas apply (SGD,
learning rate 1, so that the update is the gradient) to the single-device gradient.
A ratio counts only if nothing is left over: the direction must be right as well.
"""

import numpy as np
import pytest

REPLICAS, GLOBAL_BATCH = 4, 64


class Bench:
    """A strategy, a small float64 model and the single-device gradient to hold updates against."""

    def __init__(self, tf):
        import keras

        from utils.strategies import make_strategy

        self.tf, self.keras = tf, keras
        self.strategy = make_strategy("mirrored", REPLICAS)
        rng = np.random.default_rng(5)
        self.x = rng.normal(size=(66, 8))
        self.y = rng.integers(0, 3, 66)
        self.per_example = self.make_loss("none")

    def make_loss(self, reduction="sum_over_batch_size"):
        return self.keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, reduction=reduction, dtype="float64"
        )

    def make_model(self, normalization=None):
        """Return 8 -> 5 -> 3 units with the same weights each time."""
        first, last = (
            self.keras.layers.Dense(
                units,
                dtype="float64",
                kernel_initializer=self.keras.initializers.GlorotUniform(seed=units),
            )
            for units in (5, 3)
        )
        between = [] if normalization is None else [normalization()]
        return self.keras.Sequential([self.keras.Input((8,)), first, *between, last])

    def share_out(self, batch_size):
        """Return the last global batch of that size, as the replicas get it."""
        last = 64 if batch_size == GLOBAL_BATCH else 66
        rows = self.tf.data.Dataset.from_tensor_slices((self.x[:last], self.y[:last]))
        return list(self.strategy.experimental_distribute_dataset(rows.batch(batch_size)))[-1]

    def gradient(self, rows=slice(0, 64), normalization=None):
        model = self.make_model(normalization)
        with self.tf.GradientTape() as tape:
            loss = self.tf.reduce_mean(
                self.per_example(self.y[rows], model(self.x[rows], training=True))
            )
        return flatten(tape.gradient(loss, model.trainable_variables))

    def build(self, optimizer_options=None, normalization=None):
        with self.strategy.scope():
            model = self.make_model(normalization)
            optimizer = self.keras.optimizers.SGD(1.0, **(optimizer_options or {}))
            optimizer.build(model.trainable_variables)
        return model, optimizer

    def apply(self, loss, batch_size=GLOBAL_BATCH, change=list, **options):
        """Return weights before - after one step on every replica, and the model."""
        model, optimizer = self.build(**options)
        before = flatten(model.trainable_variables)

        def step(x, y):
            with self.tf.GradientTape() as tape:
                value = loss(y, model(x, training=True))
            gradients = change(tape.gradient(value, model.trainable_variables))
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))

        self.strategy.run(step, args=self.share_out(batch_size))
        return before - flatten(model.trainable_variables), model

    def average(self, size=None):
        return lambda y, z: self.tf.nn.compute_average_loss(
            self.per_example(y, z), global_batch_size=size
        )

    def mean(self, y, z):
        return self.tf.reduce_mean(self.per_example(y, z))


@pytest.fixture(scope="module")
def bench(tf):
    return Bench(tf)


def flatten(arrays):
    return np.concatenate([np.ravel(a.numpy()) for a in arrays])


def fit_ratio(update, gradient):
    ratio = update @ gradient / (gradient @ gradient)
    return ratio, np.linalg.norm(update - ratio * gradient) / np.linalg.norm(gradient)


def check(update, gradient, expected):
    ratio, residual = fit_ratio(update, gradient)
    assert ratio == pytest.approx(expected, rel=1e-9)
    assert residual < 1e-9 * max(1, expected)


@pytest.mark.parametrize(
    ("way", "expected"),
    [("mean", 4), ("object", 1), ("object / replicas", 0.25), ("average", 1), ("none", 64)],
)
def test_full_batch(bench, way, expected):
    keras_loss = bench.make_loss()
    ways = {
        "mean": bench.mean,
        "object": keras_loss,
        "object / replicas": lambda y, z: keras_loss(y, z) / REPLICAS,
        "average": bench.average(GLOBAL_BATCH),
        "none": bench.per_example,
    }
    check(bench.apply(ways[way])[0], bench.gradient(), expected)


@pytest.mark.parametrize(
    ("way", "expected"), [("mean", 2), ("object", 0.5), (None, 0.5), (32, 1 / 16), (2, 1)]
)
def test_last_batch_of_two_on_four_replicas(bench, way, expected):
    shares = bench.strategy.experimental_local_results(bench.share_out(32)[1])
    assert [len(share) for share in shares] == [1, 1, 0, 0]
    named = {"mean": bench.mean, "object": bench.make_loss()}
    loss = named[way] if way in named else bench.average(way)
    check(bench.apply(loss, batch_size=32)[0], bench.gradient(slice(64, 66)), expected)


@pytest.mark.parametrize(
    ("reduction", "expected"), [("none", 64), ("sum", 64), ("sum_over_batch_size", 1)]
)
def test_fit(bench, reduction, expected):
    model, optimizer = bench.build()
    before = flatten(model.trainable_variables)
    with bench.strategy.scope():
        model.compile(optimizer, loss=bench.make_loss(reduction), run_eagerly=True)  # faster
    rows = bench.tf.data.Dataset.from_tensor_slices((bench.x[:64], bench.y[:64]))
    model.fit(rows.batch(GLOBAL_BATCH), verbose=0, shuffle=False)
    check(before - flatten(model.trainable_variables), bench.gradient(), expected)


def test_sample_weights_are_divided_by_the_batch_not_by_their_sum(bench):
    losses, weights = np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 2.0, 2.0, 5.0])
    average = bench.tf.nn.compute_average_loss(losses, weights, 4)
    assert float(average) == pytest.approx((losses @ weights) / 4)


@pytest.mark.parametrize(("scaled", "expected"), [(False, 4), (True, 1)])
def test_penalty_counts_once_for_each_replica_unless_scaled(bench, scaled, expected):
    tf, weight = bench.tf, 0.1
    with bench.strategy.scope():
        variable = tf.Variable(np.arange(1.0, 4.0))
        optimizer = bench.keras.optimizers.SGD(1.0)
        optimizer.build([variable])

    def step():
        with tf.GradientTape() as tape:
            penalty = weight * tf.nn.l2_loss(variable)
            penalty = tf.nn.scale_regularization_loss(penalty) if scaled else penalty
        optimizer.apply_gradients([(tape.gradient(penalty, variable), variable)])

    bench.strategy.run(step)
    check(np.arange(1.0, 4.0) - variable.numpy(), weight * np.arange(1.0, 4.0), expected)


def test_per_pixel_losses_are_summed_over_their_pixels(bench):
    pixels = np.ones((16, 7, 5))
    assert float(bench.tf.nn.compute_average_loss(pixels, global_batch_size=16)) == 35


def test_keras_clips_before_the_reduction(bench):
    gradient = bench.gradient()
    limit = np.linalg.norm(gradient) / 50  # shorter than every replica's share
    options = {"optimizer_options": {"global_clipnorm": limit}}
    update, _ = bench.apply(bench.average(GLOBAL_BATCH), **options)
    assert 2 < np.linalg.norm(update) / limit <= REPLICAS


@pytest.mark.parametrize(("way", "expected"), [("clip the sum, apply", 4), ("one factor", 1)])
def test_clipping_after_the_reduction(bench, way, expected):
    tf, gradient = bench.tf, bench.gradient()
    limit = np.linalg.norm(gradient) / 50

    def change(gradients):
        total = tf.distribute.get_replica_context().all_reduce("SUM", gradients)
        if way == "clip the sum, apply":
            return tf.clip_by_global_norm(total, limit)[0]
        return [g * tf.minimum(1.0, limit / tf.linalg.global_norm(total)) for g in gradients]

    update, _ = bench.apply(bench.average(GLOBAL_BATCH), change=change)
    check(update, gradient / 50, expected)


@pytest.mark.parametrize("synchronized", [False, True])
def test_batch_normalization(bench, synchronized):
    """Alone it normalizes, and keeps moving statistics, for each replica by itself."""

    def normalize():
        return bench.keras.layers.BatchNormalization(synchronized=synchronized, dtype="float64")

    gradient = bench.gradient(normalization=normalize)
    update, model = bench.apply(bench.average(GLOBAL_BATCH), normalization=normalize)
    ratio, residual = fit_ratio(update, gradient)
    assert (abs(ratio - 1) < 1e-9 and residual < 1e-9) == synchronized
    moving_mean = model.layers[1].moving_mean.value
    copies = [c.numpy() for c in bench.strategy.experimental_local_results(moving_mean)]
    assert np.allclose(copies, copies[0], rtol=0, atol=1e-9) == synchronized
    assert np.array_equal(model.get_weights()[4], copies[0])


@pytest.mark.parametrize("synchronized", [False, True])
def test_an_empty_replica_spoils_batch_normalization_unless_synchronized(bench, synchronized):
    def normalize():
        return bench.keras.layers.BatchNormalization(synchronized=synchronized, dtype="float64")

    update, _ = bench.apply(bench.average(2), batch_size=32, normalization=normalize)
    assert np.isnan(update).any() != synchronized


def test_what_is_gone_from_keras(bench):
    with pytest.raises(ValueError, match="Invalid value for argument `reduction`"):
        bench.make_loss("auto")
    for name in ("skip_gradients_aggregation", "experimental_aggregate_gradients"):
        with pytest.raises(TypeError, match=name):
            bench.keras.optimizers.SGD().apply_gradients([], **{name: True})


def test_keras_two_refuses_its_default_loss_in_a_custom_loop(bench):
    import tf_keras

    loss = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    with pytest.raises(ValueError, match="Reduction.SUM"):
        bench.apply(loss)


def test_adam_nearly_hides_the_scale(bench):
    """Its step divides by the size of the gradients, so a factor of 4 all but cancels."""
    steps = []
    for factor in (1, 4):
        with bench.strategy.scope():
            model = bench.make_model()
            optimizer = bench.keras.optimizers.Adam(1e-3)
            optimizer.build(model.trainable_variables)
        before = flatten(model.trainable_variables)

        def step(x, y, model=model, optimizer=optimizer, factor=factor):
            with bench.tf.GradientTape() as tape:
                loss = factor * bench.average(GLOBAL_BATCH)(y, model(x))
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))

        bench.strategy.run(step, args=bench.share_out(GLOBAL_BATCH))
        steps.append(before - flatten(model.trainable_variables))
    assert np.linalg.norm(steps[1]) / np.linalg.norm(steps[0]) == pytest.approx(1, abs=0.02)
