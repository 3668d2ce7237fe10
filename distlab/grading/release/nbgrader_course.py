"""An nbgrader course of the chosen labs, as `nbgrader` and formgrader open it.

https://nbgrader.readthedocs.io/en/stable/user_guide/creating_and_grading_assignments.html
https://nbgrader.readthedocs.io/en/stable/configuration/config_options.html
"""

from collections.abc import Sequence
from pathlib import Path

from distlab.authoring.sources import STUB, Target, read_source, to_text
from distlab.class_seed import VARIABLE, read_class_seed
from distlab.grading.gradebook import Book
from distlab.grading.labs import read_lab

COURSE_ID = "distributed-training-lab"
CELL_SECONDS = 300  # nbgrader gives a cell 30 s; the first one imports TensorFlow
CONFIG = f'''"""Settings of nbgrader for this course: run it here, in the course's environment."""

c = get_config()  # noqa: F821
c.CourseDirectory.course_id = {COURSE_ID!r}
c.ClearSolutions.begin_solution_delimeter = "### BEGIN SOLUTION"
c.ClearSolutions.end_solution_delimeter = "### END SOLUTION"
c.ClearSolutions.code_stub = {{"python": {STUB!r}}}
c.ClearHiddenTests.begin_test_delimeter = "### BEGIN HIDDEN TESTS"
c.ClearHiddenTests.end_test_delimeter = "### END HIDDEN TESTS"
c.Execute.timeout = {CELL_SECONDS}  # seconds a cell
'''


def write_nbgrader_course(root: Path, folder: Path, labs: Sequence[Target]) -> None:
    """Write the course's configuration, `source/LAB/LAB.ipynb` for each lab, and the gradebook.

    LAB is the lab's slug, as in the zip that `distlab submit` packs; the notebooks are
    not executed.
    """
    folder.mkdir(parents=True)
    word = read_class_seed()
    config = CONFIG + (f"\nimport os\n\nos.environ[{VARIABLE!r}] = {word!r}\n" if word else "")
    (folder / "nbgrader_config.py").write_text(config, encoding="utf-8")
    for lab in labs:
        notebook = read_source(lab)
        notebook.metadata.pop("distlab", None)
        place = folder / "source" / lab.slug
        place.mkdir(parents=True)
        (place / f"{lab.slug}.ipynb").write_text(to_text(notebook), encoding="utf-8")
    _write_gradebook(root, folder / "gradebook.db", labs)


def _write_gradebook(root: Path, path: Path, labs: Sequence[Target]) -> None:
    """Make the gradebook, which knows each lab by its slug: `distlab grade` keeps to that name."""
    from nbgrader.api import Gradebook

    with Book(path, read_lab(labs[0].slug, root)):
        pass  # made as `distlab grade` makes it
    with Gradebook(f"sqlite:///{path}") as gradebook:
        for lab in labs:
            gradebook.add_assignment(lab.slug)
        gradebook.engine.dispose()
    path.with_name(path.name + ".lock").unlink(missing_ok=True)
