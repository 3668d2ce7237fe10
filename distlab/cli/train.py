"""`distlab train`: the main job of the course from a shell, in this process, on a cluster that it
starts on this machine, or as a task of one that stands.
"""

import argparse
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial

from distlab.cli.long_command import Progress, signals_ask_to_stop
from distlab.cli.parser import Commands, add_command
from distlab.cli.starting import (
    check_starting,
    make_launcher,
    read_workers,
    train_at_rendezvous,
)
from distlab.cli.train_options import SETTINGS, add_options
from distlab.errors import CourseError
from utils.events import Event, EventWriter
from utils.strategies import CLUSTER
from utils.training.config import TrainConfig
from utils.training.on_cluster import count_tasks, train_on_cluster
from utils.training.report import TrainingStopped, describe_resumption, read_devices


def add_parser(subparsers: Commands) -> None:
    parser = add_command(
        subparsers,
        "train",
        run,
        "train a network under any strategy",
        "Train a small network on real images under a tf.distribute strategy. Ctrl-C stops after "
        "the current step, a second Ctrl-C at once.",
    )
    add_options(parser)


def run(arguments: argparse.Namespace) -> int:
    config = TrainConfig(**{name: getattr(arguments, name) for name in SETTINGS})
    least, workers = read_workers(arguments.workers)
    tasks = count_tasks(config, workers, arguments.ps)
    restarts = check_starting(arguments, tasks != (0, 0))
    if arguments.rendezvous is not None:
        return train_at_rendezvous(arguments, SETTINGS, tasks, least)
    if least is not None:
        given = f"--workers {arguments.workers}"
        raise CourseError(f"{given} is a range, which needs --rendezvous. Give one number.")
    with signals_ask_to_stop() as (stop, received):
        try:
            with closing(RunListener(arguments.events, arguments.json)) as listener:
                if config.strategy not in CLUSTER:
                    from utils.training import train

                    report = train(config, on_event=listener, should_stop=stop.is_set)
                elif tasks == (0, 0):
                    from utils.training.as_task import train_as_task

                    report = train_as_task(config, listener, stop, "distlab train")
                else:
                    started = partial(make_launcher, arguments), restarts
                    report = train_on_cluster(config, *tasks, listener, stop, *started)
        except TrainingStopped as stopped:
            print(f"distlab train: {stopped}", file=sys.stderr)
            return 128 + received[0]
    if report is not None:
        print(report.to_json() if arguments.json else report)
    return 0


class RunListener:
    """Shows on standard error how far a run is and, where asked, writes its events to a file."""

    def __init__(self, events_path: str | None, quiet: bool = False) -> None:
        self._path, self._quiet = events_path, quiet
        self._progress: Progress | None = None
        with self._events_written():
            self._writer = EventWriter(events_path) if events_path else None

    def close(self) -> None:
        if self._progress is not None:
            self._progress.close()
        if self._writer is not None:
            self._writer.close()

    def __call__(self, event: Event) -> None:
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
                f"--events {self._path} can't be written ({error.strerror}). Name another file."
            ) from None
