"""`distlab train`: the course's main job from a shell."""

import argparse
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from utils.errors import CourseError
from utils.events import Event, EventWriter
from utils.strategies import NAMES
from utils.training.config import DATASETS, DTYPES, LOOPS, MODELS, OPTIMIZERS, TrainConfig
from utils.training.report import TrainingStopped

SETTINGS = (
    "strategy", "replicas", "dataset", "loop", "model", "epochs", "global_batch_size",
    "optimizer", "learning_rate", "dtype", "seed", "limit", "full_data", "data_folder",
    "checkpoint", "checkpoint_every", "export",
)  # fmt: skip


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "train",
        help="train on real images under any strategy",
        description="Train a small network on real images under a tf.distribute strategy. "
        "What is taken when an option is left out stands in brackets. Ctrl-C stops after the "
        "steps under way, twice at once.",
    )
    usual = TrainConfig()
    add = parser.add_argument
    add("--strategy", default=usual.strategy, metavar="NAME", help=_list(NAMES))
    add("--replicas", type=int, metavar="N", help="replicas per worker (2 where there are several)")
    add("--dataset", default=usual.dataset, metavar="NAME", help=_list(DATASETS))
    add("--loop", default=usual.loop, metavar="NAME", help=_list(LOOPS))
    add("--model", default=usual.model, metavar="NAME", help=_list(MODELS))
    add("--epochs", type=int, default=usual.epochs, metavar="N",
        help="epochs in all, those of a resumed run included (%(default)s)")  # fmt: skip
    add("--global-batch-size", type=int, default=usual.global_batch_size, metavar="N",
        help="examples a step, over all replicas (%(default)s)")  # fmt: skip
    add("--optimizer", default=usual.optimizer, metavar="NAME", help=_list(OPTIMIZERS))
    rates = ", ".join(f"{name} {rate:g}" for name, rate in OPTIMIZERS.items())
    add("--learning-rate", type=float, metavar="X", help=f"(the optimizer's usual one: {rates})")
    add("--dtype", default=usual.dtype, metavar="NAME", help=_list(DTYPES))
    add("--seed", type=int, default=usual.seed, metavar="N",
        help="of the first weights and the order of examples (%(default)s)")  # fmt: skip
    add("--limit", type=int, metavar="N", help="train on the first N examples only (all)")
    add("--full-data", action="store_true", help="the full data set in place of the bundled sample")
    add("--data-folder", metavar="DIR",
        help="with --full-data: where it is (idx files or a TFDS folder)")  # fmt: skip
    add("--checkpoint", metavar="DIR",
        help="save there after each epoch and on Ctrl-C, and go on from what is there; "
        "one run at a time")  # fmt: skip
    add("--checkpoint-every", type=int, metavar="N", help="save every N steps too")
    add("--export", metavar="DIR", help="write model.keras and saved_model there at the end")
    add("--events", metavar="FILE", help="append what happens to FILE as JSON lines")
    add("--json", action="store_true",
        help="print the report as one JSON object; a loss that is not finite is null")  # fmt: skip
    parser.set_defaults(run=run)


def _list(names: Iterable[str]) -> str:
    return f"{', '.join(names)} (%(default)s)"


def run(arguments: argparse.Namespace) -> int:
    config = TrainConfig(**{name: getattr(arguments, name) for name in SETTINGS})
    from utils.training import train

    stop = threading.Event()
    received: list[int] = []

    def ask_to_stop(number: int, frame: object) -> None:
        received.append(number)
        stop.set()
        if len(received) > 1:  # asked twice: at once, without the checkpoint
            raise KeyboardInterrupt

    before = {n: signal.signal(n, ask_to_stop) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        with _Listeners(arguments.events) as listener:
            report = train(config, on_event=listener, should_stop=stop.is_set)
    except TrainingStopped as stopped:
        print(f"distlab train: {stopped}", file=sys.stderr)
        return 128 + received[0]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    print(report.to_json() if arguments.json else report)
    return 0


class _Listeners:
    """Shows events in a progress bar on standard error and, where asked, writes them to a file."""

    def __init__(self, events_path: str | None) -> None:
        self._path, self._bar = events_path, None
        with self._events_written():
            self._writer = EventWriter(events_path) if events_path else None

    def __enter__(self) -> Callable[[Event], None]:
        return self.listen

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.close()
        if self._writer is not None:
            self._writer.close()

    def listen(self, event: Event) -> None:
        if self._writer is not None:
            with self._events_written():
                self._writer(event)
        if event["event"] == "start":
            self._bar = _make_bar(event)
        elif event["event"] == "step" and self._bar is not None:
            self._bar.set_postfix_str(f"epoch {event['epoch']}, loss {event['loss']:.4f}", False)
            self._bar.update(event["step"] - self._bar.n)

    @contextmanager
    def _events_written(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise CourseError(
                f"events {self._path}: cannot be written ({error.strerror})"
            ) from None


def _make_bar(start: Event) -> Any:
    from tqdm import tqdm

    total = start["epochs"] * start["steps_per_epoch"]
    return tqdm(
        total=total,
        initial=min(total, start["first_step"]),
        unit="step",
        file=sys.stderr,
        disable=not sys.stderr.isatty(),
        dynamic_ncols=True,
        leave=False,
    )
