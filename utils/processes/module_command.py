"""Start a module of this library in a fresh Python, from any working directory.

`python -m` puts the working directory first, where a project may have packages of the same
names. So the folder that holds this library is named instead.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

START = (
    "import importlib, sys; sys.path.insert(0, sys.argv.pop(1)); "
    "importlib.import_module(sys.argv.pop(1)).main()"
)


def is_module_command(words: Sequence[str]) -> bool:
    """Return whether this is one of `make_module_command`: the words 4 and 5 are FOLDER, MODULE."""
    return list(words[1:4]) == ["-P", "-c", START] and len(words) > 5


def make_module_command(module: str, *arguments: str) -> list[str]:
    """Return the command that calls `main()` of `module`, named in full, in its own process.

    Its `sys.argv[1:]` are `arguments`.
    """
    top = __package__.split(".")[0]
    folder = Path(sys.modules[top].__file__ or __file__).parents[1]
    return [sys.executable, "-P", "-c", START, str(folder), module, *arguments]
