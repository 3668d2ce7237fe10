"""Quiet TensorFlow, seeds and versions. This module never imports TensorFlow."""

import contextlib
import ctypes
import gc
import logging
import os
import platform
import random
import re
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from typing import IO, Any

PACKAGES = ("tensorflow", "keras", "tf_keras", "numpy", "jupyterlab")
MIB = 2**20
# what TensorFlow's C++ log begins its lines with
LOG_LINE = re.compile(r"[IWEF]\d{4} |\d{4}-\d\d-\d\d [\d:.]+: [IWEF] |WARNING: All log messages")
KEPT_MEMORY = (  # glibc's name in the environment, its number for mallopt (malloc.h), bytes
    ("MALLOC_TRIM_THRESHOLD_", -1, 512 * MIB),
    ("MALLOC_TOP_PAD_", -2, 64 * MIB),
    ("MALLOC_MMAP_THRESHOLD_", -3, 32 * MIB),
)


def count_cores() -> int:
    """Return how many processor cores this process may use."""
    return len(list_cores())


def list_cores() -> list[int]:
    """Return the numbers of the processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def find_kernel_shell() -> Any:
    """Return IPython's shell in a notebook's kernel, else None (pictures import ipykernel too)."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell if getattr(shell, "kernel", None) is not None else None


def skip_uri_grammar() -> None:
    """Keep `jsonschema`, which nbformat imports, from building a grammar of URIs: 0.7 s.

    It is one of its optional formats, and no notebook's schema uses it. To be called
    before nbformat is imported.
    """
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]


@contextlib.contextmanager
def quiet_tensorflow() -> Iterator[None]:
    """Silence TensorFlow's start-up banner, and its warnings from then on.

    Use it around the first import:

        with quiet_tensorflow():
            import tensorflow as tf

    TensorFlow's C++ code writes to file descriptor 2 before any Python setting
    reaches it, so the descriptor itself is caught while the block runs. If the
    block raises, what was caught is printed, so that no real error is lost.
    The banner is caught and not switched off: `TF_ENABLE_ONEDNN_OPTS=0` would
    silence it too, and make a small CNN train four times slower. This process also
    keeps freed memory from here on (`keep_freed_memory`), and looks for no garbage
    while the block runs: an import makes none, and takes a third less time.
    """
    keep_freed_memory()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with _open_scratch_file() as caught, _without_garbage_collection():
        try:
            with _stderr_to(caught.fileno()):
                yield
        except KeyboardInterrupt:
            raise
        except BaseException:
            caught.seek(0)
            sys.stderr.write(caught.read().decode(errors="replace"))
            raise
    for name in ("tensorflow", "absl"):
        logging.getLogger(name).setLevel(logging.ERROR)


def keep_freed_memory() -> bool:
    """Let this process, and what it forks, use freed memory again; return whether that works.

    glibc gives memory back to the system when a step has freed its tensors, and the next step
    pays for every page anew: half of the processor time of a small CNN's step with two
    replicas or two workers. Only glibc (Linux) can; elsewhere this does nothing. A variable of
    `KEPT_MEMORY` that the user has set is left unchanged.
    https://man7.org/linux/man-pages/man3/mallopt.3.html
    """
    try:
        os.confstr("CS_GNU_LIBC_VERSION")
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, ValueError, OSError):
        return False
    chosen = [(number, size) for name, number, size in KEPT_MEMORY if name not in os.environ]
    return all([mallopt(number, size) for number, size in chosen])


def memory_variables() -> dict[str, str]:
    """Return what makes any program keep its freed memory: variables not set in this process."""
    return {name: str(size) for name, _, size in KEPT_MEMORY if name not in os.environ}


def _open_scratch_file() -> IO[bytes]:
    """Return a temporary file, or the null device where nothing can be written."""
    try:
        return tempfile.TemporaryFile()
    except OSError:
        return open(os.devnull, "w+b")


@contextlib.contextmanager
def _without_garbage_collection() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextlib.contextmanager
def _stderr_to(target: int) -> Iterator[None]:
    saved = os.dup(2)
    sys.stderr.flush()
    os.dup2(target, 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(saved, 2)
        os.close(saved)


def set_seeds(seed: int) -> None:
    """Seed Python, NumPy and, if already imported, Keras with TensorFlow, by `seed`.

    Seeds the module-level generators only; give `np.random.default_rng(seed)` to your own code.

        >>> set_seeds(0)
    """
    import numpy as np  # not for callers who only want quiet: it takes a quarter of a second

    random.seed(seed)
    np.random.seed(seed % 2**32)
    keras = sys.modules.get("keras")
    if keras is not None:
        keras.utils.set_random_seed(seed)


def versions() -> dict[str, str]:
    """Return the version of Python and of each of `PACKAGES`, "missing" where not installed."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "missing"
    return found
