"""How a lab's visible checks compare answers, and what they say about a wrong one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Check:
    """The worked numbers of one exercise: what a learner may read.

    `examples` holds the arguments of each call of `function`, `right` the
    answers, `mistakes` pairs of (what went wrong, the answers that it gives).
    `hint` is said of a wrong answer that is none of the known mistakes.
    """

    function: str
    examples: tuple[tuple[Any, ...], ...]
    right: tuple[Any, ...]
    mistakes: tuple[tuple[str, tuple[Any, ...]], ...]
    hint: str

    def verify(self, got: Sequence[Any]) -> None:
        """Print one line if `got` (an answer for each example) is right, else raise AssertionError.

        Numbers may be ints, floats or NumPy's, sequences lists, tuples or arrays;
        words may be in any case. The error names the call, the answer given, the
        answer it should give, and the mistake behind it.
        """
        if len(got) != len(self.right):
            raise AssertionError(f"{len(got)} answers for {len(self.right)} calls")
        pairs = zip(got, self.right, strict=True)
        wrong = [k for k, (given, right) in enumerate(pairs) if not same(given, right)]
        if not wrong:
            print(f"{self.function}: {len(got)} worked examples are right")
            return
        k = wrong[0]
        call = f"{self.function}({', '.join(show(a) for a in self.examples[k])})"
        given, right = show(got[k]), show(self.right[k])
        raise AssertionError(f"{call} gave {given}, should give {right}: {self._explain(got)}")

    def _explain(self, got: Sequence[Any]) -> str:
        for what, answers in self.mistakes:
            if all(same(given, wrong) for given, wrong in zip(got, answers, strict=True)):
                return what
        return self.hint


def same(given: Any, wanted: Any) -> bool:
    """Return whether two answers agree: words but for case, numbers within 1 %, and in shape."""
    if isinstance(wanted, str):
        return isinstance(given, str) and given.strip().lower() == wanted
    try:
        left, right = np.asarray(given, dtype=float), np.asarray(wanted, dtype=float)
    except (TypeError, ValueError):
        return False
    return left.shape == right.shape and bool(np.allclose(left, right, rtol=0.01, atol=1e-9))


def show(value: Any) -> str:
    """Return a short text of an answer: NumPy's numbers and arrays as plain ones."""
    if isinstance(value, str):
        return repr(str(value))
    try:
        numbers = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        return repr(value)[:80]
    if value is None:
        return "None"
    return str(np.vectorize(lambda x: f"{x:.4g}", otypes=[object])(numbers).tolist()).replace(
        "'", ""
    )
