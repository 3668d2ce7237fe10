"""Who starts the tasks of a cluster that a command trains on: this machine, an engine, or several
machines that meet at a rendezvous.
"""

import argparse
import errno
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TextIO

from distlab.cli.parser import OneLineParser, declare, read_whole
from distlab.errors import CourseError
from utils.checks import check_count

if TYPE_CHECKING:
    from utils.engines import RendezvousSettings, RunReport

ENGINES = ("ray", "spark", "slurm")  # named here: commands start without importing them
MAX_RESTARTS = 1000
LOCAL_WORKERS, HEARTBEAT_SECONDS = 1, 10.0
JOIN_SECONDS, ENGINE_SECONDS = 300.0, 600.0  # until all are there: machines, an engine's tasks
GROW = ("at-failure", "at-checkpoint")
MACHINES = f"""
several machines:
--rendezvous HOST:PORT  {{verb}} on several machines that meet at this address; type the same
    command on each
--local-workers N|gpu  run N of the workers, at most 256, on this machine, or one on each of its
    GPUs
--node-rank N  sort the machines after the host by N; those without it come last [by address]
--grow WHEN={GROW[0]}  let a machine that joins late take part at-failure, when all start again
    after one, or at-checkpoint: all restart for it once --checkpoint-dir holds a new checkpoint
--preflight  before the start, measure how fast each pair of machines is, and name slow links
--heartbeat-timeout SECONDS={HEARTBEAT_SECONDS:g}  count a machine as lost if nothing is heard
    from it for this long
"""
ENGINE = f"""
engines:
--engine NAME  start the tasks with {", ".join(ENGINES[:-1])} or {ENGINES[-1]}
--engine-address WHERE  use this running cluster: Ray's host:port, Spark's master, Slurm's
    partition [a cluster of two nodes, set up on this machine and removed afterwards]
--engine-options WORDS  further words for the engine, after a "=" and in quotes: sbatch's
    "--account=x --time=8:00:00", Ray's "num_cpus=16 spot=1", Spark's "spark.executor.memory=8g"
"""
OWN_ADDRESS = """
--advertise-address ADDRESS  give the others this address of this machine [found automatically]
"""
NETWORK = """
--join-timeout SECONDS  wait this long for the other machines{more}
--trust-network  confirm that everyone in this network may reach TensorFlow's ports
"""


def add_starting(parser: OneLineParser, verb: str) -> None:
    """Declare the options of a run on several machines or an engine; `verb` says what it does."""
    workers = {"type": read_local_workers, "default": LOCAL_WORKERS}
    text = MACHINES.format(verb=verb)
    group = declare(parser, text, local_workers=workers, grow={"choices": GROW})
    more = f" [{JOIN_SECONDS:g}], or for the tasks of --engine [{ENGINE_SECONDS:g}]"
    add_network(group, True, None, more)
    declare(parser, ENGINE, engine={"choices": ENGINES})


def add_network(
    parser: argparse._ActionsContainer,
    with_address: bool,
    join_seconds: float | None,
    more: str = "",
) -> None:
    """Declare how machines find and reach each other; `with_address` adds this machine's own.

    `more` ends the help of --join-timeout.
    """
    text = OWN_ADDRESS * with_address + NETWORK.lstrip().format(more=more)
    declare(parser, text, join_timeout={"default": join_seconds})


def check_rendezvous(arguments: argparse.Namespace) -> None:
    """Raise CourseError for options without what they need, and for an engine at a rendezvous."""
    engine, meeting = ("engine",), ("rendezvous",)
    usual = {  # option -> its value when it isn't given, and which of these it needs
        "engine-address": (None, engine),
        "engine-options": (None, engine),
        "local-workers": (LOCAL_WORKERS, meeting),
        "advertise-address": (None, meeting),
        "trust-network": (False, meeting),
        "node-rank": (None, meeting),
        "grow": (GROW[0], meeting),
        "preflight": (False, meeting),
        "heartbeat-timeout": (HEARTBEAT_SECONDS, meeting),
        "join-timeout": (None, (*meeting, *engine)),
    }
    for name, (value, needs) in usual.items():
        given = getattr(arguments, name.replace("-", "_"))
        if given != value and not any(getattr(arguments, need) for need in needs):
            wanted = " or ".join(f"--{need}" for need in needs)
            which = "it" if len(needs) == 1 else "one"
            raise CourseError(f"--{name} needs {wanted}. Add {which}, or drop this option.")
    if arguments.engine and arguments.rendezvous:
        raise CourseError(
            f"--engine {arguments.engine} doesn't go with --rendezvous. Give one of them."
        )
    if arguments.rendezvous and arguments.workers == "gpu":
        raise CourseError(
            "--workers must be the number of all workers with --rendezvous, got gpu, which counts "
            "this machine's GPUs. Add --local-workers gpu for these."
        )


def read_rendezvous(arguments: argparse.Namespace) -> "RendezvousSettings":
    """Return where the machines meet, as the options say."""
    from utils.engines import RendezvousSettings

    return RendezvousSettings(
        arguments.rendezvous,
        arguments.local_workers,
        arguments.advertise_address,
        JOIN_SECONDS if arguments.join_timeout is None else arguments.join_timeout,
        arguments.trust_network,
        heartbeat_seconds=arguments.heartbeat_timeout,
        grow=arguments.grow,
        node_rank=arguments.node_rank,
        preflight=arguments.preflight,
        line=write_line(sys.argv[1:], len(getattr(arguments, "arguments", ()))),
    )


def write_line(words: list[str], own: int) -> str:
    """Return the command line without --node-rank and --advertise-address, which name one machine.

    The last `own` words are the program's options, which stay as they are.
    """
    mine, theirs = words[: len(words) - own], words[len(words) - own :]
    line = re.sub(r" --(node-rank|advertise-address)[ =]\S+", "", shlex.join(["distlab", *mine]))
    return " ".join([line, *map(shlex.quote, theirs)])


def read_port_range(text: str | None) -> tuple[int, int] | None:
    """Return both ends of "30000:30015". Raise CourseError for anything else."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d{1,5}):(\d{1,5})", text, re.ASCII)
    if not found or int(found[1]) > int(found[2]):
        raise CourseError(f"--port-range must be FIRST:LAST, such as 30000:30015, got {text}.")
    return int(found[1]), int(found[2])


def count_gpus(option: str) -> int:
    """Return how many GPUs this machine has. Raises CourseError if it has none."""
    from utils.gpus import list_gpus

    if not (found := len(list_gpus())):
        raise CourseError(
            f"{option} gpu needs a GPU, and this machine has none. Give a number, such as 2."
        )
    return found


def read_local_workers(text: str) -> int:
    """Return the number of this machine's workers, which may be "gpu"."""
    return count_gpus("--local-workers") if text == "gpu" else read_whole(text)


def read_workers(text: str | None) -> tuple[int | None, int | None]:
    """Return the least (None where they are the same) and the most workers of "4" or "2:4".

    "gpu" is one for each GPU of this machine. None for `text` has neither. Raises CourseError for
    anything else.
    """
    if text is None:
        return None, None
    if text == "gpu":
        return None, count_gpus("--workers")
    found = re.fullmatch(r"(?:(\d{1,9}):)?(\d{1,9})", text, re.ASCII)
    if not found:
        raise CourseError(
            f"--workers must be a whole number such as 4, or a range such as 2:4, got {text}."
        )
    least, most = (None if digits is None else int(digits) for digits in found.groups())
    if least is not None and least > most:
        raise CourseError(f"--workers must be MIN:MAX, got {text}. Try {most}:{least}.")
    return least, most


def read_engine(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return who starts the tasks, as `run_on_engine` and `make_launcher` of `utils` take it."""
    seconds = arguments.join_timeout
    return {
        "engine": arguments.engine,
        "address": arguments.engine_address,
        "options": arguments.engine_options or "",
        "start_seconds": ENGINE_SECONDS if seconds is None else seconds,
    }


def make_launcher(arguments: argparse.Namespace) -> Any:
    """Return the engine's launcher, None for tasks of this machine."""
    if arguments.engine is None:
        return None
    from utils import engines

    return engines.make_launcher(**read_engine(arguments), say=_say)


def check_starting(arguments: argparse.Namespace, has_tasks: bool) -> int:
    """Return how often all tasks may restart; raise CourseError for options that don't fit."""
    given = {
        "engine": arguments.engine,
        "engine-address": arguments.engine_address,
        "max-restarts": arguments.max_restarts,
        "rendezvous": arguments.rendezvous,
    }
    for name, value in given.items():
        if value is not None and not has_tasks:
            raise CourseError(
                f"--{name} {value} needs tasks to start, and this run has none. Choose --strategy "
                "multi-worker or parameter-server, with TF_CONFIG not set."
            )
    check_rendezvous(arguments)
    return check_count("max-restarts", arguments.max_restarts or 0, 0, MAX_RESTARTS)


def train_at_rendezvous(
    arguments: argparse.Namespace,
    settings: Iterable[str],
    cluster: tuple[int, int],
    min_workers: int | None,
) -> int:
    """Train on machines that meet; each runs this command as the tasks that it gets.

    With `min_workers` it continues with fewer after a restart, down to that many: the global batch
    stays, and is split over the remaining ones. The host, which has the chief, prints its report.
    Returns the exit status.
    """
    from utils.engines import RunSettings, run_at_rendezvous

    run = RunSettings(
        workers=cluster[0],
        min_workers=min_workers,
        ps=cluster[1],
        max_restarts=arguments.max_restarts or 0,
        checkpoint_dir=arguments.checkpoint_dir,
    )
    words = repeat_options(arguments, (*settings, "events", "json"))
    command = [sys.executable, "-m", "distlab", "train", *words]
    chief = "chief 0" if cluster[1] else "worker 0"

    def show(task: str, line: str) -> None:
        if not arguments.json:
            write(f"[{task}] {line}", sys.stdout)
        elif task == chief and line.startswith("{"):
            write(line, sys.stdout)
        else:
            write(f"[{task}] {line}", sys.stderr)

    report = run_at_rendezvous(command, run, read_rendezvous(arguments), show, _say)
    tell_cause(report, _say)
    return report.status


def tell_cause(report: "RunReport", say: Callable[[str], None]) -> None:
    """Print the first error's traceback, then its cause; nothing where the run succeeded."""
    if report.cause is not None:
        if report.traceback:
            write(report.traceback, sys.stderr)
        say(report.cause)


def write(text: str, stream: TextIO) -> None:
    """Print to `stream`; if its reader has gone (`distlab run … | head`), the run continues.

    It also does if the terminal was closed, or standard error is on a full disk.
    """
    try:
        print(text, file=stream, flush=True)
    except OSError as error:
        if stream is sys.stdout and error.errno not in (errno.EPIPE, errno.EIO):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def repeat_options(arguments: argparse.Namespace, names: Iterable[str]) -> list[str]:
    """Return the given options, as words of a command line."""
    words = []
    for name in names:
        value, option = getattr(arguments, name), f"--{name.replace('_', '-')}"
        if value is True:
            words.append(option)
        elif value is not None and value is not False:
            words += [option, str(value)]
    return words


def _say(text: str) -> None:
    write(f"distlab train: {text}", sys.stderr)
