"""Name the zip that `distlab submit` packs, and read that name again when grading."""

import re
import unicodedata
from datetime import datetime

MAX_NAME, MAX_NAME_BYTES = 128, 200  # nbgrader's gradebook; a file's name, with LAB and time
# Logins that many people share: a lab's room, a container, a hub. They name no student.
GENERIC_LOGINS = frozenset(
    "student students jovyan root user users admin guest jupyter ubuntu vscode codespace".split()
)
# The file that a lab wants with its notebook, by the exercise that it is graded for.
ATTACHED = {"lab15": {"model": "capstone.savedmodel"}}
MAX_ATTACHED_BYTES = 4 * 2**20
_PACKED = re.compile(r"(?P<name>.+)_(?P<time>\d{8}-\d{6})(?: ?\(\d+\))?")  # a browser adds " (1)"


def is_generic(name: str) -> bool:
    """Return whether `name` is a login that many people share."""
    return name.casefold() in GENERIC_LOGINS


def is_plain_name(name: str) -> bool:
    """Return whether `name` can be part of a file's name: letters of any script, digits, .-_'."""
    if not name or name != name.strip() or len(name.encode("utf-8", "replace")) > MAX_NAME_BYTES:
        return False
    shown = all(unicodedata.category(c)[0] in "LMN" or c in " .-_'’" for c in name)
    return shown and len(name) <= MAX_NAME and unicodedata.category(name[0])[0] in "LN"


def make_zip_name(slug: str, name: str, time: datetime) -> str:
    """Return `lab05-loss-scaling_ana_20261120-101500.zip`; `time` is UTC."""
    return f"{slug}_{name}_{time:%Y%m%d-%H%M%S}.zip"


def read_packed_name(rest: str) -> tuple[str, str]:
    """Return the name and the time (UTC digits) of a zip's name without LAB_ and .zip.

    Both are "" where it isn't of that form.
    """
    found = _PACKED.fullmatch(rest)
    return (found["name"], found["time"]) if found else ("", "")


def list_attached(slug: str) -> dict[str, int]:
    """Return the files that a lab, by name or slug, wants with its notebook: their most bytes."""
    names = ATTACHED.get(slug.partition("-")[0], {}).values()
    return dict.fromkeys(names, MAX_ATTACHED_BYTES)
