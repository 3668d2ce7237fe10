"""List the pieces of variables, with their servers and bytes.

A variable that was cut is a `ShardedVariable`: a list of variables, a piece on each server. Keras 3
can hold one and read it whole, but neither differentiate it (it has no `handle`) nor save it.
Instead, give the tape, the optimizer and the checkpoint the pieces, which are plain variables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...measure import array_bytes, format_bytes

if TYPE_CHECKING:
    import tensorflow as tf


@dataclass(frozen=True)
class VariablePiece:
    """One piece of a variable, on one parameter server. `rows` counts its first axis."""

    variable: str
    server: int
    rows: int
    payload_bytes: int


def unwrap(variable: Any) -> Any:
    """Return the TensorFlow variable, whole or sharded, inside a Keras variable."""
    return variable.value if hasattr(variable, "path") else variable


def list_weights(model: Any) -> list[Any]:
    """Return the TensorFlow variables of a Keras model, as a checkpoint names them: by place.

    Keras counts up the names of layers within a process, so names differ between
    runs. A variable that was cut is saved whole: a run on another number of servers, or
    a plain model in one process, can read it.
    """
    return [unwrap(variable) for variable in model.variables]


def list_pieces(variables: Iterable[Any]) -> list[tf.Variable]:
    """Return the plain variables that hold `variables`: all pieces of each, in order."""
    pieces: list[tf.Variable] = []
    for variable in map(unwrap, variables):
        pieces += variable.variables if is_sharded(variable) else [variable]
    return pieces


def is_sharded(variable: Any) -> bool:
    """Return whether a TensorFlow variable was cut into pieces."""
    return hasattr(variable, "variables") and not hasattr(variable, "handle")


def describe_pieces(variables: Iterable[Any]) -> list[VariablePiece]:
    """Return a record for each piece of `variables` (Keras's or TensorFlow's)."""
    found = []
    for variable in variables:
        name = getattr(variable, "path", None) or variable.name
        for piece in list_pieces([variable]):
            server = int(re.search(r"/job:ps/.*task:(\d+)", piece.device)[1])
            rows = int(piece.shape[0]) if piece.shape.rank else 1
            found.append(VariablePiece(name, server, rows, array_bytes([piece])))
    return found


def format_pieces(pieces: Sequence[VariablePiece]) -> str:
    """Return the pieces as text: variable, server, rows, bytes, a line each."""
    width = max([8, *(len(piece.variable) for piece in pieces)])
    lines = [f"{'variable':<{width}}  server  {'rows':>9}  {'size':>10}"]
    lines += [
        f"{p.variable:<{width}}  ps {p.server:<4} {p.rows:>9,}  {format_bytes(p.payload_bytes):>10}"
        for p in pieces
    ]
    return "\n".join(lines)


def bytes_by_server(pieces: Iterable[VariablePiece]) -> dict[int, int]:
    """Return how many bytes each server holds: server -> bytes."""
    totals: dict[int, int] = {}
    for piece in pieces:
        totals[piece.server] = totals.get(piece.server, 0) + piece.payload_bytes
    return dict(sorted(totals.items()))


def read_weights(variables: Iterable[Any]) -> list[np.ndarray]:
    """Return the values of `variables`, each in one piece, at the coordinator."""
    values = []
    for variable in map(unwrap, variables):
        pieces = [piece.numpy() for piece in list_pieces([variable])]
        values.append(np.concatenate(pieces) if len(pieces) > 1 else pieces[0])
    return values
