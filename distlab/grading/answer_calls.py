"""Calls between the harness and the process of an answer: plain data over a pipe.

The harness makes the inputs, calls the answer, and keeps the results. An answer gets copies, and
its changes to them come back too. A `Network` stays with the harness, and an answer's sends on it
are calls the other way.
"""

import contextlib
import json
import os
import signal
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from time import perf_counter
from typing import Any

import numpy as np

from distlab.exercises.exercise import Exercise
from distlab.exercises.folder import Folder, pack_folder, unpack_folder
from distlab.grading import process_tree
from distlab.grading.encoding import decode, encode
from utils.collectives import Network, Send
from utils.errors import InputError

MAX_MESSAGE_BYTES, AGAIN_SECONDS = 8 * 2**20, 3.0


class AnswerRaised(Exception):
    """The answer raised: `error` is one line, `trace` the learner's own frames."""

    def __init__(self, error: str, trace: str = "") -> None:
        super().__init__(error)
        self.error, self.trace = error, trace


class AnswerGone(Exception):
    """The process of the answer has ended, or sent something that isn't a message."""


class AnswerLate(KeyboardInterrupt):
    """The answer didn't come in time: neither an exercise nor `encode` catches it."""


@contextlib.contextmanager
def within(
    seconds: float,
    error: type[BaseException] = AnswerLate,
    of_processor: float = 0.0,
    again: float = AGAIN_SECONDS,
) -> Iterator[None]:
    """Raise `error` in the block after `seconds` by the clock, at once if none are left.

    Also after the seconds `of_processor`, if given. If something has caught it, it comes again
    after `again` seconds (0: after as many as the first time). A block within stops these clocks
    until it's left.
    """
    if seconds <= 0:
        raise error

    def stop(number: int, frame: object) -> None:
        raise error

    clocks = {
        signal.SIGPROF: (signal.ITIMER_PROF, of_processor),
        signal.SIGALRM: (signal.ITIMER_REAL, seconds),
    }
    before = [
        (timer, number, signal.signal(number, stop), signal.setitimer(timer, limit, again or limit))
        for number, (timer, limit) in clocks.items()
    ]
    try:
        yield
    finally:
        for timer, number, handler, (left, interval) in before:
            signal.setitimer(timer, 0)
            if left:
                signal.signal(number, handler)
                signal.setitimer(timer, left, interval)


class Channel:
    """One end of the socket between harness and answer. Messages are JSON, of limited size."""

    def __init__(self, end: socket.socket) -> None:
        self._pipe = Connection(end.detach())
        self.failed: list[str] = []  # statements of the answer that failed

    def send(self, **message: Any) -> None:
        """Send one message; AnswerGone if its reader has gone."""
        try:
            self._pipe.send_bytes(json.dumps(message).encode())
        except OSError:
            raise AnswerGone from None

    def receive(self) -> dict[str, Any]:
        """Return the next message; AnswerGone at the end or for a malformed one."""
        try:
            message = json.loads(self._pipe.recv_bytes(MAX_MESSAGE_BYTES))
        except (OSError, EOFError, ValueError, RecursionError):
            raise AnswerGone from None
        if not isinstance(message, dict):
            raise AnswerGone
        said = message.get("failed")
        new = [str(s)[:300] for s in said[:8]] if isinstance(said, list) else []
        self.failed += [s for s in new if s not in self.failed][: 8 - len(self.failed)]
        return message


# ---- the harness's side


class RemoteAnswer:
    """A learner's function as the harness has it: a call of it travels to the answer's process.

    `restart` gives the channel to a fresh process of the answer.
    """

    def __init__(self, channel: Channel, name: str, restart: Callable[[], Channel]) -> None:
        self._channel, self.__name__, self._restart = channel, name, restart

    def __call__(self, *arguments: Any) -> Any:
        networks = [a for a in arguments if isinstance(a, Network)]
        self._channel.send(do="call", name=self.__name__, arguments=[_pack(a) for a in arguments])
        told = ask_until_answered(self._channel, networks)
        changed = told.get("changed")
        for given, after in zip(arguments, changed if isinstance(changed, list) else []):
            if after is not None:
                _take_over(given, read_value(after))
        return read_result(told)

    def serve(self, exercise: Exercise) -> "RemoteAnswer":
        """Return the function that `exercise` makes of the learner's, in the answer's process."""
        name, told = self.__name__, {"lab": exercise.lab, "exercise": exercise.name}
        self._channel.send(do="serve", name=name, **told)
        ask_until_answered(self._channel, [])
        return RemoteAnswer(self._channel, f"{name} served", self._restart)

    def read_clocks(self) -> np.ndarray:
        """Return the seconds of the clock, and of the processor in all processes of the answer."""
        processes = process_tree.find_tree(os.getpid())[1:]
        return np.array([perf_counter(), process_tree.measure_processor_seconds(processes)])

    def observe_there(self, exercise: Exercise, names: Sequence[str], **given: Any) -> Any:
        """Let the answer's process run the exercise itself; return what was seen there.

        It gets `cases`, or it is a fresh one that gets what is `left` of a case to resume.
        """
        if "left" in given:
            self._channel = self._restart()
        request = {"lab": exercise.lab, "exercise": exercise.name, "names": list(names)}
        self._channel.send(do="observe", given=encode(given), **request)
        return read_result(ask_until_answered(self._channel, []))


def ask_until_answered(channel: Channel, networks: Sequence[Network]) -> dict[str, Any]:
    """Serve what the answer sends on its networks until it returns; AnswerRaised if it raised."""
    refused: dict[str, InputError] = {}
    while True:
        told = channel.receive()
        if told.get("do") == "exchange":
            channel.send(**_exchange(told, networks, refused))
            continue
        error = told.get("error")
        if error is None:
            return told
        if error in refused:
            raise refused[error]
        raise AnswerRaised(str(error)[:4000], str(told.get("trace", ""))[:4000])


def _exchange(
    told: Mapping[str, Any], networks: Sequence[Network], refused: dict[str, InputError]
) -> dict[str, Any]:
    """Do one step of a network for the answer. The error goes to it, as it would without a pipe."""
    try:
        sends, phase = read_value(told.get("sends")), str(told.get("phase", ""))[:80]
        sends = [Send(int(s), int(d), np.asarray(v), c) for s, d, v, c in sends]
        arrived = networks[int(told.get("network", 0))].exchange(sends, phase)
    except InputError as error:
        refused[f"InputError: {error}"] = error
        return {"refused": str(error)}
    except (TypeError, ValueError, IndexError, OverflowError) as error:
        return {"refused": f"not a step of the network ({type(error).__name__})"}
    return {"arrived": encode([(s.source, s.destination, s.values, s.chunk) for s in arrived])}


def read_result(told: Mapping[str, Any]) -> Any:
    """Return the result in a reply; AnswerGone for a reply without one."""
    if "result" not in told:
        raise AnswerGone
    return read_value(told["result"])


def read_value(data: Any) -> Any:
    """Return what `encode` wrote in the answer's process; AnswerGone for anything else."""
    try:
        return decode(data)
    except (ValueError, RecursionError):
        raise AnswerGone from None


def _pack(value: Any) -> Any:
    if isinstance(value, Folder):
        return ["folder", pack_folder(value)]
    return ["network", value.ranks] if isinstance(value, Network) else encode(value)


def _take_over(given: Any, after: Any) -> None:
    """Make of an argument in the harness what the answer has made of its copy."""
    if isinstance(given, list) and isinstance(after, list):
        given[:] = after
    elif isinstance(given, dict) and isinstance(after, dict):
        given.clear()
        given.update(after)
    elif isinstance(given, np.ndarray) and isinstance(after, np.ndarray):
        if given.shape == after.shape and given.flags.writeable:
            given[...] = after


# ---- the answer's side


class RemoteNetwork(Network):
    """The network as an answer has it: what it sends goes to the harness, which counts."""

    def __init__(self, channel: Channel, number: int, ranks: int) -> None:
        super().__init__(ranks)
        self._channel, self._number = channel, number

    def exchange(self, sends: Sequence[Send], phase: str = "") -> list[Send]:
        given = [(s.source, s.destination, np.array(s.values), s.chunk) for s in sends]
        self._channel.send(do="exchange", network=self._number, sends=encode(given), phase=phase)
        told = self._channel.receive()
        if "refused" in told:
            raise InputError(told["refused"])
        self.steps += bool(given)
        return [Send(*each) for each in decode(told["arrived"])]


def unpack(channel: Channel, arguments: Sequence[Any]) -> list[Any]:
    """Return the arguments of a call in the answer's process."""
    found, networks = [], 0
    for each in arguments:
        kind = each[0] if isinstance(each, list) else ""
        if kind == "network":
            found.append(RemoteNetwork(channel, networks, each[1]))
            networks += 1
        elif kind == "folder":
            found.append(unpack_folder(each[1]))
        else:
            found.append(decode(each))
    return found


def pack_changed(arguments: Sequence[Any]) -> list[Any]:
    """Return the arguments that may have changed, None in place of the others."""
    return [encode(a) if isinstance(a, list | dict | np.ndarray) else None for a in arguments]
