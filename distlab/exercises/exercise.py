"""One exercise of a lab: how an answer is run, what is known of it, and its visible check.

What is right for other numbers than the worked examples isn't here: it is worked out
by the lab's `judge.py`, which learners don't have.
"""

import copy
import importlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from distlab.class_seed import ClassNumber
from distlab.exercises.comparing import (
    find_difference,
    find_wrong,
    same,
    show,
    show_path,
)
from distlab.exercises.feedback import praise, show_picture, word_fault
from distlab.exercises.refusing import own_frames, refuse
from distlab.exercises.slips import (
    REVERSED,
    SORTED,
    explain_choice,
    explain_numbers,
    explain_slip,
)
from distlab.exercises.traveling import pack_answers
from distlab.exercises.watching import stop_after, watch_calls
from distlab.exercises.worked import read_worked
from utils.checks import check_choice

Answer = Any  # a learner's function, or a tuple of functions
Cases = Sequence[Sequence[Any]]
RIGHT = "right"
MAX_SIDE = 12  # of the table of an answer
COMPUTE_SECONDS = 20  # for a function that only computes
EVIDENCE = ("result", "outside", "inside")


def call(answer: Answer, cases: Cases) -> list[Any]:
    """Return what a learner's function returns for each of `cases`: it gets copies, as lists."""
    return [answer(*map(_copy, case)) for case in cases]


def _copy(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_copy(one) for one in value]
    return copy.deepcopy(value)


def each(run: Callable[..., Any]) -> Callable[[Answer, Cases], list[Any]]:
    """Return the function that runs an answer as `run(answer, *case)`, case by case."""
    return lambda answer, cases: [run(answer, *case) for case in cases]


def _as_it_came(observed: Any, *case: Any) -> Any:
    return observed


def contrast(got: Any, right: Any) -> str:
    """Return what was given and what should be, where they first differ.

    A dictionary {"fault": words} says why there is no answer to compare.
    """
    if isinstance(got, dict) and set(got) == {"fault"}:
        return f"went wrong: {got['fault']}"
    path, got, right = find_difference(got, right)
    where = f" at {show_path(path)}" if path else ""
    return f"gave {show(got)}{where}, should give {show(right)}"


def explain_parts(words: Mapping[str, str]) -> Callable[[Sequence[Any], Any, Any], str]:
    """Return an `explain` that has words for a dictionary's first wrong part, by its key."""
    return lambda case, got, right: words.get(next(iter(find_difference(got, right)[0]), ""), "")


@dataclass(frozen=True)
class AnswerTable:
    """The moment at which an answer goes wrong, as a small table with marked cells (row, column).

    The feedback page shows it, where the notebook has a picture.
    """

    caption: str
    columns: Sequence[str]
    names: Sequence[str]
    rows: Sequence[Sequence[str]]
    marked: Sequence[Sequence[int]] = ()


def tell_difference(got: Any, right: Any) -> AnswerTable | None:
    """Return the first array that differs in an answer, the number marked; None without one."""
    path, given, wanted = find_difference(got, right)
    if not path or not isinstance(path[-1], tuple) or len(path[-1]) > 2:
        return None
    for key in path[:-1]:
        got = got[key]
    numbers, place = np.atleast_2d(np.asarray(got, dtype=float)), (0, *path[-1])[-2:]
    first = [
        max(0, min(at - MAX_SIDE // 2, most - MAX_SIDE)) for at, most in zip(place, numbers.shape)
    ]
    rows, columns = (range(at, min(at + MAX_SIDE, most)) for at, most in zip(first, numbers.shape))
    return AnswerTable(
        f"Your answer{show_path(path[:-1])} has {show(given)} at {show_path(path[-1:])}, and "
        f"{show(wanted)} was due",
        [str(k) for k in columns],
        [str(k) for k in rows],
        [[f"{numbers[k, j]:.4g}" for j in columns] for k in rows],
        [[place[0] - first[0], place[1] - first[1]]],
    )


@dataclass(frozen=True)
class AnswerFault:
    """The fault of an answer: the difference, the mistake's name or "", its words, a table."""

    difference: str
    mistake: str = ""
    why: str = ""
    table: AnswerTable | None = None

    @property
    def message(self) -> str:
        """The whole in one sentence."""
        return f"{self.difference}: {self.why}" if self.why else self.difference


@dataclass(frozen=True, eq=False)
class Exercise:
    """One exercise: `lab01`'s `epoch` asks for the function `plan_epoch`.

    A case is the arguments of one trial, `examples` are the visible check's. `run(answer, cases)`
    runs a learner's answer in their own process and returns plain data for each case: by default
    what their function returns. `read(observed, *case)` makes of that what is compared, in the
    judge's process when it is graded. `mistakes` maps the name of each known misconception to its
    message; `hint` is the message for any other wrong answer, `success` for a correct one.
    `tolerance` is relative. `by_hand` names the library's modules that an answer may not call,
    since writing that is the exercise. `shows_case` says whether the message shows the case: by
    default only if the function is called with it. `contrast(got, right)` words the difference, and
    `tell(case, observed, right)` may show it as a table (without it, the array that differs is
    shown). `explain(case, got, right)` names what is wrong with a dictionary that no mistake gives,
    or returns "" (`explain_parts` does so by key). In a notebook one run is stopped after
    `seconds`: 20 s by default if it is called with its cases or `plain`, never otherwise, since
    exercises that start processes have their own limits. A class seed draws `number`.

    Five settings say where things run when a class is graded. Without them, a `run` takes place in
    the answer's process, next to the learner's cells.
    - `plain`: the answer takes and gives only numbers, words, lists, dictionaries, arrays and a
      `Folder`. `run` then takes place outside, and each call of the answer travels to its process.
    - `serve(function)` makes a function that takes and gives such data, in the answer's process.
      `run` takes place outside, and gets that function in place of the learner's.
    - `before(served)` measures what `serve()` makes without a function of the learner's. It comes
      before any of the learner's cells.
    - `travels`: `run` sends the answer to workers. It then takes place in a process without the
      learner's cells. A call of the answer there runs in a worker, too. Workers can return only
      plain data.
    - `resume(answer, left, *case)` gets a fresh process of the answer. It continues what `run` left
      of a case (its result's "left") and returns the rest of the result.

    `evidence` says what a mark proves. "result": the learner's function returned everything graded
    as plain data, or wrote it to a file. "outside": processes, kills, bytes, files, clocks, seen by
    a process in which nothing of the learner ran, and plain data that the learner's function
    returned in its workers. "inside": looked at in the answer's own process,
    which is strong against mistakes and not against forging. It is "result" for an exercise that is
    called with its cases or `plain`, otherwise "inside", unless it says so: a `run` that only makes
    the arguments of a call is a "result".
    """

    lab: str
    name: str
    function: str
    examples: Cases
    mistakes: Mapping[str, str] = field(default_factory=dict)
    hint: str = ""
    run: Callable[[Answer, Cases], list[Any]] = call
    read: Callable[..., Any] = _as_it_came
    tolerance: float = 1e-3
    shows_case: bool | None = None
    contrast: Callable[[Any, Any], str] = contrast
    tell: Callable[[Sequence[Any], Any, Any], AnswerTable | None] | None = None
    explain: Callable[[Sequence[Any], Any, Any], str] = lambda case, got, right: ""
    success: str = ""
    by_hand: Sequence[str] = ()
    plain: bool = False
    before: Callable[[Callable[..., Any]], Any] | None = None
    serve: Callable[..., Callable[..., Any]] | None = None
    travels: bool = False
    resume: Callable[..., Mapping[str, Any]] | None = None
    seconds: float | None = None
    evidence: str = ""
    number: ClassNumber | None = None

    def __post_init__(self) -> None:
        called = self.run is call
        kind = self.evidence or ("result" if called or self.plain else "inside")
        usual = {
            "evidence": check_choice("evidence", kind, EVIDENCE),
            "shows_case": called if self.shows_case is None else self.shows_case,
            "seconds": self.seconds or (COMPUTE_SECONDS if called or self.plain else None),
        }
        for name, value in usual.items():
            object.__setattr__(self, name, value)

    @property
    def worked_name(self) -> str:
        """Under which name the worked answers are kept: each of a class's numbers has its own."""
        if self.number is None or self.number.value == self.number.values[0]:
            return self.name
        return f"{self.name}, {self.number.name} {self.number.value:g}"

    def observe(self, answer: Answer, cases: Cases) -> list[Any]:
        """Run a learner's answer and return what was seen of it for each case.

        When a class is graded, the answer is in another process: calls of it travel there if
        the exercise is `plain`, otherwise all of it is run there. Raises AssertionError if the
        answer calls what it is to write itself.
        """
        parts = answer if isinstance(answer, tuple) else (answer,)
        there = getattr(parts[0], "observe_there", None)
        observe = partial(self.observe_part, answer)
        if self.travels and there is None:
            pack_answers(parts)  # what can't be sent earns nothing when it's graded
        if self.serve is not None:
            served = self.serve(answer) if there is None else answer.serve(self)
            observe = partial(self.observe_part, served)
        elif there is not None and not self.plain and self.run is not call:
            observe = partial(there, self, [part.__name__ for part in parts])
        observed = observe(cases=cases)
        for one, case in zip(observed if self.resume else (), cases):
            one.update(observe(left=(one.pop("left"), *case)))
        return observed

    def observe_part(self, answer: Answer, cases: Cases = (), left: Sequence[Any] = ()) -> Any:
        """Run a learner's answer for `cases`, or resume what is `left` of one and its case."""
        remote = hasattr(answer[0] if isinstance(answer, tuple) else answer, "observe_there")
        seconds = None if remote else self.seconds
        frames = nullcontext() if remote else own_frames()
        with stop_after(seconds, self.function):
            with watch_calls(self.by_hand, answer) as called, frames:
                observed = self.resume(answer, *left) if left else self.run(answer, cases)
        if called:
            raise refuse(
                f"{self.function} calls {', '.join(sorted(called))}. The lab doesn't allow "
                "that, since writing it yourself is the exercise."
            )
        return observed

    def check(self, answer: Answer, only: int | None = None) -> None:
        """Try `answer` on the examples: say so if it is right, else AssertionError.

        The error names the value, the expected one, and the misconception behind it (`feedback` has
        the form in JupyterLab). If an exercise is graded in parts, `only` is the number of one
        example. The last one completes the exercise.
        """
        part = slice(None) if only is None else slice(only, only + 1)
        worked = {
            way: found[part] for way, found in read_worked(self.lab)[self.worked_name].items()
        }
        examples = self.examples[part]
        observed = self.observe(answer, examples)
        fault = self.find_fault(examples, observed, worked.__getitem__)
        draw = partial(self._draw, examples, observed, worked[RIGHT])
        if fault is not None:
            show_picture(draw)
            raise refuse(word_fault(self.lab, self.name, fault.difference, fault.why))
        if only not in (None, len(self.examples) - 1):
            print(f"{self.function}: part {only + 1} of {len(self.examples)} is right")
            return
        count = len(self.examples)
        what = f"{count} worked examples are" if count > 1 else "the worked example is"
        right = f"{self.function}: {what} right"
        praise(self.lab, self.name, self.success or right, draw)

    def _draw(self, cases: Cases, observed: Sequence[Any], right: Sequence[Any]) -> Any:
        """Return the answer's picture; its drawing code is imported only in JupyterLab.

        A build draws none, so no lab is stale when a picture changes: `imports` reads no string.
        """
        pictures = importlib.import_module("distlab.exercises.answer_pictures")
        return pictures.draw_answer(self.lab, self.name, cases, observed, right)

    def find_fault(
        self, cases: Cases, observed: Any, expect: Callable[[str], Sequence[Any]]
    ) -> AnswerFault | None:
        """Return the fault in the observations for `cases`, None if there is none.

        `expect("right")` gives the right answer to each case, `expect(name)` what that
        mistake gives. Numbers may be ints, floats, NumPy's or tensors, sequences lists,
        tuples or arrays; words may be in any case.
        """
        if not isinstance(observed, list | tuple) or len(observed) != len(cases):
            return AnswerFault(
                f"{self.function} did not answer each of {len(cases)} cases", "", self.hint
            )
        got = [self.read(one, *case) for one, case in zip(observed, cases, strict=True)]
        right = expect(RIGHT)
        k = find_wrong(got, right, self.tolerance)
        if k is None:
            return None
        name = self._find_mistake(got, right, expect)
        why = self.mistakes.get(name) or self._explain_slip(got, right, cases, k) or self.hint
        shown = f"({', '.join(show(a) for a in cases[k])})" if self.shows_case else ""
        difference = f"{self.function}{shown} {self.contrast(got[k], right[k])}"
        if self.tell is None:
            return AnswerFault(difference, name, why, tell_difference(got[k], right[k]))
        return AnswerFault(difference, name, why, self.tell(cases[k], observed[k], right[k]))

    def _find_mistake(
        self, got: Sequence[Any], right: Sequence[Any], expect: Callable[[str], Sequence[Any]]
    ) -> str:
        """Return the mistake that gives these answers, or else those among them that are wrong.

        With a wide tolerance two mistakes may be near: one that is very close comes first.
        """
        wrong = [k for k, one in enumerate(got) if not same(one, right[k], self.tolerance)]
        for tolerance in sorted({min(1e-3, self.tolerance), self.tolerance}):
            for cases in (range(len(got)), wrong):
                for name in self.mistakes:
                    given = expect(name)
                    if all(same(got[k], given[k], tolerance) for k in cases):
                        return name
        return ""

    def _explain_slip(self, got: Sequence[Any], right: Sequence[Any], cases: Cases, k: int) -> str:
        """Return the fault in the form of answer `k`, or what all wrong numbers have in common.

        None isn't a fault if it may be correct.
        """
        if got[k] is None and any(answer is None for answer in right):
            return ""
        if isinstance(got[k], dict) and (said := self.explain(cases[k], got[k], right[k])):
            return said
        agree = partial(same, tolerance=self.tolerance)
        wrong = [i for i, one in enumerate(got) if not agree(one, right[i])]
        known = cases if self.shows_case else [()] * len(cases)
        chosen = ([those[i] for i in wrong] for those in (got, right, known))
        said = explain_slip(got[k], right[k], self.tolerance)
        each = (explain_slip(got[i], right[i], self.tolerance) == said for i in wrong)
        if said in (REVERSED, SORTED) and not all(each):
            said = ""
        if self.contrast is contrast:  # otherwise the words may be ours, not the learner's
            said = said or explain_choice(got, right, wrong)
        return said or explain_numbers(*chosen, self.tolerance)


def list_exercises(module: Any) -> dict[str, Exercise]:
    """Return the exercises of a lab's module by name."""
    return {e.name: e for e in vars(module).values() if isinstance(e, Exercise)}
