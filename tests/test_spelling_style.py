"""American spelling and no ordinary typos, in prose, code and notebook sources.

codespell's two dictionaries; identifiers are split, so that `colour_of` is looked up as colour, of.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NAME = "tests/test_spelling_style.py"  # has misspelled words on purpose
DICTIONARIES = "clear,en-GB_to_en-US"
WORD = "[A-ZÀ-Þ]?[a-zß-ÿ]+(?:['’][a-z]+)?|[A-Z]{2,}"
ENDINGS = {".py", ".md", ".toml", ".js", ".css", ".html", ".txt", ".yml"}
ALLOWED = {
    "names in NumPy, TensorFlow, nbgrader, os": "atleast cancelled delimeter nd writeable wronly",
    "all-to-alls": "alls",
    "parts of a regular expression": "earch ontent",
    "heads of platforms' tables in German and French": "adresse als complet copie groupes",
    "a message of JAX": "initialise",
    "HTTPRequest, a name in Tornado": "equest",
    "typos made in tests": "colective mirored miror penatly polcy precent trian verson wokers",
}


def find_misspellings(*paths: Path) -> list[str]:
    command = [sys.executable, "-m", "codespell_lib", "--builtin", DICTIONARIES, "--regex", WORD]
    command += [
        "--ignore-words-list",
        ",".join(" ".join(ALLOWED.values()).split()),
        *map(str, paths),
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode in (0, 65), done.stderr  # 65: something was found
    return done.stdout.splitlines()


def test_words_are_spelled_as_americans_do():
    listed = subprocess.run(["git", "ls-files"], capture_output=True, text=True, cwd=ROOT)
    paths = [
        Path(name) for name in listed.stdout.splitlines() if "vendored" not in name and name != NAME
    ]
    paths = [path for path in paths if path.suffix in ENDINGS and (ROOT / path).is_file()]
    assert len(paths) > 500
    assert find_misspellings(*paths) == []


MISSPELLED = {
    "colour_of = 1": "colour",
    "class NormaliseIt: ...": "Normalise",
    "MAX_NEIGHBOURS = 2": "NEIGHBOURS",
    "# We recieve it.": "recieve",
}


@pytest.mark.parametrize("text, word", MISSPELLED.items())
def test_each_part_of_a_name_is_looked_up(tmp_path, text, word):
    (tmp_path / "some.py").write_text(text)
    [found] = find_misspellings(tmp_path / "some.py")
    assert f"{word} ==>" in found
