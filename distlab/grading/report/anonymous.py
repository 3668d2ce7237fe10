"""The same results without names: each student under a code that only this grading knows."""

from collections.abc import Callable
from dataclasses import replace

from distlab.grading.collect import HandIn
from distlab.grading.results import ClassResult, Result
from distlab.grading.roster import Roster
from distlab.grading.verdict import Verdict

UNSURE = "it isn't certain whose submission this is"


def anonymise(found: ClassResult, code_for: Callable[[str], str]) -> ClassResult:
    """Return `found` with codes for names, in the codes' order.

    Notes of collecting, which quote file names, are left out. The students' answers stay unchanged.
    """
    results = sorted(
        (_hide(r, code_for(r.student)) for r in found.results), key=lambda r: r.student
    )
    return replace(
        found,
        results=tuple(results),
        notes=(),
        roster=Roster(),
        course={},
        absent={},
        waiting=tuple(sorted(map(code_for, found.waiting))),
    )


def _hide(result: Result, code: str) -> Result:
    old = result.hand_in
    hand_in = HandIn(
        code,
        old.path,
        old.sha256,
        old.timestamp,
        clock=old.clock,
        problem="no notebook that can be read" if old.problem else "",
        question=UNSURE if old.question else "",
    )
    problem = hand_in.problem or result.observation.problem
    return replace(
        result,
        hand_in=hand_in,
        verdict=_hide_messages(result, code),
        observation=replace(result.observation, student=code, problem=problem),
    )


def _hide_messages(result: Result, code: str) -> Verdict:
    """Return the verdict under the code. One that never ran has messages about its file."""
    said = result.verdict.exercises
    if result.hand_in.problem:
        said = tuple(replace(e, message="no notebook that can be read") for e in said)
    return replace(result.verdict, student=code, exercises=said)
