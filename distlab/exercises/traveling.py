"""Answers that travel: a learner's functions as bytes, which only worker processes unpack.

The process that starts, kills and watches the workers of an exercise has none of the learner's
objects. What it hands to the workers is a `TravelingAnswer`.
"""

import base64
import os
import pickle
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from distlab.exercises.refusing import refuse
from distlab.exercises.worker_runs import get_cluster, run_on

MAX_MIB = 4


def pack_answers(functions: Sequence[Any]) -> str:
    """Return functions as text, with what they need of their notebook.

    Raises AssertionError if they can't be sent.
    """
    import cloudpickle

    try:
        body = cloudpickle.dumps(tuple(functions))
        if len(body) > MAX_MIB * 2**20:
            raise ValueError(f"it needs more than {MAX_MIB} MiB of the notebook's data")
    except Exception as error:
        words = f"can't be sent to another process ({error}). Create what it needs inside it"
        raise refuse(f"The function {words}.") from None
    return base64.b64encode(body).decode("ascii")


class TravelingAnswer:
    """One of the functions that `pack_answers` packed. A worker that calls it unpacks it.

    The process that made it must never unpack it. If that process calls it, the call runs in a
    fresh worker.
    """

    def __init__(self, name: str, packed: str, place: int) -> None:
        self.__name__, self._packed, self._place = name, packed, place
        self._maker = os.getpid()

    def __call__(self, *arguments: Any) -> Any:
        if os.getpid() == self._maker:
            return run_on(get_cluster(1), _call_once, self, arguments)[0]
        return _unpack(self._packed)[self._place](*arguments)


def _call_once(answer: TravelingAnswer, arguments: Sequence[Any]) -> Any:
    """Return the result as plain data: Python's own numbers and words in place of NumPy's."""
    found = answer(*arguments)
    if isinstance(found, os.PathLike):
        found = os.fspath(found)
    elif isinstance(found, np.generic | np.ndarray):
        found = found.tolist()
    return str(found) if isinstance(found, str) else found


@cache
def _unpack(packed: str) -> tuple[Any, ...]:
    """Return the functions, once in a process: they share what they share in their notebook."""
    sys.path.append("")  # last, as in the process of the answer
    return pickle.loads(base64.b64decode(packed))
