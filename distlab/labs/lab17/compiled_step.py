"""A small Transformer under given layouts, compiled: the bytes that a device holds and sends.

Keras runs on TensorFlow where the labs are judged, so JAX has its own process: this module,
started once. It answers lines of JSON, keeps what it has compiled, and ends with its standard
input. Forks of the process that started it may ask too, one after the other.
"""

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from distlab.errors import CourseError
from distlab.keras_backend import require_jax
from utils.processes.lifetime import die_with_parent

DEVICES = 8
MAX_SECONDS = 15  # of a processor for a request: a learner's pattern could take years
QUICK = {"xla_cpu_use_fusion_emitters": False}  # the collectives are the same, in a quarter of it
Sizes = Mapping[str, int]
Layouts = Mapping[str, Sequence[str | None]]


@dataclass(frozen=True)
class CompiledStep:
    """A step under given layouts; `error` has Keras's or JAX's message if there is none.

    `shards` has the shape of each variable's part on a device, `cut` the axes of each that isn't
    whole there, `stray` the keys that no variable uses; `held_bytes` is weights and momentum, and
    `collectives` has each collective's name, the bytes that a device sends, and its devices.
    """

    shards: Mapping[str, list[int]]
    cut: Mapping[str, list[int]]
    stray: Sequence[str] = ()
    held_bytes: int = 0
    collectives: Sequence[tuple[str, int, int]] = ()
    error: str = ""

    @property
    def sent_bytes(self) -> int:
        """The bytes that a device sends in a step, if all collectives work as rings."""
        return sum(sent for _, sent, _ in self.collectives)


def compile_step(sizes: Sizes, mesh: Mapping[str, int], layouts: Layouts) -> CompiledStep:
    """Return the compiled step of a model of these `sizes` on a mesh {"batch": …, "model": …}.

    Raises CourseError if JAX isn't installed or can't start.
    """
    asked = {"id": uuid.uuid4().hex, "sizes": dict(sizes), "mesh": dict(mesh)}
    asked["seconds"] = MAX_SECONDS
    asked["layouts"] = {key: list(axes) for key, axes in layouts.items()}
    for _ in range(2):  # again, if it had been ended
        process = start()
        try:
            process.stdin.write(json.dumps(asked) + "\n")
            process.stdin.flush()
            for line in process.stdout:
                answer = json.loads(line)
                if answer.pop("id") == asked["id"]:  # another may belong to an ended fork
                    return CompiledStep(**answer)
        except OSError:
            pass
        start.cache_clear()
    raise CourseError("The process that compiles the layouts has ended. Run the cell again.")


@cache
def start() -> Any:
    """Start the process with JAX, once; return it. It gets ready while this one continues."""
    require_jax("This lab")
    settings = {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
    left_out = ("XLA_FLAGS", "JAX_", "KERAS_DISTRIBUTION_")
    own = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    return subprocess.Popen(
        [sys.executable, "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**own, **settings},
        cwd=Path(__file__).resolve().parents[3],
        start_new_session=True,
    )


def main() -> None:
    """Answer the requests on standard input, one a line."""
    die_with_parent()  # it may compute
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # its reader has gone
    signal.signal(signal.SIGPROF, _stop)
    import jax

    jax.config.update("jax_num_cpu_devices", DEVICES)
    # what is compiled never runs
    jax.config.update("jax_disable_most_optimizations", True)
    replies, known = os.dup(1), {}
    os.dup2(2, 1)  # a library's output isn't a reply
    for line in sys.stdin:
        asked = json.loads(line)
        name, seconds = asked.pop("id"), asked.pop("seconds")
        key = json.dumps(asked, sort_keys=True)
        answer = known.get(key) or _answer(seconds, **asked)
        if not answer.get("error", "").startswith("TimeoutError"):
            known[key] = answer
        os.write(replies, json.dumps({"id": name, **answer}).encode() + b"\n")


def _stop(*_: Any) -> None:
    raise TimeoutError(
        "compiling the step took too much of a processor's time. A key that is a pattern with "
        "repeats in repeats can take for ever: use simpler keys, or the paths"
    )


def _answer(
    seconds: float, sizes: Sizes, mesh: Mapping[str, int], layouts: Layouts
) -> dict[str, Any]:
    import keras

    names, shape = ("batch", "model"), (mesh.get("batch", 1), mesh.get("model", 1))
    devices = keras.distribution.list_devices()[: shape[0] * shape[1]]
    layout_map = keras.distribution.LayoutMap(keras.distribution.DeviceMesh(shape, names, devices))
    try:
        signal.setitimer(signal.ITIMER_PROF, seconds, seconds)
        layout_map.update({key: tuple(axes) for key, axes in layouts.items()})
        distribution = keras.distribution.ModelParallel(
            layout_map=layout_map, batch_dim_name="batch"
        )
        keras.distribution.set_distribution(distribution)
        model = build_model(**sizes)
        state = [*model.trainable_variables, *_list_momentum(model)]
        first = {each.path: each.value.addressable_shards[0].data for each in state}
        shards = {each.path: first[each.path].shape for each in model.trainable_variables}
        cut = {each.path: _list_cut_axes(each) for each in model.trainable_variables}
        used = {id(layout_map[each.path]) for each in model.trainable_variables}
        return {
            "shards": shards,
            "cut": {path: axes for path, axes in cut.items() if axes},
            "stray": [key for key in layouts if id(layout_map[key]) not in used],
            "held_bytes": sum(part.nbytes for part in first.values()),
            "collectives": _list_collectives(model, distribution, sizes),
        }
    except Exception as error:
        return {"shards": {}, "cut": {}, "error": f"{type(error).__name__}: {error}"[:400]}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def build_model(
    hidden: int, heads: int, head: int, inner: int, vocabulary: int, texts: int, tokens: int
) -> Any:
    """Return a Transformer of one block, with its optimizer's variables made.

    All kernels are zero, since nobody trains it, and random numbers would be compiled too.
    """
    import keras

    words = keras.Input((tokens,), dtype="int32")
    layers, zeros = keras.layers, {"kernel_initializer": "zeros"}
    x = layers.Embedding(vocabulary, hidden, embeddings_initializer="zeros", name="embedding")(
        words
    )
    attention = layers.MultiHeadAttention(heads, head, use_bias=False, name="attention", **zeros)
    y = layers.LayerNormalization(name="norm1")(x)
    x = x + attention(y, y, use_causal_mask=True)
    y = layers.LayerNormalization(name="norm2")(x)
    y = layers.Dense(inner, activation="relu", name="up", **zeros)(y)
    x = x + layers.Dense(hidden, name="down", **zeros)(y)
    x = layers.Dense(vocabulary, use_bias=False, name="logits", **zeros)(x)
    model = keras.Model(words, x)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss)
    model.optimizer.build(model.trainable_variables)
    return model


def _list_cut_axes(variable: Any) -> list[int]:
    part = variable.value.addressable_shards[0].data.shape
    return [k for k, (n, own) in enumerate(zip(variable.shape, part, strict=True)) if n != own]


def _list_momentum(model: Any) -> list[Any]:
    return [each for each in model.optimizer.variables if each.shape]


def _list_collectives(model: Any, distribution: Any, sizes: Sizes) -> list[Any]:
    """Return the collectives of the step that `fit` compiles."""
    import jax
    import numpy as np

    from distlab.lessons.keras_on_jax import list_collectives

    parts = (model.trainable_variables, model.non_trainable_variables)
    parts += (model.optimizer.variables, model.metrics_variables)
    state = tuple([each.value for each in part] for part in parts)
    words = np.zeros((sizes["texts"], sizes["tokens"]), np.int32)
    batch = jax.device_put(words, distribution.get_data_layout(words.shape).backend_layout)
    as_before = jax.tree.map(lambda array: array.sharding, state)
    step = jax.jit(model.train_step, out_shardings=(None, as_before))
    compiled = step.lower(state, (batch, batch)).compile(QUICK)
    return [(e.name, e.sent_bytes, e.devices) for e in list_collectives(compiled.as_text())]


if __name__ == "__main__":
    main()
