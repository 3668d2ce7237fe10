"""What a type checker sees of the public API: mypy reads it as a program of a user does."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from needs import need_packages

import utils

need_packages("a type checker", "mypy")
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
WRONG = """from utils import LocalCluster, build_cluster, split_batch, train

train(strategy="mirrored", epoch=3)  # "epoch"
train(epochs="3")  # "epochs"
train(checkpoint_dir=3)  # "checkpoint_dir"
print(train().los)  # "los"
split_batch("10", replicas=4)  # "str"
LocalCluster(worker=2)  # "worker"
build_cluster().wokers  # "wokers"
"""


@pytest.mark.slow(40)
def test_examples_are_well_typed_names_have_types_and_wrong_use_is_told(tmp_path):
    """One run, as most of its time goes into reading the library."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    for number, block in enumerate(blocks):
        (tmp_path / f"example_{number}.py").write_text(block)
    names = "".join(f"reveal_type(utils.{name})\n" for name in utils.__all__)
    (tmp_path / "names.py").write_text(f"import utils\n{names}")
    (tmp_path / "wrong.py").write_text(WRONG)
    options = (
        "--strict-equality --follow-imports=silent --ignore-missing-imports --no-error-summary"
    )
    told = subprocess.run(
        [sys.executable, "-m", "mypy", *options.split(), "--cache-dir", tmp_path / "cache", "."],
        cwd=tmp_path,
        env={"MYPYPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
    )
    lines = told.stdout.splitlines()
    assert told.stderr == ""
    (deliberate,) = [li for li in lines if li.startswith("example_") and ": error: " in li]
    assert 'keyword argument "epoch" for "train"; did you mean "epochs"' in deliberate
    shown = re.findall(r'^names\.py:\d+: note: Revealed type is "(.*)"$', told.stdout, re.MULTILINE)
    assert len(shown) == len(utils.__all__) and "Any" not in shown
    errors = dict(re.findall(r"^wrong\.py:(\d+): error: (.*)$", told.stdout, re.MULTILINE))
    for number, line in enumerate(WRONG.splitlines(), start=1):
        _, marked, word = line.partition("  # ")
        assert bool(marked) == (str(number) in errors), line
        assert word in errors.get(str(number), ""), errors
