"""`distlab classroom`: a room full of laptops trains one model, and the teacher sees every lane."""

import argparse
import sys
from typing import TYPE_CHECKING, Any

from distlab.cli.parser import Commands, OneLineParser, add_command
from distlab.cli.starting import add_network

if TYPE_CHECKING:
    from utils.engines import RunReport

PORT, WORKERS, JOIN_SECONDS = 2950, 8, 600.0
SETTINGS = (
    "epochs",
    "examples",
    "global_batch_size",
    "hidden_units",
    "optimizer",
    "learning_rate",
    "checkpoint_every",
    "pause_seconds",
    "seed",
)
PLACE = ("name", "logs", "advertise_address", "join_seconds", "trust_network")
EPILOG = (
    "The command asks for the code, or reads it from the environment variable DISTLAB_CODE. "
    "docs/classroom.md has the lesson plan."
)


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
        each.add_argument(
            "address", metavar="ADDRESS", help="the teacher's address: HOST or HOST:PORT"
        )
        _add_place(each, with_address=True)
    test.add_argument(
        "--machines",
        type=int,
        default=2,
        metavar="N",
        help="wait for N machines, this one included",
    )


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
    add = start.add_argument
    add(
        "--workers",
        type=int,
        default=WORKERS,
        metavar="N",
        help="train on N laptops, this one included; Enter starts with fewer",
    )
    add(
        "--advertise-address",
        metavar="ADDRESS",
        help="this machine's address in the room's network [found automatically]",
    )
    add("--port", type=int, default=PORT, metavar="N", help="port to listen on")
    add("--epochs", type=int, default=20, metavar="N", help="train for N epochs")
    add("--examples", type=int, default=2560, metavar="N", help="images per epoch")
    add(
        "--global-batch-size",
        type=int,
        default=128,
        metavar="N",
        help="images per step, over all laptops",
    )
    add("--hidden-units", type=int, default=32, metavar="N", help="hidden units of the network")
    add("--optimizer", default="momentum", metavar="NAME", help="sgd, momentum or adam")
    add("--learning-rate", type=float, default=0.05, metavar="X", help="learning rate")
    add(
        "--checkpoint-every",
        type=int,
        default=20,
        metavar="N",
        help="save a checkpoint every N steps",
    )
    add(
        "--pause-seconds",
        type=float,
        default=0.25,
        metavar="X",
        help="sleep this long before each step, so that the room can follow",
    )
    add("--seed", type=int, default=0, metavar="N", help="seed of the initial weights")
    add(
        "--max-restarts",
        type=int,
        default=20,
        metavar="N",
        help="restart all laptops up to N times after one is lost",
    )
    add(
        "--checkpoint-dir",
        metavar="DIR",
        help="resume from the checkpoint in this folder [a new folder]",
    )
    _add_place(start, with_address=False)
    start.add_json()


def _add_place(parser: OneLineParser, with_address: bool) -> None:
    add = parser.add_argument
    add("--name", metavar="NAME", help="the name that the others see [your login]")
    add("--logs", metavar="DIR", help="folder for logs and checkpoints [runs/class-TIME]")
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
        **_take(arguments, PLACE[:2] + PLACE[3:]),
        checkpoint_dir=arguments.checkpoint_dir,
    )
    settings = ClassSettings(**_take(arguments, SETTINGS))
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

    report = join(arguments.address, **_take(arguments, PLACE))
    if report.status and not report.seconds:
        say("you have left the class; type the same line again to come back")
    else:
        _report(report, False)
    return report.status


def run_test(arguments: argparse.Namespace) -> int:
    """Try the connections; return 0 if all are open, 1 if one is closed."""
    from distlab.classroom.joining import try_connections
    from distlab.classroom.meeting import say

    report = try_connections(arguments.address, arguments.machines, **_take(arguments, PLACE))
    if report.cause is None:
        say(f"{report.workers} machines reach each other in both directions")
    else:
        say(f"not all is well: {report.cause}")
    return report.status


def _take(arguments: argparse.Namespace, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(arguments, name) for name in names}


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
