"""CONTRIBUTING.md and docs/architecture.md: their files are there, and what `make test` skips."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from run_record import skips_long

ROOT = Path(__file__).parents[1]
# a bare name such as `step.py` is a file of one of architecture's two trips
NEAR = {"training run": "utils/training", "submission": "distlab/grading"}


def test_contributing_begins_with_the_files_to_edit_and_names_only_files_that_exist():
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    assert contributing.split("\n\n")[1].startswith("The files to edit are `notebooks/src/*.py`")
    text, count = contributing + "\n" + (ROOT / "docs/architecture.md").read_text(), 0
    for section in text.split("\n## "):
        near = next((f for words, f in NEAR.items() if words in section.split("\n")[0]), ".")
        named = re.findall(r"`([\w./-]+(?:/|\.(?:py|md|toml|js)))`|\]\(([\w./-]+)\)", section)
        for name in (code or link for code, link in named):
            pattern = name.replace("NN", "[0-9][0-9]").replace("slug", "*").rstrip("/")
            folders = (ROOT, ROOT / "docs", ROOT / near)
            assert any(any(folder.glob(pattern)) for folder in folders), name
            count += 1
    assert count > 60


@pytest.mark.parametrize(
    "source, chosen, skips",
    [
        ("TESTPATHS", {}, True),
        ("TESTPATHS", {"keyword": "lesson22"}, False),
        ("TESTPATHS", {"markexpr": "long"}, False),
        ("TESTPATHS", {"lf": True}, False),
        ("TESTPATHS", {"after": Path("first.json")}, False),
        ("ARGS", {}, False),
    ],
)
def test_only_the_bare_command_skips_what_is_long(monkeypatch, source, chosen, skips):
    monkeypatch.setattr("run_record.EVERYTHING", False)
    place = pytest.Config.ArgsSource[source]
    assert skips_long(SimpleNamespace(args_source=place, getoption=chosen.get)) is skips
