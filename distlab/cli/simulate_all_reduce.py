"""`distlab simulate all-reduce`: what summing bytes over ranks costs, and who sends how much."""

import argparse
import json
from dataclasses import asdict

from distlab import figures
from distlab.cli.parser import Commands, add_command
from distlab.cli.simulate_options import (
    add_network,
    add_picture,
    format_seconds,
    format_table,
    make_link,
    read_bytes,
    read_nodes,
    write_picture,
)
from distlab.errors import CourseError
from distlab.figures import Picture
from utils.collectives import ALGORITHMS
from utils.measure import format_bytes
from utils.simulate.collective import AllReduceCost, Link, Nodes, simulate_all_reduce

PICTURE_SIZES = [1 << power for power in range(10, 34, 2)]  # 1 KiB to 4 GiB


def add_parser(models: Commands) -> None:
    parser = add_command(
        models, "all-reduce", run, "seconds, messages, bytes and bus bandwidth of an all-reduce",
        "What an all-reduce costs: a message takes its latency, once, and its bytes "
        "over the bandwidth. Messages and bytes are those that the busiest rank sends.",
    )  # fmt: skip
    add = parser.add_argument
    add("--algorithm", required=True, choices=ALGORITHMS, help="how the ranks add up")
    add("--ranks", required=True, type=int, metavar="P", help="how many take part")
    add("--bytes", required=True, type=read_bytes, metavar="N", help="bytes that each rank holds")
    add_network(parser, "hierarchical needs all three")
    parser.add_json()
    add_picture(parser, "time against bytes")


def run(arguments: argparse.Namespace) -> int:
    link = make_link(arguments)
    nodes = read_nodes(arguments, "hierarchical" if arguments.algorithm == "hierarchical" else "")
    cost = simulate_all_reduce(arguments.algorithm, arguments.ranks, arguments.bytes, link, nodes)
    if arguments.picture:
        write_picture(arguments.picture, lambda: draw(arguments, link, nodes))
    print(json.dumps(asdict(cost)) if arguments.json else tabulate(arguments, cost))
    return 0


def tabulate(arguments: argparse.Namespace, cost: AllReduceCost) -> str:
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
    note = "\n  (messages and bytes sent by the busiest rank)" if arguments.ranks > 1 else ""
    return format_table(head, rows) + note


def draw(arguments: argparse.Namespace, link: Link, nodes: Nodes | None) -> Picture:
    """Return time against bytes for every algorithm that the options describe."""
    if arguments.ranks == 1:
        raise CourseError("--picture: one rank sends nothing, there is nothing to draw")
    asked = [arguments.bytes] if arguments.bytes else []
    sizes = sorted({*asked, *PICTURE_SIZES})

    def sweep(name: str) -> tuple[list[float], list[float]]:
        costs = [simulate_all_reduce(name, arguments.ranks, n, link, nodes) for n in sizes]
        return [n / 2**20 for n in sizes], [cost.seconds * 1e3 for cost in costs]

    return figures.lines(
        {name: sweep(name) for name in ALGORITHMS if nodes or name != "hierarchical"},
        x_label="MiB per rank",
        y_label="milliseconds",
        title=f"All-reduce over {arguments.ranks:,} ranks",
        log_x=True,
        log_y=True,
        marks={f"{arguments.algorithm}, {format_bytes(n)}": n / 2**20 for n in asked},
    )
