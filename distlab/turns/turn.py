"""*Your turn*: the learner writes a line or two of a lesson, and the next cell checks it at once.

    divisor = ...  # what does each replica divide its sum of losses by?

    divisor = turns.DIVISOR.take(divisor)

Left empty, `take` says so and returns our answer, so a notebook that is run as a whole never
stops. Our answer remembers what it stands for, so a check that is run twice says the same twice.
Nothing here is graded, and the answer folds out under what the check says.
"""

import copy
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from distlab import progress
from distlab.exercises.comparing import as_numbers, find_wrong, same, show

_CARD = (
    "border-left:5px solid {color};padding:0.55em 1em;max-width:44em;line-height:1.5;"
    "color:var(--jp-content-font-color1,#222);"
    "background:color-mix(in srgb,{color} 13%,transparent)"
)
_COLORS = {"correct": "#009e73", "not yet": "#d55e00", "empty": "#7f7f7f"}  # Okabe-Ito, and gray
EMPTY = "Nothing written yet, so we continue with our answer. Try it: it's one to six lines."
NO_RETURN = "the result is None, as a function gives it without return. End every path with return"
DOTS_LEFT = "your function still returns the dots for some inputs"


@dataclass(frozen=True)
class Turn:
    """One thing to write in a lesson: a value, or a function that `call` calls with each of `cases`.

    `answer` is our code: an expression, or a `def`. `right` is the message for a correct answer,
    one sentence that says why. `mistakes` maps the code of a plausible wrong answer to what it is
    told; `otherwise` is for all others. `read` turns what was written (a dataset, say) into plain
    data, which is compared within `tolerance`. It returns None and the stub's dots as they are.
    """

    lesson: str  # "05"
    name: str
    answer: str
    right: str
    mistakes: Mapping[str, str]
    otherwise: str
    cases: Sequence[tuple[Any, ...]] = ()
    call: Callable[..., Any] = lambda written, *case: written(*case)
    read: Callable[[Any], Any] = lambda written: written
    tolerance: float = 1e-3

    def take(self, written: Any) -> Any:
        """Check `written`, show what is right or wrong about it, and return it.

        Returns our answer in its place if nothing was written, if it can't be run, or if it isn't
        the same kind of thing (a word for a number, say), which would stop the next cell.
        """
        written = getattr(written, "stands_for", written)
        answer = evaluate(self.answer)
        ours = _stand_in(answer, written)
        try:
            got = self._try(written)
        except Exception as error:  # whatever a learner's line raises
            first = (str(error).splitlines() or [""])[0]
            said = f"Your code raised {type(error).__name__}: {first}. We continue with ours."
            self._say("not yet", said)
            return ours
        if all(one is ... for one in got):
            self._say("empty", EMPTY)
            return ours
        progress.record_turn(self.lesson, self.name)
        wanted = self._try(answer)
        state, words = self._judge(got, wanted)
        usable = all(map(_is_alike, got, wanted)) and (
            callable(written) or _is_alike(written, answer)
        )
        replaced = not usable and state != "correct"  # a list for a tuple is correct, say
        self._say(state, f"{words} We continue with ours." if replaced else words)
        return written if usable else ours

    def _try(self, written: Any) -> list[Any]:
        if written is None or written is ...:
            return [written]
        cases = copy.deepcopy(self.cases)  # some code works in place
        given = [self.call(written, *case) for case in cases] if cases else [written]
        return [one if one is None or one is ... else self.read(one) for one in given]

    def _judge(self, got: list[Any], wanted: list[Any]) -> tuple[str, str]:
        for missing, words in ((None, NO_RETURN), (..., DOTS_LEFT)):
            if any(one is missing for one in got):
                return "not yet", f"Not yet: {words}."
        if same(got, wanted, self.tolerance):
            return "correct", f"Correct. {self.right}"
        for code, words in self.mistakes.items():
            if same(got, self._try(evaluate(code)), self.tolerance):
                return "not yet", f"Not yet. {words}"
        wrong = find_wrong(got, wanted, self.tolerance) or 0
        return "not yet", f"Not yet: this gives {show(got[wrong])}. {self.otherwise}"

    def _say(self, state: str, words: str) -> None:
        from IPython.display import display

        style = _CARD.format(color=_COLORS[state])
        answer = escape(textwrap.dedent(self.answer).strip())
        html = (
            f'<div role="status" style="{style}">{escape(words)}'
            f"<details><summary>Show our answer</summary><pre>{answer}</pre></details></div>"
        )
        display({"text/html": html, "text/plain": words}, raw=True)


def call_with_tensors(written: Callable[..., Any], *case: Any) -> Any:
    """Call `written` with the arrays of `case` as tensors, since it gets tensors in the lesson."""
    import tensorflow as tf

    return written(*(tf.constant(one) if isinstance(one, np.ndarray) else one for one in case))


def _stand_in(ours: Any, written: Any) -> Any:
    """Return `ours`, as an object that remembers what was `written` in its place."""
    if isinstance(ours, int | float | str | list | tuple | np.integer):
        ours = type(type(ours).__name__, (type(ours),), {})(ours)
    if hasattr(ours, "__dict__"):
        ours.stands_for = written
    return ours


def _is_alike(given: Any, ours: Any) -> bool:
    """Return whether both are numbers, or lists of them, both words, or the same other kind."""
    numbers, wanted = as_numbers(given), as_numbers(ours)
    if wanted is not None:
        return numbers is not None and numbers.ndim == wanted.ndim
    return isinstance(given, str) if isinstance(ours, str) else type(given) is type(ours)


def evaluate(code: str) -> Any:
    """Return the value of an expression, or the function that the last `def` of `code` makes."""
    code = textwrap.dedent(code).strip()
    names: dict[str, Any] = {"np": np}
    if "tf." in code:
        import tensorflow

        names["tf"] = tensorflow
    if "keras." in code:
        import keras

        names["keras"] = keras
    if "def " not in code:
        return eval(code, names)
    exec(code, names)
    return names[code.rpartition("def ")[2].partition("(")[0]]
