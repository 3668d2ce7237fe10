"""`distlab simulate`: what training would cost on machines you name, one model a command."""

from distlab.cli import (
    simulate_all_reduce,
    simulate_failures,
    simulate_memory,
    simulate_parameter_server,
    simulate_pipeline,
    simulate_step,
)
from distlab.cli.parser import Commands


def add_parser(subparsers: Commands) -> None:
    parser = subparsers.add_parser(
        "simulate",
        help="predict steps, all-reduces, pipelines, parameter servers, failures, memory",
        description="Predict a part of what distributed training costs, from its inputs.",
    )
    models = parser.add_subparsers(dest="model", metavar="MODEL", required=True)
    for model in (
        simulate_step, simulate_all_reduce, simulate_pipeline, simulate_parameter_server,
        simulate_failures, simulate_memory,
    ):  # fmt: skip
        model.add_parser(models)
