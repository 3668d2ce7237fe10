"""Marked regions of a source: `### BEGIN NAME` to `### END NAME`, each on its own line.

SOLUTION is what a learner writes, HIDDEN TESTS what only the judge runs, INPUTS
what both see. nbgrader's preprocessors read the same markers
(`ClearSolutions`, `ClearHiddenTests`).
"""

import re
from dataclasses import dataclass

from distlab.errors import CourseError

NAMES = ("SOLUTION", "HIDDEN TESTS", "INPUTS")
_MARKER = re.compile(r"^\s*#+\s*(BEGIN|END)\b\s*(.*?)\s*$")
_EXACT = re.compile(r"^\s*### (BEGIN|END) (SOLUTION|HIDDEN TESTS|INPUTS)$")


@dataclass(frozen=True)
class Region:
    """One region of a text: its name and the indexes of its two marker lines."""

    name: str
    begin: int
    end: int


def find_regions(text: str, where: str = "text") -> list[Region]:
    """Return the regions of `text` in order; `where` names the file in an error.

    `text` may be one cell or a whole py:percent source, in which no region may
    reach over a `# %%` line. Raises CourseError with file and line for a region
    that is unclosed, nested or closed without a beginning, and for a marker
    that is misspelt.
    """
    found, open_name, begin = [], None, 0
    for i, line in enumerate([*text.split("\n"), "# %%"]):
        if line.startswith("# %%") and open_name:
            raise CourseError(f"{where}:{begin + 1}: {open_name} is not closed in its cell")
        marker = _MARKER.match(line)
        if not marker:
            continue
        verb, name = marker.groups()
        if not _EXACT.match(line):
            raise CourseError(f"{where}:{i + 1}: write ### {verb} and one of {', '.join(NAMES)}")
        if verb == "BEGIN" and open_name:
            raise CourseError(f"{where}:{i + 1}: {name} begins inside {open_name}: no nesting")
        if verb == "END" and name != open_name:
            raise CourseError(f"{where}:{i + 1}: END {name} without its BEGIN")
        if verb == "END":
            found.append(Region(name, begin, i))
        open_name, begin = (name, i) if verb == "BEGIN" else (None, 0)
    return found


def replace_regions(text: str, name: str, replacement: str) -> str:
    """Return `text` with every region `name`, markers included, replaced.

    The replacement takes the indentation of the BEGIN marker; an empty one
    removes the region.
    """
    lines = text.split("\n")
    for region in reversed([r for r in find_regions(text) if r.name == name]):
        marker = lines[region.begin]
        indent = marker[: len(marker) - len(marker.lstrip())]
        new = [indent + line for line in replacement.split("\n")] if replacement else []
        lines[region.begin : region.end + 1] = new
    return "\n".join(lines).rstrip("\n")


def region_text(text: str, name: str) -> str:
    """Return the lines inside the regions `name` of `text`, without markers ("" if none)."""
    lines = text.split("\n")
    regions = [r for r in find_regions(text) if r.name == name]
    return "\n".join(line for r in regions for line in lines[r.begin + 1 : r.end])
