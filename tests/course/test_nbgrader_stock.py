"""Stock nbgrader grades labs of the release: the solution in full, the stub with nothing.

It generates every lab, and grades those of `GRADED`, or all under `make test-all`.
(Every solution with its hidden tests runs in CI: nbval does
that.) Two workers take a half of the labs each, in a course folder and a database of their own.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
import pytest
from child_programs import run_python
from lab_runner import LABS, get_lab
from nbgrader.api import Gradebook
from needs import EVERYTHING

from distlab.authoring import sources
from distlab.class_seed import use_class_seed
from distlab.grading.executor import observe
from distlab.grading.judge_process import JudgeProcess
from distlab.grading.labs import LabSpec, read_lab
from distlab.grading.observation import Submission
from distlab.grading.release.nbgrader_course import write_nbgrader_course
from distlab.submission import list_attached
from utils.tf_config import pick_free_ports

ROOT = Path(__file__).resolve().parents[2]
WORKER = ROOT / "tests" / "nbgrader_worker.py"
AT_ONCE, LAB_SECONDS = 2, 900
BOTH_WAYS = [t.slug[:5] for t in LABS] if EVERYTHING else ["lab07"]
# plain Python, words, several processes, a custom loop; the first two's stubs, too
GRADED = ("lab01", "lab07", "lab08", "lab04", *BOTH_WAYS)
EXTENSIONS = {"nbgrader.server_extensions.formgrader": True}
SLUGS = [t.slug for t in LABS]
WORD = "autumn26"  # the class seed of the second worker's labs, lab04 among them
pytestmark = pytest.mark.timeout(len(LABS) * LAB_SECONDS)


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The half of a release that is nbgrader's: test_release makes the whole."""
    return write_course(tmp_path_factory.mktemp("stock"))


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with use_class_seed(WORD):
        return write_course(tmp_path_factory.mktemp("drawn"))


def write_course(folder: Path) -> Path:
    write_nbgrader_course(ROOT, folder / "course", LABS)
    return folder / "course"


def is_graded(slug: str) -> bool:
    return slug.split("-")[0] in GRADED


def prepare(course: Path, labs: list[str]) -> Path:
    """Return a course folder of these labs alone."""
    own = course.parent / labs[0]
    own.mkdir()
    shutil.copy(course / "nbgrader_config.py", own)
    for lab in labs:
        shutil.copytree(course / "source" / lab, own / "source" / lab)
    return own


@pytest.fixture(scope="module")
def found(request: pytest.FixtureRequest) -> dict[str, dict[str, Any]]:
    """What a worker found of each lab; there are two at once, for a part of the labs each.

    The second one's are as a class seed draws them. Of the labs, those that a chosen test names.
    """
    names = [item.name for item in request.session.items if item.path == Path(__file__)]
    slugs = [slug for slug in SLUGS if any(f"[{slug[:5]}" in name for name in names)]
    slugs.sort(key=find_place)
    parts = [slugs[k::AT_ONCE] for k in range(min(AT_ONCE, len(slugs)))]
    assert len(slugs) < len(SLUGS) or "lab04-custom-training-loop" in parts[1]
    courses = [request.getfixturevalue(name) for name in ("course", "drawn")[: len(parts)]]
    folders = [prepare(*given) for given in zip(courses, parts)]
    jobs = [(str(own), list(filter(is_graded, part)), part) for own, part in zip(folders, parts)]
    run_python(WORKER, json.dumps(jobs), timeout=len(slugs) * LAB_SECONDS, status=0)
    told = [{"folder": own, **json.loads((own / "found.json").read_text())} for own in folders]
    return {lab: one for part, one in zip(parts, told) for lab in part}


def find_place(slug: str) -> int:
    """Return its place in `GRADED`, so that each worker has a half of those; others come last."""
    name = slug.split("-")[0]
    return GRADED.index(name) if name in GRADED else len(GRADED)


def get_word(folder: Path) -> str:
    """Return the class seed of a worker's folder."""
    return WORD if WORD in (folder / "nbgrader_config.py").read_text() else ""


@pytest.fixture
def graded(request: pytest.FixtureRequest, found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    told = found[request.param]
    return {"lab": request.param, **told, **told["labs"][request.param]}


@pytest.mark.parametrize("graded", filter(is_graded, SLUGS), indirect=True)
def test_autograde_gives_the_solution_full_marks_and_the_stub_none(graded: dict) -> None:
    """A stub of each worker's first lab; test_labs runs the stubs of all."""
    assert set(graded["done"].values()) == {True}, graded["logs"]
    points = {
        f"{cell.metadata['nbgrader']['grade_id']}": float(cell.metadata["nbgrader"]["points"])
        for cell in get_lab(graded["lab"].split("-")[0]).graded.values()
    }
    assert graded["scores"]["solution"] == {name: [most, most] for name, most in points.items()}
    assert graded["raised"]["solution"] == {name: [] for name in points}
    assert ("stub" in graded["done"]) == (graded["lab"] == graded["folder"].name)
    if "stub" in graded["done"]:
        assert graded["scores"]["stub"] == {name: [0.0, most] for name, most in points.items()}
        assert graded["raised"]["stub"] == {name: ["NotImplementedError"] for name in points}
    assert graded["lab"] in graded["listed"]
    assert "arning" not in graded["logs"]["generate"], graded["logs"]["generate"]


@pytest.mark.parametrize("graded", SLUGS, indirect=True)
def test_generate_assignment_gives_the_lab_that_we_hand_out(graded: dict) -> None:
    (target,) = [t for t in LABS if t.slug == graded["lab"]]
    with use_class_seed(get_word(graded["folder"])):
        ours = sources.make_lab(sources.read_source(target)).cells
    path = graded["folder"] / "release" / target.slug / f"{target.slug}.ipynb"
    theirs = nbformat.read(path, as_version=4).cells
    assert [c.source for c in theirs] == [c.source for c in ours]
    assert [c.get("id") for c in theirs] == [c.get("id") for c in ours]


@pytest.mark.parametrize("name", BOTH_WAYS)
def test_distlab_grade_gives_the_marks_of_stock_nbgrader(name: str, found: dict) -> None:
    """The same file: what nbgrader has graded as it stands, through the sandbox and the judges."""
    theirs = next(found[slug] for slug in SLUGS if slug.startswith(name))
    with use_class_seed(get_word(theirs["folder"])):
        lab = read_lab(name, ROOT)
        compare_marks(lab, theirs)


def compare_marks(lab: LabSpec, theirs: dict[str, Any]) -> None:
    folder = theirs["folder"] / "submitted" / "solution" / lab.slug
    scores = theirs["labs"][lab.slug]["scores"]["solution"]
    files = tuple((name, folder / name) for name in list_attached(lab.slug))
    handed = [Submission("solution", folder / f"{lab.slug}.ipynb", files)]
    with JudgeProcess(lab) as judges:
        (verdict,) = [judges.judge(seen) for seen in observe(lab, handed, lambda _: 2027, 1)]
    for exercise, mark in zip(lab.exercises, verdict.exercises, strict=True):
        assert mark.status == "right", mark
        assert mark.points == sum(scores[cell.id][0] for cell in exercise.cells), mark


def test_the_course_holds_what_nbgrader_wants_and_its_gradebook_lists_it(course: Path) -> None:
    assert sorted(path.name for path in course.iterdir()) == [
        "gradebook.db",
        "nbgrader_config.py",
        "source",
    ]
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as gradebook:
        assert {listed.name for listed in gradebook.assignments} == set(SLUGS)


def test_formgrader_opens_the_course(course: Path) -> None:
    own = Path(shutil.copytree(course, course.parent / "formgrader"))
    with serve(own) as ask:
        rows = json.loads(ask("/formgrader/api/assignments"))
        assert {row["name"]: row["status"] for row in rows} == {t.slug: "draft" for t in LABS}
        assert "<title>nbgrader formgrade</title>" in ask("/formgrader")


@contextmanager
def serve(folder: Path) -> Iterator[Callable[[str], str]]:
    """A Jupyter server in `folder`, with nbgrader in it; yields a function that gets pages."""
    [port] = pick_free_ports(1)
    command = [sys.executable, "-m", "jupyter_server", "--no-browser", "--allow-root"]
    command += [f"--port={port}", "--ServerApp.port_retries=0", "--ServerApp.ip=127.0.0.1"]
    command += ["--IdentityProvider.token=t", f"--ServerApp.jpserver_extensions={EXTENSIONS}"]
    home = {**os.environ, "HOME": str(folder.parent), "JUPYTER_CONFIG_DIR": str(folder / ".j")}
    home["JUPYTER_NO_CONFIG"] = "1"  # or JupyterLab and all others start, too
    server = subprocess.Popen(
        command,
        cwd=folder,
        env=home,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )

    def ask(page: str) -> str:
        address = f"http://127.0.0.1:{port}{page}"
        asked = urllib.request.Request(address, headers={"Authorization": "token t"})
        with urllib.request.urlopen(asked, timeout=120) as answer:
            return answer.read().decode()

    try:
        until = time.monotonic() + 120
        while True:
            try:
                ask("/api/status")
                break
            except OSError:
                assert server.poll() is None and time.monotonic() < until
                time.sleep(0.3)
        yield ask
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
