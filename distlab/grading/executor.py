"""Runs what was handed in, sealed, and yields what was seen.

One loop, no thread: it starts submissions, reads their pipes, keeps their time
limits, and is the only one who says that a submission has ended.
"""

import contextlib
import selectors
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from distlab.grading.alignment import Plan, PlannedCell
from distlab.grading.labs import LabSpec
from distlab.grading.observation import Observation, Submission
from distlab.grading.reader_process import ReaderProcess, Refused
from distlab.grading.running import Running
from distlab.grading.sandbox import Sandbox, check_can_seal

READ_SECONDS, TICK_SECONDS = 8.0, 0.5


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


class LabProcesses:
    """The two processes that running a lab takes: they start at once, `observe` awaits them.

    A context manager that leaves nothing behind. Raises CourseError where the machine
    cannot seal and `sealed` is asked.
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
    """Run each submission and yield its observation as soon as it is there (not in order).

    Closing the iterator, an exception or Ctrl-C ends every process that it started.
    Labs whose rules are `exclusive` run one at a time. `processes` were
    started earlier, `sealed` or not; the caller closes it. Raises CourseError where
    the machine cannot seal and `sealed` is asked.
    """
    with contextlib.ExitStack() as stack:
        processes = processes or stack.enter_context(LabProcesses(lab, sealed, jobs))
        processes.sandbox.wait_until_ready()
        selector = stack.enter_context(selectors.DefaultSelector())
        jobs = 1 if lab.rules.exclusive else jobs
        executor = Executor(lab, processes.sandbox, processes.reader, selector, jobs)
        yield from executor.run(deque(submissions), seed_for)


@dataclass
class Executor:
    """The loop of `observe`: up to `jobs` submissions at a time."""

    lab: LabSpec
    sandbox: Sandbox
    reader: ReaderProcess
    selector: selectors.BaseSelector
    jobs: int
    active: dict[int, Prepared] = field(default_factory=dict)
    finished: deque[Observation] = field(default_factory=deque)
    late: deque[Prepared] = field(default_factory=deque)  # to be run once more, alone

    def run(
        self, waiting: deque[Submission], seed_for: Callable[[Submission], int]
    ) -> Iterator[Observation]:
        self.selector.register(self.sandbox, selectors.EVENT_READ, None)
        ahead: deque[Prepared] = deque()
        while waiting or ahead or self.active or self.finished or self.late:
            if self.late and not (waiting or ahead or self.active):
                self.start_again(self.late.popleft())
            while len(self.active) < self.jobs and (ahead or waiting):
                self.start(ahead.popleft() if ahead else self.prepare(waiting.popleft(), seed_for))
            if waiting and not ahead and self.jobs > 1:  # while the others run
                submission = waiting.popleft()
                ahead.append(self.prepare(submission, seed_for))
            while self.finished:
                yield self.finished.popleft()
            if self.active:
                self.step()

    def prepare(self, submission: Submission, seed_for: Callable[[Submission], int]) -> Prepared:
        """Read and align one notebook, in a process of its own."""
        seed = seed_for(submission)
        try:
            told = self.reader.ask(do="align", path=str(submission.path))
        except Refused as error:
            problem = f"the notebook could not be read ({error}): a human should look at it"
            return Prepared(submission, seed, "", Plan((), ()), problem)
        cells = tuple(PlannedCell.from_data(cell) for cell in told["cells"])
        plan = Plan(cells, tuple(told["notes"]))
        return Prepared(submission, seed, told["sha256"], plan, told["problem"])

    def start(self, prepared: Prepared) -> None:
        if prepared.problem:
            self.finish(prepared)
            return
        prepared.running = Running(prepared.plan, prepared.seed, self.lab.rules, self.sandbox)
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
        first = min(p.running.attempt.deadline for p in self.active.values())
        for key, _ in self.selector.select(min(max(first - now, 0.0), TICK_SECONDS)):
            if key.data is None:
                self.take_news(self.sandbox.receive())
            elif key.fd in self.selector.get_map():
                if key.data.running.read(key.fd) == 0:
                    self.selector.unregister(key.fd)
        for prepared in self.active.values():
            prepared.running.check_time(time.monotonic())

    def take_news(self, message: dict[str, Any]) -> None:
        """If a submission's processes have ended: observe what is left, or start it again."""
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
                problem=prepared.problem,
                sealed=self.sandbox.sealed,
                seconds=round(time.monotonic() - running.begun, 3) if running else 0.0,
                versions=self.sandbox.versions,
            )
        )
