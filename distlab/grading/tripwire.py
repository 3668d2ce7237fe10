"""Compares what an exercise is run with, before and after an answer: a tripwire, no proof.

The functions and classes of the course, of NumPy, TensorFlow and Python's own modules that
the harness uses are remembered before the process of an answer is forked.
"""

import sys
from collections.abc import Iterator, Mapping
from typing import Any

_WATCHED = ("builtins", "copy", "functools", "json", "math", "numpy", "numpy.linalg",
            "numpy.random", "os", "pathlib", "signal", "tempfile", "time", "tensorflow",
            "keras")  # fmt: skip
_OURS = ("distlab.", "utils.")
_CLASSES = ("numpy.random.Generator", "tensorflow.Variable", "tensorflow.Tensor",
            "tensorflow.GradientTape", "tensorflow.data.Dataset", "tensorflow.data.Iterator",
            "tensorflow.distribute.Strategy", "tensorflow.train.Checkpoint", "keras.Model",
            "keras.Variable", "keras.Layer", "keras.Optimizer")  # fmt: skip
_BASES = ("tensorflow.", "keras.Variable")  # of these classes those derived from them, too
_TENSORFLOW, _ASIDE = "tensorflow._api.v2.", (".compat", ".raw_ops", ".keras")
_Thing = tuple[str, Mapping[str, Any], str, Any]  # full name, where it is, its name there, it


class Tripwire:
    """What was there at the beginning; `find_changed` names what is another now."""

    def __init__(self) -> None:
        self._before = [(*thing, _get_code(thing[-1])) for thing in _list_things()]

    def find_changed(self) -> list[str]:
        return [
            name
            for name, place, key, thing, code in self._before
            if place.get(key) is not thing or (code is not None and _get_code(thing) is not code)
        ][:5]


def _get_code(thing: Any) -> Any:
    return getattr(thing, "__code__", None)


def _list_things() -> Iterator[_Thing]:
    """Yield every watched module, and every function and class in one."""
    for name, module in _list_modules():
        yield name, sys.modules, name, module
    for path in _CLASSES:
        parent, _, key = path.rpartition(".")
        if (owner := _find(parent)) is not None:
            yield path, vars(owner), key, vars(owner).get(key)
    for name, owner in {id(owner): (name, owner) for name, owner in _list_owners()}.values():
        place = vars(owner)
        for key, value in list(place.items()):
            watched = callable(value) or isinstance(value, property | classmethod)
            if watched or name.startswith(_OURS) and key.isupper():  # or a number of the course
                yield f"{name}.{key}", place, key, value


def _list_modules() -> list[tuple[str, Any]]:
    return [(name, module) for name, module in list(sys.modules.items())
            if module is not None and (name in _WATCHED or name.startswith(_OURS)
            or name.startswith(_TENSORFLOW) and not any(a in name for a in _ASIDE))]  # fmt: skip


def _list_owners() -> Iterator[tuple[str, Any]]:
    """Yield what holds functions: the watched modules, the course's classes, _CLASSES."""
    for name, module in _list_modules():
        yield name, module
        for key, value in list(vars(module).items()):
            if isinstance(value, type) and getattr(value, "__module__", "").startswith(_OURS):
                yield f"{name}.{key}", value
    for path in _CLASSES:
        if isinstance(found := _find(path), type):
            yield from ((f"{path} ({kind.__name__})", kind) for kind in found.__mro__[:-1])
            if path.startswith(_BASES):
                yield from ((f"{path} ({kind.__name__})", kind) for kind in _list_derived(found))


def _list_derived(base: type) -> Iterator[type]:
    for kind in type.__subclasses__(base):
        yield kind
        yield from _list_derived(kind)


def _find(path: str) -> Any:
    """Return what a full name stands for, None where it is not imported."""
    top, *parts = path.split(".")
    found = sys.modules.get(top)
    for part in parts:
        found = vars(found).get(part) if found is not None else None
    return found
