"""One submission while it runs: its pipes, its time limit, and what has been seen of it."""

import base64
import json
import os
import secrets
import signal
import time
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path

from distlab.grading.alignment import Plan
from distlab.grading.frames import MAX_WRITTEN, BadFrame, FrameReader, OutputReader
from distlab.grading.handed_in import open_plain
from distlab.grading.labs import LabSpec
from distlab.grading.observation import CellObservation, Observation, Submission
from distlab.grading.process_tree import SHORTAGE
from distlab.grading.sandbox import Sandbox
from distlab.submission import MAX_ATTACHED_BYTES

SPARE_SECONDS, MAX_STARTS, PIECE = 15.0, 3, 2**18
TOLD = ("functions", "program", "attached", "travels")  # of an exercise, to the harness
MAX_PROCESSES = {False: 16, True: 96}  # by whether the lab starts processes


@dataclass
class Attempt:
    """One run: the graded cells (`checks`) that it was given."""

    number: int
    checks: list[str]
    pipes: dict[int, str]  # descriptor: "frames", "output", "errors"
    streams: dict[str, OutputReader]
    deadline: float
    frames: FrameReader = field(default_factory=FrameReader)
    why: str = ""

    def close(self) -> None:
        for descriptor in self.pipes:
            os.close(descriptor)
        self.pipes = {}


class Running:
    """Runs the steps of `plan` behind one harness; what can't be run is seen at once.

    `sha256` is the notebook's, `problem` says why there is nothing to run, if there isn't.
    """

    def __init__(
        self,
        submission: Submission,
        seed: int,
        plan: Plan,
        sha256: str,
        problem: str,
        lab: LabSpec,
        sandbox: Sandbox,
    ) -> None:
        self.submission, self.seed, self.plan = submission, seed, plan
        self.sha256, self.problem = sha256, problem
        self.lab, self.sandbox, self.rules = lab, sandbox, lab.rules
        self.alone, self.tried_again = True, False  # whether nothing else ran while it did
        self.seen = {
            check: CellObservation(check, "raised", error=why)
            for check, why in (plan.unanswered or {}).items()
        }
        self.notes: list[str] = []
        self.starts, self.token = 0, secrets.token_hex(8)
        self.attempt = Attempt(0, [], {}, {}, 0.0)

    def find_unseen(self) -> list[str]:
        """Return the graded cells that are still to run, in the order of the submission."""
        return [s.check for s in self.plan.steps if s.check and s.check not in self.seen]

    def find_late(self) -> list[str]:
        """Return the cells that ran out of what others may have taken: time, or memory."""
        return [
            check
            for check, cell in self.seen.items()
            if cell.status == "timed out" or cell.error == SHORTAGE
        ]

    def forget(self, cells: Collection[str]) -> None:
        """Let `cells` be run once more."""
        self.seen = {check: cell for check, cell in self.seen.items() if check not in cells}

    def start(self) -> Attempt:
        """Start what is still to run."""
        checks = self.find_unseen()
        order = self._write_order(checks)
        frames, output, errors = (os.pipe() for _ in range(3))
        theirs = (order, frames[1], output[1], errors[1])
        rules, cores = self.rules, os.cpu_count() or 1
        limits = {
            "memory_mib": rules.memory_mib,
            "processes": MAX_PROCESSES[rules.processes],
            "timed": rules.exclusive and not rules.processes,
            "processor_seconds": rules.all_seconds * max(1.0, cores / 2),
            "output_mib": MAX_WRITTEN // 2**20,
        }
        try:
            number = self.sandbox.fork(limits, b"", theirs)
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        pipes = {frames[0]: "frames", output[0]: "output", errors[0]: "errors"}
        for descriptor in pipes:
            os.set_blocking(descriptor, False)
        streams = {kind: OutputReader(self.token) for kind in ("output", "errors")}
        deadline = time.monotonic() + self.rules.all_seconds + SPARE_SECONDS
        self.attempt = Attempt(number, checks, pipes, streams, deadline)
        self.starts += 1
        return self.attempt

    def _write_order(self, checks: list[str]) -> int:
        exercises = {e.id: e for e in self.lab.exercises}
        graded = [self.lab.graded[check] for check in checks]
        told = {
            "prelude": self.lab.prelude,
            "steps": [
                {"check": checks.index(s.check)}
                if s.check
                else {"label": s.label, "text": s.text, "program": s.program}
                for s in self.plan.steps
                if not s.check or s.check in checks
            ],
            "checks": [
                {name: getattr(cell, name) for name in ("id", "source", "got")}
                | {name: getattr(exercises[cell.exercise], name) for name in TOLD}
                for cell in graded
            ],
            "seed": self.seed,
            "token": self.token,
            "cell_seconds": self.rules.cell_seconds,
            "own_seconds": self.rules.own_seconds,
            "own_together_seconds": self.rules.own_together_seconds,
            "submission_seconds": self.rules.submission_seconds,
            "files": {name: self._read_file(path) for name, path in self.submission.files},
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
            stream = attempt.streams[kind]
            stream.feed(data)
            if stream.written > MAX_WRITTEN and not stream.over:
                for each in attempt.streams.values():
                    each.over = True
                self.sandbox.signal(attempt.number, signal.SIGHUP)
        elif not attempt.why:
            try:
                for cell in attempt.frames.feed(data):
                    self.take(cell)
            except BadFrame as error:
                self.notes.append(f"it sent what the course's harness never sends: {error}")
                self.kill("what it sent couldn't be read")
        return len(data)

    def take(self, cell: CellObservation) -> None:
        """Take one frame: its cell is one that was asked for."""
        if cell.id not in self.attempt.checks:
            raise BadFrame("a cell that the lab doesn't have")
        self.seen[cell.id] = cell

    def check_time(self, now: float) -> None:
        """Kill what the harness hasn't ended in time."""
        if now >= self.attempt.deadline:
            limit = self.rules.all_seconds
            self.kill(f"all cells together didn't end within {limit:g} s")

    def kill(self, why: str) -> None:
        if not self.attempt.why:
            self.attempt.why = why
            self.attempt.deadline = float("inf")
            self.sandbox.signal(self.attempt.number, signal.SIGKILL)

    def finish_attempt(self, status: int, why: str) -> bool:
        """Its processes have ended: read the rest of the pipes; return whether to try again."""
        attempt = self.attempt
        for descriptor in list(attempt.pipes):
            while self.read(descriptor):
                pass
        attempt.close()
        output, errors = (stream.finish() for stream in attempt.streams.values())
        for place, check in enumerate(attempt.checks):
            if check in self.seen:
                said = {"output": output.get(place, ""), "errors": errors.get(place, "")}
                self.seen[check] = replace(self.seen[check], **said)
        if not attempt.frames.began and not attempt.why and not why:
            if self.starts < MAX_STARTS:  # for want of processes perhaps
                return True
            said = errors.get(-1, "") or f"status {status}"
            why = f"the sandbox couldn't start it ({said.split(chr(10))[-1]}): grade it again"
            self.notes.append(why)
            self._mark_unseen(why, "missing")
        self._mark_unseen(attempt.why or why or f"the process ended (status {status})", "killed")
        return False

    def _mark_unseen(self, why: str, status: str) -> None:
        for check in self.find_unseen():
            self.seen[check] = CellObservation(check, status, error=why)

    def observe(self) -> Observation:
        """Return what was seen, with every graded cell in the order of the lab."""
        return Observation(
            student=self.submission.student,
            lab=self.lab.name,
            sha256=self.sha256,
            seed=self.seed,
            cells=tuple(self.seen[check] for check in self.lab.graded if check in self.seen),
            notes=(*self.plan.notes, *self.notes),
            facts=self.plan.facts,
            problem=self.problem,
            sealed=self.sandbox.sealed,
        )
