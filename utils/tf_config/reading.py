"""The text of TF_CONFIG -> one JSON object, or findings that say why it is none."""

import ast
import json
import shlex
from typing import Any

from .findings import Finding, show

CURLY_QUOTES = "\u201c\u201d\u2018\u2019"
DUMPS = "write json.dumps(config), not str(config)"


def read_object(text: str) -> tuple[dict[str, Any] | None, list[Finding]]:
    """Return the JSON object in `text`, or None, and what is wrong with the text.

    A key that stands twice is an error: JSON keeps the last one without a word.
    """
    if not text.strip():
        what = "is empty, which TensorFlow cannot read"
        return None, [_fault(what, "unset TF_CONFIG to train on one machine, or write an object")]
    doubled: list[str] = []

    def keep(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        doubled.extend(key for key in dict.fromkeys(keys) if keys.count(key) > 1)
        return dict(pairs)

    try:
        value = json.loads(text, object_pairs_hook=keep)
    except RecursionError:
        return None, [_fault("is nested too deeply", "write {'cluster': …, 'task': …}")]
    except ValueError as error:
        return None, [_explain(text, error)]
    if isinstance(value, str):
        return None, [_fault("is a JSON string, not an object", "call json.dumps once, not twice")]
    if not isinstance(value, dict):
        what = f"is a JSON {type(value).__name__}, not an object"
        return None, [_fault(what, 'write {"cluster": …, "task": …}')]
    cure = "keep one: of two, JSON reads the last"
    return value, [Finding("error", key, f"the key {show(key)} stands twice", cure)
                   for key in dict.fromkeys(doubled)]  # fmt: skip


def split_texts(text: str) -> list[str]:
    """Return the configurations in the text of a file: one, or one a line.

    Reads what `distlab tf-config build` prints: an object, several lines each with
    one, or shell lines `export TF_CONFIG='…'` (comments and blank lines between).
    Text that is none of these comes back whole, for the linter to judge.
    """
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    values = [_unwrap(line) for line in lines]
    if lines and all(value is not None for value in values):
        return [value for value in values if value is not None]
    return [text]


def _unwrap(line: str) -> str | None:
    """Return the configuration that a line holds by itself, or None."""
    if line.startswith("{") and line.endswith("}"):
        return line
    if not line.startswith(("export TF_CONFIG=", "TF_CONFIG=")):
        return None
    try:
        words = shlex.split(line)
    except ValueError:
        return None
    return next(word for word in words if "=" in word).partition("=")[2]


def _explain(text: str, error: ValueError) -> Finding:
    """Say which of the usual mistakes made the text no JSON."""
    stripped = text.strip()
    if any(quote in text for quote in CURLY_QUOTES):
        return _fault("is not JSON: it has typographic quotes", 'write straight ones: "')
    if stripped[0] in "'\"" and stripped[0] == stripped[-1] and "{" in stripped:
        cure = "quote the value once, in the shell only"
        return _fault("is not JSON: the shell's quotes are part of the value", cure)
    if "'" in text and _is_python_dict(stripped):
        return _fault("is not JSON but a Python dict as str() prints it", DUMPS)
    if "'" in text:
        what = "is not JSON: single quotes round names or addresses"
        return _fault(what, f"JSON knows double quotes only; {DUMPS}")
    return _explain_place(stripped, error)


def _explain_place(text: str, error: ValueError) -> Finding:
    if not isinstance(error, json.JSONDecodeError):
        return _fault(f"is not JSON: {error}", DUMPS)
    place = f"line {error.lineno}, column {error.colno}"
    before = text[: error.pos].rstrip()
    if not text.startswith("{"):
        cure = "give the JSON itself, not a file name or a command"
        return _fault(f"is not JSON: it begins with {show(text[:20])}", cure)
    if error.pos >= len(text) - 1 and error.msg.startswith(("Expecting", "Unterminated")):
        return _fault("is not JSON: it ends too early", "close every quote, bracket and brace")
    if before.endswith(",") and text[error.pos] in "]}" or error.msg.startswith("Illegal trailing"):
        return _fault(f"is not JSON: a comma too many before {place}", "take the last comma away")
    return _fault(f"is not JSON at {place}: {error.msg}", DUMPS)


def _is_python_dict(text: str) -> bool:
    try:
        return isinstance(ast.literal_eval(text), dict)
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return False


def _fault(what: str, cure: str) -> Finding:
    return Finding("error", "TF_CONFIG", what, cure)
