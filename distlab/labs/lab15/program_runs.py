"""Runs a learner's whole program on real workers, and notes what can be seen of it from outside.

The program runs in its own processes, which have no connection to this one: all we know of it are
its exit status, the files that it wrote and when, the bytes that the kernel carried between its
workers, and the kill, which is ours.
"""

import json
import os
import re
import runpy
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from distlab.exercises.refusing import refuse
from distlab.exercises.saves import Saves
from distlab.exercises.worker_runs import get_cluster
from utils.processes.forked_program import find_exit_status

RUN_SECONDS, WATCH_SECONDS = 100.0, 0.05
MAX_REPORT_BYTES, SHOWN_LINES = 10_000, 25
# what a program's last lines say -> what a learner can do about it
EXPLANATIONS = {
    r"MergeV2Checkpoints|_temp/part-": "all workers save into one folder, and spoil each other's "
    "files: worker 0 saves into DIR/checkpoints, the others into their own folders",
    r"PerReplica": "a value with one part for each worker was used as one number: strategy.reduce "
    "adds the parts up. (Keras's fit can't log them on several workers: write the loop yourself.)",
    r"No such file.*shard-": "a worker looked for another worker's shard: worker w of W finds "
    "shards w, w + W, … only",
}


@dataclass(frozen=True)
class LearnerRun:
    """The observation of one run: `traffic` has the bytes between the workers.

    `saved` has the steps in the names of all checkpoint files written during the run;
    `killed` says whether worker 1 was killed before the last step.
    """

    folder: Path
    report: dict[str, Any]
    traffic: int
    saved: tuple[int, ...]
    killed: bool


def run_program(
    program: Path,
    data: Sequence[Path],
    folder: Path,
    seed: int,
    steps: int,
    step_bytes: float = 0.0,
) -> LearnerRun:
    """Run `python PROGRAM --data … --output FOLDER --epochs 9 --seed SEED --steps STEPS`.

    On as many workers as there are folders in `data`, each with its own. With `step_bytes`, the
    bytes of a step, worker 1 gets SIGKILL a step after the first checkpoint, and the run ends.
    Raises AssertionError with the program's own last words if it fails.
    """
    from utils.cluster.failures import ClusterError

    words = ["--output", folder, "--epochs", 9, "--seed", seed, "--steps", steps]
    job = get_cluster(len(data)).start(
        _run_here, str(program), [str(path) for path in data], [str(word) for word in words]
    )
    saves = Saves(folder / "checkpoints")
    try:
        traffic, killed = _watch(job, saves, step_bytes)
        if not killed:
            job.wait(1.0)
    except ClusterError as error:
        lines = [line for _, line in job.output()][-SHOWN_LINES:]
        raise _explain(program.name, len(data), str(error), lines) from None
    finally:
        job.stop()
    saved = saves.look()
    return LearnerRun(folder, read_report(folder), traffic, saved, killed and steps not in saved)


def _watch(job: Any, saves: Saves, step_bytes: float) -> tuple[int, bool]:
    """Wait until the job has ended, or kill worker 1 on the way; return the bytes, and which.

    A checkpoint is whole once the workers talk again after it.
    """
    meter, deadline = ProgramMeter(job), time.monotonic() + RUN_SECONDS
    whole_at = 0.0
    while not job.finished and time.monotonic() < deadline:
        time.sleep(WATCH_SECONDS / 10 if step_bytes else WATCH_SECONDS)
        if step_bytes and whole_at and meter.read() >= whole_at:
            job.kill("worker", 1)
            return meter.read(), True
        if saves.look() and not whole_at:
            whole_at = meter.read() + step_bytes
        if not step_bytes:
            meter.read()
    return meter.read(), False


class ProgramMeter:
    """Bytes that the programs of a job have sent, as the kernel counts them for each connection."""

    def __init__(self, job: Any) -> None:
        from utils.cluster.traffic import TrafficMeter

        self._job, self._meter, self._sent = job, TrafficMeter(), 0

    def read(self) -> int:
        """Return the bytes so far."""
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


def _run_here(program: str, data: list[str], words: list[str]) -> None:
    """In a worker: run the program in a child, which has none of this process's connections."""
    config = json.loads(os.environ.get("TF_CONFIG") or "{}")
    own = data[config.get("task", {}).get("index", 0)]
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.closerange(3, os.sysconf("SC_OPEN_MAX"))
            status = _be_program(program, ["--data", own, *words])
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code != 0:
        raise RuntimeError(f"the program ended with status {code}")


class _WithoutCourse:
    """Finds no module of the course: a program is to be the learner's own."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        if name.split(".")[0] in ("utils", "distlab"):
            raise ImportError(
                f"capstone.py can't import {name}, since this program is yours to write. Use "
                "TensorFlow and Keras alone."
            )


def _be_program(program: str, words: list[str]) -> int:
    """Run the program as `python PROGRAM WORDS` would; return its exit status."""
    sys.argv = [program, *words]
    sys.path.insert(0, os.path.dirname(program))
    for name in [name for name in sys.modules if name.split(".")[0] in ("utils", "distlab")]:
        del sys.modules[name]
    sys.meta_path.insert(0, _WithoutCourse)
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
            "--steps, and do all workers take the same number of steps?",
            "\n".join(lines),
        )
    why = next((why for sign, why in EXPLANATIONS.items() if re.search(sign, "\n".join(lines))), "")
    last = why or next((line for line in reversed(lines) if line.strip()), said).strip()[:300]
    return refuse(f"{name} failed on {where}: {last}", "\n".join(lines))


def read_report(folder: Path) -> dict[str, Any]:
    """Return what report.json holds, {} if it isn't there or no JSON object of plain numbers."""
    try:
        with (folder / "report.json").open("rb") as file:
            told = json.loads(file.read(MAX_REPORT_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    wanted = ("steps", "loss", "weights_checksum")
    return {k: told[k] for k in wanted if isinstance(told, dict) and _is_number(told.get(k))}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
