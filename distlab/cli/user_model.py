"""A user's model, built in a worker of our cluster: their module loaded next to our library.

Their project may have its own package `utils` or `distlab`. While their code is imported and their
function is called, ours are out of sight, and come back afterwards. Their loaded modules stay with
the functions that use them.
"""

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from distlab.cli.user_child import TargetError, describe_exit, load_function
from utils import errors
from utils.errors import InputError, first_line

OURS = ("utils", "distlab")
EXAMPLE = "my_model:make_model"


def build_user_model(target: str, folder: str) -> Any:
    """Return what the function `MODULE:FUNCTION` of the project in `folder` returns.

    Raises InputError in one line where it can't be loaded or fails.
    """
    with _without_our_packages(folder):
        try:
            return load_function(target, EXAMPLE)()
        except TargetError as error:
            raise InputError(str(error)) from None
        except SystemExit as error:
            raise InputError(describe_exit(error)) from None
        except Exception as error:
            said = f"{type(error).__name__}: {first_line(error)}"
            raise InputError(f"{target} failed: {said}") from None


@contextmanager
def _without_our_packages(folder: str) -> Iterator[None]:
    """Hide our packages from imports, and work in `folder`, where imports look first."""

    def is_ours(name: str) -> bool:
        return name.partition(".")[0] in OURS

    hidden = {name: module for name, module in sys.modules.items() if is_ours(name)}
    for name in hidden:
        del sys.modules[name]
    path, place, home = list(sys.path), os.getcwd(), str(Path(errors.__file__).parents[1])
    sys.path[:] = [folder, *(entry for entry in path if os.path.abspath(entry) != home)]
    os.chdir(folder)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        os.chdir(place)
        sys.path[:] = path
        for name in [name for name in sys.modules if is_ours(name)]:
            del sys.modules[name]
        sys.modules.update(hidden)
