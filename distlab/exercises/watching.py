"""Whether an answer calls what its exercise is to write: the library has a ring, a schedule.

A tripwire for honest learners, who may overlook the sentence in the lab. It is no guard
against one who hides the call.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

COURSE = ("utils", "distlab")  # packages whose own calls of each other do not count


@contextmanager
def watch_calls(modules: Sequence[str], answer: Any = None) -> Iterator[set[str]]:
    """Note every function of `modules`, modules or packages of ours, that is called within.

    An `answer` that is one of them counts as called. Calls by the course's own code do not
    count, nor do those in other threads.
    """
    called: set[str] = set()
    if not modules:
        yield called
        return
    home = str(getattr(answer, "__module__", ""))
    if f"{home}.".startswith(tuple(f"{module}." for module in modules)):
        called.add(f"{home}.{answer.__name__}")
    before = sys.getprofile()
    sys.setprofile(_note_calls(tuple(f"{module}." for module in modules), called))
    try:
        yield called
    finally:
        sys.setprofile(before)


def _note_calls(prefixes: tuple[str, ...], called: set[str]) -> Callable[..., None]:
    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and f"{_module_of(frame)}.".startswith(prefixes):
            if _module_of(frame.f_back).split(".")[0] not in COURSE:
                called.add(f"{_module_of(frame)}.{frame.f_code.co_name}")

    return note


def _module_of(frame: FrameType | None) -> str:
    return str(frame.f_globals.get("__name__")) if frame else ""
