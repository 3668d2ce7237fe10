"""Workers that claim shards: real processes, and some die in a call or in the middle of a
write. The evidence is in files: outputs, and a note of each call of `predict`.
"""

import contextlib
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from distlab.exercises.refusing import refuse
from utils.cluster.work import measure_work

SHARDS, FEATURES, MAX_BATCH = 8, 4, 16
CALL_SECONDS, LOOK_SECONDS = 0.005, 0.005
IDLE_SECONDS, END_SECONDS = 0.1, 8.0  # of looks at a worker that sleeps, without a call
SPIN_SECONDS = 1.0  # of processor time without a call: at least, for one that never sleeps
MAX_CALLS, MAX_SECONDS = 4 * SHARDS * 64, 120.0  # of a worker that goes on and on
KILLED_CALL = 7  # in the second shard of a worker that predicts 16 rows at a time
DISK_BYTES = 256  # how much of its first output a worker writes before it dies


def draw_shards(seed: int) -> list[np.ndarray]:
    """Return the rows [rows, FEATURES] of each shard. The first number of a row is its own."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(49, 65, SHARDS)
    rows = rng.uniform(-1, 1, (sizes.sum(), FEATURES)).round(6)
    rows[:, 0] = np.arange(len(rows))
    return np.split(rows, np.cumsum(sizes)[:-1])


def predict_rows(rows: np.ndarray) -> np.ndarray:
    """Return the predictions [rows] of the model of this lab."""
    return rows @ np.linspace(1, 2, FEATURES)


class ShardTrial:
    """A folder with shards, and the workers that predict them.

    A worker stays in its first call until it's released, and in the one in which it's killed: so
    what they find doesn't depend on which of them the machine lets run.
    """

    def __init__(self, work: Callable[..., Any], seed: int) -> None:
        self._work, self._root = work, Path(tempfile.mkdtemp())
        self.shards = draw_shards(seed)
        for name in ("shards", "output", "calls", "released"):
            (self._root / name).mkdir()
        self._paths = [str(self._root / "shards" / f"s{k}.npy") for k in range(SHARDS)]
        for path, rows in zip(self._paths, self.shards):
            np.save(path, rows)
        self._workers: list[int] = []

    def start(self, killed_call: int = 0, disk_bytes: int = 0) -> int:
        """Fork a worker, which dies in a call or at a full disk; return its process number."""
        process = os.fork()
        if process == 0:
            self._be_worker(killed_call, disk_bytes)
        self._workers.append(process)
        return process

    def start_alone(self, disk_bytes: int = 0) -> int:
        """Fork a worker that waits for nobody."""
        process = self.start(disk_bytes=disk_bytes)
        self.release(process)
        return process

    def _be_worker(self, killed_call: int, disk_bytes: int) -> None:
        try:
            sys.stdout = sys.stderr = open(os.devnull, "w")
            if disk_bytes:
                signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
                resource.setrlimit(resource.RLIMIT_FSIZE, (disk_bytes, disk_bytes))
            self._work(list(self._paths), str(self._root / "output"), self._predictor(killed_call))
            os._exit(0)
        except BaseException as error:
            words = traceback.format_exception_only(error)[-1].strip()
            (self._root / "failed").write_text(words)
            os._exit(1)

    def _predictor(self, killed_call: int) -> Callable[[Any], np.ndarray]:
        calls = 0

        def predict(rows: Any) -> np.ndarray:
            nonlocal calls
            rows = np.asarray(rows)
            if rows.ndim != 2 or not 1 <= len(rows) <= MAX_BATCH:
                shape = list(rows.shape)
                raise ValueError(f"predict takes 1 to {MAX_BATCH} rows [rows, 4], got {shape}.")
            calls += 1
            while calls == killed_call:
                time.sleep(LOOK_SECONDS)
            numbers = "-".join(str(int(number)) for number in rows[:, 0])
            (self._root / "calls" / f"{os.getpid()}_{calls}_{numbers}").touch()
            time.sleep(CALL_SECONDS)
            while not (self._root / "released" / str(os.getpid())).exists():
                time.sleep(LOOK_SECONDS)
            return predict_rows(rows)

        return predict

    def release(self, *processes: int) -> None:
        """Let workers continue after their first call."""
        for process in processes:
            (self._root / "released" / str(process)).touch()

    def settle(self, *processes: int, seconds: float = IDLE_SECONDS) -> None:
        """Return once each worker has ended, or slept or spun for `seconds` without a call.

        One that waits for a processor does neither: a busy machine makes this longer. One that
        predicts without end gets MAX_CALLS.
        """
        for process in map(psutil.Process, processes):
            looks, calls, begun, before = 0, -1, 0.0, 0.0
            deadline = time.monotonic() + MAX_SECONDS
            while looks < seconds / LOOK_SECONDS and time.monotonic() < deadline:
                time.sleep(LOOK_SECONDS)
                status, seen = process.status(), self._count_calls(process.pid)
                if status == psutil.STATUS_ZOMBIE or seen > MAX_CALLS:
                    break
                spent = measure_work([process]).cpu_seconds
                if seen != calls:
                    looks, calls, begun = 0, seen, spent
                # psutil says "running" of all processes of a Mac
                looks += spent == before if psutil.MACOS else status == psutil.STATUS_SLEEPING
                before = spent
                if spent - begun > max(seconds, SPIN_SECONDS):
                    break

    def _count_calls(self, process: int) -> int:
        return sum(name.startswith(f"{process}_") for name in os.listdir(self._root / "calls"))

    def end(self, process: int) -> bool:
        """Wait for a worker; return False if it has to be killed, as it sleeps for END_SECONDS."""
        self.settle(process, seconds=END_SECONDS)
        ended = bool(os.waitpid(process, os.WNOHANG)[0])
        if ended:
            self._workers.remove(process)
        return ended

    def look(self, lost: bool) -> dict[str, Any]:
        """Return what the files say; `lost`: a worker may have lost a shard.

        Raises AssertionError if a worker ended with an error.
        """
        failed = self._root / "failed"
        if failed.exists():
            said = failed.read_text()
            if said.startswith("FileNotFoundError"):
                said += (
                    ". Is that its name? (np.save adds .npy to a name without it.) Or did another "
                )
                said += "worker move it? Claim a shard, and write it under a name of your own"
            raise refuse(f"work ended with an error in a worker: {said}")
        rows = "all there"
        for path, shard in zip(self._paths, self.shards):
            found = _read(self._root / "output" / Path(path).name)
            if found is None or len(found) < len(shard):
                rows = "some missing"
            elif rows == "all there" and not _agree(found, predict_rows(shard)):
                rows = "some wrong"
        needed = max(map(len, self.shards)) if lost else 0
        again = "too much" if self._count_again() > needed else "no more than needed"
        return {"rows": rows, "predicted again": again}

    def _count_again(self) -> int:
        names = [path.name.rpartition("_")[2] for path in (self._root / "calls").iterdir()]
        numbers = [int(number) for name in names for number in name.split("-")]
        return len(numbers) - len(set(numbers))

    def close(self) -> None:
        for process in self._workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
        shutil.rmtree(self._root, ignore_errors=True)


def _read(path: Path) -> np.ndarray | None:
    try:
        return np.load(path)
    except (OSError, ValueError, EOFError):
        return None


def _agree(found: np.ndarray, wanted: np.ndarray) -> bool:
    return found.shape == wanted.shape and bool(np.allclose(found, wanted))


def _kill_one_of_two(trial: ShardTrial) -> list[bool]:
    """Kill a worker in a call; return whether both have ended.

    The other one has begun beside it, and has looked at all shards before it dies.
    """
    victim = trial.start(killed_call=KILLED_CALL)
    trial.settle(victim)
    other = trial.start()
    trial.settle(other)
    for one in (victim, other):
        trial.release(one)
        trial.settle(one)
    with contextlib.suppress(ProcessLookupError):
        os.kill(victim, signal.SIGKILL)
    return [trial.end(one) for one in (victim, other)]


def try_work(work: Callable[..., Any], how: str, seed: int) -> dict[str, Any]:
    """Run workers in one of three ways: "together", "killed" in a call, or "cut" in a write."""
    trial = ShardTrial(work, seed)
    try:
        if how == "together":
            both = trial.start(), trial.start()
            trial.settle(*both)  # both have begun
            trial.release(*both)
            ended = [trial.end(one) for one in both]
        elif how == "killed":
            ended = _kill_one_of_two(trial)
        else:
            trial.end(trial.start_alone(disk_bytes=DISK_BYTES))
            ended = [trial.end(trial.start_alone())]
        return {**trial.look(how != "together"), "all workers returned": all(ended)}
    finally:
        trial.close()
