"""`distlab build`: make notebooks, labs and solutions of their sources."""

import argparse
import signal
from pathlib import Path
from types import FrameType

from distlab.errors import CourseError


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser(
        "build", help="make notebooks, labs and solutions of their sources, where they changed"
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help='"03", "lab01" or a slug; all')
    parser.add_argument("--check", action="store_true", help="run nothing; list what is stale")
    parser.add_argument("--force", action="store_true", help="build what has not changed as well")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="at once (default 2)")
    parser.add_argument(
        "--timeout", type=float, default=300.0, metavar="S", help="seconds a notebook (300)"
    )
    parser.add_argument("--root", type=Path, metavar="DIR", help="the course's folder")
    parser.set_defaults(run=run_build)


def run_build(parsed: argparse.Namespace) -> int:
    from distlab.authoring import sources

    if parsed.jobs < 1:
        raise CourseError(f"--jobs {parsed.jobs}: at least 1")
    if parsed.timeout <= 0:
        raise CourseError(f"--timeout {parsed.timeout:g}: more than 0 seconds")
    root = sources.find_root(parsed.root or Path.cwd())
    chosen = sources.choose_targets(sources.find_targets(root), parsed.names)
    orphans = [] if parsed.names else sources.find_orphans(root)
    stale = _list_stale(chosen)
    for path in orphans:
        print(f"{path.parent.name}/{path.name}: its source is gone: delete it")
    if parsed.check:
        for reason in (line for reasons in stale.values() for line in reasons):
            print(reason)
        print(f"{len(chosen) - len(stale)} of {len(chosen)} up to date")
        return 1 if stale or orphans else 0
    todo = [t for t in chosen if parsed.force or t.slug in stale]
    failed = _build(todo, root, parsed.jobs, parsed.timeout)
    print(f"{len(todo) - failed} built, {failed} failed, {len(chosen) - len(todo)} unchanged")
    return 1 if failed or orphans else 0


def _list_stale(targets: list) -> dict[str, list[str]]:
    from distlab.authoring.build import find_stale

    found = {target.slug: find_stale(target) for target in targets}
    return {slug: reasons for slug, reasons in found.items() if reasons}


def _build(targets: list, root: Path, jobs: int, seconds: float) -> int:
    from distlab.authoring.build import build_all

    failed = 0
    before = signal.signal(signal.SIGTERM, _interrupt)
    results = build_all(targets, root, jobs, seconds)
    try:
        for result in results:
            failed += bool(result.error)
            outcome = f"FAILED: {result.error}" if result.error else "built"
            print(f"{result.slug}  {result.seconds:.1f} s  {outcome}", flush=True)
    finally:
        results.close()
        signal.signal(signal.SIGTERM, before)
    return failed


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
