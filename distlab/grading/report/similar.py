"""Answers that are nearly the same: names, comments and spacing don't count.

An answer becomes its tokens with its own names replaced by their order of appearance; two
answers are as alike as their sets of token 5-grams (Jaccard).
After MOSS: Schleimer, Wilkerson, Aiken, "Winnowing", SIGMOD 2003.
What is short, close to the stub or close to the reference solution says nothing and
is left out.
"""

import ast
import builtins
import contextlib
import io
import keyword
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
_SKIPPED = {tokenize.COMMENT, tokenize.NL, tokenize.ENDMARKER}
_SPACING = {tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
_KNOWN = {*vars(builtins), *keyword.kwlist}


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


class _DropAnnotations(ast.NodeTransformer):
    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        made = ast.Assign([node.target], node.value) if node.value else ast.Expr(node.target)
        return ast.copy_location(made, node)


def list_tokens(text: str) -> list[str]:
    """Return the tokens of an answer without its own names, comments, docstrings, spacing.

    Annotations of arguments, results and variables don't count either.
    """
    names: dict[str, str] = {}
    found: list[str] = []
    with contextlib.suppress(RecursionError, MemoryError, ValueError):
        text = ast.unparse(_DropAnnotations().visit(tree)) if (tree := parse(text)) else text
    with contextlib.suppress(tokenize.TokenError, SyntaxError):  # what could be read
        for kind, word, *_ in tokenize.generate_tokens(io.StringIO(text).readline):
            begins = not found or found[-1] in ("NEWLINE", "INDENT", "DEDENT")
            empty = begins and kind in (tokenize.STRING, tokenize.NEWLINE)  # a docstring, its end
            if kind in _SPACING:
                word = tokenize.tok_name[kind]
            elif kind == tokenize.NAME and word not in _KNOWN and found[-1:] != ["."]:
                word = names.setdefault(word, f"n{len(names)}")
            found += [word] * (kind not in _SKIPPED and not empty)
    return found
