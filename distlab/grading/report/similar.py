"""Answers that are nearly the same: names, comments and spacing don't count.

An answer becomes the tokens of its syntax tree with its own names replaced by their
order of appearance. Two answers are as alike as their sets of token 5-grams (Jaccard).
After MOSS: Schleimer, Wilkerson, Aiken, "Winnowing", SIGMOD 2003.
What is short, close to the stub or close to the reference solution says nothing and
is left out.
"""

import ast
import builtins
import io
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

from distlab.grading.report.answers import parse

GRAM = 5
FEWEST_TOKENS = 40
ALIKE = 0.9
MAX_PARTNERS = 5  # an answer that more students share is a common one
Grams = frozenset[tuple[str, ...]]


@dataclass(frozen=True)
class Group:
    """Students with nearly the same answers: to which exercises, and how alike the least are."""

    students: tuple[str, ...]
    exercises: tuple[tuple[str, float], ...]


def find_groups(
    answers: Mapping[str, Mapping[str, str]], known: Mapping[str, tuple[str, ...]]
) -> list[Group]:
    """Return the groups of students with near-identical answers, those in most exercises first.

    `answers` is student -> exercise -> code; `known` the stub and the reference of each exercise,
    which any answer may resemble.
    """
    groups: dict[tuple[str, ...], list[tuple[str, float]]] = defaultdict(list)
    for exercise, texts in known.items():
        common = [make_grams(text) for text in texts]
        grams = {s: make_grams(a[exercise]) for s, a in answers.items() if exercise in a}
        telling = {
            s: g for s, g in grams.items() if g and not any(_alike(g, c) >= ALIKE for c in common)
        }
        pairs = _compare(telling, len(answers))
        for students in _join(pairs):
            least = min(share for pair, share in pairs.items() if set(pair) <= set(students))
            groups[students].append((exercise, least))
    found = [Group(students, tuple(e)) for students, e in groups.items()]
    return sorted(found, key=lambda g: (-len(g.exercises), -len(g.students), g.students))


def _join(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, ...]]:
    """Return the students whom pairs connect, together."""
    groups: list[set[str]] = []
    for pair in pairs:
        touched = [group for group in groups if group & set(pair)]
        groups = [g for g in groups if g not in touched] + [set(pair).union(*touched)]
    return [tuple(sorted(group)) for group in groups]


def _compare(grams: Mapping[str, Grams], students: int) -> dict[tuple[str, str], float]:
    """Return the alike pairs of one exercise, less what is simply a common way to write it."""
    found = {}
    for (one, first), (two, second) in combinations(sorted(grams.items()), 2):
        if (share := _alike(first, second)) >= ALIKE:
            found[one, two] = share
    partners = Counter(student for pair in found for student in pair)
    common = max(MAX_PARTNERS, students // 10)
    return {
        pair: share
        for pair, share in found.items()
        if any(partners[student] <= common for student in pair)
    }


def _alike(first: Grams, second: Grams) -> float:
    if (
        not first
        or not second
        or len(first) < ALIKE * len(second)
        or (len(second) < ALIKE * len(first))
    ):
        return 0.0
    both = len(first & second)
    return both / (len(first) + len(second) - both)


@lru_cache(maxsize=4096)
def make_grams(text: str) -> Grams:
    """Return the 5-grams of an answer's tokens; none if it is too short to say anything."""
    tokens = list_tokens(text)
    if len(tokens) < FEWEST_TOKENS:
        return frozenset()
    return frozenset(zip(*(tokens[k:] for k in range(GRAM))))


def list_tokens(text: str) -> list[str]:
    """Return the tokens of an answer without its own names, comments, docstrings, spacing."""
    tree = parse(text)
    try:
        plain = ast.unparse(_Renamer().visit(_drop_docstrings(tree))) if tree else text
        return _tokens(plain)
    except (RecursionError, MemoryError, ValueError):
        return text.split()


def _tokens(text: str) -> list[str]:
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.ENDMARKER}
    found = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type not in skipped:
                found.append(token.string or tokenize.tok_name[token.type])
    except (tokenize.TokenError, SyntaxError):
        pass  # what could be read
    return found


def _drop_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            if isinstance(body[0].value, ast.Constant) and isinstance(body[0].value.value, str):
                node.body = body[1:] or [ast.Pass()]  # type: ignore[attr-defined]
    return tree


class _Renamer(ast.NodeTransformer):
    """Names become n0, n1, … as they appear. Attributes, built-ins and keywords stay."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def _rename(self, name: str) -> str:
        if name in vars(builtins):
            return name
        return self._names.setdefault(name, f"n{len(self._names)}")

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self._rename(node.id)
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.arg, node.annotation = self._rename(node.arg), None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name, node.returns = self._rename(node.name), None
        self.generic_visit(node)
        return node

    def visit_alias(self, node: ast.alias) -> ast.AST:
        node.asname = self._rename(node.asname) if node.asname else None
        return node
