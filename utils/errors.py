"""Errors that a user can act on: one sentence that names what was wrong and what to do.

Nothing is imported here. Catch `DistributedError` for all of them, or the plain
`ValueError` and `RuntimeError` that they also are.
"""


class DistributedError(Exception):
    """The base of every error that this library raises on purpose."""


class InputError(DistributedError, ValueError):
    """What was passed in cannot be used: a value, a file, a configuration."""


class RunError(DistributedError, RuntimeError):
    """What was asked for was right, and went wrong while it ran."""


def shorten(text: str, most: int = 60) -> str:
    """Return `text`, at most `most` characters of it, the last an ellipsis where it was cut."""
    return text if len(text) <= most else text[: most - 1] + "…"


def first_line(error: BaseException, most: int = 200) -> str:
    """Return the first line of what `error` says, at most `most` characters of it."""
    return (str(error).strip().split("\n") or [""])[0][:most]
