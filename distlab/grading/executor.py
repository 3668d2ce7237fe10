"""Runs submissions in the sandbox, and yields the observations.

One loop: it starts submissions, reads their pipes, keeps their time limits, and is the
only one who says that a submission has ended. It never waits for a file: a thread of
`background` has those read ahead.
"""

import contextlib
import selectors
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from distlab.grading.alignment import Plan
from distlab.grading.background import BackgroundQueue
from distlab.grading.handed_in import hash_together
from distlab.grading.labs import LabSpec
from distlab.grading.observation import Observation, Submission
from distlab.grading.reader_process import ReaderProcess, Refused
from distlab.grading.running import Running
from distlab.grading.sandbox import Sandbox, check_can_seal

READ_SECONDS, TICK_SECONDS = 8.0, 0.5
Read = dict[str, Any] | Refused  # the reader's result for a file


@dataclass
class Prepared:
    """A submission that has been read and aligned."""

    submission: Submission
    seed: int
    sha256: str
    plan: Plan
    problem: str = ""
    running: Running | None = None
    alone: bool = True  # whether nothing else ran at any time while it did
    tried_again: bool = False


def prepare(submission: Submission, seed: int, told: Read) -> Prepared:
    """Return what the reader's process has told of one notebook."""
    if isinstance(told, Refused):
        problem = f"the notebook couldn't be read ({told}): a human should look at it"
        return Prepared(submission, seed, "", Plan((), unanswered={}), problem)
    plan = Plan.from_data(told)
    sha256 = hash_together(told["sha256"], submission.files)
    return Prepared(submission, seed, sha256, plan, told["problem"])


class LabProcesses:
    """The two processes that running a lab takes: they start at once, `observe` awaits them.

    A context manager that leaves nothing behind. Raises CourseError where the machine
    can't seal and `sealed` is set.
    """

    def __init__(self, lab: LabSpec, sealed: bool = True, jobs: int = 2) -> None:
        if sealed:
            check_can_seal()
        self.sandbox = Sandbox(lab.name, lab.rules, sealed, jobs)
        try:
            self.reader = ReaderProcess(lab, READ_SECONDS)
        except BaseException:
            self.sandbox.close()
            raise

    def read(self, path: Path) -> Read:
        """Return what the reader tells of the notebook at `path`, or why it can't."""
        try:
            return self.reader.ask(do="align", path=str(path))
        except Refused as why:
            return why

    def __enter__(self) -> "LabProcesses":
        return self

    def __exit__(self, *error: object) -> None:
        self.reader.close()
        self.sandbox.close()


def observe(
    lab: LabSpec,
    submissions: Sequence[Submission],
    seed_for: Callable[[Submission], int],
    jobs: int = 2,
    sealed: bool = True,
    processes: LabProcesses | None = None,
) -> Iterator[Observation]:
    """Run each submission and yield its observation as soon as it's ready (not in order).

    Closing the iterator, an exception or Ctrl-C ends every process that it started.
    Labs whose rules are `exclusive` run one at a time. `processes` were
    started earlier, `sealed` or not; the caller closes it. Raises CourseError where
    the machine can't seal and `sealed` is set.
    """
    with contextlib.ExitStack() as stack:
        processes = processes or stack.enter_context(LabProcesses(lab, sealed, jobs))
        processes.sandbox.wait_until_ready()
        selector = stack.enter_context(selectors.DefaultSelector())
        jobs = 1 if lab.rules.exclusive else jobs
        reading = stack.enter_context(BackgroundQueue(processes.read))
        executor = Executor(lab, processes.sandbox, reading, selector, jobs)
        yield from executor.run(deque(submissions), seed_for)


@dataclass
class Executor:
    """The loop of `observe`: up to `jobs` submissions at a time."""

    lab: LabSpec
    sandbox: Sandbox
    reading: BackgroundQueue[Path, Read]
    selector: selectors.BaseSelector
    jobs: int
    asked: deque[tuple[Submission, int]] = field(default_factory=deque)  # being read, their seeds
    ahead: deque[Prepared] = field(default_factory=deque)
    active: dict[int, Prepared] = field(default_factory=dict)
    finished: deque[Observation] = field(default_factory=deque)
    late: deque[Prepared] = field(default_factory=deque)  # to be run once more, alone

    def run(
        self, waiting: deque[Submission], seed_for: Callable[[Submission], int]
    ) -> Iterator[Observation]:
        self.selector.register(self.sandbox, selectors.EVENT_READ, self.take_news)
        self.selector.register(self.reading, selectors.EVENT_READ, self.take_read)
        while waiting or self.asked or self.ahead or self.active or self.finished or self.late:
            if self.late and not (waiting or self.asked or self.ahead or self.active):
                self.start_again(self.late.popleft())
            while len(self.active) < self.jobs and self.ahead:
                self.start(self.ahead.popleft())
            if waiting and self.may_read_ahead():
                submission = waiting.popleft()
                self.asked.append((submission, seed_for(submission)))
                self.reading.put(submission.path)
            while self.finished:
                yield self.finished.popleft()
            if self.active or self.asked:
                self.step()

    def may_read_ahead(self) -> bool:
        """Return whether a file may be read now: one at a time, none next to a timed run."""
        free = self.jobs > 1 or not self.active
        return free and not self.asked and len(self.ahead) < self.jobs

    def take_read(self) -> None:
        for told in self.reading.take():
            self.ahead.append(prepare(*self.asked.popleft(), told))

    def start(self, prepared: Prepared) -> None:
        if prepared.problem:
            self.finish(prepared)
            return
        files = prepared.submission.files
        prepared.running = Running(prepared.plan, prepared.seed, self.lab, self.sandbox, files)
        if prepared.running.find_unseen():
            self.fork(prepared)
        else:
            self.finish(prepared)

    def start_again(self, prepared: Prepared) -> None:
        """Run alone what ran out of time while others ran: that may have been theirs."""
        prepared.tried_again, prepared.alone = True, True
        prepared.running.forget(prepared.running.find_late())
        self.fork(prepared)

    def fork(self, prepared: Prepared) -> None:
        attempt = prepared.running.start()
        self.active[attempt.number] = prepared
        if len(self.active) > 1:
            for each in self.active.values():
                each.alone = False
        for descriptor in attempt.pipes:
            self.selector.register(descriptor, selectors.EVENT_READ, prepared)

    def step(self) -> None:
        """Read what has come, then look at the clocks."""
        now = time.monotonic()
        first = min((p.running.attempt.deadline for p in self.active.values()), default=now + 1)
        for key, _ in self.selector.select(min(max(first - now, 0.0), TICK_SECONDS)):
            if not isinstance(key.data, Prepared):
                key.data()
            elif key.fd in self.selector.get_map():
                if key.data.running.read(key.fd) == 0:
                    self.selector.unregister(key.fd)
        for prepared in self.active.values():
            prepared.running.check_time(time.monotonic())

    def take_news(self) -> None:
        """If a submission's processes have ended: observe what is left, or start it again."""
        message = self.sandbox.receive()
        if message["told"] != "ended":
            return
        prepared = self.active.pop(message["id"])
        for descriptor in prepared.running.attempt.pipes:
            if descriptor in self.selector.get_map():
                self.selector.unregister(descriptor)
        if prepared.running.finish_attempt(message["status"], message["why"]):
            self.fork(prepared)
        elif prepared.running.find_late() and not (prepared.alone or prepared.tried_again):
            self.late.append(prepared)
        else:
            self.finish(prepared)

    def finish(self, prepared: Prepared) -> None:
        running = prepared.running
        notes = (*prepared.plan.notes, *(running.notes if running else ()))
        self.finished.append(
            Observation(
                student=prepared.submission.student,
                lab=self.lab.name,
                sha256=prepared.sha256,
                seed=prepared.seed,
                cells=tuple(running.get_cells()) if running else (),
                notes=notes,
                facts=prepared.plan.facts,
                problem=prepared.problem,
                sealed=self.sandbox.sealed,
                seconds=round(time.monotonic() - running.begun, 3) if running else 0.0,
                versions=self.sandbox.versions,
            )
        )
