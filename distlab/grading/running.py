"""One submission while it runs: its pipes, its time limit, and what has been seen of it."""

import base64
import json
import os
import secrets
import time
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from distlab.grading.alignment import Plan, PlannedCell
from distlab.grading.frames import MAX_WRITTEN, BadFrame, Frame, FrameReader, OutputReader
from distlab.grading.handed_in import Files, open_plain
from distlab.grading.judging import LabRules
from distlab.grading.observation import CellObservation
from distlab.grading.process_tree import SHORTAGE
from distlab.grading.sandbox import Sandbox
from distlab.submission import MAX_ATTACHED_BYTES

SPARE_SECONDS, MAX_STARTS, PIECE = 15.0, 3, 2**18
MAX_PROCESSES = {False: 16, True: 96}  # by whether the lab starts processes


@dataclass
class Attempt:
    """One run of cells: `indexes` of those that it was given, `current` the one that runs."""

    number: int
    indexes: list[int]
    pipes: dict[int, str]  # descriptor: "frames", "output", "errors"
    streams: dict[str, OutputReader]
    deadline: float
    frames: FrameReader = field(default_factory=FrameReader)
    current: int | None = None
    ended: bool = False  # whether the answer that runs was ended for what it wrote
    done: bool = False
    why: str = ""

    def close(self) -> None:
        for descriptor in self.pipes:
            os.close(descriptor)
        self.pipes = {}


class Running:
    """Runs the cells of `plan` behind one harness; what cannot be run is seen at once."""

    def __init__(
        self, plan: Plan, seed: int, rules: LabRules, sandbox: Sandbox, files: Files = ()
    ) -> None:
        self.plan, self.seed, self.rules, self.sandbox = plan, seed, rules, sandbox
        self.files = files
        self.seen = {k: _see(cell, "raised", cell.failed) for k, cell in enumerate(plan.cells)
                     if cell.failed}  # fmt: skip
        self.notes: list[str] = []
        self.starts, self.token = 0, secrets.token_hex(8)
        self.begun, self.attempt = time.monotonic(), Attempt(0, [], {}, {}, 0.0)

    def find_unseen(self) -> list[int]:
        """Return the cells that are still to run."""
        return [k for k in range(len(self.plan.cells)) if k not in self.seen]

    def find_late(self) -> list[int]:
        """Return the cells that ran out of what others may have taken: time, or memory."""
        return [k for k, cell in self.seen.items()
                if cell.status == "timed out" or cell.error == SHORTAGE]  # fmt: skip

    def forget(self, cells: Collection[int]) -> None:
        """Let `cells` be run once more."""
        self.seen = {k: cell for k, cell in self.seen.items() if k not in cells}

    def start(self) -> Attempt:
        """Start what is still to run."""
        indexes = self.find_unseen()
        order = self._write_order(indexes)
        frames, output, errors = (os.pipe() for _ in range(3))
        theirs = (order, frames[1], output[1], errors[1])
        rules, cores = self.rules, os.cpu_count() or 1
        limits = {"memory_mib": rules.memory_mib, "processes": MAX_PROCESSES[rules.processes],
                  "processor_seconds": rules.submission_seconds * max(1.0, cores / 2),
                  "output_mib": MAX_WRITTEN // 2**20}  # fmt: skip
        try:
            number = self.sandbox.fork(theirs, limits)
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        pipes = {frames[0]: "frames", output[0]: "output", errors[0]: "errors"}
        for descriptor in pipes:
            os.set_blocking(descriptor, False)
        streams = {kind: OutputReader(self.token) for kind in ("output", "errors")}
        deadline = time.monotonic() + self.rules.submission_seconds + SPARE_SECONDS
        self.attempt = Attempt(number, indexes, pipes, streams, deadline)
        self.starts += 1
        return self.attempt

    def _write_order(self, indexes: list[int]) -> int:
        cells: list[dict[str, Any]] = []
        before = None
        for cell in (self.plan.cells[k] for k in indexes):
            parts = [{"label": p.label, "text": p.text, "chosen": p.chosen} for p in cell.parts]
            alone = not self.rules.one_fork or bool(cell.remarks)
            again = before is not None and before.exercise == cell.exercise
            if alone and again:  # cells of one exercise share a process
                cells[-1]["last"] = False
            cells.append({"id": cell.id, "source": cell.source, "got": cell.got, "parts": parts,
                          "functions": cell.functions, "fresh": alone and not again,
                          "last": alone})  # fmt: skip
            before = cell
        told = {
            "cells": cells,
            "seed": self.seed,
            "token": self.token,
            "cell_seconds": self.rules.cell_seconds,
            "submission_seconds": self.rules.submission_seconds,
            "files": {name: self._read_file(path) for name, path in self.files},
        }
        order = os.memfd_create("order")
        data = json.dumps(told).encode()
        while data:
            data = data[os.write(order, data) :]
        return order

    def _read_file(self, path: Path) -> str:
        with open_plain(path) as stream:
            return base64.b64encode(stream.read(MAX_ATTACHED_BYTES)).decode("ascii")

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
            if attempt.streams[kind].written > MAX_WRITTEN and not attempt.ended:
                attempt.ended = True
                self.sandbox.end_answer(attempt.number)
        elif not attempt.why:
            try:
                for frame in attempt.frames.feed(data):
                    self.take(frame)
            except BadFrame as error:
                self.notes.append(f"it sent what the course's harness does not send: {error}")
                self.kill("what it sent could not be read")
        return len(data)

    def take(self, frame: Frame) -> None:
        """Take one frame: it must fit what went before."""
        attempt = self.attempt
        if frame.at == "done":
            attempt.done = True
        elif not 0 <= frame.cell < len(attempt.indexes):
            raise BadFrame("a cell that is not there")
        elif frame.at == "begin":
            attempt.current, attempt.ended = attempt.indexes[frame.cell], False
        elif attempt.indexes[frame.cell] != attempt.current:
            raise BadFrame("the end of a cell that had not begun")
        else:
            k = attempt.current
            seen = _see(self.plan.cells[k], frame.status, frame.error)
            changed = tuple(frame.changed.split("\n")) if frame.changed else ()
            failed = tuple(frame.failed.split("\n")) if frame.failed else ()
            self.seen[k] = replace(seen, got=frame.got, trace=frame.trace, seconds=frame.seconds,
                                   traffic_bytes=frame.traffic, changed=changed,
                                   failed=failed)  # fmt: skip

    def check_time(self, now: float) -> None:
        """Kill what the harness has not ended in time."""
        if now >= self.attempt.deadline:
            limit = self.rules.submission_seconds
            self.kill(f"all cells together did not end within {limit:g} s")

    def kill(self, why: str) -> None:
        if not self.attempt.why:
            self.attempt.why = why
            self.attempt.deadline = float("inf")
            self.sandbox.kill(self.attempt.number)

    def finish_attempt(self, status: int, why: str) -> bool:
        """Its processes have ended: take what is left in the pipes; return whether to try again."""
        attempt = self.attempt
        for descriptor in list(attempt.pipes):
            while self.read(descriptor):
                pass
        attempt.close()
        output, errors = (stream.finish() for stream in attempt.streams.values())
        for place, k in enumerate(attempt.indexes):
            if k in self.seen:
                said = {"output": output.get(place, ""), "errors": errors.get(place, "")}
                self.seen[k] = replace(self.seen[k], **said)
        if not attempt.frames.began and not attempt.why and not why:
            if self.starts < MAX_STARTS:  # for want of processes perhaps
                return True
            said = errors.get(-1, "") or f"status {status}"
            why = f"the sandbox could not start it ({said.split(chr(10))[-1]}): grade it again"
            self.notes.append(why)
            self._mark_unseen(why, "missing")
        self._mark_unseen(attempt.why or why or f"the process ended (status {status})", "killed")
        return False

    def _mark_unseen(self, why: str, status: str) -> None:
        for k in self.find_unseen():
            self.seen[k] = _see(self.plan.cells[k], status, why)

    def get_cells(self) -> list[CellObservation]:
        """Return what was seen of every graded cell."""
        return [cell for _, cell in sorted(self.seen.items())]


def _see(cell: PlannedCell, status: str, error: str) -> CellObservation:
    return CellObservation(cell.id, status, error=error, answered=cell.answered, needs=cell.needs,
                           remarks=cell.remarks)  # fmt: skip
