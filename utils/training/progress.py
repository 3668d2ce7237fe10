"""A run's progress: counted step by step, reported as events, saved in checkpoints."""

import json
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ..errors import InputError
from ..events import Listener, make_event
from ..strategies import find_strategy
from .checkpoints import UNREADABLE, CheckpointFolder, Restored
from .config import TrainConfig
from .input_feed import InputFeed
from .report import TrainingStopped
from .state import Means, TrainState
from .worker_group import WorkerGroup

STATE_KEY = "state/.ATTRIBUTES/py_state"
STEPS_PER_CALL = 32
ReadMeans = Callable[[], Means]


class Position(tf.train.experimental.PythonState):
    """Finished epochs, steps in the current one, its sums so far, the history: saved as JSON.

    `examples` counts the current epoch's so far, `epoch_examples` the last complete epoch's.
    `sums` and `history` have an entry for "loss" and for each of the other means.
    `devices` says on what this run trains; a checkpoint keeps it as a note.
    """

    SAVED = ("fingerprint", "epoch", "step", "examples", "epoch_examples", "sums", "history")

    def __init__(self, fingerprint: dict[str, Any], devices: str = "") -> None:
        self.fingerprint = fingerprint
        self.devices, self.devices_before = devices, ""
        self.epoch = 0
        self.step = 0
        self.examples = 0
        self.epoch_examples = 0
        self.sums: dict[str, float] = {}
        self.history: dict[str, list[float]] = {}

    def count(self, before: tuple[int, dict[str, float]], means: Means) -> None:
        """Bring the epoch's sums up to date: what was before this run, and its own means."""
        values, examples = means
        self.examples = before[0] + examples
        self.sums = {n: before[1].get(n, 0.0) + mean * examples for n, mean in values.items()}

    def close_epoch(self) -> None:
        """Put the epoch's means into the history and begin the next one."""
        for name, total in self.sums.items():
            self.history.setdefault(name, []).append(total / max(self.examples, 1))
        self.epoch, self.step = self.epoch + 1, 0
        self.epoch_examples, self.examples, self.sums = self.examples, 0, {}

    def serialize(self) -> str:
        saved = {name: getattr(self, name) for name in self.SAVED}
        return json.dumps({**saved, "devices": self.devices})

    def deserialize(self, text: str) -> None:
        saved = json.loads(text)
        self.devices_before = saved.get("devices", "")  # missing in older checkpoints
        if "sums" not in saved:  # older, too
            saved["sums"] = {name: saved[f"{name}_sum"] for name in ("loss", "accuracy")}
            saved["history"] = {name: saved[name] for name in saved["sums"] if saved[name]}
        for name in self.SAVED:
            setattr(self, name, saved[name])


class RunProgress:
    """One job's progress, shared by both loops.

    A loop asks `next_steps` how many steps it may take, takes them, and tells
    `advance`, which reports, saves when a checkpoint is due, and raises
    TrainingStopped if the run was asked to stop. With several workers, each has one
    and all of them move together. The chief's reports and keeps the checkpoints.
    """

    def __init__(
        self,
        config: TrainConfig,
        feed: InputFeed,
        listener: Listener | None = None,
        should_stop: Callable[[], bool] | None = None,
        group: WorkerGroup | None = None,
        devices: str = "",
    ) -> None:
        self.config, self.steps_per_epoch = config, feed.steps_per_epoch
        self.record = find_strategy(config.strategy)
        self.group = group or WorkerGroup(tf.distribute.get_strategy())
        self.listener, self.should_stop = listener, should_stop
        self.position = Position(config.fingerprint(feed.examples), devices)
        self.restored = Restored()
        self.store: CheckpointFolder | None = None
        self.epoch_seconds: list[float] = []

    @property
    def steps_taken(self) -> int:
        """Steps since the very start of the job, earlier runs included."""
        return self.position.epoch * self.steps_per_epoch + self.position.step

    def begin_epoch(self) -> None:
        position = self.position
        self._before = position.examples, position.sums
        self._begun = time.perf_counter()
        self._saving_seconds = 0.0

    def next_steps(self) -> int:
        """Return how many steps come before the next report, checkpoint or end of the epoch."""
        left = self.steps_per_epoch - self.position.step
        steps = min(left, STEPS_PER_CALL)
        every = self.config.checkpoint_every
        if every:
            steps = min(steps, every - self.steps_taken % every)
        return steps

    def advance(self, steps: int, read_means: ReadMeans) -> None:
        """Count `steps` more; `read_means()` gives the means since `begin_epoch`."""
        position, every = self.position, self.config.checkpoint_every
        position.step += steps
        stop = self.group.any(self.should_stop is not None and self.should_stop())
        due = every and self.steps_taken % every == 0 and position.step < self.steps_per_epoch
        if self.listener or stop or due or self.group.in_lockstep:  # reading is collective
            position.count(self._before, read_means())
        if self.listener:
            self._report_step()
        if due or stop:
            self.save()
        if stop:
            raise TrainingStopped(position.epoch, self.steps_taken, self._folder())

    def end_epoch(self, read_means: ReadMeans) -> None:
        """Close the epoch: its means go into the history."""
        position, means = self.position, read_means()
        self.epoch_seconds.append(time.perf_counter() - self._begun - self._saving_seconds)
        position.count(self._before, means)
        position.close_epoch()
        self.report(
            "epoch",
            step=self.steps_taken,
            epoch=position.epoch,
            **self.last_means(),
            images_per_second=means[1] / self.epoch_seconds[-1],
        )

    def last_means(self) -> dict[str, float]:
        """Return the last whole epoch's means by name."""
        return {name: means[-1] for name, means in self.position.history.items()}

    def report(self, event: str, **fields: Any) -> None:
        if self.listener and self.group.is_chief:
            self.listener(make_event(event, **fields))

    def images_per_second(self) -> float | None:
        """Return the training throughput of this run without its first epoch."""
        later = self.epoch_seconds[1:]
        return len(later) * self.position.epoch_examples / sum(later) if later else None

    def save(self) -> None:
        if self.store is None:
            return
        begun = time.perf_counter()
        path = self.store.save(self.steps_taken)
        self._saving_seconds += time.perf_counter() - begun
        self.report("checkpoint", step=self.steps_taken, epoch=self.position.epoch, path=path)

    def resume(self, state: TrainState) -> None:
        """Attach the checkpoint folder, if there is one, and resume from its newest checkpoint.

        The folder is this run's alone until `close`. A damaged checkpoint is passed
        over for the one before it, and reported. Raises InputError if the folder can't
        be used, no checkpoint in it can be read, or the newest one belongs to another job.
        """
        if self.config.checkpoint_dir is None:
            return
        tracked = tf.train.Checkpoint(
            model=state.model, optimizer=state.optimizer, state=self.position
        )
        self.store = CheckpointFolder(self.config.checkpoint_dir, tracked, self.group)
        self.restored = self.store.restore_newest(self._check_same_job)
        if self.restored.path is not None:
            self.report(
                "restore",
                step=self.restored.step,
                path=self.restored.path,
                skipped_checkpoints=list(self.restored.skipped_checkpoints),
                devices=self.position.devices_before,
            )

    def close(self) -> None:
        """Let other runs use the checkpoint folder."""
        if self.store is not None:
            self.store.close()

    def _check_same_job(self, path: str) -> None:
        try:
            state = tf.train.load_checkpoint(path).get_tensor(STATE_KEY)
            saved = json.loads(state)["fingerprint"]
        except UNREADABLE:
            raise InputError(
                f"Checkpoint {path} was made by another program. Name another folder."
            ) from None
        for name, wanted in self.position.fingerprint.items():
            if saved.get(name) != wanted:
                raise InputError(
                    f"checkpoint_dir {self.config.checkpoint_dir} was made with "
                    f"{name}={saved.get(name)}, and this run has {wanted}. Use the same, or "
                    "another folder."
                )

    def _report_step(self) -> None:
        position = self.position
        seconds = time.perf_counter() - self._begun - self._saving_seconds
        self.report(
            "step",
            step=self.steps_taken,
            epoch=position.epoch + 1,
            loss=position.sums["loss"] / max(position.examples, 1),
            images_per_second=(position.examples - self._before[0]) / seconds,
        )

    def _folder(self) -> str | None:
        return str(self.config.checkpoint_dir) if self.config.checkpoint_dir else None
