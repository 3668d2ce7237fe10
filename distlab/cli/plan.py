"""`distlab plan`: measure, read or describe a model, and predict what training it takes."""

import argparse
import functools
import json
import os
import sys
from dataclasses import fields, replace
from typing import Any

from distlab.cli import plan_report as report
from distlab.cli.parser import Commands, add_command
from distlab.cli.simulate import add_fields, as_type
from distlab.cli.simulate_pictures import add_picture, write_picture
from distlab.cli.user_model import build_user_model
from distlab.errors import CourseError
from utils.calibrate import Profile, Scenario, calibrate, check_locally, predict, read_profile
from utils.simulate.layouts import parse_layout
from utils.simulate.machines import MACHINES, NETWORKS, Machine, find_machine, read_network
from utils.simulate.planner import Run
from utils.simulate.units import parse_sizes

MEASURED = {"mlp": 64, "cnn": 64, "transformer": 64, "unet": 8}  # with the usual batch
DESCRIPTION = (
    "Predict step, bottleneck, hours and cost of training on many devices. --builtin-model "
    "and --model calibrate on this machine with two processes, predict 2 and 4 local workers, and "
    "run them. --profile reads an earlier measurement (the profile that --json prints). "
    "--parameters describes a Transformer by its shape and finds the quickest layouts that fit."
)
EXAMPLES = (
    'Examples: distlab plan --builtin-model cnn --devices 1,8,64 --machine "H100 on 400Gb/s"; '
    "distlab plan --parameters 7e9 --layers 32 --hidden 4096 --sequence 4096 --tokens 1e12 "
    '--machine "64 H100, 8 a node, 400Gb/s" --price 3 --explain. '
    f"Machines: {', '.join(MACHINES)}; networks: a rate, or {', '.join(NETWORKS)}."
)


def add_parser(subparsers: Commands) -> None:
    summary = "predict a run on one device or thousands: time, bottleneck, cost"
    parser = add_command(subparsers, "plan", run, summary, DESCRIPTION, EXAMPLES)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--builtin-model", choices=MEASURED, help="calibrate on a model of the course"
    )
    source.add_argument("--profile", metavar="FILE", help="JSON: the profile of an earlier plan")
    source.add_argument("--model", metavar="MODULE:FUNCTION", help="calibrate on your keras.Model")
    add_fields(source, Run, only=("parameters",))
    add = parser.add_argument
    add("--machine", metavar="NAME", help='such as "64 H100, 8 a node, 400Gb/s"')
    add("--network", metavar="RATE|FILE", help='400Gb/s, "10us 400Gb/s", or a measured all-reduce')
    add("--devices", type=as_type(parse_sizes), metavar="LIST", help="such as 1,8,64 or 1-16")
    add("--batch", type=int, metavar="N", help="with --builtin-model and --model: examples a step")
    add_fields(parser.add_argument_group("measured models"), Scenario)
    shaped = parser.add_argument_group("models by their shape")
    add_fields(shaped, Run, but=("parameters", "price", "node_mtbf_hours"))
    shaped.add_argument(
        "--layout", type=as_type(parse_layout), help="such as data=8,tensor=8,zero=1"
    )
    shaped.add_argument("--explain", action="store_true", help="print the reason for each number")
    parser.add_json()
    add_picture(parser, "efficiency against devices")


def run(arguments: argparse.Namespace) -> int:
    network = None if arguments.network is None else read_network(arguments.network)
    machine = None if arguments.machine is None else find_machine(arguments.machine)
    if machine is not None and network is not None:
        rate, latency = network.link.bandwidth_bytes_per_second, network.link.latency_seconds
        machine = replace(
            machine,
            measured=network.measured,
            network_bytes_per_second=rate,
            network_latency_seconds=latency,
        )
        network = None
    sizes = arguments.devices or ((machine.count,) if machine and machine.count else (1, 2, 4, 8))
    if arguments.parameters is not None:
        return run_shape(arguments, machine, sizes)
    made = make(Scenario, arguments, devices=sizes, network=network, machine=machine)
    if arguments.profile:
        profile, checks = read_profile(arguments.profile), []
    else:
        if arguments.batch is None:
            arguments.batch = MEASURED.get(arguments.builtin_model, 64)
        predict(replace(STAND_IN, batch=arguments.batch), made)  # fails now, if it will
        profile, checks = measure(arguments)
    rows = predict(profile, made)
    if arguments.plot:
        write_picture(arguments.plot, lambda: report.draw(rows))
    told = report.summarize(profile, rows, checks)
    print(json.dumps(told) if arguments.json else report.tabulate(profile, rows, checks, made))
    return 0


STAND_IN = Profile(
    1.0,
    2.0,
    1e6,
    batch=64,
    flops_per_example=1.0,
    latency_seconds=1e-6,
    bandwidth_bytes_per_second=1e9,
)


def make(question: type, arguments: argparse.Namespace, **others: Any) -> Any:
    """Return the question that the options describe."""
    names = [each.name for each in fields(question) if "kind" in each.metadata]
    return question(**{name: getattr(arguments, name) for name in names}, **others)


def run_shape(arguments: argparse.Namespace, machine: Machine | None, sizes: tuple) -> int:
    if machine is None:
        raise CourseError('--parameters also needs --machine, such as "64 H100, 400Gb/s".')
    asked = make(Run, arguments)
    plans = [asked.plan(machine, size, arguments.layout) for size in sizes]
    if arguments.plot:
        write_picture(arguments.plot, lambda: report.draw_plans(plans))
    told = report.summarize_plans(plans, arguments.explain)
    print(json.dumps(told) if arguments.json else report.tabulate_plans(plans, arguments.explain))
    return 0


def measure(arguments: argparse.Namespace) -> tuple[Profile, list]:
    """Calibrate on this machine, then run 2 and 4 workers; return profile and checks."""
    from utils.cluster import ClusterError, make_launcher

    name = arguments.builtin_model or arguments.model
    model = arguments.builtin_model or functools.partial(
        build_user_model, arguments.model, os.getcwd()
    )
    if not arguments.json:
        print(f"distlab plan: measuring {name} with two processes", file=sys.stderr)
    launcher = make_launcher()
    try:
        profile = calibrate(model, arguments.batch, name=name, launcher=launcher)
        return profile, list(check_locally(model, profile, launcher=launcher))
    except ClusterError as error:
        bare = error.cause.removeprefix("InputError: ")  # of the user's model: no worker's fault
        raise error if bare == error.cause else CourseError(bare) from None
    finally:
        launcher.close()
