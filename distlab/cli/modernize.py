"""`distlab modernize`: what has to change in a program written for an older TensorFlow."""

import argparse
import difflib
import json
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from distlab.cli.parser import Commands, add_command, declare
from distlab.errors import CourseError
from utils.measure import count

if TYPE_CHECKING:
    from distlab.modernize.reading import FoundForm
    from distlab.modernize.sources import Reading

EPILOG = (
    "Examples: distlab modernize train.py; distlab modernize --diff project/ > changes.patch; "
    "distlab modernize --write train.py, which keeps the old file as train.py.bak. The exit "
    "status is 1 if anything stops or is silently wrong, 0 if not, and 2 if a file can't be read. "
    "docs/migrating.md has every entry with its old and its new form."
)
PROGRESS = 2_000  # files between two lines
HOW = """
--diff  print the mechanical changes as a patch
--write  make the mechanical changes; each old file is kept as FILE.bak
"""


def add_parser(commands: Commands) -> None:
    parser = add_command(
        commands,
        "modernize",
        run,
        "list what an old TensorFlow program has to change",
        "Read TensorFlow, Keras and Horovod programs without running them. List what no longer "
        "exists or behaves differently on the installed versions, with the line, the replacement "
        "and the reason.",
        EPILOG,
    )
    text = "a Python file, a notebook, or a folder of them"
    parser.add_argument("paths", nargs="+", metavar="PATH", help=text)
    declare(parser.add_mutually_exclusive_group(), HOW)
    parser.add_json()


def run(arguments: argparse.Namespace) -> int:
    """List, print or make the changes. Return 1 if anything stops or is silently wrong."""
    from distlab.modernize.table import STYLE

    readings = list(read_all(arguments.paths))
    if arguments.diff:
        print("".join(write_patch(readings)), end="")
    elif arguments.write:
        change_files(readings)
    elif arguments.json:
        files = [describe_as_data(each) for each in readings if each.program]
        print(json.dumps({"files": files}, indent=2))
    else:
        print("\n".join([*list_lines(readings), summarize(readings)]))
    for reading in readings:
        if reading.note and not arguments.json:
            say(reading.note)
    bad = any(f.entry.says != STYLE for reading in readings for f in reading.found)
    return 1 if bad or any(reading.problem for reading in readings) else 0


def read_all(paths: Iterable[str]) -> Iterator["Reading"]:
    """Read every file; say how far it is where there are many.

    Raises CourseError for a path that isn't there, and for a single file that can't be read.
    """
    from distlab.modernize.sources import list_files, list_modules, read_file

    files = [file for path in paths for file in list_files(path)]
    local = list_modules(files)
    for number, file in enumerate(files, 1):
        reading = read_file(file, local, skim=len(files) > 1)
        if reading.problem and len(files) == 1 and ": stops: " not in reading.problem:
            raise CourseError(reading.problem)
        yield reading
        if number % PROGRESS == 0:
            say(f"{number:,} of {len(files):,} files read")


def list_lines(readings: Iterable["Reading"]) -> Iterator[str]:
    """Yield a line for each entry in each file, with the first place and the other lines."""
    for reading in readings:
        if reading.problem:
            yield reading.problem
        together: dict[tuple[str, str, str], list[FoundForm]] = {}
        for finding in reading.found:
            key = (finding.entry.name, finding.shown, finding.edit)
            together.setdefault(key, []).append(finding)
        for (_, shown, _), places in together.items():
            first = places[0]
            lines = sorted({each.line for each in places} - {first.line})
            others = ", ".join(map(str, lines[:5])) + ", …" * (len(lines) > 5)
            also = f" (also line {others})" if lines else ""
            where = reading.program.name_place(first.line)
            write = " --write changes it." if first.edit else ""
            yield f"{where}: {first.entry.says}: {shown}{also}. {first.why}{write}"


def summarize(readings: list["Reading"]) -> str:
    """Return the last line: how many places of each kind, and what to do next."""
    from distlab.modernize.reading import count_by

    found = [finding for reading in readings for finding in reading.found]
    counts = count_by(found)
    stops = counts["stops"] + sum(": stops: " in reading.problem for reading in readings)
    head = f"{count(len(readings), 'file')}: "
    if not found and not stops:
        return f"{head}nothing to change was found."
    parts = [f"{stops} {'stops' if stops == 1 else 'stop'}"]
    parts += [
        f"{counts['silently wrong']} silently wrong",
        f"{counts['old style']} in an old style",
    ]
    mechanical = sum(bool(finding.edit) for finding in found)
    line = f"{head}{', '.join(parts)}. --write changes {mechanical}"
    line += f"; {len(found) - mechanical} need a person."
    legacy = [f for f in found if f.entry.legacy and f.entry.says == "stops"]
    if legacy:
        line += f" With distlab run --keras legacy, {len(legacy)} of those that stop run unchanged."
    return line


def describe_as_data(reading: "Reading") -> dict[str, object]:
    """Return one file's findings as plain data."""
    return {
        "file": str(reading.path),
        "findings": [
            {
                "entry": finding.entry.name,
                "says": finding.entry.says,
                "line": finding.line,
                "place": reading.program.name_place(finding.line),
                "code": finding.shown,
                "why": finding.why,
                "mechanical": bool(finding.edit),
                "legacy": finding.entry.legacy,
            }
            for finding in reading.found
        ],
    }


def write_patch(readings: Iterable["Reading"]) -> Iterator[str]:
    """Yield the lines of a patch for `patch -p1` and `git apply`; notebooks' are for reading."""
    from dataclasses import replace

    from distlab.modernize.rewriting import rewrite

    for reading in readings:
        if reading.program is not None and any(finding.edit for finding in reading.found):
            text, _ = rewrite(reading.program.text, reading.found)
            after = replace(reading.program, text=text).show()
            old, new = reading.program.show().splitlines(True), after.splitlines(True)
            name = str(reading.path).lstrip("/")
            yield from difflib.unified_diff(old, new, f"a/{name}", f"b/{name}")


def change_files(readings: Iterable["Reading"]) -> None:
    """Make the mechanical changes, and list what needs a person."""
    from dataclasses import replace

    from distlab.modernize.rewriting import rewrite
    from distlab.modernize.sources import write_program

    for reading in readings:
        left = reading
        if reading.program is not None and any(finding.edit for finding in reading.found):
            text, made = rewrite(reading.program.text, reading.found)
            copy = write_program(reading.program, text)
            places = count(len(made), "change")
            print(f"{reading.path}: {places} made. The old file is {copy}.")
            left = replace(reading, found=[f for f in reading.found if f not in made])
        for line in list_lines([left]):
            print(f"by hand: {line}")


def say(text: str) -> None:
    print(f"distlab modernize: {text}", file=sys.stderr, flush=True)
