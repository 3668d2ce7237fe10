"""`distlab train`: the main job of the course from a shell, in this process, on a cluster that it
starts on this machine, or as a task of one that stands.
"""

import argparse
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from distlab.cli.long_command import Progress
from distlab.cli.parser import Commands, add_command
from distlab.cli.starting import (
    Starting,
    add_engine,
    add_rendezvous,
    check_starting,
    read_workers,
    train_at_rendezvous,
)
from distlab.cli.train_task import train_as_task
from distlab.errors import CourseError
from utils.checks import check_count
from utils.devices import ALL_REDUCES, DEVICES
from utils.events import Event, EventWriter
from utils.strategies import CLUSTER, NAMES, STRATEGIES, find_strategy
from utils.training.config import (
    AUTO_SHARD,
    DATASETS,
    DTYPES,
    LOOPS,
    MODELS,
    OPTIMIZERS,
    TrainConfig,
)
from utils.training.report import TrainingStopped, TrainReport, describe_resumption, read_devices

MAX_TASKS = 32
COORDINATED = tuple(name for name, record in STRATEGIES.items() if record.is_coordinated)
SETTINGS = (
    "strategy", "replicas", "devices", "all_reduce", "dataset", "loop", "auto_shard", "model",
    "epochs", "global_batch_size", "optimizer", "learning_rate", "dtype", "seed", "max_examples",
    "full_data", "data_folder", "checkpoint_dir", "checkpoint_every", "export",
)  # fmt: skip


def add_parser(subparsers: Commands) -> None:
    parser = add_command(
        subparsers, "train", run, "train a network under any strategy",
        "Train a small network on real images under a tf.distribute strategy. Ctrl-C stops after "
        "the current step, a second Ctrl-C at once.",
    )  # fmt: skip
    usual = TrainConfig()
    add = parser.add_argument_group("strategy and devices").add_argument
    add("--strategy", default=usual.strategy, **_one_of(NAMES))
    add(
        "--replicas",
        "--replicas-per-worker",
        type=int,
        metavar="N",
        help="replicas per worker [all GPUs; without GPUs, 2 if the strategy has several]",
    )
    add(
        "--device",
        "--devices",
        default=usual.devices,
        dest="devices",
        **_one_of(DEVICES, "train on GPUs or logical CPUs: "),
    )
    add("--all-reduce", default=usual.all_reduce, **_one_of(ALL_REDUCES, "add up gradients with "))
    add(
        "--workers",
        metavar="N",
        help="workers of multi-worker and parameter-server; with --rendezvous also a range, "
        "MIN:MAX [2]",
    )
    add("--ps", type=int, metavar="N", help="servers of parameter-server [1]")
    text = "restart all tasks up to N times after a failure [0]"
    add("--max-restarts", type=int, metavar="N", help=text)
    add(
        "--auto-shard",
        default=usual.auto_shard,
        **_one_of(AUTO_SHARD, "shard the data across the workers of multi-worker by "),
    )
    add = parser.add_argument_group("data and model").add_argument
    add("--dataset", default=usual.dataset, metavar="NAME", help=", ".join(DATASETS))
    add("--max-examples", type=int, metavar="N", help="train on the first N examples [all]")
    add("--full-data", action="store_true", help="train on the full data set, not on the sample")
    add(
        "--data-folder",
        metavar="DIR",
        help="with --full-data: a TFDS folder, or an .npz file in Keras's format",
    )
    add("--model", default=usual.model, **_one_of(MODELS))
    add("--dtype", default=usual.dtype, **_one_of(DTYPES))
    add(
        "--seed",
        type=int,
        default=usual.seed,
        metavar="N",
        help="seed of the initial weights and the order of examples",
    )
    add = parser.add_argument_group("training").add_argument
    add(
        "--config",
        action=ReadSettings,
        metavar="FILE",
        help='read settings from a JSON file, such as {"learning_rate": 0.02}; options after it '
        "override them",
    )
    add("--loop", default=usual.loop, **_one_of(LOOPS))
    add(
        "--epochs",
        type=int,
        default=usual.epochs,
        metavar="N",
        help="train for N epochs; a resumed run counts the epochs before it",
    )
    add(
        "--global-batch-size",
        type=int,
        default=usual.global_batch_size,
        metavar="N",
        help="examples per step, over all replicas",
    )
    add("--optimizer", default=usual.optimizer, **_one_of(OPTIMIZERS))
    rates = ", ".join(f"{name} {rate:g}" for name, rate in OPTIMIZERS.items())
    add("--learning-rate", type=float, metavar="X", help=f"learning rate [{rates}]")
    add = parser.add_argument_group("output").add_argument
    add(
        "--checkpoint-dir",
        metavar="DIR",
        help="save checkpoints to this folder after each epoch and on Ctrl-C, and resume from the "
        "latest; one run at a time",
    )
    add("--checkpoint-every", type=int, metavar="N", help="also save every N steps")
    add("--export", metavar="DIR", help="write model.keras and saved_model to this folder")
    add("--events", metavar="FILE", help="append events to FILE as JSON lines")
    add(
        "--json",
        action="store_true",
        help="print the report as one JSON object; a loss that isn't finite is null",
    )
    add_rendezvous(parser, "train")
    add_engine(parser)


class ReadSettings(argparse.Action):
    """`--config FILE`: every setting of the file, as if its option stood here."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any,
        option_string: str | None = None,
    ) -> None:  # fmt: skip
        try:
            settings = json.loads(Path(values).read_text())
        except OSError as error:
            raise argparse.ArgumentError(self, f"{values}: {error.strerror}") from None
        except ValueError as error:
            raise argparse.ArgumentError(self, f"{values}: not JSON ({error})") from None
        if not isinstance(settings, dict):
            raise argparse.ArgumentError(self, f"{values}: must be a JSON object of settings")
        for name, value in settings.items():
            words = "" if name in SETTINGS else f"unknown setting {name!r}"
            if isinstance(value, (list, dict)):
                words = f"{name} must be one value, got {value!r}"
            if words:
                known = f"choose from {', '.join(SETTINGS)}"
                raise argparse.ArgumentError(self, f"{values}: {words} ({known})")
            setattr(namespace, name, value)


def _one_of(names: Iterable[str], text: str = "") -> dict[str, Any]:
    return {"choices": tuple(names), "metavar": "NAME", "help": f"{text}{', '.join(names)}"}


def run(arguments: argparse.Namespace) -> int:
    config = TrainConfig(**{name: getattr(arguments, name) for name in SETTINGS})
    given = arguments.workers
    least, workers = (None, None) if given is None else read_workers(given)
    cluster = check_cluster(config, workers, arguments.ps)
    starting = check_starting(arguments, cluster != (0, 0))
    if arguments.rendezvous is not None:
        return train_at_rendezvous(arguments, SETTINGS, cluster, least)
    if least is not None:
        raise CourseError(f"--workers {given}: fewer and more need a --rendezvous; give one number")
    stop = threading.Event()
    received: list[int] = []

    def ask_to_stop(number: int, frame: object) -> None:
        received.append(number)
        stop.set()
        if len(received) > 1:  # asked twice: at once, without the checkpoint
            raise KeyboardInterrupt

    before = {n: signal.signal(n, ask_to_stop) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        with _Listeners(arguments.events, arguments.json) as listener:
            report = _train(config, cluster, starting, listener, stop)
    except TrainingStopped as stopped:
        print(f"distlab train: {stopped}", file=sys.stderr)
        return 128 + received[0]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if report is not None:
        print(report.to_json() if arguments.json else report)
    return 0


def check_cluster(config: TrainConfig, workers: int | None, ps: int | None) -> tuple[int, int]:
    """Return how many workers and parameter servers to start; (0, 0) for none.

    None are started for a strategy of one machine, and where TF_CONFIG makes this
    process a task of a cluster that stands. Raises CourseError for numbers that do not fit.
    """
    if config.strategy not in CLUSTER:
        for name, value in (("workers", workers), ("ps", ps)):
            if value is not None:
                able = CLUSTER if name == "workers" else COORDINATED
                wanted = " or ".join(able)
                raise CourseError(
                    f"{name} {value}: strategy {config.strategy!r} trains in one process; "
                    f"choose {wanted}"
                )
        return 0, 0
    if os.environ.get("TF_CONFIG"):
        if (workers, ps) != (None, None):
            raise CourseError(
                "workers and ps: TF_CONFIG is set and says how many there are; leave them out, "
                "or unset TF_CONFIG to start a cluster on this machine"
            )
        return 0, 0
    return _count_tasks(config, 2 if workers is None else workers, ps)


def _count_tasks(config: TrainConfig, workers: int, ps: int | None) -> tuple[int, int]:
    uses_servers = find_strategy(config.strategy).is_coordinated
    if ps is not None and not uses_servers:
        raise CourseError(f"ps {ps}: strategy {config.strategy!r} has none; leave it out")
    servers = (1 if ps is None else ps) if uses_servers else 0
    for name, value, least in (("workers", workers, 1), ("ps", servers, int(uses_servers))):
        check_count(name, value, least, MAX_TASKS)
    return workers, servers


def _train(
    config: TrainConfig,
    cluster: tuple[int, int],
    starting: Starting,
    listener: Callable[[Event], None],
    stop: threading.Event,
) -> TrainReport | None:
    if config.strategy in CLUSTER:
        if cluster == (0, 0):
            return train_as_task(config, listener, stop)
        from utils.training.on_cluster import train_on_cluster

        return train_on_cluster(
            config, *cluster, listener, stop, starting.make_launcher, starting.restarts
        )
    from utils.training import train

    return train(config, on_event=listener, should_stop=stop.is_set)


class _Listeners:
    """Shows on standard error how far a run is and, where asked, writes its events to a file."""

    def __init__(self, events_path: str | None, quiet: bool = False) -> None:
        self._path, self._quiet = events_path, quiet
        self._progress: Progress | None = None
        with self._events_written():
            self._writer = EventWriter(events_path) if events_path else None

    def __enter__(self) -> Callable[[Event], None]:
        return self.listen

    def __exit__(self, *exception: object) -> None:
        if self._progress is not None:
            self._progress.close()
        if self._writer is not None:
            self._writer.close()

    def listen(self, event: Event) -> None:
        if self._writer is not None:
            with self._events_written():
                self._writer(event)
        if event["event"] == "restore":
            for line in describe_resumption(event["path"], event["skipped_checkpoints"]):
                print(f"distlab train: {line}", file=sys.stderr)
        elif event["event"] == "start":
            total = event["epochs"] * event["steps_per_epoch"]
            first = min(total, event["first_step"])
            if not self._quiet:
                where = f"{event['strategy']}, {read_devices(event)}"
                print(f"distlab train: {where}", file=sys.stderr, flush=True)
            self._progress = Progress("distlab train", total, "step", first, self._quiet)
        elif event["event"] == "step" and self._progress is not None:
            note = f"epoch {event['epoch']}, loss {event['loss']:.4f}"
            self._progress.show(event["step"], note)

    @contextmanager
    def _events_written(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise CourseError(
                f"events {self._path}: cannot be written ({error.strerror})"
            ) from None
