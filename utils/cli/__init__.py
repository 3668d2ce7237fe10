"""The command `distlab`. Each subcommand is one module of this package.

A command module has `add_parser(subparsers)`, which declares its options and
sets `run=` to a function that takes the parsed arguments and returns an exit
status. Command modules import TensorFlow only inside `run`, so that
`distlab --help` answers at once.
"""

import argparse
import importlib
import os
import sys
from typing import NoReturn

from utils.errors import CourseError

COMMANDS = ("lab", "doctor", "data", "train", "build")


class OneLineParser(argparse.ArgumentParser):
    """A parser whose errors are one line (what was wrong, what is allowed) and exit status 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def make_parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="distlab", description="Distributed training with TensorFlow: the course's command."
    )
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in COMMANDS:
        importlib.import_module(f"utils.cli.{name}").add_parser(subparsers)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run `distlab` with `arguments` (those of the shell when None); return the exit status.

    0: done; 1: a check found something; 2: the input was wrong, in one line on
    standard error; 130: interrupted.
    """
    parsed = make_parser().parse_args(arguments)
    try:
        return parsed.run(parsed)
    except CourseError as error:
        print(f"distlab {parsed.command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"distlab {parsed.command}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `distlab … | head`: the reader has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
