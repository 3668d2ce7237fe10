"""Questions about the text of a cell: what it defines, if it is whole, what is a check's."""

import ast
import contextlib
import re
import warnings
from functools import lru_cache

from distlab.grading.labs import find_names
from distlab.grading.program_cell import to_statement

MAX_PARSED = 30_000
_TIMED = ("%%time", "%%capture", "%%prun")
_DEFINED = re.compile(r"^(?:async[ \t]+def|def|class)[ \t]+(\w+)|^(\w+)[ \t]*=[^=]", re.MULTILINE)
BAD = (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError)


@lru_cache(maxsize=512)
def transform(text: str) -> str:
    """Return `text` as IPython would run it: magics as calls, no common indentation."""
    from IPython.core.inputtransformer2 import TransformerManager

    text = to_statement(text)
    with contextlib.suppress(*BAD):
        if len(text) <= MAX_PARSED:
            parse(text)  # plain Python stays as it is
        return text
    with contextlib.suppress(*BAD):
        return TransformerManager().transform_cell(text)
    return text


def parse(text: str) -> ast.Module:
    """Parse Python without a word about its style."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)


@lru_cache(maxsize=512)
def find_defined(text: str) -> tuple[str, ...]:
    """Return the names that `text` defines; of text that isn't whole, those seen line by line."""
    try:
        names = find_names(transform(text)) if len(text) <= MAX_PARSED else ()
    except BAD:
        names = ()
    return names or tuple(a or b for a, b in _DEFINED.findall(text))


@lru_cache(maxsize=512)
def compiles(text: str) -> bool:
    """Return whether IPython could run `text`, as far as its form goes; True for a long text."""
    if len(text) > MAX_PARSED:
        return True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
            compile(transform(text), "cell", "exec", flags=flags, dont_inherit=True)
    except BAD:
        return False
    return True


def are_split(texts: list[str]) -> bool:
    """Return whether `texts` are one cell that was split: whole together, and not apart."""
    begun = not compiles(texts[0]) or texts[1].lstrip("\n")[:1] in (" ", "\t")
    return begun and not texts[0].startswith("%%") and compiles("\n".join(texts))


def to_python(text: str) -> str:
    """Return a cell as Python: magics as calls, without one that only times or hides."""
    if text.startswith(_TIMED):
        text = "\n" + text.partition("\n")[2]
    lines = text.split("\n")
    for k, line in enumerate(lines):
        if line.startswith("%time "):
            lines[k] = line.removeprefix("%time ").lstrip()
    return transform("\n".join(lines))


def drop_comments(text: str) -> str:
    """Return `text` without blank lines, ends of lines, comments that stand alone."""
    lines = (line.rstrip() for line in text.split("\n"))
    return "\n".join(line for line in lines if line and not line.lstrip().startswith("# "))


def strip_fences(text: str) -> str:
    """Return `text` without the lines that fence code in markdown."""
    return "\n".join(line for line in text.split("\n") if not line.startswith("```"))


def cut_check(text: str, check: str) -> tuple[str, bool]:
    """Return `text` without `check`, and whether it holds all of it, or nothing but lines of it."""
    lines = {line.strip() for line in text.split("\n")} - {""}
    if lines and lines <= {line.strip() for line in check.split("\n")}:
        return "", True
    return text.replace(check, "").strip("\n"), check in text
