"""`distlab build` makes notebooks, labs and solutions of their sources; `distlab new` a lab."""

import argparse
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from distlab.cli.long_command import sigterm_interrupts
from distlab.cli.parser import Commands, add_command, declare
from utils.checks import check_count, check_number

if TYPE_CHECKING:
    from distlab.authoring.sources import Target

NEXT = """They hold one small working exercise: put yours in its place. Then
  python -m distlab.grading.worked {lab}    works out the examples of the visible checks
  distlab build {lab}                       makes the lab and its solution
  pytest tests -k {lab}                     tries it; solutions/src/README.md says more"""
CHOSEN = """
--check  list stale notebooks, change nothing
--force  also run notebooks that haven't changed
--keep-outputs  run nothing; for changes of code that alter no output (make test compares them)
"""
ROOT = "--root DIR  the course's folder [found automatically]"
HOW = """
--jobs N=2  run N notebooks at once
--timeout S=300  stop a notebook after this many seconds; a cell gets at most two fifths of them
"""


def add_parser(commands: Commands) -> None:
    build = add_command(
        commands,
        "build",
        run_build,
        "rebuild notebooks, labs and solutions whose sources changed",
        "Rebuild notebooks, labs and solutions whose sources changed. A notebook runs if its "
        "code changed. If only its text changed, it keeps its outputs. `make test` finds out if "
        "a change of the library altered an output.",
    )
    build.add_argument("names", nargs="*", metavar="NAME", help='"03", "lab01" or a slug [all]')
    declare(build.add_mutually_exclusive_group(), CHOSEN)
    declare(build, HOW)
    new = add_command(
        commands,
        "new",
        run_new,
        "start a new lab from a template",
        "Write the files of a new lab. Its exercise already builds, checks and grades.",
    )
    new.add_argument("kind", choices=["lab"], metavar="KIND", help="what to start: lab")
    new.add_argument("title", metavar="TITLE", help='the title, such as "precision and memory"')
    for parser in (build, new):
        declare(parser, ROOT, root={"type": Path})


def run_build(parsed: argparse.Namespace) -> int:
    from distlab.authoring import course_map, sources

    check_count("--jobs", parsed.jobs)
    check_number("--timeout", parsed.timeout, above=0)
    root = sources.find_root(parsed.root or Path.cwd())
    chosen = sources.choose_targets(sources.find_targets(root), parsed.names)
    orphans = [] if parsed.names else sources.find_orphans(root)
    stale = _list_stale(chosen)
    for path in orphans:
        print(f"{path.parent.name}/{path.name}: its source is gone: delete it")
    if parsed.check:
        for reason in (line for reasons in stale.values() for line in reasons):
            print(reason)
        before, after = course_map.fill_readme(root)
        if before != after:
            print("README.md: its lessons and labs aren't what the sources say")
        print(f"{len(chosen) - len(stale)} of {len(chosen)} up to date")
        return 1 if stale or orphans or before != after else 0
    if course_map.refresh_readme(root):
        print("README.md: its tables of lessons and labs are written")
    todo = [t for t in chosen if parsed.force or t.slug in stale]
    failed = _build(todo, root, parsed)
    print(f"{len(todo) - failed} built, {failed} failed, {len(chosen) - len(todo)} unchanged")
    return 1 if failed or orphans else 0


def _list_stale(targets: "list[Target]") -> dict[str, list[str]]:
    from distlab.authoring.build import find_stale

    found = {target.slug: find_stale(target) for target in targets}
    return {slug: reasons for slug, reasons in found.items() if reasons}


def _build(targets: "list[Target]", root: Path, parsed: argparse.Namespace) -> int:
    from distlab.authoring.build import build_all, must_run

    run_all, run_none = parsed.force, parsed.keep_outputs
    kept = [t for t in targets if run_none or not (run_all or must_run(t))]
    failed = 0
    results = build_all(targets, root, parsed.jobs, parsed.timeout, kept)
    with sigterm_interrupts(), closing(results):
        for result in results:
            failed += bool(result.error)
            done = "built" if result.ran else "built, outputs kept"
            outcome = f"FAILED: {result.error}" if result.error else done
            print(f"{result.slug}  {result.seconds:.1f} s  {outcome}", flush=True)
    return failed


def run_new(parsed: argparse.Namespace) -> int:
    from distlab.authoring.new_lab import write_lab
    from distlab.authoring.sources import find_root

    root = find_root(parsed.root or Path.cwd())
    files = write_lab(root, parsed.title)
    for path in files:
        print(path.relative_to(root))
    print(NEXT.format(lab=files[0].name[:5]))
    return 0
