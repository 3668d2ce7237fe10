"""What the simulators' commands have in common: links, nodes, numbers with units, pictures."""

import argparse
import math
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from distlab.cli.parser import OneLineParser
from distlab.errors import CourseError
from distlab.figures import Picture
from utils.errors import InputError
from utils.simulate.collective import Link, Nodes
from utils.simulate.units import read_bandwidth_gbps, read_latency_us

NODE_OPTIONS = ("ranks_per_node", "node_latency_us", "node_bandwidth_gbps")
MAX_COUNT = 10**18


def add_network(parser: OneLineParser, nodes_are_for: str = "", required: bool = True) -> None:
    """Declare the options of a link and of nodes."""
    add = parser.add_argument
    add("--latency-us", required=required, type=read_latency, metavar="A",
        help="microseconds a message")  # fmt: skip
    add("--bandwidth-gbps", required=required, type=read_bandwidth, metavar="B",
        help="gigabytes (1e9 bytes) a second, or with a unit: 400Gb/s")  # fmt: skip
    end = f"; {nodes_are_for}" if nodes_are_for else "; give all three or none"
    nodes = parser.add_argument_group(
        "nodes", "ranks that share a machine: then --latency-us and --bandwidth-gbps are those "
        f"between nodes, the two below those inside one{end}",
    )  # fmt: skip
    nodes.add_argument("--ranks-per-node", type=int, metavar="R",
                       help="the last node may have fewer")  # fmt: skip
    nodes.add_argument("--node-latency-us", type=read_latency, metavar="A", help="inside a node")
    nodes.add_argument("--node-bandwidth-gbps", type=read_bandwidth, metavar="B",
                       help="inside a node")  # fmt: skip


def add_picture(parser: OneLineParser, shows: str) -> None:
    parser.add_argument("--picture", type=Path, metavar="FILE.svg", help=f"draw {shows}")


def read_bandwidth(text: str) -> float:
    """Return gigabytes a second; for argparse."""
    return _read(read_bandwidth_gbps, text)


def read_latency(text: str) -> float:
    """Return microseconds; for argparse."""
    return _read(read_latency_us, text)


def _read(read: Callable[[str], float], text: str) -> float:
    try:
        return read(text)
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def read_bytes(text: str) -> int:
    """Return the whole number of bytes in `text`: 1000000 or 1e6."""
    return read_large(text, "bytes")


def read_count(text: str) -> int:
    """Return the whole number in `text`, which may be as large as the parameters of a model."""
    number = read_large(text, "things")
    if abs(number) > MAX_COUNT:
        raise argparse.ArgumentTypeError(f"{text} is out of range: give at most {MAX_COUNT:.0e}")
    return number


def read_large(text: str, things: str) -> int:
    """Return the whole number of `things` in `text`: 1000000 or 1e6."""
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
        message = f"{text!r} is no whole number of {things} (1000000 or 1e6)"
        raise argparse.ArgumentTypeError(message) from None


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


def read_nodes(arguments: argparse.Namespace, needed_by: str = "") -> Nodes | None:
    """Return the nodes that the options describe, None without them; raise CourseError for some.

    `needed_by` names what cannot do without them.
    """
    missing = [name for name in NODE_OPTIONS if getattr(arguments, name) is None]
    if len(missing) == len(NODE_OPTIONS) and not needed_by:
        return None
    if missing:
        named = ", ".join("--" + name.replace("_", "-") for name in missing)
        raise CourseError(f"{needed_by or 'a machine with nodes'} also needs {named}")
    return Nodes(arguments.ranks_per_node, make_link(arguments, "node_"))


def format_seconds(seconds: float) -> str:
    """Return a time for people: `format_seconds(0.00125)` is "1.25 ms"."""
    if seconds == 0:
        return "0 s"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:,.4g} {unit}"
    return f"{seconds / 1e-6:,.4g} us"


def format_table(head: str, rows: Iterable[tuple[str, str]]) -> str:
    """Return a line of what was asked, and below it one for each name with its value."""
    rows = list(rows)
    wide = max(len(name) for name, _ in rows) + 2
    return "\n".join([head, *(f"  {name:<{wide}}{value}" for name, value in rows)])


def write_picture(path: Path, make: Callable[[], Picture]) -> None:
    """Write the picture that `make` draws to `path` as SVG. Raises CourseError where that fails."""
    if path.suffix.lower() != ".svg":
        raise CourseError(f"--picture {path}: the picture is SVG: choose a name that ends in .svg")
    picture = make()
    try:
        path.write_text(picture.svg + "\n", encoding="utf-8")
    except OSError as error:
        raise CourseError(f"--picture {path}: cannot be written ({error.strerror})") from None
    print(f"picture: {path}", file=sys.stderr)
