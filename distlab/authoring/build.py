"""Regenerate lessons, labs and solutions: only what changed, several at once."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distlab.authoring.outputs import normalise_outputs
from distlab.authoring.sources import Target, make_lab, read_source, to_text
from utils.errors import DistributedError
from utils.files import write_atomically

CELL_SECONDS = 120.0
READABLE = 0o644  # by all who share a course folder


@dataclass(frozen=True)
class Result:
    """What became of one target: `error` is "" when it was built."""

    slug: str
    seconds: float
    error: str


def find_stale(target: Target) -> list[str]:
    """Return why the files of `target` are not what its source generates; [] if they are.

    Nothing is executed: cells are compared by id, type, source and metadata,
    notebooks by metadata (with the source's SHA-256), labs byte for byte.
    """
    expected = read_source(target)
    reasons = _compare_notebook(expected, target.notebook)
    if target.lab is not None:
        lab = _read_text(target.lab)
        if lab is None:
            reasons.append(f"labs/{target.lab.name} is missing")
        elif lab != to_text(make_lab(expected)):
            reasons.append(f"labs/{target.lab.name} is not what its source generates")
    return reasons


def _compare_notebook(expected: Any, path: Path) -> list[str]:
    import nbformat

    name = f"{path.parent.name}/{path.name}"
    text = _read_text(path)
    if text is None:
        return [f"{name} is missing"]
    try:
        found = nbformat.reads(text, as_version=nbformat.NO_CONVERT)
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        return [f"{name} cannot be read: {str(error).splitlines()[0]}"]
    if found.metadata.get("distlab") != expected.metadata["distlab"]:
        return [f"{name}: its source has changed"]
    reasons = [] if found.metadata == expected.metadata else [f"{name}: notebook metadata differ"]
    if len(found.cells) != len(expected.cells):
        reasons.append(f"{name}: {len(found.cells)} cells, the source has {len(expected.cells)}")
    for index, (old, new) in enumerate(zip(found.cells, expected.cells, strict=False)):
        keys = [k for k in ("id", "cell_type", "source", "metadata") if old.get(k) != new.get(k)]
        if keys:
            reasons.append(f"{name}: cell {index}: {', '.join(keys)} differ")
        elif new.cell_type == "code" and new.source and old.execution_count is None:
            reasons.append(f"{name}: cell {index}: has not run")
    return reasons


def _read_text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def build_target(target: Target, root: Path, seconds: float) -> None:
    """Execute `target` and write its notebook, and its lab; on an error write neither.

    Raises CourseError for whatever goes wrong in the source or in a cell.
    """
    from distlab.authoring.execute import execute_notebook

    notebook = read_source(target)
    metadata = dict(notebook.metadata)
    lab = None if target.lab is None else to_text(make_lab(notebook))
    execute_notebook(notebook, target.notebook.parent, seconds, min(CELL_SECONDS, seconds))
    notebook.metadata = metadata
    normalise_outputs(notebook, root)
    write_atomically(target.notebook, to_text(notebook), mode=READABLE)
    if target.lab is not None:
        write_atomically(target.lab, lab, mode=READABLE)


def build_all(
    targets: list[Target], root: Path, jobs: int = 2, seconds: float = 300.0
) -> Iterator[Result]:
    """Build `targets`, `jobs` at a time; yield a Result for each as it ends.

    When the caller stops early (an interrupt, an error), running kernels are
    killed before this returns.
    """
    from distlab.authoring.execute import KernelGroup

    pool = ThreadPoolExecutor(max_workers=jobs)
    waiting = {pool.submit(_timed, build_target, t, root, seconds) for t in targets}
    try:
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
    finally:
        for future in waiting:
            future.cancel()
        for group in list(KernelGroup.live):
            group.kill()
        pool.shutdown(wait=True, cancel_futures=True)


def _timed(build: Callable[..., None], target: Target, root: Path, seconds: float) -> Result:
    begun = time.perf_counter()
    error = ""
    try:
        build(target, root, seconds)
    except DistributedError as mistake:
        error = str(mistake)
    return Result(target.slug, time.perf_counter() - begun, error)
