"""The code of a rendezvous: machines that know it may join the run, and it is never sent.

The host makes it and shows it; it dies with the run. Sixty random bits, stretched with scrypt:
an attacker who has recorded a handshake would need millions of years of computing to find them.
"""

import contextlib
import getpass
import hashlib
import os
import secrets
import sys
from collections.abc import Callable

from ...errors import InputError
from ..settings import CODE_VARIABLE

LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"  # none that looks like another
GROUPS, GROUP_LETTERS, MIN_LETTERS = 3, 4, 10
SCRYPT = {"n": 2**15, "r": 8, "p": 1, "maxmem": 2**26, "dklen": 32}  # 32 MiB, about 0.1 s


def make_code() -> str:
    """Return a fresh code such as "k7m2-9xpd-4qtn"."""
    groups = ("".join(secrets.choice(LETTERS) for _ in range(GROUP_LETTERS)) for _ in range(GROUPS))
    return "-".join(groups)


def read_code() -> str | None:
    """Return the code of the variable DISTLAB_CODE, None where it isn't set.

    Raises InputError for one that is too short to be safe.
    """
    code = os.environ.get(CODE_VARIABLE)
    if code is not None and len(tidy_code(code)) < MIN_LETTERS:
        raise InputError(
            f"{CODE_VARIABLE} must have at least {MIN_LETTERS} letters and digits, got "
            f"{len(tidy_code(code))}: anyone who guesses it can take part. Unset it, and the host "
            "makes one."
        )
    return code


def ask_for_code(check: Callable[[], None]) -> str:
    """Return the code, from DISTLAB_CODE or typed at the terminal, where it isn't shown.

    `check` is called before the user is asked for it, and may raise. Raises InputError if there is
    neither.
    """
    code = read_code()
    if code is None:
        check()
    if code is None and sys.stdin.isatty():
        with contextlib.suppress(EOFError):  # Ctrl-D
            code = getpass.getpass("Code that the host shows: ", stream=sys.stderr)
    if not code or not tidy_code(code):
        raise InputError(
            f"The code is missing. Set {CODE_VARIABLE} to the code that the host shows."
        )
    return code


def tidy_code(code: str) -> str:
    """Return what counts of a code: letters and digits, in lower case."""
    return "".join(letter for letter in code.lower() if letter.isalnum())


def stretch_code(code: str, salt: bytes) -> bytes:
    """Return the key of 32 bytes that `code` and the host's `salt` make."""
    return hashlib.scrypt(tidy_code(code).encode(), salt=salt, **SCRYPT)
