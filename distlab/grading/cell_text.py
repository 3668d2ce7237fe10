"""Questions about the text of a cell: what it defines, if it is whole, what is a check's."""

import ast
import re
import warnings
from bisect import bisect_right
from functools import lru_cache

from distlab.grading.labs import find_names
from distlab.grading.program_cell import to_statement

MAX_LINES, MAX_PARSED = 2000, 30_000
_TIMED = ("%%time", "%%capture", "%%prun")
_DEFINED = re.compile(r"^(?:async[ \t]+def|def|class)[ \t]+(\w+)|^(\w+)[ \t]*=[^=]", re.MULTILINE)
_STRONG = re.compile(r"^### (BEGIN|END) |^got_\w+ *=|default_rng\(\[SEED")
BAD = (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError)


@lru_cache(maxsize=512)
def transform(text: str) -> str:
    """Return `text` as IPython would run it: magics as calls, no common indentation."""
    from IPython.core.inputtransformer2 import TransformerManager

    text = to_statement(text)
    if len(text) > MAX_PARSED or _is_python(text):
        return text
    try:
        return TransformerManager().transform_cell(text)
    except BAD:
        return text


def parse(text: str) -> ast.Module:
    """Parse Python without a word about its style."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)


def _is_python(text: str) -> bool:
    """Return whether `text` is plain Python, which IPython would leave unchanged."""
    try:
        parse(text)
    except BAD:
        return False
    return True


@lru_cache(maxsize=512)
def find_defined(text: str, but_got: bool = False) -> tuple[str, ...]:
    """Return the names that `text` defines; of text that isn't whole, those seen line by line."""
    try:
        names = find_names(transform(text)) if len(text) <= MAX_PARSED else ()
    except BAD:
        names = ()
    names = names or tuple(a or b for a, b in _DEFINED.findall(text))
    return tuple(n for n in names if not (but_got and n.startswith("got_")))


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
    if any(text.startswith(("%%", "!")) for text in texts) or not compiles("\n".join(texts)):
        return False
    if not all(compiles(text) for text in texts):
        return all(
            not compiles("\n".join(texts[:k])) or _is_indented(texts[k])
            for k in range(1, len(texts))
        )
    return all(_is_indented(text) for text in texts[1:])


def _is_indented(text: str) -> bool:
    line = next((line for line in text.split("\n") if line.strip()), "")
    return line[:1] in (" ", "\t")


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


def drop_hidden(text: str) -> str:
    """Return `text` without hidden tests, in case a full solution was submitted."""
    lines, kept = text.split("\n"), []
    ends = [k for k, line in enumerate(lines) if line == "### END HIDDEN TESTS"]
    last, end = ends[-1] if ends else -1, -1
    for k, line in enumerate(lines):
        if k > end and line == "### BEGIN HIDDEN TESTS" and k < last:
            end = ends[bisect_right(ends, k)]
        if k > end:
            kept.append(line)
    return "\n".join(kept)


def strip_fences(text: str) -> str:
    """Return `text` without the lines that fence code in markdown."""
    return "\n".join(line for line in text.split("\n") if not line.startswith("```"))


def cut_lines(text: str, check: str) -> tuple[str, float]:
    """Return `text` without the lines of `check`, and which share of `check` was in it.

    Lines of `check` count if three stand together and one is strong (a marker,
    a got_ name, the draw of the inputs), or where all of `text` is of them. Nothing
    is cut (share 0) where less than a strong line was found.
    """
    lines = text.split("\n")
    known = {line.strip() for line in check.split("\n") if line.strip()}
    if len(lines) > MAX_LINES:
        return text, 0.0
    strong = {line for line in known if _STRONG.search(line) and not line.startswith("###")}
    own = [line.strip() in known or not line.strip() for line in lines]
    full = [line.strip() for line in lines if line.strip()]
    if full and all(line in known for line in full):
        return "", len(full) / len(known)
    cut: set[int] = set()
    for first, last in _find_runs(own):
        run = [lines[k].strip() for k in range(first, last) if lines[k].strip()]
        if len(run) >= 3 and set(run) & known or set(run) & strong:
            cut |= set(range(first, last))
    found = {lines[k].strip() for k in cut} & known
    if not found & strong:
        return text, 0.0
    rest = "\n".join(line for k, line in enumerate(lines) if k not in cut)
    return rest.strip("\n"), len(found) / len(known)


def _find_runs(flags: list[bool]) -> list[tuple[int, int]]:
    """Return the first index and the one after the last of each run of True."""
    runs, first = [], None
    for k, flag in enumerate([*flags, False]):
        if flag and first is None:
            first = k
        elif not flag and first is not None:
            runs.append((first, k))
            first = None
    return runs
