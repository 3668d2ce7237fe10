"""`distlab run`: start any program that reads TF_CONFIG as the tasks of a cluster."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from distlab.cli.parser import Commands, add_command
from distlab.cli.starting import ENGINES
from distlab.errors import CourseError
from utils.measure import count

if TYPE_CHECKING:
    from utils.engines import RunReport, RunSettings

EPILOG = (
    "Every task gets its own TF_CONFIG, so tf.distribute finds the others. What the program saves "
    "and where it goes on is its own affair: --checkpoint-dir passes a folder on, in the "
    "variable DISTLAB_CHECKPOINT_DIR; at a rendezvous every machine keeps a copy of it. "
    "With --rendezvous, type the same line on each machine: the one that owns the address hosts "
    "and shows a code, the others are asked for it or read it from DISTLAB_CODE. "
    "The exit status is that of the task that failed first, "
    "128 + the signal's number where one was killed."
)


def add_parser(subparsers: Commands) -> None:
    """Declare `distlab run`."""
    parser = add_command(
        subparsers, "run", run, "start a program as the tasks of a cluster",
        "Run a program on several workers, as torchrun does for PyTorch: ports and ranks are "
        "assigned, output is merged, all start again when one dies.", EPILOG,
    )  # fmt: skip
    parser.usage = "distlab run [options] PROGRAM [its options]"
    add = parser.add_argument
    add(
        "--workers", default="2", metavar="N", help="worker tasks (2); at a rendezvous also MIN:MAX"
    )
    add("--ps", type=int, default=0, metavar="N",
        help="parameter servers; the program then also runs on a coordinator (0)")  # fmt: skip
    add("--restarts", type=int, default=0, metavar="N",
        help="start all tasks again as often after one has failed (0)")  # fmt: skip
    add("--checkpoint-dir", metavar="DIR", help="passed on as DISTLAB_CHECKPOINT_DIR")
    add("--logs", metavar="DIR", help="one log a task, TASK.log (runs/TIME)")
    add("--gpus", choices=("auto", "none"), default="auto", metavar="auto|none",
        help="divide this machine's GPUs among the workers (auto)")  # fmt: skip
    add("--grace-seconds", type=float, default=10.0, metavar="X",
        help="what tasks get to end by themselves after Ctrl-C or SIGTERM (10)")  # fmt: skip
    add("--rendezvous", metavar="HOST:PORT",
        help="where machines meet: the host's own address, the same on each of them")  # fmt: skip
    add("--workers-here", type=int, default=1, metavar="N",
        help="workers that this machine offers at a rendezvous (1)")  # fmt: skip
    add("--address", metavar="ADDRESS",
        help="where others reach this machine (that from which it reaches the host)")  # fmt: skip
    add("--join-seconds", type=float, default=300.0, metavar="X",
        help="how long host and members wait for each other (300)")  # fmt: skip
    add("--trust-network", action="store_true",
        help="agree that TensorFlow's ports are open to everybody in this network")  # fmt: skip
    add("--engine", choices=ENGINES, metavar="NAME",
        help=f"let it start the tasks: {', '.join(ENGINES)}; on a cluster of two nodes on this "
        "machine, which is taken down again")  # fmt: skip
    add("--engine-address", metavar="WHERE",
        help="join the cluster there: Ray's host:port, Spark's master, Slurm's partition"
        )  # fmt: skip
    add("-m", "--module", action="store_true", help="PROGRAM is a module, as with python -m")
    parser.add_json()
    add("program", metavar="PROGRAM", help="a Python file, or any other program")
    add("arguments", nargs=argparse.REMAINDER, metavar="its options", help="passed on as they are")


def run(arguments: argparse.Namespace) -> int:
    """Run the program to its end; return the status of the task that failed first, 0 if none."""
    from utils.engines import RunSettings

    least, workers = read_workers(arguments.workers)
    settings = RunSettings(
        workers=workers, min_workers=least, ps=arguments.ps, restarts=arguments.restarts,
        checkpoint_dir=arguments.checkpoint_dir, logs=arguments.logs, gpus=arguments.gpus,
        grace_seconds=arguments.grace_seconds,
    )  # fmt: skip
    command = make_command(arguments.program, arguments.arguments, arguments.module)
    output = sys.stderr if arguments.json else sys.stdout

    def show(task: str, line: str) -> None:
        print(f"[{task}] {line}", file=output, flush=True)

    report = start(arguments, command, settings, show)
    if report.cause is not None:
        if report.traceback:
            print(report.traceback, file=sys.stderr)
        say(report.cause)
    if arguments.json:
        print(report.to_json())
    else:
        again = f", {count(report.restarts, 'restart')}" * bool(report.restarts)
        logs = f"; logs in {report.tasks[0].log.rpartition('/')[0]}" if report.tasks else ""
        say(f"{count(len(report.tasks), 'task')}, {report.seconds:.1f} s{again}{logs}")
    return report.status


def start(
    arguments: argparse.Namespace, command: list[str], settings: "RunSettings",
    show: Callable[[str, str], None],
) -> "RunReport":  # fmt: skip
    """Run the command on this machine, those that meet at the rendezvous, or an engine's."""
    from utils.engines import RendezvousSettings, run_at_rendezvous, run_on_engine, run_program

    check_places(arguments)
    if arguments.engine:
        where = arguments.engine, arguments.engine_address
        return run_on_engine(command, settings, *where, show, say)
    if arguments.rendezvous is None:
        return run_program(command, settings, show, say)
    rendezvous = RendezvousSettings(
        arguments.rendezvous, arguments.workers_here, arguments.address, arguments.join_seconds,
        arguments.trust_network,
    )  # fmt: skip
    return run_at_rendezvous(command, settings, rendezvous, show, say)


def check_places(arguments: argparse.Namespace) -> None:
    """Raise CourseError for options of a place that is not the run's."""
    if arguments.engine and arguments.rendezvous:
        raise CourseError(f"--engine {arguments.engine} with --rendezvous: name one of them")
    needs = (("address", "rendezvous"), ("trust_network", "rendezvous"),
             ("engine_address", "engine"))  # fmt: skip
    for name, place in needs:
        if getattr(arguments, name) and not getattr(arguments, place):
            raise CourseError(f"--{name.replace('_', '-')}: only with --{place}")


def say(text: str) -> None:
    print(f"distlab run: {text}", file=sys.stderr, flush=True)


def read_workers(text: str) -> tuple[int | None, int]:
    """Return the least (None where they are the same) and the most workers of "4" or "2:4".

    Raises CourseError for anything else.
    """
    least, colon, most = text.rpartition(":")
    if not most.isdecimal() or (colon and not least.isdecimal()):
        raise CourseError(f"--workers {text}: give a whole number, such as 4, or 2:4")
    return (int(least) if colon else None), int(most)


def make_command(program: str, arguments: list[str], module: bool) -> list[str]:
    """Return what to start: Python for a file that ends in .py or a module, else the program."""
    if module:
        return [sys.executable, "-m", program, *arguments]
    if program.endswith(".py"):
        if not Path(program).is_file():
            raise CourseError(f"{program}: no such file; name a program that is there")
        return [sys.executable, program, *arguments]
    return [program, *arguments]
