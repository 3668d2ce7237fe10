"""The settings of a training, as a plain record that checks itself. Imports no TensorFlow."""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypedDict

from ..checks import check_choice, check_count, check_number, suggest
from ..devices import ALL_REDUCES, DEVICES
from ..errors import InputError
from ..strategies import LOOPS, STRATEGIES, check_strategy, find_strategy

DATASETS = ("fashion-mnist", "mnist", "fashion-scenes")
OPTIMIZERS = {"sgd": 0.05, "momentum": 0.02, "adam": 0.001}  # with the usual learning rate
# further names, with Keras's own usual rate
KERAS_OPTIMIZERS = (
    "adadelta adafactor adagrad adamax adamw ftrl lamb lion muon nadam rmsprop".split()
)
DTYPES = ("float32", "float64", "mixed_bfloat16", "mixed_float16")
MODELS = ("cnn", "mlp", "transformer", "unet")
MODEL_OF_SCENES = "unet"  # it alone gives a class for every pixel
AUTO_SHARD = ("data", "file", "off")  # tf.data.experimental.AutoShardPolicy
WILDCARDS = set("*?[]\\")  # TensorFlow looks for checkpoints with these as patterns
MAX_EPOCHS, MAX_BATCH_SIZE = 10**6, 10**7
PLACES = ("data_folder", "checkpoint_dir", "export")  # may differ from worker to worker

Maker = Callable[..., Any]


class TrainSettings(TypedDict, total=False):
    """The keyword arguments of `train`: the fields of `TrainConfig`, for editors and checkers."""

    strategy: str
    replicas: int | None
    devices: str
    all_reduce: str
    dataset: str
    loop: str
    auto_shard: str
    model: Any
    epochs: int
    global_batch_size: int
    optimizer: Any
    learning_rate: float | None
    warm_up_steps: int
    clipnorm: float | None
    dtype: str
    jit_compile: bool
    seed: int
    max_examples: int | None
    full_data: bool
    data_folder: str | Path | None
    checkpoint_dir: str | Path | None
    checkpoint_every: int | None
    export: str | Path | None
    train_data: Any
    test_data: Any
    loss: Any
    metrics: Sequence[Any]
    callbacks: Sequence[Any] | Maker
    steps_per_epoch: int | None


@dataclass(frozen=True)
class TrainConfig:
    """One training job. `replicas` counts per worker; None takes the strategy's usual number.

    What is trained, and on what; the bundled models and images are the defaults:

    - `model`: a name, a `keras.Model` class or a function, called without arguments in the
      strategy's scope, or an instance. An instance is copied in the scope, from its config and
      with its weights, so that its variables are where the strategy wants them; the copy is
      trained (`report.weights`). `keras.utils.set_random_seed(seed)` is called before classes
      and functions, also before functions that make data.
    - `train_data`, `test_data`: None for the data set named `dataset`; else a
      `tf.data.Dataset`, or a function without arguments that makes one, whose elements
      are global batches `(features, labels)` or `(features, labels, weights)`: features one
      tensor or a tuple or dict of them, each [global_batch_size, ...], weights
      [global_batch_size]; the last batch may be smaller. Or a function of a
      `tf.distribute.InputContext`, which makes what this worker reads, in batches of one
      replica. Under strategies of a cluster, give functions.
    - `steps_per_epoch`: None for once through `train_data`, counted by one pass if tf.data doesn't
      know its length; else that many batches: reading continues from one epoch to the next, and
      begins again at its end. A run that resumes is exact where every pass has the same order, and
      without `steps_per_epoch` also where the data are shuffled anew in each.
    - `loss`: None for sparse categorical cross-entropy on logits; else a name that Keras
      knows, a `keras.losses.Loss`, a function of (labels, outputs) that gives one number
      per example, or a function without arguments that makes one of these.
    - `optimizer`: a name, an optimizer (it is copied), or a function that makes one.
      `learning_rate` None takes a name's usual one. Objects and functions have their own.
    - `warm_up_steps`: the rate rises from a tenth of `learning_rate` to all of it in that many
      steps.
    - `clipnorm`: clips the gradient of each variable to this norm, as Keras does on one device,
      after the gradients of all replicas are added up.
    - `metrics`: names, functions of (labels, outputs) that give one number per example, or Keras
      metrics that are means over examples. A classification's accuracy is measured without
      asking. The report has them in `metrics` and `test_metrics`.
    - `callbacks`: `keras.callbacks.Callback` objects, or a function that makes a list of them.
      Every loop calls `on_train_begin`, `on_epoch_begin`, `on_epoch_end` (with the means of all
      replicas) and `on_train_end`, on every worker. `model.stop_training` ends the run.
    - `jit_compile`: compiles forward and backward pass with XLA (loop "custom").
    - `dtype`: a Keras dtype policy for the models that have a name. Where any layer of a
      model computes in float16, the loss is scaled (`training.loss_scale`).

    `devices` "auto" trains on all GPUs that this process may use, and on logical CPUs without any;
    "gpu" needs one, "cpu" leaves them alone. `replicas` is how many of them, per worker.
    `all_reduce` is how replicas add up their gradients (`strategies.make_strategy`).
    `auto_shard` is how the workers of "multi-worker" share the bundled data: by "data" they
    train as one process does, by "file" and "off" they don't (`training.counting_feed`).
    `max_examples` None takes all training examples (of scenes also as many test examples at
    most), `checkpoint_every` None a checkpoint at the end of each epoch only. `epochs` counts
    from the very start, also for a run that resumes.
    Raises InputError, which names the value and the allowed ones.

        config = TrainConfig("mirrored", devices="cpu", model="mlp", epochs=1)
    """

    strategy: str = "default"
    replicas: int | None = None
    devices: str = "auto"
    all_reduce: str = "auto"
    dataset: str = "fashion-mnist"
    loop: str = "custom"
    auto_shard: str = "data"
    model: str | Maker = "cnn"
    epochs: int = 2
    global_batch_size: int = 64
    optimizer: Any = "adam"
    learning_rate: float | None = None
    warm_up_steps: int = 0
    clipnorm: float | None = None
    dtype: str = "float32"
    jit_compile: bool = False
    seed: int = 0
    max_examples: int | None = None
    full_data: bool = False
    data_folder: str | Path | None = None
    checkpoint_dir: str | Path | None = None
    checkpoint_every: int | None = None
    export: str | Path | None = None
    train_data: Any = None
    test_data: Any = None
    loss: Any = None
    metrics: Sequence[Any] = ()
    callbacks: Sequence[Any] | Maker = ()
    steps_per_epoch: int | None = None

    def __post_init__(self) -> None:
        _set(self, "replicas", check_strategy(self.strategy, self.replicas))
        check_choice("dataset", str(self.dataset).replace("_", "-"), DATASETS)
        for name, allowed in (
            ("loop", LOOPS),
            ("dtype", DTYPES),
            ("auto_shard", AUTO_SHARD),
            ("devices", DEVICES),
            ("all_reduce", ALL_REDUCES),
        ):
            check_choice(name.replace("_", " "), getattr(self, name), allowed)
        for name in ("jit_compile", "full_data"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"{name} must be True or False, got {getattr(self, name)!r}.")
        self._check_cluster()
        self._check_model()
        for name, most in (
            ("epochs", MAX_EPOCHS),
            ("global_batch_size", MAX_BATCH_SIZE),
            ("max_examples", None),
            ("checkpoint_every", None),
            ("steps_per_epoch", None),
        ):
            _set(self, name, _check_count(name, getattr(self, name), most))
        _set(self, "seed", check_count("seed", self.seed, 0, 2**31 - 1))
        self._check_optimizer()
        if self.clipnorm is not None:
            _set(self, "clipnorm", check_number("clipnorm", self.clipnorm, above=0))
        self._check_lists()
        if self.checkpoint_every is not None and self.checkpoint_dir is None:
            raise InputError("checkpoint_every needs a folder to save in. Add checkpoint_dir.")
        self._check_data()
        for name in ("checkpoint_dir", "export"):
            _set(self, name, _check_folder(name, getattr(self, name)))

    @property
    def has_own_data(self) -> bool:
        return self.train_data is not None

    @property
    def has_scenes(self) -> bool:
        return not self.has_own_data and self.dataset == "fashion-scenes"

    def _check_model(self) -> None:
        if not isinstance(self.model, str):
            if callable(self.model):
                return
            raise InputError(
                "model must be a name, a keras.Model, its class, or the function that builds it, "
                f"got {type(self.model).__name__}."
            )
        check_choice("model", self.model, MODELS)
        wanted = self.has_scenes
        if self.has_own_data or (self.model == MODEL_OF_SCENES) == wanted:
            return
        able = [name for name in MODELS if (name == MODEL_OF_SCENES) == wanted]
        kind = "a class for every pixel" if wanted else "one class for an image"
        raise InputError(
            f"model must be {' or '.join(able)} for dataset {self.dataset}, which has "
            f"{kind}, got {self.model!r}."
        )

    def _check_optimizer(self) -> None:
        if isinstance(self.optimizer, str):
            check_choice("optimizer", self.optimizer, (*OPTIMIZERS, *KERAS_OPTIMIZERS))
            if self.learning_rate is None:
                _set(self, "learning_rate", OPTIMIZERS.get(self.optimizer))
        elif self.learning_rate is not None:
            raise InputError(
                "learning_rate must be left out when an optimizer object is given, got "
                f"{self.learning_rate}. The optimizer has its own."
            )
        if self.learning_rate is not None:
            _set(self, "learning_rate", check_number("learning rate", self.learning_rate, above=0))
        _set(self, "warm_up_steps", check_count("warm_up_steps", self.warm_up_steps, 0))
        if self.warm_up_steps and self.learning_rate is None:
            raise InputError("warm_up_steps must come with a learning_rate to rise to. Add one.")

    def _check_lists(self) -> None:
        for name in ("metrics", "callbacks"):
            given = getattr(self, name)
            if name == "callbacks" and callable(given):
                continue
            if isinstance(given, str) or not isinstance(given, Sequence):
                kind = type(given).__name__
                raise InputError(f"{name} must be a list, got {kind}. Put it in brackets: [...].")
            _set(self, name, tuple(given))

    def _check_data(self) -> None:
        """Raise InputError for settings of bundled data next to own data, and the reverse."""
        if self.data_folder is not None and not self.full_data:
            raise InputError(
                f"data_folder {self.data_folder} is for the full data set. Add "
                "full_data=True (--full-data)."
            )
        if not self.has_own_data:
            for name in ("test_data", "steps_per_epoch"):
                if getattr(self, name) is not None:
                    raise InputError(f"{name} is for own data. Add train_data, or leave it out.")
            return
        for name, usual in (("max_examples", None), ("full_data", False), ("auto_shard", "data")):
            if getattr(self, name) != usual:
                raise InputError(
                    f"{name}={getattr(self, name)} is for the bundled data. Leave it out, "
                    "and prepare train_data as you need it."
                )

    def _check_cluster(self) -> None:
        """Raise InputError for a loop or a way to shard that the strategy can't have."""
        record = find_strategy(self.strategy)
        if self.loop == "fit" and not record.can_fit:
            raise InputError(
                f"loop must be 'custom' for strategy {self.strategy!r}, got 'fit'. Keras 3 "
                "has no fit under it."
            )
        if self.jit_compile and self.loop == "fit":
            raise InputError("jit_compile needs loop 'custom', got 'fit'.")
        if self.jit_compile and not record.takes_xla:
            raise InputError(
                f"jit_compile can't be used under strategy {self.strategy!r}: XLA can't read "
                "another device's variables."
            )
        if self.auto_shard == "data":
            return
        if not record.in_lockstep:
            able = next(r for r in STRATEGIES.values() if r.in_lockstep)
            raise InputError(
                f"auto_shard={self.auto_shard!r} needs strategy {able.name!r}. Strategy "
                f"{self.strategy!r} takes data."
            )
        if self.checkpoint_dir is not None:
            raise InputError(
                f"auto_shard={self.auto_shard!r} can't resume from a checkpoint in the "
                "middle of an epoch. Use data, or leave the checkpoint out."
            )

    def fingerprint(self, examples: int | str) -> dict[str, Any]:
        """Return what a checkpoint must have in common with a run that resumes from it.

        `examples` says how much data there is. Strategy, replicas and loop may change between
        one run and the next; these may not.
        """
        names = ("model", "global_batch_size", "optimizer", "learning_rate", "dtype", "seed")
        kept = {name: describe(getattr(self, name)) for name in names}
        for name in ("loss", "warm_up_steps", "clipnorm", "metrics"):  # not in old checkpoints
            if getattr(self, name):
                kept[name] = describe(getattr(self, name))
        data = "own" if self.has_own_data else self.dataset.replace("_", "-")
        return {**kept, "dataset": data, "examples": examples}

    def facts(self) -> dict[str, Any]:
        """Return what all workers of a run must have in common, as values that JSON can hold."""
        facts = {f.name: describe(getattr(self, f.name), with_code=True) for f in fields(self)}
        return {**facts, **{name: getattr(self, name) is not None for name in PLACES}}


def make_config(config: TrainConfig | None, settings: dict[str, Any]) -> TrainConfig:
    """Return `config` (the default one for None) with `settings` changed.

    Raises InputError for a setting that doesn't exist, and for a `config` that is something else.
    """
    if config is not None and not isinstance(config, TrainConfig):
        raise InputError(
            f"config must be a TrainConfig, got {type(config).__name__}. Give settings by name: "
            'train(strategy="mirrored", epochs=3).'
        )
    if config is not None and not settings:
        return config
    known = [field.name for field in fields(TrainConfig)]
    for name in settings:
        if name not in known:
            near = suggest(name, known) or f". Choose from {', '.join(known)}."
            raise InputError(f"train() has no setting {name!r}{near}")
    base = {name: getattr(config, name) for name in known} if config else {}
    if base and "strategy" in settings and "replicas" not in settings:
        base["replicas"] = None
    if base and "optimizer" in settings and "learning_rate" not in settings:
        base["learning_rate"] = None
    return TrainConfig(**{**base, **settings})


def describe(value: Any, with_code: bool = False) -> Any:
    """Return a setting as JSON can hold it: plain values, and names of other objects.

    `with_code` adds a checksum of a function's code or of a Keras object's settings, by
    which two workers see that they were given different ones.
    """
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, tuple):
        return [describe(each, with_code) for each in value]
    name = getattr(value, "__qualname__", None) or type(value).__name__
    if not with_code:
        return name
    content = b""
    if hasattr(value, "__code__"):
        content = value.__code__.co_code
    elif hasattr(value, "get_config") and not isinstance(value, type):
        content = repr(value.get_config()).encode()
    return f"{name}#{zlib.crc32(content):08x}"


def _set(config: TrainConfig, name: str, value: Any) -> None:
    object.__setattr__(config, name, value)


def _check_count(name: str, value: Any, most: int | None) -> int | None:
    if value is None and name not in ("epochs", "global_batch_size"):
        return None
    return check_count(name.replace("_", " "), value, **({"most": most} if most else {}))


def _check_folder(name: str, path: str | Path | None) -> Path | None:
    """Return `path` with `~` replaced; it need not exist, but must be a name for a folder."""
    if path is None:
        return None
    try:
        folder = Path(path).expanduser()
        str(folder).encode()
        is_other = folder.exists() and not folder.is_dir()
    except (OSError, TypeError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or "not a usable name"
        raise InputError(f"{name} must be a folder, got {str(path)!r} ({reason}).") from None
    if is_other or not str(path):
        trouble = "is a file" if is_other else "is empty"
        raise InputError(f"{name} must be a folder, got {str(path)!r}, which {trouble}.")
    if name == "checkpoint_dir" and WILDCARDS & set(str(folder)):
        raise InputError(
            f"checkpoint_dir {folder} must not contain any of {' '.join(sorted(WILDCARDS))}: "
            "TensorFlow can't read such a checkpoint. Name another folder."
        )
    return folder
