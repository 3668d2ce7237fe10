"""What the graph of a training step says before anybody compiles it."""

from collections.abc import Iterator
from typing import Any

from .report import CALLBACK, DATA_SHAPE, DOUBLE, STRING, TpuFinding
from .tracing import Trace, source_of

CALLBACKS = {
    "PyFunc": "tf.numpy_function",
    "PyFuncStateless": "tf.numpy_function",
    "EagerPyFunc": "tf.py_function",
    "PrintV2": "tf.print",
    "Print": "tf.print",
    "StringFormat": "tf.print or tf.strings.format",
}
ENTRANCES = {"Placeholder", "_Arg", "PlaceholderWithDefault"}
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
        elif _makes_unknown_shape(op):
            kind, what = DATA_SHAPE, _say_shape(op)
        elif types & {tf.float64, tf.complex128} and op.type != "Const":
            kind, what = DOUBLE, _say_entrance(op) or op.type
        if kind:
            found[TpuFinding(kind, what, trace.layer_of(op), source_of(op))] = None
    return _keep_first_doubles(list(found))


def _say_entrance(op: Any) -> str:
    return f"input {op.name!r}" if op.type in ENTRANCES else ""


def _makes_unknown_shape(op: Any) -> bool:
    """Say whether all shapes that go into `op` are known, and one that comes out is not."""
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
