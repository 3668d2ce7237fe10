"""The pages of one lab: one for each student, one for the class, and the marks as a table.

Nothing of what students wrote is HTML here: the templates escape all of it, and a
policy in each page forbids whatever might run or load.
"""

import base64
import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from distlab.grading.report.answers import read_answers
from distlab.grading.report.changes import Change
from distlab.grading.report.platforms import write_for_platforms
from distlab.grading.report.tasks import read_tasks
from distlab.grading.report.text import to_cell, to_csv, write_if_new
from distlab.grading.report.wording import find_kind, page_name, show_points, split_message
from distlab.grading.results import ClassResult, Result, describe_lateness
from distlab.grading.text import clean, clean_line
from distlab.grading.verdict import ExerciseVerdict

STATES = {"right": "Right", "wrong": "Not right yet", "human": "A teacher will look at this"}


@cache
def _environment() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    folder = Path(__file__).with_name("templates")
    return Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )


def render(template: str, values: Mapping[str, Any]) -> str:
    """Return a page: every value is escaped but `markupsafe.Markup`."""
    from markupsafe import Markup

    style = Markup(Path(__file__).with_name("pages.css").read_text(encoding="utf-8"))
    return _environment().get_template(template).render(style=style, **values)


def allow_script(name: str) -> dict[str, Any]:
    """Return the values for a page that runs our one script: its policy names the digest."""
    from markupsafe import Markup

    script = Path(__file__).with_name(name).read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return {"script": Markup(script), "digest": digest}


def write_report(
    found: ClassResult, folder: Path, course: Path | None = None, changes: Sequence[Change] = ()
) -> list[Path]:
    """Write the pages and tables of one lab into `folder`; return their paths.

    class.html for the teacher, room.html with slides for the room, marks.csv, a page for
    each student, and what Moodle and Canvas take in. `course` is an nbgrader course that
    gets autograded notebooks too. Unchanged files aren't written again.
    """
    from distlab.grading.report.autograded import write_autograded
    from distlab.grading.report.classroom import describe_class
    from distlab.grading.report.slides import describe_slides

    tasks = read_tasks(found.lab)
    answers = {r.student: read_answers(r.hand_in.path, found.lab) for r in found.results}
    pages = {r.student: render_feedback(found, r, tasks, answers[r.student]) for r in found.results}
    values = describe_class(found, tasks, answers, changes)
    values["course"] = os.path.relpath(found.root, folder)
    texts = {folder / "feedback" / page_name(student): text for student, text in pages.items()}
    texts[folder / "class.html"] = render("class.html", values)
    slides = describe_slides(found, tasks, answers, values["misconceptions"])
    room = {name: values[name] for name in ("lab", "course", "lessons")} | {"slides": slides}
    texts[folder / "room.html"] = render("room.html", room | allow_script("room.js"))
    texts[folder / "marks.csv"] = make_csv(found)
    for path, text in texts.items():
        write_if_new(path, text)
    more = write_autograded(found, answers, course) if course else []
    return [*texts, *write_for_platforms(found, folder, pages), *more]


def render_feedback(
    found: ClassResult, result: Result, tasks: Mapping[str, Any], answers: Mapping[str, str]
) -> str:
    """Return one student's page."""
    stamp = result.hand_in.timestamp
    late = describe_lateness(result.late_seconds, result.penalty) if result.late_seconds else ""
    return render(
        "feedback.html",
        {
            "lab": found.lab,
            "student": clean_line(result.student),
            "name": clean_line(found.roster.show(result.student)),
            "timestamp": found.policy.show_time(stamp) if stamp else "",
            "mark": show_points(result.so_far)
            if len(result.open) < len(found.lab.exercises)
            else "",
            "max": show_points(result.max),
            "lateness": late,
            "sealed": result.observation.sealed,
            "open": result.for_human,
            "problem": clean_line(result.observation.problem).rstrip("."),
            "exercises": [_describe(result, e, tasks, answers) for e in _pair(found, result)],
            "notes": [
                clean_line(note) for note in (*result.hand_in.notes, *result.observation.notes)
            ],
        },
    )


def _pair(found: ClassResult, result: Result) -> Iterable[tuple[Any, ExerciseVerdict]]:
    said = {verdict.id: verdict for verdict in result.verdict.exercises}
    return [(e, said[e.id]) for e in found.lab.exercises if e.id in said]


def _describe(
    result: Result,
    pair: tuple[Any, ExerciseVerdict],
    tasks: Mapping[str, Any],
    answers: Mapping[str, str],
) -> dict[str, Any]:
    from markupsafe import Markup

    exercise, verdict = pair
    ids = {cell.id for cell in exercise.cells}
    seen = [cell for cell in result.observation.cells if cell.id in ids]
    message = clean(verdict.message, 4000)
    parts = split_message(message) if verdict.status == "wrong" else None
    task, kind = tasks[exercise.id], find_kind(verdict, exercise.id in result.by_hand)
    return {
        "id": exercise.id,
        "number": exercise.number,
        "title": exercise.title,
        "kind": kind,
        "state": STATES[kind],
        "by_hand": exercise.id in result.by_hand,
        "points": "" if verdict.id in result.open else show_points(verdict.points),
        "max": show_points(verdict.max),
        "reason": clean(result.reasons.get(exercise.id, ""), 4000),
        "message": message,
        "misconception": clean_line(verdict.misconception),
        "parts": parts or None,
        "table": verdict.table and _clean_table(verdict.table),
        "asked": Markup(task.asked),
        "hints": [(t, Markup(text)) for t, text in task.hints],
        "answer": clean(answers.get(exercise.id, "")),
        "trace": clean("\n".join(c.trace for c in seen if c.trace), 4000),
        "output": clean("\n".join(c.output + c.errors for c in seen if c.output + c.errors), 4000),
    }


def _clean_table(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return an `AnswerTable` as the page shows it, its texts without control characters."""
    return {
        "caption": clean_line(table["caption"]),
        "columns": [clean_line(head) for head in table["columns"]],
        "names": [clean_line(name) for name in table["names"]],
        "rows": [[clean_line(cell) for cell in row] for row in table["rows"]],
        "marked": table["marked"],
    }


def make_csv(found: ClassResult) -> str:
    """Return a line for each student, a column for each exercise; waiting marks are blank."""
    exercises = [exercise.id for exercise in found.lab.exercises]
    head = "student name handed_in_utc time_from".split()
    tail = "late_penalty mark max set_by_hand for_a_human sealed notes".split()
    rows = [[*head, *exercises, *tail]]
    for result in found.results:
        points = {e.id: e.points for e in result.verdict.exercises if e.id not in result.open}
        stamp = result.hand_in.timestamp
        rows.append(
            [
                to_cell(result.student),
                to_cell(found.roster.show(result.student)),
                stamp.isoformat(" ") if stamp else "",
                result.hand_in.clock,
                *(show_points(points.get(name)) for name in exercises),
                show_points(result.penalty),
                show_points(result.mark),
                show_points(result.max),
                " ".join(sorted(result.by_hand)),
                "yes" if result.for_human else "no",
                "yes" if result.observation.sealed else "no",
                to_cell("; ".join(result.notes)),
            ]
        )
    without = {**dict.fromkeys(found.waiting, "handed in, not graded yet"), **found.absent}
    for student, why in without.items():
        named = [to_cell(student), to_cell(found.roster.show(student))]
        rows.append([*named, *[""] * (len(exercises) + 8), to_cell(why)])
    return to_csv(rows)
