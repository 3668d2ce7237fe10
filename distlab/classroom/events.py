"""Events that came as lines from a student's laptop: taken as data that anyone may have written."""

import json
import math
from typing import Any

from utils.events import Event

MAX_LINE, MAX_STEP = 500, 10**9
# kind -> fields besides the time
KINDS = {
    "restore": ("step",),
    "ready": (),
    "step": ("step", "loss"),
    "batch": (),
    "saving": ("step",),
    "checkpoint": ("step",),
    "end": ("step",),
    "weights": ("step", "checksum"),
}


def read_event(line: str) -> Event | None:
    """Return the event that a line holds, with its known fields only; None if it holds none."""
    if not line.startswith('{"event": ') or len(line) > MAX_LINE:
        return None
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(told, dict) or told.get("event") not in KINDS:
        return None
    names = KINDS[told["event"]]
    kept = {name: told.get(name) for name in ("event", "time", *names)}
    return kept if _is_number(kept["time"]) and all(_is_right(n, kept[n]) for n in names) else None


def _is_right(name: str, value: Any) -> bool:
    if name == "step":
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_STEP
    if name == "checksum":
        return isinstance(value, str) and value.isalnum()
    return value is None or _is_number(value)  # null: a loss that isn't finite


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
