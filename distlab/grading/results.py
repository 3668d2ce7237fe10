"""What grading ends with: for each student the marks that count, and how they came about."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from distlab.grading.collect import HandIn
from distlab.grading.labs import LabSpec
from distlab.grading.observation import Observation
from distlab.grading.policy import Policy
from distlab.grading.verdict import ExerciseVerdict, Verdict

BY_HAND = "set by hand"


@dataclass(frozen=True)
class Result:
    """One student's result: `verdict` holds the marks that count (weighted, set by hand)."""

    hand_in: HandIn
    verdict: Verdict
    observation: Observation
    by_hand: frozenset[str] = frozenset()
    late_seconds: float = 0.0
    penalty: float = 0.0

    @property
    def student(self) -> str:
        return self.hand_in.student

    @property
    def mark(self) -> float:
        """What counts in the end: never below 0."""
        return round(max(0.0, self.verdict.mark - self.penalty), 6)

    @property
    def max(self) -> float:
        return round(self.verdict.max, 6)

    @property
    def for_human(self) -> bool:
        """Whether a human should look at an exercise that has no mark set by hand yet."""
        found = self.verdict.exercises
        return any(e.status == "for a human" and e.id not in self.by_hand for e in found)

    @property
    def notes(self) -> list[str]:
        """Notes of collecting, mending and judging, and what lateness cost."""
        late = [describe_lateness(self.late_seconds, self.penalty)] if self.late_seconds else []
        by_hand = [f"{name}: {BY_HAND}" for name in sorted(self.by_hand)]
        found = [*self.hand_in.notes, *self.observation.notes, *self.verdict.notes]
        return [*dict.fromkeys([*found, *late, *by_hand])]

    def to_record(self) -> dict[str, Any]:
        """Return it as `distlab grade --json` prints it."""
        exercises = [
            {"id": e.id, "points": _tidy(e.points), "max": _tidy(e.max),
             "misconception": e.misconception, "message": e.message}
            for e in self.verdict.exercises
        ]  # fmt: skip
        return {"student": self.student, "mark": _tidy(self.mark), "max": _tidy(self.max),
                "exercises": exercises, "notes": self.notes}  # fmt: skip


@dataclass(frozen=True)
class ClassResult:
    """The results of one lab, by student, with notes that belong to nobody."""

    lab: LabSpec
    results: tuple[Result, ...]
    policy: Policy
    notes: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()  # students handed in who were not asked for and have no mark
    seconds: float = 0.0
    course: Mapping[str, Mapping[str, tuple[float, float]]] = field(default_factory=dict)

    @property
    def assignment(self) -> str:
        """What the gradebook calls the lab: `lab05`, or its slug where it has known that before."""
        known = {name for marks in self.course.values() for name in marks}
        return self.lab.slug if self.lab.slug in known else self.lab.name

    @property
    def sealed(self) -> bool:
        return all(result.observation.sealed for result in self.results)

    def to_record(self) -> dict[str, Any]:
        """Return it as `distlab grade --json` prints it."""
        submissions = [result.to_record() for result in self.results]
        return {"lab": self.lab.name, "submissions": submissions,
                "seconds": round(self.seconds, 3)}  # fmt: skip


def _tidy(points: float) -> float:
    return int(points) if points == int(points) else round(points, 6)


def finish(
    hand_in: HandIn,
    verdict: Verdict,
    observation: Observation,
    policy: Policy,
    manual: Mapping[str, float],
) -> Result:
    """Weigh the exercises, put in what a human has set, and take off what lateness costs."""
    exercises = tuple(_finish_exercise(e, policy, manual) for e in verdict.exercises)
    counted = replace(verdict, exercises=exercises)
    late = policy.find_lateness(hand_in.student, hand_in.timestamp)
    cost = min(policy.penalty.find_points(late, counted.max), max(0.0, counted.mark))
    return Result(hand_in, counted, observation, frozenset(manual), late, cost)


def _finish_exercise(
    said: ExerciseVerdict, policy: Policy, manual: Mapping[str, float]
) -> ExerciseVerdict:
    weight = policy.weights.get(said.id, 1.0)
    points = manual.get(said.id, said.points * weight)
    return replace(said, points=points, max=said.max * weight)


def describe_lateness(seconds: float, penalty: float) -> str:
    """Return how late it came and what that costs: "2 days 3 h late: 2 points off"."""
    days, rest = divmod(int(seconds), 86400)
    hours, minutes = rest // 3600, rest % 3600 // 60
    parts = [f"{days} day" + "s" * (days != 1)] * bool(days) + [f"{hours} h"] * bool(hours)
    late = " ".join(parts or [f"{minutes} min"])
    cost = f"{penalty:g} point" + "s" * (penalty != 1) + " off" if penalty else "nothing off"
    return f"{late} late: {cost}"
