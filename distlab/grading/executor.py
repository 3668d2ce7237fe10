"""Runs submissions in the sandbox, and yields the observations.

One loop: it has a notebook read when there is room to run it, starts it, reads its pipes, keeps
its time limits, and is the only one who says that a submission has ended.
"""

import contextlib
import selectors
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from distlab.errors import CourseError
from distlab.grading.alignment import Plan
from distlab.grading.handed_in import hash_together
from distlab.grading.labs import LabSpec
from distlab.grading.observation import Observation, Submission
from distlab.grading.reader_process import ReaderProcess, Refused
from distlab.grading.running import Running
from distlab.grading.sandbox import Sandbox, check_can_seal
from utils.errors import RunError

READ_SECONDS, TICK_SECONDS = 8.0, 0.5


class LabProcesses:
    """The two processes that running a lab takes: they start at once, `observe` awaits them.

    A context manager that leaves nothing behind. Raises CourseError where the machine
    can't seal and `sealed` is set.
    """

    def __init__(self, lab: LabSpec, sealed: bool = True) -> None:
        if sealed:
            check_can_seal()
        self.sandbox = Sandbox(lab.name, lab.rules, sealed)
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
    """Run each submission and yield its observation as soon as it's ready (not in order).

    Closing the iterator, an exception or Ctrl-C ends every process that it started.
    Labs whose rules are `exclusive` run one at a time. `processes` were
    started earlier, `sealed` or not; the caller closes it. Raises CourseError where
    the machine can't seal and `sealed` is set.
    """
    with contextlib.ExitStack() as stack:
        processes = processes or stack.enter_context(LabProcesses(lab, sealed))
        processes.sandbox.wait_until_ready()
        selector = stack.enter_context(selectors.DefaultSelector())
        jobs = 1 if lab.rules.exclusive else jobs
        executor = Executor(lab, processes, selector, jobs)
        try:
            yield from executor.run(deque(submissions), seed_for)
        except RunError:
            last = processes.sandbox.read_last_error()
            raise CourseError(f"The sandbox has ended ({last}). Start again.") from None


@dataclass
class Executor:
    """The loop of `observe`: up to `jobs` submissions at a time."""

    lab: LabSpec
    processes: LabProcesses
    selector: selectors.BaseSelector
    jobs: int
    active: dict[int, Running] = field(default_factory=dict)
    finished: deque[Observation] = field(default_factory=deque)
    late: deque[Running] = field(default_factory=deque)  # to be run once more, alone

    def run(
        self, waiting: deque[Submission], seed_for: Callable[[Submission], int]
    ) -> Iterator[Observation]:
        self.selector.register(
            self.processes.sandbox.connection, selectors.EVENT_READ, self.take_news
        )
        while waiting or self.active or self.finished or self.late:
            if self.late and not (waiting or self.active):
                self.start_again(self.late.popleft())
            if self.has_room(waiting):  # one at a time: who runs isn't left alone for long
                submission = waiting.popleft()
                running = self.read(submission, seed_for(submission))
                if running.find_unseen():
                    self.fork(running)
                else:
                    self.finished.append(running.observe())
            while self.finished:
                yield self.finished.popleft()
            if self.active:
                self.step(0.0 if self.has_room(waiting) else TICK_SECONDS)

    def has_room(self, waiting: Sequence[Submission]) -> bool:
        """Return whether one of `waiting` may start now."""
        return bool(waiting) and len(self.active) < self.jobs

    def read(self, submission: Submission, seed: int) -> Running:
        """Have one notebook read and aligned; nothing runs of what can't be."""
        plan, sha256 = Plan((), unanswered={}), ""
        try:
            told = self.processes.reader.ask(do="align", path=str(submission.path))
            plan, problem = Plan.from_data(told), told["problem"]
            sha256 = hash_together(told["sha256"], submission.files)
        except Refused as why:
            problem = f"the notebook could not be read ({why}): a human should look at it"
        sandbox = self.processes.sandbox
        return Running(submission, seed, plan, sha256, problem, self.lab, sandbox)

    def start_again(self, running: Running) -> None:
        """Run alone what ran out of time while others ran: that may have been theirs."""
        running.tried_again, running.alone = True, True
        running.forget(running.find_late())
        self.fork(running)

    def fork(self, running: Running) -> None:
        attempt = running.start()
        self.active[attempt.number] = running
        if len(self.active) > 1:
            for each in self.active.values():
                each.alone = False
        for descriptor in attempt.pipes:
            self.selector.register(descriptor, selectors.EVENT_READ, running)

    def step(self, seconds: float) -> None:
        """Read what has come, or comes within `seconds`, then look at the clocks."""
        now = time.monotonic()
        first = min(r.attempt.deadline for r in self.active.values())
        for key, _ in self.selector.select(min(max(first - now, 0.0), seconds)):
            if not isinstance(key.data, Running):
                key.data()
            elif key.fd in self.selector.get_map():
                if key.data.read(key.fd) == 0:
                    self.selector.unregister(key.fd)
        for running in self.active.values():
            running.check_time(time.monotonic())

    def take_news(self) -> None:
        """If a submission's processes have ended: observe what is left, or start it again."""
        message = self.processes.sandbox.receive()
        if message["told"] != "ended":
            return
        running = self.active.pop(message["id"])
        for descriptor in running.attempt.pipes:
            if descriptor in self.selector.get_map():
                self.selector.unregister(descriptor)
        if running.finish_attempt(message["status"], message["why"]):
            self.fork(running)
        elif running.find_late() and not (running.alone or running.tried_again):
            self.late.append(running)
        else:
            self.finished.append(running.observe())
