"""Runs a lab with one answer put in, as its check cell and as its judge do."""

import importlib
import importlib.util
import linecache
import tempfile
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np

from distlab.authoring import sources
from distlab.exercises.comparing import find_wrong
from distlab.exercises.exercise import Exercise, call, list_exercises
from distlab.grading.encoding import decode, encode
from distlab.grading.judging import Judge

ROOT = Path(__file__).parents[1]
# what a lab measures less often in tests
QUICK = {"lab11": {"ROUNDS": 3, "MAX_EPOCHS": 12}}
LABS = [t for t in sources.find_targets(ROOT) if t.lab]


@dataclass(frozen=True)
class Outcome:
    """What the visible check and the judge said: None where the answer passed."""

    visible: BaseException | None
    judged: BaseException | None


class Lab:
    """The cells of one lab's source: `answers` of tests/answers are tried in it.

    What is no graded cell runs once for each seed, and no answer is tried twice.
    """

    def __init__(self, name: str) -> None:
        (target,) = sources.choose_targets(LABS, [name])
        self.name = name
        module = importlib.import_module(f"distlab.labs.{name}.exercise")
        for variable, value in QUICK.get(name, {}).items():
            setattr(module, variable, value)
        self._exercises = list_exercises(module)
        self.cells = [c for c in sources.read_source(target).cells if c.cell_type == "code"]
        self.graded = {
            _read_id(c).removesuffix("-test"): c for c in self.cells if _has_role(c, "grade")
        }
        self.exercises = [_read_id(c) for c in self.cells if _has_role(c, "solution")]
        self.parts: dict[str, list[str]] = {}  # the sources of each exercise's graded cells
        for cell in self.cells:
            if _has_role(cell, "solution"):
                self.parts[_read_id(cell)] = []
            elif _has_role(cell, "grade"):
                self.parts[list(self.parts)[-1]].append(cell.source)
        self._folder = tempfile.TemporaryDirectory()
        self._spaces: dict[int, dict[str, Any]] = {}
        self._times = getattr(load_answers(name), "find_times", None)  # those of given clocks
        self._outcomes: dict[tuple[str, str, int], Outcome] = {}

    def try_answer(self, exercise: str, answer: str, seed: int) -> Outcome:
        """Run the graded cell of `exercise` with `answer` for its solution, and judge it."""
        key = (exercise, answer, seed)
        if key not in self._outcomes:
            with self._give_times(answer):
                self._outcomes[key] = self._try_parts(exercise, answer, seed)
        return self._outcomes[key]

    def _give_times(self, answer: str) -> AbstractContextManager[None]:
        """Let lab 11 measure what its answers' file gives."""
        if self._times is None:
            return nullcontext()
        from lab11_times import give_times

        return give_times(*self._times(answer))

    def _try_parts(self, exercise: str, answer: str, seed: int) -> Outcome:
        """Return the outcome of an exercise's graded cells, up to the first that isn't right."""
        space = dict(self._get_space(seed))
        self._run(answer, space)
        for cell in self.parts[exercise]:
            got, visible = self._observe(cell, dict(space))
            outcome = Outcome(visible, self._judge(cell, got, seed))
            if outcome != Outcome(None, None):
                break
        return outcome

    def try_once(self, exercise: str, answer: str, seed: int) -> Outcome:
        """Do as `try_answer`, but run an answer once, on the examples, for check and judge.

        One that only computes runs twice, since it takes no time.
        """
        found = self._exercises[exercise]
        if found.run is call or found.plain:
            return self.try_answer(exercise, answer, seed)
        observe, judge = Exercise.observe, Judge.judge
        several = len(self.parts[exercise]) > 1
        seen: dict[Any, Any] = {}

        def find_examples(self: Exercise, cases: Any) -> Any:
            """Return the examples; of an exercise in parts, the one of the same part."""
            return [e for e in self.examples if e[0] == cases[0][0]] if several else self.examples

        def observe_once(self: Exercise, answer: Any, cases: Any) -> Any:
            examples = find_examples(self, cases)
            key = examples[0][0] if several else ""
            if key not in seen:
                seen[key] = observe(self, answer, examples)
            return seen[key]

        def judge_examples(self: Judge, cases: Any, got: Any) -> None:
            judge(self, find_examples(self.exercise, cases), got)

        with patch.object(Exercise, "observe", observe_once):
            with patch.object(Judge, "judge", judge_examples):
                return self.try_answer(exercise, answer, seed)

    def try_stubs(self, shown: Any) -> dict[str, str]:
        """Run the notebook `shown` cell by cell; return the error of each graded cell in words."""
        space: dict[str, Any] = {"__name__": "__main__"}
        raised = {}
        for cell in (c for c in shown.cells if c.cell_type == "code"):
            try:
                self._run(cell.source, space)
            except Exception as error:
                raised[_read_id(cell).removesuffix("-test")] = f"{type(error).__name__}: {error}"
        return raised

    def _get_space(self, seed: int) -> dict[str, Any]:
        """Return what the lab's own cells define, solutions included, where SEED is `seed`."""
        if seed not in self._spaces:
            space = self._spaces[seed] = {"__name__": "__main__"}
            for cell in (c for c in self.cells if not _has_role(c, "grade")):
                self._run(cell.source, space)
            space["SEED"] = seed
        return self._spaces[seed]

    def _run(self, text: str, space: dict[str, Any]) -> None:
        if text.startswith("%%writefile "):  # as the notebook would, in a folder of its own
            first, _, body = text.partition("\n")
            path = Path(self._folder.name, first.split()[1])
            path.write_text(body)
            space[f"{path.stem}_py"] = str(path)
            return
        file = f"<{self.name}-{hash(text)}>"  # AutoGraph wants to read the source again
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)
        exec(compile(text, file, "exec"), space)  # noqa: S102 - the course's own source

    def _observe(self, source: str, space: dict[str, Any]) -> tuple[dict[str, Any], Any]:
        error = None
        try:
            self._run(sources.replace_regions(source, "HIDDEN TESTS", ""), space)
        except Exception as mistake:
            error = mistake.with_traceback(None)  # which holds on to all that the answer made
        got = {n: encode(v) for n, v in space.items() if n.startswith("got_")}
        return {n: decode(data) for n, data in got.items()}, error

    def _judge(self, source: str, got: dict[str, Any], seed: int) -> BaseException | None:
        space: dict[str, Any] = {"np": np, "SEED": seed}
        try:
            self._run(sources.region_text(source, "INPUTS"), space)
            space.update(got)
            self._run(sources.region_text(source, "HIDDEN TESTS"), space)
        except Exception as mistake:
            return mistake.with_traceback(None)
        return None


def _read_id(cell: Any) -> str:
    return cell.metadata.get("nbgrader", {}).get("grade_id", "")


def _has_role(cell: Any, role: str) -> bool:
    return bool(cell.metadata.get("nbgrader", {}).get(role))


@cache
def get_lab(name: str) -> Lab:
    """Return the lab called `name`, with what was tried in it by any test of this process."""
    return Lab(name)


@cache
def load_answers(name: str) -> ModuleType:
    """Return tests/answers/NAME.py as a module; an empty one if there is none."""
    path = Path(__file__).parent / "answers" / f"{name}.py"
    if not path.is_file():
        return ModuleType(f"answers_{name}")
    spec = importlib.util.spec_from_file_location(f"answers_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def list_unseen(judge: Judge, cells: list[str], seed: int) -> list[str]:
    """Return the mistakes that the cases which graded cells draw don't tell from a right answer."""
    cases = [case for cell in cells for case in draw_cases(cell, seed)]
    right, tolerance = judge.work_out(cases), judge.exercise.tolerance
    ways = judge.exercise.mistakes
    return [w for w in ways if find_wrong(judge.work_out(cases, w), right, tolerance) is None]


def draw_cases(cell: str, seed: int) -> list:
    """Return the cases that a graded cell draws for the judge."""
    space = {"np": np, "SEED": seed}
    exec(sources.region_text(cell, "INPUTS"), space)  # noqa: S102 - the course's own
    (cases,) = (v for k, v in space.items() if k.endswith("_cases"))
    return cases
