"""`distlab simulate step`: one data-parallel step, with its all-reduce in buckets."""

import argparse
import json

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
from utils.checks import check_count
from utils.measure import count, format_bytes
from utils.simulate.step import BUCKET_BYTES, Network, StepRun, StepWork, simulate_step
from utils.simulate.stragglers import draw_slowest

MAX_DRAWN = 400
MAX_DRAWN_WORKERS, DRAWN_STEPS = 20_000, 100


def add_parser(models: Commands) -> None:
    parser = add_command(
        models, "step", run,
        "a data-parallel step: compute, all-reduce in buckets, overlap, stragglers",
        "Gradients become ready evenly over the backward pass and are all-reduced by "
        "a ring, bucket by bucket, on a link that carries one at a time. The step ends with the "
        "later of compute and the last bucket.",
    )  # fmt: skip
    add = parser.add_argument
    add("--forward-seconds", required=True, type=float, metavar="F")
    add("--backward-seconds", required=True, type=float, metavar="B")
    add("--gradient-bytes", required=True, type=read_bytes, metavar="N")
    add("--devices", required=True, type=int, metavar="P")
    add_network(parser)
    add("--bucket-bytes", type=read_bytes, default=BUCKET_BYTES, metavar="K",
        help="the last bucket is smaller (25 MiB)")  # fmt: skip
    add("--no-overlap", action="store_true", help="reduce after the whole backward pass")
    add("--straggler-sigma", type=float, default=0.0, metavar="S",
        help="each device's compute takes a lognormal factor of mean 1; the step waits for the "
        "largest, taken at its expectation (0)")  # fmt: skip
    add("--seed", type=int, default=0, metavar="S",
        help="of the slowest devices that the table gives as a check (0)")  # fmt: skip
    parser.add_json()
    add_picture(parser, "compute and buckets over time")


def run(arguments: argparse.Namespace) -> int:
    work = StepWork(arguments.forward_seconds, arguments.backward_seconds, arguments.gradient_bytes)
    network = Network(make_link(arguments), read_nodes(arguments))
    check_count("seed", arguments.seed, 0)
    step = simulate_step(
        work, arguments.devices, network, bucket_bytes=arguments.bucket_bytes,
        overlap=not arguments.no_overlap, straggler_sigma=arguments.straggler_sigma,
    )  # fmt: skip
    if arguments.picture:
        write_picture(arguments.picture, lambda: draw(step))
    print(json.dumps(summarize(step)) if arguments.json else tabulate(step, arguments))
    return 0


def summarize(step: StepRun) -> dict[str, float]:
    """Return what `--json` prints."""
    return {
        "step_seconds": step.step_seconds,
        "exposed_communication_seconds": step.exposed_communication_seconds,
        "efficiency": step.efficiency,
    }


def tabulate(step: StepRun, arguments: argparse.Namespace) -> str:
    head = f"{count(step.devices, 'device')}, "
    head += f"{format_bytes(step.work.gradient_bytes)} of gradients in {len(step.ends):,} buckets"
    rows = [
        ("step", format_seconds(step.step_seconds)),
        ("compute of one device", format_seconds(step.work.compute_seconds)),
        ("waiting for the slowest", format_seconds(step.straggler_seconds)),
        ("all-reduce", format_seconds(step.communication_seconds)),
        ("of it not hidden", format_seconds(step.exposed_communication_seconds)),
        ("efficiency", f"{step.efficiency:.1%}"),
    ]
    if arguments.straggler_sigma and step.devices <= MAX_DRAWN_WORKERS:
        drawn = draw_slowest(
            step.devices, arguments.straggler_sigma, DRAWN_STEPS, arguments.seed
        ).mean()
        expected = step.compute_seconds / step.work.compute_seconds
        words = f"{expected:.3f} x expected, {drawn:.3f} x in {DRAWN_STEPS} steps drawn"
        rows.insert(3, ("slowest device", words))
    return format_table(head, rows)


def draw(step: StepRun) -> Picture:
    """Return the step as a timeline; CourseError where there is too much to draw."""
    if len(step.ends) > MAX_DRAWN:
        raise CourseError(
            f"--picture: {len(step.ends):,} buckets are too many to draw: choose larger ones "
            f"(at most {MAX_DRAWN})"
        )
    longest = step.step_seconds
    scale, unit = next(
        u for u in ((1, "s"), (1e3, "ms"), (1e6, "us")) if longest * u[0] >= 1 or u[0] == 1e6
    )
    rows = [(lane, a * scale, b * scale, label, kind) for lane, a, b, label, kind in step.rows()]
    return figures.timeline(rows, title=f"One step of {step.devices:,} devices", unit=unit)
