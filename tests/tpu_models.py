"""Models with one violation each: what `distlab tpu-ready` is tried on."""

import random

import keras
import tensorflow as tf

calls = []


class Identity(keras.layers.Layer):
    """Returns what `change(x)` returns, in the shape that came in."""

    def compute_output_shape(self, shape):
        return shape


class ThroughNumpy(Identity):
    def call(self, x):
        y = tf.numpy_function(lambda v: v * 2, [x], tf.float32)
        return tf.ensure_shape(y, x.shape)


class ThroughPython(Identity):
    def call(self, x):
        y = tf.py_function(lambda v: v * 2, [x], tf.float32)
        return tf.ensure_shape(y, x.shape)


class Prints(Identity):
    def call(self, x):
        tf.print("first", x[0, 0], output_stream="file:///dev/null")
        return x


class Masks(Identity):
    def call(self, x):
        bright = tf.boolean_mask(x, x > 0.5)
        return x - tf.reduce_mean(bright)


class Uniques(Identity):
    def call(self, x):
        values, _ = tf.unique(tf.reshape(x, [-1]))
        return x * tf.cast(tf.size(values), x.dtype)


class Histogram(Identity):
    def call(self, x):
        counts = tf.histogram_fixed_width(x, [0.0, 1.0], 4)
        return x + tf.cast(counts[0], x.dtype)


class Strings(Identity):
    def call(self, x):
        return x + tf.strings.to_number(tf.strings.as_string(x))


class Doubles(Identity):
    def call(self, x):
        return tf.cast(tf.cast(x, tf.float64) * 2, tf.float32)


class RandomShift(Identity):
    def call(self, x):
        return x + random.random()


class Counts(Identity):
    def __init__(self):
        super().__init__()
        self.times = 0

    def call(self, x):
        self.times += 1
        calls.append(1)
        print("called")
        return x


class Branches(Identity):
    def call(self, x):
        if tf.reduce_mean(x) > 0.5:
            return x
        return x * 2


class Loops(Identity):
    def build(self, shape):
        self.scale = self.add_weight(shape=(), initializer="ones")

    def call(self, x):
        def unfinished(x):
            return tf.reduce_max(tf.abs(x)) > 0.1

        return tf.while_loop(unfinished, lambda x: (tf.tanh(x * self.scale) * 0.5,), (x,))[0]


def make_with(*layers, shape=(6,)):
    model = keras.Sequential([keras.Input(shape), *layers, keras.layers.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"])
    return model


def make_plain():
    return make_with(keras.layers.Dense(8, activation="relu"), keras.layers.Dropout(0.2))


def make_two_ends():
    """Two inputs, two outputs, a sparse and a dense loss, and no violation."""
    left, right = keras.Input((4,), name="left"), keras.Input((3,), dtype="int32", name="right")
    right_part = keras.layers.Flatten()(keras.layers.Embedding(10, 4)(right))
    both = keras.layers.Concatenate()([left, right_part])
    ends = [keras.layers.Dense(5, name="kind")(both), keras.layers.Dense(1, name="size")(both)]
    model = keras.Model([left, right], ends)
    sparse = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", [sparse, "mean_squared_error"])
    return model


def make_unknown_length():
    words = keras.Input((None, 4), name="words")
    return keras.Model(words, keras.layers.Dense(2)(keras.layers.GlobalAveragePooling1D()(words)))


def make_string_input():
    words = keras.Input((2,), dtype="string", name="words")
    numbers = keras.layers.Lambda(tf.strings.to_number, output_shape=(2,), name="parse")(words)
    return keras.Model(words, keras.layers.Dense(1)(numbers))


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(3)

    def build(self, shape):
        self.dense.build(shape)
        self.built = True

    def call(self, x):
        return self.dense(x)


def make_subclassed():
    model = Subclassed()
    model.build((None, 6))
    return model


def make_unbuilt():
    return Subclassed()


class OwnStep(keras.Model):
    """A training step of its own, which asks Python for the loss."""

    def train_step(self, data):
        return {"loss": float(self.compute_loss(data[0], data[1], self(data[0])).numpy())}


def make_own_step():
    x = keras.Input((4,))
    model = OwnStep(x, keras.layers.Dense(1)(x))
    model.compile("sgd", "mse")
    return model


def make_nothing():
    return 3


def make_error():
    raise RuntimeError("no such file")


def make_named(name):
    """Return the function that makes a model with the layer class `name`."""
    return lambda: make_with(globals()[name]())


for each in ("ThroughNumpy", "Histogram", "Doubles"):  # for the command, which takes names
    globals()[f"make_{each.lower()}"] = make_named(each)
