"""The options of `distlab train`: the settings of a run, and a file that has them."""

import argparse
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from distlab.cli.parser import OneLineParser, declare
from distlab.cli.starting import add_starting
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

FIELDS = [each.name for each in fields(TrainConfig)]
SETTINGS = tuple(FIELDS[: FIELDS.index("train_data")])  # what a word can say
CHOICES = {
    "strategy": NAMES,
    "devices": DEVICES,
    "all_reduce": ALL_REDUCES,
    "auto_shard": AUTO_SHARD,
    "model": MODELS,
    "dtype": DTYPES,
    "loop": LOOPS,
    "optimizer": OPTIMIZERS,
}
OPTIONS = """
strategy and devices:
--strategy NAME  {strategy}
--replicas, --replicas-per-worker N  replicas per worker [all GPUs; without GPUs, 2 if the
    strategy has several]
--device, --devices NAME  train on GPUs or logical CPUs: {devices}
--all-reduce NAME  add up gradients with {all_reduce}
--workers N  workers of multi-worker and parameter-server; with --rendezvous also a range, MIN:MAX
    [2]
--ps N  servers of parameter-server [1]
--max-restarts N  restart all tasks up to N times after a failure [0]
--auto-shard NAME  shard the data across the workers of multi-worker by {auto_shard}
data and model:
--dataset NAME  {datasets}
--max-examples N  train on the first N examples [all]
--full-data  train on the full data set, not on the sample
--data-folder DIR  with --full-data: a TFDS folder, or an .npz file in Keras's format
--model NAME  {model}
--dtype NAME  {dtype}
--seed N  seed of the initial weights and the order of examples
training:
--config FILE  read settings from a JSON file, such as {{"learning_rate": 0.02}}; options after it
    override them
--loop NAME  {loop}
--epochs N  train for N epochs; a resumed run counts the epochs before it
--global-batch-size N  examples per step, over all replicas
--optimizer NAME  {optimizer}
--learning-rate X  learning rate [{rates}]
--warm-up-steps N  raise the learning rate from a tenth to all of it over N steps
--clipnorm X  clip each variable's gradient, of all replicas together, to this norm [don't clip]
--jit-compile  compile forward and backward pass with XLA; only with --loop custom
output:
--checkpoint-dir DIR  save checkpoints to this folder after each epoch and on Ctrl-C, and resume
    from the latest; one run at a time
--checkpoint-every N  also save every N steps
--export DIR  write model.keras and saved_model to this folder
--events FILE  append events to FILE as JSON lines
--json  print the report as one JSON object; a loss that isn't finite is null
"""


def add_options(parser: OneLineParser) -> None:
    """Declare every option of `distlab train`; defaults are those of `TrainConfig`."""
    listed = {name: ", ".join(some) for name, some in CHOICES.items()}
    rates = ", ".join(f"{name} {rate:g}" for name, rate in OPTIMIZERS.items())
    more: dict[str, Any] = {each.name: {"default": each.default} for each in fields(TrainConfig)}
    for name, some in CHOICES.items():
        more[name]["choices"] = tuple(some)
    more["device"] = {**more["devices"], "dest": "devices"}
    more |= {"workers": {"type": str}, "config": {"action": ReadSettings}}
    text = OPTIONS.format(**listed, rates=rates, datasets=", ".join(DATASETS))
    declare(parser, text, **more)
    add_starting(parser, "train")


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
