"""Regenerate lessons, labs and solutions: only what changed, several at once."""

import time
from collections.abc import Collection, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from distlab.authoring.outputs import normalize_outputs
from distlab.authoring.sources import Target, digest_code, make_lab, read_source, to_text
from distlab.errors import CourseError
from utils.errors import DistributedError
from utils.files import write_atomically

CELL_SHARE = 0.4  # of a notebook's time: what one cell may take
READABLE = 0o644  # by all who share a course folder


@dataclass(frozen=True)
class BuildResult:
    """The build of one target: `error` is "" if it worked, `ran` is True if its cells ran."""

    slug: str
    seconds: float
    error: str
    ran: bool = True


def find_stale(target: Target) -> list[str]:
    """Return why the files of `target` aren't what its source generates; [] if they are.

    Nothing is executed: cells are compared by id, type, source and metadata,
    notebooks by metadata (with a digest of the code that ran), labs byte for byte.
    """
    expected = _expect(target)
    reasons = _compare_notebook(expected, target.notebook)
    if target.lab is not None:
        lab = _read_text(target.lab)
        if lab is None:
            reasons.append(f"labs/{target.lab.name} is missing")
        elif lab != to_text(make_lab(expected)):
            reasons.append(f"labs/{target.lab.name} isn't what its source generates")
    return reasons


def _expect(target: Target) -> Any:
    """Return what the source of `target` generates, read once for each time it is saved."""
    return _read_once(target, target.source.stat().st_mtime_ns)


@lru_cache(maxsize=64)
def _read_once(target: Target, saved_at: int) -> Any:
    return read_source(target)


def _compare_notebook(expected: Any, path: Path) -> list[str]:
    name = f"{path.parent.name}/{path.name}"
    found = _read_notebook(path)
    if isinstance(found, str):
        return [f"{name} {found}"]
    metadata = found.metadata
    reasons = [] if metadata == expected.metadata else [f"{name}: notebook metadata differ"]
    if metadata.get("distlab") != expected.metadata["distlab"]:
        reasons = [f"{name}: its code has changed since it ran"]
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


def _read_notebook(path: Path) -> Any:
    """Return the notebook at `path`, or the reason why there is none."""
    import nbformat.v4

    text = _read_text(path)
    if text is None:
        return "is missing"
    try:
        found = nbformat.v4.reads(text)  # nbformat.reads would compare it with the schema as well
        return found if found.cells and found.metadata else "cannot be read: it is empty"
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        return f"cannot be read: {str(error).splitlines()[0]}"


def must_run(target: Target) -> bool:
    """Return whether the code of `target` differs from the code that made its outputs."""
    found = _read_notebook(target.notebook)
    if isinstance(found, str):
        return True
    ran = found.metadata.get("distlab", {}).get("code")
    cells = [cell for cell in found.cells if cell.cell_type == "code" and cell.source]
    same = digest_code(_expect(target)) == ran == digest_code(found)
    return not same or any(cell.execution_count is None for cell in cells)


def build_target(target: Target, root: Path, seconds: float, run: bool = True) -> None:
    """Write the notebook of `target`, and its lab; on an error write neither.

    With `run` all cells are executed; without, they keep the outputs they have.
    Raises CourseError for whatever goes wrong in the source or in a cell.
    """
    notebook = read_source(target)
    metadata = dict(notebook.metadata)
    lab = None if target.lab is None else to_text(make_lab(notebook))
    if run:
        from distlab.authoring.execute import execute_notebook

        cell_seconds = CELL_SHARE * seconds  # 120 s of the usual 300
        execute_notebook(notebook, target.notebook.parent, seconds, cell_seconds)
    else:
        _keep_outputs(notebook, target)
    notebook.metadata = metadata
    normalize_outputs(notebook, root)
    write_atomically(target.notebook, to_text(notebook), mode=READABLE)
    if target.lab is not None:
        write_atomically(target.lab, lab, mode=READABLE)


def _keep_outputs(notebook: Any, target: Target) -> None:
    """Give each code cell of `notebook` the outputs that the same cell has in its file.

    Raises CourseError if a cell isn't there yet, or the file can't be read.
    """
    found = _read_notebook(target.notebook)
    if isinstance(found, str):
        raise CourseError(f"{target.notebook.name} {found}. Build it without --keep-outputs.")
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    before = [cell for cell in found.cells if cell.cell_type == "code"]
    by_id = {cell.id: cell for cell in before}
    moved = all(cell.id in by_id for cell in cells)  # or gone; the words of a cell make its id
    by_place = len(cells) == len(before) and not moved
    sources = {cell.source for cell in cells}
    for place, cell in enumerate(cells):
        old = before[place] if by_place else by_id.get(cell.id)
        if old is not None and old.source != cell.source:  # cells that begin alike swap their ids
            now = old.source in sources  # it is another cell's, then
            old = next((c for c in before if c.source == cell.source), None if now else old)
        if old is None:
            raise CourseError(
                f"{target.notebook.name} has no outputs for the new cell {cell.id}. "
                "Build it without --keep-outputs."
            )
        cell.outputs, cell.execution_count = old.outputs, place + 1  # cells may have gone
        for output in cell.outputs:
            if "execution_count" in output:
                output["execution_count"] = place + 1


def build_all(
    targets: list[Target],
    root: Path,
    jobs: int = 2,
    seconds: float = 300.0,
    kept: Collection[Target] = (),
) -> Iterator[BuildResult]:
    """Build `targets`, `jobs` at a time; yield a BuildResult for each as it ends.

    Those in `kept` aren't run: they keep the outputs they have. When the caller
    stops early (an interrupt, an error), running kernels are killed before this returns.
    """
    yield from (_timed(t, root, seconds, run=False) for t in targets if t in kept)
    waiting_for = [target for target in targets if target not in kept]
    if waiting_for:
        yield from _run_all(waiting_for, root, jobs, seconds)


def _run_all(targets: list[Target], root: Path, jobs: int, seconds: float) -> Iterator[BuildResult]:
    from distlab.authoring.execute import KernelGroup

    pool = ThreadPoolExecutor(max_workers=jobs)
    waiting = {pool.submit(_timed, target, root, seconds, run=True) for target in targets}
    try:
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
    finally:
        running = {future for future in waiting if not future.cancel()}
        while running:  # a kernel that is just being started is killed the next time round
            for group in list(KernelGroup.live):
                group.kill()
            running = wait(running, timeout=0.2).not_done
        pool.shutdown()


def _timed(target: Target, root: Path, seconds: float, run: bool) -> BuildResult:
    begun = time.perf_counter()
    error = ""
    try:
        build_target(target, root, seconds, run)
    except DistributedError as mistake:
        error = str(mistake)
    return BuildResult(target.slug, time.perf_counter() - begun, error, run)
