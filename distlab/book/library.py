"""The pages of `utils`, read from the sources' own words: nothing is imported."""

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from distlab.book.written import list_pages

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def list_rooms(course: Path) -> dict[str, list[Path]]:
    """Return the files of each room of `utils`: {"collectives": [utils/collectives/…]}."""
    rooms: dict[str, list[Path]] = {}
    for path in sorted((course / "utils").rglob("*.py")):
        first = path.relative_to(course / "utils").parts[0].removesuffix(".py")
        if first != "__init__":
            rooms.setdefault(first, []).append(path)
    return rooms


def write_room(course: Path, room: str, files: Sequence[Path]) -> str:
    """Return the page of one room: each module, and its public names."""
    parts = [f"# {room}"]
    for path in sorted(files, key=lambda file: (file.name != "__init__.py", file)):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        name = ".".join(path.relative_to(course).with_suffix("").parts).removesuffix(".__init__")
        parts += [f"## {name}", _quote(tree), *_write_definitions(tree, "")]
    return "\n\n".join(part for part in parts if part) + "\n"


def write_list(rooms: Sequence[str]) -> str:
    """Return the page that lists the rooms."""
    said = "What you take home: reusable training code. Each module says itself what it is for."
    return "\n".join(["# The library", "", said, "", *list_pages(rooms, 2)])


def _write_definitions(tree: ast.Module | ast.ClassDef, owner: str) -> Iterator[str]:
    """Yield public functions and classes with signature and docstring, methods after each class."""
    for node in tree.body:
        if isinstance(node, Definition) and not node.name.startswith("_"):
            if not owner:
                yield f"### {node.name}"
            if not owner or ast.get_docstring(node):
                yield f"```python\n{_write_signature(node, owner)}\n```"
                yield _quote(node)
            if isinstance(node, ast.ClassDef):
                yield from _write_definitions(node, f"{node.name}.")


def _write_signature(node: Definition, owner: str) -> str:
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(map(ast.unparse, node.bases))
        return f"class {node.name}({bases})" if bases else f"class {node.name}"
    arguments = ast.unparse(node.args)
    gives = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    line = f"{owner}{node.name}({arguments}){gives}"
    if len(line) <= 80:
        return line
    each = re.split(r", (?![^\[(]*[\])])", arguments)
    return f"{owner}{node.name}(\n    " + ",\n    ".join(each) + f",\n){gives}"


def _quote(node: ast.AST) -> str:
    """Return a docstring as Markdown that means what it looks like; indented text is code."""
    blocks = re.split(r"\n\s*\n", ast.get_docstring(node) or "")
    kept = ("    ", "|")  # code and tables
    return "\n\n".join(b if b.startswith(kept) else _escape(b) for b in blocks if b.strip())


def _escape(text: str) -> str:
    """Escape all but `code`; lines that hang under a sentence are part of it."""
    if not text.startswith("- "):
        text = " ".join(line.strip() for line in text.split("\n"))
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(
        part if k % 2 else re.sub(r"([\\*_<>\[\]{}$#|~])", r"\\\1", part)
        for k, part in enumerate(parts)
    )
