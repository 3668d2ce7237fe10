"""`distlab classroom`: a room full of laptops trains one model, and the teacher sees every lane."""

import argparse
import sys
from collections.abc import Iterable
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from distlab.cli.parser import Commands, OneLineParser, add_command, declare
from distlab.cli.starting import add_network

if TYPE_CHECKING:
    from utils.engines import RunReport

JOIN_SECONDS = 600.0
PLACE = ("name", "logs", "trust_network")
EPILOG = (
    "The command asks for the code, or reads it from the environment variable DISTLAB_CODE. "
    "docs/classroom.md has the lesson plan."
)
START = """
--workers N=8  train on N laptops, this one included; Enter starts with fewer
--advertise-address ADDRESS  this machine's address in the room's network [found automatically]
--port N=2950  port to listen on
--epochs N=20  train for N epochs
--examples N=2560  images per epoch
--global-batch-size N=128  images per step, over all laptops
--hidden-units N=32  hidden units of the network
--optimizer NAME=momentum  sgd, momentum or adam
--learning-rate X=0.05  learning rate
--checkpoint-every N=20  save a checkpoint every N steps
--pause-seconds X=0.25  sleep this long before each step, so that the room can follow
--seed N=0  seed of the initial weights
--max-restarts N=20  restart all laptops up to N times after one is lost
--checkpoint-dir DIR  resume from the checkpoint in this folder [a new folder]
"""
PLACE_OPTIONS = """
--name NAME  the name that the others see [your login]
--logs DIR  folder for logs and checkpoints [runs/class-TIME]
"""


def add_parser(subparsers: Commands) -> None:
    text = "Train one model on all laptops of a class. The teacher sees what each laptop does."
    parser = subparsers.add_parser("classroom", help="train with a class", description=text)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    _add_start(actions)
    join = add_command(
        actions,
        "join",
        run_join,
        "join a class with this laptop",
        "Join a class. Your laptop runs the course's own training with the teacher's "
        "settings. Ctrl-C leaves the class.",
        EPILOG,
    )
    test = add_command(
        actions,
        "test",
        run_test,
        "test the connections the day before",
        "Test if the laptops reach each other, without training. If no class runs yet, the machine "
        "that owns ADDRESS waits for the others.",
        EPILOG,
    )
    for each in (join, test):
        declare(each, "ADDRESS  the teacher's address: HOST or HOST:PORT")
        _add_place(each, with_address=True)
    declare(test, "--machines N=2  wait for N machines, this one included")


def _add_start(actions: Commands) -> None:
    start = add_command(
        actions,
        "start",
        run_start,
        "host a class on the teacher's laptop",
        "Host a class. It shows the address and the code that students type, waits for them, and "
        "trains with them. Ctrl-C ends the class on all laptops.",
        EPILOG,
    )
    declare(start, START)
    _add_place(start, with_address=False)
    start.add_json()


def _add_place(parser: OneLineParser, with_address: bool) -> None:
    declare(parser, PLACE_OPTIONS)
    add_network(parser, with_address, JOIN_SECONDS)


def run_start(arguments: argparse.Namespace) -> int:
    """Host a class to its end; return 0, or the status of the signal that stopped it."""
    from distlab.classroom.hosting import Classroom
    from distlab.classroom.meeting import ClassPlace, find_own_address, say
    from distlab.classroom.settings import ClassSettings
    from distlab.classroom.table import Table
    from utils.cluster.streams import clean_line
    from utils.tf_config import join_address

    host = arguments.advertise_address or find_own_address()
    place = ClassPlace(
        join_address(host, arguments.port),
        **_take(arguments, PLACE),
        join_seconds=arguments.join_timeout,
        checkpoint_dir=arguments.checkpoint_dir,
    )
    settings = ClassSettings(**_take(arguments, [each.name for each in fields(ClassSettings)]))
    tables: list[Table] = []

    def tell(text: str) -> None:
        tables[0].say(f"distlab classroom: {clean_line(text)}") if tables else say(text)

    room = Classroom(settings, place, arguments.workers, arguments.max_restarts, tell)
    room.announce()
    tables.append(Table(room.roll))
    try:
        report = room.run()
    finally:
        tables.pop().close()
    _report(report, arguments.json)
    for line in room.roll.describe_weights():
        say(line)
    say(f"the logs and the checkpoint are in {room.logs}")
    return report.status


def run_join(arguments: argparse.Namespace) -> int:
    """Take part in a class to its end; return its status."""
    from distlab.classroom.joining import join
    from distlab.classroom.meeting import say

    report = join(arguments.address, **_take_place(arguments))
    if report.status and not report.seconds:
        say("you have left the class; type the same line again to come back")
    else:
        _report(report, False)
    return report.status


def run_test(arguments: argparse.Namespace) -> int:
    """Try the connections; return 0 if all are open, 1 if one is closed."""
    from distlab.classroom.joining import try_connections
    from distlab.classroom.meeting import say

    report = try_connections(arguments.address, arguments.machines, **_take_place(arguments))
    if report.cause is None:
        say(f"{report.workers} machines reach each other in both directions")
    else:
        say(f"not all is well: {report.cause}")
    return report.status


def _take(arguments: argparse.Namespace, names: Iterable[str]) -> dict[str, Any]:
    return {name: getattr(arguments, name) for name in names}


def _take_place(arguments: argparse.Namespace) -> dict[str, Any]:
    place = _take(arguments, (*PLACE, "advertise_address"))
    return place | {"join_seconds": arguments.join_timeout}


def _report(report: "RunReport", as_json: bool) -> None:
    """Say how a class has ended."""
    from distlab.classroom.meeting import say

    if report.cause:
        say(report.cause)
    elif report.status:
        say("the class was ended before its last step")
    again = f", {report.restarts} restart{'s' * (report.restarts != 1)}" * bool(report.restarts)
    if report.tasks:
        say(f"{report.workers} laptop{'s' * (report.workers != 1)}, {report.seconds:.0f} s{again}")
    if as_json:
        print(report.to_json(), file=sys.stdout, flush=True)
