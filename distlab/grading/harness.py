"""The course's side of a submission: it makes the inputs, asks the answers, keeps what they give.

It runs beside the sealed processes and out of their sight, and never runs a learner's code:
each answer has a process of its own, which gets nothing but its own statements. It tells the
grader through a pipe, as frames: one line of JSON, and as many bytes as its `size` says.
"""

import contextlib
import json
import os
import socket
import sys
import time
from collections.abc import Mapping
from typing import Any, TextIO

import numpy as np

from distlab.grading.answer_calls import (
    MAX_MESSAGE_BYTES,
    AnswerGone,
    AnswerLate,
    AnswerRaised,
    Channel,
    RemoteAnswer,
    ask_until_answered,
)
from distlab.grading.encoding import encode

MAX_TEXT, ENDING_SECONDS = 4000, 10.0


class Answers:
    """The process of an answer at a time, forked by process 1 behind `control`.

    Process 1 takes "S" with a descriptor (start one) and "K" (kill it). It says of each its
    number, and how it ended, as a message of JSON each.
    """

    def __init__(self, control: socket.socket) -> None:
        self._control, self._channel = control, None
        self._control.settimeout(ENDING_SECONDS)

    def open(self, fresh: bool) -> Channel:
        """Return the channel to the process that is there, or to a fresh one."""
        if fresh or self._channel is None:
            self.close()
            ours, theirs = socket.socketpair()
            with theirs:
                socket.send_fds(self._control, [b"S"], [theirs.fileno()])
            self._channel = Channel(ours, self._hear("process").get("process", 0))
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
        """End the process and whatever it started; return how it had ended by itself, or ""."""
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
    """Runs the cells of one order; `pipe` is where its frames go, `traffic` is /proc/net/dev."""

    def __init__(
        self, order: Mapping[str, Any], answers: Answers, pipe: int, traffic: TextIO
    ) -> None:
        self.order, self.answers, self.pipe, self.traffic = order, answers, pipe, traffic
        self.end = time.monotonic() + order["submission_seconds"]
        self.has_files: Channel | None = None  # the answer's process that has the files

    def run(self) -> None:
        for k, cell in enumerate(self.order["cells"]):
            self.say({"at": "begin", "cell": k})
            for descriptor in (1, 2):  # a mark, to tell what each cell writes
                os.write(descriptor, b"\0" + f"{self.order['token']}:{k:06}".encode())
            begun, before = time.monotonic(), read_traffic_bytes(self.traffic)
            told, got = self.run_cell(cell)
            body = json.dumps(got).encode()
            if len(body) > MAX_MESSAGE_BYTES:  # of all cases together
                told["status"], told["error"], body = (
                    "raised",
                    "ValueError: it gives too much",
                    b"{}",
                )
            frame = {"at": "end", "cell": k, "seconds": time.monotonic() - begun,
                     "traffic": read_traffic_bytes(self.traffic) - before, **told}  # fmt: skip
            self.say(frame, body)
            if cell["last"]:
                self.answers.close()
        self.answers.close()
        self.say({"at": "done"})

    def run_cell(self, cell: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, Any]]:
        """Return how it went, and the encoded `got_` values."""
        seconds = self.order["cell_seconds"]
        deadline = min(self.end, time.monotonic() + seconds)
        space: dict[str, Any] = {"np": np, "SEED": self.order["seed"], "__name__": "harness"}
        told = {"status": "ok"}
        channel = self.answers.open(cell["fresh"])
        channel.deadline, channel.failed, channel.changed = deadline, [], []
        try:
            self.give_files(channel)
            load(channel, cell["parts"])
            space |= {name: RemoteAnswer(channel, name) for name in cell["functions"]}
            exec(compile(cell["source"], f"<{cell['id']}>", "exec"), space)  # noqa: S102 - ours
        except AnswerRaised as error:
            told = {"status": "raised", "error": error.error, "trace": error.trace}
        except AnswerLate:
            all_together = time.monotonic() >= self.end
            limit = self.order["submission_seconds"] if all_together else seconds
            what = "all cells together" if all_together else "it"
            told = {"status": "timed out", "error": f"{what} did not end within {limit:g} s"}
        except AnswerGone:
            told = {"status": "killed", "error": self.answers.close() or "the process ended"}
        except Exception as error:
            said = str(error).strip()
            text = f"{type(error).__name__}: {said}" if said else type(error).__name__
            told = {"status": "raised", "error": text[:MAX_TEXT]}
        if told["status"] in ("timed out", "killed") or channel.changed:
            self.answers.close()
        told |= {"failed": "\n".join(channel.failed), "changed": "\n".join(channel.changed)}
        got = {n: encode(v) for n, v in space.items() if n in cell["got"]}
        return told, got

    def give_files(self, channel: Channel) -> None:
        """Let a process that is new have what was handed in with the notebook."""
        if self.order["files"] and channel is not self.has_files:
            channel.send(do="files", files=self.order["files"])
            ask_until_answered(channel, [])
        self.has_files = channel

    def say(self, frame: dict[str, Any], body: bytes | None = None) -> None:
        if body is not None:
            frame["size"] = len(body)
        data = json.dumps(frame).encode() + b"\n" + (body or b"")
        while data:
            data = data[os.write(self.pipe, data) :]


def read_traffic_bytes(devices: TextIO) -> int:
    """Return how many bytes the kernel has carried on loopback; `devices` is /proc/net/dev."""
    devices.seek(0)
    lines = (line.strip() for line in devices)
    return next((int(line.split(":")[1].split()[0]) for line in lines if line[:3] == "lo:"), 0)


def load(channel: Channel, parts: Any) -> None:
    """Have the answer's process run the statements that its answer needs."""
    channel.send(do="load", parts=parts)
    ask_until_answered(channel, [])


def run_order(order: int, control: socket.socket, pipe: int, traffic: TextIO) -> int:
    """Read the order and run it, as the process beside the sealed ones."""
    with os.fdopen(order, "rb") as file:
        file.seek(0)
        told = json.loads(file.read())
    sys.stdout = open(1, "w", buffering=1, encoding="utf-8", closefd=False)
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", closefd=False)
    Harness(told, Answers(control), pipe, traffic).run()
    return 0
