"""Make the mistakes of starting a cluster of JAX processes, all at once, each for real.

    python jax_mistakes.py FOLDER

writes FOLDER/MISTAKE.PROCESS.log: what each process wrote. Takes about as long as its
longest time limit; no TensorFlow and no Keras is imported.
"""

import subprocess
import sys
from pathlib import Path

from utils.tf_config.build import pick_free_ports

PROGRAM = """
import os, signal, sys, time
import jax

rank, count, seconds = map(int, sys.argv[1:4])
address, then = sys.argv[4:]
if then == "late":
    jax.devices()
if then == "bare":
    jax.distributed.initialize()
jax.distributed.initialize(
    address, count, rank, initialization_timeout=seconds, heartbeat_timeout_seconds=10,
    shutdown_timeout_seconds=seconds,
)
if then == "killed" and rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
if then == "killed":
    time.sleep(60)  # until the coordinator misses the heartbeats
from jax.experimental.multihost_utils import process_allgather
print(process_allgather(jax.numpy.ones(1)).sum())
"""

# mistake -> (rank, count, what it then does) of each process; all with one coordinator
MISTAKES = {
    "missing-peer": [(0, 2, "")],
    "missing-coordinator": [(1, 2, "")],
    "wrong-index": [(2, 2, "")],
    "duplicate-index": [(0, 2, ""), (1, 2, ""), (1, 2, "")],
    "late": [(0, 1, "late")],
    "bare": [(0, 1, "bare")],
    "killed": [(0, 2, "killed"), (1, 2, "killed")],
}


def main(folder: Path) -> None:
    ports = pick_free_ports(len(MISTAKES), "127.0.0.1")
    running = []
    for (name, processes), port in zip(MISTAKES.items(), ports):
        for number, (rank, count, then) in enumerate(processes):
            seconds = 8 if name.startswith("missing") else 25  # to wait for the others
            words = [str(rank), str(count), str(seconds), f"127.0.0.1:{port}", then]
            command = [sys.executable, "-c", PROGRAM, *words]
            with open(folder / f"{name}.{number}.log", "w") as log:
                running.append(subprocess.Popen(command, stdout=log, stderr=log))
    try:
        for process in running:
            process.wait(120)
    finally:
        for process in running:
            process.kill()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
