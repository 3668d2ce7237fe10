"""Chaos: kill or freeze a random task at a random moment; the run must survive.

    for outcome in run_chaos(runs=100, seed=7):
        print(outcome)

The idea is Basiri et al.'s, "Chaos Engineering", IEEE Software 33(3), 2016. Each run is a job of 2
or 3 workers under MultiWorkerMirroredStrategy with one of the three ways of
`utils.training.recovery`. It must finish without help, after an automatic restart from its
checkpoint, with the weights of an undisturbed run, and lose at most the steps since its last
checkpoint; none if a SIGTERM meets the PreemptionCheckpointHandler.
"""

import random
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain, repeat

import numpy as np

from utils.cluster import LocalCluster, make_launcher
from utils.cluster.failures import ClusterError
from utils.cluster.job import Job
from utils.errors import DistributedError
from utils.events import Event
from utils.training.recovery import METHODS, RecoveryReport, RecoverySettings, train_with_recovery

WORKER_COUNTS = (2, 3)
KINDS = ("SIGKILL", "SIGTERM", "freeze")
MOMENTS = ("start-up", "step", "checkpoint")
LIMIT_SECONDS = 90.0
RESTARTS = 3
STALL_SECONDS = 0.7
GRACE_SECONDS = {"manager": 0.15, "backup": 0.15, "preemption": 20.0}  # from SIGTERM to SIGKILL
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Fault:
    """The accident of one run: a fault of this `kind` hits worker `victim` at `moment`.

    `place` is the step or checkpoint at which it comes, `delay_seconds` how long after
    (at start-up: after the start). All of it follows from `seed`.
    """

    seed: int
    method: str
    workers: int
    victim: int
    kind: str
    moment: str
    place: int
    delay_seconds: float

    def __str__(self) -> str:
        at = f"{1000 * self.delay_seconds:.0f} ms after "
        at += {
            "start-up": "the start",
            "step": f"step {self.place}",
            "checkpoint": f"it began to save step {self.place}",
        }[self.moment]
        return f"{METHODS[self.method]}, {self.workers} workers, {self.kind} of worker " + (
            f"{self.victim} {at}"
        )


@dataclass(frozen=True)
class ChaosOutcome:
    """The end of one run.

    `lost_steps` counts what had to be trained twice, over all restarts, `lost_each` the
    same for each that came to train; `error` is the largest difference between its weights
    and the undisturbed run's. `problem` is None, or what wasn't as it must be.
    """

    fault: Fault
    restarts: int
    lost_steps: int
    error: float
    seconds: float
    problem: str | None
    lost_each: tuple[int, ...] = ()

    def __str__(self) -> str:
        how = (
            f"{self.restarts} restarts, {self.lost_steps} steps lost, weights {self.error:.1e} off"
        )
        end = "survived" if self.problem is None else f"FAILED ({self.problem})"
        return f"seed {self.fault.seed}: {self.fault}: {end}; {how}, {self.seconds:.1f} s"


def draw_fault(seed: int, settings: RecoverySettings) -> Fault:
    """Return the fault that belongs to `seed`: every part of it drawn at random."""
    rng = random.Random(seed)
    workers = rng.choice(WORKER_COUNTS)
    moment = rng.choice(MOMENTS)
    every = settings.checkpoint_every or settings.steps_per_epoch
    places = {
        "start-up": [0],
        "step": range(1, settings.total_steps),
        "checkpoint": range(every, settings.total_steps, every),
    }
    delay = {"start-up": 1.0, "step": 0.03, "checkpoint": 0.03}[moment]
    return Fault(
        seed,
        rng.choice(list(METHODS)),
        workers,
        rng.randrange(workers),
        rng.choice(KINDS),
        moment,
        rng.choice(places[moment]),
        rng.uniform(0, delay),
    )


def run_chaos(runs: int, seed: int) -> Iterator[ChaosOutcome]:
    """Yield the outcome of `runs` runs, whose seeds are `seed`, `seed + 1`, …"""
    settings = RecoverySettings(folder="", pause_seconds=0.01)
    return run_faults([draw_fault(seed + n, settings) for n in range(runs)], settings)


def run_faults(faults: Sequence[Fault], settings: RecoverySettings) -> Iterator[ChaosOutcome]:
    """Yield the outcome of one run for each of `faults`.

    All runs share one warm process. One undisturbed run of two workers comes first: its weights
    hold for any number of workers, because a global batch counts as one. `settings` are the runs'
    own, but for folder and method.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="distlab-chaos-"))
        launcher = make_launcher()
        stack.callback(launcher.close)
        clusters = {n: LocalCluster(n, devices="cpu", launcher=launcher) for n in WORKER_COUNTS}
        for cluster in clusters.values():
            stack.enter_context(cluster)
        alone = replace(settings, folder=f"{folder}/undisturbed")
        wanted = clusters[2].run(train_with_recovery, alone, timeout=LIMIT_SECONDS, echo=False)[0]
        for number, fault in enumerate(faults):
            own = replace(settings, folder=f"{folder}/{number}", method=fault.method)
            yield inject_once(clusters[fault.workers], own, fault, wanted)


def inject_once(
    cluster: LocalCluster, settings: RecoverySettings, fault: Fault, wanted: RecoveryReport
) -> ChaosOutcome:
    """Start one run, inject the fault, and examine how it ends."""
    return inject_in_turn(cluster, settings, [fault], wanted)


def inject_in_turn(
    cluster: LocalCluster,
    settings: RecoverySettings,
    faults: Sequence[Fault],
    wanted: RecoveryReport,
) -> ChaosOutcome:
    """The same, with the n-th of `faults` in the n-th attempt. The outcome names the first."""
    begun, first = time.monotonic(), faults[0]
    restarts = RESTARTS + len(faults) - 1
    try:
        job = cluster.start(
            train_with_recovery, settings, restarts=restarts, stall_seconds=STALL_SECONDS
        )
    except DistributedError as error:  # the machine couldn't even start the tasks
        seconds = time.monotonic() - begun
        return ChaosOutcome(first, 0, 0, float("nan"), seconds, str(error))
    timers = [threading.Timer(LIMIT_SECONDS, job.stop)]
    timers[0].start()
    try:
        events = list(_watch(job, faults, timers))
        problem, error = _examine_end(job, settings, wanted)
    finally:
        job.stop()
        for timer in timers:
            timer.cancel()
    seconds = time.monotonic() - begun
    told = read_attempts(events)
    problem = problem or _examine_steps(faults, settings, told)
    lost = tuple(attempt.lost for attempt in told[1:] if attempt.restored is not None)
    return ChaosOutcome(first, job.attempt - 1, sum(lost), error, seconds, problem, lost)


def _watch(job: Job, faults: Sequence[Fault], timers: list[threading.Timer]) -> Iterator[Event]:
    """Yield the job's events to its end, and inject each fault when its moment has come."""
    number = 0
    if faults[0].moment == "start-up":
        time.sleep(faults[0].delay_seconds)
        hit(job, faults[0], timers)
        number = 1
    for event in job.events():
        yield event
        if number < len(faults) and _has_come(faults[number], event, number + 1):
            time.sleep(faults[number].delay_seconds)
            hit(job, faults[number], timers)
            number += 1


def _has_come(fault: Fault, event: Event, attempt: int) -> bool:
    kind = {"step": "step", "checkpoint": "saving"}[fault.moment]
    place = (event["event"], event.get("step")) == (kind, fault.place)
    return place and event["attempt"] >= attempt


def hit(job: Job, fault: Fault, timers: list[threading.Timer]) -> None:
    """Kill or freeze the victim; a process that ignores SIGTERM is killed after its grace.

    That is how Kubernetes, Slurm and the clouds' spot machines end a task.
    """
    if fault.kind == "freeze":
        return job.pause("worker", fault.victim)
    victim = job.tasks[fault.victim]
    job.kill("worker", fault.victim, getattr(signal, fault.kind))

    def end_grace() -> None:
        if any(task is victim for task in job.tasks):  # the same attempt
            job.kill("worker", fault.victim)

    if fault.kind == "SIGTERM":
        timers.append(threading.Timer(GRACE_SECONDS[fault.method], end_grace))
        timers[-1].start()


@dataclass
class ChaosStart:
    """The tasks' reports of one attempt, in steps from the very start.

    `restored` is where it began (None: it ended before that), `done` the last step
    that any worker reported, `saved` the chief's last checkpoint, `lost` the steps of
    earlier attempts that it had to train again.
    """

    restored: int | None = None
    done: int = 0
    saved: int = 0
    lost: int = 0


def read_attempts(events: list[Event]) -> list[ChaosStart]:
    """Return what `events` tell of each attempt, in order."""
    told = [ChaosStart() for _ in range(max((e["attempt"] for e in events), default=1))]
    for event in events:
        attempt, step = told[event["attempt"] - 1], event.get("step", 0)
        if event["event"] == "restore":
            attempt.restored = step
        elif event["event"] == "step":
            attempt.done = max(attempt.done, step)
        elif event["event"] in ("checkpoint", "left") and event["task"] == "worker 0":
            attempt.saved = max(attempt.saved, step)
    done = 0
    for attempt in told:
        if attempt.restored is not None:
            attempt.lost = max(0, done - attempt.restored)
            done = max(attempt.done, attempt.restored)
    return told


def make_kill_rows(
    *, step_seconds: float, restart_seconds: float, saved: int, killed: int, total: int
) -> list[tuple[str, float, float, str, str]]:
    """Return spans for `figures.timeline`: a run undisturbed, and killed after step `killed`.

    It was saved after step `saved`, and starts again after `restart_seconds`.
    """
    died = killed * step_seconds
    again = died + restart_seconds
    end = again + (total - saved) * step_seconds
    return [
        ("undisturbed", 0.0, total * step_seconds, f"steps 1 to {total:,}", "kept"),
        ("killed", 0.0, saved * step_seconds, f"steps 1 to {saved}", "kept"),
        ("killed", saved * step_seconds, died, f"{saved + 1} to {killed}", "trained, then lost"),
        ("killed", died, again, "restart", "no training"),
        ("killed", again, end, f"steps {saved + 1} to {total:,}", "kept"),
    ]


def make_attempt_rows(events: list[Event]) -> list[tuple[str, float, float, str, str]]:
    """Return spans for `figures.timeline`, in seconds: what worker 0 trained in each attempt.

    A span is kept, lost (trained again by the next attempt), or the wait for a restart.
    """
    told, rows = read_attempts(events), []
    steps = [e for e in events if (e["event"], e["task"]) == ("step", "worker 0")]
    begun = ended = steps[0]["time"]
    for number in sorted({event["attempt"] for event in steps}):
        mine = [event for event in steps if event["attempt"] == number]
        after = told[number].restored if number < len(told) else None
        kept_to = mine[-1]["step"] if after is None else after
        lane, start = f"attempt {number}", mine[0]["time"]
        if start > ended:
            rows.append((lane, ended - begun, start - begun, "restart", "no training"))
        for kind, part in (
            ("kept", [event for event in mine if event["step"] <= kept_to]),
            ("trained, then lost", [event for event in mine if event["step"] > kept_to]),
        ):
            if part:
                ended = part[-1]["time"]
                label = f"{part[0]['step']} to {part[-1]['step']}"
                rows.append((lane, start - begun, ended - begun, label, kind))
                start = ended
    return rows


def _examine_end(
    job: Job, settings: RecoverySettings, wanted: RecoveryReport
) -> tuple[str | None, float]:
    """Return what is wrong with the results, and how far the weights are off."""
    try:
        reports = job.wait(1)
    except ClusterError as error:
        return str(error), float("nan")
    error = max(
        float(np.abs(mine - theirs).max())
        for report in reports
        for mine, theirs in zip(report.weights, wanted.weights)
    )
    if any(report.step != settings.total_steps for report in reports):
        return f"ended after {min(report.step for report in reports)} steps", error
    return (None if error <= TOLERANCE else "the weights are another run's"), error


def _examine_steps(
    faults: Sequence[Fault], settings: RecoverySettings, told: list[ChaosStart]
) -> str | None:
    """Return what is wrong with where the attempts began, or None."""
    saved, every = 0, settings.checkpoint_every or settings.steps_per_epoch
    for attempt in told:
        if attempt.restored is not None and attempt.restored < saved:
            return f"continued from step {attempt.restored}, and {saved} was saved"
        if attempt.lost > every:
            return f"lost {attempt.lost} steps, and saved every {every}"
        saved = max(saved, attempt.saved)
    for fault, attempt in zip(chain(faults, repeat(faults[-1])), told[1:]):
        if (fault.method, fault.kind) == ("preemption", "SIGTERM") and attempt.lost:
            return "lost steps although there was notice"
    return None


def describe_outcomes(outcomes: list[ChaosOutcome]) -> str:
    """Return a table: for each method and fault the runs, restarts and lost steps."""
    lines = [
        f"{'method':<28}{'fault':<9}{'runs':>5}{'survived':>10}{'restarted':>11}"
        f"{'lost steps, mean':>18}{'most':>6}"
    ]
    for method, name in METHODS.items():
        for kind in KINDS:
            mine = [o for o in outcomes if (o.fault.method, o.fault.kind) == (method, kind)]
            lost = [o.lost_steps for o in mine if o.restarts]
            survived = sum(o.problem is None for o in mine)
            lines.append(
                f"{name:<28}{kind:<9}{len(mine):>5}{survived:>10}{len(lost):>11}"
                + (f"{np.mean(lost):>18.2f}{max(lost):>6}" if lost else f"{'-':>18}{'-':>6}")
            )
    survived = sum(o.problem is None for o in outcomes)
    worst = max((o.error for o in outcomes if o.problem is None), default=0.0)
    lines.append(
        f"{survived} of {len(outcomes)} runs survived, their weights at most {worst:.1e} off"
    )
    return "\n".join(lines)
