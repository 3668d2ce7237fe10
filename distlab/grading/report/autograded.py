"""nbgrader's autograded notebooks, so that formgrader and `generate_feedback` show each answer.

They are put together from the course's own notebook: they take only the exercises' code from the
student's file, and none of it has run or been rendered here. There are no hidden tests in them,
which nbgrader's feedback pages would show.
"""

import secrets
from pathlib import Path
from typing import Any

from distlab.authoring import sources
from distlab.grading.report.text import write_if_new
from distlab.grading.results import ClassResult, Result
from distlab.grading.text import clean

SECRET, MAX_SECRET = "submission_secret.txt", 1024


def is_course(folder: Path) -> bool:
    """Return whether `folder` is an nbgrader course: formgrader looks for notebooks there."""
    return (folder / "nbgrader_config.py").is_file() or (folder / "source").is_dir()


def write_autograded(
    found: ClassResult, answers: dict[str, dict[str, str]], course: Path
) -> list[Path]:
    """Write `autograded/STUDENT/LAB/NOTEBOOK.ipynb` for each result into `course`.

    Next to it are the files that `nbgrader release_feedback` needs for every student.
    """
    target = sources.Target(found.lab.source, found.lab.source.with_suffix(".ipynb"), None)
    plain = sources.make_lab(sources.read_source(target))
    paths = []
    for result in found.results:
        folder = course / "autograded" / result.student / found.assignment
        text = sources.to_text(fill_in(plain, result, answers.get(result.student, {})))
        write_if_new(folder / f"{found.lab.slug}.ipynb", text)
        paths.append(folder / f"{found.lab.slug}.ipynb")
        stamp = result.hand_in.timestamp
        write_if_new(folder / "timestamp.txt", f"{stamp.isoformat(' ')} UTC" if stamp else "")
        if secret := _find_secret(result, folder / SECRET):
            write_if_new(folder / SECRET, secret)
    return paths


def _find_secret(result: Result, kept: Path) -> str:
    """Return what names a student's feedback in the exchange: nbgrader's own, else a new one."""
    handed_in = result.hand_in.path
    own = handed_in.with_name(SECRET) if handed_in else None
    if own and own.is_file() and not own.is_symlink() and own.stat().st_size <= MAX_SECRET:
        return own.read_text(errors="replace")
    return "" if kept.exists() else secrets.token_hex(64)


def fill_in(plain: Any, result: Result, answers: dict[str, str]) -> Any:
    """Return the lab's notebook with a student's answers and their messages."""
    import copy

    notebook = copy.deepcopy(plain)
    said = {verdict.id: verdict for verdict in result.verdict.exercises}
    exercise = ""
    for cell in notebook.cells:
        role = cell.metadata.get("nbgrader", {})
        if role.get("solution"):
            exercise = role["grade_id"]
            cell.source = clean(answers.get(exercise, "# no answer was found"))
        elif role.get("grade") and exercise in said and said[exercise].message:
            text = clean(said[exercise].message, 4000) + "\n"
            cell.outputs = [{"output_type": "stream", "name": "stdout", "text": text}]
    return notebook
