"""`distlab simulate parameter-server`: how fast asynchronous workers are, and how stale."""

import argparse
import json
from collections import Counter

from distlab import figures
from distlab.cli.parser import Commands, add_command
from distlab.cli.simulate_options import add_picture, format_table, write_picture
from distlab.figures import Picture
from utils.checks import check_count
from utils.measure import count
from utils.simulate.parameter_server import (
    MAX_UPDATES,
    make_cluster,
    simulate_parameter_server,
    synchronous_rate,
)

Result = dict[str, object]


def add_parser(models: Commands) -> None:
    parser = add_command(
        models, "parameter-server", run,
        "staleness and speed of asynchronous workers, next to synchronous rounds",
        "Workers that write each gradient as soon as they have it, one update each. "
        "An update is stale by the other updates between its read and its write. Next to it: "
        "synchronous rounds in which N workers run and the N-K fastest are waited for.",
    )  # fmt: skip
    add = parser.add_argument
    add("--workers", required=True, type=int, metavar="N")
    add("--step-seconds", required=True, type=float, metavar="MEAN",
        help="a worker's mean step under every distribution")  # fmt: skip
    add("--distribution", required=True, choices=("constant", "exponential", "lognormal"))
    add("--sigma", type=float, default=0.5, metavar="S",
        help="of lognormal: the standard deviation of the logarithm (%(default)g)")  # fmt: skip
    add("--backup-workers", type=int, default=0, metavar="K",
        help="workers that a synchronous round does not wait for (0)")  # fmt: skip
    add("--slow-worker", type=float, default=1.0, metavar="FACTOR",
        help="worker 0 takes FACTOR times as long (1)")  # fmt: skip
    add("--updates", required=True, type=int, metavar="U")
    add("--seed", type=int, default=0, metavar="S")
    parser.add_json()
    add_picture(parser, "how many updates were how stale")


def run(arguments: argparse.Namespace) -> int:
    cluster = make_cluster(
        arguments.workers, arguments.step_seconds, arguments.distribution,
        sigma=arguments.sigma, slow_factor=arguments.slow_worker,
    )  # fmt: skip
    check_count("updates", arguments.updates, 1, MAX_UPDATES)
    seed = check_count("seed", arguments.seed, 0)
    rate = synchronous_rate(cluster, arguments.updates, backup=arguments.backup_workers, seed=seed)
    free = simulate_parameter_server("asynchronous", cluster, arguments.updates, seed=seed)
    counts = Counter(free.staleness)
    result = {
        "mean_staleness": free.mean_staleness,
        "staleness_histogram": {str(stale): counts[stale] for stale in sorted(counts)},
        "updates_per_second": free.updates_per_second,
        "synchronous_updates_per_second": rate,
    }
    if arguments.picture:
        write_picture(arguments.picture, lambda: draw(counts, arguments))
    print(json.dumps(result) if arguments.json else tabulate(result, arguments))
    return 0


def tabulate(result: Result, arguments: argparse.Namespace) -> str:
    workers = count(arguments.workers, "worker")
    head = f"{workers}, {arguments.distribution} steps of {arguments.step_seconds:g} s, "
    waited = arguments.workers - arguments.backup_workers
    rows = [
        ("mean staleness", f"{result['mean_staleness']:,.4g}"),
        ("largest staleness", f"{int(list(result['staleness_histogram'])[-1]):,}"),
        ("asynchronous", f"{result['updates_per_second']:,.4g} updates a second"),
        ("synchronous", f"{result['synchronous_updates_per_second']:,.4g} gradients a second, "
         f"{waited:,} a round"),
    ]  # fmt: skip
    return format_table(f"{head}{arguments.updates:,} updates", rows)


def draw(counts: Counter[int], arguments: argparse.Namespace) -> Picture:
    """Return the share of updates by staleness."""
    stale, total = sorted(counts), sum(counts.values())
    shares = [100 * counts[number] / total for number in stale]
    title = f"How stale the updates of {arguments.workers:,} asynchronous workers are"
    return figures.lines(
        {"updates": (stale, shares)}, x_label="other updates in between", y_label="% of updates",
        title=title,
    )  # fmt: skip
