"""What the judge of an exercise is: a right way, the known wrong ways, and words for each.

A judge runs outside the learner's process. It sees the inputs, which it has drawn
itself from the seed, and the plain data that the learner's functions returned.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from distlab.exercises.checking import Check, find_wrong


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
    for labs that run a few small operations.
    """

    cell_seconds: float = 30.0
    submission_seconds: float = 120.0
    memory_mib: int = 3072
    exclusive: bool = False
    processes: bool = False
    data: tuple[str, ...] = ("fashion_mnist",)
    visible_checks: bool = True
    onednn: bool = True


@dataclass(frozen=True)
class Judge:
    """Judges one exercise: `right(*case)` gives the answer, each of `mistakes` a wrong one.

    The keys of `mistakes` are names of `check.mistakes`, whose words are used.
    `tolerance` is relative, the check's if None.
    """

    check: Check
    right: Callable[..., Any]
    mistakes: Mapping[str, Callable[..., Any]]
    tolerance: float | None = None

    def verify(self, cases: Sequence[Sequence[Any]], got: Any) -> None:
        """Return if `got` holds the right answer for each of `cases`, else raise WrongAnswer."""
        check = self.check
        if not isinstance(got, list | tuple) or len(got) != len(cases):
            raise WrongAnswer(f"{check.function} did not answer each of {len(cases)} calls")
        tolerance = check.tolerance if self.tolerance is None else self.tolerance
        right = [self.right(*case) for case in cases]
        k = find_wrong(got, right, tolerance)
        if k is None:
            return
        name = self._find_mistake(cases, got, tolerance)
        why = check.get_mistake(name).text if name else check.hint
        raise WrongAnswer(check.describe(cases[k], got[k], right[k], why), name, why)

    def _find_mistake(self, cases: Sequence[Sequence[Any]], got: Any, tolerance: float) -> str:
        for name, wrong in self.mistakes.items():
            if find_wrong(got, [wrong(*case) for case in cases], tolerance) is None:
                return name
        return ""


def make_judge(check: Check, expect: Callable[..., Any]) -> Judge:
    """Return the judge of a check that `make_check` made with the same `expect`."""
    ways = {m.name: partial(expect, way=m.name) for m in check.mistakes}
    return Judge(check, right=expect, mistakes=ways)
