"""Reads an answer's text for what no answer needs: whoever writes that waits for a human.

It runs outside the sandbox, on the statements that would be run and on nothing else. It
cannot prove an answer honest; it makes what reaches beyond the answer visible, with its line.
"""

import ast
import builtins
import importlib
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType

from distlab.grading import cell_text
from distlab.grading.answer_code import Statement, find_root, unparse
from distlab.grading.answer_names import (
    ATTRIBUTES,
    BUILTINS,
    COMMON,
    COMPARISONS,
    ENVIRON,
    EQUAL,
    HANDED,
    KNOWN,
    LOOSE,
    METHODS,
    MODULES,
    OPTIONS,
    ORDINARY,
    PARTS,
    PRIVATE,
    PRIVATE_PACKAGES,
    PROGRAM_MODULES,
    PROGRAM_PARTS,
    SHOWN,
    SUBMODULES,
    TUNNELS,
    UNWANTED,
    WORDS,
    WRAPPERS,
)
from distlab.grading.answer_syntax import (
    compares,
    is_chain,
    is_special,
    keeps_traceback,
    list_names,
    read_text,
    walk_pairs,
)
from distlab.grading.labs import LabSpec
from distlab.grading.own_names import (
    find_local,
    find_looks_at_locals,
    find_own_objects,
    find_selves,
    has_known_names,
    has_own_beginning,
    has_plain_name,
    is_command_line,
    is_on_self,
    is_own,
)
from distlab.grading.program_cell import find_program

_PLACES = re.compile(
    r"^/?(?:proc|sys|dev)(?:/|$)|/proc/|memfd|__\w+__|(?i:distlab|descriptor)|"
    r"\{[\w.\[\]]*\._|\b(?:f_(?:back|globals|locals|builtins|code)|(?:tb|gi|cr|ag)_frame)\b"
)


@dataclass
class AnswerReader:
    """Reads the statements of one answer; `remarks` says what was found: "line 3: `…`: why"."""

    lab: LabSpec
    statements: Sequence[Statement]
    imported: set[str] = field(default_factory=set)
    modules: set[str] = field(default_factory=set)
    all: list[ast.AST] = field(default_factory=list)
    local: set[int] = field(default_factory=set)  # names of builtins that are variables here
    paths: dict[str, str] = field(default_factory=dict)  # imported name: what it stands for
    own: set[str] = field(default_factory=set)
    classes: set[str] = field(default_factory=set)
    objects: set[str] = field(default_factory=set)  # names of objects of the answer's classes
    selves: set[int] = field(default_factory=set)  # names `self` in methods of the answer's classes
    counters: set[str] = field(default_factory=set)  # names that run over a range
    remarks: list[tuple[int, str]] = field(default_factory=list)

    def read(self) -> list[tuple[int, str]]:
        """Return (piece, remark) for everything that no answer needs."""
        self.all = [n for s in self.statements for n in ast.walk(s.node)]
        self._learn_names(self.all)
        self.objects = set(find_own_objects(self.all, self.paths))
        self.selves = set(find_selves(self.all))
        self.local = {n for s in self.statements for n in find_local(s.node)}
        self.local |= {n for s in self.statements for n in find_looks_at_locals(s.node)}
        for statement in self.statements:
            program = find_program(statement.node)
            if program is not None:
                self._read_program(statement.place[0], program)
                continue
            if unparse(statement.node) in self.lab.given_statements:
                continue
            for node, parent in walk_pairs(statement.node):
                for why in self._judge(node, parent):
                    line = ast.unparse(node if isinstance(node, ast.stmt) else parent or node)
                    shown = f"line {getattr(node, 'lineno', 0)}: `{line.split(chr(10))[0][:90]}`"
                    self.remarks.append((statement.place[0], f"{shown} {why}"))
        return list(dict.fromkeys(self.remarks))

    def _read_program(self, piece: int, text: str) -> None:
        """Read a whole program, which may look at its command line and set its environment."""
        try:
            body = cell_text.parse(text).body
        except cell_text.BAD:
            return  # it will say so itself
        none: frozenset[str] = frozenset()
        parts = [Statement((piece, k), node, none, none, none) for k, node in enumerate(body)]
        self.remarks += ProgramReader(self.lab, parts).read()

    def _learn_names(self, nodes: Sequence[ast.AST]) -> None:
        """Note which names stand for modules and for what they hold, also under another name."""
        for node in nodes:
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {(a.asname or a.name).split(".")[0] for a in node.names}
                self.imported |= names
                ours = str(getattr(node, "module", "")).startswith("distlab.labs.lab")
                whole = isinstance(node, ast.Import) or ours
                self.modules |= names if whole else names & SUBMODULES
                base = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
                for a in node.names:
                    whole_path = base + a.name if base or a.asname else a.name.split(".")[0]
                    self.paths[a.asname or whole_path.rpartition(".")[2]] = whole_path
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self.own.add(node.name)
            if isinstance(node, ast.For | ast.comprehension) and isinstance(node.iter, ast.Call):
                if getattr(node.iter.func, "id", "") == "range":
                    self.counters |= {n.id for n in [node.target] if isinstance(n, ast.Name)}
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                if isinstance(node.value.func, ast.Name) and node.value.func.id == "type":
                    self.classes |= {t.id for t in node.targets if isinstance(t, ast.Name)}
        for _ in range(3):  # an alias of an alias
            for node in nodes:
                if isinstance(node, ast.Assign) and isinstance(
                    node.value, ast.Attribute | ast.Name
                ):
                    if is_chain(node.value) and find_root(node.value) in self.imported:
                        names = {t.id for t in node.targets if isinstance(t, ast.Name)}
                        self.imported |= names
                        if getattr(node.value, "id", "") in self.modules:
                            self.modules |= names
                        self.paths |= dict.fromkeys(names, self._expand(node.value))

    def _judge(self, node: ast.AST, parent: ast.AST | None) -> Iterator[str]:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from self._judge_import(node)
        elif isinstance(node, ast.Attribute):
            if not self._is_harmless(node, parent):
                yield from self._judge_attribute(node)
        elif isinstance(node, ast.Call):
            yield from self._judge_call(node)
        elif isinstance(node, ast.MatchClass):
            yield from (why for name in node.kwd_attrs for why in self._judge_part(name, ""))
        elif isinstance(node, ast.Name):
            yield from self._judge_name(node, parent)
        elif isinstance(node, ast.Constant | ast.BinOp) and (text := read_text(node)):
            if not isinstance(parent, ast.Expr) and _PLACES.search(text):
                yield "names a place or a thing that no answer needs"
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if is_special(node.name) and not (node.name in EQUAL and compares(node)):
                yield f"defines {node.name}, which no answer needs"
            if node.name == "__exit__" and keeps_traceback(node):
                yield "keeps a traceback, which no answer needs"
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            if find_root(node) in self.imported:
                yield f"changes {find_root(node)}, which is not the answer's own"

    def _judge_import(self, node: ast.Import | ast.ImportFrom) -> Iterator[str]:
        base = getattr(node, "module", None)
        paths = [a.name if base is None else f"{base}.{a.name}" for a in node.names]
        for path in paths:
            top, name = path.split(".")[0], path.split(".")[-1]
            if top in ("distlab", "utils"):
                if path not in self.lab.offered:
                    yield "takes the course's own code: the lab wants yours"
            elif path in SHOWN and base is not None:
                continue
            elif top not in MODULES:
                yield f"imports {top}, which no answer needs"
            elif path in COMPARISONS:
                continue
            elif path.startswith(PRIVATE_PACKAGES):
                yield "reaches into the inside of a library"
            elif base is not None and (name in ATTRIBUTES | TUNNELS or find_tunnel(path)):
                yield f"takes {path}, which no answer needs"
            elif base in PARTS and name not in PARTS[base] and name != "*":
                yield f"takes {path}, which no answer needs"

    def _is_harmless(self, node: ast.Attribute, parent: ast.AST | None) -> bool:
        """Return whether this reads a class's name, `x.__class__.__name__`, or compares arrays.

        Or is an own object's, as `self.__class__`.
        """
        if not isinstance(node.ctx, ast.Load):
            return False
        if node.attr in ("__dict__", "__class__") and id(node.value) in self.selves:
            return True
        outer = parent if isinstance(parent, ast.Attribute) else None
        if outer and not isinstance(outer.ctx, ast.Load):
            return False
        if self._expand(node) in COMPARISONS or outer and self._expand(outer) in COMPARISONS:
            return True
        return bool(outer) and (node.attr, outer.attr) == ("__class__", "__name__")

    def _judge_attribute(self, node: ast.Attribute) -> Iterator[str]:
        root, name = find_root(node), node.attr
        stored = isinstance(node.ctx, ast.Store | ast.Del)
        owner = node.value.id if isinstance(node.value, ast.Name) else ""
        place = self.paths.get(owner, "")
        if why := next(self._judge_part(name, root), ""):
            yield why
        elif root in self.imported and (tunnel := find_tunnel(self._expand(node))):
            yield f"reaches for {tunnel} through {root}, which no answer needs"
        elif name.startswith("_") and name not in METHODS | PRIVATE and not self._is_own(node):
            yield f"reaches for {name}, which is private"
        elif place in PARTS and owner in self.modules and name not in PARTS[place]:
            yield f"uses {place}.{name}, which no answer needs"
        elif place.startswith("distlab.labs.") and f"{place}.{name}" not in self.lab.offered:
            yield "takes the course's own code: the lab wants yours"
        elif owner == "environ" or ast.unparse(node.value) == "os.environ":
            if name not in ENVIRON:
                yield f"uses environ.{name}, which no answer needs"
        elif stored and (name in HANDED or name.startswith("__")) and not self._is_own(node):
            yield f"replaces {name}, which is not the answer's own"
        elif (
            stored
            and not self._is_kind_of_self(node.value)
            and (
                set(list_names(node.value)) & self.modules
                or root in self.imported
                or root in self.classes
                or (hasattr(builtins, root) and root not in self.own)
            )
        ):
            yield f"assigns to a part of {root}, which is not the answer's own"

    def _is_own(self, node: ast.Attribute) -> bool:
        known = is_own(node, self.own | self.objects, self.selves)
        return known or self._is_kind_of_self(node.value)

    def _is_kind_of_self(self, node: ast.AST) -> bool:
        """Return whether `node` is `type(self)`."""
        called = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "type"
        return called and [id(a) in self.selves for a in node.args] == [True]

    def _judge_part(self, name: str, root: str) -> Iterator[str]:
        """Judge a part that is reached for by its name, however that is written."""
        inside = root in self.imported
        if is_special(name) or name in ATTRIBUTES and (name not in WORDS or inside):
            yield f"reaches for {name}, which no answer needs"
        elif inside and name in COMMON and self.paths.get(root, "").split(".")[0] in LOOSE:
            yield f"reaches for {name} through {root}, which no answer needs"
        elif inside and name in TUNNELS and name != root and (root, name) not in ORDINARY:
            yield f"reaches for {name} through {root}, which no answer needs"

    def _judge_call(self, node: ast.Call) -> Iterator[str]:
        named = {k.arg: k.value for k in node.keywords if k.arg}
        for option, usual in OPTIONS.items():
            given = named.get(option)
            if given and not (isinstance(given, ast.Constant) and given.value is usual):
                yield f"sets {option}, which no answer needs"
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name in WRAPPERS and (len(node.args) > WRAPPERS[name] or named):
            yield f"sets attributes by {name}, which no answer needs"
        if name == "open" and node.args and self._is_number(node.args[0]):
            yield "opens a descriptor, which no answer needs"
        if name == "getattr" and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
            first, part = node.args[0], str(node.args[1].value)
            yield from self._judge_part(part, find_root(first))
            if find_root(first) in self.imported and find_tunnel(f"{self._expand(first)}.{part}"):
                yield f"reaches for {part}, which no answer needs"

    def _expand(self, node: ast.AST) -> str:
        """Return the full name of what a chain `np.linalg.norm` stands for, "" if it is none."""
        root, _, rest = ast.unparse(node).partition(".") if is_chain(node) else ("", "", "")
        path = self.paths.get(root, "")
        return f"{path}.{rest}" if path and rest else path

    def _is_number(self, node: ast.expr) -> bool:
        """Return whether an expression can be seen to be an int."""
        called = getattr(getattr(node, "func", None), "id", "")
        counted = isinstance(node, ast.Name) and node.id in self.counters
        return counted or called == "int" or isinstance(getattr(node, "value", ""), int)

    def _judge_name(self, node: ast.Name, parent: ast.AST | None) -> Iterator[str]:
        if node.id in BUILTINS:
            if id(node) not in self.local and not (
                node.id == "setattr" and is_on_self(parent, self.selves)
            ):
                yield f"uses {node.id}, which no answer needs"
        elif node.id == "getattr" and not (
            has_plain_name(node, parent)
            or has_own_beginning(parent, self.own, UNWANTED)
            or has_known_names(node, parent, self.all, UNWANTED)
        ):
            yield "looks for an attribute whose name is not written there"
        elif is_special(node.id):
            yield f"uses {node.id}, which no answer needs"
        elif node.id in self.modules and isinstance(node.ctx, ast.Load):
            plain = isinstance(parent, ast.Assign) and all(
                isinstance(target, ast.Name) for target in parent.targets
            )
            if not isinstance(parent, ast.Attribute) and not plain:
                yield "hands a whole module on, which no answer needs"


class ProgramReader(AnswerReader):
    """Reads a program: what any program does at its start and its end is ordinary in one."""

    def _judge(self, node: ast.AST, parent: ast.AST | None) -> Iterator[str]:
        if ast.unparse(node) in PROGRAM_PARTS:
            return
        if isinstance(node, ast.Import):
            names = [a for a in node.names if a.name not in PROGRAM_MODULES]
            node = ast.copy_location(ast.Import(names), node)
        if isinstance(node, ast.ImportFrom) and node.module in PROGRAM_MODULES:
            if all(a.name[0].isupper() for a in node.names):  # its classes, not what it imports
                return
        if isinstance(node, ast.Import | ast.ImportFrom) and "distlab" in ast.unparse(node):
            yield "takes the course's own code: a program stands by itself"
        if isinstance(node, ast.Constant) and node.value == "__main__":
            return
        if getattr(node, "id", "") == "vars" and "parse_args" not in self.own:
            if len(getattr(parent, "args", ())) == 1 and is_command_line(parent.args[0], self.all):
                return
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "os.environ":
            return
        yield from super()._judge(node, parent)


@cache
def find_tunnel(path: str) -> str:
    """Return the module that `path` reaches and that no answer may import, "" if there is none.

    Looked up in Python's own modules and NumPy: `enum.bltns` is builtins by another name.
    """
    top, *names = path.split(".")
    if top not in KNOWN or top not in sys.stdlib_module_names | {"numpy"}:
        return ""
    found = importlib.import_module(top)
    for name in names:
        found = getattr(found, name, None)
        if not isinstance(found, ModuleType):
            return ""
        home = found.__name__
        inside = home.split(".")[0] in KNOWN - PARTS.keys()
        if not inside or home.startswith(PRIVATE_PACKAGES):
            return home
    return ""
