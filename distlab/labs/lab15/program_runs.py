"""Runs a learner's whole program on real workers, and notes what can be seen of it from outside.

The program runs in processes of its own, which have no connection to this one: what is known
of it are its exit status, the files that it wrote, the bytes that the kernel carried between
its workers, and the kill, which is ours.
"""

import json
import os
import runpy
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from distlab.labs.lab08.exercise import get_cluster
from distlab.exercises.refusing import refuse
from utils.processes.forked_program import find_exit_status

RUN_SECONDS, WATCH_SECONDS = 100.0, 0.05
MAX_REPORT_BYTES, SHOWN_LINES = 10_000, 25


@dataclass(frozen=True)
class ProgramRun:
    """What was seen of one run: `traffic` has the bytes between workers, for each attempt."""

    folder: Path
    report: dict[str, Any]
    traffic: tuple[int, ...]


def run_program(
    program: Path, workers: int, folder: Path, seed: int, steps: int, kill_after: float = 0.0
) -> ProgramRun:
    """Run `python PROGRAM --output DIR --epochs 1 --seed SEED --steps STEPS` on `workers` workers.

    With `kill_after`, worker 1 gets SIGKILL once when so many bytes have crossed, and the group
    starts again. Raises AssertionError with the program's own last words if it fails.
    """
    from utils.cluster.failures import ClusterError

    words = ["--output", folder, "--epochs", 1, "--seed", seed, "--steps", steps]
    job = get_cluster(workers).start(
        _run_here, str(program), [str(word) for word in words], restarts=bool(kill_after)
    )
    try:
        traffic = _watch(job, kill_after)
        job.wait(1.0)
    except ClusterError as error:
        lines = [line for _, line in job.output()][-SHOWN_LINES:]
        raise _explain(program.name, workers, str(error), lines) from None
    finally:
        job.stop()
    return ProgramRun(folder, read_report(folder), traffic)


def _watch(job: Any, kill_after: float) -> tuple[int, ...]:
    """Wait until the job has ended, and kill worker 1 on the way; return each attempt's bytes."""
    meter, deadline = Meter(job), time.monotonic() + RUN_SECONDS
    marks = [0]
    while not job.finished and time.monotonic() < deadline:
        time.sleep(WATCH_SECONDS)
        sent = meter.read()
        if kill_after and len(marks) == 1 and sent >= kill_after:
            job.kill("worker", 1)
            marks.append(sent)
    marks.append(meter.read())
    return tuple(after - before for before, after in zip(marks, marks[1:]))


class Meter:
    """Bytes that the programs of a job have sent, as the kernel counts them for each connection."""

    def __init__(self, job: Any) -> None:
        from utils.cluster.traffic import TrafficMeter

        self._job, self._meter, self._sent = job, TrafficMeter(), 0

    def read(self) -> int:
        """Return the bytes so far, of all attempts together."""
        programs = [
            p for task in self._job.tasks if task.process for p in _list_below(task.process)
        ]
        counts = self._meter.read(programs).values()
        self._sent = max(self._sent, sum(sent for sent, _ in counts))
        return self._sent


def _list_below(process: int) -> list[int]:
    try:
        return [child.pid for child in psutil.Process(process).children(recursive=True)]
    except psutil.Error:
        return []


def _run_here(program: str, words: list[str]) -> None:
    """In a worker: run the program in a child, which has none of this process's connections."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.closerange(3, os.sysconf("SC_OPEN_MAX"))
            status = _be_program(program, words)
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code != 0:
        raise RuntimeError(f"the program ended with status {code}")


def _be_program(program: str, words: list[str]) -> int:
    """Run the program as `python PROGRAM WORDS` would; return its exit status."""
    sys.argv = [program, *words]
    sys.path.insert(0, os.path.dirname(program))
    try:
        return find_exit_status(lambda: runpy.run_path(program, run_name="__main__"))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def _explain(name: str, workers: int, said: str, lines: list[str]) -> AssertionError:
    where = f"{workers} workers" if workers > 1 else "one worker"
    if "was not done after" in said or "not done" in said:
        return refuse(
            f"{name} was still running on {where} after {RUN_SECONDS:.0f} s: does it stop after "
            "--steps, and do all workers take the same number of steps?", "\n".join(lines)
        )  # fmt: skip
    last = next((line for line in reversed(lines) if line.strip()), said)
    return refuse(f"{name} failed on {where}: {last.strip()[:300]}", "\n".join(lines))


def read_report(folder: Path) -> dict[str, Any]:
    """Return what report.json holds, {} if it is not there or no JSON object of plain numbers."""
    try:
        with (folder / "report.json").open("rb") as file:
            told = json.loads(file.read(MAX_REPORT_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    wanted = ("steps", "loss", "weights_checksum")
    return {k: told[k] for k in wanted if isinstance(told, dict) and _is_number(told.get(k))}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
