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

from distlab.exercises.refusing import refuse

SHARDS, FEATURES, MAX_BATCH = 8, 4, 16
CALL_SECONDS, END_SECONDS = 0.005, 8.0
KILLED_CALL = 7  # in the second shard of a worker that predicts 16 rows at a time
LAST_SECONDS = 0.4  # that this call takes: the other worker has looked at all shards meanwhile
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
    """A folder with shards, and the workers that predict them."""

    def __init__(self, work: Callable[..., Any], seed: int) -> None:
        self._work, self._root = work, Path(tempfile.mkdtemp())
        self.shards = draw_shards(seed)
        for name in ("shards", "output", "calls"):
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
            if calls == killed_call:
                time.sleep(LAST_SECONDS)
                os.kill(os.getpid(), signal.SIGKILL)
            numbers = "-".join(str(int(number)) for number in rows[:, 0])
            (self._root / "calls" / f"{os.getpid()}_{calls}_{numbers}").touch()
            time.sleep(CALL_SECONDS)
            return predict_rows(rows)

        return predict

    def wait_for_call(self) -> None:
        """Return once a worker has predicted something."""
        deadline = time.monotonic() + END_SECONDS
        while not os.listdir(self._root / "calls") and time.monotonic() < deadline:
            time.sleep(0.001)

    def end(self, process: int) -> bool:
        """Wait for a worker; return False if it has to be killed after END_SECONDS."""
        deadline = time.monotonic() + END_SECONDS
        while time.monotonic() < deadline:
            if os.waitpid(process, os.WNOHANG)[0]:
                self._workers.remove(process)
                return True
            time.sleep(0.005)
        return False

    def look(self, lost: bool) -> dict[str, Any]:
        """Return what the files say; `lost`: a worker may have lost a shard.

        Raises AssertionError if a worker ended with an error.
        """
        failed = self._root / "failed"
        if failed.exists():
            raise refuse(f"work ended with an error in a worker: {failed.read_text()}")
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


def try_work(work: Callable[..., Any], how: str, seed: int) -> dict[str, Any]:
    """Run workers in one of three ways: "together", "killed" in a call, or "cut" in a write."""
    trial = ShardTrial(work, seed)
    try:
        if how == "together":
            ended = [trial.end(one) for one in (trial.start(), trial.start())]
        elif how == "killed":
            victim = trial.start(killed_call=KILLED_CALL)
            trial.wait_for_call()
            ended = [trial.end(one) for one in (victim, trial.start())]
        else:
            trial.end(trial.start(disk_bytes=DISK_BYTES))
            ended = [trial.end(trial.start())]
        return {**trial.look(how != "together"), "all workers returned": all(ended)}
    finally:
        trial.close()
