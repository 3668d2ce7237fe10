"""`distlab release`: what students get, and an nbgrader course for the teacher."""

import argparse
import importlib.util
import signal
from pathlib import Path

from distlab.cli.parser import Commands
from distlab.errors import CourseError


def add_parser(subparsers: Commands) -> None:
    parser = subparsers.add_parser(
        "release",
        help="make what students get, and an nbgrader course",
        description="Write DIR/students (the course without solutions, hidden tests and judges; "
        "it works by itself) and DIR/nbgrader (a course that nbgrader and formgrader open).",
    )
    text = "a folder that is empty or not there yet"
    parser.add_argument("folder", metavar="DIR", type=Path, help=text)
    text = "only these: lab01 lab05 … (all)"
    parser.add_argument("--labs", metavar="LAB", nargs="+", default=[], help=text)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Make the release and say what is in it; return 0."""
    if importlib.util.find_spec("nbgrader") is None:  # the gradebook is nbgrader's
        raise CourseError("releasing needs nbgrader: pip install -e '.[lab,test]'")
    from distlab.authoring.sources import find_root
    from distlab.grading.release import make_release

    before = signal.signal(signal.SIGTERM, _interrupt)  # so that nothing half made stays
    try:
        made = make_release(find_root(Path.cwd()), arguments.folder, arguments.labs)
    finally:
        signal.signal(signal.SIGTERM, before)
    labs = ", ".join(slug.partition("-")[0] for slug in made.labs)
    print(f"students  {made.students}: {made.lessons} lessons, {len(made.labs)} labs ({labs})")
    print(f"nbgrader  {made.nbgrader}: {len(made.labs)} assignments, with solutions: keep it")
    return 0


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt
