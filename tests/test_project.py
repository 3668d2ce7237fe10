"""The project as a whole: pins that agree, rooms that keep to their rows, nothing left behind."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
UTILS = ROOT / "utils"
NO_TENSORFLOW = ["environment", "measure", "events", "errors", "strategies", "cli", "doctor"]
NO_TENSORFLOW += ["data", "training", "figures", "widgets", "exercises", "exercises.lab01"]
NO_TENSORFLOW += ["schedules", "collectives", "simulate", "simulate.collective"]
NO_TENSORFLOW += ["simulate.pipeline", "simulate.memory", "parallel.pipeline"]
NO_TENSORFLOW += ["cluster.config", "cluster.diagnose", "cluster.registry", "cli.cluster"]
NO_TENSORFLOW += ["simulate.parameter_server", "training.parameter_server"]
NO_TENSORFLOW += ["input_pipeline", "simulate.input", "cli.tune"]
NO_TENSORFLOW += ["cli.release", "grading.release"]
NO_TENSORFLOW += ["cli.grade", "grading.session", "grading.report.pages"]
NO_TENSORFLOW += ["simulate.failures", "training.recovery", "cluster.chaos"]
NO_TENSORFLOW += ["training.tpu_ready", "cli.tpu_ready"]
ROWS = [
    ["errors", "files"],
    ["environment"],
    ["measure"],
    ["events"],
    ["schedules"],
    ["collectives"],
    ["simulate"],
    ["devices"],
    ["data"],
    ["models"],
    ["strategies"],
    ["input_pipeline"],
    ["keras_multi_worker"],
    ["training"],
    ["parallel"],
    ["cluster"],
    ["figures"],
    ["progress"],
    ["widgets"],
    ["exercises"],
    ["authoring"],
    ["grading"],
    ["doctor", "cli", "lab_config", "__main__"],
]


def read_pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    return {normalise(name): version for name, version in pins.items()}


def normalise(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def read_requirements() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project["dependencies"] + sum(project["optional-dependencies"].values(), [])


def test_constraints_pin_every_requirement_as_pyproject_says():
    pins = read_pins()
    for requirement in read_requirements():
        name, _, version = requirement.partition("==")
        assert normalise(name) in pins, f"{name} is not pinned in constraints.txt"
        assert not version or pins[normalise(name)] == version


def test_constraints_are_names_and_versions_only():
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        assert line.startswith("#") or re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9_.!+-]+", line)


def test_conda_environment_installs_the_same_versions():
    """The conda file names no version but Python's: it installs from the same two files."""
    text = (ROOT / "environment.yml").read_text()
    entries = re.findall(r"^\s+- (.+)$", text, flags=re.MULTILINE)
    assert entries == ["conda-forge", "python=3.12", "pip", "pip:", "-c constraints.txt",
                       "-e .[lab,test]"]  # fmt: skip
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert wanted == ">=3.11,<3.14"
    assert "-c constraints.txt -e '.[lab,test]'" in (ROOT / "Makefile").read_text()


def test_installed_versions_are_the_pinned_ones():
    from importlib import metadata

    pins = read_pins()
    for requirement in read_requirements():
        name = requirement.partition("==")[0]
        assert metadata.version(name) == pins[normalise(name)]


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def imports_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text())
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found |= {node.module + "." + alias.name for alias in node.names}
    return found


def test_rooms_import_only_rooms_above_them():
    level = {room: number for number, row in enumerate(ROWS) for room in row}
    wrong = []
    for path in UTILS.rglob("*.py"):
        here = path.relative_to(UTILS).parts[0].removesuffix(".py")
        if here == "__init__":
            continue
        for name in imports_of(path):
            there = room_of(name)
            if name.startswith("utils.") and there != here and level[there] > level[here]:
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert wrong == []


def test_only_figures_imports_matplotlib():
    users = {p.relative_to(UTILS).parts[0] for p in UTILS.rglob("*.py")
             if any(name.split(".")[0] == "matplotlib" for name in imports_of(p))}  # fmt: skip
    assert users == {"figures"}


@pytest.mark.parametrize("module", NO_TENSORFLOW)
def test_light_rooms_start_without_tensorflow(module):
    code = f"import sys, utils.{module}; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_help_starts_without_tensorflow():
    code = (
        "import sys\nfrom utils.cli import main\n"
        "try: main(['train', '--help'])\nexcept SystemExit: pass\n"
        "sys.exit('tensorflow' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], timeout=60, capture_output=True, text=True)
    assert shown.returncode == 0 and "--global-batch-size" in shown.stdout


def test_code_is_well_formed():
    for arguments in (["check"], ["format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *arguments, "."],
            cwd=ROOT, timeout=60, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-3000:]


def tracked_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    return [ROOT / name for name in listed.stdout.split("\n") if name]


def test_no_module_is_a_junk_drawer_or_too_long():
    for path in UTILS.rglob("*.py"):
        assert path.stem not in {"utils", "helpers", "common", "misc"}
        assert path.read_text().count("\n") <= 320, f"{path.relative_to(ROOT)}: one room or two?"


def test_nothing_committed_names_a_registry_or_this_machine():
    names = ["pypi" + r"\.org", "python" + "hosted", "npm" + "js", "deb" + r"\.debian"]
    hosts = re.compile("|".join(names))
    for path in tracked_files():
        if path.suffix in {".png", ".npz"} or "tfrecord" in path.name or not path.exists():
            continue
        text = path.read_text(errors="replace")
        assert not hosts.search(text), path
        assert str(ROOT) not in text, path
