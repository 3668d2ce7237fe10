"""Known machines as data: what public specifications say, with source and date.

    find_machine("64 H100 on 400 Gb/s")      # how many, which device, and the network between nodes
    find_machine("A100 on HDR")

The tables are `machines.csv` and `networks.csv`. A device trains at a part of its peak
(model FLOPs utilization, MFU); 0.4 is usual for large models, and stands as an
assumption beside each prediction. NumPy at most.
"""

import csv
import re
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import InputError
from ..simulate.units import read_bandwidth_gbps

USUAL_MFU = 0.4
NETWORK_LATENCY_US = 5.0  # where only a line rate is given
WORDS = re.compile(r"\s*(?:(\d+)\s*x?\s+)?([A-Za-z0-9-]+)(?:\s+on\s+(.+?))?\s*", re.IGNORECASE)


@dataclass(frozen=True)
class Machine:
    """A device, how many share a node, and the network between nodes (None: not said).

    `count` is how many were asked for, None for no number.
    """

    name: str
    peak_tflops: float
    memory_gb: float
    ranks_per_node: int
    node_gbps: float
    node_latency_us: float
    source: str
    date: str
    count: int | None = None
    network_gbps: float | None = None
    network_latency_us: float | None = None


def _read_rows(name: str) -> list[dict[str, str]]:
    lines = (Path(__file__).parent / name).read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def _read_machines() -> dict[str, Machine]:
    kinds = {"ranks_per_node": int, "name": str, "source": str, "date": str}
    rows = [{k: kinds.get(k, float)(v) for k, v in row.items()}
            for row in _read_rows("machines.csv")]  # fmt: skip
    return {row["name"]: Machine(**row) for row in rows}


MACHINES = _read_machines()
NETWORKS = {row["name"]: (float(row["gbps"]), float(row["latency_us"]))
            for row in _read_rows("networks.csv")}  # fmt: skip


def find_machine(text: str) -> Machine:
    """Return the machine that `text` names: "H100", "64 H100 on 400 Gb/s", "A100 on HDR".

    Raises InputError, which lists what is known, for any other text.
    """
    found = WORDS.fullmatch(text)
    names = {name.lower(): name for name in MACHINES}
    if not found or found[2].lower() not in names:
        raise InputError(
            f'machine {text!r}: write "64 H100 on 400 Gb/s"; devices: {", ".join(MACHINES)}; '
            f"networks: a rate, or {', '.join(NETWORKS)}"
        )
    count, device, network = found.groups()
    machine = replace(MACHINES[names[device.lower()]], count=int(count) if count else None)
    if count and machine.count < 1:
        raise InputError(f"machine {text!r}: give 1 device or more")
    if network is None:
        return machine
    gbps, latency = _find_network(network)
    return replace(machine, network_gbps=gbps, network_latency_us=latency)


def _find_network(text: str) -> tuple[float, float]:
    known = {name.lower(): numbers for name, numbers in NETWORKS.items()}
    if text.lower() in known:
        return known[text.lower()]
    return read_bandwidth_gbps(text), NETWORK_LATENCY_US
