"""The command `distlab`. Its subcommands are in the modules of this package.

A module of `MODULES` has `add_parser(commands)`, which declares one command or several
(`parser.add_command`) with their options. They import TensorFlow only when a command
runs, so that `distlab --help` answers at once.

- `book`: `distlab book` makes the course a static site, to read without a kernel
- `build`: `distlab build` makes notebooks, labs and solutions of their sources; `distlab new` a
  lab
- `classroom`: `distlab classroom`: a room full of laptops trains one model, and the teacher sees
  every lane
- `command_page`: docs/command-line.md, made from the commands' own help
- `data`: `distlab data`: list, verify or download data sets
- `diagnose`: `distlab diagnose`: from the logs of a failed TensorFlow cluster to the cause and the
  fix
- `doctor`: `distlab doctor`: what this machine has, and which parts of the course work on it
- `examples`: the commands by task, and examples of each
- `grade`: `distlab grade`: marks, feedback and a class page from submissions
- `hub_config`: `distlab hub-config`: a commented configuration for JupyterHub, which then serves
  the course
- `lab`: `distlab lab`: JupyterLab at the course home, on this machine only, that leaves nothing
  behind
- `lab_work`: a learner's own labs: `distlab check`, `distlab submit` and `distlab reset`
- `long_command`: long commands: progress on standard error, and a clean end on SIGTERM
- `manifest`: `distlab manifest`: files that run a program on several workers in Kubernetes or a
  cloud
- `modernize`: `distlab modernize`: what has to change in a program written for an older TensorFlow
- `plan`: `distlab plan`: measure, read or describe a model, and predict what training it takes
- `plan_report`: what `distlab plan` prints
- `processes`: `distlab processes`: find the clusters on this machine, and end what a crashed
  kernel left
- `release`: `distlab release`: what students get, and an nbgrader course for the teacher
- `run`: `distlab run`: start any program that reads TF_CONFIG as the tasks of a cluster
- `simulate`: `distlab simulate`: one command, made from the simulators' questions
  (`utils.simulate`)
- `starting`: who starts the tasks of a cluster that a command trains on: this machine, an engine,
  or several machines that meet at a rendezvous
- `tf_config`: `distlab tf-config`: write the TF_CONFIG of every task of a cluster, and check what
  there is
- `train`: `distlab train`: the main job of the course from a shell, in this process, on a cluster
  that it starts on this machine, or as a task of one that stands
- `train_options`: the options of `distlab train`: the settings of a run, and a file that has them
- `update`: `distlab update`: get the newest version of the course and keep what a learner wrote
- `user_child`: the child process that loads a user's module and runs our library on it
- `user_function`: `distlab tune-input` and `distlab tpu-ready`: our library at work on a function
  of the user
- `user_model`: a user's model, built in a worker of our cluster: their module loaded next to our
  library
"""

import argparse
import atexit
import contextlib
import gc
import importlib
import importlib.util
import os
import sys
from importlib import metadata
from typing import NoReturn

from distlab.cli.parser import OneLineParser, shorten_words
from utils.environment import skip_uri_grammar, versions
from utils.errors import DistributedError
from utils.processes.private_network import enter_if_wanted

MODULES = (
    "lab doctor data train run classroom manifest diagnose modernize tf_config processes simulate "
    "plan user_function lab_work update grade release hub_config build book help"
).split()
STARTS_CLUSTERS = ("check", "plan", "run", "train", "tune-input")


class _ShowVersions(argparse.Action):
    """`--version`: ours, TensorFlow's, Keras's and Python's, without importing them."""

    def __call__(self, parser: argparse.ArgumentParser, *values: object) -> NoReturn:
        print(describe_versions())
        parser.exit()


def describe_versions() -> str:
    """Return the versions that a question or a bug report needs, on one line."""
    try:
        own = metadata.version("distributed-training-lab")
    except metadata.PackageNotFoundError:
        own = "(not installed)"
    found = versions()
    names = {"tensorflow": "TensorFlow", "keras": "Keras", "python": "Python"}
    others = ", ".join(f"{shown} {found[name]}" for name, shown in names.items())
    return f"distlab {own}, {others}"


def make_parser(word: str = "") -> OneLineParser:
    """Return the parser of `distlab` with every command that is there.

    Where `word`, the first of a command line, is a command of the module of that name, that
    one is imported alone: all of them take half a second.
    """
    parser = OneLineParser(
        prog="distlab",
        description="Learn, run, plan and teach distributed training with TensorFlow.",
        epilog="`distlab help COMMAND` explains a command and its options.",
    )
    text = "print the versions of distlab, TensorFlow, Keras and Python"
    parser.add_argument("--version", action=_ShowVersions, nargs=0, help=text)
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    named = word.replace("-", "_")
    for name in [named] if named in MODULES else MODULES:
        module = f"distlab.cli.{name}"
        if importlib.util.find_spec(module):  # students have no grade, release, build
            importlib.import_module(module).add_parser(subparsers)
    return parser if named not in MODULES or word in parser.list_commands() else make_parser()


def main(arguments: list[str] | None = None) -> int:
    """Run `distlab` with `arguments` (the shell's when None); return the exit status.

    0: done; 1: a check found something; 2: the input was wrong, or the system let
    nothing be read or written, in one line on standard error; 130: interrupted.
    """
    _open_standard_streams()
    skip_uri_grammar()
    atexit.register(gc.freeze)  # or Python looks for garbage once more as it ends: 0.3 s
    program = "distlab"
    try:
        words = sys.argv[1:] if arguments is None else arguments
        parsed = make_parser(*words[:1]).parse_args(words or ["--help"])
        program = parsed.prog
        _keep_others_out(parsed)
        status = parsed.run(parsed)
        sys.stdout.flush()
        return status
    except DistributedError as error:
        print(f"{program}: {shorten_words(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{program}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `distlab … | head`: the reader has gone
        _drop_output()
        return 0
    except OSError as error:
        print(f"{program}: {shorten_words(_describe(error))}", file=sys.stderr)
        _drop_output()
        return 2


def _keep_others_out(parsed: argparse.Namespace) -> None:
    """Enter a private network if that's wanted and all that this command starts is started here."""
    elsewhere = getattr(parsed, "rendezvous", None) or getattr(parsed, "engine", None)
    if parsed.command not in STARTS_CLUSTERS or elsewhere or "TF_CONFIG" in os.environ:
        return
    if why := enter_if_wanted():
        text = "other users of this machine can reach TensorFlow's ports"
        print(f"{parsed.prog}: no private network ({why}): {text}", file=sys.stderr)


def _open_standard_streams() -> None:
    """Put the null device where a standard stream is closed (`2>&-`).

    Otherwise the next opened file takes its place, and messages go into it. Characters that a
    terminal's encoding lacks are written as escapes.
    """
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number: this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(descriptor, "w" if descriptor else "r", closefd=False))
    with contextlib.suppress(AttributeError):  # replaced, as tests do
        sys.stdout.reconfigure(errors="backslashreplace")  # as standard error has it


def _drop_output() -> None:
    """Send what standard output still holds nowhere, so that the exit is quiet."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _describe(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}"
