"""What an answer needs: the statements of a notebook that define it, and nothing else.

Read from the text alone, in the reader's process: nothing of it runs here. A name leads to
the statements that bind it, those to the names that they use, and so on; a cell that only
tries things out, patches or hooks leads nowhere, and is never run when a class is graded.
"""

import ast
import builtins
import symtable
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from distlab.grading import cell_text

_TIMED = ("%%time", "%%capture", "%%prun")
_BLOCKS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


@dataclass(frozen=True)
class Part:
    """Statements of one cell: `text` is the whole cell as Python, `chosen` which run."""

    label: str
    text: str
    chosen: tuple[int, ...]


@dataclass(frozen=True)
class Statement:
    """One statement at the top of a cell: `place` is (piece, index in the cell).

    `touches` are names whose value it changes, as `table.append(3)` does, without binding them.
    """

    place: tuple[int, int]
    node: ast.stmt
    binds: frozenset[str]
    uses: frozenset[str]
    touches: frozenset[str]


@dataclass
class Code:
    """The statements of all pieces of a notebook, in order; `broken` says what does not parse."""

    labels: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)
    broken: dict[int, str] = field(default_factory=dict)

    @classmethod
    def read(cls, pieces: Iterable[tuple[str, str]]) -> "Code":
        """Parse pieces: pairs of a label and the text of a cell."""
        code = cls()
        for k, (label, text) in enumerate(pieces):
            text = to_python(text)
            code.labels.append(label)
            code.texts.append(text)
            try:
                found = read_statements(text)
            except cell_text.BAD as error:
                code.broken[k] = describe_syntax(error)
                continue
            code.statements += [Statement((k, i), *each) for i, each in enumerate(found)]
        return code

    def find_needed(self, names: Sequence[str], place: int) -> list[Statement]:
        """Return the statements that `names` need when they are called after piece `place`.

        What is bound up to there counts, as in a notebook that runs from top to bottom;
        a name that is bound only below is taken from there.
        """
        chosen: dict[tuple[int, int], Statement] = {}
        wanted, seen = deque(names), set(names)
        while wanted:
            name = wanted.popleft()
            for statement in self._find_binding(name, place):
                if statement.place not in chosen:
                    chosen[statement.place] = statement
                    new = (statement.uses | statement.binds) - seen
                    seen |= new
                    wanted += sorted(new)
        return [chosen[at] for at in sorted(chosen)]

    def _find_binding(self, name: str, place: int) -> list[Statement]:
        binding = [s for s in self.statements if name in s.binds]
        if not binding:
            if hasattr(builtins, name):
                return []
            return [s for s in self.statements if is_star(s.node)]
        binding = [s for s in binding if s.place[0] <= place] or binding
        if all(isinstance(s.node, ast.Import | ast.ImportFrom) for s in binding):
            return binding
        last = max(place, binding[-1].place[0])
        return binding + [s for s in self.statements if name in s.touches and s.place[0] <= last]

    def cut(self, statements: Sequence[Statement]) -> tuple[Part, ...]:
        """Return statements as parts, one for each cell."""
        cells: dict[int, list[int]] = {}
        for piece, index in (s.place for s in statements):
            cells.setdefault(piece, []).append(index)
        return tuple(Part(self.labels[k], self.texts[k], tuple(i)) for k, i in cells.items())


def to_python(text: str) -> str:
    """Return a cell as Python: magics as calls, without one that only times or hides."""
    if text.startswith(_TIMED):
        text = "\n" + text.partition("\n")[2]
    lines = text.split("\n")
    for k, line in enumerate(lines):
        if line.startswith("%time "):
            lines[k] = line.removeprefix("%time ").lstrip()
    return cell_text.transform("\n".join(lines))


def describe_syntax(error: BaseException) -> str:
    where = f" (line {error.lineno})" if isinstance(error, SyntaxError) and error.lineno else ""
    said = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}: {said}{where}"[:300]


def is_star(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.names[0].name == "*"


@lru_cache(maxsize=512)
def read_statements(
    text: str,
) -> tuple[tuple[ast.stmt, frozenset[str], frozenset[str], frozenset[str]], ...]:
    """Return each statement of a cell with what it binds, uses and touches."""
    if len(text) > cell_text.MAX_PARSED:
        raise ValueError(cell_text.TOO_LONG)
    body = cell_text.parse(text).body
    return tuple((node, *_read_names(node), find_touched(node)) for node in body)


@lru_cache(maxsize=4096)
def unparse(node: ast.stmt) -> str:
    """Return the text of a statement, which several exercises may need."""
    return ast.unparse(node)


def _read_names(node: ast.stmt) -> tuple[frozenset[str], frozenset[str]]:
    if is_star(node):
        return frozenset(), frozenset()
    text = unparse(node)
    try:
        table = symtable.symtable(text, "cell", "exec")
    except SyntaxError:  # an await outside a function, which a notebook may have
        names = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
        stored = frozenset(n.id for n in names if isinstance(n.ctx, ast.Store))
        return stored, frozenset(n.id for n in names)
    symbols = table.get_symbols()
    binds = {s.get_name() for s in symbols if s.is_assigned() or s.is_imported()}
    uses = {s.get_name() for s in symbols if s.is_referenced()}
    below = list(table.get_children())
    for scope in below:
        below += scope.get_children()
        uses |= {s.get_name() for s in scope.get_symbols() if s.is_global()}
    return frozenset(binds), frozenset(uses)


def find_touched(node: ast.stmt) -> frozenset[str]:
    """Return the names that a statement changes without binding them."""
    found, waiting = set(), [node]
    while waiting:
        each = waiting.pop()
        if isinstance(each, _BLOCKS):
            continue
        waiting += ast.iter_child_nodes(each)
        stored = isinstance(getattr(each, "ctx", None), ast.Store | ast.Del)
        if isinstance(each, ast.Attribute | ast.Subscript) and stored:
            found.add(find_root(each))
        if isinstance(each, ast.Expr) and isinstance(each.value, ast.Call):
            function = each.value.func
            found |= {find_root(function)} if isinstance(function, ast.Attribute) else set()
    return frozenset(found - {""})


def find_root(node: ast.AST) -> str:
    """Return the name at the root of `a.b[c].d(…)`, "" if there is none."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call | ast.Starred):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""
