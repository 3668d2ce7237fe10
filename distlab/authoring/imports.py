"""Which of our modules a notebook runs, and what their code is.

The import graph is read, not run: a module's imports, those inside functions
included, lead to the next modules. A package whose `__init__` only passes names on is
a door: of `from distlab import figures` the modules count whose names are used. A digest
covers what a module does, not its words: docstrings, comments and layout leave it as
it is, and so does the version of Python that reads the file.
"""

import ast
import hashlib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from distlab.authoring.sources import DIGEST_LENGTH

PACKAGES = ("utils", "distlab")
_Import = ast.Import | ast.ImportFrom
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_BLOCKS = ("body", "orelse", "handlers", "finalbody", "cases")  # where statements stand
Wanted = frozenset[str] | None  # of a module's names; None: all that there are
Edge = tuple[str, Wanted]


def digest_modules(code: str, root: Path) -> dict[str, str]:
    """Return {module: digest} of every module of ours that `code` runs, found from `root`.

    `code` is the text of a notebook's code cells, parted by form feeds. A module that
    is named and not there is left out: its import fails when it is run.
    """
    found: dict[str, str] = {}
    seen: set[Edge] = set()
    waiting = set(list_edges(parse_leniently(code), "", False))
    while waiting:
        edge = waiting.pop()
        seen.add(edge)
        path = _find_file(root, edge[0])
        if path is None:
            continue
        digest, edges, is_door = read_module(path, edge[0])
        if is_door:
            waiting |= _open_door(edges, edge[1]) - seen
        else:
            found[edge[0]] = digest
            waiting |= edges - seen
    return dict(sorted(found.items()))


def _open_door(edges: frozenset[Edge], wanted: Wanted) -> set[Edge]:
    """Return the edges of a door that lead to the names in `wanted`."""
    return {(name, names) for name, names in edges if wanted is None or (names or wanted) & wanted}


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
def read_module(path: Path, name: str) -> tuple[str, frozenset[Edge], bool]:
    """Return the digest of the module `name` at `path`, what it imports, whether it is a door."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    words: list[str] = []
    _describe(tree, words)
    digest = hashlib.sha256("\n".join(words).encode()).hexdigest()
    is_package = path.name == "__init__.py"
    is_door = is_package and all(map(_passes_on, tree.body))
    return digest[:DIGEST_LENGTH], frozenset(list_edges(tree, name, is_package)), is_door


def _passes_on(node: ast.stmt) -> bool:
    """Say whether a statement of an `__init__` is a docstring, an import or its `__all__`."""
    named = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    words = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return named or words or isinstance(node, ast.ImportFrom)


@cache
def _find_file(root: Path, name: str) -> Path | None:
    place = root.joinpath(*name.split("."))
    candidates = (place / "__init__.py", place.with_name(place.name + ".py"))
    return next((path for path in candidates if path.is_file()), None)


def list_edges(tree: ast.AST, module: str, is_package: bool) -> Iterator[Edge]:
    """Yield what `tree` imports of ours: a module, and which of its names are wanted.

    `from a import b` leads to the name b of a, and to a module a.b, of which the names
    count that are used as `b.name`.
    """
    used = _find_used(tree)
    for node in _walk(tree):
        for alias in node.names:
            if isinstance(node, ast.ImportFrom):
                base = _resolve(node, module, is_package)
                found = [
                    (base, frozenset([alias.name, alias.asname or alias.name])),
                    (f"{base}.{alias.name}", used.get(alias.asname or alias.name)),
                ]
            else:
                found = [(alias.name, None)]
            yield from (edge for edge in found if edge[0].split(".")[0] in PACKAGES)
            parents = found[0][0].split(".")[:-1] if found[0][0].split(".")[0] in PACKAGES else []
            yield from ((".".join(parents[: k + 1]), frozenset()) for k in range(len(parents)))


def _find_used(tree: ast.AST) -> dict[str, Wanted]:
    """Return for each name the attributes that are used of it, None if it is used whole."""
    attributes: dict[str, set[str]] = {}
    whole: Counter[str] = Counter()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            whole[node.id] += 1
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            attributes.setdefault(node.value.id, set()).add(node.attr)
            whole[node.value.id] -= 1
    return {name: None if whole[name] else frozenset(found) for name, found in attributes.items()}


def _walk(tree: ast.AST) -> Iterator[_Import]:
    """Yield the imports that are run: not those under `if TYPE_CHECKING`."""
    for node in (node for block in _BLOCKS for node in getattr(tree, block, ())):
        if isinstance(node, _Import):
            yield node
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            yield from _walk(ast.Module(node.orelse, []))
        elif isinstance(node, ast.stmt | ast.excepthandler | ast.match_case):
            yield from _walk(node)


def _resolve(node: ast.ImportFrom, module: str, is_package: bool) -> str:
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    parts = parts[: len(parts) - node.level + is_package]
    return ".".join([*parts, *([node.module] if node.module else [])])


def _describe(node: ast.AST, words: list[str]) -> None:
    """Add the tree of `node` to `words`: no positions, no docstring, no empty field."""
    words.append(type(node).__name__)
    documented = isinstance(node, _DOCUMENTED)
    skipped = node.body[0] if documented and ast.get_docstring(node, False) is not None else None
    for field in node._fields:
        value = getattr(node, field, None)
        for one in value if isinstance(value, list) else (value,):
            if isinstance(one, ast.AST):
                if one is not skipped:
                    words.append(field)
                    _describe(one, words)
            elif one is not None:
                words.append(f"{field}={one!r}")
