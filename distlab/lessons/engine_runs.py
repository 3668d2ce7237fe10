"""Lesson 19: start command lines, watch and disturb them, with any launcher.

    run = watch("a run", ["distlab run --workers 2 --max-restarts 1 train.py"], kill_after=100)
    print(run.first_step_seconds, run.again_seconds)

The program prints "worker 1 of 2 is process 4711, from step 0" when it begins, and worker 0 "step
20 loss 0.5" as it trains: all measurements come from these lines, so that each way of starting is
measured alike. A run on an engine that is missing here is replaced by a stored one with its
date, which `watch_engine` says; where CI is set, it raises instead.
"""

import json
import os
import platform
import queue
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from distlab.errors import CourseError
from distlab.lessons.typed_cluster import run_tasks
from utils.engines.catalog import find_engine
from utils.errors import InputError
from utils.files import write_atomically
from utils.processes.lifetime import die_with_parent, signal_group
from utils.processes.registry import find_clusters

STORED = Path(__file__).with_name("stored_engine_runs.json")
STORE_VARIABLE = "DISTLAB_STORE_RUNS"  # set: runs on engines are stored anew
LIMIT_SECONDS = 300.0
BEGINS = re.compile(r"worker (\d+) of \d+ is process (\d+), from step (\d+)")
STEP = re.compile(r"step (\d+) loss ([\d.]+)")
SHOWN = re.compile(r"^(machine \d \| )?(\[worker \d+\] (worker|step)|distlab run: )")
SHOWN_EVERY = 40  # steps


@dataclass
class EngineRun:
    """The observation of one run. Seconds count from the moment when its line was typed.

    `killed_at` and `again_at` are None if no worker was killed, or nothing resumed; `own_bytes` is
    the memory of all processes besides the workers, `begun` the step that each attempt resumed
    from. `stored` is "" for a run of today, else its date and machine.
    """

    way: str
    lines: list[str] = field(default_factory=list)
    first_at: float | None = None
    killed_at: float | None = None
    again_at: float | None = None
    seconds: float = 0.0
    own_bytes: int = 0
    begun: list[int] = field(default_factory=list)
    last_loss: float = float("nan")
    status: int = 0
    stored: str = ""

    @property
    def again_seconds(self) -> float | None:
        """Seconds from the kill to the next step."""
        return None if self.again_at is None else self.again_at - self.killed_at

    def show(self) -> None:
        """Print the lines that tell the story: of steps only each fortieth."""
        if self.stored:
            print(f"a stored run: {self.stored}")
        for line in self.lines:
            if is_shown(line):
                print(line)


def is_shown(line: str) -> bool:
    step = STEP.search(line)
    return bool(SHOWN.search(line)) and (not step or int(step[1]) % SHOWN_EVERY == 0)


def watch(
    way: str,
    lines: Sequence[str],
    environments: Sequence[Mapping[str, str]] = (),
    *,
    folder: str | Path,
    kill_after: int | None = None,
    seconds: float = LIMIT_SECONDS,
) -> EngineRun:
    """Start each of `lines` at once in `folder`, and return what was seen to the end of all.

    `environments` are variables for each. Worker 1 is killed once worker 0 has reported the step
    `kill_after`. Raises CourseError, with the last lines, if one fails or takes longer than
    `seconds`. None is left.
    """
    seen, watched = EngineRun(way), _Watched(kill_after)
    begun, commands = time.monotonic(), []
    told: queue.Queue[tuple[float, str]] = queue.Queue()
    try:
        for number, line in enumerate(lines):
            given = environments[number] if environments else {}
            commands.append(_start(line, given, Path(folder)))
            prefix = f"[worker {number}] " if line.startswith("python ") else ""
            if len(lines) > 1 and not prefix:
                prefix = f"machine {number + 1} | "
            threading.Thread(
                target=_read, args=(commands[-1], prefix, begun, told), daemon=True
            ).start()
        while any(command.poll() is None for command in commands) or not told.empty():
            if time.monotonic() - begun > seconds:
                raise CourseError(
                    f"{way} must end within {seconds:.0f} s, and still runs; {_tail(seen)}"
                )
            with suppress(queue.Empty):
                watched.take(seen, *told.get(timeout=0.2), commands)
    finally:
        for command in commands:
            if command.poll() is None:
                signal_group(command.pid, signal.SIGKILL)
                command.wait()
    seen.seconds = time.monotonic() - begun
    seen.status = max(command.returncode for command in commands)
    if seen.status:
        raise CourseError(f"{way} ended with status {seen.status}; {_tail(seen)}")
    return seen


def _start(line: str, given: Mapping[str, str], folder: Path) -> "subprocess.Popen[str]":
    words = shlex.split(line)
    first = {"python": [sys.executable], "distlab": [sys.executable, "-m", "distlab"]}
    environment = {
        "TF_CPP_MIN_LOG_LEVEL": "3",
        **os.environ,
        "PYTHONUNBUFFERED": "1",
        "GCE_METADATA_IP": "127.0.0.1:9",
        **given,
    }
    return subprocess.Popen(
        [*first[words[0]], *words[1:]],
        cwd=folder,
        env=environment,
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=die_with_parent,
    )


def _read(
    command: "subprocess.Popen[str]",
    prefix: str,
    begun: float,
    told: "queue.Queue[tuple[float, str]]",
) -> None:
    with command.stdout as stream:
        for line in stream:
            told.put((time.monotonic() - begun, prefix + line.rstrip()))


def _tail(seen: EngineRun) -> str:
    return "its last lines:\n" + "\n".join(seen.lines[-8:])


class _Watched:
    """Tracks the workers during a run. Kills worker 1 when its time has come."""

    def __init__(self, kill_after: int | None) -> None:
        self._kill_after, self._workers = kill_after, dict[int, int]()
        self._attempts = 0  # that had begun when worker 1 was killed

    def take(
        self, seen: EngineRun, at: float, line: str, commands: Sequence[subprocess.Popen]
    ) -> None:
        """Note one line; kill when it is due."""
        seen.lines.append(line)
        if begins := BEGINS.search(line):
            self._workers[int(begins[1])] = int(begins[2])
            if begins[1] == "0":
                seen.begun.append(int(begins[3]))
        if not (step := STEP.search(line)):
            return
        seen.last_loss = float(step[2])
        if seen.first_at is None:
            seen.first_at = at
        elif seen.killed_at and seen.again_at is None and len(seen.begun) > self._attempts:
            seen.again_at = at
        due = self._kill_after and seen.killed_at is None and int(step[1]) >= self._kill_after
        if due and 1 in self._workers:
            self._disturb(seen, at, commands)

    def _disturb(self, seen: EngineRun, at: float, commands: Sequence[subprocess.Popen]) -> None:
        os.kill(self._workers[1], signal.SIGSTOP)  # it waits while the memory is counted
        counted, self._attempts = time.monotonic(), len(seen.begun)
        seen.own_bytes = count_own_bytes([c.pid for c in commands], self._workers.values())
        seen.killed_at = at + time.monotonic() - counted
        os.kill(self._workers[1], signal.SIGKILL)


def count_own_bytes(commands: Sequence[int], workers: Sequence[int]) -> int:
    """Return the memory of all processes that start `workers`, without these.

    Found as children of `commands`, and by the marks of what has gone into the background.
    Memory that processes share is counted once (Linux: proportional set size).
    """
    every = _find_below(commands)
    clusters = find_clusters()
    for _ in range(3):  # an agent in the background owns its own cluster
        owned = [c for c in clusters if c.mark.owner in every]
        every |= _find_below([p.pid for c in owned for p in c.processes])
    return sum(map(_count_bytes, every - _find_below(workers)))


def _find_below(processes: Sequence[int]) -> set[int]:
    found = set()
    for number in processes:
        with suppress(psutil.Error):
            process = psutil.Process(number)
            found |= {number, *(child.pid for child in process.children(recursive=True))}
    return found


def _count_bytes(number: int) -> int:
    try:
        told = psutil.Process(number).memory_full_info()
    except psutil.Error:
        return 0
    return getattr(told, "pss", told.uss)


# ---- engines that may be missing


def watch_engine(engine: str, line: str, **options: Any) -> EngineRun:
    """Return what `watch` sees of a line that needs `engine`; a stored run where that is missing.

    Raises CourseError for a missing engine where CI is set.
    """

    def run() -> dict[str, Any]:
        seen = asdict(watch(engine, [line], **options))
        return seen | {"lines": [line for line in seen["lines"] if is_shown(line)]}

    return EngineRun(**_do_or_recall(engine, engine, run))


def run_with_engine(engine: str, program: str | Path) -> list[str]:
    """Run a Python program that needs `engine`; return what it prints, or did when stored."""

    def run() -> dict[str, Any]:
        return {"lines": run_tasks(program, ["{}"], LIMIT_SECONDS)[0]}

    found = _do_or_recall(engine, Path(program).name, run)
    if found.get("stored"):
        print(f"a stored run: {found['stored']}")
    return found["lines"]


def _do_or_recall(engine: str, key: str, do: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        find_engine(engine)
    except InputError as error:
        if os.environ.get("CI"):
            raise CourseError(
                f"{error} Install it: continuous integration runs every engine."
            ) from None
        stored = json.loads(STORED.read_text(encoding="utf-8"))
        print(f"{error}\nSo this isn't a run of your machine.")
        words = f"{stored[key]['date']}, {stored[key]['machine']}"
        return stored[key]["run"] | {"stored": words}
    found = do()
    if os.environ.get(STORE_VARIABLE):
        _store(key, found)
    return found


def _store(key: str, run: dict[str, Any]) -> None:
    stored = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}
    machine = f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"
    stored[key] = {"date": time.strftime("%Y-%m-%d"), "machine": machine, "run": run}
    write_atomically(STORED, json.dumps(dict(sorted(stored.items())), indent=1) + "\n", mode=0o644)
