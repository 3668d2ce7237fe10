"""Stop a job, with one line of output, when the code that waits for it is interrupted.

An interrupt is Ctrl-C in a shell, or a notebook's *Interrupt Kernel*. Without this, the
tasks would train on, as they are separate processes.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from ..environment import find_kernel_shell
from ..measure import count


class Stoppable(Protocol):
    """The part of a `Job` that is needed here."""

    tasks: Any
    finished: bool

    def stop(self) -> Any: ...


class JobInterrupted(KeyboardInterrupt):
    """Somebody interrupted the wait for a job, and its tasks were ended."""

    def _render_traceback_(self) -> list[str]:
        """IPython shows this instead of where in `threading` the wait was."""
        return [str(self)]


@contextmanager
def stopping_at_interrupt(job: Stoppable) -> Iterator[None]:
    """Stop `job` if the block is interrupted, and raise JobInterrupted, which says so.

    In a notebook also where the rest of the running cell is: a loop over a job's events
    may be interrupted while it handles one.
    """
    _watch_cell(job)
    try:
        yield
    except KeyboardInterrupt:
        raise JobInterrupted(_stop(job)) from None


def _stop(job: Stoppable) -> str:
    job.stop()
    return f"interrupted: the job was stopped, {count(len(job.tasks), 'task')} ended"


def _watch_cell(job: Stoppable) -> None:
    """In a notebook's main thread: stop `job` when the running cell ends by an interrupt."""
    shell = find_kernel_shell()
    if shell is None or threading.current_thread() is not threading.main_thread():
        return

    def look(result: Any) -> None:
        shell.events.unregister("post_run_cell", look)
        if isinstance(result.error_in_exec, KeyboardInterrupt) and not job.finished:
            print(_stop(job))

    shell.events.register("post_run_cell", look)
