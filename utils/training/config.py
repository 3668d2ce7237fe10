"""What to train, as a plain record that checks itself. Imports no TensorFlow."""

import math
from dataclasses import dataclass, fields
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..strategies import STRATEGIES, check_strategy, find_strategy

LOOPS = ("fit", "custom")
DATASETS = ("fashion-mnist", "mnist")
OPTIMIZERS = {"sgd": 0.05, "momentum": 0.02, "adam": 0.001}  # with the usual learning rate
DTYPES = ("float32", "float64", "mixed_bfloat16")
MODELS = ("cnn", "mlp")
AUTO_SHARD = ("data", "file", "off")  # tf.data.experimental.AutoShardPolicy
WILDCARDS = set("*?[]\\")  # TensorFlow looks for checkpoints with these as patterns


@dataclass(frozen=True)
class TrainConfig:
    """One training job. `replicas` counts per worker; None takes the strategy's usual number.

    `auto_shard` is how the workers of "multi-worker" share the data: by "data" they
    train as one process does, by "file" and "off" they do not (`training.sharding`).
    `learning_rate` None takes the optimizer's usual one, `limit` None all training
    examples, `checkpoint_every` None a checkpoint at the end of each epoch only.
    `epochs` counts from the very start, also for a run that resumes.
    Raises InputError, which names the value and what is allowed.
    """

    strategy: str = "default"
    replicas: int | None = None
    dataset: str = "fashion-mnist"
    loop: str = "custom"
    auto_shard: str = "data"
    model: str = "cnn"
    epochs: int = 2
    global_batch_size: int = 64
    optimizer: str = "adam"
    learning_rate: float | None = None
    dtype: str = "float32"
    seed: int = 0
    limit: int | None = None
    full_data: bool = False
    data_folder: str | Path | None = None
    checkpoint: str | Path | None = None
    checkpoint_every: int | None = None
    export: str | Path | None = None

    def __post_init__(self) -> None:
        _set(self, "replicas", check_strategy(self.strategy, self.replicas))
        if str(self.dataset).replace("_", "-") not in DATASETS:
            raise InputError(f"dataset {self.dataset!r}: choose from {', '.join(DATASETS)}")
        for name, allowed in (
            ("loop", LOOPS), ("model", MODELS), ("dtype", DTYPES), ("auto_shard", AUTO_SHARD),
        ):  # fmt: skip
            _check_choice(name.replace("_", " "), getattr(self, name), allowed)
        self._check_cluster()
        _check_choice("optimizer", self.optimizer, tuple(OPTIMIZERS))
        for name in ("epochs", "global_batch_size", "limit", "checkpoint_every"):
            _set(self, name, _check_count(name, getattr(self, name)))
        if not _is_whole(self.seed) or not 0 <= self.seed < 2**31:
            raise InputError(f"seed {self.seed}: must be a whole number from 0 to {2**31 - 1}")
        _set(self, "seed", int(self.seed))
        if self.learning_rate is None:
            _set(self, "learning_rate", OPTIMIZERS[self.optimizer])
        _set(self, "learning_rate", _check_rate(self.learning_rate))
        if self.checkpoint_every is not None and self.checkpoint is None:
            raise InputError("checkpoint_every needs checkpoint: the folder to save in")
        if self.data_folder is not None and not self.full_data:
            raise InputError(
                f"data folder {self.data_folder}: is for the full data set; add full_data=True "
                "(--full-data)"
            )
        for name in ("checkpoint", "export"):
            _set(self, name, _check_folder(name, getattr(self, name)))

    def _check_cluster(self) -> None:
        """Raise InputError for a loop or a way to shard that the strategy cannot have."""
        record = find_strategy(self.strategy)
        if self.loop == "fit" and not record.can_fit:
            raise InputError(
                f"loop 'fit': Keras 3 has none for strategy {self.strategy!r}; choose custom"
            )
        if self.auto_shard == "data":
            return
        if not record.moves_together:
            able = next(r for r in STRATEGIES.values() if r.moves_together)
            raise InputError(
                f"auto shard {self.auto_shard!r}: is for strategy {able.name!r}; "
                f"strategy {self.strategy!r} has data"
            )
        if self.checkpoint is not None:
            raise InputError(
                f"auto shard {self.auto_shard!r}: such a run cannot go on from a checkpoint in the "
                "middle of an epoch; choose data, or leave the checkpoint out"
            )

    def fingerprint(self, examples: int) -> dict[str, Any]:
        """Return what a checkpoint must agree on for a run to go on from it.

        Strategy, replicas and loop may change between one run and the next; these may not.
        """
        names = ("model", "global_batch_size", "optimizer", "learning_rate", "dtype", "seed")
        kept = {name: getattr(self, name) for name in names}
        return {**kept, "dataset": self.dataset.replace("_", "-"), "examples": examples}


def make_config(config: TrainConfig | None, settings: dict[str, Any]) -> TrainConfig:
    """Return `config` (the default one for None) with `settings` changed.

    Raises InputError for a setting that does not exist.
    """
    known = [field.name for field in fields(TrainConfig)]
    for name in settings:
        if name not in known:
            raise InputError(f"setting {name!r}: choose from {', '.join(known)}")
    base = {name: getattr(config, name) for name in known} if config else {}
    if base and "strategy" in settings and "replicas" not in settings:
        base["replicas"] = None
    if base and "optimizer" in settings and "learning_rate" not in settings:
        base["learning_rate"] = None
    return TrainConfig(**{**base, **settings})


def _set(config: TrainConfig, name: str, value: Any) -> None:
    object.__setattr__(config, name, value)


def _check_choice(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise InputError(f"{name} {value!r}: choose from {', '.join(allowed)}")


def _check_count(name: str, value: Any) -> int | None:
    if value is None and name in ("limit", "checkpoint_every"):
        return None
    if not _is_whole(value) or value < 1:
        raise InputError(f"{name.replace('_', ' ')} {value}: must be a whole number from 1 up")
    return int(value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _check_rate(value: Any) -> float:
    if not (isinstance(value, Real) and math.isfinite(value) and value > 0):
        raise InputError(f"learning rate {value}: must be a number above 0")
    return float(value)


def _check_folder(name: str, path: str | Path | None) -> Path | None:
    """Return `path` with `~` replaced; it need not exist, but must be a name for a folder."""
    if path is None:
        return None
    try:
        folder = Path(path).expanduser()
        str(folder).encode()
        is_other = folder.exists() and not folder.is_dir()
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or "not a name that can be used"
        raise InputError(f"{name} {str(path)!r}: {reason}; name another folder") from None
    if is_other or not str(path):
        trouble = "is a file" if is_other else "is empty"
        raise InputError(f"{name} {str(path)!r}: {trouble}; name a folder")
    if name == "checkpoint" and WILDCARDS & set(str(folder)):
        raise InputError(
            f"checkpoint {folder}: TensorFlow reads none of {' '.join(sorted(WILDCARDS))} in the "
            "name of a checkpoint; name another folder"
        )
    return folder
