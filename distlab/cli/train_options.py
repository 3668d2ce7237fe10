"""The options of `distlab train`: the settings of a run, and a file that has them."""

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from distlab.cli.parser import OneLineParser
from distlab.cli.starting import add_engine, add_rendezvous
from utils.devices import ALL_REDUCES, DEVICES
from utils.strategies import NAMES
from utils.training.config import (
    AUTO_SHARD,
    DATASETS,
    DTYPES,
    LOOPS,
    MODELS,
    OPTIMIZERS,
    TrainConfig,
)

SETTINGS = (
    "strategy",
    "replicas",
    "devices",
    "all_reduce",
    "dataset",
    "loop",
    "auto_shard",
    "model",
    "epochs",
    "global_batch_size",
    "optimizer",
    "learning_rate",
    "warm_up_steps",
    "clipnorm",
    "jit_compile",
    "dtype",
    "seed",
    "max_examples",
    "full_data",
    "data_folder",
    "checkpoint_dir",
    "checkpoint_every",
    "export",
)


def add_options(parser: OneLineParser) -> None:
    """Declare every option of `distlab train`."""
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
    add(
        "--warm-up-steps",
        type=int,
        default=usual.warm_up_steps,
        metavar="N",
        help="raise the learning rate from a tenth to all of it over N steps",
    )
    text = "clip each variable's gradient, of all replicas together, to this norm [don't clip]"
    add("--clipnorm", type=float, metavar="X", help=text)
    text = "compile forward and backward pass with XLA; only with --loop custom"
    add("--jit-compile", action="store_true", help=text)
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
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
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
