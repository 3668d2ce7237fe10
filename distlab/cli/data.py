"""`distlab data`: list, verify or download data sets."""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from distlab.cli.long_command import say_waiting
from distlab.cli.parser import Commands, OneLineParser, add_command, declare
from utils.data.catalog import DATA_SETS, FULL_EXAMPLES, find_facts
from utils.data.fetch import DOWNLOAD_SECONDS, fetch
from utils.data.verify import Place, list_places

NAMES = " or ".join(DATA_SETS)
FETCH = f"""
NAME  {NAMES}
--timeout SECONDS={DOWNLOAD_SECONDS:g}  give up after this long
--output OUTPUT  TFDS data folder [TFDS's own]
"""


def add_parser(subparsers: Commands) -> None:
    words = "list, verify or download data sets"
    text = "List, verify or download the data sets of the course."
    parser = add_command(subparsers, "data", show, words, text)
    parser.set_defaults(json=False)
    _add_json(parser)
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    _add_action(actions, "show", show, "list the data sets that were found (the default)")
    verifying = _add_action(
        actions, "verify", verify, "verify the content of the files; status 1 if any is damaged"
    )
    verifying.add_argument("name", nargs="?", metavar="NAME", help=f"{NAMES} [all]")
    fetching = _add_action(actions, "fetch", fetch_full, "download a full data set through TFDS")
    declare(fetching, FETCH, output={"type": Path})


def _add_action(
    actions: Commands, name: str, run: Callable[[argparse.Namespace], int], text: str
) -> OneLineParser:
    parser = add_command(actions, name, run, text)
    _add_json(parser)
    return parser


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help="print one JSON value"
    )


def show(arguments: argparse.Namespace) -> int:
    """Print what is found where, checked."""
    _print_places(list_places(), arguments.json)
    return 0


def verify(arguments: argparse.Namespace) -> int:
    """Check the content of the data that is here. Return 1 if something is damaged."""
    places = list_places(arguments.name)
    _print_places(places, arguments.json)
    return int(any(place.state == "damaged" for place in places))


def fetch_full(arguments: argparse.Namespace) -> int:
    """Download a full set, with a time limit."""
    facts = find_facts(arguments.name)
    _say(f"downloading {facts.title} through TFDS, {arguments.timeout:g} s at most ...")
    with say_waiting(f"distlab data fetch {arguments.name}", quiet=arguments.json):
        folder = fetch(facts.name, arguments.output, arguments.timeout)
    train, test = FULL_EXAMPLES["train"], FULL_EXAMPLES["test"]
    if arguments.json:
        found = {"name": facts.name, "folder": str(folder), "train_examples": train}
        print(json.dumps({**found, "test_examples": test}))
    else:
        print(f"{facts.name}: {train:,} training and {test:,} test examples in {folder}")
    return 0


def _print_places(places: list[Place], as_json: bool) -> None:
    if as_json:
        print(json.dumps([asdict(place) for place in places], indent=2))
        return
    rows = [("data set", "what", "training", "test", "state", "where")]
    rows += [
        (p.name, p.kind, _count(p.train_examples), _count(p.test_examples), p.state, p.folder)
        for p in places
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = (text.ljust(width) for text, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())
    for place in places:
        if place.problem:
            print(f"damaged: {place.problem}")
    for name in dict.fromkeys(place.name for place in places):
        if not any(p.name == name and p.kind != "bundled sample" for p in places):
            print(f"the full {name} isn't on this machine: `distlab data fetch {name}` gets it")


def _count(examples: int | None) -> str:
    return "-" if examples is None else f"{examples:,}"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
