"""What `distlab run` adds: seconds to the start of a program, and from a kill to training again.

By hand means what it replaces: the same two processes, started with their TF_CONFIG by this one.
The program takes no time to start, so that what is measured is the launcher. Rounds alternate.
Then a real training program is killed under each way, once a round (as in lesson 19).
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from distlab.lessons.engine_runs import EngineRun, watch
from utils.engines.catalog import ENGINES, find_engine
from utils.errors import InputError
from utils.tf_config import build_cluster, build_tf_configs, pick_free_ports

WORKERS = 2
PROGRAM = "import os, time\nopen(f'begun-{os.getpid()}', 'w').write(str(time.monotonic()))\n"
LESSON = Path(__file__).parents[1] / "notebooks" / "19-engines.ipynb"
LINE = "distlab run {} --workers 2 --max-restarts 1 --checkpoint-dir {} train.py"


def run(rounds: int) -> None:
    """Print both tables."""
    print(f"\nStarting {WORKERS} processes, seconds to the first line of the last one")
    by_hand, launched = [], []
    for _ in range(rounds):
        by_hand.append(time_start(start_by_hand))
        launched.append(time_start(start_by_launcher))
    added = statistics.median(launched) - statistics.median(by_hand)
    print(f"by hand      {statistics.median(by_hand):>8.3f}")
    print(f"distlab run  {statistics.median(launched):>8.3f}   adds {added:.3f} s", flush=True)
    print_restarts(max(1, rounds // 4))


def time_start(start) -> float:
    """Return the seconds until both programs have begun; `start(folder)` runs them to the end."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "program.py").write_text(PROGRAM)
        begun = time.monotonic()
        start(folder)
        moments = [float(path.read_text()) for path in Path(folder).glob("begun-*")]
    assert len(moments) == WORKERS
    return max(moments) - begun


def start_by_hand(folder: str) -> None:
    configs = build_tf_configs(build_cluster(WORKERS, ports=pick_free_ports(WORKERS)))
    tasks = [
        subprocess.Popen(
            [sys.executable, "program.py"], cwd=folder, env={**os.environ, "TF_CONFIG": text}
        )
        for text in configs.values()
    ]
    assert not any(task.wait() for task in tasks)


def start_by_launcher(folder: str) -> None:
    command = [str(Path(sys.executable).with_name("distlab")), "run", "--workers", str(WORKERS)]
    subprocess.run([*command, "program.py"], cwd=folder, check=True, capture_output=True)


def print_restarts(rounds: int) -> None:
    """Print, for each way, when training begins, and how long after a kill it goes on."""
    print(f"\nTraining with {WORKERS} workers, seconds (medians of {rounds})")
    print(f"{'':<12}{'first report':>14}{'after a kill':>14}")
    for way in ("local", "rendezvous", *ENGINES):
        try:
            if way in ENGINES:
                find_engine(way)
        except InputError as error:
            print(f"{way:<12} {error}")
            continue
        runs = [kill_once(way) for _ in range(rounds)]
        first = statistics.median(run.first_at for run in runs)
        again = statistics.median(run.again_seconds for run in runs)
        print(f"{way:<12}{first:>14.1f}{again:>14.1f}", flush=True)


def kill_once(way: str) -> EngineRun:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text(read_program("train.py"))
        if way != "rendezvous":
            line = LINE.format(f"--engine {way}" if way in ENGINES else "", "kept")
            return watch(way, [line], folder=folder, kill_after=40)
        place, code = f"127.0.0.1:{pick_free_ports(1)[0]}", {"DISTLAB_CODE": "bench-bench-bench"}
        words = f"--rendezvous {place} --advertise-address 127.0.0.{{}}"
        lines = [LINE.format(words.format(number), f"kept-{number}") for number in (1, 2)]
        return watch(way, lines, [code, code], folder=folder, kill_after=40)


def read_program(name: str) -> str:
    """Return a program that lesson 19 writes into a file."""
    for cell in json.loads(LESSON.read_text(encoding="utf-8"))["cells"]:
        first, _, text = "".join(cell["source"]).partition("\n")
        if first.startswith("%%writefile") and first.endswith(f"/{name}"):
            return text
    raise LookupError(f"lesson 19 writes no {name}")
