"""What the judge of an exercise is: the exercise, and the reference that only grading has.

A judge runs outside the learner's process. It sees the inputs, which it has drawn
itself from the seed, and the plain data that came out of the learner's process.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from distlab.exercises.exercise import RIGHT, Cases, Exercise
from distlab.exercises.worked import Worked

Traffic = Callable[[Mapping[str, Any]], tuple[float, float]]


class WrongAnswer(AssertionError):
    """A refused answer: its message, the name of the misconception if known, and its words."""

    def __init__(self, message: str, misconception: str = "", why: str = "") -> None:
        super().__init__(message)
        self.misconception, self.why = misconception, why


@dataclass(frozen=True)
class LabRules:
    """How a lab is run when it is graded: time limits in seconds, memory in MiB.

    `exclusive` labs measure time: they run one submission at a time. `processes`
    labs start worker processes of their own and need loopback. `data` names the data
    sets that are read once, before anything is forked. The `visible_checks` run too,
    and a disagreement with the judge is for a human; False where the judge's inputs are
    of every kind that the checks try, and a check takes as long as all of them. Without
    `onednn` the first of each operation is faster, and training is up to four times slower:
    for labs that run a few small operations. In a lab of `one_fork` the answers that the reader
    lets pass share a process, one after the other: there, starting one costs more than running
    it; every other answer has a fork of its own. `traffic` has, for exercises whose answers have
    to send messages, what works out of the judge's inputs (their names and values) the least
    and the most bytes that the kernel may count.
    """

    cell_seconds: float = 30.0
    submission_seconds: float = 120.0
    memory_mib: int = 3072
    exclusive: bool = False
    processes: bool = False
    data: tuple[str, ...] = ("fashion_mnist",)
    visible_checks: bool = True
    onednn: bool = True
    one_fork: bool = False
    traffic: Mapping[str, Traffic] = field(default_factory=dict)


@dataclass(frozen=True)
class Judge:
    """Judges one exercise by its reference: `expect(*case, way)` computes what is right.

    `way` is "right" or the name of one of the exercise's mistakes, and what is computed
    is what the exercise's `read` gives.
    """

    exercise: Exercise
    expect: Callable[..., Any]

    def judge(self, cases: Cases, got: Any) -> None:
        """Return if `got` is right for each of `cases`, else raise WrongAnswer."""
        fault = self.exercise.find_fault(cases, got, lambda way: self.work_out(cases, way))
        if fault is not None:
            raise WrongAnswer(fault.message, fault.mistake, fault.why)

    def work_out(self, cases: Cases, way: str = RIGHT) -> list[Any]:
        """Return the right answer to each case, or what the mistake `way` gives."""
        return [self.expect(*case, way=way) for case in cases]


def list_judges(lab: str) -> dict[str, Judge]:
    """Return the judges of a lab by the name of their exercise."""
    module = importlib.import_module(f"distlab.grading.judges.{lab}")
    return {j.exercise.name: j for j in vars(module).values() if isinstance(j, Judge)}


def work_out_examples(lab: str) -> Worked:
    """Return what is right, and what each mistake gives, for the examples of visible checks."""
    return {
        name: {
            way: judge.work_out(judge.exercise.examples, way)
            for way in (RIGHT, *judge.exercise.mistakes)
        }
        for name, judge in list_judges(lab).items()
    }
