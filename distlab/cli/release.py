"""`distlab release`: what students get, and an nbgrader course for the teacher."""

import argparse
import importlib.util
from pathlib import Path

from distlab.class_seed import check_class_seed, use_class_seed
from distlab.cli.long_command import sigterm_interrupts
from distlab.cli.parser import Commands, add_command, declare
from distlab.errors import CourseError

OPTIONS = """
FOLDER  an empty or new folder
--labs LAB  release only these labs, such as lab01 lab05 [all]
--class-seed WORD=  draw the labs' inputs, functions' names and some numbers anew; grade with the
    same WORD
"""


def add_parser(subparsers: Commands) -> None:
    parser = add_command(
        subparsers,
        "release",
        run,
        "write the students' copy and an nbgrader course",
        "Write DIR/students, a complete course without solutions, hidden tests and judges, "
        "and DIR/nbgrader, a course that nbgrader and formgrader open.",
    )
    more = {"folder": {"type": Path, "metavar": "DIR"}, "labs": {"nargs": "+", "default": []}}
    declare(parser, OPTIONS, **more)


def run(arguments: argparse.Namespace) -> int:
    """Make the release and say what is in it; return 0."""
    if importlib.util.find_spec("nbgrader") is None:  # the gradebook is nbgrader's
        raise CourseError("Releasing needs nbgrader. Run: make teach, or pip install -e '.[teach]'")
    from distlab.authoring.sources import find_root
    from distlab.grading.release import make_release

    word = arguments.class_seed and check_class_seed(arguments.class_seed)
    with sigterm_interrupts(), use_class_seed(word):  # so that nothing half made stays
        made = make_release(find_root(Path.cwd()), arguments.folder, arguments.labs)
    labs = ", ".join(slug.partition("-")[0] for slug in made.labs)
    print(f"students  {made.students}: {made.lessons} lessons, {len(made.labs)} labs ({labs})")
    if word:
        print(f"class     {word}: grade with distlab grade LAB SUBMITTED --class-seed {word}")
    print(f"nbgrader  {made.nbgrader}: {len(made.labs)} assignments, with solutions: keep it")
    return 0
