"""Known machines as data: what public specifications say, with source and date.

    find_machine("64 H100, 8 a node, 400Gb/s")     # number, device, and what joins the nodes
    find_machine("64 H100, 8x400Gb/s")             # a link of 400 Gb/s for each device of a node
    find_machine("A100 on HDR")
    find_machine("16 B300, 2500TFLOP/s, 288GB, 8TB/s memory, 8 a node, 900GB/s inside, 400Gb/s")

The tables are `machines.csv` and `networks.csv`. A device that isn't in them takes three numbers:
peak, memory, and the memory's rate. A model measured elsewhere runs here at a part of the
peak (model FLOPs utilization, MFU); 0.4 is usual for large models, and is printed with each
prediction as an assumption. NumPy at most.
"""

import csv
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import InputError
from .collective import Link
from .measured import read_measured
from .step import Network
from .units import parse_rate, parse_time

USUAL_MFU = 0.4
ASSUMED_EFFICIENCY, ASSUMED_ATTENTION = 0.7, 0.2
NETWORK_LATENCY_SECONDS = 5e-6  # if only a rate is given
HEAD = re.compile(r"(?:(\d+)\s*x?\s+)?(\S+)", re.IGNORECASE)
NUMBER = r"([0-9.]+(?:e[0-9]+)?)\s*"
OWN_NUMBERS = '"64 B300, 2500TFLOP/s, 288GB, 8TB/s memory"'


@dataclass(frozen=True)
class Machine:
    """A device, how many share a node, and what joins the nodes (None: not stated).

    `count` is the number of devices. `efficiency` and `attention` are the fractions of the
    peaks that a Transformer's operations and its attention reach. The rate of `network` is for a
    whole node, one way.
    """

    name: str
    peak_tflops: float
    memory_gb: float
    memory_bytes_per_second: float
    ranks_per_node: int = 1
    node_bytes_per_second: float | None = None
    node_latency_seconds: float = 3e-6
    efficiency: float = ASSUMED_EFFICIENCY
    attention: float = ASSUMED_ATTENTION
    source: str = "stated by you"
    date: str = ""
    count: int | None = None
    network: Network | None = None

    @property
    def peak_flops(self) -> float:
        """FLOP/s."""
        return self.peak_tflops * 1e12

    def find_link(self, size: int, stride: int = 1) -> Link:
        """Return the link that a ring over `size` ranks, `stride` apart, sees.

        A ring that stays in a node has the node's link. One that leaves it shares the node's
        network with the rings of the other devices there: a group with k of a node's R devices
        gets k/R of its rate. Raises InputError if nothing is known to join what has to be joined.
        """
        if size * stride <= self.ranks_per_node:
            if self.node_bytes_per_second is None:
                raise InputError(
                    f"machine {self.name} must say what joins the {self.ranks_per_node} devices of "
                    'a node. Add "300GB/s inside", for example.'
                )
            return Link(self.node_latency_seconds, self.node_bytes_per_second)
        if self.network is None:
            raise InputError(
                f"machine {self.name} must say what joins the nodes of {self.ranks_per_node} "
                f'devices. Try "{self.name}, 400Gb/s".'
            )
        members = max(1, self.ranks_per_node // stride)
        rate = self.network.link.bandwidth_bytes_per_second * members / self.ranks_per_node
        if members > 1 and self.node_bytes_per_second is not None:
            rate = min(rate, self.node_bytes_per_second)
        return Link(self.network.link.latency_seconds, rate)


def _read_rows(name: str) -> list[dict[str, str]]:
    lines = (Path(__file__).parent / name).read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(line for line in lines if not line.startswith("#")))


def _read_machine(row: dict[str, str]) -> Machine:
    scaled = {
        "memory_bytes_per_second": 1e12 * float(row.pop("memory_tb_s")),
        "node_bytes_per_second": 1e9 * float(row.pop("node_gb_s")),
        "node_latency_seconds": 1e-6 * float(row.pop("node_latency_us")),
        "ranks_per_node": int(row.pop("ranks_per_node")),
    }
    words = {key: row.pop(key) for key in ("name", "source", "date")}
    return Machine(**words, **scaled, **{key: float(value) for key, value in row.items()})


MACHINES = {row["name"]: _read_machine(dict(row)) for row in _read_rows("machines.csv")}
NETWORKS = {
    row["name"]: Network(Link(1e-6 * float(row["latency_us"]), 1e9 * float(row["gb_s"])))
    for row in _read_rows("networks.csv")
}


def read_network(text: str) -> Network:
    """Return the network in "400Gb/s" or "10us 400Gb/s", or the measured all-reduce in a file.

    Raises InputError, in one line, for text that is neither.
    """
    time, _, rate = text.strip().rpartition(" ")
    try:
        latency = parse_time(time) if time else NETWORK_LATENCY_SECONDS
        return Network(Link(latency, parse_rate(rate)))
    except InputError as error:
        if not Path(text).exists():
            raise InputError(f"network must be a file or a rate, got {text!r}. {error}") from None
    table = read_measured(text)
    rate = table.payload_bytes[-1] / table.seconds[-1] * 2  # for messages other than all-reduces
    return Network(Link(table.seconds[0] / 2, rate), measured=table)


def find_machine(text: str) -> Machine:
    """Return the machine that `text` describes: "H100", "64 H100, 8 a node, 400Gb/s".

    Raises InputError, which lists the known devices, for any other text.

        >>> find_machine("64 H100, 8 a node, 400Gb/s").network.link.bandwidth_bytes_per_second
        50000000000.0
    """
    head, *parts = re.split(r"\s*,\s*|\s+on\s+", text.strip())
    found = HEAD.fullmatch(head)
    if not found or not found[2]:
        raise InputError(f'machine must name a device, got {text!r}. Try "64 H100, 400Gb/s".')
    told: dict[str, Any] = {}
    for part in parts:
        told |= _read_part(part, text)
    if found[1] and int(found[1]) < 1:
        raise InputError(f"machine must have at least 1 device, got {text!r}.")
    told["count"] = int(found[1]) if found[1] else None
    return replace(_find_device(found[2], told), **told)


def _find_device(name: str, told: dict[str, Any]) -> Machine:
    known = {each.lower(): each for each in MACHINES}
    if name.lower() in known:
        return MACHINES[known[name.lower()]]
    numbers = ("peak_tflops", "memory_gb", "memory_bytes_per_second")
    if any(number not in told for number in numbers):
        raise InputError(
            f"machine {name!r} isn't in the catalog: {', '.join(MACHINES)}. Give its three "
            f"numbers (peak, memory, and the memory's rate): {OWN_NUMBERS}."
        )
    return Machine(name, *(told[number] for number in numbers))


def _read_part(part: str, text: str) -> dict[str, Any]:
    """Return the fields that one part of a machine's description gives."""
    networks = {name.lower(): network for name, network in NETWORKS.items()}
    if part.lower() in networks:
        return {"network": networks[part.lower()]}
    if found := re.fullmatch(r"(\d+) a (?:node|machine)", part):
        return {"ranks_per_node": max(1, int(found[1]))}
    for pattern, name in ((r"TFLOP/?s", "peak_tflops"), (r"GB", "memory_gb")):
        if (found := re.fullmatch(NUMBER + pattern, part)) and float(found[1]) > 0:
            return {name: float(found[1])}
    found = re.fullmatch(r"(?:(\d+)\s*x\s*)?(.+?)( memory| inside)?", part)
    try:
        rate = parse_rate(found[2]) * int(found[1] or 1)
    except (InputError, TypeError):
        raise InputError(
            f'machine {text!r}: {part!r} is unknown. Write "64 H100, 8 a node, 400Gb/s"; networks: '
            f"a rate, or {', '.join(NETWORKS)}."
        ) from None
    names = {" memory": "memory_bytes_per_second", " inside": "node_bytes_per_second"}
    if found[3] in names:
        return {names[found[3]]: rate}
    return {"network": Network(Link(NETWORK_LATENCY_SECONDS, rate))}
