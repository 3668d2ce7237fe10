"""`distlab run`: start any program that reads TF_CONFIG as the tasks of a cluster."""

import argparse
import functools
import os
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from distlab.cli.parser import Commands, add_command, add_program_options, declare
from distlab.cli.starting import (
    add_starting,
    check_rendezvous,
    read_engine,
    read_port_range,
    read_rendezvous,
    read_workers,
    tell_cause,
    write,
)
from distlab.errors import CourseError
from utils.measure import count

if TYPE_CHECKING:
    from utils.engines import RunReport

EPILOG = (
    "Every task gets its own TF_CONFIG, so tf.distribute finds the other tasks, and the variables "
    "that keras.distribution.initialize() reads on JAX. Your program "
    "saves and restores its checkpoints itself. It finds the folder of --checkpoint-dir in the "
    "environment variable DISTLAB_CHECKPOINT_DIR. With --rendezvous, type the same command on "
    "every machine. The machine that owns the address becomes the host and prints a code. The "
    "other machines ask for that code, or read it from DISTLAB_CODE. Each machine keeps a copy "
    "of the checkpoint folder, and calls the host again for --join-timeout if it is lost. The exit "
    "status is that of the task that failed first, or 128 "
    "plus the signal's number if a signal killed it. It is 124 after --idle-timeout, and 75 on a "
    "machine that the run never needed."
)


TASKS = """
tasks:
--workers N  start N workers; with --rendezvous also a range, MIN:MAX; gpu: one for each GPU of
    this machine
--ps N=0  start N parameter servers, and a coordinator if N isn't 0
--independent  run N separate programs, not a cluster: no TF_CONFIG, but DISTLAB_TASK_INDEX and
    DISTLAB_TASK_COUNT; a failed task restarts alone
--tf-config  with --independent: also set TF_CONFIG
--max-restarts N=0  restart all tasks up to N times after a failure; with --ps, a failed worker
    alone; with --independent, each failed task alone
-m, --module  PROGRAM is a module, as with python -m
files and devices:
--checkpoint-dir DIR  create this folder for checkpoints; your program finds it in
    DISTLAB_CHECKPOINT_DIR
--logs DIR  write logs and events.jsonl to this folder [runs/ID]
--keras NAME=installed  give the program this Keras: installed (Keras 3), legacy (Keras 2 as
    tf.keras, for programs written before 2024), or patched (Keras 3, with a fit that trains
    across workers)
--gpus auto|none|N=auto  divide this machine's GPUs among the workers (auto), hide them (none), or
    give each worker N; with Ray and Slurm, request N for each
--grace-period SECONDS=30  give each task this long to save and exit after Ctrl-C, SIGTERM, a
    closed terminal or another task's failure; your program finds it in DISTLAB_GRACE_SECONDS
--idle-timeout SECONDS  end the run with status 124 once no task has written a line or a file or
    used the processor for this long [wait forever]
--port-range FIRST:LAST  let TensorFlow listen at these ports only, so that a firewall can be
    prepared; with --rendezvous the rule for it is printed [any ports]
"""
KERAS = ("installed", "legacy", "patched")


def add_parser(subparsers: Commands) -> None:
    parser = add_command(
        subparsers,
        "run",
        run,
        "run a program on several workers",
        "Run a program on several workers, as torchrun does for PyTorch. It assigns ports and "
        "ranks, merges the output, and with --max-restarts starts all tasks again when one dies.",
        EPILOG,
    )
    parser.usage = "distlab run [options] PROGRAM [its options]"
    declare(parser, TASKS, workers={"type": str, "default": "2"}, keras={"choices": KERAS})
    add_starting(parser, "run")
    parser.add_json()
    declare(parser, "PROGRAM  a Python file, or any other program")
    add_program_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the program to its end; return the status of the task that failed first, 0 if none."""
    from utils.engines import RunSettings
    from utils.keras_multi_worker import make_keras_variables

    check_rendezvous(arguments)
    (least, workers), gpus = read_workers(arguments.workers), arguments.gpus
    settings = RunSettings(
        workers=workers,
        min_workers=least,
        ps=arguments.ps,
        max_restarts=arguments.max_restarts,
        checkpoint_dir=arguments.checkpoint_dir,
        logs=arguments.logs,
        gpus=int(gpus) if re.fullmatch("[0-9]{1,9}", gpus) else gpus,
        grace_seconds=arguments.grace_period,
        idle_timeout_seconds=arguments.idle_timeout,
        port_range=read_port_range(arguments.port_range),
        independent=arguments.independent,
        tf_config=arguments.tf_config,
        variables=make_keras_variables(arguments.keras, os.environ.get("PYTHONPATH", "")),
    )
    command = make_command(arguments.program, arguments.arguments, arguments.module)
    output = sys.stderr if arguments.json else sys.stdout

    def show(task: str, line: str) -> None:
        write(f"[{task}] {line}", output)

    report = find_way(arguments)(command, settings, show=show, say=say)
    tell_cause(report, say)
    if report.cause and "--keras legacy" in report.cause and arguments.keras != "legacy":
        say(f"try it: {write_legacy_command(sys.argv[1:], 1 + len(arguments.arguments))}")
    if arguments.json:
        write(report.to_json(), sys.stdout)
    else:
        tell_end(report)
    return report.status


def write_legacy_command(words: list[str], last: int) -> str:
    """Return the command line, `run` and what follows, with Keras 2 in place of Keras 3.

    The `last` words are the program and its own options, which stay as they are.
    """
    options = re.sub(r"(^| )--keras[ =]\S+", "", shlex.join(words[1:-last]))
    parts = ("distlab run --keras legacy", options.strip(), shlex.join(words[-last:]))
    return " ".join(filter(None, parts))


def find_way(arguments: argparse.Namespace) -> "Callable[..., RunReport]":
    """Return what runs the command: on this machine, at a rendezvous, or on an engine."""
    from utils import engines  # imports parts on demand

    if arguments.engine:
        return functools.partial(engines.run_on_engine, **read_engine(arguments))
    if arguments.rendezvous is None:
        return engines.run_program
    return functools.partial(engines.run_at_rendezvous, rendezvous=read_rendezvous(arguments))


def tell_end(report: "RunReport") -> None:
    """Say how long it took, and where this machine's logs are: others have theirs."""
    if report.tasks:
        again = f", {report.failed} failed" * bool(report.failed)
        again += f", {count(report.restarts, 'restart')}" * bool(report.restarts)
        where = f"; logs in {report.logs}" if report.logs else ""
        again += f", goodput {report.goodput:.0%}" if report.goodput is not None else ""
        say(f"{count(len(report.tasks), 'task')}, {report.seconds:.1f} s{again}{where}")


def say(text: str) -> None:
    write(f"distlab run: {text}", sys.stderr)


def make_command(program: str, arguments: list[str], module: bool) -> list[str]:
    """Return what to start: Python for a file that ends in .py or a module, else the program."""
    if not program:
        raise CourseError("PROGRAM must be a Python file or any other program, got an empty name.")
    if module:
        return [sys.executable, "-m", program, *arguments]
    if program.endswith(".py"):
        if Path(program).is_dir():
            raise CourseError(
                f"PROGRAM must be a file, got the folder {program}. Name a program in it."
            )
        if not Path(program).is_file():
            raise CourseError(
                f"{program}: file not found. Check the path: you are in {Path.cwd()}."
            )
        if not os.access(program, os.R_OK):
            raise CourseError(
                f"{program} can't be read. Change its permissions: chmod +r {shlex.quote(program)}"
            )
        return [sys.executable, program, *arguments]
    return [program, *arguments]
