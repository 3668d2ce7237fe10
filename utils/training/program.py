"""The training program: one for every strategy."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..environment import quiet_tensorflow
from ..errors import InputError
from ..events import Listener
from ..strategies import find_strategy
from .config import TrainConfig, make_config
from .report import TrainReport, weights_checksum

if TYPE_CHECKING:
    from ..data import ImageData
    from .parts import Parts
    from .progress import Run
    from .sharding import Feed, ReadLog

OTHER_BACKENDS = ("jax", "torch", "openvino")


def train(
    config: TrainConfig | None = None,
    *,
    on_event: Listener | None = None,
    should_stop: Callable[[], bool] | None = None,
    read_log: "ReadLog | None" = None,
    **settings: Any,
) -> TrainReport:
    """Train as `config` says, with `settings` changed, and return the report.

        report = train(strategy="mirrored", replicas=2, epochs=3)
        report.loss, report.test_accuracy, report.weights

    `settings` are the fields of `TrainConfig`. `on_event` is called with every
    event of `utils.events` as it happens. `should_stop` is asked between steps;
    when it says True, a checkpoint is saved (where there is a folder for it) and
    TrainingStopped is raised. Raises InputError for settings that cannot be.

    With strategy "multi-worker" every worker calls it, with its own TF_CONFIG, and
    gets the same report; the chief alone calls `on_event`, keeps checkpoints and
    exports. All stop when one of them is asked to. With "parameter-server" the
    coordinator (task "chief") calls it. `read_log` records which examples this
    process's replicas were handed, step by step (`training.sharding`).
    """
    begun = time.perf_counter()
    config = make_config(config, settings)
    from ..data import load

    data = load(config.dataset, full=config.full_data, folder=config.data_folder)
    if config.limit is not None:
        data = data.take(config.limit)
    _import_keras()  # after the data, so that a wrong folder is known at once

    from ..strategies import make_strategy

    strategy = make_strategy(config.strategy, config.replicas)
    return _train_with(strategy, config, data, on_event, should_stop, read_log, begun)


def _import_keras() -> None:
    """Import TensorFlow and Keras with their banner caught; InputError for another backend."""
    with quiet_tensorflow():
        import tensorflow  # noqa: F401

        try:
            import keras

            backend = keras.backend.backend()
        except ModuleNotFoundError as error:
            if error.name not in OTHER_BACKENDS:
                raise
            backend = error.name
    if backend != "tensorflow":
        raise InputError(
            f"Keras runs on {backend}, and tf.distribute needs it on tensorflow: unset "
            "KERAS_BACKEND (or correct ~/.keras/keras.json) and start again"
        )


def _train_with(strategy, config, data, on_event, should_stop, read_log, begun) -> TrainReport:
    from ..files import make_folder
    from .parts import make_parts
    from .progress import Run
    from .sharding import make_feed
    from .worker_group import WorkerGroup

    group = WorkerGroup(strategy)
    if config.export is not None and group.is_chief:
        make_folder("export", Path(config.export))
    feed = make_feed(data.train, config, strategy, group.workers, read_log)
    run = Run(config, feed.plan, on_event, should_stop, group=group)
    parts = make_parts(strategy, config)
    try:
        run.resume(parts)
        run.report(
            "start",
            strategy=config.strategy,
            replicas=group.replicas_per_worker,
            workers=group.workers,
            global_batch_size=config.global_batch_size,
            steps_per_epoch=feed.plan.steps_per_epoch,
            epochs=config.epochs,
            first_step=run.steps_taken,
        )
        train_epochs(parts, run, data, feed)
    finally:
        run.close()
        feed.close()
    return _report(parts, run, data, begun)


def train_epochs(parts: "Parts", run: "Run", data: "ImageData", feed: "Feed") -> None:
    """Train from where `run` stands to the configured number of epochs, with either loop."""
    train_epoch = make_epoch_trainer(parts, run, data, feed)
    while run.position.epoch < run.config.epochs:
        train_epoch()


def make_epoch_trainer(
    parts: "Parts", run: "Run", data: "ImageData", feed: "Feed | None" = None
) -> Callable[[], None]:
    """Return a function that trains one epoch, or what is left of the one `run` stands in."""
    from .custom_loop import read_metrics, reset_metrics
    from .sharding import Feed

    position = run.position
    feed = feed or Feed(data.train, run.plan, run.config)
    train_on = _choose_loop(run.config)(parts, run, feed)

    def train_epoch() -> None:
        batches = feed.batches(position.epoch, first_step=position.step)
        run.begin_epoch()
        reset_metrics(parts)
        train_on(batches)
        run.end_epoch(lambda: read_metrics(parts))

    return train_epoch


def _choose_loop(config: TrainConfig) -> Callable[..., Callable[[Any], None]]:
    if find_strategy(config.strategy).is_coordinated:
        from .coordinated import coordinated_epoch

        return coordinated_epoch
    return {"custom": _custom_epoch, "fit": _fit_epoch}[config.loop]


def _custom_epoch(parts: "Parts", run: "Run", feed: "Feed") -> Callable[[Any], None]:
    import tensorflow as tf

    from .custom_loop import make_train_steps, read_metrics

    train_steps = make_train_steps(parts, run.config.dtype, feed.prepare)

    def train_epoch(batches: tf.data.Dataset) -> None:
        iterator = iter(parts.strategy.experimental_distribute_dataset(batches))
        while run.position.step < run.plan.steps_per_epoch:
            steps = run.next_steps()
            train_steps(iterator, tf.constant(steps))
            run.advance(steps, lambda: read_metrics(parts))

    return train_epoch


def _fit_epoch(parts: "Parts", run: "Run", feed: "Feed") -> Callable[[Any], None]:
    from ..keras_multi_worker import patch_keras_fit
    from .keras_fit import STEPS_PER_EXECUTION, compile_model, fit_epoch

    for what in patch_keras_fit() if run.group.moves_together else ():
        run.report("patched", what=what)
    one_by_one = run.config.checkpoint_every or run.group.moves_together  # see STEPS_PER_EXECUTION
    steps = 1 if one_by_one else STEPS_PER_EXECUTION
    compile_model(parts, run.config.dtype, steps, feed.prepare)
    return lambda batches: fit_epoch(parts, batches, run)


def _report(parts: "Parts", run: "Run", data: "ImageData", begun: float) -> TrainReport:
    import numpy as np

    config, position, group = run.config, run.position, run.group
    test_loss, test_accuracy = _test(parts, run, data)
    run.report(
        "end",
        step=run.steps_taken,
        test_loss=test_loss,
        test_accuracy=test_accuracy,
    )
    weights = tuple(np.asarray(v) for v in parts.model.trainable_variables)
    if config.export is not None and group.is_chief:
        export_model(parts.model, config, weights)
    group.barrier()
    return TrainReport(
        strategy=config.strategy,
        replicas=group.replicas_per_worker,
        workers=group.workers,
        dataset=config.dataset,
        source=data.source,
        examples=len(data.train),
        loop=config.loop,
        global_batch_size=config.global_batch_size,
        epochs=position.epoch,
        loss=position.loss,
        accuracy=position.accuracy,
        test_loss=test_loss,
        test_accuracy=test_accuracy,
        images_per_second=run.images_per_second(),
        seconds=time.perf_counter() - begun,
        weights_checksum=weights_checksum(weights),
        weights=weights,
    )


def _test(parts: "Parts", run: "Run", data: "ImageData") -> tuple[float, float]:
    """Return loss and accuracy over the test examples, with the training's strategy."""
    import numpy as np

    from ..data.batches import BatchPlan, make_batches
    from .custom_loop import evaluate, make_test_steps
    from .parts import batch_dtype
    from .sharding import set_auto_shard

    plan = BatchPlan(len(data.test), 500, run.plan.replicas)
    order = np.arange(plan.examples)
    batches = make_batches(data.test, plan, order, batch_dtype(run.config.dtype))
    if find_strategy(run.config.strategy).is_coordinated:
        from .coordinated import coordinated_evaluate

        return coordinated_evaluate(parts, batches)
    return evaluate(parts, make_test_steps(parts), set_auto_shard(batches, "data"))


def export_model(model, config: TrainConfig, weights) -> tuple[Path, Path]:
    """Write `model.keras` and `saved_model/` into the export folder; return both paths.

    What is written is a plain copy, built outside any strategy, so that it loads
    anywhere. Raises InputError if the folder cannot be written.
    """
    import tensorflow as tf

    from ..models import build_model
    from .checkpoints import describe_failure

    plain = build_model(config.model, seed=config.seed, dtype=config.dtype)
    plain.set_weights(model.get_weights())
    folder = Path(config.export)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        plain.save(folder / "model.keras")
        plain.export(folder / "saved_model", verbose=False)
    except (OSError, tf.errors.OpError) as error:
        reason = describe_failure(error)
        raise InputError(f"export {folder}: cannot be written ({reason})") from None
    return folder / "model.keras", folder / "saved_model"
