"""README.md, docs, Makefile and pyproject.toml cut to what students get.

Each function takes the teacher's text and returns the students': lines that speak of
what isn't handed out are left out, the others stay as they are.
"""

import re
from collections.abc import Callable, Set

TEACHERS_SECTION = "Teach"  # how its heading on a page begins
_LINK = re.compile(r"(?<!!)\[([^\[\]]*)\]\(([^()\s]+)\)")


def unlink(text: str, exists: Callable[[str], bool]) -> str:
    """Return Markdown with the words alone where a link's file isn't there.

    `exists` gets the path of a link as written, without its #place.
    """

    def keep(found: re.Match[str]) -> str:
        path = found[2].partition("#")[0]
        whole = not path or "://" in path or exists(path)
        return found[0] if whole or not re.search(r"\.\w+$|/", path) else found[1]

    parts = re.split(r"(`[^`\n]*`)", text)  # code isn't a link
    parts[::2] = [_LINK.sub(keep, part) for part in parts[::2]]
    return "".join(parts)


def fit_makefile(text: str) -> str:
    """Return the students' part of the Makefile."""
    return text.partition("\n# ---- For teachers")[0].rstrip() + "\n"


def fit_pyproject(text: str) -> str:
    """Return pyproject.toml without what tests and grades the course."""
    tools = r"^(?:#.*\n)?(?:teach|test|types|manifests|book) = \[(?:.*\]\n|\n(?:    .*\n)*\]\n)"
    text = re.sub(tools, "", text, flags=re.MULTILINE)
    sections = re.split(r"(?=^\[)", text, flags=re.MULTILINE)
    kept = [s for s in sections if not re.match(r"\[tool\.(ruff|pytest)", s)]
    return "".join(kept).rstrip() + "\n"


def fit_page(
    text: str, commands: Set[str], targets: Set[str], exists: Callable[[str], bool]
) -> str:
    """Return a page for students, without the solutions, commands, targets and files they lack."""
    text = re.sub(
        rf"^## {TEACHERS_SECTION}.*?(?=^## |\Z)", "", text, flags=re.MULTILINE | re.DOTALL
    )
    text = text.replace("| Solution |\n|---", "|\n")
    text = re.sub(r"^(\|.*\|) \[[^|]*\]\(solutions/[^|]* \|$", r"\1", text, flags=re.MULTILINE)
    kept = [line for line in text.split("\n") if _holds(line, commands, targets, exists)]
    full = re.sub(r"^## .*\n+(?=## )", "", "\n".join(kept), flags=re.MULTILINE)  # of those cut
    return unlink(full, exists)


def _holds(line: str, commands: Set[str], targets: Set[str], exists: Callable[[str], bool]) -> bool:
    """Return whether `line` is for students: its files exist, in a row the first link too."""
    if any(name not in commands for name in re.findall(r"(?:^|`)distlab ([a-z][\w-]*)", line)):
        return False
    if any(name not in targets for name in re.findall(r"(?:^|`)make ([a-z][\w-]*)", line)):
        return False
    if "](TEACHING.md" in line:
        return False
    row = re.match(r"\| *\[[^\]]*\]\(([^)\s]+)\)", line)
    return row is None or "://" in row[1] or exists(row[1].partition("#")[0])
