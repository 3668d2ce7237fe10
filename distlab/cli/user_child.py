"""The child process that loads a user's module and runs our library on it.

Run as a file, not as a module: nothing called `utils` or `distlab` is imported here. The user's
project may have its own package `utils`, so our folder is loaded under another name, which its
relative imports allow. Both are in one process because what the user's function returns, a dataset
or a model, can't travel to another one.

Standard input carries the order and then stays open: its end means that the parent has
gone. The reply, one JSON object, goes to the file descriptor that the order names;
whatever the user's code prints goes to standard error.
"""

import importlib
import importlib.util
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

LIBRARY = "_distlab_utils"  # no user's package has this name
Order = dict[str, Any]


class TargetError(Exception):
    """The target can't be loaded, or it ended the process; the message is one line."""


def main() -> None:
    order = json.loads(sys.stdin.readline())
    os.set_inheritable(order["reply"], False)
    _end_with_parent()
    os.dup2(2, 1)
    library = load_library(order["library"])
    errors = importlib.import_module(f"{LIBRARY}.errors")
    try:
        reply = {"result": _work(library, order)}
    except (TargetError, errors.DistributedError) as error:
        reply = {"error": str(error)}
    except SystemExit as error:
        reply = {"error": describe_exit(error)}
    sys.stdout.flush()  # the parent kills this process as soon as it has the reply
    with open(order["reply"], "w") as stream:
        stream.write(json.dumps(reply) + "\n")


def _end_with_parent() -> None:
    """End this process and its children when standard input ends; give the user's code no input."""
    lifeline = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)

    def wait() -> None:
        os.read(lifeline, 1)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()


def load_library(folder: str) -> ModuleType:
    """Import the package in `folder` as `LIBRARY`, and return it."""
    spec = importlib.util.spec_from_file_location(
        LIBRARY, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    package = sys.modules[LIBRARY] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)
    return package


def _work(library: ModuleType, order: Order) -> dict[str, Any]:
    environment = importlib.import_module(f"{library.__name__}.environment")
    failure: BaseException | None = None
    with environment.quiet_tensorflow():  # an error in it would print TensorFlow's banner
        try:
            function = load_function(order["target"], order["example"])
        except (TargetError, SystemExit) as error:
            failure = error
    if failure is not None:
        raise failure
    work = getattr(importlib.import_module(f"{library.__name__}.{order['room']}"), order["name"])
    settings = order["settings"]
    if order["progress"]:
        settings["say"] = lambda text: print(f"{order['progress']}: {text}", file=sys.stderr)
    report = work(function, **settings)
    return {"text": str(report), "record": report.to_dict()}


def load_function(target: str, example: str) -> Callable[[], Any]:
    """Return the function that `MODULE:FUNCTION` names; `example` goes into an error.

    The current folder comes first, as for `python -m`. Raises TargetError for another form, for a
    missing module or one that fails when imported, and for a name that it lacks or that isn't a
    function.
    """
    module_name, name = split_target(target, example)
    sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and module_name.startswith(error.name):
            raise TargetError(
                f"There is no module {module_name!r} in this folder or the environment. Run "
                "this in the file's folder, and leave out .py."
            ) from None
        raise TargetError(f"{module_name} imports a missing module: {error}") from None
    except Exception as error:
        first = (str(error).strip().split("\n") or [""])[0][:200]
        raise TargetError(f"{module_name} failed: {type(error).__name__}: {first}") from None
    function = getattr(module, name, None)
    if not callable(function):
        what = "has no function" if function is None else "has, and it is no function,"
        raise TargetError(f"{module_name} {what} {name!r}")
    return function


def split_target(target: str, example: str) -> tuple[str, str]:
    """Return MODULE and FUNCTION of a target; raise TargetError for another form."""
    module_name, _, name = target.partition(":")
    if not (module_name and name):
        raise TargetError(
            f"The function must be written MODULE:FUNCTION, for example {example}, got {target!r}."
        )
    return module_name, name


def describe_exit(error: SystemExit) -> str:
    """Return who called `sys.exit`, and with what, in one line."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    said = "" if error.code is None else repr(error.code)[:100]
    if place is None:
        return f"something called sys.exit({said}): return instead"
    code = place.tb_frame.f_code
    who = f"{code.co_name}()" if code.co_name != "<module>" else "the module"
    file = os.path.basename(code.co_filename)
    return f"{who} ({file}, line {place.tb_lineno}) called sys.exit({said}): return instead"


if __name__ == "__main__":
    main()
