"""Tables of text: groups of rows, each under a line "= name". Lines that begin with # are notes."""

from pathlib import Path


def read_groups(path: Path) -> dict[str, list[str]]:
    """Return the rows of each group by its name, in their order."""
    groups = path.read_text(encoding="utf-8").split("\n= ")[1:]
    return {
        name: [row for row in rows if row and row[0] != "#"]
        for name, *rows in (group.split("\n") for group in groups)
    }
