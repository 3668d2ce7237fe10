"""Errors that a user can act on: one sentence that names what was wrong and what to do.

Catch `DistributedError` for all of them, or the plain `ValueError` and `RuntimeError` that they
also are.
"""

import re


class DistributedError(Exception):
    """The base of every error that this library raises on purpose.

    try:
        train(strategy="miror")
    except DistributedError as error:
        print(error)
    """


class InputError(DistributedError, ValueError):
    """Raised if a value, a file or a configuration can't be used. It's a ValueError, too.

    >>> issubclass(InputError, ValueError)
    True
    """


class RunError(DistributedError, RuntimeError):
    """Raised if the input was fine and the run failed. It's a RuntimeError, too.

    >>> issubclass(RunError, RuntimeError)
    True
    """


def shorten(text: str, most: int = 60) -> str:
    """Return `text`, at most `most` characters of it, the last an ellipsis where it was cut."""
    return text if len(text) <= most else text[: most - 1] + "…"


def advise(said: str, advice: str) -> str:
    """Return `said` as a sentence and `advice` as the next one, each with a full stop."""
    advice = advice[:1].upper() + advice[1:] if advice.partition(" ")[0].isalpha() else advice
    return " ".join(re.sub(r"\.?$", ".", text) for text in (said, advice) if text)


def first_line(error: BaseException, most: int = 200) -> str:
    """Return the first line of what `error` says, at most `most` characters of it."""
    return (str(error).strip().split("\n") or [""])[0][:most]
