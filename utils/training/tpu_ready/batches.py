"""A batch that fits a model: the inputs it asks for and the targets its loss asks for."""

from typing import Any

import numpy as np

from ...errors import InputError
from .report import UNKNOWN_SIZE, TpuFinding

SIZE_FOR_UNKNOWN = 32


def make_batch(model: Any, batch_size: int) -> tuple[tuple[Any, ...], list[TpuFinding]]:
    """Return (inputs, targets) as tensors, and a finding for each size that is not known.

    Inputs are `[batch, ...]`, uniform in [0, 1) or zeros for whole numbers; a size
    that the model leaves open, other than the batch's, is taken as 32. Raises
    InputError for a model whose inputs are not known yet.
    """
    import keras

    specs = _input_specs(model)
    found = [
        TpuFinding(UNKNOWN_SIZE, f"input {spec.name!r} has shape {_say(spec.shape)}: each size "
                   "that comes is compiled again")
        for spec in keras.tree.flatten(specs) if None in spec.shape[1:]
    ]  # fmt: skip
    inputs = keras.tree.map_structure(lambda spec: _fill(spec, batch_size), specs)
    return (inputs, _targets(model, inputs)), found


def _input_specs(model: Any) -> Any:
    import keras

    if isinstance(model, keras.Sequential) and model.built:
        return model.inputs[0]
    try:
        return model.input
    except (AttributeError, ValueError):
        config = model.get_build_config() if model.built else None
    if not config or "input_shape" not in config:
        raise InputError(
            f"model {model.name!r} does not know its inputs yet: make it from keras.Input, or call "
            "model.build((None, ...)) before you return it"
        )
    shape = (None, *config["input_shape"][1:])
    return keras.KerasTensor(shape, dtype=model.input_dtype, name="input")


def _say(shape: tuple[int | None, ...]) -> str:
    return str(tuple("batch" if i == 0 else n for i, n in enumerate(shape))).replace("'", "")


def _fill(spec: Any, batch_size: int) -> Any:
    import keras
    import tensorflow as tf

    shape = [batch_size, *(n or SIZE_FOR_UNKNOWN for n in spec.shape[1:])]
    dtype = keras.backend.standardize_dtype(spec.dtype)
    if dtype == "string":
        return tf.fill(shape, "1")
    values = np.random.default_rng(0).random(shape) if "float" in dtype else np.zeros(shape)
    return tf.cast(values, dtype)


def _targets(model: Any, inputs: Any) -> Any:
    """Return targets for `model.loss`: class numbers for a sparse one, else what goes out."""
    import keras
    import tensorflow as tf

    outputs = keras.tree.map_structure(tf.convert_to_tensor, model(inputs))
    losses = model.loss
    if isinstance(losses, dict) and isinstance(outputs, dict):
        return {name: _target(losses.get(name), outputs[name]) for name in outputs}
    if isinstance(losses, list | tuple) and isinstance(outputs, list | tuple):
        return [_target(loss, output) for loss, output in zip(losses, outputs)]
    return keras.tree.map_structure(lambda output: _target(losses, output), outputs)


def _target(loss: Any, output: Any) -> Any:
    import tensorflow as tf

    name = loss if isinstance(loss, str) else getattr(loss, "name", getattr(loss, "__name__", ""))
    if "sparse" in str(name).lower():
        return tf.zeros(output.shape[:-1], tf.int32)
    return tf.zeros(output.shape, tf.float32)
