"""One submission while it runs: its pipes, its time limits, and what has been seen of it."""

import json
import os
import secrets
import time
from dataclasses import dataclass, field, replace

from distlab.grading.alignment import Plan
from distlab.grading.frames import MAX_WRITTEN, BadFrame, Frame, FrameReader, OutputReader
from distlab.grading.judging import LabRules
from distlab.grading.observation import CellObservation
from distlab.grading.sandbox import Sandbox

GRACE_SECONDS, MAX_RESTARTS, PIECE = 2.0, 2, 2**18
MAX_PROCESSES = {False: 16, True: 96}  # by whether the lab starts processes


@dataclass
class Attempt:
    """One process that runs the cells of a plan: `indexes` of those that it was given."""

    number: int
    indexes: list[int]
    pipes: dict[int, str]  # descriptor: "frames", "output", "errors"
    streams: dict[str, OutputReader]
    frames: FrameReader = field(default_factory=FrameReader)
    current: int | None = None  # index in the plan
    deadline: float = 0.0
    interrupted: bool = False
    done: bool = False
    why: str = ""

    def close(self) -> None:
        for descriptor in self.pipes:
            os.close(descriptor)
        self.pipes = {}


class Running:
    """Runs the cells of `plan`; after one that ended its process, the others again without it."""

    def __init__(self, plan: Plan, seed: int, rules: LabRules, sandbox: Sandbox) -> None:
        self.plan, self.seed, self.rules, self.sandbox = plan, seed, rules, sandbox
        self.seen: dict[int, CellObservation] = {}  # of graded cells, by index in the plan
        self.failed: dict[int, str] = {}  # learner's cells that raised
        self.skipped: set[int] = set()
        self.notes: list[str] = []
        self.restarts, self.token = 0, secrets.token_hex(8)
        self.begun = time.monotonic()
        self.end = self.begun + rules.submission_seconds
        self.attempt: Attempt | None = None

    def start(self) -> Attempt:
        """Fork a process for the cells that are still to run."""
        done = {k for k, cell in self.seen.items() if cell.status in ("ok", "raised", "timed out")}
        indexes = [k for k in range(len(self.plan.cells)) if k not in done | self.skipped]
        order = self._write_order(indexes)
        frames, output, errors = (os.pipe() for _ in range(3))
        theirs = (order, frames[1], output[1], errors[1])
        try:
            most = MAX_PROCESSES[self.rules.processes]
            number = self.sandbox.fork(theirs, self.rules.memory_mib, most)
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        pipes = {frames[0]: "frames", output[0]: "output", errors[0]: "errors"}
        for descriptor in pipes:
            os.set_blocking(descriptor, False)
        streams = {kind: OutputReader(self.token) for kind in ("output", "errors")}
        self.attempt = Attempt(number, indexes, pipes, streams)
        self.attempt.deadline = min(self.end, time.monotonic() + self.rules.cell_seconds)
        return self.attempt

    def _write_order(self, indexes: list[int]) -> int:
        cells = [{"kind": c.kind, "source": c.source, "label": c.label, "got": list(c.got)}
                 for c in (self.plan.cells[k] for k in indexes)]  # fmt: skip
        order = os.memfd_create("order")
        told = {
            "cells": cells,
            "seed": self.seed,
            "folder": self.sandbox.folder,
            "token": self.token,
        }
        data = json.dumps(told).encode()
        while data:
            data = data[os.write(order, data) :]
        return order

    def read(self, descriptor: int) -> int | None:
        """Read what is there on one pipe: how many bytes, 0 at its end, None if none came yet."""
        attempt = self.attempt
        kind = attempt.pipes[descriptor]
        try:
            data = os.read(descriptor, PIECE)
        except BlockingIOError:
            return None
        if kind != "frames":
            attempt.streams[kind].feed(data)
            if sum(s.written for s in attempt.streams.values()) > MAX_WRITTEN:
                self.kill(f"it wrote more than {MAX_WRITTEN // 2**20} MiB of output")
        elif not attempt.why:
            try:
                for frame in attempt.frames.feed(data):
                    self.take(frame)
            except BadFrame as error:
                self.notes.append(f"it sent what the course's runner does not send: {error}")
                self.kill("what it sent could not be read")
        return len(data)

    def take(self, frame: Frame) -> None:
        """Take one frame: it must fit what went before."""
        attempt = self.attempt
        if frame.at == "done":
            attempt.done, attempt.deadline = True, float("inf")
            self.sandbox.kill(attempt.number)  # nothing more can count
        elif not 0 <= frame.cell < len(attempt.indexes):
            raise BadFrame("a cell that is not there")
        elif frame.at == "begin":
            attempt.current, attempt.interrupted = attempt.indexes[frame.cell], False
            attempt.deadline = min(self.end, time.monotonic() + self.rules.cell_seconds)
        elif attempt.indexes[frame.cell] != attempt.current:
            raise BadFrame("the end of a cell that had not begun")
        else:
            self._end_cell(frame)
            attempt.current = None

    def _end_cell(self, frame: Frame) -> None:
        attempt, k = self.attempt, self.attempt.current
        cell = self.plan.cells[k]
        status = "timed out" if attempt.interrupted and frame.status == "raised" else frame.status
        error = self._say_too_long() if status == "timed out" else frame.error
        if cell.kind != "graded":
            if frame.status == "raised":
                self.failed[k] = error
            return
        seen = CellObservation(cell.id, status, frame.got, error, frame.trace,
                               seconds=frame.seconds)  # fmt: skip
        old = self.seen.get(k)
        if old is None or old.status == "killed" or (frame.again and old.status == "raised"):
            self.seen[k] = seen

    def _say_too_long(self) -> str:
        return f"it did not end within {self.rules.cell_seconds:g} s"

    def check_time(self, now: float) -> None:
        """Interrupt a cell that takes too long; kill what does not heed it."""
        attempt = self.attempt
        if now < attempt.deadline or attempt.why:
            return
        if now >= self.end:
            self.kill(f"all cells together did not end within {self.rules.submission_seconds:g} s")
        elif attempt.interrupted:
            self.kill(self._say_too_long())
        else:
            attempt.interrupted = True
            attempt.deadline = min(self.end, now + GRACE_SECONDS)
            self.sandbox.interrupt(attempt.number)

    def kill(self, why: str) -> None:
        if not self.attempt.why:
            self.attempt.why = why
            self.attempt.deadline = float("inf")
            self.sandbox.kill(self.attempt.number)

    def finish_attempt(self, status: int, why: str) -> bool:
        """Its process has ended: take what is left in the pipes; return whether to start again."""
        attempt = self.attempt
        for descriptor in list(attempt.pipes):
            while self.read(descriptor):
                pass
        attempt.close()
        if not attempt.frames.began and not attempt.why and not why:
            said = attempt.streams["errors"].finish().get(-1, "")
            return self._note_no_start(said or f"status {status}")
        why = attempt.why or why or f"the process ended (status {status})"
        if attempt.done or attempt.current is None and not attempt.why:
            self._mark_unseen(why if not attempt.done else "it did not run")
            self._add_output(attempt)
            return False
        if attempt.current is not None:
            self._mark_killer(attempt, why)
        self._mark_unseen(why)
        self._add_output(attempt)
        again = attempt.current is not None and self.restarts < MAX_RESTARTS
        again = again and time.monotonic() < self.end - 1 and self._has_unseen()
        self.restarts += again
        return again

    def _add_output(self, attempt: Attempt) -> None:
        output, errors = (stream.finish() for stream in attempt.streams.values())
        for place, k in enumerate(attempt.indexes):
            if k in self.seen and (place in output or place in errors):
                said = {"output": output.get(place, ""), "errors": errors.get(place, "")}
                self.seen[k] = replace(self.seen[k], **said)

    def _note_no_start(self, said: str) -> bool:
        """The sandbox itself failed, for want of processes perhaps: try again, then say so."""
        if self.restarts < MAX_RESTARTS:
            self.restarts += 1
            return True
        why = f"the sandbox could not start it ({said.split(chr(10))[-1]}): grade it again"
        self.notes.append(why)
        self._mark_unseen(why, "missing")
        return False

    def _mark_killer(self, attempt: Attempt, why: str) -> None:
        k = attempt.current
        cell = self.plan.cells[k]
        self.skipped.add(k)
        status = "timed out" if attempt.interrupted else "killed"
        if cell.kind == "graded":
            if self.seen.get(k) is None or self.seen[k].status == "killed":
                self.seen[k] = CellObservation(cell.id, status, error=why)
        else:
            self.failed[k] = why
            self.notes.append(f"{cell.label} was left out after it ended the process: {why}")

    def _mark_unseen(self, why: str, status: str = "killed") -> None:
        for k, cell in enumerate(self.plan.cells):
            if cell.kind == "graded" and k not in self.seen:
                self.seen[k] = CellObservation(cell.id, status, error=why)

    def _has_unseen(self) -> bool:
        return any(c.status == "killed" and k not in self.skipped for k, c in self.seen.items())

    def get_cells(self) -> list[CellObservation]:
        """Return what was seen of every graded cell, with the error that came before it."""
        found = []
        for k, cell in sorted(self.seen.items()):
            planned = self.plan.cells[k]
            earlier = [i for i in planned.answers if i in self.failed]
            if cell.status == "raised" and cell.error.startswith("NameError") and earlier:
                i = earlier[-1]
                said = f"{self.plan.cells[i].label} raised {self.failed[i]}"
                cell = replace(cell, error=f"{cell.error} ({said})")
            found.append(replace(cell, answered=planned.answered))
        return found
