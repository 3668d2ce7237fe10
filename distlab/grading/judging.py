"""The judge of an exercise: the exercise, and the reference that only grading has.

A judge runs outside the learner's process. It sees the inputs, which it has drawn
itself from the seed, and the plain data that came out of the learner's process.

A whole exercise, in the five places that it takes. Its object, `distlab/labs/lab90/exercise.py`:

    from distlab.exercises.exercise import Exercise

    SHARE = Exercise(
        lab="lab90",
        name="share",
        function="read_share",
        examples=((0, 2, 5), (1, 3, 9)),
        mistakes={
            "in-blocks": "each worker got a block of neighbors: deal the examples out one by one",
            "counted-from-one": "workers are numbered from 0, and so are examples",
        },
        hint="worker k of W reads k, k + W, k + 2 W, …",
    )

An answer that can't be called with a case as it stands gets a `run`, say
`run=each(try_share)` with `try_share(answer, *case)`, which returns plain data: numbers,
words, arrays, lists, dictionaries. What is compared may be worked out of that by a `read`.

Its reference, `distlab/labs/lab90/judge.py`:

    from distlab.grading.judging import Judge, LabRules
    from distlab.labs.lab90 import exercise as lab90

    RULES = LabRules(cell_seconds=10, submission_seconds=30)


    def expect_share(worker: int, workers: int, examples: int, way: str = "right") -> list[int]:
        return {
            "right": list(range(worker, examples, workers)),
            "in-blocks": [k for k in range(examples) if k * workers // examples == worker],
            "counted-from-one": list(range(worker + 1, examples, workers)),
        }[way]


    SHARE = Judge(lab90.SHARE, expect_share)

What its visible check compares with, `distlab/labs/lab90/worked.json`, written by
`python -m distlab.grading.worked lab90` and compared by tests/course/test_exercises.py.

Its graded cell in `solutions/src/lab90_slug.py`:

    ### BEGIN INPUTS
    rng = np.random.default_rng([SEED, 1])
    share_cases = [(k, 3, int(rng.integers(9, 40))) for k in range(3)]
    ### END INPUTS
    got_shares = lab90.SHARE.observe(read_share, share_cases)
    lab90.SHARE.check(read_share)
    ### BEGIN HIDDEN TESTS
    from distlab.labs.lab90 import judge as judges

    judges.SHARE.judge(share_cases, got_shares)
    ### END HIDDEN TESTS

Without `mistakes`, `expect_share` takes no `way`, and that is all: `distlab new lab` begins so.
With them, its answers are in `tests/answers/lab90.py`: `RIGHT` has a list of eight or more texts
for each exercise, `WRONG` a dictionary from the names of its mistakes ("" for one that has none) to
a text.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

from distlab.exercises.exercise import RIGHT, AnswerTable, Cases, Exercise

Traffic = Callable[[Mapping[str, Any]], tuple[float, float]]


class WrongAnswer(AssertionError):
    """A refused answer: its message, the misconception's name if known, its words, a table."""

    def __init__(
        self,
        message: str,
        misconception: str = "",
        why: str = "",
        table: AnswerTable | None = None,
    ) -> None:
        super().__init__(message)
        self.misconception, self.why, self.table = misconception, why, table


@dataclass(frozen=True)
class LabRules:
    """The limits of a lab when it is graded: times in seconds, memory in MiB.

    `cell_seconds` is for the calls of one graded cell, `own_seconds` for each cell of the learner's
    own: seconds of the processor, and three times as many by the clock. `exclusive` labs measure
    time: they run one submission at a time, and an answer can't start processes. `processes` labs
    start their own worker processes and need loopback. `data` names the data sets that are read
    once, before anything is forked. Without `onednn` the first of each operation is faster, and
    training is up to four times slower: for labs that run a few small operations. `traffic` has,
    for exercises whose answers have to send messages, what works out of the judge's inputs (their
    names and values) the least and the most bytes that the kernel may count. `judge_seconds` is the
    longest that judging a submission may take, and `warm` starts once, before the first, what all
    need.
    """

    cell_seconds: float = 30.0
    own_seconds: float = 10.0
    submission_seconds: float = 120.0
    memory_mib: int = 3072
    exclusive: bool = False
    processes: bool = False
    data: tuple[str, ...] = ("fashion_mnist",)
    onednn: bool = True
    traffic: Mapping[str, Traffic] = field(default_factory=dict)
    judge_seconds: float = 20.0
    warm: Callable[[], Any] | None = None

    @property
    def own_together_seconds(self) -> float:
        """The seconds that the learner's own cells may take together, by the clock."""
        return 12 * self.own_seconds

    @property
    def all_seconds(self) -> float:
        """The seconds that a submission may take, by the clock."""
        return self.submission_seconds + 2 * self.own_together_seconds


@dataclass(frozen=True)
class Judge:
    """Judges one exercise by its reference: `expect(*case, way)` computes what is right.

    `way` is "right" or the name of one of the exercise's mistakes, and the result has the form of
    the exercise's `read`. If the exercise names no mistakes, `expect` takes no `way`.
    """

    exercise: Exercise
    expect: Callable[..., Any]

    def judge(self, cases: Cases, got: Any) -> None:
        """Return if `got` is right for each of `cases`, else raise WrongAnswer."""
        fault = self.exercise.find_fault(cases, got, cache(partial(self.work_out, cases)))
        if fault is not None:
            raise WrongAnswer(fault.message, fault.mistake, fault.why, fault.table)

    def work_out(self, cases: Cases, way: str = RIGHT) -> list[Any]:
        """Return the right answer to each case, or what the mistake `way` gives."""
        named = {"way": way} if self.exercise.mistakes else {}
        return [self.expect(*case, **named) for case in cases]


def list_judges(lab: str) -> dict[str, Judge]:
    """Return the judges of a lab by the name of their exercise."""
    module = importlib.import_module(f"distlab.labs.{lab}.judge")
    return {j.exercise.name: j for j in vars(module).values() if isinstance(j, Judge)}
