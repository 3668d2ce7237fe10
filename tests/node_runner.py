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

    The cases are JSON, but for Infinity. Arrays and numbers of NumPy may be among them.
    """
    path = folder / f"{model}.js"
    path.write_text(f"module.exports = {json.dumps(groups, default=np.ndarray.tolist)};")
    run = subprocess.run(
        [need_node(), "--test", TESTS / f"{model}.test.js"],
        env=os.environ | {"CASES": str(path)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert run.returncode == 0, run.stdout + run.stderr
