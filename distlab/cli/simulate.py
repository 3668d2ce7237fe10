"""`distlab simulate`: one command, made from the simulators' questions (`utils.simulate`)."""

import argparse
import functools
import json
from dataclasses import MISSING, fields
from typing import Any

from distlab.cli.parser import Commands, add_command
from utils.errors import InputError
from utils.measure import format_bytes
from utils.simulate.questions import QUESTIONS
from utils.simulate.units import format_seconds, parse_rate, parse_time, parse_whole

RATIOS = ("efficiency", "fraction", "effective")


def as_type(parse: Any) -> Any:
    """Return `parse` as an argparse type, so that its own sentence reaches the user."""

    def read(text: str) -> Any:
        try:
            return parse(text)
        except InputError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


TYPES = {
    "number": float,
    "text": str,
    "whole": int,
    "large": as_type(parse_whole),
    "rate": as_type(parse_rate),
    "time": as_type(parse_time),
}


def add_parser(subparsers: Commands) -> None:
    parser = subparsers.add_parser(
        "simulate",
        help="predict steps, all-reduces, pipelines, parameter servers, failures, memory",
        description="Predict one part of what distributed training costs, from its inputs.",
    )
    models = parser.add_subparsers(dest="model", metavar="MODEL", required=True)
    for name, question in QUESTIONS.items():
        summary, _, more = question.__doc__.partition("\n\n")
        summary = summary.removeprefix("Predict ").rstrip(".")
        asked = add_command(
            models, name, functools.partial(run, name), f"predict {summary}", " ".join(more.split())
        )
        add_fields(asked, question)
        asked.add_json()


def add_fields(parser: Any, question: type, only: tuple = (), but: tuple = ()) -> None:
    """Declare an option for each field of a question: those in `only`, or all `but` some."""
    for each in fields(question):
        if "kind" not in each.metadata or each.name in but or (only and each.name not in only):
            continue
        kind, help, default = each.metadata["kind"], each.metadata["help"], each.default
        option, choices = "--" + each.name.replace("_", "-"), each.metadata["choices"]
        if kind == "flag":
            parser.add_argument(option, action="store_true", help=help)
            continue
        words = {"choices": choices} if choices else {"metavar": kind.upper()}
        words |= {"required": True} if default is MISSING and not only else {}
        if default not in (None, MISSING):
            words["default"], help = default, f"{help} [{default}]"
        parser.add_argument(option, type=TYPES[kind], help=help, **words)


def run(name: str, arguments: argparse.Namespace) -> int:
    asked = make(QUESTIONS[name], arguments)
    answer = asked.answer()
    head = f"{name}: {describe(asked)}"
    print(json.dumps(answer) if arguments.json else tabulate(head, answer))
    return 0


def make(question: type, arguments: argparse.Namespace, **others: Any) -> Any:
    """Return the question that the options describe."""
    names = [each.name for each in fields(question) if "kind" in each.metadata]
    return question(**{name: getattr(arguments, name) for name in names}, **others)


def describe(asked: Any) -> str:
    """Return the question on one line: every field that isn't at its default."""
    words = []
    for each in fields(asked):
        name, value = each.name.replace("_", " "), getattr(asked, each.name)
        if value != each.default:
            shown = "" if value is True else f" {format_value(each.metadata['kind'], value)}"
            words.append(name + shown)
    return ", ".join(words)


def tabulate(head: str, answer: dict[str, Any]) -> str:
    """Return a line with the question, and below it one for each part of the answer."""
    rows = []
    for name, value in answer.items():
        if isinstance(value, dict) and name.endswith("histogram"):
            value = f"{list(value)[0]} to {list(value)[-1]}"
        parts = value if isinstance(value, dict) else {"": value}
        rows += [
            (f"{name} {part}".replace("_", " ").strip(), format_value(name, each))
            for part, each in parts.items()
        ]
    wide = max(len(name) for name, _ in rows) + 2
    return "\n".join([head, *(f"  {name:<{wide}}{value}" for name, value in rows)])


def format_value(name: str, value: Any) -> str:
    """Return a value for people; `name` says what it is."""
    if isinstance(value, list):
        return ", ".join(format_value(name, each) for each in value)
    if isinstance(value, str):
        return value
    if "bandwidth" in name or name == "rate":
        return f"{value / 1e9:,.4g} GB/s"
    if name.endswith("seconds") or name == "time":
        return format_seconds(value)
    if "bytes" in name:
        return f"{value:,.0f} ({format_bytes(value)})"
    if any(word in name for word in RATIOS):
        return f"{value:.2%}"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"
