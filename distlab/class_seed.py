"""Draw a lab's names, inputs and numbers anew: `distlab release --class-seed WORD`.

Three things follow from the word: each lab's `SEED`, which draws the inputs that a notebook
shows; the names of the functions that a learner writes, which end in `_WORD`; and the numbers
that a lab declares as a `ClassNumber`. A students' release keeps its word in `FILE`. Elsewhere
the environment's `VARIABLE` counts. Without a word, everything stays as in the sources.
"""

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from distlab.errors import CourseError

VARIABLE = "DISTLAB_CLASS_SEED"
FILE = Path(__file__).with_name("class_seed.txt")
_WORD = re.compile(r"[a-z0-9]{1,20}")
_fixed: dict["ClassNumber", float] = {}


def read_class_seed() -> str:
    """Return the class's word, "" without one."""
    if VARIABLE in os.environ or not FILE.is_file():
        return os.environ.get(VARIABLE, "")
    return FILE.read_text(encoding="utf-8").strip()


def check_class_seed(word: str) -> str:
    """Return `word`; CourseError if it can't be the end of a function's name."""
    if not _WORD.fullmatch(word) or word == "none":  # which takes a lab's word away
        raise CourseError(
            "--class-seed must be 1 to 20 lower-case letters and digits, and not the word none, "
            f"got {word!r}. Try --class-seed autumn26."
        )
    return word


@contextmanager
def use_class_seed(word: str) -> Iterator[None]:
    """Have `word` count in this process and in those that it starts, "" for none."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = word
    try:
        yield
    finally:
        os.environ.pop(VARIABLE)
        if before is not None:
            os.environ[VARIABLE] = before


def draw_below(limit: int, *what: str) -> int:
    """Return what the class's word draws for `what`: a whole number from 0 to limit - 1."""
    text = " ".join((read_class_seed(), *what))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") % limit


@dataclass(frozen=True)
class ClassNumber:
    """A number of a lab's contract that a class seed draws: `values`, the usual one first.

    `phrases` are how the lab's source writes it, with {} for the number ({up} in superscript), in
    its text and in its solution. Only judges ask for `value`, and do so each time, so that there
    are worked answers for each; an exercise's `run` doesn't know of it.
    """

    name: str
    values: tuple[float, ...]
    phrases: tuple[str, ...]

    @property
    def value(self) -> float:
        """The class's number; with a word it's never the usual one."""
        if self in _fixed or not read_class_seed():
            return _fixed.get(self, self.values[0])
        return self.values[1 + draw_below(len(self.values) - 1, self.name)]

    @contextmanager
    def fix(self, value: float) -> Iterator[None]:
        """Have the number be `value`, whatever the class."""
        _fixed[self] = value
        try:
            yield
        finally:
            del _fixed[self]

    def replace(self, text: str) -> str:
        """Return a lab's source with the class's number; CourseError if a phrase isn't there."""
        for phrase in self.phrases:
            usual = _put(self.values[0], phrase)
            if usual not in text:
                raise CourseError(
                    f"{self.name}: the lab's source doesn't have {usual!r}. Update its phrase."
                )
            text = text.replace(usual, _put(self.value, phrase))
        return text


def _put(value: float, phrase: str) -> str:
    text = f"{value:g}"
    return phrase.format(text, up=text.translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")))
