"""`examine_model`: the training step traced, read and compiled by XLA; what was found."""

import contextlib
import io
import re
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

from ...checks import check_count
from ...environment import quiet_tensorflow
from ...errors import InputError
from .report import (
    BATCH,
    LOOP,
    NO_COMPILE,
    NO_TRACE,
    RETRACING,
    STRING,
    UNKNOWN_SIZE,
    UNSUPPORTED,
    ReadyReport,
    TpuFinding,
)
from .tracing import (
    CALLBACKS,
    Trace,
    all_ops,
    find_in_graph,
    find_side_effects,
    find_source,
    remember_state,
    source_of,
    trace_step,
)

SIZE_FOR_UNKNOWN = 32


def make_batch(model: Any, batch_size: int) -> tuple[tuple[Any, ...], list[TpuFinding]]:
    """Return (inputs, targets) as tensors, and a finding for each size that isn't known.

    Inputs are `[batch, ...]`, uniform in [0, 1) or zeros for whole numbers. For a size that the
    model leaves open, other than the batch's, it uses 32. Raises InputError for a model whose
    inputs aren't known yet.
    """
    import keras

    specs = _input_specs(model)
    found = [
        TpuFinding(
            UNKNOWN_SIZE,
            f"input {spec.name!r} has shape {_say(spec.shape)}: each size "
            "that comes is compiled again",
        )
        for spec in keras.tree.flatten(specs)
        if None in spec.shape[1:]
    ]
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
            f"Model {model.name!r} doesn't know its inputs yet. Make it from keras.Input, or "
            "call model.build((None, ...)) before you return it."
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


MAX_EXAMPLES = 65536


def examine_function(make_model: Callable[[], Any], batch_size: int = 32) -> ReadyReport:
    """Examine the model that `make_model()` returns, as `examine_model` does.

    Raises InputError, in one line, if it raises or returns something else.
    """
    _check_batch_size(batch_size)
    name = getattr(make_model, "__name__", "the function")
    with quiet_tensorflow():
        import keras
        import tensorflow  # noqa: F401
    try:
        model = make_model()
    except Exception as error:
        said = f"{name} failed: {type(error).__name__}: {_first_line(error)}"
        raise InputError(said) from None
    if not isinstance(model, keras.Model):
        raise InputError(f"{name} must return a keras.Model, got {type(model).__name__}.")
    return examine_model(model, batch_size)


def examine_model(model: Any, batch_size: int = 32) -> ReadyReport:
    """Find what would stop the training step of `model` on a TPU; return a report.

    `batch_size` is for one core. The step is `model.train_step` on a made-up batch, in a
    `tf.function` with `jit_compile=True`, as `fit` compiles it; a model without a loss is compiled
    with SGD and mean squared error. XLA compiles for the CPU: what it refuses, a TPU refuses. The
    graph is also read for what only a TPU refuses. The step is run, so the model's weights change.
    Raises InputError for a batch size below 1 and a model that doesn't know its inputs.

        print(examine_model(build_mlp(), batch_size=8))
    """
    _check_batch_size(batch_size)
    note = _give_loss(model)
    found = _advise_batch(batch_size)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            data, unknown = make_batch(model, batch_size)
            model._symbolic_build(data_batch=data)
        found += unknown
        trace, effects = _trace_twice(model, data)
    except InputError:
        raise
    except Exception as error:
        found.append(_describe_error(error))
        return _report(model, batch_size, found, False, 0, loss_note=note)
    found += effects + find_in_graph(trace)
    ops = sum(1 for _ in all_ops(trace.function.graph))
    seconds, refused = _compile(model, data, trace)
    found += [f for f in refused if not _is_said(f, found)]
    return _report(model, batch_size, found, bool(seconds), ops, *seconds, loss_note=note)


def _report(model: Any, batch_size: int, found: list[TpuFinding], *measured: Any, **note: Any):
    found = sorted(dict.fromkeys(found), key=lambda finding: not finding.is_problem)
    return ReadyReport(model.name, batch_size, tuple(found), *measured, **note)


def _check_batch_size(batch_size: int) -> None:
    check_count("batch", batch_size, 1, MAX_EXAMPLES)


def _advise_batch(batch_size: int) -> list[TpuFinding]:
    if batch_size % 8 == 0:
        return []
    return [TpuFinding(BATCH, f"{batch_size} examples on a core aren't a multiple of 8")]


def _give_loss(model: Any) -> str:
    if getattr(model, "compiled", False):
        return ""
    model.compile("sgd", "mean_squared_error")
    return "with SGD and mean squared error, since the model came without a loss"


def _make_step(model: Any) -> Any:
    import tensorflow as tf

    return tf.function(lambda data: model.train_step(data), jit_compile=True, autograph=False)


def _trace_twice(model: Any, data: Any) -> tuple[Trace, list[TpuFinding]]:
    first = trace_step(_make_step(model), data)
    before = remember_state(model)
    second = trace_step(_make_step(model), data)
    return second, find_side_effects(first, second, before, remember_state(model))


def _compile(model: Any, data: Any, trace: Trace) -> tuple[tuple[float, ...], list[TpuFinding]]:
    """Run the step twice; return (seconds to compile, seconds of a step) and what XLA refused."""
    step, seconds = _make_step(model), []
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            for _ in range(3):
                begun = time.perf_counter()
                result = step(data)
                _ = [float(value) for value in result.values()] if _is_logs(result) else result
                seconds.append(time.perf_counter() - begun)
    except Exception as error:
        return (), _find_refused(error, trace)
    traces = step.experimental_get_tracing_count()
    again = (
        [TpuFinding(RETRACING, f"the same batch was traced {traces} times")] if traces > 1 else []
    )
    return (seconds[0], min(seconds[1:])), again


def _is_logs(result: Any) -> bool:
    return isinstance(result, dict) and all(
        getattr(v, "shape", None) == () for v in result.values()
    )


def _find_refused(error: Exception, trace: Trace) -> list[TpuFinding]:
    """Return the ops that XLA's message names, or the message itself."""
    names = dict.fromkeys(re.findall(r"No registered '(\w+)' OpKernel", str(error))).keys()
    found = []
    for name in names:
        for op in all_ops(trace.function.graph):
            if op.type == name and name not in CALLBACKS:
                found.append(TpuFinding(UNSUPPORTED, name, trace.layer_of(op), source_of(op)))
    if found or names & CALLBACKS.keys():
        return found
    if "fixed tensor list size" in str(error):
        return _find_loops(error, trace)
    lines = re.findall(r'File "([^"]+)", line (\d+)', str(error))
    source = find_source(("/" + path, int(line)) for path, line in lines)
    return [TpuFinding(NO_COMPILE, _first_line(error), source=source)]


def _find_loops(error: Exception, trace: Trace) -> list[TpuFinding]:
    """Return the loops that XLA's message names, or all where it names none."""
    loops = [op for op in all_ops(trace.function.graph) if op.type.endswith("While")]
    named = [op for op in loops if op.name in str(error)] or loops
    what = "its gradient needs a maximum number of rounds"
    return [TpuFinding(LOOP, what, trace.layer_of(op), source_of(op)) for op in named]


def _is_said(finding: TpuFinding, found: list[TpuFinding]) -> bool:
    """Say whether what XLA refuses was found in the graph already, as a string's."""
    strings = [(f.layer, f.source) for f in found if f.kind == STRING]
    if finding.kind == NO_COMPILE:
        return bool(strings)
    return finding.kind == UNSUPPORTED and (finding.layer, finding.source) in strings


def _describe_error(error: Exception) -> TpuFinding:
    """Return a finding for a step that can't be traced, with the user's last line."""
    if "automatically build" in str(error) and error.__context__ is not None:
        error = error.__context__  # Keras wraps what the model raised
    frames = traceback.extract_tb(error.__traceback__)
    source = find_source((frame.filename, frame.lineno) for frame in frames)
    return TpuFinding(NO_TRACE, f"{type(error).__name__}: {_first_line(error)}", source=source)


def _first_line(error: Exception) -> str:
    """Return the first line of what went wrong, without Keras's heading and colors."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    lines = [line.strip() for line in plain.split("\n") if line.strip()]
    if len(lines) > 1 and lines[0].startswith("Exception encountered when calling"):
        lines = lines[1:]
    return (lines or [""])[0][:200]
