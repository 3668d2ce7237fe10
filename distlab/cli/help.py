"""`distlab help [COMMAND]`: what a command does and takes."""

import argparse

from distlab.cli.parser import Commands


def add_parser(subparsers: Commands) -> None:
    """Declare `distlab help`."""
    parser = subparsers.add_parser("help", help="say what a command does and takes")
    parser.add_argument("words", nargs="*", metavar="COMMAND", help="train, or tf-config lint")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the help of the command that was named, of `distlab` where none was; return 0."""
    from distlab.cli import make_parser

    make_parser().find(arguments.words).print_help()
    return 0
