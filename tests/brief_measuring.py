"""Few, short rounds for tests that measure for real with `utils.calibrate`, but assert no speed."""

from collections.abc import Callable
from typing import Any


def build_briefly(build: Callable[..., Any], *arguments: Any) -> Any:
    """In a worker that measures the model of `build`: return it, to be timed in three rounds."""
    from utils.calibrate import measuring

    measuring.ROUNDS, measuring.ROUND_SECONDS = 3, 0.02
    return build(*arguments)
