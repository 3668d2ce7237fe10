"""Plain data between the sealed process and the judge: JSON, never pickle.

Numbers keep every bit (arrays as typed bytes). Whatever isn't plain
(an object, a function, something too deep or too large) arrives as `Opaque`, which
equals nothing.
"""

import base64
import math
from array import array as typed_array
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

MAX_DEPTH = 12
MAX_BYTES = 4 * 2**20
_KINDS = "biufc"  # NumPy kinds that may travel: bool, int, unsigned, float, complex
_SEQUENCES = (
    (tuple, "tuple"),
    (list, "list"),
    (set, "set"),
    (frozenset, "set"),
    (range, "list"),
    (deque, "list"),
    (typed_array, "list"),
)


@dataclass(frozen=True, eq=False)
class Opaque:
    """Something that wasn't plain data; `what` says what it was."""

    what: str

    def __repr__(self) -> str:
        return f"<{self.what} object>"


class _Full(BaseException):
    """There is no more room: the whole value is given up."""


class _Budget:
    def __init__(self, most: int) -> None:
        self.left = most

    def take(self, size: int) -> bool:
        self.left -= size
        if self.left < -(2**16):  # many small things, not one that is left out
            raise _Full
        return self.left >= 0

    def fits(self, size: int) -> bool:
        """Take `size` if there is room for it."""
        return size <= self.left and self.take(size)


def encode(value: Any, most_bytes: int = MAX_BYTES) -> Any:
    """Return `value` as JSON data: numbers and words as they are, else a list of a tag and content.

    Tensors, variables and array scalars become arrays or numbers. Never raises for
    what a learner's object does when it is looked at.
    """
    try:
        return _encode(value, 0, _Budget(most_bytes))
    except _Full:
        return ["opaque", f"{type(value).__name__[:100]}: too large"]


def _encode(value: Any, depth: int, budget: _Budget) -> Any:
    if depth > MAX_DEPTH or not budget.take(16):
        return ["opaque", "too deep or too large"]
    try:
        return _encode_plain(value, depth, budget)
    except (_Full, KeyboardInterrupt):  # an interrupt is a time limit's
        raise
    except BaseException as error:  # also a SystemExit of the learner's
        return ["opaque", f"{type(value).__name__} ({type(error).__name__})"[:200]]


def _encode_plain(value: Any, depth: int, budget: _Budget) -> Any:
    if value is None or type(value) is bool:
        return value
    if isinstance(value, int):  # also an IntEnum
        value = int.__int__(value)
        return value if value.bit_length() < 4096 else ["opaque", "int too large"]
    if type(value) in (float, Fraction, Decimal):
        return float(value)
    if isinstance(value, str):
        text = str.__str__(value)
        return text if budget.fits(len(text)) else ["opaque", "text too long"]
    if type(value) is Opaque:
        return ["opaque", value.what[:200]]
    if isinstance(value, dict):
        pairs = [
            [_encode(k, depth + 1, budget), _encode(v, depth + 1, budget)]
            for k, v in dict.items(value)
        ]
        return ["dict", pairs]
    for kind, name in _SEQUENCES:
        if isinstance(value, kind):
            return [name, [_encode(item, depth + 1, budget) for item in kind.__iter__(value)]]
    return _encode_array(value, depth, budget)


def _encode_array(value: Any, depth: int, budget: _Budget) -> Any:
    if not isinstance(value, np.ndarray | np.generic):
        if not hasattr(value, "__array__"):
            return ["opaque", type(value).__name__[:200]]
        value = value.numpy() if hasattr(value, "numpy") else value.__array__()
    array = np.asarray(value)
    if array.dtype.name == "bfloat16":
        array = array.astype(np.float32)
    if array.dtype.kind in "SUO":
        return _encode_items(array, depth, budget)
    if array.dtype.kind not in _KINDS:
        return ["opaque", f"array of {array.dtype}"]
    if not budget.fits(array.nbytes):
        return ["opaque", f"array of {array.nbytes} bytes: too large"]
    if _is_hollow(array.shape):
        return ["opaque", f"empty array of shape {list(array.shape)}: too large"]
    little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    body = base64.b64encode(little.tobytes()).decode("ascii")
    return ["array", little.dtype.str, list(array.shape), body]


def _is_hollow(shape: Sequence[int]) -> bool:
    """Return whether an array holds nothing, and a list of its parts wouldn't fit anywhere."""
    return 0 in shape and math.prod(n for n in shape if n) > MAX_BYTES // 64


def _encode_items(array: np.ndarray, depth: int, budget: _Budget) -> Any:
    """Return an array of words, Python's own numbers or arrays that differ in size, as a list."""
    if array.size > MAX_BYTES // 64:
        return ["opaque", f"array of {array.size} items: too large"]
    if array.ndim > 1:
        return _encode(list(array), depth + 1, budget)
    items = [w.decode("utf-8", "replace") if isinstance(w, bytes) else w for w in array.flat]
    return _encode(items if array.ndim else items[0], depth + 1, budget)


def decode(data: Any) -> Any:
    """Return the value of `encode`'s data: builtins, NumPy arrays and `Opaque` only.

    Raises ValueError for data that `encode` can't have written.
    """
    return _decode(data, 0)


def _decode(data: Any, depth: int) -> Any:
    if data is None or isinstance(data, bool | int | float | str):
        return data
    if not isinstance(data, list) or not data or depth > MAX_DEPTH + 1:
        raise ValueError("not encoded data")
    tag, content = data[0], data[1:]
    if tag == "array" and len(content) == 3:
        return _decode_array(*content)
    if len(content) != 1:
        raise ValueError(f"not encoded data: {str(tag)[:40]}")
    (content,) = content
    if tag in ("list", "tuple", "set") and isinstance(content, list):
        items = [_decode(item, depth + 1) for item in content]
        return {"list": list, "tuple": tuple, "set": _make_set}[tag](items)
    if tag == "dict" and isinstance(content, list):
        return _decode_dict(content, depth)
    if tag == "opaque" and isinstance(content, str):
        return Opaque(content[:200])
    raise ValueError(f"not encoded data: {str(tag)[:40]}")


def _make_set(items: list[Any]) -> Any:
    try:
        return set(items)
    except TypeError:
        return Opaque("a set of what can't be in a set")


def _decode_dict(pairs: list[Any], depth: int) -> Mapping[Any, Any]:
    found = {}
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2:
            raise ValueError("not encoded data: dict")
        key = _decode(pair[0], depth + 1)
        try:
            found[key] = _decode(pair[1], depth + 1)
        except TypeError:
            raise ValueError("not encoded data: an unhashable key") from None
    return found


def _decode_array(kind: Any, shape: Any, body: Any) -> np.ndarray:
    try:
        dtype = np.dtype(kind)
        sizes = [int(n) for n in shape]
        raw = base64.b64decode(body, validate=True)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"not an encoded array: {error}") from None
    right = dtype.kind in _KINDS and all(n >= 0 for n in sizes)
    if not right or _is_hollow(sizes) or math.prod(sizes) * dtype.itemsize != len(raw):
        raise ValueError("not an encoded array: its bytes don't fit its shape")
    return np.frombuffer(raw, dtype).reshape(sizes).copy()
