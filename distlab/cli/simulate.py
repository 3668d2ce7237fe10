"""`distlab simulate`: what a pipeline or an all-reduce would cost on machines you name."""

from distlab.cli import simulate_all_reduce, simulate_pipeline
from distlab.cli.parser import Commands


def add_parser(subparsers: Commands) -> None:
    """Declare `distlab simulate` and its models."""
    parser = subparsers.add_parser(
        "simulate",
        help="predict the cost of a pipeline or an all-reduce from its inputs",
        description="Predict what a pipeline schedule or an all-reduce costs, from its inputs.",
    )
    models = parser.add_subparsers(dest="model", metavar="MODEL", required=True)
    simulate_all_reduce.add_parser(models)
    simulate_pipeline.add_parser(models)
