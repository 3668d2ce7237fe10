"""`distlab grade`: marks, feedback and a class page from submissions."""

import argparse
import importlib.util
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distlab.class_seed import check_class_seed, use_class_seed
from distlab.cli.long_command import Progress, sigterm_interrupts
from distlab.cli.parser import Commands, add_command, declare
from distlab.errors import CourseError
from utils.checks import check_count
from utils.measure import count

if TYPE_CHECKING:
    from distlab.grading.report.changes import Change
    from distlab.grading.results import ClassResult
    from distlab.grading.roster import ByHand
    from distlab.grading.session import Settings

MAX_CHANGES = 10  # shown on the terminal
POLICY, ROSTER = "grading.toml", "students.csv"
PATHS = "submitted output gradebook roster submission_times policy extensions marks".split()
MANY = ("student", "exercise", "set", "remove")
OPTIONS = f"""
LAB  the lab to grade, such as lab05
SUBMITTED  nbgrader's submitted/STUDENT/LAB/, a folder of notebooks, or a platform's zip
files:
--output REPORT  write pages, tables and the lab's journal to this folder
--gradebook FILE  nbgrader's gradebook [gradebook.db in REPORT]
--pattern REGEX=  how files are named: moodle, canvas, or a regex with (?P<student_id>…)
--roster FILE  CSV of the class: student,name,… [{ROSTER} in this folder, if there is one]
--submission-times FILE  CSV of submission times: student,handed_in, or a grading worksheet from
    Moodle
--class-seed WORD=  the word that the class's release was made with (none: without one)
how it runs:
--jobs N={min(4, os.cpu_count() or 1)}  grade N submissions at a time [one per core, at most 4]
--no-sandbox  run answers without the sandbox; only for your own work, and the report says so
--anonymous  replace names by codes, in REPORT/LAB/anonymous; --set and --marks take codes too
--status  show the remembered options, who waits and why; grade nothing
--json  print one JSON object
due dates:
--policy FILE  due dates, penalties, extra time, weights [{POLICY} in this folder, if there is
    one]
--due TIME=  2026-11-20T23:59 (in grading.toml's zone, else UTC), or with +01:00
--penalty P=  per day or hour late: 10%%/day, 0.5/hour, or 10%%/day,50%% for at most 50%%
--extensions FILE  CSV of students with more time: student,2 days
marks:
--student ID  grade only this student
--exercise ID  change only this exercise's marks (id or number)
--rerun  run graded answers again, on other inputs
--set POINTS  set a mark by hand; grading doesn't change it (all: every exercise; auto: undo)
--marks FILE  set marks by hand from a CSV: student,exercise,points,reason
--reason TEXT=  the reason for --set, which the student reads
--allow-bonus  accept hand marks above the maximum
--restore  set the remembered hand marks in a new gradebook
--forget  forget the remembered hand marks
--remove ID  remove a student from the gradebook who has no submission and is on no list
"""


def add_parser(subparsers: Commands) -> None:
    parser = add_command(
        subparsers,
        "grade",
        run,
        "grade a lab's submissions",
        "Grade the submissions of a lab. Answers run in a sandbox. Marks go into nbgrader's "
        "gradebook, feedback pages and a table into a folder. You can stop it at any moment, and "
        "the same command continues. The exit status is 1 if a submission waits for you.",
    )
    more: dict[str, dict[str, Any]] = {name: {"type": Path} for name in PATHS}
    more["output"]["default"] = Path("grades")
    more["submitted"]["nargs"] = "?"
    more |= {name: {"action": "append", "default": []} for name in MANY}
    more["set"] |= {"nargs": 3, "metavar": ("STUDENT", "EXERCISE", "POINTS")}
    declare(parser, OPTIONS, **more)


def run(arguments: argparse.Namespace) -> int:
    """Grade, write the report, say where it is. Return 1 if something waits for a human."""
    if importlib.util.find_spec("nbgrader") is None:  # the gradebook is nbgrader's
        raise CourseError("Grading needs nbgrader. Run: make teach, or pip install -e '.[teach]'")
    for name, value in vars(arguments).items():  # the grading's processes work in other folders
        if isinstance(value, Path):
            setattr(arguments, name, value.absolute())
    remembered = _recall(arguments)
    if arguments.status:
        return _show_status(arguments, remembered)
    with use_class_seed(arguments.class_seed and check_class_seed(arguments.class_seed)):
        return _grade_and_report(arguments, remembered)


def _grade_and_report(arguments: argparse.Namespace, remembered: list[str]) -> int:
    """Grade the lab as the class got it."""
    settings = _read_settings(arguments)
    found = _grade(settings, arguments.json)
    if found is None:
        return 130
    changes = []
    if arguments.anonymous:
        found, settings = _write_without_names(found, settings)
    else:
        changes = _write_report(found, settings, arguments)
    if arguments.json:
        print(json.dumps(found.to_record()))
    else:
        if remembered:
            print(f"remembered from the last grading: {_clean(', '.join(remembered))}")
        _describe(found, settings)
        _describe_changes(found, changes)
    return int(any(result.for_human for result in found.results))


def _find_journal(arguments: argparse.Namespace) -> Path:
    from distlab.grading.labs import read_lab

    return arguments.output / read_lab(arguments.lab).name / "journal"


def _recall(arguments: argparse.Namespace) -> list[str]:
    """Fill in what the lab remembers, then the usual files; return what was remembered."""
    from distlab.grading.memory import fill_in, read_rules

    used = fill_in(vars(arguments), read_rules(_find_journal(arguments)))
    arguments.policy = _find(arguments.policy, POLICY)
    arguments.roster = _find(arguments.roster, ROSTER)
    if arguments.submitted is None and not arguments.status:
        raise CourseError(
            "SUBMITTED is missing: the lab wasn't graded before. Give a folder or zip."
        )
    if arguments.restore and arguments.forget:
        raise CourseError("--restore and --forget can't be given together. Choose one.")
    return used


def _show_status(arguments: argparse.Namespace, remembered: "list[str]") -> int:
    """Print what the lab remembers and who waits; return 1 if someone does."""
    from distlab.grading.memory import describe_waiting
    from distlab.grading.roster import read_table

    marks = _find_journal(arguments).parent / "marks.csv"
    if not marks.is_file():
        raise CourseError(f"{marks.parent}: this lab wasn't graded yet. Grade it first.")
    waiting = describe_waiting([row for _, row in read_table(marks)])
    print(
        "\n".join(
            [
                *(f"remembered  {_clean(text)}" for text in remembered),
                *(f"no mark     {_clean(line)}" for line in waiting),
            ]
        )
    )
    return int(bool(waiting))


def _write_without_names(
    found: "ClassResult", settings: "Settings"
) -> "tuple[ClassResult, Settings]":
    """Write the pages under codes, into their own folder. Return the results, and the folder."""
    from distlab.grading.report.anonymous import anonymise
    from distlab.grading.report.pages import write_report

    found = anonymise(found, found.code_for)
    settings = replace(settings, out=settings.out / "anonymous")
    write_report(found, settings.out)
    return found, settings


def _write_report(
    found: "ClassResult", settings: "Settings", arguments: argparse.Namespace
) -> "list[Change]":
    """Write the pages of the lab and of the course. Return what changed since the last time."""
    from distlab.grading.policy import read_policy
    from distlab.grading.report.autograded import is_course
    from distlab.grading.report.changes import note_changes
    from distlab.grading.report.course import list_labs, write_course
    from distlab.grading.report.pages import write_report

    changes = note_changes(found, settings.out)
    book = settings.gradebook.resolve().parent
    write_report(found, settings.out, book if is_course(book) else None, changes)
    rules = arguments.policy
    policies = {lab: read_policy(rules, lab.partition("-")[0]) for lab in list_labs(found.course)}
    write_course(arguments.output, found.course, policies, found.roster)
    return changes


def _grade(settings: "Settings", quiet: bool) -> "ClassResult | None":
    """Grade and show how far it is; None, and a line that says so, if it was stopped."""
    progress = Progress(f"distlab grade {settings.lab.name}", 0, "submission", quiet=quiet)

    def show(done: int, total: int) -> None:
        progress.total = total
        progress.show(done)

    try:
        from distlab.grading.session import grade

        with sigterm_interrupts():
            return grade(settings, show)
    except KeyboardInterrupt:
        progress.close()
        done, total = progress.done, progress.total
        kept = f"{done} of {total} are kept" if total else "nothing was run yet"
        print(f"distlab grade: stopped: {kept}; run the same command to continue", file=sys.stderr)
        return None
    finally:
        progress.close()


def _read_settings(arguments: argparse.Namespace) -> "Settings":
    from distlab.authoring.sources import find_root
    from distlab.grading.labs import list_labs, read_lab
    from distlab.grading.memory import list_rules
    from distlab.grading.policy import override, read_policy
    from distlab.grading.roster import read_roster
    from distlab.grading.session import Settings

    check_count("--jobs", arguments.jobs)
    lab = read_lab(arguments.lab)
    labs = list_labs(find_root(Path.cwd()))
    policy = read_policy(arguments.policy, lab.name, labs)
    ids = {str(e.number): e.id for e in lab.exercises}
    return Settings(
        lab=lab,
        source=arguments.submitted,
        out=arguments.output / lab.name,
        gradebook=_find_gradebook(arguments),
        policy=override(policy, arguments.due, arguments.penalty, arguments.extensions),
        pattern=arguments.pattern,
        jobs=arguments.jobs,
        sealed=not arguments.no_sandbox,
        again=arguments.rerun,
        students=tuple(arguments.student),
        exercises=tuple(ids.get(name, name) for name in arguments.exercise),
        by_hand=_read_marks(arguments),
        above_maximum=arguments.allow_bonus,
        roster=read_roster(arguments.roster),
        times=arguments.submission_times,
        rules=list_rules(vars(arguments)),
        kept_marks="restore" * arguments.restore + "forget" * arguments.forget,
        remove=tuple(arguments.remove),
    )


def _find(given: Path | None, usual: str) -> Path | None:
    """Return the given file, or the usual one if it is here."""
    return given or (Path(usual).absolute() if Path(usual).is_file() else None)


def _read_marks(arguments: argparse.Namespace) -> "tuple[tuple[str, ByHand], ...]":
    from distlab.grading.roster import ByHand, parse_points, read_marks

    listed = read_marks(arguments.marks) if arguments.marks else []
    try:
        single = [
            (student, ByHand(exercise, parse_points(text), arguments.reason))
            for student, exercise, text in arguments.set
        ]
    except CourseError as error:
        raise CourseError(f"--set: {error}") from None
    return (*listed, *single)


def _find_gradebook(arguments: argparse.Namespace) -> Path:
    return arguments.gradebook or arguments.output / "gradebook.db"


def _describe(found: "ClassResult", settings: "Settings") -> None:
    marks = [result.mark for result in found.results if result.mark is not None]
    most = max((result.max for result in found.results), default=0.0)
    mean = f", {sum(marks) / len(marks):.2f} of {most:g} points on average" if marks else ""
    print(f"{found.lab.name}: {len(found.results)} graded in {found.seconds:.1f} s{mean}")
    for result in found.results:
        if result.student in settings.students:
            mark = "waits for a human" if result.mark is None else f"{result.mark:g} points"
            print(f"{_clean(found.roster.show(result.student))}: {mark}")
    human = sum(result.for_human for result in found.results)
    for said, number in {
        "for a human, without a mark yet": human,
        "handed in, not graded yet": len(found.waiting),
        "nothing submitted": len(found.absent),
    }.items():
        if number:
            print(f"{said}: {count(number, 'student')}")
    if due := settings.policy.due:
        print(f"due         {settings.policy.show_time(due)}")
    for line in found.describe_times():
        print(f"TIMES: {_clean(line)}")
    if not found.sealed:
        print("run without the sandbox: these marks are for practice only")
    for what, name in (
        ("class page", "class.html"),
        ("marks", "marks.csv"),
        ("feedback", "feedback"),
    ):
        print(f"{what:<10}  {settings.out / name}")
    print(f"gradebook   {settings.gradebook}")
    for note in found.notes:
        print(f"note: {_clean(note)}")


def _describe_changes(found: "ClassResult", changes: "list[Change]") -> None:
    if changes:
        print(f"{count(len(changes), 'mark')} changed since the last grading (all: changes.csv)")
    for change in changes[:MAX_CHANGES]:
        print(f"  {_clean(found.roster.show(change.student))}: {_clean(change.describe())}")


def _clean(text: str) -> str:
    from distlab.grading.text import clean_line

    return clean_line(text)
