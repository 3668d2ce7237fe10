"""Kill parts of a rendezvous at random: `python -m benchmarks.rendezvous_chaos [--runs N]`.

Three launchers on loopback run a small program that saves a step in turn. In one of five phases
(somebody waits in the lobby, machines try each other, tasks run, a checkpoint is being copied,
all start again) a worker, a member's launcher or the host's is killed, or a member's launcher
freezes. A run whose host lives must end well; one whose host was killed must end everywhere, and
then, started again, go on and end well. One line a run; ends with status 1 if one hung, failed,
or left a process behind. TensorFlow takes no part.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import psutil

from utils.engines.rendezvous.copies import STAGING
from utils.tf_config import pick_free_ports

MACHINES, STEPS, LIMIT_SECONDS = 3, 30, 180.0
STEP_BYTES = 2**19  # of a checkpoint, so that copying it takes a moment
VICTIMS = ("worker", "member", "host", "frozen member")
# phase -> the longest delay after it has begun, in seconds
PHASES = {"lobby": 1.5, "connecting": 0.3, "training": 3.0, "copying": 0.05, "restart": 1.0}
PROGRAM = """
import json, os, pathlib, time
index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
folder = pathlib.Path(os.environ["DISTLAB_CHECKPOINT_DIR"])
pathlib.Path(f"pid-{os.getpid()}").touch()
step = max([int(path.name[5:]) for path in folder.glob("step-*")], default=0)
print("begins at", step, flush=True)
while step < %d:
    time.sleep(0.1)
    step += 1
    if index == 0:
        (folder / "part.tmp").write_bytes(os.urandom(%d))
        os.replace(folder / "part.tmp", folder / f"step-{step}")
"""


@dataclass
class Outcome:
    """What became of one run: `problem` is None if all is as it should be."""

    seed: int
    victim: str
    phase: str
    delay_seconds: float
    seconds: float = 0.0
    problem: str | None = None

    def __str__(self) -> str:
        what = "freezes" if self.victim == "frozen member" else "is killed"
        words = f"seed {self.seed}: {self.victim} {what} {self.delay_seconds:.2f} s into "
        return f"{words}{self.phase}, {self.seconds:.1f} s: {self.problem or 'as it should be'}"


def draw_outcome(seed: int) -> Outcome:
    """Return what `seed` has happen: who is struck, in which phase, how long after it began."""
    drawn = random.Random(seed)
    phase = drawn.choice(list(PHASES))
    no_tasks = phase in ("lobby", "connecting")
    victim = drawn.choice(VICTIMS[1:] if no_tasks else VICTIMS)
    return Outcome(seed, victim, phase, drawn.uniform(0.0, PHASES[phase]))


def run_once(seed: int) -> Outcome:
    """Have happen what `seed` draws, and look at what is left."""
    drawn, outcome = random.Random(-seed), draw_outcome(seed)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        launchers = start_all(Path(folder))
        try:
            wait_for_phase(outcome.phase, launchers, Path(folder))
            time.sleep(outcome.delay_seconds)
            strike(outcome.victim, launchers, Path(folder), drawn)
            outcome.problem = judge(outcome.victim, launchers, Path(folder))
        finally:
            for launcher in launchers:
                launcher.kill()
                launcher.wait()
    outcome.seconds = time.monotonic() - begun
    return outcome


def wait_for_phase(phase: str, launchers: list[subprocess.Popen], folder: Path) -> None:
    """Return once `phase` has begun, or all is over."""
    said = folder / "machine-0" / "said"
    if phase == "restart":
        wait_for_phase("training", launchers, folder)
        strike("worker", launchers, folder, random.Random(0))
    signs = {
        "lobby": lambda: True,
        "connecting": lambda: said.read_bytes().count(b"has joined") == MACHINES - 1,
        "training": lambda: len(find_tasks(folder)) == MACHINES,
        "copying": lambda: any(folder.glob(f"machine-*/kept/{STAGING}/*")),
        "restart": lambda: b"restart 1" in said.read_bytes(),
    }
    deadline = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < deadline and launchers[0].poll() is None and not signs[phase]():
        time.sleep(0.002 if phase == "copying" else 0.02)


def start_all(folder: Path) -> list[subprocess.Popen]:
    """Start a launcher a machine, the host first."""
    address = f"127.0.0.1:{pick_free_ports(1)[0]}"
    return [start(folder, number, address) for number in range(MACHINES)]


def start(folder: Path, number: int, address: str) -> subprocess.Popen:
    home = folder / f"machine-{number}"
    home.mkdir(exist_ok=True)
    (home / "program.py").write_text(PROGRAM % (STEPS, STEP_BYTES))
    command = [sys.executable, "-m", "distlab", "run", "--rendezvous", address, "--workers"]
    command += [
        f"2:{MACHINES}",
        "--max-restarts",
        "3",
        "--checkpoint-dir",
        "kept",
        "--logs",
        "logs",
    ]
    command += ["--advertise-address", f"127.0.0.{number + 1}", "--json"]
    command += ["--join-timeout", "60", "program.py"]  # a late one may find its host dead
    environment = {**os.environ, "DISTLAB_CODE": f"chaos-{os.getpid()}-chaos"}
    said = (home / "said").open("wb")
    launcher = subprocess.Popen(command, cwd=home, env=environment, stdout=said, stderr=said)
    said.close()
    if number == 0:
        deadline = time.monotonic() + LIMIT_SECONDS
        while b"hosting" not in (home / "said").read_bytes() and time.monotonic() < deadline:
            time.sleep(0.05)
    return launcher


def strike(
    victim: str, launchers: list[subprocess.Popen], folder: Path, drawn: random.Random
) -> None:
    """Kill the host, a member's launcher, or a task if one lives; or freeze a member's launcher."""
    number = {"frozen member": signal.SIGSTOP}.get(victim, signal.SIGKILL)
    if victim != "worker":
        launchers[0 if victim == "host" else drawn.randrange(1, MACHINES)].send_signal(number)
    elif processes := find_tasks(folder):
        psutil.Process(drawn.choice(processes)).kill()


def judge(victim: str, launchers: list[subprocess.Popen], folder: Path) -> str | None:
    """Return what is wrong with the end of a run, None if nothing is."""
    try:
        statuses = [launchers[0].wait(LIMIT_SECONDS)]
        for launcher in launchers[1:]:
            launcher.send_signal(signal.SIGCONT)  # who was frozen finds itself alone, and ends
            statuses.append(launcher.wait(LIMIT_SECONDS))
    except subprocess.TimeoutExpired:
        return "hung"
    time.sleep(1.0)  # what was killed with its launcher is cleared up by its keeper
    if left := find_tasks(folder):
        return f"left {len(left)} processes behind"
    if victim != "host":
        return None if statuses[0] == 0 else f"the host ended with status {statuses[0]}"
    was_over = all(status == 0 for status in statuses[1:])
    if not was_over and any(status in (0, None) for status in statuses[1:]):
        return f"the members ended with {statuses[1:]}"
    return None if was_over else judge_again(folder)


def judge_again(folder: Path) -> str | None:
    """After the host was killed: the same line again must bring the run to its end."""
    launchers = start_all(folder)
    problem = judge("worker", launchers, folder)
    for launcher in launchers:
        launcher.kill()
        launcher.wait()
    saved = [len(list(folder.glob(f"machine-{n}/kept/step-*"))) for n in range(MACHINES)]
    return problem or (None if saved[0] == STEPS else f"{saved} of {STEPS} steps are saved")


def find_tasks(folder: Path) -> list[int]:
    """Return the processes of tasks that live, by the files that they made."""
    numbers = [int(path.name[4:]) for path in folder.glob("machine-*/pid-*")]
    return [number for number in numbers if is_task(number)]


def is_task(number: int) -> bool:
    try:
        process = psutil.Process(number)
        return process.status() != psutil.STATUS_ZOMBIE and "program.py" in process.cmdline()
    except psutil.Error:
        return False


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.rendezvous_chaos", description=__doc__)
    parser.add_argument("--runs", type=int, default=100, help="how many (default 100)")
    parser.add_argument("--seed", type=int, help="of the first run (default: a fresh one)")
    arguments = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if arguments.seed is None else arguments.seed
    outcomes = []
    for number in range(arguments.runs):
        outcomes.append(run_once(seed + number))
        print(outcomes[-1], flush=True)
    failed = [outcome.seed for outcome in outcomes if outcome.problem]
    kinds = Counter(f"{outcome.victim}, {outcome.phase}" for outcome in outcomes)
    print(json.dumps({"runs": len(outcomes), "struck": kinds, "failed": failed}))
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
