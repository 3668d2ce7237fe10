"""Messages for wrong answers, and reading what a function returned."""

import re
import sys
import sysconfig
import tempfile
import textwrap
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from distlab.exercises.comparing import as_numbers, show

LINE_LETTERS = 96  # JupyterLab breaks longer lines in the middle of a word
_UNWRITTEN = "is not written yet"  # what NotImplementedError says in a lab
_COURSE = Path(__file__).resolve().parents[2]
_OTHERS = (  # whose frames aren't a learner's
    *(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")),
    *(f"{_COURSE / folder}/" for folder in ("distlab", "utils")),
    f"{tempfile.gettempdir()}/__autograph_generated_file",
)
_FRAME = re.compile(r'^  File "([^"\n]+)", line .*\n(?:    .*\n)*', re.MULTILINE)


def refuse(message: str, details: str = "") -> AssertionError:
    """Return the error for a wrong answer.

    A notebook shows its message and `details`, without this process's traceback.
    """
    error = AssertionError(message)
    lines = []
    for line in f"Not right yet. {message}".split("\n"):
        lines += textwrap.wrap(line, LINE_LETTERS, break_long_words=False) or [""]
    lines += ["", *details.split("\n")] if details else []
    error._render_traceback_ = lambda: lines  # IPython asks for it
    return error


def refuse_task(error: Any) -> Exception:
    """Return the error of an answer that failed in another process, with the learner's frames.

    `error` is the `utils.cluster.failures.ClusterError`.
    """
    said = str(error).removesuffix(" Its traceback is in error.details.").removesuffix(".")
    if "was not done after" in said:  # the last line of its log says nothing of the answer
        said = said.partition("; its last line")[0] + (
            ": either it waits for something that never comes (a loop without an end, a worker "
            "that doesn't take part), or this machine is busy: run the check again when it isn't"
        )
    if _is_unwritten(said):
        return _word_unwritten(NotImplementedError(f"this exercise {_UNWRITTEN}"))
    why = explain_words(said)
    details = _FRAME.sub(lambda f: "" if f[1].startswith(_OTHERS) else f[0], error.details)
    return refuse(f"{said}: {why}" if why else said, details)


# what NumPy says of arrays that don't fit together
_UNFIT = (
    r"matmul: Input operand|shapes \(.*not aligned|not result in an equal division|"
    r"could not be broadcast|inhomogeneous shape|cannot reshape array|dimensions except for the "
    r"concatenation axis|all input arrays must have the same shape"
)
# what TensorFlow or NumPy says -> what a learner can do about it
EXPLANATIONS = {
    r"ValueError: Passed in object ": "tape.watch takes tensors and variables, not NumPy "
    "arrays: tf.constant makes a tensor of one",
    r"RemoteValue": "schedule returns a promise of a number, not the number: coordinator.fetch, "
    "after join, gives what the promises hold",
    r"merge_call. called while defining a new graph|merge_call called while": "an all-reduce "
    "(or an optimizer's step) is inside something that only one replica traces: a tf.function that "
    "a replica calls, or an `if` or `while` on a tensor. Put @tf.function around the call of "
    "strategy.run, and keep the all-reduce out of such branches",
    r"AddN.*(same size and shape|!=)|operation AddN": "the replicas hold tensors of different "
    "lengths, which can't be added element by element: make one number (or one sum) of each "
    "first, then reduce",
    r"Shapes of all inputs must match": "tf.stack takes tensors of one length, and these differ: "
    "put each in its place, or join them with tf.concat",
    r"NoneType' object has no attribute '(all_reduce|all_gather|replica_id)": "there is no replica "
    "here: tf.distribute.get_replica_context() is None outside a function that strategy.run calls",
    r"No gradients provided for any variable|None for variable|None values not supported": "no "
    "gradient reached the variables: compute the outputs and the loss inside the tape, from the "
    "model you train",
    r"convert a value \(PerReplica|PerReplica.*(convert|unsupported)|unsupported.*PerReplica|"
    r"PerReplica object while not inside": "a value with one part for each replica was used as one "
    "tensor: strategy.run, reduce, gather or experimental_local_results take it",
    r"expected to be a (double|float) tensor but is a|incompatible with the one expected|"
    r"must have the same type|(float32|float64) but.*(float32|float64)": "float32 and float64 are "
    "mixed: tf.cast brings them to one type",
    r"_distributed_tf_update_step.*AssertionError": "the variables don't belong to this strategy: "
    "make the model and its optimizer in strategy.scope()",
    r"real number, not '(Mirrored|Distributed|Sync)": "a variable with a copy on each replica "
    "isn't a number: float(variable.numpy()) is one",
    r"dtype='?string'? is not a valid dtype": "there are words where numbers belong: the third "
    "argument of model.compile is loss_weights, so give the metrics by name: metrics=['accuracy']",
    r"feed a value for placeholder": "the optimizer makes its variables too late, inside a "
    "compiled step: call optimizer.build(model.trainable_variables) in the scope first",
    _UNFIT: "the shapes of two arrays don't fit together: print both (x.shape) in the line before. "
    "Pieces of an array may differ in size",
    r"Incompatible shapes|must be equal, but are|Dimensions must be equal|Matrix size-incompat": ""
    "the shapes don't fit together: print the shapes of both, on one replica",
    r"not enough values to unpack|too many values to unpack": "a line takes another number of "
    "values apart than there are: print what stands on the right of its =",
    r"'NoneType' object is not (subscriptable|iterable|callable)|unsupported operand.*NoneType": ""
    "None was used as if it were a value. Often a function that you call has no return, or prints "
    "its result instead of returning it",
}


def explain_error(error: BaseException) -> str:
    """Return what an error that TensorFlow raised means for an answer, "" if it isn't known."""
    return explain_words(f"{type(error).__name__}: {error}")


def explain_words(said: str) -> str:
    """Return what an error's words, with its kind, mean for an answer, "" if that isn't known."""
    found = (why for sign, why in EXPLANATIONS.items() if re.search(sign, said, re.DOTALL))
    return next(found, "")


@contextmanager
def own_frames() -> Iterator[None]:
    """Explain an error within; a notebook shows the learner's lines of its traceback only.

    Between a learner's line and the cell lie dozens of TensorFlow's and of the course's frames
    otherwise. An exercise that isn't written yet is one line.
    """
    try:
        yield
    except Exception as error:
        if hasattr(error, "_render_traceback_"):
            raise  # explained already
        if _is_unwritten(repr(error)):
            _word_unwritten(error)
            raise
        if isinstance(error, AssertionError) and not str(error).startswith("in user code"):
            raise  # ours, not one of TensorFlow's
        show_lines = partial(_show_error, error, error.__traceback__)  # without the cell's frame
        if why := explain_error(error):
            line = _find_words(str(error))
            whose = "Python" if re.search(r"NoneType|unpack|float\(\)", line) else "TensorFlow"
            whose = "NumPy" if re.search(_UNFIT, line) else whose
            said = f"{why}. ({whose}'s own words: {line})"
            raise refuse(said, "\n".join(show_lines())) from None
        error._render_traceback_ = show_lines  # type: ignore[attr-defined] # IPython asks for it
        raise


def _find_words(said: str) -> str:
    """Return the line that says what went wrong: the last one after "in user code:"."""
    lines = [line.strip() for line in said.strip().split("\n") if line.strip()] or [""]
    return lines[-1 if lines[0].startswith("in user code") else 0][:160]


def _is_unwritten(said: str) -> bool:
    return "NotImplementedError" in said and _UNWRITTEN in said


def _word_unwritten(error: Exception) -> Exception:
    """Return `error`, which a notebook shows as one line."""
    said = (
        "Not written yet. Put your code in place of the line with raise NotImplementedError, run "
        "that cell, then this one."
    )
    error._render_traceback_ = lambda: [said]  # type: ignore[attr-defined]
    return error


def _show_error(error: Exception, whole: TracebackType | None) -> list[str]:
    """Return the lines of an error as IPython, or else Python, shows it, with the learner's frames.

    All frames stay where none is the learner's.
    """
    trace = _keep_own(whole) or whole
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is not None:
        error.__suppress_context__ = True  # what TensorFlow caught before
        return shell.InteractiveTB.structured_traceback(type(error), error, trace, tb_offset=0)
    return "".join(traceback.format_exception(type(error), error, trace, chain=False)).split("\n")


def _keep_own(trace: TracebackType | None) -> TracebackType | None:
    if trace is None:
        return None
    after = _keep_own(trace.tb_next)
    if trace.tb_frame.f_code.co_filename.startswith(_OTHERS):
        return after
    return TracebackType(after, trace.tb_frame, trace.tb_lasti, trace.tb_lineno)


def require_value(value: Any, function: str, wanted: str) -> Any:
    """Return the function's result; if it is None, AssertionError that names the expected type."""
    if value is None:
        raise refuse(
            f"{function} returned None, not {wanted}. Does every path through it end in return? "
            "print() shows a value on the screen, and doesn't return it"
        )
    return value


def require_kind(value: Any, function: str, wanted: str) -> Any:
    """Return what `function` returned; AssertionError if it isn't a `wanted`.

    `wanted` is a class by its full name, "tf.data.Dataset" or "keras.Model".
    """
    require_value(value, function, f"a {wanted}")
    kind: Any = import_module("tensorflow" if wanted.startswith("tf.") else "keras")
    for part in wanted.split(".")[1:]:
        kind = getattr(kind, part)
    if not isinstance(value, kind):
        raise refuse(f"{function} returned a {type(value).__name__}, not a {wanted}")
    return value


def require_parts(found: Any, function: str, *wanted: str) -> list[Any]:
    """Return the function's result as a list; AssertionError unless it has the `wanted` parts."""
    if not isinstance(found, list | tuple) or len(found) != len(wanted):
        things = f"{('two', 'three', 'four')[len(wanted) - 2]} things"
        parts = f"{', '.join(wanted[:-1])} and {wanted[-1]}"
        got = f"{len(found)}: {show(found)}" if isinstance(found, list | tuple) else show(found)
        raise refuse(f"{function} must return {things}: {parts}, got {got}.")
    return list(found)


def require_list(found: Any, function: str, wanted: str) -> list[Any]:
    """Return a list, tuple, set or array (of words, too) as a list; else AssertionError.

    A generator is refused, too: it can't travel when the answer is graded.
    """
    require_value(found, function, wanted)
    items = list | tuple | set | frozenset
    is_array = isinstance(found, np.ndarray) and found.ndim
    if not (isinstance(found, items) or is_array or np.ndim(as_numbers(found))):
        raise refuse(f"{function} must be {wanted}, got {show(found)}.")
    return list(found)


def read_array(value: Any, function: str, wanted: str = "an array of numbers") -> np.ndarray:
    """Return the function's result as an array; AssertionError if it isn't an array of numbers."""
    require_value(value, function, wanted)
    numbers = as_numbers(value)
    if numbers is None:
        raise refuse(f"{function} returned {show(value)}, not {wanted}")
    return numbers


def read_number(value: Any, function: str) -> float:
    """Return what `function` returned as a float; AssertionError if it isn't one number."""
    numbers = read_array(value, function, "one number")
    if numbers.size != 1:
        raise refuse(f"{function} returned {show(value)}, not one number")
    return float(numbers.reshape(()))
