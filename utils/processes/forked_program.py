"""A fork of a warm process becomes a program, as if a fresh Python had started it.

The fork has the modules that its parent imported. Here it gets the rest of what a process
has: folder, environment, standard streams, arguments and an end with its exit functions.
What differs: /proc shows the command line and the environment of the warm process.
"""

import atexit
import contextlib
import ctypes
import importlib
import os
import runpy
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .module_command import is_module_command

KERNEL = "ipykernel_launcher"
INLINE = "module://matplotlib_inline.backend_inline"  # what ipykernel sets in its kernels
# read when Python or TensorFlow starts: a program with another value needs a fresh Python
STARTING = ("TF_", "XLA_", "KERAS_", "PYTHON", "LD_", "OMP_", "LC_")
FREE = ("TF_CONFIG", "TF_CPP_MIN_LOG_LEVEL", "KERAS_DISTRIBUTION_")  # a task's own
INTERRUPTED = -signal.SIGINT  # as `subprocess` says that a signal ended a process
SET_BLAS_THREADS = (
    "scipy_openblas_set_num_threads64_",
    "openblas_set_num_threads64_",
    "scipy_openblas_set_num_threads",
    "openblas_set_num_threads",
)


def pick_starting(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that are read at a start."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(STARTING) and not name.startswith(FREE)
    }


def enter(folder: str, environment: Mapping[str, str]) -> None:
    """Take the folder, the environment and the standard streams that a program is to have.

    Descriptors 0, 1 and 2 are its streams. Raises OSError if the folder isn't there.
    """
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = _open_stream(number)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _open_stream(number: int) -> Any:
    """Return what Python makes of descriptor 0, 1 or 2 when it starts."""
    errors = "backslashreplace" if number == 2 else "strict"
    lines = 1 if number == 2 or os.isatty(number) else -1
    return open(number, "r" if number == 0 else "w", lines, "utf-8", errors, closefd=False)


def forget_modules(packages: Iterable[str]) -> None:
    """Let `packages` be imported from their files again: these may have been edited since."""
    tops = set(packages)
    for name in [name for name in sys.modules if name.partition(".")[0] in tops]:
        del sys.modules[name]


def use_all_cores() -> None:
    """Let NumPy's products use every core: a warm process keeps its library to one thread."""
    with contextlib.suppress(OSError), open("/proc/self/maps") as maps:
        for path in {line.split()[-1] for line in maps if "openblas" in line.rpartition("/")[2]}:
            library = ctypes.CDLL(path)
            found = (getattr(library, name, None) for name in SET_BLAS_THREADS)
            for set_threads in filter(None, found):
                set_threads(len(os.sched_getaffinity(0)))
                break


def run_program(words: Sequence[str]) -> None:
    """Run a program, whose words are given, in this process.

    They are `python -m MODULE …`, `python FILE …` or what `make_module_command` makes.
    """
    import numpy as np

    np.random.seed()
    if is_module_command(words):
        sys.orig_argv, sys.argv, sys.path[0] = list(words), ["-c", *words[6:]], words[4]
        return importlib.import_module(words[5]).main()
    is_module = words[1] == "-m"
    sys.orig_argv, sys.argv = list(words), list(words[2 if is_module else 1 :])
    if sys.argv[0] == KERNEL:
        os.environ.setdefault("MPLBACKEND", INLINE)
    if "MPLBACKEND" in os.environ and "matplotlib" in sys.modules:  # imported without it
        sys.modules["matplotlib"].rcParams["backend"] = os.environ["MPLBACKEND"]
    if is_module:
        sys.path[0] = os.getcwd()
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
        runpy.run_path(os.path.abspath(sys.argv[0]), run_name="__main__")


def find_exit_status(program: Callable[[], object]) -> int:
    """Call `program`; return its exit status, and print what it raised, as Python does."""
    try:
        program()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException as error:
        sys.excepthook(*sys.exc_info())
        return INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
    return 0


def run_to_the_end(program: Callable[[], object]) -> int:
    """Call `program` and the exit handlers; return the exit status for `os._exit`.

    A Python that ended by itself would take apart all modules that this fork shares with its
    parent: 0.5 s of a core. An interrupted program ends by the signal, as it does in Python.
    """
    status = find_exit_status(program)
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as Python does
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    if status == INTERRUPTED:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    return status & 0xFF
