"""The table's entries found in a program. Nothing of the program is imported or run.

What an entry's `find` may be:

    tf.contrib                     this name or one below it, used or imported
    import horovod                 this module or one below it, imported
    metric.reset_states            this attribute of an object of this kind ("any": of anything)
    optimizer.lr =                 the same, assigned
    keras.optimizers.*(lr)         a call with this keyword
    model.compile(loss='logcosh')  … with this value; (1='*.h5'): the argument at this place
    gone tf, gone keras            a name that the installed API doesn't have
    missing module                 an import of what isn't installed
    builtin xrange                 a name that nothing in the program defines
    magic %tensorflow_version      a notebook's magic
    check NAME                     the function NAME of checks.py
"""

import ast
import builtins
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from importlib.util import find_spec

from distlab.modernize import checks, installed
from distlab.modernize.names import KERAS_KINDS, Names, find_forms, get_dotted, make_canonical
from distlab.modernize.table import STYLE, OldForm, choose, find_entry, read_table
from utils.tf_config.symptoms import find_package

GRAPH = ("session", "placeholder", "initialize-variables")  # programs that build a graph
OBJECTS = ("any", "strategy", "dataset", *KERAS_KINDS)
CALL = re.compile(r"(.+)\((\w+)(?:='(.+)')?\)")
Span = tuple[int, int, int, int]  # first line and column, last line and column, as ast has them


@dataclass(frozen=True)
class FoundForm:
    """One place where an entry applies. `edit` is what rewriting.py does there, "" for nothing."""

    entry: OldForm
    span: Span
    shown: str
    edit: str = ""
    why: str = ""

    @property
    def line(self) -> int:
        return self.span[0]


@dataclass(frozen=True)
class Index:
    """The table by its keys: the last name of a path, an attribute, a keyword."""

    paths: dict[str, OldForm]
    imports: dict[str, OldForm]
    attributes: dict[str, list[tuple[str, bool, OldForm]]]
    calls: dict[str, list[tuple[str, str, OldForm]]]
    checks: dict[str, OldForm]
    builtins: dict[str, OldForm]


@cache
def index_table() -> Index:
    """Return the table, looked up by what a program may hold."""
    index = Index({}, {}, defaultdict(list), defaultdict(list), {}, {})
    named = {"import": index.imports, "check": index.checks, "builtin": index.builtins}
    for entry in read_table():
        for find in entry.find:
            word, _, rest = find.partition(" ")
            if word in named:
                named[word][rest] = entry
            elif found := CALL.fullmatch(find):
                index.calls[found[2]].append((found[1], found[3] or "*", entry))
            elif word.split(".")[0] in OBJECTS:
                kind, _, attribute = word.rpartition(".")
                index.attributes[attribute].append((kind, rest == "=", entry))
            elif not rest:
                index.paths[word] = entry
    return index


def read_program(text: str, local: Iterable[str] = ()) -> list[FoundForm]:
    """Return what the table says of a program, in the order of its lines.

    `local` are the modules that are there besides those installed: files next to the program.
    Raises SyntaxError for what isn't Python.
    """
    names = Names(ast.parse(text), text)
    found = [
        *_find_imports(names, frozenset(local)),
        *_find_attributes(names),
        *_find_calls(names),
        *_find_builtins(names),
    ]
    if names.knows_conventions:
        found += _find_checks(names)
    unique = {(finding.span, finding.entry.name): finding for finding in found}
    return _settle_edits(sorted(unique.values(), key=lambda finding: finding.span))


def _find(entry: OldForm, node: ast.AST, shown: str, edit: str = "", why: str = "") -> FoundForm:
    span = (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)
    return FoundForm(entry, span, shown, edit or entry.edit, why or entry.why)


# ---- names


def match_path(forms: Iterable[str]) -> tuple[OldForm, str] | None:
    """Return the entry of the longest listed name that a form begins with, and that name."""
    paths = index_table().paths
    for form in forms:
        parts = form.split(".")
        for end in range(len(parts), 1, -1):
            if entry := paths.get(prefix := ".".join(parts[:end])):
                return entry, prefix
    return None


def match_gone(path: str) -> tuple[OldForm, str] | None:
    """Return the entry for a name that the installed API lacks, and how far that name goes."""
    if path.startswith(tuple(f"tf.{name}." for name in installed.KERAS_IN_TF)):
        path = f"tf.keras.{path.removeprefix('tf.')}"
    if re.match(r"tf\.(python|core|compiler)\b|.*\.src\b", path):
        return None
    missing = installed.find_missing(path)
    if missing is None:
        return None
    keras = missing.startswith(("keras.", "tf.keras."))
    return find_entry("gone-keras-name" if keras else "gone-name"), missing


def _find_attributes(names: Names) -> Iterator[FoundForm]:
    inner = {id(node.value) for node in names.of_type(ast.Attribute)}
    for node in names.of_type(ast.Attribute):
        if id(node) not in inner:
            yield from _find_name(names, node)
        yield from _find_attribute(names, node)


def _find_name(names: Names, node: ast.Attribute) -> Iterator[FoundForm]:
    forms = names.forms(node)
    bound = names.paths.get((get_dotted(node) or "").split(".")[0], "")
    if not forms or isinstance(node.ctx, ast.Store) or _is_optional(names, node):
        return
    keras_2 = names.legacy and forms[0].startswith("tf.keras")
    matched = match_path(forms) or (None if keras_2 else match_gone(forms[0]))
    if matched is None:
        return
    entry, prefix = matched
    depth = len(prefix.split("."))
    if not forms[0].startswith(prefix):  # listed under another form, such as keras.X for tf.keras.X
        depth += len(forms[0].split(".")) - len(forms[-1].split("."))
    if depth <= len(bound.split(".")) and bound.count("."):
        return  # told where it was imported
    part: ast.AST = node
    for _ in range(len(forms[0].split(".")) - depth):
        part = part.value
    yield _find(entry, part, ast.unparse(part), *_describe_path(entry, prefix))


def _describe_path(entry: OldForm, path: str) -> tuple[str, str]:
    """Return the edit for this name, and why, where an entry covers many names."""
    if entry.edit == "renamed" or entry.edit == "v1":
        today = installed.find_today(path)
        kind = entry.edit if entry.edit == "v1" else "path"
        if today is None:
            return "none", entry.why
        words = f"It is {today} today." if entry.edit == "renamed" else entry.why
        return f"{kind} {path} {today}", words
    if entry.edit.startswith("path"):
        new = choose(entry.edit, path)
        if "{" not in entry.edit:
            path = next(f for f in entry.find if path == f or path.startswith(f"{f}."))
        return f"path {path} {new}", entry.why
    if entry.name == "gone-keras-name":
        return "", f"The installed Keras has no {path}."
    return "", entry.why


def _find_attribute(names: Names, node: ast.Attribute) -> Iterator[FoundForm]:
    """An attribute by name, on an object of a kind."""
    for kind, stored, entry in index_table().attributes.get(node.attr, ()):
        wanted, _, middle = kind.partition(".")
        if middle and not (isinstance(node.value, ast.Attribute) and node.value.attr == middle):
            continue
        if names.keras_2 and entry.legacy or isinstance(node.ctx, ast.Store) != stored:
            continue
        if wanted == "any" and not (names.knows_conventions or entry.group == "Python"):
            continue
        if names.resolve(node) or (wanted != "any" and names.find_kind(node.value) != wanted):
            continue
        edit = f"attribute {choose(entry.edit, node.attr)}" if entry.edit else ""
        yield _find(entry, node, ast.unparse(node)[-70:], edit)


# ---- calls


def _find_calls(names: Names) -> Iterator[FoundForm]:
    for node in names.of_type(ast.Call):
        for word in node.keywords:
            if word.arg:
                yield from _find_argument(names, node, word.arg, word.value, word)
        for place, value in enumerate(node.args):
            yield from _find_argument(names, node, str(place), value, value)


def _find_argument(
    names: Names, call: ast.Call, name: str, value: ast.expr, node: ast.AST
) -> Iterator[FoundForm]:
    for target, pattern, entry in index_table().calls.get(name, ()):
        if names.keras_2 and (entry.legacy or entry.group == "Keras"):
            continue
        if pattern != "*" and not any(
            fnmatchcase(text, pattern) for text in checks.read_texts(names, value)
        ):
            continue
        path = _match_target(names, call.func, target)
        if path is not None:
            edit = entry.edit and f"{entry.edit.split()[0]} {choose(entry.edit, path)}"
            shown = f"{ast.unparse(call.func)[-50:]}({'' if name.isdigit() else name + '='}…)"
            yield _find(entry, node, shown, edit)


def _match_target(names: Names, function: ast.expr, target: str) -> str | None:
    """Return the listed name that the called function has, None if it's another function."""
    kind, _, attribute = target.rpartition(".")
    if kind in OBJECTS:
        if not isinstance(function, ast.Attribute) or function.attr != attribute:
            return None
        return target if kind in ("any", names.find_kind(function.value)) else None
    return next((form for form in names.forms(function) if fnmatchcase(form, target)), None)


# ---- imports


def _find_imports(names: Names, local: frozenset[str]) -> Iterator[FoundForm]:
    changes_path = any(get_dotted(n) == "sys.path" for n in names.of_type(ast.Attribute))
    for node in names.nodes:
        if not isinstance(node, ast.Import | ast.ImportFrom) or _is_optional(names, node):
            continue
        module = "" if isinstance(node, ast.Import) else node.module or ""
        if not module and isinstance(node, ast.ImportFrom) or getattr(node, "level", 0):
            continue
        for alias in node.names:
            whole = f"{module}.{alias.name}" if module else alias.name
            top = whole.split(".")[0]
            if top in local:
                continue
            if found := _match_import(names, module or whole, whole):
                entry, *words = found
                yield _find(entry, node, f"import {whole}", *words)
            elif not (changes_path or is_installed(top)):
                if names.knows_conventions:
                    why = f"{top} isn't installed here: pip install {find_package(top)}."
                    yield _find(find_entry("missing-module"), node, f"import {top}", "", why)


def _match_import(names: Names, module: str, whole: str) -> tuple[OldForm, str, str] | None:
    """Return the entry for an import, its edit and why."""
    forms = list(find_forms(make_canonical(whole), names.legacy))
    parts = whole.split(".")
    for listed in (".".join(parts[:end]) for end in range(len(parts), 0, -1)):
        if (entry := index_table().imports.get(listed)) and names.knows_conventions:
            return entry, entry.edit, entry.why
    keras_2 = names.legacy and whole.startswith("tensorflow.keras")
    if matched := match_path(forms) or (None if keras_2 else match_gone(forms[0])):
        return matched[0], *_describe_path(*matched)
    if re.match(r"tensorflow\.(?!keras|_api)", module) and not installed.has_module(module):
        if installed.find_missing(forms[0]):
            return find_entry("gone-name"), "none", f"This TensorFlow has no {module}."
    return None


@cache
def is_installed(top: str) -> bool:
    """Return whether a module can be imported here; it isn't."""
    if top in sys.stdlib_module_names or top in sys.builtin_module_names:
        return True
    try:
        return find_spec(top) is not None
    except (ImportError, ValueError):
        return False


def _is_optional(names: Names, node: ast.AST) -> bool:
    """Return whether the program handles the failure: a try, or an if on the version."""
    if not names.guards:
        return False
    inside = node
    for above in names.above(node):
        if isinstance(above, ast.Try) and inside in above.body and above.handlers:
            return True
        if isinstance(above, ast.Try) and inside in above.handlers:
            return True
        if isinstance(above, ast.If) and re.search(
            r"__version__|VERSION|TYPE_CHECKING|hasattr|TF2|tf2|is_v2|eager",
            ast.unparse(above.test),
        ):
            return True
        inside = above
    return False


# ---- the rest


def _find_builtins(names: Names) -> Iterator[FoundForm]:
    listed = index_table().builtins
    used = [node for node in names.of_type(ast.Name) if node.id in listed]
    stored = {node.id for node in used if not isinstance(node.ctx, ast.Load)} | set(names.paths)
    for node in used:
        if (
            node.id not in stored
            and not hasattr(builtins, node.id)
            and not _is_optional(names, node)
        ):
            entry = listed[node.id]
            yield _find(entry, node, node.id, f"path {node.id} {choose(entry.edit, node.id)}")


def _find_checks(names: Names) -> Iterator[FoundForm]:
    for name, entry in index_table().checks.items():
        if names.keras_2 and entry.legacy:
            continue
        for node, *edit in getattr(checks, name)(names):
            whole = names.parents[node] if isinstance(node, ast.Constant) else node
            shown = ast.unparse(whole).split("\n")[0]
            yield _find(entry, node, shown if len(shown) <= 70 else shown[:69] + "…", *edit)


def _settle_edits(found: list[FoundForm]) -> list[FoundForm]:
    """Choose between the two ways back to TensorFlow 1's names.

    A program that builds a graph imports tensorflow.compat.v1 and keeps all its names; in any
    other each name is changed alone.
    """
    graph = any(finding.entry.name in GRAPH for finding in found)
    settled = []
    for finding in found:
        kind, _, rest = finding.edit.partition(" ")
        old, _, new = rest.partition(" ")
        if kind in ("v1", "path") and old.startswith("tf.") and graph:
            there = installed.has("tf.compat.v1" + old[2:])
            edit = "graph" if there else finding.edit if kind == "path" else "none"
        else:
            edit = f"path {rest}" if kind == "v1" and new else finding.edit
        settled.append(replace(finding, edit="" if edit in ("none", "v1") else edit))
    return settled


def count_by(found: Iterable[FoundForm]) -> dict[str, int]:
    """Return how many places stop, are silently wrong, or are in an old style."""
    counts = {"stops": 0, "silently wrong": 0, STYLE: 0}
    for finding in found:
        counts[finding.entry.says] += 1
    return counts
