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
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
import pytest
from child_programs import run_python
from lab_runner import LABS, get_lab
from needs import EVERYTHING

from distlab.authoring import sources
from distlab.class_seed import use_class_seed
from distlab.grading.executor import observe
from distlab.grading.judge_process import JudgeProcess
from distlab.grading.labs import LabSpec, read_lab
from distlab.grading.observation import Submission
from distlab.grading.release import make_release
from distlab.submission import list_attached
from utils.tf_config import pick_free_ports

ROOT = Path(__file__).resolve().parents[2]
WORKER = ROOT / "tests" / "nbgrader_worker.py"
AT_ONCE, LAB_SECONDS = 2, 900
BOTH_WAYS = [t.slug[:5] for t in LABS] if EVERYTHING else ["lab07"]
# plain Python, a custom loop, words, several processes
GRADED = ("lab01", "lab04", "lab07", "lab08", *BOTH_WAYS)
SLUGS = [t.slug for t in LABS]
WORD = "autumn26"  # the class seed of the second worker's labs, lab04 among them
pytestmark = pytest.mark.timeout(len(LABS) * LAB_SECONDS)


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_release(ROOT, tmp_path_factory.mktemp("stock") / "release").nbgrader


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with use_class_seed(WORD):
        return make_release(ROOT, tmp_path_factory.mktemp("drawn") / "release").nbgrader


def is_graded(slug: str) -> bool:
    return slug.split("-")[0] in GRADED


def run_worker(course: Path, labs: list[str]) -> dict[str, Any]:
    own = course.parent.parent / labs[0]
    own.mkdir()
    shutil.copy(course / "nbgrader_config.py", own)
    for lab in labs:
        shutil.copytree(course / "source" / lab, own / "source" / lab)
    graded = ",".join(lab for lab in labs if is_graded(lab))
    run_python(WORKER, own, graded, *labs, timeout=len(labs) * LAB_SECONDS, status=0)
    return {"folder": own, **json.loads((own / "found.json").read_text())}


@pytest.fixture(scope="module")
def running(request: pytest.FixtureRequest) -> Any:
    """The worker of each lab; each grades a part of the labs, and the tests wait for it.

    The second one's are as a class seed draws them. Of the labs, those that a chosen test names.
    """
    names = [item.name for item in request.session.items if item.path == Path(__file__)]
    slugs = [slug for slug in SLUGS if any(f"[{slug[:5]}" in name for name in names)]
    slugs.sort(key=lambda slug: not is_graded(slug))  # so that each worker has a half of those
    parts = [slugs[k::AT_ONCE] for k in range(min(AT_ONCE, len(slugs)))]
    courses = [request.getfixturevalue(name) for name in ("course", "drawn")[: len(parts)]]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        running = [pool.submit(run_worker, *given) for given in zip(courses, parts)]
        assert len(slugs) < len(SLUGS) or "lab04-custom-training-loop" in parts[1]
        yield {lab: future for part, future in zip(parts, running) for lab in part}


def get_word(folder: Path) -> str:
    """Return the class seed of a worker's folder."""
    return WORD if WORD in (folder / "nbgrader_config.py").read_text() else ""


@pytest.fixture
def graded(request: pytest.FixtureRequest, running: dict[str, Future]) -> dict[str, Any]:
    found = running[request.param].result()
    return {"lab": request.param, **found, **found["labs"][request.param]}


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
def test_distlab_grade_gives_the_marks_of_stock_nbgrader(name: str, running: dict) -> None:
    """The same file: what nbgrader has graded as it stands, through the sandbox and the judges."""
    theirs = next(running[slug] for slug in SLUGS if slug.startswith(name)).result()
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


def test_the_course_holds_what_nbgrader_wants_and_its_command_lists_it(course: Path) -> None:
    assert sorted(path.name for path in course.iterdir()) == [
        "gradebook.db",
        "nbgrader_config.py",
        "source",
    ]
    listed = run_python("-m", "nbgrader", "db", "assignment", "list", cwd=course, status=0)
    assert not [t.slug for t in LABS if t.slug not in listed.stdout]


def test_formgrader_opens_the_course(course: Path) -> None:
    own = Path(shutil.copytree(course, course.parent.parent / "formgrader"))
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
    command += ["--IdentityProvider.token=t"]
    home = {**os.environ, "HOME": str(folder.parent), "JUPYTER_CONFIG_DIR": str(folder / ".j")}
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
