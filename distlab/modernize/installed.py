"""Find the public names of the installed TensorFlow and Keras, read from their files.

Both ship their public API as generated modules that only import. Those are parsed, and nothing
is imported. TensorFlow also ships the new names of what TensorFlow 1 had.
"""

import ast
from functools import cache
from importlib.util import find_spec
from pathlib import Path

KERAS_IN_TF = ("losses", "metrics", "optimizers", "initializers")  # tf.losses is keras.losses
NEED_KERAS_2 = ("tf.compat.v1.layers", "tf.compat.v1.nn.rnn_cell")  # listed, and fail in Keras 3
LAZY = ("keras", *KERAS_IN_TF)
API = {  # canonical root: package, and where in it the API's modules are
    "tf.compat.v1": ("tensorflow", "_api/v2/compat/v1"),
    "tf.keras": ("keras", "_tf_keras/keras"),
    "keras": ("keras", ""),
    "tf": ("tensorflow", "_api/v2"),
}
ANYTHING = ("tf.raw_ops", "tf.compat.v1.raw_ops", "tf.compat.v1.app", "tf.compat.v1.flags")


def find_missing(path: str) -> str | None:
    """Return the part of a dotted name up to what isn't there, None if all of it may be there.

    What is below a class or a function isn't looked at, nor are private names, nor packages
    that aren't installed.
    """
    root = next((root for root in API if path == root or path.startswith(root + ".")), None)
    folder = _find_folder(*API[root]) if root else None
    if folder is None:
        return None
    parts, seen = path[len(root) + 1 :].split(".") if path != root else [], root
    for part in parts:
        seen = f"{seen}.{part}"
        if part.startswith("_") or seen in ANYTHING or (root.startswith("tf") and part in LAZY):
            return None
        if (folder / part).is_dir():
            folder = folder / part
        elif part in _list_names(
            (folder.parents[1] if seen == f"tf.{part}" else folder) / "__init__.py"
        ):
            return None
        else:
            return seen
    return None


def has(path: str) -> bool:
    """Return whether the name is there."""
    return find_missing(path) is None


def has_module(module: str) -> bool:
    """Return whether `import tensorflow.a.b` finds a file; True where that isn't known."""
    package, _, rest = module.partition(".")
    folder = _find_folder(package, "")
    if folder is None or not rest:
        return True
    place = folder / rest.replace(".", "/")
    return (
        place.is_dir()
        or place.with_suffix(".py").is_file()
        or bool(list(place.parent.glob(f"{place.name}.*so")))
    )


def find_today(path: str) -> str | None:
    """Return where TensorFlow 1's name is today: elsewhere, or in tf.compat.v1; None if nowhere."""
    if path.startswith("tf.compat."):
        return None
    new = _read_renames().get(path) or "tf.compat.v1" + path[2:]
    return new if has(new) and not new.startswith(NEED_KERAS_2) else None


@cache
def _find_folder(package: str, below: str) -> Path | None:
    spec = find_spec(package)
    places = list(spec.submodule_search_locations or ()) if spec else []
    return Path(places[0], below) if places else None


@cache
def _list_names(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    return frozenset(each.asname or each.name for node in found for each in node.names)


@cache
def _read_renames() -> dict[str, str]:
    folder = _find_folder("tensorflow", "tools/compatibility")
    path = folder / "renames_v2.py" if folder else None
    if path is None or not path.is_file():
        return {}
    tree = ast.parse(path.read_text(encoding="utf-8"))
    value = next(node.value for node in tree.body if isinstance(node, ast.Assign))
    return ast.literal_eval(value)
