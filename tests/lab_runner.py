"""Runs a lab with one answer put in, as its check cell and as its judge do."""

import importlib.util
import linecache
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from distlab.authoring import regions, sources
from distlab.grading.encoding import decode, encode

ROOT = Path(__file__).parents[1]
LABS = [t for t in sources.find_targets(ROOT) if t.lab]


@dataclass(frozen=True)
class Outcome:
    """What the visible check and the judge said: None where the answer passed."""

    visible: BaseException | None
    judged: BaseException | None


class Lab:
    """The cells of one lab's source: `answers` of tests/answers are tried in it."""

    def __init__(self, name: str) -> None:
        (target,) = sources.choose_targets(LABS, [name])
        self.name = name
        self.cells = [c for c in sources.read_source(target).cells if c.cell_type == "code"]
        self.graded = {self._id(c).removesuffix("-test"): c for c in self.cells
                       if c.metadata.get("nbgrader", {}).get("grade")}  # fmt: skip
        self.exercises = [self._id(c) for c in self.cells
                          if c.metadata.get("nbgrader", {}).get("solution")]  # fmt: skip

    def _id(self, cell: Any) -> str:
        return cell.metadata.get("nbgrader", {}).get("grade_id", "")

    def try_answer(self, exercise: str, answer: str | None, seed: int) -> Outcome:
        """Run the cells in order with `answer` in the solution cell of `exercise`, and judge it."""
        space: dict[str, Any] = {"__name__": "__main__"}
        visible = judged = None
        for k, cell in enumerate(self.cells):
            name = self._id(cell)
            if not cell.metadata.get("nbgrader", {}).get("grade"):
                text = answer if name == exercise and answer is not None else cell.source
                self._run(text, space, k)
                space.update({"SEED": seed} if "SEED" in space else {})
            elif name.removesuffix("-test") == exercise or name.startswith(exercise + "-test"):
                got, error = self._observe(cell.source, space, k, seed)
                visible = visible or error
                judged = judged or self._judge(cell.source, got, k, seed)
        return Outcome(visible, judged)

    def _run(self, text: str, space: dict[str, Any], k: int) -> None:
        file = f"<{self.name}-{k}-{hash(text)}>"  # AutoGraph wants to read the source again
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)
        exec(compile(text, file, "exec"), space)  # noqa: S102 - the course's own source

    def _observe(self, source: str, space: dict[str, Any], k: int, seed: int) -> tuple[Any, Any]:
        visible = regions.replace_regions(source, "HIDDEN TESTS", "")
        for name in [n for n in space if n.startswith("got_")]:
            del space[name]
        error = None
        try:
            self._run(visible, space, k)
        except Exception as mistake:
            error = mistake
        got = {n: encode(v) for n, v in space.items() if n.startswith("got_")}
        return {n: decode(data) for n, data in got.items()}, error

    def _judge(self, source: str, got: dict[str, Any], k: int, seed: int) -> BaseException | None:
        space: dict[str, Any] = {"np": np, "SEED": seed}
        try:
            self._run(regions.region_text(source, "INPUTS"), space, k)
            space.update(got)
            self._run(regions.region_text(source, "HIDDEN TESTS"), space, k)
        except Exception as mistake:
            return mistake
        return None


def load_answers(name: str) -> ModuleType:
    """Return tests/answers/NAME.py as a module."""
    path = Path(__file__).parent / "answers" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"answers_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
