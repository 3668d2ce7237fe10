"""Compares what an exercise is run with, before and after an answer: a tripwire, no proof.

The functions and classes of the course, of NumPy, TensorFlow and Python's own modules that
the harness uses are remembered when the process of an answer begins.
"""

import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy

_WATCHED = ("builtins", "copy", "functools", "json", "math", "numpy", "numpy.linalg",
            "numpy.random", "os", "pathlib", "signal", "tempfile", "time", "tensorflow",
            "keras")  # fmt: skip
_OURS = ("distlab.", "utils.")
_KINDS = (types.FunctionType, types.BuiltinFunctionType, type, types.MethodType, property,
          staticmethod, classmethod, type(numpy.sum), numpy.ufunc)  # fmt: skip
_CLASSES = ("numpy.random.Generator", "tensorflow.Variable", "tensorflow.GradientTape",
            "tensorflow.data.Dataset", "tensorflow.distribute.Strategy",
            "tensorflow.distribute.MirroredStrategy", "tensorflow.train.Checkpoint")  # fmt: skip


class Tripwire:
    """What was there at the beginning; `find_changed` names what is another now."""

    def __init__(self) -> None:
        self._before = {name: (thing, _get_code(thing)) for name, thing in _list_watched()}

    def find_changed(self) -> list[str]:
        now = dict(_list_watched())
        return [
            name
            for name, (thing, code) in self._before.items()
            if now.get(name) is not thing or _get_code(thing) is not code
        ][:5]


def _get_code(thing: Any) -> Any:
    return getattr(thing, "__code__", None)


def _list_watched() -> Iterator[tuple[str, Any]]:
    for name, module in list(sys.modules.items()):
        if module is not None and (name in _WATCHED or name.startswith(_OURS)):
            yield from _list_functions(name, module)
    for path in _CLASSES:
        owner: Any = sys.modules.get(path.split(".")[0])
        for part in path.split(".")[1:]:
            owner = vars(owner).get(part) if owner is not None else None
        if isinstance(owner, type):
            yield from _list_functions(path, owner)


def _list_functions(name: str, owner: Any) -> Iterator[tuple[str, Any]]:
    for key, value in list(vars(owner).items()):
        if isinstance(value, _KINDS):
            yield f"{name}.{key}", value
            if isinstance(value, type) and getattr(value, "__module__", "").startswith(_OURS):
                yield from ((f"{name}.{key}.{n}", v) for n, v in list(vars(value).items())
                            if isinstance(v, _KINDS))  # fmt: skip
