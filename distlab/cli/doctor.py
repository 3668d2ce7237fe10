"""`distlab doctor`: what this machine has, and which parts of the course work on it."""

import argparse
import json
import sys

from distlab.cli.parser import Commands, add_command, declare

WAIT_NOTE = "Trying TensorFlow in its own process takes some seconds (--quick leaves it out)."


def add_parser(subparsers: Commands) -> None:
    parser = add_command(
        subparsers,
        "doctor",
        run,
        "check this machine and the course's installation",
        "Check what this machine has, what works, what doesn't and why. "
        "The exit status is 1 if something that the course needs is broken.",
    )
    text = "skip the checks that start TensorFlow, and don't verify full data sets"
    declare(parser, f"--quick  {text}")
    parser.add_json()


def run(arguments: argparse.Namespace) -> int:
    """Examine and print; return 0 when the course can run here, else 1."""
    from distlab import doctor

    if not arguments.quick and not arguments.json and sys.stderr.isatty():
        print(WAIT_NOTE, file=sys.stderr, flush=True)
    findings = doctor.examine(quick=arguments.quick)
    if arguments.json:
        print(json.dumps(doctor.make_record(findings), indent=2))
    else:
        print(doctor.format_report(findings, plain=not _prints_symbols()))
    return 0 if doctor.can_run(findings) else 1


def _prints_symbols() -> bool:
    try:
        "✓✗–".encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True
