"""`distlab plan`: measure or read what a model costs on one device, predict it on many."""

import argparse
import functools
import json
import os
import sys
from typing import Any

from distlab import figures
from distlab.cli.parser import Commands, add_command
from distlab.cli.simulate_options import (
    NODE_OPTIONS,
    add_network,
    add_picture,
    format_seconds,
    make_link,
    read_count,
    read_nodes,
    write_picture,
)
from distlab.cli.user_model import build_user_model
from distlab.errors import CourseError
from distlab.figures import Picture
from utils.calibrate import (
    Check,
    Choice,
    Prediction,
    Profile,
    calibrate,
    check_locally,
    find_machine,
    predict,
    read_profile,
)
from utils.calibrate.machines import MACHINES, NETWORKS, USUAL_MFU
from utils.calibrate.prediction import SCALINGS
from utils.simulate.step import Network

MEASURED = {"mlp": 64, "cnn": 64, "transformer": 64, "unet": 8}  # with the usual batch
USUAL_BATCH = 64
MAX_SIZES = 10_000
WAITS_FOR_INPUT = (
    "(100 % efficiency is a device that never waits. Here it waits for its input, on one device "
    "already.)"
)
COLUMNS = ("devices", "step", "low", "high", "efficiency", "limit", "hours", "cost")


def add_parser(subparsers: Commands) -> None:
    parser = add_command(
        subparsers, "plan", run,
        "predict a run from one device to thousands: time, limit, cost",
        "Predict the step, efficiency (compared with devices that never wait), "
        "limit, hours and cost of a run on many devices. "
        "--measure and --model calibrate on this machine with two processes, predict 2 and 4 "
        "local workers, and run them; --profile reads what was measured before (the profile "
        "that --json prints).",
        f"Machines: {', '.join(MACHINES)}; networks: a rate, or {', '.join(NETWORKS)}. "
        "A machine's devices compute at --mfu of their peak.",
    )  # fmt: skip
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--measure", choices=MEASURED, help="calibrate on a model of ours")
    source.add_argument("--profile", metavar="FILE", help="JSON: the profile of a plan")
    source.add_argument("--model", metavar="MODULE:FUNCTION",
                        help="calibrate on a built keras.Model of yours")  # fmt: skip
    add = parser.add_argument
    add("--devices", metavar="LIST", help="sizes, such as 1,8,64 or 1-16 (1,2,4,8)")
    add("--scaling", choices=SCALINGS, default="weak",
        help="weak: each device keeps its batch; strong: all share it (%(default)s)")  # fmt: skip
    add("--batch", type=int, metavar="N",
        help=f"examples a step on one device, measured ({USUAL_BATCH}; "
        f"{MEASURED['unet']} of unet)")  # fmt: skip
    add("--examples", type=read_count, metavar="N", help="in an epoch, for hours and cost")
    add("--epochs", type=float, metavar="E", help="for hours and cost")
    add_network(parser, required=False)
    add("--tensor-parallel", type=int, default=1, metavar="T", help="(1)")
    add("--pipeline-parallel", type=int, default=1, metavar="S", help="(1)")
    add("--node-mtbf-hours", type=float, metavar="H", help="mean time between a node's failures")
    add("--price-per-device-hour", type=float, metavar="X", help="for the cost")
    add("--machine", metavar="NAME", help='such as H100, or "64 H100 on 400 Gb/s"')
    add("--mfu", type=float, default=USUAL_MFU, metavar="F",
        help="of --machine: the part of its peak that a device reaches (%(default)g)")  # fmt: skip
    parser.add_json()
    add_picture(parser, "efficiency against devices")


def run(arguments: argparse.Namespace) -> int:
    if arguments.batch is None:
        arguments.batch = MEASURED.get(arguments.measure, USUAL_BATCH)
    choice = make_choice(arguments)
    if arguments.profile:
        profile, checks = read_profile(arguments.profile), []
        rows = predict(profile, choice)
    else:
        _check_before_measuring(arguments, choice)
        profile, checks = measure(arguments)
        rows = predict(profile, choice)
    if arguments.picture:
        write_picture(arguments.picture, lambda: draw(rows))
    report = summarize(profile, rows, checks)
    print(json.dumps(report) if arguments.json else tabulate(profile, rows, checks, choice))
    return 0


def make_choice(arguments: argparse.Namespace) -> Choice:
    """Return what the options ask for. Raises CourseError or InputError in one line."""
    machine = None if arguments.machine is None else find_machine(arguments.machine)
    devices = read_devices(arguments.devices, machine.count if machine else None)
    return Choice(
        devices, arguments.scaling, arguments.examples, arguments.epochs, read_network(arguments),
        arguments.tensor_parallel, arguments.pipeline_parallel, arguments.node_mtbf_hours,
        arguments.price_per_device_hour, machine=machine, mfu=arguments.mfu,
    )  # fmt: skip


def read_devices(text: str | None, count: int | None) -> tuple[int, ...]:
    """Return the sizes in "1,8,64" or "1-16"; `count` or (1, 2, 4, 8) where there is no text."""
    if text is None:
        return (1, 2, 4, 8) if count is None else (count,)
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or len(part) > 30:
            raise CourseError(f"--devices {text!r}: give whole numbers, such as 1,8,64 or 1-16")
        low, high = int(first), int(last or first)
        if high - low >= MAX_SIZES or len(found) > MAX_SIZES:
            raise CourseError(f"--devices {text!r}: give at most {MAX_SIZES:,} sizes")
        found += range(low, high + 1)
    if not found:
        raise CourseError(f"--devices {text!r}: names no size")
    return tuple(found)


def read_network(arguments: argparse.Namespace) -> Network | None:
    """Return the network that the options describe, None where they describe none."""
    named = (arguments.latency_us, arguments.bandwidth_gbps)
    nodes = [getattr(arguments, name) for name in NODE_OPTIONS]
    if named == (None, None):
        if any(value is not None for value in nodes):
            raise CourseError("nodes also need --latency-us and --bandwidth-gbps, between them")
        return None
    if None in named:
        raise CourseError("--latency-us and --bandwidth-gbps: give both, or none")
    return Network(make_link(arguments), read_nodes(arguments))


def _check_before_measuring(arguments: argparse.Namespace, choice: Choice) -> None:
    """Raise what is wrong with the choice now, not after half a minute of measuring."""
    stand_in = Profile(1.0, 2.0, 1e6, batch=arguments.batch, operations_per_example=1.0,
                       latency_us=1.0, bandwidth_gbps=1.0)  # fmt: skip
    predict(stand_in, choice)


def measure(arguments: argparse.Namespace) -> tuple[Profile, list[Check]]:
    """Calibrate on this machine, then run 2 and 4 workers; return profile and checks."""
    from utils.cluster import ClusterError, make_launcher

    name = arguments.measure or arguments.model
    model = arguments.measure or functools.partial(build_user_model, arguments.model, os.getcwd())
    launcher = make_launcher()
    try:
        _say(arguments, f"measures {name} with two processes")
        profile = calibrate(model, arguments.batch, name=name, launcher=launcher)
        checks = []
        _say(arguments, "predicts 2 and 4 workers of this machine, and runs them")
        for check in check_locally(model, profile, launcher=launcher):
            checks.append(check)
    except ClusterError as error:
        bare = error.cause.removeprefix("InputError: ")  # of the user's model: no worker's fault
        raise error if bare == error.cause else CourseError(bare) from None
    finally:
        launcher.close()
    return profile, checks


def _say(arguments: argparse.Namespace, text: str) -> None:
    if not arguments.json:
        print(f"distlab plan: {text}", file=sys.stderr)


def summarize(profile: Profile, rows: list[Prediction], checks: list[Check]) -> dict[str, Any]:
    """Return what `--json` prints."""
    keys = ("devices", "step_seconds", "low", "high", "efficiency", "limit", "hours", "cost")
    return {
        "profile": profile.to_dict(),
        "predictions": [{key: getattr(row, key) for key in keys} for row in rows],
        "checks": [
            {"workers": c.workers, "predicted": c.predicted, "measured": c.measured,
             "low": c.low, "high": c.high} for c in checks
        ],
    }  # fmt: skip


def tabulate(profile: Profile, rows: list[Prediction], checks: list[Check], choice: Choice) -> str:
    """Return profile, checks and predictions as text."""
    lines = [
        f"{profile.model}: {format_seconds(profile.compute_seconds)} a step of {profile.batch} on "
        f"one device, {profile.gradient_bytes / 1e6:,.4g} MB of gradients"
    ]
    if choice.machine:
        lines.append(f"on {choice.machine.name} at {choice.mfu:.0%} of its peak "
                     f"({choice.machine.source}, {choice.machine.date})")  # fmt: skip
    for check in checks:
        lines.append(
            f"{check.workers} workers here: predicted {format_seconds(check.predicted)} "
            f"({format_seconds(check.low)} to {format_seconds(check.high)}), measured "
            f"{format_seconds(check.measured)}: {check.error:+.0%}"
        )
    lines += ["", "".join(f"{name:>13}" for name in COLUMNS)]
    lines += ["".join(f"{cell:>13}" for cell in list_cells(row)) for row in rows]
    if any(row.limit == "input" for row in rows):
        lines += ["", WAITS_FOR_INPUT]
    return "\n".join(lines)


def list_cells(row: Prediction) -> list[str]:
    """Return a row of the table."""
    seconds = [format_seconds(value) for value in (row.step_seconds, row.low, row.high)]
    bill = [("-" if value is None else f"{value:,.4g}") for value in (row.hours, row.cost)]
    return [f"{row.devices:,}", *seconds, f"{row.efficiency:.1%}", row.limit, *bill]


def draw(rows: list[Prediction]) -> Picture:
    """Return efficiency against devices; CourseError for one size."""
    ordered = sorted({row.devices: row for row in rows}.values(), key=lambda row: row.devices)
    if len(ordered) < 2:
        raise CourseError("--picture: one size makes no line: give --devices two or more")
    devices = [row.devices for row in ordered]
    return figures.lines(
        {"efficiency": (devices, [100 * row.efficiency for row in ordered])},
        x_label="devices", y_label="% of one device's throughput", log_x=True,
        title="What is left of each device",
    )  # fmt: skip
