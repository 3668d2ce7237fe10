"""How answers of a lab are compared, and what is said of a wrong one.

A `Check` holds the worked numbers of one exercise, which a learner may read. The
judge of the same exercise (`distlab.grading.judging`) draws other numbers and names
the same mistakes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from types import TracebackType
from typing import Any

import numpy as np

from distlab import progress


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


@dataclass(frozen=True)
class Mistake:
    """One misconception: its short name, what is said of it, and what it gives for the examples."""

    name: str
    text: str
    answers: Sequence[Any]


@dataclass(frozen=True)
class Check:
    """The worked numbers of one exercise: what a learner may read.

    `lab` and `exercise` name it ("lab01", "epoch"). `examples` holds the arguments
    of each call of `function`, `right` the answers. `hint` is said of a wrong answer
    that is none of the known `mistakes`. `tolerance` is relative. `calls` says whether
    the examples are the arguments that a learner's function gets, and so are shown.
    """

    lab: str
    exercise: str
    function: str
    examples: tuple[tuple[Any, ...], ...]
    right: Sequence[Any]
    mistakes: tuple[Mistake, ...]
    hint: str
    tolerance: float = 0.01
    calls: bool = True

    def verify(self, got: Sequence[Any]) -> None:
        """Print one line if `got` (an answer for each example) is right, else raise AssertionError.

        Numbers may be ints, floats, NumPy's or tensors, sequences lists, tuples or
        arrays; words may be in any case. The error names the call, the answer given,
        the answer it should give, and the mistake behind it.
        """
        if len(got) != len(self.right):
            raise refuse(f"{len(got)} answers for {len(self.right)} calls")
        k = find_wrong(got, self.right, self.tolerance)
        if k is None:
            print(f"{self.function}: {len(got)} worked examples are right")
            progress.record(self.lab, self.exercise)
            return
        mistake = self.find_mistake(got)
        why = mistake.text if mistake else self.hint
        raise refuse(self.describe(self.examples[k], got[k], self.right[k], why))

    def describe(self, case: Sequence[Any], got: Any, right: Any, why: str) -> str:
        """Return one line: the call, what it gave, what it should give, and why."""
        call = f"({', '.join(show(a) for a in case)})" if self.calls else ""
        if isinstance(got, dict) and isinstance(right, dict) and set(got) == set(right):
            keys = [key for key in right if not same(got[key], right[key], self.tolerance)]
            got, right = ({key: answer[key] for key in keys} for answer in (got, right))
        return f"{self.function}{call} gave {show(got)}, should give {show(right)}: {why}"

    def find_mistake(self, got: Sequence[Any]) -> Mistake | None:
        """Return the known mistake that gives exactly the answers `got`, if one does."""
        for mistake in self.mistakes:
            if find_wrong(got, mistake.answers, self.tolerance) is None:
                return mistake
        return None

    def get_mistake(self, name: str) -> Mistake:
        """Return the mistake called `name`; KeyError if this exercise knows none such."""
        return {mistake.name: mistake for mistake in self.mistakes}[name]


class _Computed(Sequence[Any]):
    """The answers of a function for examples, computed when the first of them is asked for."""

    def __init__(self, function: Callable[..., Any], examples: Sequence[Sequence[Any]]) -> None:
        self._function, self._examples = function, examples

    @cached_property
    def _answers(self) -> tuple[Any, ...]:
        return tuple(self._function(*example) for example in self._examples)

    def __len__(self) -> int:
        return len(self._examples)

    def __getitem__(self, index: Any) -> Any:
        return self._answers[index]


def make_check(
    names: tuple[str, str, str],
    examples: tuple[tuple[Any, ...], ...],
    expect: Callable[..., Any],
    words: Mapping[str, str],
    hint: str,
    tolerance: float = 1e-3,
) -> Check:
    """Return the check of an exercise whose answers can be computed.

    `names` are lab, exercise and function. `expect(*example)` is the right answer,
    `expect(*example, way=name)` what the mistake `name` gives; `words` says what is
    said of each.
    """
    mistakes = tuple(
        Mistake(name, text, _Computed(partial(expect, way=name), examples))
        for name, text in words.items()
    )
    right = _Computed(expect, examples)
    return Check(*names, examples, right, mistakes, hint, tolerance, calls=False)


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
    numbers = _as_numbers(value)
    if numbers is None:
        raise refuse(f"{function} returned {show(value)}: {wanted} is wanted")
    return numbers


def read_number(value: Any, function: str) -> float:
    """Return what `function` returned as a float; AssertionError if it is not one number."""
    numbers = read_array(value, function, "one number")
    if numbers.size != 1:
        raise refuse(f"{function} returned {show(value)}: one number is wanted")
    return float(numbers.reshape(()))


def find_wrong(got: Sequence[Any], right: Sequence[Any], tolerance: float = 0.01) -> int | None:
    """Return the index of the first answer that is wrong, None if all are right."""
    pairs = zip(got, right, strict=True)
    return next((k for k, pair in enumerate(pairs) if not same(*pair, tolerance)), None)


def same(given: Any, wanted: Any, tolerance: float = 0.01) -> bool:
    """Return whether two answers agree: words but for case, numbers within `tolerance`, shapes.

    A dictionary agrees key by key; a list or tuple that is no array of numbers
    (words in it, or parts of different lengths) item by item.
    """
    if wanted is None or isinstance(wanted, str):
        return _same_word(given, wanted)
    if isinstance(wanted, dict):
        return _same_dictionary(given, wanted, tolerance)
    if isinstance(wanted, list | tuple) and _as_numbers(wanted) is None:
        items = _as_items(given)
        return (
            items is not None
            and len(items) == len(wanted)
            and all(same(a, b, tolerance) for a, b in zip(items, wanted, strict=True))
        )
    left, right = _as_numbers(given), _as_numbers(wanted)
    return left is not None and left.shape == right.shape and _close(left, right, tolerance)


def _close(left: np.ndarray, right: np.ndarray, tolerance: float) -> bool:
    scale = float(np.max(np.abs(right), initial=0.0))
    return bool(np.allclose(left, right, rtol=tolerance, atol=1e-9 + 1e-3 * tolerance * scale))


def _same_word(given: Any, wanted: str | None) -> bool:
    if wanted is None:
        return given is None
    return isinstance(given, str) and given.strip().lower() == wanted.lower()


def _same_dictionary(given: Any, wanted: dict[Any, Any], tolerance: float) -> bool:
    return (
        isinstance(given, dict)
        and set(given) == set(wanted)
        and all(same(given[key], wanted[key], tolerance) for key in wanted)
    )


def _as_items(value: Any) -> list[Any] | None:
    if isinstance(value, list | tuple):
        return list(value)
    return list(value) if isinstance(value, np.ndarray) and value.ndim else None


def _as_numbers(value: Any) -> np.ndarray | None:
    if isinstance(value, str | dict) or value is None:
        return None
    try:
        return np.asarray(value, dtype=float)
    except (TypeError, ValueError, RuntimeError):
        return None


def show(value: Any) -> str:
    """Return a short text of an answer: NumPy's numbers and arrays as plain ones."""
    if isinstance(value, str | bool):
        return repr(str(value)) if isinstance(value, str) else str(value)
    if isinstance(value, dict):
        return "{" + _cut(", ".join(f"{show(k)}: {show(v)}" for k, v in value.items())) + "}"
    numbers = _as_numbers(value)
    if numbers is not None:
        return _show_numbers(numbers)
    if isinstance(value, list | tuple) and value:
        return "[" + _cut(", ".join(show(item) for item in value)) + "]"
    try:
        return repr(value)[:80]
    except Exception:  # a learner's own object may not even have a text
        return f"an object of type {type(value).__name__}"


def _cut(text: str, longest: int = 200) -> str:
    return text if len(text) <= longest else text[:longest] + " …"


def _show_numbers(numbers: np.ndarray) -> str:
    if numbers.size > 24:
        first = ", ".join(f"{x:.4g}" for x in numbers.flat[:4])
        return f"an array of shape {list(numbers.shape)} beginning {first}"
    text: Callable[[float], str] = np.vectorize(lambda x: f"{x:.4g}", otypes=[object])
    return str(text(numbers).tolist()).replace("'", "")
