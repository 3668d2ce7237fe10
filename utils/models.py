"""Small Keras models for 28 x 28 grey images in ten classes.

Every builder returns an unbuilt-optimizer, uncompiled `keras.Model` that takes
images `[batch, 28, 28, 1]` scaled to [0, 1] and returns logits `[batch, 10]`.
Call it inside `strategy.scope()`. Initial weights depend on `seed` alone, not on
the strategy or on what was built before.
"""

from collections.abc import Callable

import keras

from utils.errors import CourseError

IMAGE_SHAPE = (28, 28, 1)
CLASSES = 10


def build_mlp(seed: int = 0, dtype: str = "float32", hidden_units: int = 128) -> keras.Model:
    """Return a multi-layer perceptron with one hidden layer (101,770 parameters at 128 units)."""
    layer = _seeded(seed, dtype)
    return keras.Sequential(
        [
            keras.Input(IMAGE_SHAPE),
            keras.layers.Flatten(dtype=dtype),
            layer(keras.layers.Dense, hidden_units, activation="relu"),
            layer(keras.layers.Dense, CLASSES, dtype=_output_dtype(dtype)),
        ],
        name="mlp",
    )


def build_cnn(seed: int = 0, dtype: str = "float32") -> keras.Model:
    """Return the network of TensorFlow's custom-training tutorial: two convolutions, two dense.

    121,930 parameters; no layer depends on the other examples of a batch.
    """
    layer = _seeded(seed, dtype)
    return keras.Sequential(
        [
            keras.Input(IMAGE_SHAPE),
            layer(keras.layers.Conv2D, 32, 3, activation="relu"),
            keras.layers.MaxPooling2D(dtype=dtype),
            layer(keras.layers.Conv2D, 64, 3, activation="relu"),
            keras.layers.MaxPooling2D(dtype=dtype),
            keras.layers.Flatten(dtype=dtype),
            layer(keras.layers.Dense, 64, activation="relu"),
            layer(keras.layers.Dense, CLASSES, dtype=_output_dtype(dtype)),
        ],
        name="cnn",
    )


MODELS: dict[str, Callable[..., keras.Model]] = {"mlp": build_mlp, "cnn": build_cnn}


def build_model(name: str, seed: int = 0, dtype: str = "float32") -> keras.Model:
    """Return the model `name` of `MODELS`; raises CourseError for another name.

    `dtype` is a Keras dtype policy: "float32", "float64" or "mixed_bfloat16"
    (bfloat16 arithmetic, float32 variables and logits).
    """
    if name not in MODELS:
        raise CourseError(f"model {name!r}: choose from {', '.join(MODELS)}")
    return MODELS[name](seed=seed, dtype=dtype)


def _seeded(seed: int, dtype: str) -> Callable[..., keras.layers.Layer]:
    """Return a function that makes a layer with a kernel initializer seeded by its position."""
    position = 0

    def make(kind: type[keras.layers.Layer], *arguments: object, **options: object):
        nonlocal position
        position += 1
        start = keras.initializers.GlorotUniform(seed=1000 * seed + position)
        return kind(*arguments, **{"dtype": dtype, "kernel_initializer": start, **options})

    return make


def _output_dtype(dtype: str) -> str:
    return "float32" if dtype.startswith("mixed") else dtype
