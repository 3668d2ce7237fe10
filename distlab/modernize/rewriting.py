"""The mechanical changes. libcst parses and prints, so comments and layout stay.

What an `edit` may be:

    path OLD NEW     a dotted name, or an import of it
    attribute NEW    the last name of a.b.c
    keyword NEW      a call's keyword; "drop" takes it out; "wrap WORDS={}" puts the value into {}
    add WORDS        one more argument
    name-first       the first arguments of add_weight by name
    suffix .keras    the end of the file name that a call is given
    tuple            4 becomes (4,)
    unwrap           a.value becomes a
    graph            the program imports tensorflow.compat.v1, and keeps its names

An edit that can't be made where it stands (a name that isn't imported as it should be) is left
out, and the place needs a person.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Any

from distlab.errors import CourseError
from distlab.modernize.names import CANONICAL, make_canonical
from distlab.modernize.reading import FoundForm

try:
    import libcst as cst
    from libcst.metadata import MetadataWrapper, PositionProvider
except ImportError:
    raise CourseError(
        "--diff and --write need libcst, which isn't installed. Run: pip install libcst"
    ) from None

FULL = {short: full for full, short in CANONICAL.items()}


def rewrite(text: str, found: Sequence[FoundForm]) -> tuple[str, list[FoundForm]]:
    """Return the program after its mechanical changes, and the changes."""
    editor = Editor(text, [finding for finding in found if finding.edit])
    changed = MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True).visit(editor)
    return changed.code, editor.made


class Editor(cst.CSTTransformer):
    """Applies each finding's edit at its place; `made` are those that were."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, text: str, found: Iterable[FoundForm]) -> None:
        super().__init__()
        self.made: list[FoundForm] = []
        lines = text.split("\n")
        self._edits: dict[tuple[int, int], list[tuple[tuple[int, int], FoundForm]]] = defaultdict(
            list
        )
        self._graph: list[FoundForm] = []
        for finding in found:
            if finding.edit == "graph":
                self._graph.append(finding)
                continue
            a, b, c, d = finding.span
            begin, end = (a, _count(lines[a - 1], b)), (c, _count(lines[c - 1], d))
            self._edits[begin].append((end, finding))

    def on_leave(self, original: Any, updated: Any) -> Any:
        updated = super().on_leave(original, updated)
        place = self.get_metadata(PositionProvider, original, None)
        if place is None or not isinstance(updated, cst.CSTNode):
            return updated
        begin = (place.start.line, place.start.column)
        for end, finding in self._edits.get(begin, ()):
            same = end == (place.end.line, place.end.column)
            edited = self._edit(original, updated, finding, same)
            if edited is not None and finding not in self.made:
                self.made.append(finding)
                updated = edited
                if not isinstance(updated, cst.CSTNode):
                    return updated
        return self._close_call(original, updated)

    def _edit(self, original: Any, updated: Any, finding: FoundForm, same: bool) -> Any:
        kind, _, rest = finding.edit.partition(" ")
        if isinstance(original, cst.Arg):
            return _edit_argument(updated, kind, rest) if original.keyword else None
        if isinstance(original, cst.SimpleStatementLine) and finding.shown.startswith("import "):
            old, new = rest.split(" ")
            return _edit_import(updated, old, new)
        if not same or kind in ("keyword", "drop", "wrap"):
            return None
        return _edit_expression(original, updated, kind, rest)

    def _close_call(self, original: Any, updated: Any) -> Any:
        """Take the comma away that a dropped last argument leaves."""
        if isinstance(original, cst.Call) and 0 < len(updated.args) < len(original.args):
            last = updated.args[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
            return updated.with_changes(args=[*updated.args[:-1], last])
        return updated

    def leave_SimpleStatementLine(self, original_node: Any, updated_node: Any) -> Any:
        """Import TensorFlow 1's names in a program that builds a graph."""
        statement = updated_node.body[0]
        if not self._graph or not isinstance(statement, cst.Import):
            return updated_node
        alias = statement.names[0]
        if len(statement.names) != 1 or _write(alias.name) != "tensorflow":
            return updated_node
        name = alias.evaluated_alias or "tensorflow"
        new = cst.Import(
            [
                cst.ImportAlias(
                    cst.parse_expression("tensorflow.compat.v1"), cst.AsName(cst.Name(name))
                )
            ]
        )
        self.made += self._graph
        self._graph = []
        switch = cst.parse_statement(f"{name}.disable_v2_behavior()")
        return cst.FlattenSentinel([updated_node.with_changes(body=[new]), switch])


def _count(line: str, column: int) -> int:
    """Return ast's column, which counts bytes, in letters."""
    return len(line.encode()[:column].decode())


def _write(node: cst.CSTNode) -> str:
    return cst.Module([]).code_for_node(node)


# ---- expressions


def _edit_expression(original: Any, updated: Any, kind: str, rest: str) -> Any:
    if kind == "attribute" and isinstance(original, cst.Attribute):
        return updated.with_changes(attr=cst.Name(rest))
    if kind == "path" and isinstance(original, cst.Attribute | cst.Name):
        new = rename(_write(original), *rest.split(" "))
        return cst.parse_expression(new) if new else None
    if kind == "unwrap" and isinstance(original, cst.Attribute):
        return updated.value
    if kind == "tuple" and isinstance(original, cst.Integer):
        return cst.parse_expression(f"({original.value},)")
    if isinstance(original, cst.Call):
        return _edit_call(updated, kind, rest)
    return None


def rename(source: str, old: str, new: str) -> str | None:
    """Return the dotted name as the program writes it, renamed; None where that isn't enough.

    The program's own first name stays: with `import tensorflow as t`, `t.log` becomes
    `t.math.log`. A name imported alone can't be renamed at its use.
    """
    before, after = old.split("."), new.split(".")
    while before and after and before[0] == after[0]:
        del before[0], after[0]
    parts = source.replace(" ", "").split(".")
    if parts[len(parts) - len(before) :] != before:
        return None
    kept = parts[: len(parts) - len(before)]
    if before and not kept and len(after) > 1:
        return None
    return ".".join([*kept, *after])


def _edit_call(call: cst.Call, kind: str, rest: str) -> cst.Call | None:
    arguments = list(call.args)
    if kind == "add":
        last = arguments[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        return call.with_changes(args=[*arguments[:-1], last, _make_argument(rest)])
    if kind == "name-first":
        for place, keyword in enumerate(("name", "shape")[: len(arguments)]):
            if arguments[place].keyword is None:
                arguments[place] = _name(arguments[place], keyword)
        return call.with_changes(args=arguments)
    if kind == "suffix":
        for place, argument in enumerate(arguments):
            named = argument.keyword.value if argument.keyword else "filepath"
            if named == "filepath" and isinstance(argument.value, cst.SimpleString):
                text = argument.value
                path = PurePath(text.raw_value)
                known = path.suffix in (".h5", ".hdf5", ".ckpt", ".tf")
                end = text.raw_value.removesuffix(path.suffix) if known else text.raw_value
                value = text.with_changes(value=f"{text.prefix}{text.quote}{end}{rest}{text.quote}")
                arguments[place] = argument.with_changes(value=value)
                return call.with_changes(args=arguments)
    return None


def _name(argument: cst.Arg, keyword: str) -> cst.Arg:
    tight = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
    return argument.with_changes(keyword=cst.Name(keyword), equal=tight)


def _make_argument(words: str) -> cst.Arg:
    return cst.parse_expression(f"f({words})").args[0]


def _edit_argument(argument: cst.Arg, kind: str, rest: str) -> Any:
    if kind == "keyword":
        return argument.with_changes(keyword=cst.Name(rest))
    if kind == "drop":
        return cst.RemoveFromParent()
    if kind == "wrap":
        made = _make_argument(rest.replace("{}", _write(argument.value)))
        return argument.with_changes(keyword=made.keyword, value=made.value)
    return None


# ---- imports


def _edit_import(line: cst.SimpleStatementLine, old: str, new: str) -> Any:
    """Return the line that imports the same from its new place, and what stays as it was."""
    statement = line.body[0]
    if not isinstance(statement, cst.ImportFrom) or isinstance(statement.names, cst.ImportStar):
        return None
    module = _write(statement.module)
    moved: dict[str, list[cst.ImportAlias]] = defaultdict(list)
    for alias in statement.names:
        target = _move(f"{module}.{_write(alias.name)}", old, new)
        place, _, name = (target or "").rpartition(".")
        if target and not place:
            return None
        moved[place].append(_rebind(alias, name) if target else alias)
    stay = moved.pop("", [])
    if not moved:
        return None
    if stay:
        stay[-1] = stay[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
    made = [statement.with_changes(names=stay)] if stay else []
    for place, names in moved.items():
        made.append(statement.with_changes(module=cst.parse_expression(place), names=names))
    rest = [cst.SimpleStatementLine([each]) for each in made[1:]]
    first = line.with_changes(body=[made[0]])
    return cst.FlattenSentinel([first, *rest]) if rest else first


def _rebind(alias: cst.ImportAlias, name: str) -> cst.ImportAlias:
    """Return the import of `name` that binds what `alias` bound."""
    bound = alias.evaluated_alias or alias.evaluated_name
    return cst.ImportAlias(cst.Name(name), cst.AsName(cst.Name(bound)) if bound != name else None)


def _move(whole: str, old: str, new: str) -> str | None:
    """Return the module path that `whole` has after `old` became `new`, None if it stays."""
    path = make_canonical(whole)
    start = f".{path}.".find(f".{old}.")
    if start < 0:
        return None
    path = path[:start] + new + path[start + len(old) :]
    root, _, rest = path.partition(".")
    return f"{FULL.get(root, root)}.{rest}" if rest else None
