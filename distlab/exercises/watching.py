"""Watch an answer that runs in a notebook: that it ends, and what it calls.

The library has a ring and a schedule that some exercises ask for: a tripwire for honest
learners, who may overlook the sentence in the lab. It doesn't guard against a hidden call.
"""

import ctypes
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from distlab.exercises.refusing import refuse

START_SECONDS = 10.0  # in which a thread that was just being started has begun
COURSE = ("utils", "distlab")  # packages whose own calls of each other don't count


@contextmanager
def watch_calls(modules: Sequence[str], answer: Any = None) -> Iterator[set[str]]:
    """Note every function of `modules`, our modules or packages, that is called within.

    An `answer` that is one of them counts as called. Calls by the course's own code don't
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
        if event == "call" and frame.f_code.co_name == "<module>":
            return  # imported, by the course perhaps: not yet called
        if event == "call" and f"{_module_of(frame)}.".startswith(prefixes):
            if _module_of(frame.f_back).split(".")[0] not in COURSE:
                called.add(f"{_module_of(frame)}.{frame.f_code.co_name}")

    return note


def _module_of(frame: FrameType | None) -> str:
    return str(frame.f_globals.get("__name__")) if frame else ""


class _TooLong(BaseException):
    """Raised to stop an answer: no `except Exception` catches it."""


@contextmanager
def stop_after(seconds: float | None, function: str = "the answer") -> Iterator[None]:
    """Stop what runs within, also in threads that it starts, after `seconds`; None: never.

    Where other programs take most of the processor, it gets the same time again, as long as it
    gets a tenth of one: at most seven times.

    Raises AssertionError that says so. It works in the main thread alone, where a notebook's
    cells run, and on systems that have interval timers; elsewhere nothing is stopped.
    """
    in_main = threading.current_thread() is threading.main_thread()
    if seconds is None or not in_main or not hasattr(signal, "setitimer"):
        yield
        return
    before = set(threading.enumerate())
    computed = [time.process_time()]  # at the start, and after each of the limits

    def stop(number: int, frame: FrameType | None) -> None:
        computed.append(time.process_time())
        computes = computed[-1] - computed[-2] > 0.1 * seconds  # it neither sleeps nor waits
        if computes and computed[-1] - computed[0] < 0.8 * seconds:
            signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
            return
        _end_threads(before, 0)  # replicas run in threads
        raise _TooLong

    handler = signal.signal(signal.SIGALRM, stop)
    timer = signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)  # again, if a bare except caught it
    try:
        yield
    except _TooLong:
        signal.setitimer(signal.ITIMER_REAL, 0)
        _end_threads(before, START_SECONDS)
        waited = seconds * (len(computed) - 1)
        raise refuse(
            f"{function} was stopped after {waited:g} seconds. Does it have a loop that never "
            "ends? Look at what should make it stop (a while, a repeat())"
        ) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, handler)


def _end_threads(kept: set[threading.Thread], seconds: float) -> None:
    """Make all threads but those `kept` exit at their next step.

    Waits up to `seconds` for those that are just being started.
    """
    limit = time.monotonic() + seconds
    for thread in sorted(
        set(threading.enumerate()) - kept, key=lambda thread: thread.ident is None
    ):
        while thread.ident is None and time.monotonic() < limit:
            time.sleep(0.01)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit)
        )
