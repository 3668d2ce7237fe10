"""The training program: one for every strategy.

A training run, top to bottom: config -> data -> strategy -> feed -> state -> loop ->
checkpoint -> report. `step` shows how a step works, and `loops` has the two loops.
"""

import contextlib
import hashlib
import inspect
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from ..data import ImageData, open_data
from ..environment import quiet_tensorflow, versions
from ..errors import InputError
from ..events import Listener
from ..files import make_folder
from ..placement import Devices, describe_strategy
from ..strategies import make_strategy
from .config import TrainConfig, TrainSettings, make_config
from .report import DEVICE_FIELDS, OWN, TESTED, TrainReport, weights_checksum

if TYPE_CHECKING:
    import keras

    from .input_feed import InputFeed, ReadLog
    from .progress import RunProgress
    from .state import TrainState
    from .worker_group import WorkerGroup

OTHER_BACKENDS = ("jax", "torch", "openvino")


def train(
    config: TrainConfig | None = None,
    *,
    on_event: Listener | None = None,
    should_stop: Callable[[], bool] | None = None,
    read_log: "ReadLog | None" = None,
    **settings: Unpack[TrainSettings],
) -> TrainReport:
    """Train as `config` says, with `settings` changed, and return the report.

        report = train(strategy="mirrored", replicas=2, epochs=3)
        report.loss, report.test_accuracy, report.weights

        train(model=build_model, train_data=make_data, loss="mse", strategy="mirrored")

    `settings` are the fields of `TrainConfig`, which describes them. `on_event` is called
    with every event of `utils.events` as it happens. `should_stop` is called between steps;
    when it says True, a checkpoint is saved (if there is a folder for it) and
    TrainingStopped is raised. Raises InputError for settings that can't be, and RunError
    where the workers of a cluster weren't started alike.

    With strategy "multi-worker" every worker calls it, with its own TF_CONFIG, and
    gets the same report; the chief alone calls `on_event`, keeps checkpoints and
    exports. All stop once `should_stop` says True on one of them. With "parameter-server" the
    coordinator (task "chief") calls it. `read_log` records which bundled images this
    process's replicas were handed, step by step (`training.input_feed`).
    """
    begun = time.perf_counter()
    config = make_config(config, settings)
    for name, given in (("on_event", on_event), ("should_stop", should_stop)):
        if given is not None and not callable(given):
            raise InputError(f"{name} must be a function, got {type(given).__name__}.")
    images = None
    if not config.has_own_data:
        images = open_data(config.dataset, full=config.full_data, folder=config.data_folder)
        if config.max_examples is not None:
            images = images.take(config.max_examples)
    with quiet_tensorflow():  # after the data, so that a wrong folder is known at once
        backend = find_backend()
    if backend != "tensorflow":
        raise InputError(
            f"tf.distribute needs Keras on tensorflow, and it runs on {backend}. Unset "
            "KERAS_BACKEND (or correct ~/.keras/keras.json) and start again."
        )

    from .loops import LOOP_MAKERS
    from .progress import RunProgress
    from .state import make_state, set_own_seed
    from .worker_group import WorkerGroup

    strategy = make_strategy(
        config.strategy, config.replicas, devices=config.devices, all_reduce=config.all_reduce
    )
    group = WorkerGroup(strategy)
    if group.in_lockstep:
        group.compare({**config.facts(), **_versions(), **_image_facts(images)})
    if config.export is not None and group.is_chief:
        make_folder("export", Path(config.export))
    devices = gather_devices(group) if group.in_lockstep else describe_strategy(strategy)
    with contextlib.ExitStack() as to_close:
        if config.has_own_data:  # shuffles without a seed have the same order on every worker
            set_own_seed(config)
        feed, test_feed = make_feeds(config, group, images, read_log)
        for each in filter(None, (feed, test_feed)):
            to_close.callback(each.close)
        state = make_state(strategy, config, feed.spec)
        run = RunProgress(config, feed, on_event, should_stop, group=group, devices=str(devices))
        to_close.callback(run.close)  # lets other runs use the checkpoint folder
        run.resume(state)
        run.report(
            "start",
            strategy=config.strategy,
            replicas=group.replicas_per_worker,
            workers=group.workers,
            **describe_devices(devices),
            global_batch_size=config.global_batch_size,
            steps_per_epoch=run.steps_per_epoch,
            epochs=config.epochs,
            first_step=run.steps_taken,
        )
        train_on = LOOP_MAKERS[config.loop](state, run, feed)
        callbacks = make_callbacks(state, run)
        callbacks.on_train_begin()
        with explain_ends(run):
            while run.position.epoch < config.epochs and not state.model.stop_training:
                epoch = run.position.epoch
                callbacks.on_epoch_begin(epoch)
                batches = feed.batches(epoch, first_step=run.position.step)
                run.begin_epoch()
                state.reset_metrics()
                train_on(batches)
                run.end_epoch(state.read_metrics)
                callbacks.on_epoch_end(epoch, run.last_means())
                run.save()
        callbacks.on_train_end()
        tested = test(state, run, test_feed)
        if config.export is not None and group.is_chief:
            export_model(state, config, feed.spec)
        group.barrier()
        found = {**describe_devices(devices), **describe_data(run, images), **tested}
        return make_report(state, run, found, begun)


_signature = inspect.signature(train)
_config, *_others, _ = _signature.parameters.values()
_settings = [
    inspect.Parameter(
        field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type
    )
    for field in fields(TrainConfig)
]
train.__signature__ = _signature.replace(  # type: ignore[attr-defined]
    parameters=[_config, *_settings, *_others]  # each setting in place of `settings`
)


def make_callbacks(state: "TrainState", run: "RunProgress") -> "keras.callbacks.CallbackList":
    """Return the caller's callbacks, which see the model and its optimizer as under `fit`."""
    import keras

    given = run.config.callbacks
    made = list(given() if callable(given) else given)
    for each in made:
        if not isinstance(each, keras.callbacks.Callback):
            raise InputError(f"callbacks must be Keras callbacks, got {type(each).__name__}")
    if made:
        state.model.optimizer = state.optimizer
    state.model.stop_training = False
    return keras.callbacks.CallbackList(
        made, model=state.model, epochs=run.config.epochs, steps=run.steps_per_epoch
    )


def make_feeds(
    config: TrainConfig,
    group: "WorkerGroup",
    images: ImageData | None,
    read_log: "ReadLog | None",
) -> tuple["InputFeed", "InputFeed | None"]:
    """Return what feeds the training and the test; own data may have no test."""
    if read_log is not None and (config.has_own_data or config.has_scenes):
        raise InputError("read_log must be left out unless you train on the bundled single images.")
    if config.has_own_data:
        from .own_data import make_own_feed

        feeds = [make_own_feed(name, config, group) for name in ("train_data", "test_data")]
        return feeds[0], feeds[1]
    from ..data.batches import BatchPlan
    from .input_feed import ImageFeed, TestFeed

    replicas, by_plan = group.strategy.num_replicas_in_sync, config.auto_shard == "data"
    plan = BatchPlan(len(images.train), config.global_batch_size, replicas)
    if config.has_scenes:
        from .scene_feed import CountingSceneFeed, SceneFeed, SceneTestFeed

        test_feed = SceneTestFeed(images.test, config, replicas)
        if by_plan:
            return SceneFeed(images.train, plan, config), test_feed
        return CountingSceneFeed(images.train, plan, config, group), test_feed
    if by_plan:
        feed = ImageFeed(images.train, plan, config, read_log)
    else:
        from .counting_feed import CountingFeed

        feed = CountingFeed(images.train, plan, config, group, read_log)
    return feed, TestFeed(images.test, config, replicas)


def test(state: "TrainState", run: "RunProgress", test_feed: "InputFeed | None") -> dict[str, Any]:
    """Return what the trained model reaches on the test data, by the report's names."""
    from .loops import evaluate

    means = {} if test_feed is None else evaluate(state, run, test_feed)
    run.report("end", step=run.steps_taken, **{f"test_{n}": mean for n, mean in means.items()})
    found = {f"test_{name}": means.pop(name, None) for name in TESTED}
    return {**found, "test_metrics": means}


def describe_devices(devices: Devices) -> dict[str, Any]:
    """Return what the report and the first event say of the devices, by their names there."""
    values = list(devices.names), list(devices.kinds), devices.all_reduce, devices.unused_gpus
    return dict(zip(DEVICE_FIELDS, (*values, devices.note), strict=True))


def describe_data(run: "RunProgress", images: ImageData | None) -> dict[str, Any]:
    """Return the report's fields about the data: its name, its source, its examples."""
    if images is None:
        examples = run.position.epoch_examples
        return {"dataset": OWN, "source": "caller", "examples": examples}
    return {
        "dataset": run.config.dataset,
        "source": images.source,
        "examples": len(images.train),
    }


def make_report(
    state: "TrainState", run: "RunProgress", found: dict[str, Any], begun: float
) -> TrainReport:
    """Return the report of a run that began at `begun`; `found` has the known fields."""
    config, position, history = run.config, run.position, dict(run.position.history)
    weights = tuple(np.asarray(v) for v in state.model.trainable_variables)
    return TrainReport(
        strategy=config.strategy,
        replicas=run.group.replicas_per_worker,
        workers=run.group.workers,
        loop=config.loop,
        global_batch_size=config.global_batch_size,
        epochs=position.epoch,
        resumed_from=run.restored.path,
        skipped_checkpoints=run.restored.skipped_checkpoints,
        loss=history.pop("loss", []),
        accuracy=history.pop("accuracy", None),
        metrics=history,
        images_per_second=run.images_per_second(),
        seconds=time.perf_counter() - begun,
        weights_checksum=weights_checksum(weights),
        weights=weights,
        **describe_loss_scale(state, run),
        **found,
    )


def describe_loss_scale(state: "TrainState", run: "RunProgress") -> dict[str, Any]:
    """Return what the report says of float16's loss scale."""
    from .loss_scale import read_loss_scale

    scale = read_loss_scale(state.optimizer)
    if scale is None or run.record.is_coordinated:  # their `iterations` lose counts
        return {"loss_scale": scale}
    return {
        "loss_scale": scale,
        "skipped_steps": run.steps_taken - int(state.optimizer.iterations.numpy()),
    }


def gather_devices(group: "WorkerGroup") -> Devices:
    """Return the devices of all workers' replicas, on every worker."""
    own = describe_strategy(group.strategy)
    everyone = [Devices(*one) for one in group.gather(list(vars(own).values()))]
    names = [f"{who} {name}" for who, one in zip(group.names, everyone) for name in one.names]
    kinds = [kind for one in everyone for kind in one.kinds]
    notes = dict.fromkeys(one.note for one in everyone if one.note)
    unused = sum(one.unused_gpus for one in everyone)
    return Devices(tuple(names), tuple(kinds), own.all_reduce, unused, "; ".join(notes))


@contextlib.contextmanager
def explain_ends(run: "RunProgress") -> Iterator[None]:
    """Raise InputError if own data ends early or gives a batch that is too large."""
    import tensorflow as tf

    try:
        yield
    except tf.errors.OutOfRangeError:
        raise _name_end(run) from None
    except tf.errors.InvalidArgumentError as error:
        told = re.search(r"train_data: a batch has more than \d+ examples", str(error))
        if told is not None:
            raise InputError(f"{told[0]}. Batch it by the global batch size.") from None
        if "expected to contain" in str(error):  # `tf.data.experimental.assert_cardinality`
            raise _name_end(run) from None
        raise


def _name_end(run: "RunProgress") -> InputError:
    return InputError(
        f"train_data must give {run.steps_per_epoch} batches in every epoch, as in the first. Make "
        "the dataset deterministic in size."
    )


def export_model(state: "TrainState", config: TrainConfig, spec: Any = None) -> tuple[Path, Path]:
    """Write `model.keras` and `saved_model/` into the export folder; return both paths.

    What is written is a plain copy, built outside any strategy, so that it loads
    anywhere. Raises InputError if the folder can't be written.
    """
    import tensorflow as tf

    from .checkpoints import describe_failure
    from .state import make_model

    plain = make_model(config, spec)
    plain.set_weights(state.model.get_weights())
    folder = Path(config.export)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        plain.save(folder / "model.keras")
        plain.export(folder / "saved_model", verbose=False)
    except (OSError, tf.errors.OpError) as error:
        reason = describe_failure(error)
        raise InputError(
            f"export {folder} can't be written ({reason}). Name another folder."
        ) from None
    return folder / "model.keras", folder / "saved_model"


def find_backend() -> str:
    """Import TensorFlow and Keras; return the name of the backend that Keras runs on."""
    import tensorflow  # noqa: F401

    try:
        import keras

        return keras.backend.backend()
    except ModuleNotFoundError as error:
        if error.name not in OTHER_BACKENDS:
            raise
        return error.name


def _versions() -> dict[str, str]:
    """Return what the workers of a run must have in common besides settings and data."""
    found = versions()
    here = Path(__file__).parent
    code = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(here.glob("*.py"))))
    names = ("python", "tensorflow", "keras")
    return {name: found[name] for name in names} | {"training code": code.hexdigest()[:12]}


def _image_facts(images: ImageData | None) -> dict[str, str]:
    if images is None:
        return {}
    return {"data": f"{len(images.train)} images {images.train.digest()}"}
