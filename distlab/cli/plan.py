"""`distlab plan`: measure, read or describe a model, and predict what training it takes."""

import argparse
import functools
import json
import os
import sys
from dataclasses import fields, replace

from distlab.cli import plan_report as report
from distlab.cli.parser import Commands, add_command
from distlab.cli.simulate import add_fields, as_type, make
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
SIZES = "numbers of devices, such as 1,8,64 or 1-16 [the machine's, else 1,2,4,8]"
STAND_IN = Profile(
    1.0, 2.0, 1e6, flops_per_example=1.0, latency_seconds=0.0, bandwidth_bytes_per_second=1e9
)
NAMES = f"Machines: {', '.join(MACHINES)}. Networks: a rate, or {', '.join(NETWORKS)}."
COMMON = ("price", "node_mtbf_hours")  # apply to both kinds of plan


def add_parser(subparsers: Commands) -> None:
    summary = "predict a run on one device or thousands: time, bottleneck, cost"
    parser = add_command(subparsers, "plan", run, summary, DESCRIPTION, NAMES)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--builtin-model", choices=MEASURED, help="calibrate on a model of the course"
    )
    source.add_argument("--profile", metavar="FILE", help="JSON: the profile of an earlier plan")
    source.add_argument("--model", metavar="MODULE:FUNCTION", help="calibrate on your keras.Model")
    add_fields(source, Run, only=("parameters",))
    add = parser.add_argument
    text = '"64 H100, 8 a node, 400Gb/s" for each node, or 8x400Gb/s for each GPU'
    add("--machine", type=as_type(find_machine), metavar="NAME", help=text)
    rate = '400Gb/s, "10us 400Gb/s", or a measured all-reduce'
    add("--network", type=as_type(read_network), metavar="RATE|FILE", help=rate)
    add("--devices", type=as_type(parse_sizes), metavar="LIST", help=SIZES)
    add(
        "--batch", type=int, metavar="N", help="with --builtin-model and --model: examples per step"
    )
    add_fields(parser, Scenario, only=COMMON)
    measured = parser.add_argument_group("only with --builtin-model, --model or --profile")
    add_fields(measured, Scenario, but=COMMON)
    shaped = parser.add_argument_group("only with --parameters")
    add_fields(shaped, Run, but=("parameters", *COMMON))
    shaped.add_argument(
        "--layout", type=as_type(parse_layout), help="such as data=8,tensor=8,zero=1"
    )
    shaped.add_argument("--explain", action="store_true", help="print the reason for each number")
    parser.add_json()


def run(arguments: argparse.Namespace) -> int:
    machine, network = arguments.machine, arguments.network
    if machine is not None and network is not None:
        machine, network = replace(machine, network=network), None
    sizes = arguments.devices or ((machine.count,) if machine and machine.count else (1, 2, 4, 8))
    if arguments.parameters is not None:
        refuse_others(arguments, Scenario, Run, "--parameters")
        return run_shape(arguments, machine, sizes)
    refuse_others(arguments, Run, Scenario, "a measured model")
    made = make(Scenario, arguments, devices=sizes, network=network, machine=machine)
    if arguments.profile:
        profile, checks = read_profile(arguments.profile), []
    else:
        if arguments.batch is None:
            arguments.batch = MEASURED.get(arguments.builtin_model, 64)
        predict(replace(STAND_IN, batch=arguments.batch), made)  # fails now, if it will
        profile, checks = measure(arguments)
    rows = predict(profile, made)
    if arguments.json:
        print(json.dumps(report.summarize(profile, rows, checks)))
    else:
        print(report.tabulate(profile, rows, checks, made))
    return 0


def refuse_others(arguments: argparse.Namespace, wrong: type, right: type, source: str) -> None:
    """Raise CourseError for an option of `wrong` that a plan of `right` would ignore."""
    known = {each.name for each in fields(right)} | {"parameters"}
    usual = {f.name: f.default for f in fields(wrong) if "kind" in f.metadata}
    usual |= {"layout": None, "explain": False} if wrong is Run else {"batch": None}
    for name, default in usual.items():
        if name not in known and getattr(arguments, name) != default:
            option = f"--{name.replace('_', '-')}"
            raise CourseError(f"{option} doesn't apply to {source}. Leave it out.")


def run_shape(arguments: argparse.Namespace, machine: Machine | None, sizes: tuple) -> int:
    if machine is None:
        raise CourseError('--parameters also needs --machine, such as "64 H100, 400Gb/s".')
    asked, explain = make(Run, arguments), arguments.explain
    plans = [asked.plan(machine, size, arguments.layout) for size in sizes]
    if arguments.json:
        print(json.dumps(report.summarize_plans(plans, explain)))
    else:
        print(report.tabulate_plans(plans, explain))
    return 0


def measure(arguments: argparse.Namespace) -> tuple[Profile, list]:
    """Calibrate on this machine, then run 2 and 4 workers; return profile and checks."""
    from utils.cluster import ClusterError, make_launcher

    name = model = arguments.builtin_model or arguments.model
    if arguments.model:
        model = functools.partial(build_user_model, name, os.getcwd())
    if not arguments.json:
        print(f"distlab plan: measuring {name} with two processes", file=sys.stderr)
    launcher = make_launcher()
    try:
        profile = calibrate(model, arguments.batch, name=name, launcher=launcher)
        return profile, list(check_locally(model, profile, launcher=launcher))
    except ClusterError as error:
        bare = error.cause.removeprefix("InputError: ")  # of the user's model, not a worker's fault
        raise error if bare == error.cause else CourseError(bare) from None
    finally:
        launcher.close()
