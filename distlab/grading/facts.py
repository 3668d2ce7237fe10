"""Facts about a submission's text for the teacher: not a verdict, and nothing waits for them."""

import ast
from collections.abc import Iterable, Iterator

from distlab.grading import cell_text
from distlab.grading.program_cell import find_program

# standard modules that an exercise may well need
ORDINARY = frozenset(
    "__future__ abc argparse bisect collections contextlib copy dataclasses datetime decimal enum "
    "fractions functools glob heapq IPython itertools json keras logging math matplotlib numbers "
    "numpy operator os pathlib pprint random re shutil statistics string sys tempfile tensorflow "
    "textwrap tf_keras time tqdm traceback types typing unittest warnings".split()
)
GIVEN_TEXT = ("exec", "eval", "compile", "__import__")
MAX_FACTS = 8


def find_facts(cells: Iterable[tuple[str, str]], imported: frozenset[str]) -> tuple[str, ...]:
    """Return notes on cells (labels and texts): imports beyond the lab's, text run as code.

    `imported` are the modules that the lab itself imports, as full names.
    """
    facts: list[str] = []
    for label, text in cells:
        for node in _walk(cell_text.to_python(text)):
            facts += [f"{label} {said}" for said in _describe(node, imported)]
    return tuple(dict.fromkeys(facts))[:MAX_FACTS]


def _walk(text: str) -> Iterator[ast.AST]:
    """Yield the nodes of a cell, and of the program that it writes."""
    try:
        body = cell_text.parse(text).body
    except cell_text.BAD:
        return
    for statement in body:
        program = find_program(statement)
        yield from ast.walk(statement) if program is None else _walk(program)


def _describe(node: ast.AST, imported: frozenset[str]) -> list[str]:
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        names = [node.module or "."]
    elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in GIVEN_TEXT:
        return [f"gives text to {node.func.id}"]  # type: ignore[attr-defined]
    else:
        return []
    return [f"imports {name[:80]}" for name in names if not _is_usual(name, imported)]


def _is_usual(name: str, imported: frozenset[str]) -> bool:
    top = name.partition(".")[0]
    if top in ("distlab", "utils"):
        return name in imported or any(known.startswith(f"{name}.") for known in imported)
    return top in ORDINARY or top in imported
