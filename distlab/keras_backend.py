"""A notebook whose kernel starts with another Keras backend, as lesson 24's does on JAX.

The head of its source says so, `keras_backend="jax"`, and the build keeps it in the notebook's
metadata. A warm kernel has imported Keras on TensorFlow, so this one starts from scratch.
"""

import importlib.util
import json
from pathlib import Path
from typing import Any

from distlab.errors import CourseError

BACKENDS = ("jax", "torch")  # no other value is passed on: opening a notebook starts its kernel


def require_jax(asker: str) -> None:
    """Raise CourseError if JAX isn't installed: one line, in a notebook too."""
    if importlib.util.find_spec("jax") is None:
        error = CourseError(f"{asker} needs JAX: pip install -c constraints.txt jax")
        error._render_traceback_ = lambda: [str(error)]  # type: ignore[attr-defined] # IPython asks
        raise error


def pick_variables(metadata: Any) -> dict[str, str]:
    """Return the variables that the kernel of a notebook with this `metadata` starts with."""
    try:
        backend = metadata["distlab"]["keras_backend"]
    except (KeyError, TypeError):
        return {}
    return {"KERAS_BACKEND": backend} if backend in BACKENDS else {}


def read_variables(notebook: str | Path) -> dict[str, str]:
    """Return the same for the notebook in a file; none if it can't be read."""
    try:
        return pick_variables(json.loads(Path(notebook).read_text(encoding="utf-8"))["metadata"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}
