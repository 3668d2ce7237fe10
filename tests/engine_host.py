"""A process that keeps a launcher of an engine, for the tests of engines: one cluster serves all.

The tests call their functions in it, and the last one kills it.
"""

import contextlib
import multiprocessing
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any


class EngineHost:
    """The host of `engine`; its launcher starts the engine when it is first used."""

    def __init__(self, engine: str) -> None:
        self._calls, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        self.process = context.Process(target=_serve, args=(engine, theirs))
        self.process.start()
        theirs.close()

    def start(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call `function(launcher, *arguments)` there."""
        self._calls.send((function, arguments))

    def run(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call it, and raise AssertionError with its traceback if it has failed."""
        self.start(function, *arguments)
        if error := self._calls.recv():
            raise AssertionError(error)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._calls.send(None)
        self.process.join(60)
        self.process.kill()
        self.process.join()
        self._calls.close()


def _serve(engine: str, calls: Connection) -> None:
    from utils.engines import make_launcher

    with contextlib.closing(make_launcher(engine)) as launcher:
        while (call := calls.recv()) is not None:
            function, arguments = call
            try:
                function(launcher, *arguments)
                calls.send(None)
            except BaseException:
                calls.send(traceback.format_exc())
