"""Set TF_CONFIG from the container's environment, then run the given program.

    python start.py train.py --epochs 3

A Kubernetes pod of an Indexed Job has its number, and a SageMaker instance has a list of hosts.
"""

import json
import os
import sys

PORT = 2222


def find_place() -> tuple[list[str], int]:
    """Return the addresses of all workers, and which of them this is."""
    if "JOB_COMPLETION_INDEX" in os.environ:  # an Indexed Job of Kubernetes
        hosts = os.environ["DISTLAB_HOSTS"].split(",")
        return hosts, int(os.environ["JOB_COMPLETION_INDEX"])
    path = os.environ.get("RESOURCE_CONFIG", "/opt/ml/input/config/resourceconfig.json")
    with open(path) as file:  # SageMaker
        told = json.load(file)
    hosts = sorted(told["hosts"], key=lambda name: int(name.rpartition("-")[2]))
    return [f"{host}:{PORT}" for host in hosts], hosts.index(told["current_host"])


if __name__ == "__main__":
    workers, index = find_place()
    task = {"type": "worker", "index": index}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": task})
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
