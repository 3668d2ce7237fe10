"""Models, a batch and the unsplit reference for the tests of `utils.parallel`."""

import numpy as np

DEVICES = ["CPU:0", "CPU:1", "CPU:2", "CPU:3"]


def make_batch(examples: int = 24, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.random((examples, 28, 28, 1)), rng.integers(0, 10, examples)


def build_tower(layers: int = 8, units: int = 16, seed: int = 0):
    """Flatten and dense layers, `layers` in all, in float64."""
    import keras

    options = {"dtype": "float64", "activation": "relu"}
    starts = [keras.initializers.GlorotUniform(seed=100 * seed + i) for i in range(layers)]
    dense = [keras.layers.Dense(units, kernel_initializer=s, **options) for s in starts[2:]]
    return keras.Sequential(
        [
            keras.Input((28, 28, 1), dtype="float64"),
            keras.layers.Flatten(dtype="float64"),
            *dense,
            keras.layers.Dense(10, dtype="float64", kernel_initializer=starts[0]),
        ]
    )


def find_reference(model, images, labels) -> tuple[float, list[np.ndarray]]:
    """Loss and gradients as Keras and one tape give them, with nothing of `utils.parallel`."""
    import keras
    import tensorflow as tf

    loss_object = keras.losses.SparseCategoricalCrossentropy(from_logits=True, dtype="float64")
    with tf.GradientTape() as tape:
        loss = loss_object(labels, model(images, training=True))
    variables = [variable.value for variable in model.trainable_variables]
    return float(loss), [np.array(g) for g in tape.gradient(loss, variables)]


def assert_equal_step(step, model, images, labels, limit: float = 1e-9) -> None:
    loss, gradients = find_reference(model, images, labels)
    assert abs(step.loss - loss) < limit
    assert len(step.gradients) == len(gradients)
    for ours, theirs in zip(step.gradients, gradients, strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=limit)
