"""Text that others wrote, made fit to be kept and shown: nothing in it acts.

Terminal sequences go; control characters and marks that turn the direction of writing
(https://trojansource.codes) are shown as their code. Escaping for HTML is the templates' work.
"""

import re
import unicodedata

from utils.checks import UNSEEN

MAX_CHARACTERS = 8000
_TERMINAL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colors, cursor
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)"  # titles, links, device strings
    r"|\x1b[ -/]*[0-~]"
    r"|\x9b[0-?]*[ -/]*[@-~]",
    re.DOTALL,
)


def clean(text: str, most: int = MAX_CHARACTERS) -> str:
    """Return `text` without terminal sequences; other invisible characters as their code."""
    plain = _TERMINAL.sub("", text[: 4 * most]).replace("\r\n", "\n")
    plain = "\n".join(line.rpartition("\r")[2] or line.strip("\r") for line in plain.split("\n"))
    shown = "".join(_show(c) for c in plain)
    left_out = len(shown) - most
    return shown if left_out <= 0 else f"{shown[:most]}\n… ({left_out:,} more characters)"


def _show(character: str) -> str:
    if character in "\n\t":
        return character
    if unicodedata.category(character) in UNSEEN:
        return f"\\x{ord(character):02x}"
    return character


def clean_line(text: str, most: int = 500) -> str:
    """Return `text` as one clean line."""
    return " ".join(clean(text, most).split())
