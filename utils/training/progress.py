"""Where a run stands: counted step by step, reported as events, saved in checkpoints."""

import json
import time
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ..data.batches import BatchPlan
from ..errors import InputError
from ..events import Listener, make_event
from .checkpoints import UNREADABLE, CheckpointFolder, Restored
from .config import TrainConfig
from .parts import Parts
from .report import TrainingStopped
from .worker_group import WorkerGroup

STATE_KEY = "state/.ATTRIBUTES/py_state"
Means = Callable[[], tuple[float, float]]


class Position(tf.train.experimental.PythonState):
    """Finished epochs, steps in the current one, its sums so far, the history: saved as JSON."""

    SAVED = ("fingerprint", "epoch", "step", "loss_sum", "accuracy_sum", "loss", "accuracy")

    def __init__(self, fingerprint: dict[str, Any]) -> None:
        self.fingerprint = fingerprint
        self.epoch = 0
        self.step = 0
        self.loss_sum = 0.0
        self.accuracy_sum = 0.0
        self.loss: list[float] = []
        self.accuracy: list[float] = []

    def serialize(self) -> str:
        return json.dumps({name: getattr(self, name) for name in self.SAVED})

    def deserialize(self, text: str) -> None:
        saved = json.loads(text)
        for name in self.SAVED:
            setattr(self, name, saved[name])


class Run:
    """One job's progress, shared by both loops.

    A loop asks `next_steps` how many steps it may take, takes them, and tells
    `advance`, which reports, saves when a checkpoint is due, and raises
    TrainingStopped if the run was asked to stop. With several workers, each has a Run
    and all of them move together; the chief's reports and keeps the checkpoints.
    """

    def __init__(
        self,
        config: TrainConfig,
        plan: BatchPlan,
        listener: Listener | None = None,
        should_stop: Callable[[], bool] | None = None,
        steps_per_call: int = 32,
        group: WorkerGroup | None = None,
    ) -> None:
        self.config, self.plan = config, plan
        self.group = group or WorkerGroup(tf.distribute.get_strategy())
        self.listener, self.should_stop = listener, should_stop
        self.steps_per_call = steps_per_call
        self.position = Position(config.fingerprint(plan.examples))
        self.store: CheckpointFolder | None = None
        self.epoch_seconds: list[float] = []

    @property
    def steps_taken(self) -> int:
        """Steps since the very start of the job, those of earlier runs included."""
        return self.position.epoch * self.plan.steps_per_epoch + self.position.step

    def begin_epoch(self) -> None:
        self._first_step = self.position.step
        self._sums_before = (self.position.loss_sum, self.position.accuracy_sum)
        self._begun = time.perf_counter()
        self._saving_seconds = 0.0

    def next_steps(self) -> int:
        """Return how many steps come before the next report, checkpoint or end of the epoch."""
        left = self.plan.steps_per_epoch - self.position.step
        steps = min(left, self.steps_per_call)
        every = self.config.checkpoint_every
        if every:
            steps = min(steps, every - self.steps_taken % every)
        return steps

    def advance(self, steps: int, read_means: Means) -> None:
        """Count `steps` more; `read_means()` gives loss and accuracy since `begin_epoch`."""
        position, every = self.position, self.config.checkpoint_every
        position.step += steps
        stop = self.group.any(self.should_stop is not None and self.should_stop())
        due = every and self.steps_taken % every == 0 and position.step < self.plan.steps_per_epoch
        if self.listener or stop or due or self.group.moves_together:  # reading is collective
            self._add_up(read_means)
        if self.listener:
            self._report_step()
        if due or stop:
            self.save()
        if stop:
            raise TrainingStopped(position.epoch, self.steps_taken, self._folder())

    def end_epoch(self, read_means: Means) -> None:
        """Close the epoch: its means go into the history, and a checkpoint is saved."""
        position = self.position
        self.epoch_seconds.append(time.perf_counter() - self._begun - self._saving_seconds)
        self._add_up(read_means)
        position.loss.append(position.loss_sum / self.plan.examples)
        position.accuracy.append(position.accuracy_sum / self.plan.examples)
        position.epoch, position.step = position.epoch + 1, 0
        position.loss_sum = position.accuracy_sum = 0.0
        self.report(
            "epoch",
            step=self.steps_taken,
            epoch=position.epoch,
            loss=position.loss[-1],
            accuracy=position.accuracy[-1],
            images_per_second=self._examples_trained(self.plan.steps_per_epoch)
            / self.epoch_seconds[-1],
        )
        self.save()

    def report(self, event: str, **fields: Any) -> None:
        if self.listener and self.group.is_chief:
            self.listener(make_event(event, **fields))

    def images_per_second(self) -> float | None:
        """Return the training throughput of this run without its first epoch."""
        later = self.epoch_seconds[1:]
        return len(later) * self.plan.examples / sum(later) if later else None

    def save(self) -> None:
        if self.store is None:
            return
        begun = time.perf_counter()
        path = self.store.save(self.steps_taken)
        self._saving_seconds += time.perf_counter() - begun
        self.report("checkpoint", step=self.steps_taken, epoch=self.position.epoch, path=path)

    def resume(self, parts: Parts) -> Restored:
        """Attach the checkpoint folder, if there is one, and go on from its newest checkpoint.

        The folder is this run's alone until `close`. A damaged checkpoint is passed
        over for the one before it. Raises InputError if the folder cannot be used, no
        checkpoint in it can be read, or the newest one belongs to another job.
        """
        if self.config.checkpoint is None:
            return Restored()
        tracked = tf.train.Checkpoint(
            model=parts.model, optimizer=parts.optimizer, state=self.position
        )
        self.store = CheckpointFolder(self.config.checkpoint, tracked, self.group)
        return self.store.restore_newest(self._check_same_job)

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
                f"checkpoint {path}: was not made by this program; name another folder"
            ) from None
        for name, wanted in self.position.fingerprint.items():
            if saved.get(name) != wanted:
                raise InputError(
                    f"checkpoint {self.config.checkpoint}: was made with {name} {saved.get(name)}, "
                    f"and this run has {wanted}; use the same, or another folder"
                )

    def _add_up(self, read_means: Means) -> None:
        """Bring the epoch's sums up to date: what was before this run, and its own means."""
        examples = self._examples_trained(self.position.step)
        means = read_means()
        self.position.loss_sum = self._sums_before[0] + means[0] * examples
        self.position.accuracy_sum = self._sums_before[1] + means[1] * examples

    def _examples_trained(self, step: int) -> int:
        return self.plan.examples_before(step) - self.plan.examples_before(self._first_step)

    def _report_step(self) -> None:
        position = self.position
        seconds = time.perf_counter() - self._begun - self._saving_seconds
        self.report(
            "step",
            step=self.steps_taken,
            epoch=position.epoch + 1,
            loss=position.loss_sum / self.plan.examples_before(position.step),
            images_per_second=self._examples_trained(position.step) / seconds,
        )

    def _folder(self) -> str | None:
        return str(self.config.checkpoint) if self.config.checkpoint else None
