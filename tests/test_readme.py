"""README.md and docs/: every link, command, table and example in them holds."""

import os
import re
import shlex
import shutil
import sys
import sysconfig
import tomllib
import zipfile
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path

import pytest
from child_programs import run_child

from distlab.authoring import course_map
from distlab.cli import command_page, make_parser
from distlab.cli.examples import TASKS
from utils.errors import DistributedError
from utils.strategies import NAMES, SUPPORT
from utils.tf_config.build import pick_free_ports

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
DOCS = {path.stem: path.read_text() for path in sorted((ROOT / "docs").glob("*.md"))}
TEXT = "\n".join([README, *DOCS.values()])
LINK = re.compile(r"(?:\[[^\]]*\]\(|<img src=\")([^)\s\"]+)[)\"]")
LINKS = LINK.findall(README)
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
SHELL = "".join(text for language, text in BLOCKS if language == "sh").replace("\\\n", " ")
INLINE = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", TEXT, flags=re.M | re.S))
COMMANDS = [line.split("#")[0].strip() for line in [*SHELL.splitlines(), *INLINE]]


def read_table(text: str, heading: str) -> list[list[str]]:
    """Return the cells of the first table of `text` after `heading`, without its header."""
    section = re.split(rf"^#+ {re.escape(heading)}$", text, flags=re.MULTILINE)[1]
    table = re.search(r"(?:^\|.*\n)+", section, re.MULTILINE)[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return rows[2:]


def test_every_relative_link_resolves():
    pages = [ROOT / f"{name}.md" for name in ("README", "TEACHING", "CONTRIBUTING", "SECURITY")]
    found = [
        (page, link)
        for page in [*pages, *(ROOT / "docs").glob("*.md")]
        for link in LINK.findall(page.read_text())
        if "://" not in link
    ]
    assert len(found) > 100
    broken = [
        (page.name, link)
        for page, link in found
        if not (page.parent / link.partition("#")[0]).exists()
    ]
    assert not broken


def test_readme_is_one_page_that_begins_with_the_two_commands():
    prose = [line for line in README.splitlines() if not line.startswith(("|", "<!--"))]
    assert len(" ".join(prose).split()) <= 900
    begin = README[: README.index("<img")]
    assert "\nmake lab " in begin and "\nmake test " in begin and len(begin) < 1200
    assert {f"docs/{name}.md" for name in DOCS} <= set(LINKS)


def test_every_distlab_command_parses():
    shown = [c for c in COMMANDS if c.startswith("distlab ")]
    assert {"doctor", "train", "data", "build", "lab"} <= {c.split()[1] for c in shown}
    for command in shown:
        try:
            words = shlex.split(command)[1:]
            if command not in INLINE or not is_a_name(words):
                make_parser().parse_args(words)
        except SystemExit as end:
            assert end.code == 0 and re.search("--(help|version)$", command), command


def is_a_name(words: list[str]) -> bool:
    """Return True for a command that prose only names, with an option at most.

    Such as `distlab data fetch`, `distlab modernize --write` or `distlab manifest kubernetes`.
    """
    parser = make_parser()
    rest = list(words)
    while rest and rest[0] in parser.list_commands():
        parser = parser.list_commands()[rest.pop(0)]
    known = [*parser._option_string_actions]
    known += [str(c) for a in parser._get_positional_actions() for c in a.choices or ()]
    return not rest or (len(rest) == 1 and rest[0] in known)


def test_every_make_target_exists():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    shown = {c.split()[1] for c in COMMANDS if re.match(r"make \w", c)}
    assert {"lab", "test"} <= shown <= targets


OWN = DOCS["own-project"]
EXAMPLE, MINE = re.findall(r"^```python\n(.*?)^```", OWN, re.MULTILINE | re.DOTALL)


def test_the_example_runs_anywhere_where_utils_is_installed(tmp_path, write_warm):
    assert len(EXAMPLE.splitlines()) <= 5
    run_python("-c", "import utils.training", folder=tmp_path)
    done = run_python(*write_warm(EXAMPLE)[1:], folder=tmp_path)
    assert "mirrored, 2 replicas" in done and "epoch   2: loss" in done
    assert re.search(r"^[0-9a-f]{64} \[", done, re.MULTILINE)


def run_python(*arguments, folder, python=sys.executable, **variables):
    return run_child(python, *arguments, cwd=folder, variables=variables, status=0).stdout


def test_an_own_model_trains_on_one_machine_and_on_two(write_warm):
    folder = Path(write_warm(MINE, "mine.py")[1]).parent
    one, two = (line.split()[1:] for line in re.findall("^python mine.py .*", OWN, re.MULTILINE))
    alone = run_python(*one, folder=folder)
    assert "own data, 1,000 training examples" in alone and "mirrored, 2 replicas" in alone
    text = re.search(r"export TF_CONFIG='(.*?)'", OWN)[1]
    for name, port in zip(("one:2222", "two:2222"), pick_free_ports(2)):
        assert name in text
        text = text.replace(name, f"127.0.0.1:{port}")
    texts = [text, text.replace('"index": 0', '"index": 1')]
    with ThreadPoolExecutor() as pool:
        told = list(pool.map(lambda t: run_python(*two, folder=folder, TF_CONFIG=t), texts))
    losses = [re.findall(r"loss ([\d.]+)", output) for output in (alone, *told)]
    assert losses[1] == losses[2] and len(losses[0]) == 3
    assert [float(loss) for loss in losses[1]] == pytest.approx(
        [float(loss) for loss in losses[0]], abs=2e-3
    )


@pytest.mark.long
def test_a_project_with_its_own_utils_takes_ours_under_another_name(tmp_path):
    """Next to a package called `utils`, ours is `distkit`, also in the processes it starts.

    From the sources' archive to a wheel, in an environment that has neither the course nor pip;
    what the library needs it takes from here, as there is no network.
    """
    folder, project = tmp_path / "library", tmp_path / "project"
    shutil.copytree(ROOT / "utils", folder, ignore=shutil.ignore_patterns("__pycache__", "build"))
    make_source = "from setuptools import build_meta; build_meta.build_sdist('..')"
    pip = ["-m", "pip", "--quiet", "--disable-pip-version-check", "wheel"]
    run_python("-c", make_source, folder=folder)
    (source,) = tmp_path.glob("distkit-*.tar.gz")
    run_python(*pip, "--no-build-isolation", "--no-deps", source, folder=tmp_path)
    run_python("-m", "venv", "--without-pip", "env", folder=tmp_path)
    (wheel,) = tmp_path.glob("distkit-*.whl")
    (site,) = tmp_path.glob("env/lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as opened:
        opened.extractall(site)
    (site / "needed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    installed = metadata.PathDistribution(next(site.glob("distkit-*.dist-info")))
    needed = {re.match(r"\w+", r)[0] for r in installed.requires if "extra ==" not in r}
    assert needed == {"tensorflow", "keras", "numpy", "psutil", "cloudpickle"}
    copied, junk = site / "distkit", re.compile(r"__pycache__|^build/|egg-info")
    there, here = (
        {p for path in root.rglob("*.*") if not junk.search(str(p := path.relative_to(root)))}
        for root in (copied, ROOT / "utils")
    )
    templates = {path.name for path in (ROOT / "examples" / "deploy").iterdir()}
    assert set(os.listdir(copied / "engines" / "deploy")) - {"__pycache__"} == templates
    here |= {Path("engines", "deploy", name) for name in templates if "." in name}  # a link
    assert here - there == {Path("pyproject.toml")} and there <= here
    (project / "utils").mkdir(parents=True)
    (project / "utils" / "__init__.py").write_text("MINE = 1\n")
    (project / "mine.py").write_text(MINE.replace("utils.training", "distkit.training"))
    cluster = """
import sys
from mine import build_model, make_data


def train_there(strategy):
    import utils
    from distkit.training import train

    report = train(strategy=strategy, model=build_model, train_data=make_data, loss="mse")
    return utils.MINE, sorted(n for n in sys.modules if n.startswith("utils.")), report


if __name__ == "__main__":
    from distkit.cluster import LocalCluster

    with LocalCluster(workers=2) as cluster:
        for mine, ours, report in cluster.run(train_there, "multi-worker", timeout=150, echo=False):
            print(mine, ours, report.workers, report.weights_checksum)

    import contextlib, io, runpy, distkit, utils
    sys.argv = ["mine.py", "mirrored"]
    with contextlib.redirect_stdout(io.StringIO()) as said:
        runpy.run_path("mine.py", run_name="__main__")
    assert "mirrored, 2 replicas" in said.getvalue(), said.getvalue()
    report = distkit.train(strategy="mirrored", replicas=2, model="mlp", max_examples=64, epochs=1)
    course = {"distlab", "tqdm", "tensorflow_datasets", "pandas"}
    print(distkit.__version__, utils.MINE, len(report.loss), course & set(sys.modules))
"""
    (project / "cluster.py").write_text(cluster)
    own = {"folder": project, "python": tmp_path / "env" / "bin" / "python"}
    one, other, alone = run_python("cluster.py", **own).splitlines()
    assert one == other and one.startswith("1 [] 2 "), (one, other)
    assert alone == f"{installed.version} 1 1 set()"
    strings = [path for path in copied.rglob("*.py") if '"utils.' in path.read_text()]
    assert not strings, "a name in a string would be the other project's"


def test_lessons_and_labs_are_those_of_the_sources():
    before, after = course_map.fill_readme(ROOT)
    assert before == README == after, "run distlab build"
    rows = re.findall(r"^\| ((?:\d\d|\[\d\d) [^|]*?) \|", README, re.MULTILINE)
    lessons = [row for row in rows if "](labs/" not in row]
    assert [row.lstrip("[")[:2] for row in lessons] == [f"{number:02}" for number in range(25)]
    for folder in ("notebooks", "labs", "solutions"):
        linked = {n for n in LINKS if n.startswith(f"{folder}/") and n.endswith(".ipynb")}
        assert linked == {f"{folder}/{path.name}" for path in (ROOT / folder).glob("*.ipynb")}


def test_a_row_says_what_its_source_says(tmp_path):
    for folder in ("notebooks/src", "solutions/src"):
        (tmp_path / folder).mkdir(parents=True)
    head = '# %% [markdown] shows="A ring"\n# # All-reduce\n#\n'
    head += "# **Time:** 60 minutes · **Prerequisites:**"
    source = tmp_path / "notebooks/src/06_all_reduce.py"
    source.write_text(head + " [x](05-x.ipynb) and\n# lesson 04 · **Hardware:** lesson 01\n")
    row = "| [06 All-reduce](06-all-reduce.ipynb) | A ring | 60 | 04, 05 |"
    assert row in course_map.write_lessons(tmp_path, "").split("\n")
    filled = course_map.fill_placeholder("# a\n# {{lessons}}\n# b\n", tmp_path).split("\n")
    assert f"# {row}" in filled and all(line.startswith("#") for line in filled[:-1])
    (tmp_path / "README.md").write_text("a\n<!-- labs: begin -->\n\n\n\n<!-- labs: end -->\nb\n")
    assert course_map.refresh_readme(tmp_path) and not course_map.refresh_readme(tmp_path)
    assert "| Lab | Exercises |" in (tmp_path / "README.md").read_text()
    source.write_text("# %% [markdown]\n# # All-reduce\n")
    with pytest.raises(DistributedError, match="06_all_reduce.py must give .*shows=.*; line: "):
        course_map.write_lessons(tmp_path)


def test_the_page_of_the_command_line_is_what_the_help_says():
    assert DOCS["command-line"] == command_page.write_page(), "python -m distlab.cli.command_page"
    named = [name for names in TASKS.values() for name in names]
    assert sorted(named) == sorted(make_parser().list_commands())


def test_what_works_is_what_the_table_in_the_library_says():
    words = {True: "works", False: "fails", None: "needs a TPU"}
    columns = [
        ("fit", "keras 3"),
        ("custom", "keras 3"),
        ("fit", "tf_keras"),
        ("custom", "tf_keras"),
    ]
    cells = {(row.strategy, row.loop, row.keras): words[row.works] for row in SUPPORT}
    expected = [[f"`{name}`", *(cells[name, *column] for column in columns)] for name in NAMES]
    assert read_table(DOCS["compatibility"], "Strategies and Keras") == expected


def test_versions_and_names_agree_with_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == ">=3.11,<3.14"
    assert all("Python 3.11, 3.12 or 3.13" in text for text in (README, DOCS["install"]))
    pins = dict(d.split("==") for d in project["dependencies"] if "==" in d)
    for title, name in (("TensorFlow", "tensorflow"), ("Keras", "keras"), ("tf_keras", "tf_keras")):
        assert f"{title} {'.'.join(pins[name].split('.')[:2])}" in DOCS["compatibility"]
    name = re.search(r"^name: *(\S+)", (ROOT / "environment.yml").read_text(), re.MULTILINE)[1]
    assert f"conda activate {name}" in SHELL.splitlines()


def test_the_quoted_error_is_the_one_that_is_raised(tf):
    from utils.devices import use_logical_devices

    with pytest.raises(DistributedError) as raised:
        use_logical_devices(64)
    quoted = re.search(r'"(4 logical devices [^"]*)"', DOCS["troubleshooting"])[1]
    without_numbers = [re.sub(r"\d+", "N", text) for text in (quoted, str(raised.value))]
    assert without_numbers[1].startswith(without_numbers[0])
