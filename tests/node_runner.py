"""Comparing a model of the browser with Python: Node.js's own runner, and the cases for it."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
from needs import need_node

TESTS = Path(__file__).parent / "browser"


def run_in_node(model: str, groups: dict[str, Any], folder: Path) -> None:
    """Run `browser/MODEL.test.js` on `groups`, lists of [given, truth]; show what it finds wrong.

    The cases are JSON, but for Infinity. NumPy's arrays and scalars may be among them.
    """
    path = folder / f"{model}.cjs"
    path.write_text(f"module.exports = {json.dumps(groups, default=_make_plain)};")
    run = subprocess.run(
        [need_node(), "--use-strict", "--test", TESTS / f"{model}.test.js"],
        env=os.environ | {"CASES": str(path)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert run.returncode == 0, run.stdout + run.stderr


def _make_plain(value: np.ndarray | np.generic) -> Any:
    return value.tolist()
