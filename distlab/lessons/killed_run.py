"""`distlab run` of a program that prints its steps, with one of its workers killed on the way.

    run = run_and_kill([sys.executable, "capstone.py", "--output", "run1"], kill_after=100)
    run.report.restarts, run.losses, run.step_seconds

The program's chief prints lines such as "step 100 of 1122: loss 0.1234" and "resumed from step
80". The worker is found by the TF_CONFIG in its environment and gets SIGKILL, as if its machine
were switched off.
"""

import json
import re
import signal
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import psutil

from distlab import figures
from distlab.errors import CourseError
from utils.engines import RunReport, RunSettings, run_program
from utils.processes.lifetime import signal_group

STEP = re.compile(r"^step (\d+) of \d+: loss (\S+)$")
RESUMED = re.compile(r"^resumed from step (\d+)$")


@dataclass(frozen=True)
class StepLine:
    """A line of the chief: seconds since the run began, which start it was, step and loss."""

    seconds: float
    attempt: int
    step: int
    loss: float


@dataclass
class KilledRun:
    """The observation of a run: its report, the chief's steps, and the time of the kill."""

    victim: int
    kill_after: int
    report: RunReport | None = None
    steps: list[StepLine] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    killed_at: float | None = None
    attempt: int = 1
    resumed_from: int = 0
    begun: float = field(default_factory=time.monotonic)

    @property
    def step_seconds(self) -> float:
        """The median seconds of a step, checkpoints included."""
        pairs = zip(self.steps, self.steps[1:], strict=False)
        each = [
            (b.seconds - a.seconds) / (b.step - a.step) for a, b in pairs if b.attempt == a.attempt
        ]
        return statistics.median(each)

    @property
    def lost_steps(self) -> int:
        """Steps that were trained twice, as far as the chief's lines show."""
        before = max((s.step for s in self.steps if s.attempt == 1), default=0)
        return max(0, before - self.resumed_from)

    @property
    def restart_seconds(self) -> float:
        """From the kill to the first step reported afterwards."""
        again = [s.seconds for s in self.steps if s.attempt == 2]
        if self.killed_at is None or not again:
            raise CourseError("The run must be killed and restarted, and it wasn't. Run it again.")
        return again[0] - self.killed_at

    def take_line(self, task: str, line: str) -> None:
        """Note a line of a task, and kill when it is time."""
        if task != "worker 0":
            return
        if resumed := RESUMED.match(line):
            self.resumed_from = int(resumed[1])
        found = STEP.match(line)
        if found is None:
            return
        seconds, step = time.monotonic() - self.begun, int(found[1])
        self.steps.append(StepLine(seconds, self.attempt, step, float(found[2])))
        if self.killed_at is None and step >= self.kill_after:
            kill_worker(self.victim)
            self.killed_at = seconds

    def take_word(self, text: str) -> None:
        """Note what the launcher says; all tasks start again when it says so."""
        self.said.append(text)
        self.attempt += "start again" in text

    def picture(self) -> figures.Picture:
        """Return the loss against the clock, before the kill and after the restart."""
        series = {}
        for attempt, name in ((1, "first start"), (2, "second start")):
            steps = [s for s in self.steps if s.attempt == attempt]
            if steps:
                series[name] = ([s.seconds for s in steps], [s.loss for s in steps])
        return figures.lines(
            series,
            x_label="seconds since the start",
            y_label="loss a pixel",
            log_y=True,
            title=f"A run of two workers; worker {self.victim} is killed on the way",
            marks={} if self.killed_at is None else {"killed": self.killed_at},
        )


def run_and_kill(command: Sequence[str], kill_after: int) -> KilledRun:
    """Run `command` on two workers; kill worker 1 once the chief has printed step `kill_after`.

    All start again once. Raises CourseError where the run doesn't succeed.
    """
    run = KilledRun(1, kill_after)
    settings = RunSettings(workers=2, max_restarts=1)
    run.report = run_program(command, settings, run.take_line, run.take_word)
    if run.report.status:
        raise CourseError(f"The run failed: {run.report.cause}")
    return run


def kill_worker(index: int) -> None:
    """Send SIGKILL to worker `index`, of a cluster or independent, a descendant of this process."""
    for process in psutil.Process().children(recursive=True):
        try:
            environment = process.environ()
            config = json.loads(environment.get("TF_CONFIG", "{}"))
        except (psutil.Error, json.JSONDecodeError):
            continue
        is_alone = environment.get("DISTLAB_TASK_INDEX") == str(index)
        if is_alone or config.get("task") == {"type": "worker", "index": index}:
            signal_group(process.pid, signal.SIGKILL)
            return
    raise CourseError(f"Worker {index} must run on this machine to be killed, and it doesn't.")
