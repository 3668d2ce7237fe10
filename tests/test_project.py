"""The project as a whole: pins that agree, rooms that keep to their rows, nothing left behind."""

import ast
import functools
import re
import subprocess
import tomllib
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
import yaml
from child_programs import run_python

import utils
from distlab.doctor.software import normalize_package

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("utils", "distlab")
NO_TENSORFLOW = """
utils: environment measure events goodput errors files checks gpus strategies data training
    schedules collectives simulate simulate.collective simulate.pipeline simulate.memory
    simulate.parameter_server
    simulate.failures simulate.input calibrate parallel.pipeline tf_config cluster engines
    processes.fork_server processes.connection collectives.processes processes.registry
    training.parameter_server.loop training.recovery training.tpu_ready training.large_batch
    input_pipeline input_pipeline.sharding input_pipeline.service input_pipeline.trace
distlab: cli doctor figures explorables exercises labs.lab01.exercise lessons.chaos
    lessons.update_records lessons.stale_updates lessons.dtensor_mlp cli.processes classroom
    cli.run cli.modernize modernize.reading modernize.sources cli.plan cli.user_function
    cli.release cli.grade grading.release grading.session
    grading.report.pages
"""
ROWS = """
utils: errors files checks lazy
utils: environment
utils: measure processes
utils: events
utils: goodput
utils: schedules
utils: collectives
utils: simulate tf_config
utils: gpus device_iterators
utils: devices placement
utils: cluster
utils: engines
utils: data
utils: models
utils: multi_worker
utils: strategies
utils: input_pipeline
utils: keras_multi_worker
utils: training
utils: parallel
utils: calibrate
distlab: errors keras_backend
distlab: class_seed
distlab: lessons figures progress submission
distlab: copies
distlab: explorables
distlab: exercises authoring
distlab: turns
distlab: grading
distlab: labs
distlab: kernel classroom
distlab: home modernize notebook_files
distlab: book
distlab: doctor cli lab_config __main__
"""


def read_rows(text: str) -> list[list[str]]:
    """Return the rows of `text`, each a list of "package.room"; indented lines go on with a row."""
    joined = re.sub(r"\n\s+", " ", text.strip())
    rows = (line.split(": ") for line in joined.split("\n"))
    return [[f"{package}.{room}" for room in rooms.split()] for package, rooms in rows]


def read_pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    return {normalize_package(name): version for name, version in pins.items()}


def read_requirements() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project["dependencies"] + sum(project["optional-dependencies"].values(), [])


def test_constraints_pin_every_requirement_as_pyproject_says():
    pins = read_pins()
    for requirement in read_requirements():
        name, _, version = requirement.replace("[and-cuda]", "").partition("==")
        assert normalize_package(name) in pins, f"{name} is not pinned in constraints.txt"
        assert not version or pins[normalize_package(name)] == version


def test_constraints_pin_what_tensorflow_wants_for_gpus():
    from importlib import metadata

    wanted = [r for r in metadata.requires("tensorflow") if "and-cuda" in r]
    names = {re.match(r"[\w.-]+", requirement)[0] for requirement in wanted}
    pinned = {name for name in read_pins() if name.startswith("nvidia")}
    assert pinned == {normalize_package(name) for name in names} and "nvidia-nccl-cu12" in names


def test_constraints_are_names_and_versions_only():
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        assert line.startswith("#") or re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9_.!+-]+", line)


def test_conda_environment_installs_the_same_versions():
    """The conda file names no version but Python's: it installs from the same two files."""
    text = (ROOT / "environment.yml").read_text()
    entries = re.findall(r"^\s+- (.+)$", text, flags=re.MULTILINE)
    assert entries == [
        "conda-forge",
        "python=3.12",
        "pip",
        "pip:",
        "-c constraints.txt",
        "-e .[lab]",
    ]
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert wanted == ">=3.11,<3.14"
    assert "\n      # - -e .[gpu]  #" in text and "\n      # - -e .[teach,test]  #" in text
    makefile = (ROOT / "Makefile").read_text()
    assert "-c constraints.txt -e\n" in makefile
    for extras in ("lab", "gpu", "lab,teach", "lab,teach,test", "book"):
        assert f"$(INSTALL) '.[{extras}]'" in makefile


def test_installed_versions_are_the_pinned_ones():
    """Engines and what checks manifests are installed where somebody asked for them."""
    from importlib import metadata

    pins, project = read_pins(), tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = ("ray", "spark", "search", "manifests", "book", "gpu", "hub", "types")
    asked_for = {r for extra in extras for r in project["optional-dependencies"][extra]}
    for requirement in read_requirements():
        name = requirement.partition("==")[0].partition("[")[0]
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            assert requirement in asked_for, f"{name} is not installed"
            continue
        assert version == pins[normalize_package(name)]


def find_modules() -> dict[str, Path]:
    """Return every module of the two packages, by its dotted name."""
    paths = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return {
        ".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p
        for p in paths
        if p.relative_to(ROOT).parts[1] != "build"  # left by `pip install ./utils`
    }


@functools.cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@functools.cache
def imports_of(path: Path) -> set[str]:
    """Return the dotted names that `path` imports, anywhere in it; relative ones made whole."""
    package = list(path.relative_to(ROOT).parent.parts)
    found = set()
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            whole = ".".join([*base, *([node.module] if node.module else [])])
            found |= {f"{whole}.{alias.name}" for alias in node.names}
    return found


@functools.cache
def module_arrows() -> dict[str, set[str]]:
    """Return {module: modules of the two packages that it imports}."""
    modules = find_modules()
    arrows = {}
    for name, path in modules.items():
        targets = {n if n in modules else n.rpartition(".")[0] for n in imports_of(path)}
        arrows[name] = (targets & modules.keys()) - {name}
    return arrows


def test_rooms_import_only_rooms_above_them():
    level = {room: number for number, row in enumerate(read_rows(ROWS)) for room in row}
    wrong = []
    for here, targets in module_arrows().items():
        for there in targets:
            rooms = [".".join(name.split(".")[:2]) for name in (here, there)]
            if rooms[0] != rooms[1] and "." in here and "." in there:
                if level[rooms[1]] > level[rooms[0]]:
                    wrong.append(f"{here} imports {there}")
    assert wrong == []


def test_no_modules_import_each_other_in_a_circle():
    arrows = module_arrows()
    sorter = TopologicalSorter({n: t for n, t in arrows.items() if n.partition(".")[2]})
    try:
        sorter.prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_utils_imports_its_own_by_relative_names_and_nothing_of_the_course():
    """So the folder can be copied into another project under any name."""
    for name, path in find_modules().items():
        if name.startswith("utils"):
            for node in ast.walk(parse(path)):
                named = (
                    [a.name for a in getattr(node, "names", [])]
                    if isinstance(node, ast.Import)
                    else []
                )
                if isinstance(node, ast.ImportFrom) and not node.level:
                    named = [node.module]
                assert not [n for n in named if n.split(".")[0] in PACKAGES], name


def test_the_library_names_no_lesson_and_no_lab():
    """Who takes `utils` home has no lessons; where the course wants a pointer, distlab adds it."""
    for name, path in find_modules().items():
        if name.startswith("utils"):
            texts = (
                n.value
                for n in ast.walk(parse(path))
                if isinstance(n, ast.Constant) and isinstance(n.value, str)
            )
            named = [t for t in texts if re.search(r"\b(lessons?|labs?|Lessons?|Labs?)\b", t)]
            assert not named, (name, named)


def test_only_figures_imports_matplotlib():
    users = {
        ".".join(name.split(".")[:2])
        for name, path in find_modules().items()
        if any(n.split(".")[0] == "matplotlib" for n in imports_of(path))
    }
    assert users == {"distlab.figures"}


def test_light_rooms_start_without_tensorflow():
    """One after the other in one process: the first that imports TensorFlow is named."""
    code = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    importlib.import_module(name)\n"
        "    if 'tensorflow' in sys.modules: sys.exit(name)\n"
    )
    modules = sum(read_rows(NO_TENSORFLOW), [])
    done = run_python("-c", code, *modules)
    assert done.returncode == 0, f"imports TensorFlow: {done.stderr}"


def test_help_starts_without_tensorflow():
    code = (
        "import sys\nfrom distlab.cli import main\n"
        "try: main(['train', '--help'])\nexcept SystemExit: pass\n"
        "sys.exit('tensorflow' in sys.modules)"
    )
    assert "--global-batch-size" in run_python("-c", code, status=0).stdout


def test_code_is_well_formed():
    for arguments in (["check"], ["format", "--check"]):
        run_python("-m", "ruff", *arguments, ".", cwd=ROOT, status=0)


def tracked_files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    return [ROOT / name for name in listed.stdout.split("\n") if name]


def test_every_package_lists_its_modules():
    """A lab's `exercise` and `judge` are described once, by the package of all labs."""
    missing, modules = [], find_modules()
    for name in modules:
        package, _, module = name.rpartition(".")
        is_lab = re.fullmatch(r"distlab\.labs\.lab\d\d", package)
        if package not in modules or is_lab and module in ("exercise", "judge"):
            continue
        docstring = ast.get_docstring(parse(modules[package])) or ""
        word = re.sub(r"\d\d$", "NN", module)  # `lessonNN` describes all lessons
        if not re.search(rf"`[^`\n]*\b{word}\b[^`\n]*`|\b{word}\.py\b", docstring):
            missing.append(f"{package} doesn't list {module}")
    assert missing == []


def test_a_release_has_its_papers():
    """What stands in several files agrees: version, licenses, Python versions."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == project["version"]
    assert " AND ".join(citation["license"]) == project["license"]
    assert f"## {project['version']} (" in (ROOT / "CHANGELOG.md").read_text()
    assert utils.__version__ == project["version"]  # distkit's, too
    assert (ROOT / "utils" / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    assert sum(len(list(ROOT.glob(files))) for files in project["license-files"]) == 3
    workflows = [yaml.safe_load(p.read_text()) for p in (ROOT / ".github/workflows").glob("*.yml")]
    (pythons,) = [
        job["strategy"]["matrix"]["python"]
        for workflow in workflows
        for job in workflow["jobs"].values()
        if "strategy" in job
    ]
    assert pythons == [c[-4:] for c in project["classifiers"] if ":: Python ::" in c]
    makefile = (ROOT / "Makefile").read_text()
    steps = [
        step for workflow in workflows for job in workflow["jobs"].values() for step in job["steps"]
    ]
    targets = {
        target for step in steps for target in re.findall(r"make (\S+)", step.get("run", ""))
    }
    assert targets and all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


def test_no_two_classes_share_a_name():
    """Three pairs are left: in the gradebook and its intake, in networks, in tasks."""
    found = [
        node.name
        for path in find_modules().values()
        for node in ast.walk(parse(path))
        if isinstance(node, ast.ClassDef)
    ]
    assert {name for name in found if found.count(name) > 1} <= {"Entry", "Network", "Task"}


def test_no_module_is_a_junk_drawer_or_too_long():
    for path in find_modules().values():
        assert path.stem not in {"utils", "helpers", "common", "misc"}
        assert path.read_text().count("\n") <= 400, f"{path.relative_to(ROOT)}: one room or two?"


def test_nothing_committed_names_a_registry_or_this_machine():
    names = ["pypi" + r"\.org", "python" + "hosted", "npm" + "js", "deb" + r"\.debian"]
    hosts = re.compile("|".join(names))
    for path in tracked_files():
        if path.suffix in {".png", ".npz"} or not path.is_file():
            continue
        text = path.read_text(errors="replace")
        assert not hosts.search(text), path
        assert str(ROOT) not in text, path
