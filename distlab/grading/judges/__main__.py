"""`python -m distlab.grading.judges lab01 …`: write what the visible checks compare with."""

import sys

from distlab.exercises.worked import write_worked
from distlab.grading.judging import work_out_examples

if __name__ == "__main__":
    for lab in sys.argv[1:]:
        print(write_worked(lab, work_out_examples(lab)))
