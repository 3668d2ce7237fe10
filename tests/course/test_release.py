"""`distlab release`: what students get works by itself and gives nothing away."""

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import tomllib
import zipfile
from pathlib import Path

import numpy as np
import pytest
from child_programs import run_child, run_python, start_python
from lab_runner import LABS

from distlab import copies
from distlab.authoring import course_map, sources
from distlab.authoring.new_lab import TO_REPLACE, find_template_words, write_lab
from distlab.cli import main
from distlab.exercises.exercise import RIGHT
from distlab.exercises.worked import keep
from distlab.grading.judging import list_judges
from distlab.grading.release import make_release, papers
from utils.errors import DistributedError

ROOT = Path(__file__).resolve().parents[2]
LAB = "lab01-batches-and-words"
TEXTS = {".py", ".ipynb", ".json", ".md", ".toml", ".txt", ".yml", ".html", ".css", ".js", ""}


def run(folder: Path, *command: object, status: int | None = 0) -> subprocess.CompletedProcess[str]:
    """Run Python in the students' copy as a student would."""
    home = folder.parent / "home"
    clean = {"PATH": os.defpath, "HOME": str(home), "PYTHONPATH": str(folder), "LC_ALL": "C.UTF-8"}
    return run_python(*command, cwd=folder, env=clean, status=status)


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("release") / "out"
    said = io.StringIO()
    with contextlib.chdir(ROOT), contextlib.redirect_stdout(said):
        assert main(["release", str(folder)]) == 0
    assert f"students  {folder}/students: " in said.getvalue()
    assert f"{len(LABS)} labs" in said.getvalue()
    return folder


@pytest.fixture(scope="module")
def students(release: Path) -> Path:
    return release / "students"


def read_texts(folder: Path) -> dict[str, str]:
    """Return the text of every file, notebooks as the sources of their cells."""
    texts = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        name = path.relative_to(folder).as_posix()
        if path.suffix == ".ipynb":
            cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
            texts[name] = "\n".join("".join(cell["source"]) for cell in cells)
        elif path.suffix in TEXTS:
            texts[name] = path.read_text(encoding="utf-8")
    return texts


def list_secrets(name: str) -> dict[str, list[str]]:
    """Return the lines of each region `name` of each lab, as {lab grade_id: lines}."""
    found = {}
    for target in LABS:
        for cell in sources.read_source(target).cells:
            text = sources.region_text(cell.source, name) if cell.cell_type == "code" else ""
            lines = [" ".join(line.split()) for line in text.split("\n")]
            lines = [line for line in lines if len(line) > 8 and not line.startswith("#")]
            if lines:
                found[f"{target.slug} {cell.metadata['nbgrader']['grade_id']}"] = lines
    return found


# ---- what isn't there


def test_nothing_of_the_teachers_is_there(students: Path) -> None:
    names = [path.relative_to(students).as_posix() for path in students.rglob("*")]
    assert set(os.listdir(students)) == set(
        (
            "notebooks labs utils distlab examples docs README.md Makefile LICENSE pyproject.toml "
            "constraints.txt environment.yml .gitignore"
        ).split()
    )
    forbidden = re.compile(
        r"grading|judge|solution|answers|/src|__pycache__|\.git/|/build/|ipynb_checkpoints|\.pyc|/kept/|"
        r"cli/(grade|release|build|new|hub_config)|authoring/(build|imports|outputs|pytest_start)"
    )
    assert [name for name in names if forbidden.search(name)] == []
    assert not [path for path in students.rglob("*") if path.is_symlink()]


def test_no_file_holds_a_solution_or_a_hidden_test(students: Path) -> None:
    texts = read_texts(students)
    assert len(texts) > 200
    squeezed = {name: " ".join(text.split()) for name, text in texts.items()}
    lines = {n: {" ".join(x.split()) for x in text.split("\n")} for n, text in texts.items()}
    solutions, hidden = list_secrets("SOLUTION"), list_secrets("HIDDEN TESTS")
    assert len(solutions) >= 3 * len(LABS) and len(hidden) >= 3 * len(LABS)
    for where, secret in ((w, s) for w, s in solutions.items() if len(s) > 1):
        whole = " ".join(secret)
        assert not [name for name, text in squeezed.items() if whole in text], where
        for name, found in lines.items():  # a lesson shows some of the same lines
            shown = [line for line in secret if line in found]
            assert len(shown) <= max(1, 0.75 * len(secret)), f"{where} in {name}: {shown}"
    for where, secret in hidden.items():
        assert not [n for n, found in lines.items() if found & set(secret)], where
    assert not [n for n, text in texts.items() if re.search("### (BEGIN|END) (SOL|HID)", text)]


def test_judges_and_what_only_they_know_are_not_there(students: Path) -> None:
    texts = read_texts(students)
    importing = re.compile(r"^\s*(?:from|import) distlab\.grading", re.MULTILINE)
    assert not [name for name, text in texts.items() if importing.search(text)]
    known = set()
    for path in (ROOT / "distlab" / "labs").glob("*/judge.py"):
        known |= set(re.findall(r"^(?:def|class) (expect_\w+)", path.read_text(), re.MULTILINE))
    assert len(known) >= 3 * len(LABS)
    pattern = re.compile(rf"\b({'|'.join(sorted(known))})\b")
    assert {n: pattern.findall(t) for n, t in texts.items() if pattern.search(t)} == {}


def test_references_of_the_judges_are_not_there(students: Path) -> None:
    """No line of a judge's module, but those that draw the same inputs."""
    lines = {
        name: {" ".join(line.split()) for line in text.split("\n")}
        for name, text in read_texts(students).items()
    }
    for path in (ROOT / "distlab" / "labs").glob("*/judge.py"):
        mine = [" ".join(line.split()) for line in path.read_text().split("\n")]
        mine = [x for x in mine if len(x) > 40 and not x.startswith(("from ", "import ", "#"))]
        secret = {line for line in mine if " = draw_" not in line}
        shown = {name: found & secret for name, found in lines.items() if len(found & secret) > 1}
        assert shown == {}, path.name


def list_expected(target: sources.Target) -> dict[str, set[str]]:
    """Return what the judges of a lab expect of the inputs that it draws, less what it shows."""
    found, judges = {}, list_judges(target.slug[:5])
    for cell in sources.read_source(target).cells:
        if not (inputs := sources.region_text(cell.source, "INPUTS")):
            continue
        space = {"np": np, "SEED": 2026}
        exec(inputs, space)  # noqa: S102 - the course's own
        (cases,) = (value for name, value in space.items() if name.endswith("_cases"))
        graded = cell.metadata["nbgrader"]["grade_id"].removesuffix("-test")
        judge = next(j for name, j in judges.items() if f"{graded}-".startswith(f"{name}-"))
        drawn, shown = (
            {json.dumps(keep(answer)) for answer in judge.work_out(given, RIGHT)}
            for given in (cases, judge.exercise.examples)
        )
        found[f"{target.slug} {graded}"] = drawn - shown
    return found


def test_what_judges_expect_is_nowhere(students: Path) -> None:
    """Neither as it is, however spaced, nor most of its numbers; outputs and data included."""
    precise, loose = re.compile(r"\d+\.\d{5,}(?:e-\d+)?"), re.compile(r"[\s'\"]")
    texts = {p: p.read_text(errors="replace") for p in students.rglob("*") if p.is_file()}
    squeezed = {path: loose.sub("", text) for path, text in texts.items()}
    numbers = {p: {f"{float(x):.7g}" for x in precise.findall(t)} for p, t in texts.items()}
    expected = {k: v for target in LABS for k, v in list_expected(target).items()}
    assert len(expected) > 3 * len(LABS)
    for where, answers in expected.items():
        for secret in (loose.sub("", answer) for answer in answers if len(answer) > 100):
            assert not [path for path, text in squeezed.items() if secret in text], where
        mine = {f"{float(x):.7g}" for answer in answers for x in precise.findall(answer)}
        if len(mine) > 2:
            few = 0.75 * len(mine)
            assert not [p for p, found in numbers.items() if len(found & mine) > few], where


# ---- what is there works by itself


def test_labs_are_those_of_the_sources(students: Path) -> None:
    wanted = {f"{target.slug}.ipynb" for target in LABS}
    assert {path.name for path in (students / "labs").glob("*.ipynb")} == wanted
    for target in LABS:
        lab = json.loads((students / "labs" / f"{target.slug}.ipynb").read_text())
        wanted_cells = sources.make_lab(sources.read_source(target)).cells
        for cell, wanted_cell in zip(lab["cells"], wanted_cells, strict=True):
            if cell["cell_type"] == "code":
                assert "".join(cell["source"]) == wanted_cell.source
                assert cell["outputs"] == []


def find_links(path: Path) -> list[str]:
    """Return the links and pictures of a page or a notebook's words that are files here."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        cells = [c for c in json.loads(text)["cells"] if c["cell_type"] == "markdown"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells)
    text = re.sub(r"^```.*?^```|`[^`\n]+`", "", text, flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|href)="([^"]+)"', text)
    return [link.partition("#")[0] for link in found if not re.match(r"https?:|mailto:|#", link)]


def test_every_link_and_picture_of_what_is_read_resolves(students: Path) -> None:
    pages = [p for p in students.rglob("*") if p.suffix in (".md", ".ipynb")]
    links = [(p, link) for p in pages for link in find_links(p)]
    broken = [f"{p.name}: {link}" for p, link in links if not (p.parent / link).exists()]
    assert not broken
    pictures = [link for _, link in links if link.endswith((".png", ".svg", ".gif"))]
    assert len(links) > 100 and len(pictures) >= 3


def test_readme_makefile_and_project_speak_of_what_is_there(students: Path) -> None:
    readme, makefile = (students / "README.md").read_text(), (students / "Makefile").read_text()
    assert "olution](" not in readme and "| Solution |" not in readme and "TEACHING" not in readme
    targets = set(re.findall(r"^(\w+):(?!=)", makefile, re.MULTILINE))
    assert targets == {"help", "lab", "doctor", "clean"} and "TEACH" not in makefile
    assert set(re.findall(r"(?:^|`)make ([a-z]\w*)", readme, re.MULTILINE)) <= targets
    assert set(re.findall(r"@echo '(?:make (\w+))?", makefile)) < targets
    project = tomllib.loads((students / "pyproject.toml").read_text())
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["optional-dependencies"].keys() == set(
        "lab gpu ray spark search hub".split()
    )
    assert project["project"]["dependencies"] == ours["project"]["dependencies"]
    assert project["tool"].keys() == {"setuptools"}
    assert (
        "$(INSTALL) '.[lab]'" in makefile
        and "-e .[lab]" in (students / "environment.yml").read_text()
    )
    run_child("make", "-n", "help", cwd=students, status=0)
    pages = "".join(path.read_text() for path in (students / "docs").glob("*.md"))
    assert not re.search(r"TEACHING|distlab (grade|release|build|book)\b", pages)
    commands = re.findall(r"`(distlab [^`]+)`", readme)
    commands += re.findall(r"^(distlab .*)$", (readme + pages).replace("\\\n", " "), re.MULTILINE)
    tried = [shlex.split(command.split("#")[0])[1:] for command in commands]
    assert len(tried) > 50
    code = (
        "import json, sys\nfrom distlab.cli import make_parser\n"
        "for words in json.loads(sys.argv[1]):\n"
        "    try: make_parser().parse_args(words)\n"
        "    except SystemExit as end: assert not end.code, words\n"
    )
    run(students, "-c", code, json.dumps(tried))


def test_help_names_the_learners_commands_only(students: Path) -> None:
    done = run(students, "-m", "distlab", "--help")
    shown = set(re.findall(r"^  ([a-z][a-z-]*)", done.stdout, re.MULTILINE))
    assert {"lab", "check", "submit", "reset", "doctor", "train"} <= shown
    assert not {"grade", "release", "build", "hub-config"} & shown
    refused = run(students, "-m", "distlab", "grade", "lab01", "labs", status=2)
    assert "invalid choice" in refused.stderr


def test_every_module_of_the_students_library_can_be_imported(students: Path) -> None:
    code = (
        "import importlib, pathlib, sys\nfailed = []\n"
        "for path in sorted(pathlib.Path('utils').rglob('*.py')):\n"
        "    name = '.'.join(path.with_suffix('').parts).removesuffix('.__init__')\n"
        "    if name.endswith('__main__') or 'nbgrader_config' in name: continue\n"
        "    try: found = importlib.import_module(name)\n"
        "    except ImportError as error: failed.append(f'{name}: {error}')\n"
        "    else: assert found.__file__.startswith(sys.argv[1]), found.__file__\n"
        "assert not [name for name in sys.modules if name.startswith('distlab.grading')]\n"
        "assert not failed, failed\n"
    )
    run(students, "-c", code, students)


def test_check_submit_and_reset_work_there(students: Path, tmp_path: Path) -> None:
    course = Path(shutil.copytree(students, tmp_path / "course"))
    lab = copies.open_copy(course, f"{LAB}.ipynb")
    notebook = json.loads(lab.read_text())
    for cell in notebook["cells"]:
        if cell["metadata"].get("nbgrader", {}).get("grade_id") == "epoch":
            cell["source"] = ["def plan_epoch(n, b):\n", "    return -(-n // b), n % b or b\n"]
    lab.write_text(json.dumps(notebook))
    done = run(course, "-m", "distlab", "submit", "lab01", "--name", "ana")
    assert "1 of 4 checks pass" in done.stdout
    (packed,) = (course / "submissions").glob("*.zip")
    with zipfile.ZipFile(packed) as archive:
        assert f"ana/{LAB}/{LAB}.ipynb" in archive.namelist()
    assert json.loads((course / ".distlab" / "progress.json").read_text())["lab01"].keys() == {
        "epoch"
    }
    run(course, "-m", "distlab", "reset", "lab01")
    assert lab.read_text() == (course / "labs" / lab.name).read_text()
    checked = run(course, "-m", "distlab", "check", "lab01", "--json", status=1)
    said = {e["id"]: e["said"] for e in json.loads(checked.stdout)["exercises"]}
    assert set(said.values()) == {"not written yet"}


# ---- how it is made


def test_a_lab_with_sentences_of_the_template_is_refused(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "solutions" / "src").mkdir(parents=True)
    (tmp_path / "notebooks" / "src").mkdir(parents=True)
    source = write_lab(tmp_path, "gradient clipping")[0]
    text = source.read_text()
    assert find_template_words(text) == list(TO_REPLACE)
    for old in TO_REPLACE:
        with pytest.raises(DistributedError, match="as the template for new labs does"):
            make_release(tmp_path, tmp_path / "out")
        assert not (tmp_path / "out").exists()
        text = text.replace(old, "Words of our own.")
        source.write_text(text)
    assert find_template_words(text) == []
    assert not [t.slug for t in LABS if find_template_words(t.source.read_text())]


def test_a_folder_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(DistributedError, match="must be a new or empty folder"):
        make_release(ROOT, tmp_path)
    with pytest.raises(DistributedError, match="got a file"):
        make_release(ROOT, tmp_path / "mine.txt")
    with pytest.raises(DistributedError, match="inside the course's utils/"):
        make_release(ROOT, ROOT / "utils" / "out")
    with pytest.raises(DistributedError, match="--labs must be one of .* got 'lab77'"):
        make_release(ROOT, tmp_path / "out", ["lab77"])
    assert os.listdir(tmp_path) == ["mine.txt"]


def test_a_release_that_fails_leaves_nothing(tmp_path: Path) -> None:
    course = tmp_path / "course"
    for part in ("solutions", "notebooks"):
        (course / part / "src").mkdir(parents=True)
    shutil.copy(LABS[0].source, course / "solutions" / "src")
    (course / "LICENSE").write_text("free")  # and no constraints.txt
    with pytest.raises(OSError, match="constraints"):
        make_release(course, tmp_path / "out")
    assert os.listdir(tmp_path) == ["course"]


HALF = """
import sys, time
from distlab.cli import main
from distlab.grading import release

def write_a_part_and_wait(root, folder, labs):
    (folder / "labs").mkdir(parents=True)
    (folder / "labs" / "lab01.ipynb").touch()
    print("half", flush=True)
    time.sleep(600)

release.write_students = write_a_part_and_wait
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_half_way_it_leaves_nothing(tmp_path: Path, number: int) -> None:
    making = start_python("-c", HALF, "release", tmp_path / "out", cwd=ROOT)
    assert making.stdout.readline() == "half\n" and list(tmp_path.glob(".out-*/students/labs/*"))
    making.send_signal(number)
    assert making.communicate(timeout=240)[1] == "distlab release: interrupted\n"
    assert making.returncode == 130 and os.listdir(tmp_path) == []


def test_only_the_labs_that_were_named(tmp_path: Path, monkeypatch, capsys) -> None:
    (tmp_path / "out").mkdir()  # an empty folder is as good as none
    monkeypatch.chdir(ROOT)
    row = "| [99 Own](labs/lab05-loss-scaling.ipynb) | My own words | 5 | - |"
    table = f"| Lab | Exercises | Minutes | Solution |\n|---|---|---|---|\n{row}"
    monkeypatch.setitem(course_map.TABLES, "labs", lambda root: table)  # a lab of the teacher's
    assert main(["release", str(tmp_path / "out"), "--labs", "lab05", "01"]) == 0
    assert "2 labs (lab01, lab05)" in capsys.readouterr().out
    labs = {path.name[:5] for path in (tmp_path / "out" / "students" / "labs").glob("*.ipynb")}
    assert labs == {"lab01", "lab05"}
    folders = {path.name[:5] for path in (tmp_path / "out" / "nbgrader" / "source").iterdir()}
    assert folders == labs
    assert os.listdir(tmp_path) == ["out"]
    texts = read_texts(tmp_path / "out" / "students")
    readme = (tmp_path / "out" / "students" / "README.md").read_text()
    assert "| My own words |" in readme  # as the sources say, whether it was built or not
    links = re.findall(r"\]\((?:\.\./)?labs/(lab\d\d)", "\n".join(texts.values()))
    assert set(links) <= labs


def test_papers_say_what_stays(tmp_path: Path) -> None:
    table = (
        "| Lab | Solution |\n|---|---|\n| [1](a.md) | [s](solutions/b.md) |\n| [2](c.md) | no |\n"
    )
    text = f"# T\n\n{table}\nRun `make test`.\nRun `make lab`, see [x](gone.md) and [y](a.md#p).\n"
    text += "\n## Teaching and grading\n\nSecret.\n\n## End\n\nThen `distlab grade x`, again.\n"
    fitted = papers.fit_page(text, {"check"}, {"lab"}, lambda link: link == "a.md")
    rest = "Run `make lab`, see x and [y](a.md#p).\n\n## End\n\n"
    assert fitted == f"# T\n\n| Lab |\n|---|\n| [1](a.md) |\n\n{rest}"
    code = papers.unlink("`[z](gone.md)` and `f[0](x)`", lambda link: False)
    assert code == "`[z](gone.md)` and `f[0](x)`"
