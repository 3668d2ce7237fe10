"""The course's side of a submission: it makes the inputs, asks the answers, keeps what they give.

It runs next to the sealed processes and out of their sight, and never runs a learner's code: each
answer has its own process, which gets nothing but its own statements. It tells the grader through a
pipe, as frames: one line of JSON for each graded cell, and an empty one for each process.
"""

import contextlib
import importlib
import json
import os
import socket
import sys
import time
from collections.abc import Mapping
from typing import Any, TextIO

import numpy as np

from distlab.exercises.exercise import list_exercises
from distlab.grading.answer_calls import (
    MAX_MESSAGE_BYTES,
    AnswerGone,
    AnswerLate,
    AnswerRaised,
    Channel,
    RemoteAnswer,
    ask_until_answered,
    within,
)
from distlab.grading.encoding import encode

MAX_TEXT, ENDING_SECONDS = 4000, 10.0
BY_CLOCK, SPARE, LEAST = 3.0, 3.0, 0.5  # of a cell: seconds by the clock for each of the processor
NO_CHECK = 999_999  # whose output doesn't count

UNMEASURED = "this machine was too busy to measure the lab's own version: grade it again"

Packed = tuple[str, list[str]]  # functions as text; the cells that failed before


class Answers:
    """The process of an answer at a time, forked by process 1 behind `control`.

    Process 1 takes "S" with a descriptor (start one) and "K" (kill it). It says of each its
    number, and how it ended, as a message of JSON each.
    """

    def __init__(self, control: socket.socket) -> None:
        self._control, self._channel = control, None
        self._control.settimeout(ENDING_SECONDS)

    def start(self) -> Channel:
        """Return the channel to a fresh process. The one that was there is ended."""
        self.close()
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._control, [b"S"], [theirs.fileno()])
        self._hear("process")
        self._channel = Channel(ours)
        return self._channel

    def _hear(self, key: str) -> dict[str, Any]:
        """Return what process 1 says next that has `key`, {} if it has gone or takes too long."""
        told: dict[str, Any] = {}
        with contextlib.suppress(OSError, ValueError):
            while key not in told:
                told = json.loads(self._control.recv(4096))
            return told
        return {}

    def close(self) -> str:
        """End the process and its children. Return how it had ended before, or ""."""
        if self._channel is None:
            return ""
        self._channel = None
        with contextlib.suppress(OSError):
            self._control.send(b"K")
        told = self._hear("status")
        if not told:
            return "the process ended"
        return told["why"] or f"the process ended (status {told['status']})"


class Harness:
    """Does the steps of one order; `pipe` is where its frames go, `traffic` is /proc/net/dev.

    The learner's cells run once, in the process of the answer. If that dies, a fresh one gets the
    cells that ran before, without the one that killed it. Functions that travel are packed there,
    and handed to the workers by a process without cells, once the other one has ended.
    """

    def __init__(
        self, order: Mapping[str, Any], answers: Answers, pipe: int, traffic: TextIO
    ) -> None:
        self.order, self.answers, self.pipe, self.traffic = order, answers, pipe, traffic
        self.end = time.monotonic() + order["submission_seconds"]
        self.own_left = order["own_together_seconds"]
        self.channel: Channel | None = None  # to the process that has run `cells`
        self.cells: list[Mapping[str, Any]] = []
        self.cut: list[str] = []  # of the learner's cells: what was cut off, or ended the process
        self.lost: dict[int, dict[str, Any]] = {}  # checks that can't be asked any more, and why

    def measure_before(self, lab: str) -> None:
        """Let exercises measure what they compare with in a process that nothing else runs in."""
        module = importlib.import_module(f"distlab.labs.{lab}.exercise")
        known = {e.function: e for e in list_exercises(module).values() if e.before is not None}
        for k, check in enumerate(self.order["checks"]):
            for exercise in [known.pop(name) for name in check["functions"] if name in known]:
                try:
                    with within(self.order["cell_seconds"]):
                        answer = RemoteAnswer(self.answers.start(), "", self.answers.start)
                        exercise.before(answer.serve(exercise))
                except (AnswerRaised, AnswerGone, AnswerLate):
                    self.lost[k] = {"status": "missing", "error": UNMEASURED}
                self.answers.close()

    def run(self) -> None:
        traveling: dict[int, Packed] = {}
        for step in self.order["steps"]:
            k = step.get("check")
            if k is None:
                self.mark(NO_CHECK)
                self.cells.append(step)
                if self.channel is not None:
                    self.run_cell(step)
            elif self.order["checks"][k]["travels"]:
                traveling[k] = self.pack(k)
            else:
                self.check(k)
        self.lose()  # no cell of the learner's has run in the process that comes now
        for k, packed in traveling.items():
            self.check(k, packed)
        self.answers.close()

    def pack(self, k: int) -> Packed:
        """Return the functions of a check as text, and which cells failed before.

        If they can't be packed, the check is lost.
        """
        self.mark(NO_CHECK)
        channel, packed = self.get_channel(), ""
        try:
            with within(min(self.end - time.monotonic(), self.order["cell_seconds"])):
                told = ask(channel, do="pack", names=self.order["checks"][k]["functions"])
                packed = str(told.get("packed"))
        except (AnswerRaised, AnswerGone, AnswerLate) as error:
            failed = [*channel.failed, *self.cut][:8]
            self.lost[k] = self.describe(error) | {"failed": failed}
            if not isinstance(error, AnswerRaised):
                self.lose()
        return packed, [*channel.failed]

    def mark(self, number: int) -> None:
        """Write to both streams whose output comes next."""
        for descriptor in (1, 2):
            os.write(descriptor, b"\0" + f"{self.order['token']}:{number:06}".encode())

    def check(self, k: int, packed: Packed | None = None) -> None:
        """Ask for one graded cell, and say what came. What travels was `packed` before."""
        check = self.order["checks"][k]
        self.mark(NO_CHECK)
        if k in self.lost:
            return self.tell(check, self.lost[k], {}, 0)
        alone = check["program"] or check["attached"]
        if packed is not None:
            self.channel = self.channel or self.start(check)
        channel = self.start(check) if alone else self.get_channel()
        self.mark(k)
        before = read_traffic_bytes(self.traffic)
        told, got = self.ask(check, channel, packed)
        if alone or told["status"] in ("timed out", "killed"):
            self.lose()
        self.tell(check, told, got, read_traffic_bytes(self.traffic) - before)

    def tell(
        self, check: Mapping[str, Any], told: dict[str, Any], got: dict[str, Any], sent_bytes: int
    ) -> None:
        """Write the frame of a check."""
        body = json.dumps(got)
        if len(body) > MAX_MESSAGE_BYTES:  # of all cases together
            told |= {"status": "raised", "error": "ValueError: it gives too much"}
            body = "{}"
        frame = {"id": check["id"], "got": body, "traffic_bytes": sent_bytes, **told}
        data = json.dumps(frame).encode() + b"\n"
        while data:
            data = data[os.write(self.pipe, data) :]

    def get_channel(self) -> Channel:
        """Return the channel to a process that has run the cells up to here."""
        while self.channel is None:
            self.channel = self.start()
            for cell in list(self.cells) if time.monotonic() < self.end else ():
                if not self.run_cell(cell):
                    break
        return self.channel

    def restart(self) -> Channel:
        """Return the channel to a fresh process that has run the cells, too."""
        self.lose()
        return self.get_channel()

    def start(self, check: Mapping[str, Any] | None = None) -> Channel:
        """Start a process; one for a `check` has nothing of the cells but their program or file."""
        channel, given = self.answers.start(), {n: self.order[n] for n in ("prelude", "files")}
        os.write(self.pipe, b"\n")  # the sandbox works: what ends the harness now isn't its start
        requests: list[dict[str, Any]] = [{"do": "begin", "alone": check is not None, **given}]
        if check is not None:
            self.channel = None
            if check["program"]:
                told = {"do": "cell", "seconds": self.order["own_seconds"]}
                requests += [told | cell for cell in self.cells if cell["program"]]
            if check["attached"]:
                names = dict.fromkeys(check["functions"], check["attached"])
                requests.append({"do": "name", "names": names})
        with contextlib.suppress(AnswerLate), within(self.end - time.monotonic()):
            for request in requests:
                with contextlib.suppress(AnswerGone, AnswerRaised):
                    ask(channel, **request)
        return channel

    def run_cell(self, cell: Mapping[str, Any]) -> bool:
        """Run a cell of the learner's; return False if the process is lost by it."""
        assert self.channel is not None
        seconds = max(LEAST, min(self.order["own_seconds"], self.own_left / BY_CLOCK))
        begun = time.monotonic()
        try:
            with within(BY_CLOCK * seconds + SPARE):
                ask(self.channel, do="cell", seconds=seconds, **cell)
            return True
        except AnswerLate:
            self.cut.append(f"{cell['label']} was cut off after {BY_CLOCK * seconds:g} s")
        except (AnswerGone, AnswerRaised):
            self.cut.append(f"{cell['label']}: {self.answers.close() or 'the process ended'}")
        finally:
            spent = time.monotonic() - begun
            self.own_left, self.end = self.own_left - spent, self.end + spent
        self.cells = [other for other in self.cells if other is not cell]
        self.lose()
        return False

    def lose(self) -> None:
        self.answers.close()
        self.channel = None

    def ask(
        self, check: Mapping[str, Any], channel: Channel, packed: Packed | None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return how it went, and the encoded `got_` values."""
        left, names = self.end - time.monotonic(), check["functions"]
        space: dict[str, Any] = {"np": np, "SEED": self.order["seed"], "__name__": "harness"}
        space |= {name: RemoteAnswer(channel, name, self.restart) for name in names}
        told: dict[str, Any] = {"status": "ok"}
        try:
            with within(min(left, self.order["cell_seconds"])):
                if packed is not None:
                    ask(channel, do="travel", names=names, packed=packed[0])
                exec(compile(check["source"], f"<{check['id']}>", "exec"), space)  # noqa: S102 - ours
        except (Exception, AnswerLate) as error:
            told = self.describe(error)
        told["failed"] = [*(packed[1] if packed else channel.failed), *self.cut][:8]
        got = {n: encode(v) for n, v in space.items() if n in check["got"]}
        return told, got

    def describe(self, error: BaseException) -> dict[str, Any]:
        """Return the status of a check that an error has ended, and the error in one line."""
        if isinstance(error, AnswerRaised):
            return {"status": "raised", "error": error.error, "trace": error.trace}
        if isinstance(error, AnswerLate):
            late = time.monotonic() >= self.end
            limit = self.order["submission_seconds" if late else "cell_seconds"]
            what = "all cells together" if late else "it"
            return {"status": "timed out", "error": f"{what} didn't end within {limit:g} s"}
        if isinstance(error, AnswerGone):
            return {"status": "killed", "error": self.answers.close() or "the process ended"}
        said = str(error).strip()
        text = f"{type(error).__name__}: {said}" if said else type(error).__name__
        return {"status": "raised", "error": text[:MAX_TEXT]}


def read_traffic_bytes(devices: TextIO) -> int:
    """Return how many bytes the kernel has carried on loopback; `devices` is /proc/net/dev."""
    devices.seek(0)
    lines = (line.strip() for line in devices)
    return next((int(line.split(":")[1].split()[0]) for line in lines if line[:3] == "lo:"), 0)


def ask(channel: Channel, **request: Any) -> dict[str, Any]:
    """Have the answer's process do something, and return its reply."""
    channel.send(**request)
    return ask_until_answered(channel, [])


def run_order(lab: str, order: int, control: socket.socket, pipe: int, traffic: TextIO) -> int:
    """Read the order and run it, as the process next to the sealed ones."""
    with os.fdopen(order, "rb") as file:
        file.seek(0)
        told = json.loads(file.read())
    sys.stdout = open(1, "w", buffering=1, encoding="utf-8", closefd=False)
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", closefd=False)
    harness = Harness(told, Answers(control), pipe, traffic)
    harness.measure_before(lab)
    harness.run()
    return 0
