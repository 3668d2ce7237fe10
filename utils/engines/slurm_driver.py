"""Slurm: a batch job whose script runs one agent a task, and requeues itself when one dies."""

import contextlib
import os
import shlex
import subprocess
import threading
import time
from collections.abc import Iterator

from .agent import STATUS_LOST
from .driver import GivesUp, Wanted, drive
from .slurm_local import LocalSlurm

COMMAND_SECONDS = 30.0
LOOK_SECONDS = 1.0
LIVES = set(
    (
        "PENDING CONFIGURING RUNNING COMPLETING REQUEUED REQUEUE_HOLD RESV_DEL_HOLD SUSPENDED "
        "SPECIAL_EXIT STAGE_OUT STOPPED SIGNALING NODE_FAIL PREEMPTED"
    ).split()
)


def make_script(command: list[str], apart: bool = False) -> str:
    """Return the batch script: `srun` ends all tasks when one fails, `requeue` starts all again.

    With `apart` it is the script of a job array, so all are one task.
    """
    number = ["export DISTLAB_RANK=$SLURM_ARRAY_TASK_ID"] * apart
    return "\n".join(
        (
            "#!/bin/bash",
            *number,
            "# newer versions of srun do not take this from sbatch by themselves",
            '[ -z "$SLURM_CPUS_PER_TASK" ] || export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"',
            f"srun --kill-on-bad-exit=1 {shlex.join(command)}",
            "status=$?",
            "# 0: the run is over; 75: its launcher has gone, and nobody waits for a result",
            f'if [ "$status" != 0 ] && [ "$status" != {STATUS_LOST} ]; then',
            '  scontrol requeue "$SLURM_JOB_ID"',
            "  sleep 30  # Slurm ends this script when it requeues the job",
            "fi",
            "",
        )
    )


def ask_slurm(*command: str, text: str | None = None) -> str:
    """Run one of Slurm's commands and return what it prints; raises GivesUp with its error."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=COMMAND_SECONDS, input=text
        )
    except subprocess.TimeoutExpired:
        raise GivesUp(f"{command[0]} hasn't answered for {COMMAND_SECONDS:g} s.") from None
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise GivesUp(f"{command[0]} failed: {said}")
    return done.stdout.strip()


@contextlib.contextmanager
def open_local_cluster(wanted: Wanted) -> Iterator[None]:
    """Start a controller and two nodes on this machine, for as long as the block runs."""
    cluster = LocalSlurm(wanted.folder, wanted.count)
    os.environ["SLURM_CONF"] = str(cluster.configuration)
    try:
        cluster.start()
        yield
    finally:
        cluster.stop()


def submit(wanted: Wanted) -> str:
    """Submit the batch job, or job array, and return its number. `address` names a partition."""
    os.environ.update(wanted.environment)  # sbatch passes its environment on
    where = [f"--partition={wanted.address}"] if wanted.address else []
    where += [f"--gpus-per-task={wanted.gpus}"] if wanted.gpus else []
    all_tasks = ["--ntasks=1", f"--array=0-{wanted.count - 1}"]
    where += all_tasks if wanted.apart else [f"--ntasks={wanted.count}", "--spread-job"]
    return ask_slurm(
        "sbatch",
        "--parsable",
        "--requeue",
        "--job-name=distlab",
        *where,
        *wanted.options,
        "--output=/dev/null",
        "--open-mode=append",
        text=make_script(wanted.command, wanted.apart),
    ).split(";")[0]


def look(job: str) -> str:
    """Return the job's state, of an array one that lives, "" where Slurm knows it no more."""
    with contextlib.suppress(GivesUp):
        states = ask_slurm("squeue", "--noheader", "--format=%T", "--jobs", job).split()
        return next((state for state in states if state in LIVES), (states or [""])[0])
    return ""


def main() -> None:
    with drive() as (wanted, stop):
        with contextlib.nullcontext() if wanted.address else open_local_cluster(wanted):
            job = submit(wanted)
            try:
                _watch(job, stop)
            finally:
                _cancel(job)


def _watch(job: str, stop: threading.Event) -> None:
    while not stop.wait(LOOK_SECONDS):
        state = look(job)
        if state not in LIVES and look(job) not in LIVES:  # asked twice: it may be restarting
            raise GivesUp(f"Slurm's job {job} has ended ({state or 'it is no longer listed'}).")


def _cancel(job: str) -> None:
    with contextlib.suppress(GivesUp):
        ask_slurm("scancel", job)
    deadline = time.monotonic() + 10
    while look(job) in LIVES and time.monotonic() < deadline:
        time.sleep(0.2)
