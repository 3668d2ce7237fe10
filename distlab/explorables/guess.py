"""A guess made with a handle or a button; `show_guess` slides the answer in next to it."""

from typing import Any

from distlab.errors import CourseError
from distlab.explorables.explorable import Explorable

_STILL = "<p>{label}: run this cell for {what}, or write your guess in its place.</p>"


class Guess(Explorable):
    """A guess: `value` is None until the hand has moved, then a number or a word."""

    @property
    def value(self) -> float | str | None:
        return self.options["guess"]

    @property
    def asks_for_word(self) -> bool:
        return bool(self.data["words"])

    def show_answer(self, answer: Any, how: str = "measured") -> None:
        """Let the answer slide in; one of another kind (a word for a number) stays away."""
        if isinstance(answer, str) == self.asks_for_word:
            self.data = {**self.data, "answer": answer, "how": how}


def guess_number(
    label: str, low: float, high: float, unit: str = "", *, step: float = 1, log: bool = False
) -> Guess:
    """Ask for a number from `low` to `high`, in steps of `step` or, with `log`, over powers of ten.

    `unit` follows the number ("%", "ms"), "x" stands before it as ×. The answer may lie outside
    the range: the scale then grows. Raises CourseError for an empty range, and for a `low` of
    0 or less with `log`.
    """
    if not low < high or log and low <= 0:
        raise CourseError(
            f"guess {label!r} must go from a smaller number to a larger one"
            f"{', both above 0' * log}, got {low} and {high}."
        )
    scale = {"low": low, "high": high, "step": step, "log": log, "unit": unit, "words": []}
    return _make(label, scale, "a handle to move")


def guess_word(label: str, *words: str) -> Guess:
    """Ask for one of `words`. Raises CourseError for fewer than two, or the same twice."""
    if len(words) < 2 or len(set(words)) < len(words):
        raise CourseError(f"guess {label!r} must have two different words or more, got {words}.")
    return _make(label, {"words": list(words)}, "buttons to choose from")


def _make(label: str, scale: dict[str, Any], what: str) -> Guess:
    data = {"label": f"Guess: {label}", "question": label, "answer": None, "how": "measured"}
    data |= scale
    return Guess("guess", data, {"guess": None}, _STILL.format(label=label, what=what))
