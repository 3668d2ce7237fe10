"""`distlab processes`: find the clusters on this machine, and end what a crashed kernel left."""

import argparse
import json
import time
from typing import TYPE_CHECKING, Any

from distlab.cli.parser import Commands, add_command, declare
from distlab.errors import CourseError

if TYPE_CHECKING:
    from utils.processes.registry import FoundCluster

Record = dict[str, Any]


def add_parser(subparsers: Commands) -> None:
    text = "List your local clusters, and end those that a crashed kernel left behind."
    parser = subparsers.add_parser(
        "processes", help="list and end local clusters", description=text
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    text = "Show each cluster's id, who made it, and its processes with their ports."
    add_command(actions, "list", run_list, "show the clusters on this machine", text).add_json()
    stop = add_command(
        actions,
        "stop",
        run_stop,
        "end clusters whose owner is gone",
        "Kill the processes of clusters and remove their temporary files. Without an argument, "
        "end the clusters whose owner (the kernel or script that started them) is gone.",
    )
    chosen = stop.add_mutually_exclusive_group()
    text = "end this cluster, even if its owner is alive"
    chosen.add_argument("id", nargs="?", metavar="ID", help=text)
    declare(chosen, "--all  end all clusters, in use or not")
    stop.add_json()


def run_list(arguments: argparse.Namespace) -> int:
    """Print the clusters; return 0."""
    from utils.processes.registry import find_clusters

    records = [cluster.to_record() for cluster in find_clusters()]
    if arguments.json:
        print(json.dumps({"clusters": records}, indent=2))
    elif not records:
        print("no cluster on this machine")
    for record in [] if arguments.json else records:
        print("\n".join(_describe(record)))
    return 0


def _describe(record: Record) -> list[str]:
    owner = f"process {record['owner']}"
    state = f"in use by {owner}" if record["owner_lives"] else f"left by {owner}, which has gone"
    since = ""
    if record["started"] is not None:
        since = time.strftime(", since %H:%M:%S", time.localtime(record["started"]))
    lines = [f"{record['id']}: {state}{since}"]
    for process in record["processes"]:
        ports = ", ".join(str(port) for port in process["ports"])
        where = f", listens at {ports}" if ports else ""
        lines.append(f"  {process['process']:>8}  {process['name']}{where}")
    if not record["processes"]:
        lines.append("  no process; its temporary files are left")
    return lines


def run_stop(arguments: argparse.Namespace) -> int:
    """End the chosen clusters, say which, and return 0.

    Raises CourseError for an id that no cluster has, and for a process that can't be
    ended.
    """
    from utils.processes.registry import end_cluster

    chosen = _choose(arguments.id, arguments.all)
    ended = [(cluster.mark.identity, end_cluster(cluster.mark.identity)) for cluster in chosen]
    if arguments.json:
        print(json.dumps({"ended": [{"id": i, "processes": n} for i, n in ended]}, indent=2))
        return 0
    for identity, killed in ended:
        print(f"{identity}: ended, {killed} process{'es' * (killed != 1)}")
    if not ended:
        print("nothing was left; `distlab processes list` shows the clusters in use")
    return 0


def _choose(identity: str | None, everything: bool) -> "list[FoundCluster]":
    from utils.processes.registry import find_clusters

    if identity is None:
        return [c for c in find_clusters() if everything or not c.mark.owner_lives]
    found = find_clusters(identity)
    if not found:
        known = ", ".join(cluster.mark.identity for cluster in find_clusters())
        choices = f"Choose from {known}" if known else "No cluster is running"
        raise CourseError(f"There is no cluster {identity}. {choices}.")
    return found
