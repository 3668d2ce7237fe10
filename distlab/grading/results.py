"""The results of grading: each student's marks, and how they came about."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from distlab.grading.collect import HandIn
from distlab.grading.labs import LabSpec
from distlab.grading.observation import Observation
from distlab.grading.policy import Policy
from distlab.grading.roster import Roster
from distlab.grading.verdict import ExerciseVerdict, Verdict

BY_HAND, WAITS = "set by hand", "for a human"


# student -> assignment -> (mark, most); the mark is None while it waits for a human
Course = Mapping[str, Mapping[str, tuple[float | None, float]]]


@dataclass(frozen=True)
class Result:
    """One student's result: `verdict` holds the marks that count (weighted, set by hand)."""

    hand_in: HandIn
    verdict: Verdict
    observation: Observation
    by_hand: frozenset[str] = frozenset()
    late_seconds: float = 0.0
    penalty: float = 0.0
    reasons: Mapping[str, str] = field(default_factory=dict)  # what a human said, by exercise

    @property
    def student(self) -> str:
        return self.hand_in.student

    @property
    def mark(self) -> float | None:
        """The final points, never below 0; None while it waits for a human."""
        return None if self.for_human else self.so_far

    @property
    def so_far(self) -> float:
        """The mark, with nothing yet for what waits for a human."""
        return round(max(0.0, self.verdict.mark - self.penalty), 6)

    @property
    def max(self) -> float:
        return round(self.verdict.max, 6)

    @property
    def for_human(self) -> bool:
        """True if a human should look at an exercise that has no mark set by hand yet."""
        return bool(self.open)

    @property
    def open(self) -> tuple[str, ...]:
        """The exercises that wait for a human."""
        found = self.verdict.exercises
        return tuple(e.id for e in found if e.status == WAITS and e.id not in self.by_hand)

    @property
    def notes(self) -> list[str]:
        """Notes of collecting, mending and judging, and what lateness cost."""
        late = [describe_lateness(self.late_seconds, self.penalty)] if self.late_seconds else []
        why = {name: f" ({text})" for name, text in self.reasons.items()}
        by_hand = [f"{name}: {BY_HAND}{why.get(name, '')}" for name in sorted(self.by_hand)]
        asked = [self.hand_in.question] if self.hand_in.question else []
        found = [*asked, *self.hand_in.notes, *self.observation.notes, *self.verdict.notes]
        return [*dict.fromkeys([*found, *late, *by_hand])]

    def to_record(self) -> dict[str, Any]:
        """Return it as `distlab grade --json` prints it."""
        exercises = [
            {
                "id": e.id,
                "points": None if e.id in self.open else _tidy(e.points),
                "max": _tidy(e.max),
                "misconception": e.misconception,
                "message": e.message,
            }
            for e in self.verdict.exercises
        ]
        mark = None if self.mark is None else _tidy(self.mark)
        return {
            "student": self.student,
            "mark": mark,
            "max": _tidy(self.max),
            "exercises": exercises,
            "notes": self.notes,
        }


@dataclass(frozen=True)
class ClassResult:
    """The results of one lab, by student, with notes about no student."""

    lab: LabSpec
    results: tuple[Result, ...]
    policy: Policy
    notes: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()  # submitted, not selected, without a mark
    seconds: float = 0.0
    course: Course = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)  # no submission, and why
    roster: Roster = Roster()
    code_for: Callable[[str], str] = str  # the code of a student, for marking without names

    @property
    def assignment(self) -> str:
        """The gradebook's name of the lab: `lab05`, or its slug if it has known that before."""
        known = {name for marks in self.course.values() for name in marks}
        return self.lab.slug if self.lab.slug in known else self.lab.name

    def describe_times(self) -> list[str]:
        """Return, if a due date is set, the doubts about who was late: a line for each."""
        hand_ins = [r.hand_in for r in self.results if self.policy.due]
        unknown = [h for h in hand_ins if h.timestamp is None]
        late = [h.student for h in unknown if h.owner.late]
        own = sum(h.clock.endswith("student's zip") for h in hand_ins)
        lines = []
        if unknown:
            said = "submissions have no known time, so no late penalty was applied to them"
            lines.append(f"{len(unknown)} of {len(hand_ins)} {said}: give --submission-times FILE")
        if late:
            names = ", ".join(late[:10]) + ", ..." * (len(late) > 10)
            lines.append(f"{len(late)} of them are late, says the platform: {names}")
        if own:
            lines.append(
                f"{own} of {len(hand_ins)} times are from the names of students' zips, "
                "which they can change"
            )
        return lines

    @property
    def root(self) -> Path:
        """The course's folder."""
        return self.lab.source.parent.parent.parent

    @property
    def sealed(self) -> bool:
        return all(result.observation.sealed for result in self.results)

    def to_record(self) -> dict[str, Any]:
        """Return it as `distlab grade --json` prints it."""
        submissions = [result.to_record() for result in self.results]
        return {"lab": self.lab.name, "submissions": submissions, "seconds": round(self.seconds, 3)}


def _tidy(points: float) -> float:
    return int(points) if points == int(points) else round(points, 6)


def finish(
    hand_in: HandIn,
    verdict: Verdict,
    observation: Observation,
    policy: Policy,
    manual: Mapping[str, float],
    reasons: Mapping[str, str] | None = None,
) -> Result:
    """Weigh the exercises, put in what a human has set, and take off what lateness costs."""
    exercises = tuple(_finish_exercise(e, policy, manual) for e in verdict.exercises)
    counted = replace(verdict, exercises=exercises)
    late = policy.find_lateness(hand_in.student, hand_in.timestamp)
    cost = min(policy.penalty.find_points(late, counted.max), max(0.0, counted.mark))
    return Result(hand_in, counted, observation, frozenset(manual), late, cost, reasons or {})


def hold_back(hand_in: HandIn, verdict: Verdict, policy: Policy) -> Verdict:
    """Return the verdict; if the submission's owner isn't certain, all of it waits."""
    if not hand_in.question or hand_in.key in policy.confirmed:
        return verdict
    said = "your teacher has to check first whose submission this is"
    exercises = (replace(e, points=0.0, message=said, status=WAITS) for e in verdict.exercises)
    return replace(verdict, exercises=tuple(exercises))


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
