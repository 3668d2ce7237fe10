"""What is said of an answer that is not right, and how what a function returned is read."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import numpy as np

from distlab.exercises.comparing import as_numbers, show


def refuse(message: str, details: str = "") -> AssertionError:
    """Return the error of an answer that is not right.

    A notebook shows its message and `details`, without this process's traceback.
    """
    error = AssertionError(message)
    shown = f"Not right yet. {message}" + (f"\n\n{details}" if details else "")
    error._render_traceback_ = lambda: shown.split("\n")  # IPython asks for it
    return error


def refuse_task(error: Any) -> AssertionError:
    """Return the error of an answer that failed in another process, with that one's traceback.

    `error` is the `utils.cluster.failures.ClusterError`.
    """
    return refuse(str(error).removesuffix("; its traceback is in error.details"), error.details)


@contextmanager
def own_frames() -> Iterator[None]:
    """Take the frames of installed packages out of the traceback of an error within.

    Between a learner's line and the cell lie dozens of TensorFlow's frames otherwise.
    """
    try:
        yield
    except Exception as error:
        raise error.with_traceback(_drop_packages(error.__traceback__)) from None


def _drop_packages(trace: TracebackType | None) -> TracebackType | None:
    if trace is None:
        return None
    after = _drop_packages(trace.tb_next)
    if "site-packages" in trace.tb_frame.f_code.co_filename:
        return after
    return TracebackType(after, trace.tb_frame, trace.tb_lasti, trace.tb_lineno)


def require_value(value: Any, function: str, wanted: str) -> Any:
    """Return what `function` returned; AssertionError that says what is wanted if it is None."""
    if value is None:
        raise refuse(
            f"{function} returned None: {wanted} is wanted. Does every way through it return?"
        )
    return value


def read_array(value: Any, function: str, wanted: str = "an array of numbers") -> np.ndarray:
    """Return what `function` returned as an array; AssertionError if it is no array of numbers."""
    require_value(value, function, wanted)
    numbers = as_numbers(value)
    if numbers is None:
        raise refuse(f"{function} returned {show(value)}: {wanted} is wanted")
    return numbers


def read_number(value: Any, function: str) -> float:
    """Return what `function` returned as a float; AssertionError if it is not one number."""
    numbers = read_array(value, function, "one number")
    if numbers.size != 1:
        raise refuse(f"{function} returned {show(value)}: one number is wanted")
    return float(numbers.reshape(()))
