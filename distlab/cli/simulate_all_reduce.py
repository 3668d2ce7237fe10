"""`distlab simulate all-reduce`: what summing bytes over ranks costs, and who sends how much."""

import argparse
import json
import math
from dataclasses import asdict
from pathlib import Path

from distlab import figures
from distlab.cli.parser import Commands
from distlab.errors import CourseError
from utils.collectives import ALGORITHMS
from utils.measure import format_bytes
from utils.simulate.collective import AllReduceCost, Link, Nodes, simulate_all_reduce

NODE_OPTIONS = ("ranks_per_node", "node_latency_us", "node_bandwidth_gbps")
PICTURE_SIZES = [1 << power for power in range(10, 34, 2)]  # 1 KiB to 4 GiB


def add_parser(models: Commands) -> None:
    """Declare `distlab simulate all-reduce` and its options."""
    parser = models.add_parser(
        "all-reduce",
        help="seconds, messages, bytes and bus bandwidth of an all-reduce",
        description="What an all-reduce costs: a message takes its latency, once, and its bytes "
        "over the bandwidth. Messages and bytes are those that the busiest rank sends.",
    )
    add = parser.add_argument
    add("--algorithm", required=True, choices=ALGORITHMS, help="how the ranks add up")
    add("--ranks", required=True, type=int, metavar="P", help="how many take part")
    add("--bytes", required=True, type=read_bytes, metavar="N", help="bytes that each rank holds")
    add("--latency-us", required=True, type=float, metavar="A", help="microseconds per message")
    add("--bandwidth-gbps", required=True, type=float, metavar="B", help="gigabytes a second")
    nodes = parser.add_argument_group(
        "nodes", "ranks that share a machine: then --latency-us and --bandwidth-gbps are those "
        "between nodes, the two below those inside one; hierarchical needs all three",
    )  # fmt: skip
    nodes.add_argument(
        "--ranks-per-node", type=int, metavar="R", help="the last node may have fewer"
    )
    nodes.add_argument("--node-latency-us", type=float, metavar="A", help="inside a node")
    nodes.add_argument("--node-bandwidth-gbps", type=float, metavar="B", help="inside a node")
    parser.add_json()
    add("--picture", type=Path, metavar="FILE.svg", help="draw time against bytes")
    parser.set_defaults(run=run)


def read_bytes(text: str) -> int:
    """Return the whole number of bytes in `text`: 1000000 or 1e6."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
        if number != int(number):
            raise ValueError
        return int(number)
    except (ValueError, OverflowError):
        message = f"{text!r} is no whole number of bytes (1000000 or 1e6)"
        raise argparse.ArgumentTypeError(message) from None


def run(arguments: argparse.Namespace) -> int:
    """Simulate and print; return the exit status."""
    link = make_link(arguments)
    nodes = read_nodes(arguments)
    cost = simulate_all_reduce(arguments.algorithm, arguments.ranks, arguments.bytes, link, nodes)
    if arguments.picture:
        write_picture(arguments, link, nodes)
    print(json.dumps(asdict(cost)) if arguments.json else format_table(arguments, cost))
    return 0


def make_link(arguments: argparse.Namespace, where: str = "") -> Link:
    """Return the link of microseconds a message and gigabytes (1e9 bytes) a second.

    `where` is "node_" for the link inside a node. Raises CourseError that names
    the option that cannot be.
    """
    latency_us = getattr(arguments, f"{where}latency_us")
    bandwidth_gbps = getattr(arguments, f"{where}bandwidth_gbps")
    option = "--" + where.replace("_", "-")
    if not (math.isfinite(latency_us) and latency_us >= 0):
        raise CourseError(f"{option}latency-us {latency_us:g}: give 0 or more microseconds")
    if not (math.isfinite(bandwidth_gbps) and bandwidth_gbps > 0):
        raise CourseError(
            f"{option}bandwidth-gbps {bandwidth_gbps:g}: give more than 0 gigabytes a second"
        )
    return Link(latency_us / 1e6, bandwidth_gbps * 1e9)


def read_nodes(arguments: argparse.Namespace) -> Nodes | None:
    """Return the nodes that the options describe, None without them; raise CourseError for some."""
    missing = [name for name in NODE_OPTIONS if getattr(arguments, name) is None]
    if len(missing) == len(NODE_OPTIONS) and arguments.algorithm != "hierarchical":
        return None
    if missing:
        named = ", ".join("--" + name.replace("_", "-") for name in missing)
        reason = "hierarchical" if arguments.algorithm == "hierarchical" else "a machine with nodes"
        raise CourseError(f"{reason} also needs {named}")
    return Nodes(arguments.ranks_per_node, make_link(arguments, "node_"))


def format_table(arguments: argparse.Namespace, cost: AllReduceCost) -> str:
    """Return what was asked in one line and what it costs in four."""
    ranks = f"{arguments.ranks:,} rank{'s' * (arguments.ranks != 1)}"
    if arguments.ranks_per_node is not None:
        ranks += f", {arguments.ranks_per_node} per node"
    rows = [
        ("time", format_seconds(cost.seconds)),
        ("messages per rank", f"{cost.messages_per_rank:,}"),
        ("bytes per rank", f"{cost.bytes_per_rank:,.0f} ({format_bytes(cost.bytes_per_rank)})"),
        ("bus bandwidth", f"{cost.bus_bandwidth_gbps:,.3g} GB/s"),
    ]
    size = f"{arguments.bytes:,} bytes ({format_bytes(arguments.bytes)})"
    head = f"{arguments.algorithm} all-reduce of {size} over {ranks}"
    lines = [head, *(f"  {name:<19}{value}" for name, value in rows)]
    if arguments.ranks > 1:
        lines.append("  (messages and bytes sent by the busiest rank)")
    return "\n".join(lines)


def format_seconds(seconds: float) -> str:
    """Return a time for people: `format_seconds(0.00125)` is "1.25 ms"."""
    if seconds == 0:
        return "0 s"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:,.4g} {unit}"
    return f"{seconds / 1e-6:,.4g} us"


def write_picture(arguments: argparse.Namespace, link: Link, nodes: Nodes | None) -> None:
    """Write an SVG file: time against bytes for every algorithm that the options describe.

    Raises CourseError for one rank and for a file that cannot be written.
    """
    path: Path = arguments.picture
    if path.suffix.lower() != ".svg":
        raise CourseError(f"--picture {path}: the file is an SVG, give it a name that ends in .svg")
    if arguments.ranks == 1:
        raise CourseError("--picture: one rank sends nothing, there is nothing to draw")
    asked = [arguments.bytes] if arguments.bytes else []
    sizes = sorted({*asked, *PICTURE_SIZES})

    def sweep(name: str) -> tuple[list[float], list[float]]:
        costs = [simulate_all_reduce(name, arguments.ranks, n, link, nodes) for n in sizes]
        return [n / 2**20 for n in sizes], [cost.seconds * 1e3 for cost in costs]

    picture = figures.lines(
        {name: sweep(name) for name in ALGORITHMS if nodes or name != "hierarchical"},
        x_label="MiB per rank",
        y_label="milliseconds",
        title=f"All-reduce over {arguments.ranks:,} ranks",
        log_x=True,
        log_y=True,
        marks={f"{arguments.algorithm}, {format_bytes(n)}": n / 2**20 for n in asked},
    )
    try:
        path.write_text(picture.svg)
    except OSError as error:
        raise CourseError(f"--picture {path}: {error.strerror}") from None
