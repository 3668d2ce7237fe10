"""`distlab simulate failures`: how often to save, and what is left of the time."""

import argparse
import json

import numpy as np

from distlab import figures
from distlab.cli.parser import Commands, add_command
from distlab.cli.simulate_options import add_picture, format_table, write_picture
from distlab.figures import Picture
from utils.checks import check_count, check_number
from utils.simulate.failures import (
    best_interval_seconds,
    daly_interval_seconds,
    effective_time_fraction,
    group_mtbf_seconds,
    young_interval_seconds,
)


def add_parser(models: Commands) -> None:
    parser = add_command(
        models, "failures", run,
        "the best checkpoint interval, and the share of time that trains",
        "A failure of any node stops the run; failures are exponential. The cost of "
        "an interval T is Daly's exact M e^(R/M) (e^((T+D)/M) - 1) / T, with M the time between "
        "failures of all nodes together.",
    )  # fmt: skip
    add = parser.add_argument
    add("--nodes", required=True, type=int, metavar="N")
    add("--node-mtbf-hours", required=True, type=float, metavar="H",
        help="mean time between failures of one node")  # fmt: skip
    add("--checkpoint-seconds", required=True, type=float, metavar="D", help="to save once")
    add("--restart-seconds", required=True, type=float, metavar="R", help="after a failure")
    add("--interval-seconds", type=float, metavar="T",
        help="of work between two checkpoints (the best one)")  # fmt: skip
    parser.add_json()
    add_picture(parser, "the time that trains against the interval")


def run(arguments: argparse.Namespace) -> int:
    check_count("nodes", arguments.nodes)
    check_number("node MTBF in hours", arguments.node_mtbf_hours, above=0)
    save = check_number("checkpoint seconds", arguments.checkpoint_seconds, above=0)
    restart = check_number("restart seconds", arguments.restart_seconds, least=0)
    mtbf = group_mtbf_seconds(arguments.node_mtbf_hours * 3600, arguments.nodes)
    best = best_interval_seconds(save, mtbf)
    interval = best if arguments.interval_seconds is None else arguments.interval_seconds
    check_number("interval seconds", interval, above=0)
    result = {
        "optimal_interval_seconds": best,
        "young_seconds": young_interval_seconds(save, mtbf),
        "daly_seconds": daly_interval_seconds(save, mtbf),
        "effective_training_time": effective_time_fraction(interval, save, mtbf, restart),
    }
    if arguments.picture:
        write_picture(arguments.picture, lambda: draw(save, mtbf, restart, interval))
    print(json.dumps(result) if arguments.json else tabulate(result, arguments, mtbf, interval))
    return 0


def tabulate(result: dict, arguments: argparse.Namespace, mtbf: float, interval: float) -> str:
    head = f"{arguments.nodes:,} nodes: a failure every {mtbf / 3600:,.3g} h on average"
    rows = [
        ("best interval", f"{result['optimal_interval_seconds']:,.1f} s"),
        ("Young", f"{result['young_seconds']:,.1f} s"),
        ("Daly", f"{result['daly_seconds']:,.1f} s"),
        (f"trains at {interval:,.0f} s", f"{result['effective_training_time']:.1%} of the time"),
    ]
    return format_table(head, rows)


def draw(save: float, mtbf: float, restart: float, interval: float) -> Picture:
    """Return effective time against the interval, with the chosen one marked."""
    best = best_interval_seconds(save, mtbf)
    tried = np.geomspace(min(best, interval) / 10, max(best, interval) * 10, 120)
    share = [100 * effective_time_fraction(float(t), save, mtbf, restart) for t in tried]
    return figures.lines(
        {"time that trains": (tried / 60, share)}, x_label="minutes between checkpoints",
        y_label="% of the time", title="What saves, failures and restarts leave", log_x=True,
        marks={"chosen": interval / 60} if interval != best else {"best": best / 60},
    )  # fmt: skip
