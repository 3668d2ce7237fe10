"""Questions about the syntax of a piece of an answer, which `answer_reader` asks of it."""

import ast
from collections.abc import Iterator

from distlab.grading.answer_names import METHODS


def walk_pairs(top: ast.AST) -> Iterator[tuple[ast.AST, ast.AST | None]]:
    """Yield every node below `top` with its parent."""
    waiting: list[tuple[ast.AST, ast.AST | None]] = [(top, None)]
    while waiting:
        node, parent = waiting.pop()
        yield node, parent
        waiting += [(child, node) for child in ast.iter_child_nodes(node)]


def read_text(node: ast.AST) -> str:
    """Return the text that a constant is, or several that are added up, "" for anything else."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = read_text(node.left), read_text(node.right)
        return left + right if left and right else ""
    value = getattr(node, "value", None)
    return value if isinstance(value, str) else ""


def is_chain(node: ast.AST) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def is_special(name: str) -> bool:
    """Return whether `name` is a double-underscore name that ordinary code leaves alone."""
    return name.startswith("__") and name.endswith("__") and name not in METHODS


def compares(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a function's result depends on what it gets."""
    returned = [n.value for n in ast.walk(function) if isinstance(n, ast.Return)]
    return any(isinstance(n, ast.Attribute) for value in returned if value for n in ast.walk(value))


def list_decorators(node: ast.AST) -> list[ast.expr]:
    """Return the functions that decorate what a statement defines: `rule` of `@rule("a")`."""
    decorators = getattr(node, "decorator_list", ())
    return [each.func if isinstance(each, ast.Call) else each for each in decorators]


def keeps_traceback(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether `__exit__` does more with its traceback than hand it on, print or test it."""
    given = function.args
    names = {a.arg for a in (*given.posonlyargs, *given.args)[3:]}
    names |= {a.arg for a in (given.vararg, given.kwarg) if a}
    for node, parent in walk_pairs(function):
        if isinstance(node, ast.Name) and node.id in names:
            called = getattr(parent, "func", None)
            handed = getattr(called, "attr", getattr(called, "id", "")) in ("__exit__", "print")
            if not handed and not isinstance(
                parent, ast.Starred | ast.Compare | ast.FormattedValue | ast.Delete
            ):
                return True
    return False


def list_names(node: ast.AST) -> list[str]:
    """Return every name of `a.b[c].d`: a, b and c among them."""
    found = [n.id for n in ast.walk(node) if isinstance(n, ast.Name)]
    return found + [n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)]
