"""Stock nbgrader on one lab of a released course, in a process of its own: prints one JSON object.

`python nbgrader_worker.py COURSE LAB`: generates the assignment, hands in its solution as the
student `solution` and what was generated as `stub`, autogrades both, and reads the gradebook.
It goes through `nbgrader.apps.NbGraderAPI`, which formgrader calls for the same buttons.
"""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

STUDENTS = ("solution", "stub")


def open_course(course: Path) -> Any:
    """Return nbgrader's API on `course`, with the course's own configuration."""
    os.chdir(course)
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    from nbgrader.apps import NbGrader, NbGraderAPI
    from nbgrader.coursedir import CourseDirectory

    application = NbGrader()
    application.initialize([])
    application.config.CourseDirectory.root = str(course)
    return NbGraderAPI(CourseDirectory(config=application.config), config=application.config)


def hand_in(course: Path, lab: str) -> None:
    for student, source in zip(STUDENTS, ("source", "release")):
        folder = course / "submitted" / student / lab
        folder.mkdir(parents=True)
        shutil.copy(course / source / lab / f"{lab}.ipynb", folder)


def read_errors(course: Path, lab: str, student: str) -> dict[str, list[str]]:
    """Return the names of the errors that each graded cell raised when nbgrader ran it."""
    path = course / "autograded" / student / lab / f"{lab}.ipynb"
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return {
        cell["metadata"]["nbgrader"]["grade_id"]: [
            output["ename"] for output in cell["outputs"] if output["output_type"] == "error"
        ]
        for cell in cells
        if cell["metadata"].get("nbgrader", {}).get("grade")
    }


def grade(course: Path, lab: str) -> dict[str, Any]:
    """Return what nbgrader did: success and log of each step, scores of each student's cells."""
    api = open_course(course)
    steps = {"generate": api.generate_assignment(lab)}
    if steps["generate"]["success"]:
        hand_in(course, lab)
        for student in STUDENTS:
            steps[student] = api.autograde(lab, student)
    with api.gradebook as gradebook:
        assignment = gradebook.find_assignment(lab)
        scores = {
            submission.student_id: {
                grade.name: [grade.score, grade.max_score]
                for notebook in submission.notebooks
                for grade in notebook.grades
            }
            for submission in assignment.submissions
        }
    raised = {student: read_errors(course, lab, student) for student in STUDENTS}
    listed = [row["name"] for row in api.get_assignments()]
    logs = {name: step.get("log", "") + step.get("error", "") for name, step in steps.items()}
    done = {name: step["success"] for name, step in steps.items()}
    return {"done": done, "logs": logs, "scores": scores, "raised": raised, "listed": listed}


if __name__ == "__main__":
    found = grade(Path(sys.argv[1]).resolve(), sys.argv[2])
    Path(sys.argv[3]).write_text(json.dumps(found))
