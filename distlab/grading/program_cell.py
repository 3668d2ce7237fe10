"""An answer that is a whole program: a cell that begins with `%%writefile NAME.py`.

In a notebook it writes the file. When a class is graded it is read as the one statement `NAME_py =
write_program("NAME.py", "…")`: the text travels, and none of it runs before the exercise runs it in
its own processes.
"""

import ast
import re
from pathlib import Path

_CELL = re.compile(r"\s*%%writefile[ \t]+(?:\./)?([A-Za-z_]\w*)\.py[ \t]*\n")
FUNCTION = "write_program"


def is_program(text: str) -> bool:
    """Return whether a cell writes a program."""
    return _CELL.match(text) is not None


def to_statement(text: str) -> str:
    """Return the statement that stands for a cell that writes a program; other text as it is."""
    found = _CELL.match(text)
    if found is None:
        return text
    body = text[found.end() :]
    return f"{found[1]}_py = {FUNCTION}({found[1] + '.py'!r}, {body!r})"


def find_program(node: ast.stmt) -> str | None:
    """Return the text of the program that a statement of `to_statement` writes, else None."""
    call = node.value if isinstance(node, ast.Assign) else None
    if not isinstance(call, ast.Call) or getattr(call.func, "id", "") != FUNCTION:
        return None
    texts = [a.value for a in call.args if isinstance(a, ast.Constant) and not call.keywords]
    return texts[1] if len(texts) == 2 and all(isinstance(t, str) for t in texts) else None


def write_program(name: str, text: str) -> str:
    """Write a program into the working folder and return its name."""
    Path(Path(name).name).write_text(text, encoding="utf-8")
    return Path(name).name
