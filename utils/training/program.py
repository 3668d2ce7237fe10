"""The training program: one for every strategy.

A training run, top to bottom: config -> data -> strategy -> feed -> state -> loop ->
checkpoint -> report. How a step works stands in `step`, the three loops in `loops`.
"""

import hashlib
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data import ImageData, SceneData, open_data
from ..data.masks import MaskScore
from ..environment import quiet_tensorflow, versions
from ..errors import InputError
from ..events import Listener
from ..files import make_folder
from ..placement import Devices, describe_strategy
from ..strategies import find_strategy, make_strategy
from .config import TrainConfig, make_config
from .report import DEVICE_FIELDS, OWN, TrainReport, weights_checksum

if TYPE_CHECKING:
    from .input_feed import InputFeed, ReadLog
    from .progress import Run
    from .state import Means, TrainState
    from .worker_group import WorkerGroup

BundledData = ImageData | SceneData
OTHER_BACKENDS = ("jax", "torch", "openvino")


@dataclass(frozen=True)
class Watch:
    """What the caller wants to hear and to say while a run goes on."""

    on_event: Listener | None = None
    should_stop: Callable[[], bool] | None = None
    read_log: "ReadLog | None" = None


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

        train(model=build_model, train_data=make_data, loss="mse", strategy="mirrored")

    `settings` are the fields of `TrainConfig`, which describes them. `on_event` is called
    with every event of `utils.events` as it happens. `should_stop` is asked between steps;
    when it says True, a checkpoint is saved (where there is a folder for it) and
    TrainingStopped is raised. Raises InputError for settings that cannot be, and RunError
    where the workers of a cluster were not started alike.

    With strategy "multi-worker" every worker calls it, with its own TF_CONFIG, and
    gets the same report; the chief alone calls `on_event`, keeps checkpoints and
    exports. All stop when one of them is asked to. With "parameter-server" the
    coordinator (task "chief") calls it. `read_log` records which bundled images this
    process's replicas were handed, step by step (`training.input_feed`).
    """
    begun = time.perf_counter()
    config = make_config(config, settings)
    images = None if config.has_own_data else _load_images(config)
    _import_keras()  # after the data, so that a wrong folder is known at once

    from .worker_group import WorkerGroup

    strategy = make_strategy(
        config.strategy, config.replicas, devices=config.devices, all_reduce=config.all_reduce
    )
    group = WorkerGroup(strategy)
    group.compare({**config.facts(), **_versions(), **_image_facts(images)})
    if config.export is not None and group.is_chief:
        make_folder("export", Path(config.export))
    training = TrainingRun(config, group, images, Watch(on_event, should_stop, read_log))
    try:
        return training.run(begun)
    finally:
        training.close()


class TrainingRun:
    """One run of `train`: what it is fed, what it trains, where it stands."""

    def __init__(
        self, config: TrainConfig, group: "WorkerGroup", images: BundledData | None, watch: Watch
    ) -> None:
        from .progress import Run
        from .state import make_state, set_own_seed

        self.config, self.group, self.images = config, group, images
        self.devices = gather_devices(group)
        self.score: MaskScore | None = None
        if config.has_own_data:  # shuffles without a seed have the same order on every worker
            set_own_seed(config)
        self.feed = self._make_feed("train_data", watch.read_log)
        self.test_feed = self._make_feed("test_data")
        self.state = make_state(group.strategy, config, self.feed.spec)
        self.progress = Run(
            config,
            self.feed.steps_per_epoch,
            self.feed.examples,
            watch.on_event,
            watch.should_stop,
            group=group,
            devices=str(self.devices),
        )

    def _make_feed(self, name: str, read_log: "ReadLog | None" = None) -> "InputFeed | None":
        from .input_feed import TestFeed, make_image_feed
        from .own_data import make_own_feed

        config, strategy = self.config, self.group.strategy
        if config.has_own_data:
            given = getattr(config, name)
            if read_log is not None:
                raise InputError("read_log: knows the bundled images only; leave it out")
            if given is None:
                return None
            coordinated = find_strategy(config.strategy).is_coordinated
            feed = make_own_feed(name, given, config, self.group, coordinated)
            self.group.compare(feed.facts)
            return feed
        if config.has_scenes:
            return self._make_scene_feed(name, read_log)
        if name == "test_data":
            return TestFeed(self.images.test, config, strategy.num_replicas_in_sync)
        return make_image_feed(self.images.train, config, strategy, self.group.workers, read_log)

    def _make_scene_feed(self, name: str, read_log: "ReadLog | None") -> "InputFeed":
        from .scene_feed import SceneTestFeed, make_scene_feed

        if read_log is not None:
            raise InputError("read_log: knows single garments, not scenes; leave it out")
        if name == "test_data":
            replicas = self.group.strategy.num_replicas_in_sync
            return SceneTestFeed(self.images.test, self.config, replicas)
        group = self.group
        return make_scene_feed(self.images.train, self.config, group.strategy, group.workers)

    def run(self, begun: float) -> TrainReport:
        """Resume, train, test, export and report; `begun` is when the job began."""
        config, run = self.config, self.progress
        run.resume(self.state)
        run.report(
            "start",
            strategy=config.strategy,
            replicas=self.group.replicas_per_worker,
            workers=self.group.workers,
            **self._describe_devices(),
            global_batch_size=config.global_batch_size,
            steps_per_epoch=run.steps_per_epoch,
            epochs=config.epochs,
            first_step=run.steps_taken,
        )
        train_epochs(self.state, run, self.feed)
        means = self._test()
        weights = tuple(np.asarray(v) for v in self.state.model.trainable_variables)
        if config.export is not None and self.group.is_chief:
            export_model(self.state, config, self.feed.spec)
        self.group.barrier()
        return self._report(means, weights, begun)

    def _test(self) -> "Means | None":
        from .loops import evaluate

        if self.test_feed is None:
            self.progress.report("end", step=self.progress.steps_taken)
            return None
        means = evaluate(self.state, self.progress, self.test_feed)
        found = {} if means.accuracy is None else {"test_accuracy": means.accuracy}
        if self.state.mask_counts is not None:
            self.score = self.state.mask_counts.score()
            found |= describe_score(self.score)
        self.progress.report("end", step=self.progress.steps_taken, test_loss=means.loss, **found)
        return means

    def _report(self, means: "Means | None", weights: tuple[Any, ...], begun: float) -> TrainReport:
        config, run, position = self.config, self.progress, self.progress.position
        return TrainReport(
            strategy=config.strategy,
            replicas=self.group.replicas_per_worker,
            workers=self.group.workers,
            **self._describe_devices(),
            dataset=OWN if self.images is None else config.dataset,
            source="caller" if self.images is None else self.images.source,
            examples=len(self.images.train) if self.images else position.epoch_examples,
            loop=config.loop,
            global_batch_size=config.global_batch_size,
            epochs=position.epoch,
            resumed_from=run.restored.path,
            skipped_checkpoints=run.restored.skipped_checkpoints,
            loss=position.loss,
            accuracy=position.accuracy if self.state.accuracy_metric else None,
            test_loss=means and means.loss,
            test_accuracy=means and means.accuracy,
            images_per_second=run.images_per_second(),
            seconds=time.perf_counter() - begun,
            weights_checksum=weights_checksum(weights),
            **describe_score(self.score),
            **self._describe_loss_scale(),
            weights=weights,
        )

    def _describe_devices(self) -> dict[str, Any]:
        found = self.devices
        values = list(found.names), list(found.kinds), found.all_reduce, found.unused_gpus
        return dict(zip(DEVICE_FIELDS, (*values, found.note), strict=True))

    def _describe_loss_scale(self) -> dict[str, Any]:
        from .loss_scale import read_loss_scale

        optimizer, run = self.state.optimizer, self.progress
        scale = read_loss_scale(optimizer)
        if scale is None or run.record.is_coordinated:  # their `iterations` lose counts
            return {"loss_scale": scale}
        updates = int(optimizer.iterations.numpy())
        return {"loss_scale": scale, "skipped_steps": run.steps_taken - updates}

    def close(self) -> None:
        """Let other runs use the checkpoint folder, and remove what was written for this one."""
        self.progress.close()
        self.feed.close()
        if self.test_feed is not None:
            self.test_feed.close()


def gather_devices(group: "WorkerGroup") -> Devices:
    """Return the devices of all replicas of the run, on every worker."""
    own = describe_strategy(group.strategy)
    if not group.in_lockstep:
        return own
    everyone = [Devices(*one) for one in group.gather(list(vars(own).values()))]
    names = [f"{who} {name}" for who, one in zip(group.names, everyone) for name in one.names]
    kinds = [kind for one in everyone for kind in one.kinds]
    notes = dict.fromkeys(one.note for one in everyone if one.note)
    unused = sum(one.unused_gpus for one in everyone)
    return Devices(tuple(names), tuple(kinds), own.all_reduce, unused, "; ".join(notes))


def describe_score(score: MaskScore | None) -> dict[str, float]:
    """Return the scores of test masks under their names in reports; nothing without masks."""
    if score is None:
        return {}
    return {"test_foreground_iou": score.foreground, "test_garments_iou": score.garments}


def train_epochs(state: "TrainState", run: "Run", feed: "InputFeed") -> None:
    """Train from where `run` stands to the configured number of epochs.

    Raises InputError where own data ends early or gives a batch that is too large.
    """
    import tensorflow as tf

    train_epoch = make_epoch_trainer(state, run, feed)
    try:
        while run.position.epoch < run.config.epochs:
            train_epoch()
    except tf.errors.OutOfRangeError:
        raise _name_end(run) from None
    except tf.errors.InvalidArgumentError as error:
        told = re.search(r"train_data: a batch has more than \d+ examples", str(error))
        if told is not None:
            raise InputError(f"{told[0]}; batch it by the global batch size") from None
        if "expected to contain" in str(error):  # `tf.data.experimental.assert_cardinality`
            raise _name_end(run) from None
        raise


def _name_end(run: "Run") -> InputError:
    return InputError(
        f"train_data: has not the {run.steps_per_epoch} batches that were counted; it must give "
        "as many in every epoch"
    )


def make_epoch_trainer(state: "TrainState", run: "Run", feed: "InputFeed") -> Callable[[], None]:
    """Return a function that trains one epoch, or what is left of the one `run` stands in."""
    from .loops import choose_loop

    position, train_on = run.position, choose_loop(state, run, feed)

    def train_epoch() -> None:
        batches = feed.batches(position.epoch, first_step=position.step)
        run.begin_epoch()
        state.reset_metrics()
        train_on(batches)
        run.end_epoch(state.read_metrics)

    return train_epoch


def export_model(state: "TrainState", config: TrainConfig, spec: Any = None) -> tuple[Path, Path]:
    """Write `model.keras` and `saved_model/` into the export folder; return both paths.

    What is written is a plain copy, built outside any strategy, so that it loads
    anywhere. Raises InputError if the folder cannot be written.
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
        raise InputError(f"export {folder}: cannot be written ({reason})") from None
    return folder / "model.keras", folder / "saved_model"


def _load_images(config: TrainConfig) -> BundledData:
    data = open_data(config.dataset, full=config.full_data, folder=config.data_folder)
    return data if config.max_examples is None else data.take(config.max_examples)


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


def _versions() -> dict[str, str]:
    """Return what the workers of a run must have in common besides settings and data."""
    found = versions()
    here = Path(__file__).parent
    code = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(here.glob("*.py"))))
    names = ("python", "tensorflow", "keras")
    return {name: found[name] for name in names} | {"training code": code.hexdigest()[:12]}


def _image_facts(images: BundledData | None) -> dict[str, str]:
    if images is None:
        return {}
    return {"data": f"{len(images.train)} images {images.train.digest()}"}
