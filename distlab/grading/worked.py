"""`python -m distlab.grading.worked lab01 …`: write what the visible checks compare with."""

import sys
from contextlib import nullcontext

from distlab.exercises.exercise import RIGHT
from distlab.exercises.worked import Worked, write_worked
from distlab.grading.judging import list_judges


def work_out_examples(lab: str) -> Worked:
    """Return what is right, and what each mistake gives, for the examples of visible checks."""
    found = {}
    for judge in list_judges(lab).values():
        number = judge.exercise.number
        for value in number.values if number else (None,):
            with number.fix(value) if number else nullcontext():
                found[judge.exercise.worked_name] = {
                    way: judge.work_out(judge.exercise.examples, way)
                    for way in (RIGHT, *judge.exercise.mistakes)
                }
    return found


if __name__ == "__main__":
    for lab in sys.argv[1:]:
        print(write_worked(lab, work_out_examples(lab)))
