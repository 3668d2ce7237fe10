"""Which of our modules a notebook runs, and what their code is.

The import graph is read, not run: a module's imports, those inside functions
included, lead to the next modules. A digest covers what a module does, not its
words: docstrings, comments and layout leave it as it is, and so does the version
of Python that reads the file.
"""

import ast
import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from distlab.authoring.sources import DIGEST_LENGTH

PACKAGES = ("utils", "distlab")
_Import = ast.Import | ast.ImportFrom


def digest_modules(code: str, root: Path) -> dict[str, str]:
    """Return {module: digest} of every module of ours that `code` runs, found from `root`.

    `code` is the text of a notebook's code cells, magics left out. A module that
    is named and not there is left out too: its import fails when it is run.
    """
    found: dict[str, str] = {}
    seen: set[str] = set()
    waiting = set(_imported(parse_leniently(code), "", False))
    while waiting:
        name = waiting.pop()
        seen.add(name)
        path = _find_file(root, name)
        if path is not None:
            found[name], imports = read_module(path, name)
            waiting |= imports - seen
    return dict(sorted(found.items()))


def parse_leniently(code: str) -> ast.Module:
    """Return the tree of `code`, cell by cell (form feeds part them); one in error is empty."""
    body: list[ast.stmt] = []
    for cell in code.split("\f"):
        lines = ["" if line.lstrip().startswith(("%", "!")) else line for line in cell.split("\n")]
        try:
            body += ast.parse("\n".join(lines)).body
        except SyntaxError:  # a cell made to fail
            continue
    return ast.Module(body, [])


@cache
def read_module(path: Path, name: str) -> tuple[str, frozenset[str]]:
    """Return the digest of the module `name` at `path`, and what it imports of ours."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    digest = hashlib.sha256("\n".join(_describe(tree)).encode()).hexdigest()
    return digest[:DIGEST_LENGTH], frozenset(_imported(tree, name, path.name == "__init__.py"))


@cache
def _find_file(root: Path, name: str) -> Path | None:
    place = root.joinpath(*name.split("."))
    candidates = (place / "__init__.py", place.with_name(place.name + ".py"))
    return next((path for path in candidates if path.is_file()), None)


def _imported(tree: ast.AST, module: str, is_package: bool) -> Iterator[str]:
    """Yield each name of ours that `tree` imports: `a.b`, its packages, and `a.b.c` for its c."""
    for node in _walk(tree):
        names = [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            base = _resolve(node, module, is_package)
            names = [base, *(f"{base}.{name}" for name in names)]
        for name in names:
            if name.split(".")[0] in PACKAGES:
                parts = name.split(".")
                yield from (".".join(parts[:k]) for k in range(1, len(parts) + 1))


def _walk(tree: ast.AST) -> Iterator[_Import]:
    """Yield the imports that are run: not those under `if TYPE_CHECKING`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, _Import):
            yield node
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            yield from _walk(ast.Module(node.orelse, []))
        else:
            yield from _walk(node)


def _resolve(node: ast.ImportFrom, module: str, is_package: bool) -> str:
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    parts = parts[: len(parts) - node.level + is_package]
    return ".".join([*parts, *([node.module] if node.module else [])])


def _describe(node: ast.AST) -> Iterator[str]:
    """Yield the tree of `node` as words: no positions, no docstring, no empty field."""
    yield type(node).__name__
    documented = isinstance(
        node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    )
    skipped = node.body[0] if documented and ast.get_docstring(node, False) is not None else None
    for field, value in ast.iter_fields(node):
        values = value if isinstance(value, list) else [value]
        for one in values:
            if isinstance(one, ast.AST):
                if one is not skipped:
                    yield field
                    yield from _describe(one)
            elif one is not None:
                yield f"{field}={one!r}"
