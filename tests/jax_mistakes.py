"""Make the mistakes of starting a cluster of JAX processes, all at once, each for real.

    python jax_mistakes.py FOLDER

writes FOLDER/MISTAKE.PROCESS.log: what each process wrote. Takes about as long as its
longest time limit; no TensorFlow and no Keras is imported.
"""

import socket
import subprocess
import sys
from pathlib import Path

from utils.tf_config.build import pick_free_ports

SECONDS = 8  # how long a process waits for the others
PROGRAM = f"""
import os, signal, sys, time
import jax

rank, count, address, then = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
if then == "late":
    jax.devices()
if then == "bare":
    jax.distributed.initialize()
jax.distributed.initialize(
    address, count, rank, initialization_timeout={SECONDS}, heartbeat_timeout_seconds=10,
    shutdown_timeout_seconds={SECONDS},
)
if then == "raise" and rank == 1:
    raise ValueError("rank 1 gives up")
if then == "killed" and rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
if then == "killed":
    time.sleep(20)  # until the coordinator misses the heartbeats
from jax.experimental.multihost_utils import process_allgather
print(process_allgather(jax.numpy.ones(1)).sum())
"""

# mistake -> (rank, count, what it then does) of each process; all with one coordinator
MISTAKES = {
    "missing-peer": [(0, 2, "")],
    "missing-coordinator": [(1, 2, "")],
    "other-count": [(0, 2, ""), (1, 3, "")],
    "wrong-index": [(2, 2, "")],
    "duplicate-index": [(0, 2, ""), (1, 2, ""), (1, 2, "")],
    "taken-port": [(0, 1, "")],
    "late": [(0, 1, "late")],
    "bare": [(0, 1, "bare")],
    "killed": [(0, 2, "killed"), (1, 2, "killed")],
    "peer-raised": [(0, 2, "raise"), (1, 2, "raise")],
}


def main(folder: Path) -> None:
    ports = pick_free_ports(len(MISTAKES), "127.0.0.1")
    taken = socket.create_server(
        ("::", ports[list(MISTAKES).index("taken-port")]), family=socket.AF_INET6
    )
    running = []
    for (name, processes), port in zip(MISTAKES.items(), ports):
        for number, (rank, count, then) in enumerate(processes):
            words = [str(rank), str(count), f"127.0.0.1:{port}", then]
            with open(folder / f"{name}.{number}.log", "w") as log:
                running.append(
                    subprocess.Popen(
                        [sys.executable, "-c", PROGRAM, *words], stdout=log, stderr=log
                    )
                )
    for process in running:
        process.wait(120)
    taken.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
