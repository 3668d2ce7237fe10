"""`distlab run`: start any program that reads TF_CONFIG as the tasks of a cluster."""

import argparse
import sys
from pathlib import Path

from distlab.cli.parser import Commands, add_command
from distlab.errors import CourseError
from utils.measure import count

EPILOG = (
    "Every task gets its own TF_CONFIG, so tf.distribute finds the others. What the program saves "
    "and where it goes on is its own affair: --checkpoint-dir only passes a folder on, in the "
    "variable DISTLAB_CHECKPOINT_DIR. The exit status is that of the task that failed first, "
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
    add("--workers", default="2", metavar="N", help="worker tasks (2)")
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
    add("-m", "--module", action="store_true", help="PROGRAM is a module, as with python -m")
    parser.add_json()
    add("program", metavar="PROGRAM", help="a Python file, or any other program")
    add("arguments", nargs=argparse.REMAINDER, metavar="its options", help="passed on as they are")


def run(arguments: argparse.Namespace) -> int:
    """Run the program to its end; return the status of the task that failed first, 0 if none."""
    from utils.engines import RunSettings, run_program

    settings = RunSettings(
        workers=read_workers(arguments.workers), ps=arguments.ps, restarts=arguments.restarts,
        checkpoint_dir=arguments.checkpoint_dir, logs=arguments.logs, gpus=arguments.gpus,
        grace_seconds=arguments.grace_seconds,
    )  # fmt: skip
    command = make_command(arguments.program, arguments.arguments, arguments.module)
    output = sys.stderr if arguments.json else sys.stdout

    def show(task: str, line: str) -> None:
        print(f"[{task}] {line}", file=output, flush=True)

    report = run_program(command, settings, show, say)
    if report.cause is not None:
        if report.traceback:
            print(report.traceback, file=sys.stderr)
        say(report.cause)
    if arguments.json:
        print(report.to_json())
    else:
        logs = report.tasks[0].log.rpartition("/")[0]
        again = f", {count(report.restarts, 'restart')}" * bool(report.restarts)
        say(f"{count(len(report.tasks), 'task')}, {report.seconds:.1f} s{again}; logs in {logs}")
    return report.status


def say(text: str) -> None:
    print(f"distlab run: {text}", file=sys.stderr, flush=True)


def read_workers(text: str) -> int:
    """Return the number of workers; raise CourseError unless `text` is a whole number."""
    if not text.isdecimal():
        raise CourseError(f"--workers {text}: give a whole number, such as 4")
    return int(text)


def make_command(program: str, arguments: list[str], module: bool) -> list[str]:
    """Return what to start: Python for a file that ends in .py or a module, else the program."""
    if module:
        return [sys.executable, "-m", program, *arguments]
    if program.endswith(".py"):
        if not Path(program).is_file():
            raise CourseError(f"{program}: no such file; name a program that is there")
        return [sys.executable, program, *arguments]
    return [program, *arguments]
