"""Which names of an answer are its own: variables, methods and attributes that it made itself.

`answer_reader` shows a human what reaches beyond an answer. What is told apart here is ordinary
code that looks like that: a variable called `input`, a method looked for by a made name.
"""

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from distlab.grading.answer_syntax import list_decorators

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda,
           ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)  # fmt: skip


def find_local(top: ast.AST, known: frozenset[str] = frozenset()) -> Iterator[int]:
    """Yield the id of every name below `top` that is a variable of a function, as `input` may be.

    Python itself takes a name that a function assigns to for its own in all of the function.
    """
    if isinstance(top, ast.Name):
        stored = isinstance(top.ctx, ast.Store) and not top.id.startswith("_")
        if stored or top.id in known:
            yield id(top)
    inside = _list_inside(top, known)
    for name, value in ast.iter_fields(top):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from find_local(child, inside if name == "body" else known)


def _list_inside(top: ast.AST, known: frozenset[str]) -> frozenset[str]:
    """Return the names that are certainly variables of a function in the body of `top`."""
    if not isinstance(top, ast.FunctionDef | ast.Lambda | ast.ClassDef):
        return known
    body = top.body if isinstance(top.body, list) else [top.body]
    stored = {name for part in body for name in _list_stored(part)}
    if isinstance(top, ast.ClassDef):  # what a class may assign to is looked for outside, too
        return known - stored
    every = [n for part in body for n in ast.walk(part)]
    shared = {name for n in every if isinstance(n, ast.Global) for name in n.names}
    given = {a.arg for a in ast.walk(top.args) if isinstance(a, ast.arg)}
    return (known | given | stored) - shared


def _list_stored(node: ast.AST) -> Iterator[str]:
    """Yield the names that a statement assigns to in its own scope."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    if not isinstance(node, _SCOPES):
        for child in ast.iter_child_nodes(node):
            yield from _list_stored(child)


def find_selves(nodes: Sequence[ast.AST]) -> Iterator[int]:
    """Yield the id of every name `self` or `cls` that stands for an object of the answer's class.

    That is the first parameter of a method, unless the method is also called as a plain function:
    `Plan.go(strategy)` hands it an object of somebody else's.
    """
    found = [(owner, method, list(names)) for owner, method, names in _list_methods(nodes)]
    candidates = {name for *_, names in found for name in names}
    pairs = [(n.value.id, n.attr) for n in nodes if isinstance(n, ast.Attribute)
             and isinstance(n.value, ast.Name)]  # fmt: skip
    upwards = [
        (n.func.value.id, n.func.attr) for n in nodes  # Base.__init__(self)
        if isinstance(n, ast.Call) and n.args and id(n.args[0]) in candidates
        and isinstance(n.func, ast.Attribute) and isinstance(n.func.value, ast.Name)
    ]  # fmt: skip
    others = {n.targets[0].id: n.value.id for n in nodes if isinstance(n, ast.Assign)
              and isinstance(n.value, ast.Name) and isinstance(n.targets[0], ast.Name)}  # fmt: skip
    handed = {(others.get(name, name), attr) for name, attr in Counter(pairs) - Counter(upwards)}
    for owner, method, names in found:
        yield from names if (owner, method) not in handed else ()


def _list_methods(nodes: Sequence[ast.AST]) -> Iterator[tuple[str, str, Iterator[int]]]:
    """Yield (class, method, ids of its `self`); a class method is nobody's to call otherwise."""
    for node in nodes:
        for method in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
                kinds = {ast.unparse(decorator) for decorator in method.decorator_list}
                first = [a.arg for a in (*method.args.posonlyargs, *method.args.args)][:1]
                if first in (["self"], ["cls"]) and "staticmethod" not in kinds:
                    owner = f"class {node.name}" if "classmethod" in kinds else node.name
                    yield owner, method.name, _list_same(method, first[0])


def _list_same(method: ast.AST, name: str) -> Iterator[int]:
    """Yield the id of each `name` in a method that is its parameter; none where it is rebound."""
    found, waiting = [], list(ast.iter_child_nodes(method))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            if name in {a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)}:
                continue  # another one's
        if isinstance(node, ast.Name) and node.id == name:
            if not isinstance(node.ctx, ast.Load):
                return
            found.append(id(node))
        waiting += ast.iter_child_nodes(node)
    yield from found


def is_own(node: ast.Attribute, own: set[str], selves: set[int]) -> bool:
    """Return whether an attribute is of the answer's own object: `self._x`, or of its class."""
    return isinstance(node.value, ast.Name) and (node.value.id in own or id(node.value) in selves)


def find_own_objects(nodes: Sequence[ast.AST], paths: Mapping[str, str]) -> Iterator[str]:
    """Yield every name that only ever stands for an object of a plain class of the answer.

    `plan = Plan()` is one where `Plan` is a class statement without a metaclass, and neither name
    is bound to anything else anywhere. `paths` says what imported names stand for.
    """
    bound = Counter(name for node in nodes for name in _list_bound(node))
    plain = {n.name for n in nodes if isinstance(n, ast.ClassDef) and _is_plain(n, paths, bound)}
    made = Counter(
        node.targets[0].id
        for node in nodes
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Call)
        and getattr(node.value.func, "id", "") in plain
    )
    return (name for name, times in made.items() if bound[name] == times)


def _is_plain(node: ast.ClassDef, paths: Mapping[str, str], bound: Mapping[str, int]) -> bool:
    """Return whether calling a class can give nothing but an object of it."""
    if node.bases or node.keywords or bound[node.name] != 1:
        return False
    names = [ast.unparse(function) for function in list_decorators(node)]
    roots = [name.split(".")[0] for name in names]
    known = all(bound[root] == 1 and paths.get(root, "") for root in roots)
    whole = [paths.get(root, "") + name.removeprefix(root) for root, name in zip(roots, names)]
    return known and all(path == "dataclasses.dataclass" for path in whole)


def _list_bound(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node itself binds, in whatever scope."""
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.alias):
        yield (node.asname or node.name).split(".")[0]
    elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
        yield node.name or ""
    elif isinstance(node, ast.MatchMapping):
        yield node.rest or ""


def is_on_self(call: ast.AST | None, selves: set[int]) -> bool:
    return isinstance(call, ast.Call) and bool(call.args) and id(call.args[0]) in selves


def find_looks_at_locals(top: ast.AST, inside: bool = False) -> Iterator[int]:
    """Yield the id of each `locals` below `top` that a function calls for its own variables."""
    inside = (inside or isinstance(top, ast.FunctionDef)) and not isinstance(top, ast.ClassDef)
    if inside and isinstance(top, ast.Call) and not (top.args or top.keywords):
        if isinstance(top.func, ast.Name) and top.func.id == "locals":
            yield id(top.func)
    for name, value in ast.iter_fields(top):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from find_looks_at_locals(child, inside and name != "decorator_list")


def has_plain_name(node: ast.AST, call: ast.AST | None) -> bool:
    """Return whether `call` is `getattr(x, "name")` with `node` its getattr."""
    if not isinstance(call, ast.Call) or call.func is not node or len(call.args) < 2:
        return False
    name = call.args[1]
    return isinstance(name, ast.Constant) and not str(name.value).startswith("_")


def has_own_beginning(call: ast.AST | None, own: set[str], others: Iterable[str]) -> bool:
    """Return whether `call` is `getattr(x, f"on_{kind}")` where only the answer's names begin so.

    A class that has a method for each kind of event looks for it so. `others` are the names that
    no answer needs.
    """
    if not isinstance(call, ast.Call) or len(call.args) < 2:
        return False
    whose, name = call.args[:2]
    if not isinstance(whose, ast.Name) or not isinstance(name, ast.JoinedStr):
        return False
    begins = str(getattr(name.values[0], "value", "")) if name.values else ""
    if not isinstance(name.values[0], ast.Constant) or not begins or begins.startswith("_"):
        return False
    return any(n.startswith(begins) for n in own) and not any(n.startswith(begins) for n in others)


def has_known_names(
    node: ast.AST, call: ast.AST | None, nodes: Sequence[ast.AST], others: Iterable[str]
) -> bool:
    """Return whether `call` is `getattr(x, name)` where the answer shows all that `name` may be.

    It is a parameter for which every call writes a word, or runs over words that stand there.
    `others` are the names that no answer needs.
    """
    name = call.args[1] if isinstance(call, ast.Call) and len(call.args) == 2 else None
    if not isinstance(name, ast.Name) or getattr(call, "func", None) is not node:
        return False
    values = list(_list_values(name.id, nodes))
    words = [getattr(value, "value", None) for value in values]
    return bool(words) and all(
        isinstance(w, str) and w.isidentifier() and w[0] != "_" and w not in others for w in words
    )


def _list_values(name: str, nodes: Sequence[ast.AST]) -> Iterator[ast.AST | None]:
    """Yield every expression that a variable or a parameter may stand for, None for any other."""
    known = 0
    for node in nodes:
        if isinstance(node, ast.For | ast.comprehension) and getattr(node.target, "id", "") == name:
            known += 1
            yield from node.iter.elts if isinstance(node.iter, ast.Tuple | ast.List) else [None]
        elif isinstance(node, ast.FunctionDef) and name in [a.arg for a in node.args.args]:
            known += 1
            yield from _list_given(node, name, nodes)
    if sum(name in _list_bound(node) for node in nodes) != known:
        yield None


def _list_given(function: ast.FunctionDef, name: str, nodes: Sequence[ast.AST]) -> Iterator[Any]:
    """Yield what calls of `function` give for its parameter `name`, None where that is open."""
    names = [a.arg for a in function.args.args]
    place = names.index(name) - (names[0] == "self")
    usual = dict(zip(reversed(names), reversed(function.args.defaults))).get(name)
    yield from [usual] if usual else []
    calls = [n for n in nodes if isinstance(n, ast.Call) and _is_named(n.func, function.name)]
    if len(calls) != sum(_is_named(n, function.name) for n in nodes):
        yield None  # handed on
    for call in calls:
        named = {k.arg: k.value for k in call.keywords}
        plain = not any(isinstance(a, ast.Starred) for a in call.args) and None not in named
        given = call.args[place] if plain and place < len(call.args) else named.get(name, usual)
        yield given if plain else None


def _is_named(node: ast.AST, name: str) -> bool:
    loaded = isinstance(getattr(node, "ctx", None), ast.Load)
    return loaded and name in (getattr(node, "attr", ""), getattr(node, "id", ""))


def is_command_line(node: ast.AST | None, nodes: Sequence[ast.AST], depth: int = 4) -> bool:
    """Return whether `node` is what argparse has read: `vars` of it is a program's settings.

    It is `parser.parse_args()`, a function of the program that returns it, or a name that is only
    ever assigned one of these. `nodes` are all of the program's.
    """
    values: list[ast.AST | None] = []
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr == "parse_args"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        name = node.func.id
        found = [n for n in nodes if isinstance(n, ast.FunctionDef) and n.name == name]
        values = [n.value for f in found for n in ast.walk(f) if isinstance(n, ast.Return)]
    elif isinstance(node, ast.Name):
        name = node.id
        sets = [n for n in nodes if isinstance(n, ast.Assign) and len(n.targets) == 1]
        values = [n.value for n in sets if getattr(n.targets[0], "id", "") == name]
        bound = [n for n in nodes if getattr(n, "id", "") == name and isinstance(n.ctx, ast.Store)]
        if len(bound) != len(values) or any(getattr(n, "arg", "") == name for n in nodes):
            return False
    return depth > 0 and bool(values) and all(is_command_line(v, nodes, depth - 1) for v in values)
