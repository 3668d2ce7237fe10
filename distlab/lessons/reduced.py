"""Lessons whose run is long have a shorter form, which tests run."""

import os
from typing import TypeVar

REDUCED_VARIABLE = "DISTLAB_REDUCED"
Size = TypeVar("Size")


def shorten(full: Size, reduced: Size) -> Size:
    """Return `full`, or `reduced` where DISTLAB_REDUCED is set, as tests set it."""
    return reduced if os.environ.get(REDUCED_VARIABLE) else full
