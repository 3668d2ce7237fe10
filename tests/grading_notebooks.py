"""Hand-ins made for tests: lab 01 with given answers, and cells of one's own around them."""

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab_runner import load_answers

from distlab.grading.labs import LabSpec, read_lab
from distlab.grading.verdict import ExerciseVerdict, Verdict

ROOT = Path(__file__).resolve().parents[1]
LAB = read_lab("lab01", ROOT)
ANSWERS = load_answers("lab01")
RIGHT = {name: answers[0] for name, answers in ANSWERS.RIGHT.items()}
WRONG = {name: next(iter(answers.values())) for name, answers in ANSWERS.WRONG.items()}


def read_stub(lab: LabSpec = LAB) -> dict[str, Any]:
    notebook = json.loads((ROOT / "labs" / f"{lab.slug}.ipynb").read_text())
    for cell in notebook["cells"]:
        cell["source"] = "".join(cell["source"])
    return notebook


def make_code(text: str) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "source": text,
        "metadata": {},
        "outputs": [],
        "execution_count": None,
        "id": f"own-{abs(hash(text)) % 10**9}",
    }


def fill(
    answers: dict[str, str],
    before: tuple[str, ...] = (),
    after: tuple[str, ...] = (),
    stub: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the lab with `answers` in its answer cells, and cells before and after everything."""
    notebook = copy.deepcopy(stub or read_stub())
    for cell in notebook["cells"]:
        name = cell["metadata"].get("nbgrader", {}).get("grade_id")
        if name in answers:
            cell["source"] = answers[name]
    cells = notebook["cells"]
    notebook["cells"] = [*map(make_code, before), *cells, *map(make_code, after)]
    return notebook


def make_verdict(
    lab: LabSpec,
    student: str,
    said: Mapping[str, Any] | None = None,
    message: str = "",
    status: str = "",
) -> Verdict:
    """Return a verdict of full marks but where something is `said` of an exercise.

    That's its points, None for one that waits, or (points, misconception, message, status, …).
    """
    exercises = []
    for one in lab.exercises:
        told = (said or {}).get(one.id, (one.points, "", message, status or "right"))
        if told is None:
            told = (0.0, "", "", "for a human")
        if not isinstance(told, tuple):
            told = (told, "", message, status or "wrong")
        exercises.append(ExerciseVerdict(one.id, told[0], one.points, *told[1:]))
    return Verdict(student, lab.name, tuple(exercises))


def write(notebook: dict[str, Any], path: Path) -> Path:
    path.write_text(json.dumps(notebook))
    return path
