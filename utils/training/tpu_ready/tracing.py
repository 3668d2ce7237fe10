"""A training step traced twice, what Python did meanwhile, and what its graph says.

What Python computes while a function is traced becomes a constant of the graph. So
a constant that differs from one trace to the next came from Python's own state:
random numbers, the clock, a counter. Attributes and module variables that change
while a step is traced are side effects, which the compiled step never has.
"""

import contextlib
import io
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .report import CALLBACK, DATA_SHAPE, DOUBLE, SIDE_EFFECT, STRING, TpuFinding

LIBRARIES = ("tensorflow", "keras", "tf_keras", "numpy", "ml_dtypes")
SIMPLE = (int, float, str, bool, tuple)


@dataclass
class Trace:
    """A traced step: its function, the ops of each layer, and the prints with their places."""

    function: Any = None
    made_by: dict[tuple[int, int], str] = field(default_factory=dict)  # (graph, op) -> layer
    printed: list[str] = field(default_factory=list)  # sources

    def layer_of(self, op: Any) -> str:
        return self.made_by.get((id(op.graph), id(op)), "")


def trace_step(step: Callable[[Any], Any], data: Any) -> Trace:
    """Trace `step(data)` and return the trace. Exceptions of the step pass through."""
    trace = Trace()
    with _layers_noted(trace), contextlib.redirect_stdout(_PrintCatcher(trace.printed)):
        trace.function = step.get_concrete_function(data)
    return trace


@contextlib.contextmanager
def _layers_noted(trace: Trace) -> Iterator[None]:
    """Note for each op the innermost layer whose call made it."""
    import keras
    import tensorflow as tf

    call = keras.layers.Layer.__call__

    def noting(layer: Any, *arguments: Any, **options: Any) -> Any:
        graph = tf.compat.v1.get_default_graph()
        before = len(graph.get_operations())
        try:
            return call(layer, *arguments, **options)
        finally:
            for op in graph.get_operations()[before:]:
                trace.made_by.setdefault((id(graph), id(op)), layer.name)

    keras.layers.Layer.__call__ = noting
    try:
        yield
    finally:
        keras.layers.Layer.__call__ = call


class _PrintCatcher(io.TextIOBase):
    """Stands for standard output: keeps the source line of each print, and says nothing."""

    def __init__(self, sources: list[str]) -> None:
        self._sources = sources

    def write(self, text: str) -> int:
        frame, places = sys._getframe(1), []
        while frame is not None:
            places.append((frame.f_code.co_filename, frame.f_lineno))
            frame = frame.f_back
        source = find_source(reversed(places))
        if source and source not in self._sources:
            self._sources.append(source)
        return len(text)


def find_source(places: Any) -> str:
    """Return "file.py:line" of the innermost of `places` (file, line) in the user's own code.

    The file of a notebook's cell is "cell". It counts no lines outside this package's call, nor
    TensorFlow's and Keras's.
    """
    places, here = list(places), str(Path(__file__).parent)
    last = max((i for i, place in enumerate(places) if place[0].startswith(here)), default=-1)
    own = [place for place in places[last + 1 :] if not _is_library(place[0])]
    if not own:
        return ""
    path, line = own[-1]
    return f"{'cell' if 'ipykernel_' in path else Path(path).name}:{line}"


def _is_library(path: str) -> bool:
    parts = Path(path).parts
    if "site-packages" in parts:
        following = parts[parts.index("site-packages") + 1 :]
        return bool(following) and following[0] in LIBRARIES
    return path.startswith("<") or Path(path).parent.name == f"python3.{sys.version_info.minor}"


def source_of(op: Any) -> str:
    """Return where the user's code made `op`, "" where no line of theirs is on the way."""
    return find_source((frame.filename, frame.lineno) for frame in op.traceback or ())


def remember_state(model: Any) -> dict[tuple[str, str], str]:
    """Return what the model's own classes and their modules hold, as (owner, name) -> value.

    Only classes that aren't Keras's own, and plain values: numbers, words, the
    lengths of lists, sets and dictionaries.
    """
    import keras

    usual = set(vars(keras.layers.Layer())) | set(vars(keras.Model()))
    state = {}
    for layer in model._flatten_layers():
        module = type(layer).__module__
        if module.split(".")[0] in LIBRARIES:
            continue
        names = {n: v for n, v in vars(layer).items() if n not in usual}
        state |= {(layer.name, n): says for n, v in names.items() if (says := _say_state(v))}
        for n, v in vars(sys.modules[module]).items():
            if not n.startswith("__") and (says := _say_state(v)):
                state[f"module {module}", n] = says
    return state


def _say_state(value: Any) -> str:
    if isinstance(value, SIMPLE):
        return repr(value)[:200]
    return f"{len(value)} items" if isinstance(value, list | dict | set) else ""


def find_side_effects(
    first: Trace, second: Trace, before: dict[Any, str], after: dict[Any, str]
) -> list[TpuFinding]:
    """Return what Python did in the second trace that the compiled step will not do."""
    found = [TpuFinding(SIDE_EFFECT, "print", source=source) for source in second.printed]
    for owner, name in sorted(k for k in after if before.get(k) != after[k]):
        layer = "" if owner.startswith("module ") else owner
        place = f"variable {name!r} of {owner}" if not layer else f"attribute {name!r}"
        change = f"{before.get((owner, name), 'nothing')} to {after[owner, name]}"
        found.append(TpuFinding(SIDE_EFFECT, f"{place} went from {change}", layer))
    pairs = zip(_constants(first), _constants(second), strict=False)
    for old, new in pairs:
        if old.get_attr("value") != new.get_attr("value"):
            what = f"a number from Python is frozen into the step (constant {new.name!r})"
            found.append(TpuFinding(SIDE_EFFECT, what, second.layer_of(new), source_of(new)))
    return found


def _constants(trace: Trace) -> list[Any]:
    return [op for op in trace.function.graph.get_operations() if op.type == "Const"]


CALLBACKS = {
    "PyFunc": "tf.numpy_function",
    "PyFuncStateless": "tf.numpy_function",
    "EagerPyFunc": "tf.py_function",
    "PrintV2": "tf.print",
    "Print": "tf.print",
    "StringFormat": "tf.print or tf.strings.format",
}
ENTRANCES = {"Placeholder", "_Arg", "PlaceholderWithDefault"}
COMPILE_TIME = {"BroadcastGradientArgs"}  # of shapes alone: XLA computes it as it compiles
DATA_SHAPED = {
    "Where": "tf.where with one argument, or tf.boolean_mask",
    "UniqueV2": "tf.unique",
    "Unique": "tf.unique",
    "UniqueWithCounts": "tf.unique_with_counts",
    "TensorListStack": "what a loop of unknown length gathers",
    "StridedSlice": "a slice to a computed end",
    "Range": "tf.range to a computed end",
    "Fill": "a tensor of a computed size",
    "Reshape": "tf.reshape to a computed shape",
}


def all_ops(graph: Any) -> Iterator[Any]:
    """Yield the ops of `graph` and of every function that its ops call, each once."""
    seen, waiting = set(), [graph]
    while waiting:
        here = waiting.pop()
        if id(here) in seen:
            continue
        seen.add(id(here))
        for op in here.get_operations():
            yield op
            waiting += _called_graphs(op)


def _called_graphs(op: Any) -> list[Any]:
    names = [a.func.name for a in op.node_def.attr.values() if a.HasField("func")]
    functions = [op.graph._functions.get(name) for name in names]
    return [f.graph for f in functions if getattr(f, "graph", None) is not None]


def find_in_graph(trace: Trace) -> list[TpuFinding]:
    """Return host callbacks, strings, shapes that depend on data, and float64, each once."""
    import tensorflow as tf

    found: dict[TpuFinding, None] = {}
    for op in all_ops(trace.function.graph):
        types = {tensor.dtype for tensor in (*op.inputs, *op.outputs)}
        kind, what = "", ""
        if op.type in CALLBACKS:
            kind, what = CALLBACK, f"{op.type} ({CALLBACKS[op.type]})"
        elif tf.string in types and op.type != "Const":
            kind, what = STRING, _say_entrance(op) or op.type
        elif op.type not in COMPILE_TIME and _makes_unknown_shape(op):
            kind, what = DATA_SHAPE, _say_shape(op)
        elif types & {tf.float64, tf.complex128} and op.type != "Const":
            kind, what = DOUBLE, _say_entrance(op) or op.type
        if kind:
            found[TpuFinding(kind, what, trace.layer_of(op), source_of(op))] = None
    return _keep_first_doubles(list(found))


def _say_entrance(op: Any) -> str:
    return f"input {op.name!r}" if op.type in ENTRANCES else ""


def _makes_unknown_shape(op: Any) -> bool:
    """Say whether all shapes that go into `op` are known, and one that comes out isn't."""
    if op.type in ENTRANCES:
        return False
    into = [t for t in op.inputs if not _is_handle(t)]
    out = [t for t in op.outputs if not _is_handle(t)]
    known = all(tensor.shape.is_fully_defined() for tensor in into)
    return known and not all(tensor.shape.is_fully_defined() for tensor in out)


def _is_handle(tensor: Any) -> bool:
    return tensor.dtype.name in ("resource", "variant")


def _say_shape(op: Any) -> str:
    shape = next(t.shape for t in op.outputs if not t.shape.is_fully_defined())
    how = f" ({DATA_SHAPED[op.type]})" if op.type in DATA_SHAPED else ""
    return f"{op.type}{how} makes shape {shape}"


def _keep_first_doubles(found: list[TpuFinding]) -> list[TpuFinding]:
    """Return `found` with one float64 finding for each layer and source."""
    kept, places = [], set()
    for finding in found:
        place = (finding.layer, finding.source)
        if finding.kind != DOUBLE or place not in places:
            kept.append(finding)
        if finding.kind == DOUBLE:
            places.add(place)
    return kept
