"""Stock nbgrader on labs of released courses, in processes of its own: writes each found.json.

`python nbgrader_worker.py '[[COURSE, GRADED, LABS], …]'`: generates each assignment of LABS; of
those in GRADED, hands in the solution as the student `solution`, of the first one also what was
generated as `stub`, autogrades them, and reads the gradebook. It goes through
`nbgrader.apps.NbGraderAPI`, as formgrader's buttons do.
"""

import json
import os
import shutil
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distlab.submission import list_attached

STUDENTS = {"solution": "source", "stub": "release"}  # and the folder of what each hands in


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


def hand_in(course: Path, lab: str, student: str) -> None:
    folder = course / "submitted" / student / lab
    folder.mkdir(parents=True)
    shutil.copy(course / STUDENTS[student] / lab / f"{lab}.ipynb", folder)
    for name in list_attached(lab) if student == "solution" else ():
        shutil.copy(Path(__file__).parents[1] / "solutions" / name, folder)


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


def grade(api: Any, course: Path, lab: str, students: Sequence[str]) -> dict[str, Any]:
    """Return what nbgrader did: success and log of each step, scores of each student's cells."""
    steps = {"generate": api.generate_assignment(lab)}
    for student in students if steps["generate"]["success"] else ():
        hand_in(course, lab, student)
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
    raised = {student: read_errors(course, lab, student) for student in students}
    logs = {name: step.get("log", "") + step.get("error", "") for name, step in steps.items()}
    done = {name: step["success"] for name, step in steps.items()}
    return {"done": done, "logs": logs, "scores": scores, "raised": raised}


def main(course: Path, graded: Sequence[str], labs: Sequence[str]) -> None:
    api = open_course(course)
    students = {lab: list(STUDENTS)[: 2 - bool(place)] for place, lab in enumerate(graded)}
    found = {lab: grade(api, course, lab, students.get(lab, ())) for lab in labs}
    listed = [row["name"] for row in api.get_assignments()]
    (course / "found.json").write_text(json.dumps({"labs": found, "listed": listed}))


def main_of_all(jobs: Sequence[Sequence[Any]]) -> None:
    """Do each job in a fork of this process, which has imported nbgrader; all at once."""
    import nbgrader.apps  # noqa: F401

    forks = [fork(job) for job in jobs]
    ends = [os.waitpid(fork, 0)[1] for fork in forks]
    assert not any(ends), ends


def fork(job: Sequence[Any]) -> int:
    if number := os.fork():
        return number
    status = 1
    try:
        main(Path(job[0]).resolve(), *job[1:])
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    main_of_all(json.loads(sys.argv[1]))
