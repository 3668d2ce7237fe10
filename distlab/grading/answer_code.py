"""What an answer needs: the statements of a notebook that define it, and nothing else.

Read from the text alone, in the reader's process: nothing of it runs here. A name leads to
the statements that bind it, those to the names that they use, and so on; a cell that only
tries things out, patches or hooks leads nowhere, and is never run when a class is graded.
"""

import ast
import builtins
import symtable
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from distlab.grading import cell_text
from distlab.grading.answer_syntax import list_decorators

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
        code._follow_calls()
        return code

    def _follow_calls(self) -> None:
        """Add what statements change by calling the notebook's functions, as `@rule` may do."""
        changed: dict[str, frozenset[str]] = {}  # by a call of a function that is defined by now
        silent = set()
        for k, statement in enumerate(self.statements):
            node = statement.node
            if any(changed.values()):
                called = name_functions(list_decorators(node))
                called |= name_functions(_list_bare_calls(node)) & silent
                more = frozenset().union(*(changed.get(name, ()) for name in called))
                if more - statement.touches:
                    self.statements[k] = replace(statement, touches=statement.touches | more)
            if isinstance(node, ast.FunctionDef):
                changed[node.name] = find_shared(node)
                (silent.discard if returns_value(node) else silent.add)(node.name)

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
            if made := [s for s in self.statements if name in s.touches]:
                return made  # by a function that declares it global
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
    called = (*list_decorators(node), *_list_bare_calls(node))  # @table.add("a"); table.add("b")
    found = {find_root(function) for function in called if isinstance(function, ast.Attribute)}
    for each in _walk_outside(node):
        stored = isinstance(getattr(each, "ctx", None), ast.Store | ast.Del)
        if isinstance(each, ast.Attribute | ast.Subscript) and stored:
            found.add(find_root(each))
    return frozenset(found - {""})


def find_shared(function: ast.FunctionDef) -> frozenset[str]:
    """Return the names of the notebook whose values a call of `function` changes."""
    inside = [n for n in ast.walk(function) if isinstance(n, ast.stmt)]
    names = [n for n in ast.walk(function) if isinstance(n, ast.Name | ast.arg)]
    own = {n.arg for n in names if isinstance(n, ast.arg)}
    stored = {n.id for n in names if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    shared = stored & {name for n in inside if isinstance(n, ast.Global) for name in n.names}
    touched = shared.union(*(find_touched(n) for n in inside if not isinstance(n, _BLOCKS)))
    return frozenset(touched - (own | stored - shared))


def returns_value(function: ast.FunctionDef) -> bool:
    return any(isinstance(n, ast.Return) and n.value for n in ast.walk(function))


def name_functions(functions: Iterable[ast.expr]) -> set[str]:
    """Return those that are called by a plain name."""
    return {function.id for function in functions if isinstance(function, ast.Name)}


def _list_bare_calls(node: ast.stmt) -> list[ast.expr]:
    """Return the functions that a statement calls and whose results it drops."""
    calls = [each.value for each in _walk_outside(node) if isinstance(each, ast.Expr)]
    return [call.func for call in calls if isinstance(call, ast.Call)]


def _walk_outside(node: ast.stmt) -> Iterator[ast.AST]:
    """Yield the nodes of a statement that run when it runs: not the insides of functions."""
    waiting: list[ast.AST] = [node]
    while waiting:
        each = waiting.pop()
        if not isinstance(each, _BLOCKS):
            yield each
            waiting += ast.iter_child_nodes(each)


def find_root(node: ast.AST) -> str:
    """Return the name at the root of `a.b[c].d(…)`, "" if there is none."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call | ast.Starred):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""
