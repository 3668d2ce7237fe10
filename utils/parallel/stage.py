"""One stage of a running pipeline: it does its operations in order and keeps count.

Tensors from other stages wait for it in a `Mailbox`.
"""

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import InputError
from ..measure import array_bytes
from ..schedules import KINDS, Operation, Schedule
from ..simulate.pipeline import Span, StageTimes
from .parts import Forward, Part, find_loss


class Mailbox:
    """Holds tensors until the stage that needs them takes them; safe between threads.

    A message may have a delay: until then it is on its way and can't be taken.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._arrived: dict[Hashable, tuple[float, Any]] = {}  # key -> (when it is there, tensor)
        self._error: BaseException | None = None

    def put(self, key: Hashable, tensor: Any, delay_seconds: float = 0.0) -> None:
        """Lay a tensor down under `key`; it can be taken `delay_seconds` from now."""
        with self._changed:
            self._arrived[key] = (time.monotonic() + delay_seconds, tensor)
            self._changed.notify_all()

    def take(self, key: Hashable, who: str, limit_seconds: float) -> Any:
        """Wait for the tensor under `key` and return it.

        Raises InputError, which names `who` waits, when the time is over or
        another stage has failed.
        """
        end = time.monotonic() + limit_seconds
        with self._changed:
            while not (key in self._arrived and self._arrived[key][0] <= time.monotonic()):
                if self._error is not None:
                    raise InputError(f"{who} stopped, as another stage failed: {self._error}")
                if time.monotonic() > end:
                    raise InputError(
                        f"{who} has waited {limit_seconds:.0f} s for {key}, which hasn't arrived."
                    )
                due = self._arrived[key][0] if key in self._arrived else end
                self._changed.wait(max(min(due, end) - time.monotonic(), 0.0) + 1e-4)
            return self._arrived.pop(key)[1]

    def fail(self, error: BaseException) -> None:
        """Wake everyone who waits: `error` has ended a stage."""
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()


Key = tuple[str, int, int]  # "F" or "B", micro-batch, part of the model that gets it
Post = Callable[[Key, Any], None]


@dataclass(frozen=True, eq=False)
class Rules:
    """The rules of a pipeline's run.

    `recompute`: a forward keeps its input alone, and the backward computes the
    forward again. `slowed_to`: no operation takes less than its time there, in
    seconds, and no message less than its delay. The work is done for real first.
    `learning_rate`: None adds gradients up over the step. A number updates the
    stage's weights after every micro-batch, without waiting for the others.
    `stash`: such a backward uses the weights that its forward used, else the
    present ones. `limit_seconds` is the longest that a stage waits for another.
    """

    recompute: bool = False
    slowed_to: StageTimes | None = None
    learning_rate: float | None = None
    stash: bool = True
    limit_seconds: float = 60.0

    @property
    def computes_again(self) -> bool:
        return self.recompute or not self.stash

    def tabulate(self, schedule: Schedule) -> np.ndarray:
        """Return the least seconds of each [F, B, W, BW; stage; chunk]."""
        if self.slowed_to is None:
            return np.zeros((len(KINDS), schedule.stages, schedule.chunks))
        times = self.slowed_to.recompute() if self.computes_again else self.slowed_to
        return times.tabulate(schedule.stages, schedule.chunks)


@dataclass(eq=False)
class MicroBatchState:
    """The tensors that a stage keeps of one micro-batch until its backward for weights.

    `inputs` is [micro_batch, ...]. `version` counts the updates that the weights had seen.
    `upstream`, the gradient for the outputs, is there between a B and its W.
    """

    inputs: Any
    version: int
    values: list[Any] | None
    forward: Forward | None
    held_bytes: int
    upstream: Any = None


@dataclass(eq=False)
class StageReport:
    """A stage's work: its spans in seconds of `time.monotonic`, and the most bytes it kept.

    `peak_live` counts micro-batches (of one chunk each), `peak_bytes` their inputs
    and, unless they are computed again, all layers' outputs; `peak_versions` the
    versions of its weights. `gradients[chunk]` are summed over micro-batches;
    without a flush `each[chunk, micro-batch]` are kept apart, with the `versions`
    of the forwards, and `history[chunk]` has the weights of every version.
    """

    spans: list[Span] = field(default_factory=list)
    loss: float = 0.0
    losses: dict[int, float] = field(default_factory=dict)
    peak_live: int = 0
    peak_bytes: int = 0
    peak_versions: int = 0
    gradients: dict[int, list[np.ndarray]] = field(default_factory=dict)
    each: dict[tuple[int, int], list[np.ndarray]] = field(default_factory=dict)
    versions: dict[tuple[int, int], int] = field(default_factory=dict)
    history: dict[int, list[list[np.ndarray]]] = field(default_factory=dict)


class Stage:
    """Runs the operations of one stage. `parts[chunk]` are its parts of the model.

    `post` sends a tensor to the part that needs it; `labels[number]` [micro_batch] and
    `divide_by[number]` are for the loss of micro-batch `number` after the last part.
    """

    def __init__(
        self,
        number: int,
        schedule: Schedule,
        parts: list[Part],
        mailbox: Mailbox,
        post: Post,
        labels: list[np.ndarray],
        divide_by: list[int],
        rules: Rules,
    ) -> None:
        self.number, self.schedule, self.parts = number, schedule, parts
        self.mailbox, self.post, self.rules = mailbox, post, rules
        self.labels, self.divide_by = labels, divide_by
        self.report = StageReport()
        self._least = rules.tabulate(schedule)[:, number]  # [kind, chunk] seconds
        self._held: dict[tuple[int, int], MicroBatchState] = {}  # (chunk, micro-batch)
        self._updates = [0] * len(parts)
        if rules.learning_rate is not None:
            self.report.history = {chunk: [_copy(p.weights)] for chunk, p in enumerate(parts)}

    def run(self) -> StageReport:
        """Do every operation of this stage in order, and return its report.

        Raises InputError where a tensor doesn't come within `rules.limit_seconds`.
        """
        steps = {"F": self._forward, "B": self._backward, "W": self._weights, "BW": self._both}
        for operation in self.schedule.orders[self.number]:
            waited = self._wait(operation)
            begin = time.monotonic()
            key, result = steps[operation.kind](operation, waited)
            least = self._least[KINDS.index(operation.kind), operation.chunk]
            _sleep_until(begin + least)
            span = (begin, time.monotonic())
            self.report.spans.append(
                Span(self.number, *span, operation.kind, operation.micro_batch, operation.chunk)
            )
            if key is not None:
                self.post(key, result)
        for chunk, sums in self.report.gradients.items():
            self.report.gradients[chunk] = _copy(sums)
        return self.report

    def _wait(self, operation: Operation) -> Any:
        """Return the tensor that an operation needs from another part, once it is there."""
        if operation.kind == "W":
            return None
        direction = "F" if operation.kind == "F" else "B"
        key = (direction, operation.micro_batch, self._place(operation.chunk))
        who = f"stage {self.number} at {operation}"
        return self.mailbox.take(key, who, self.rules.limit_seconds)

    def _place(self, chunk: int) -> int:
        """Return the place in the model of this stage's part `chunk`."""
        return chunk * self.schedule.stages + self.number

    def _forward(self, operation: Operation, inputs: Any) -> tuple[Key, Any]:
        chunk, number = operation.chunk, operation.micro_batch
        part, version = self.parts[chunk], self._updates[chunk]
        values = part.read_weights()
        if self.rules.computes_again:
            forward, (outputs, _) = None, part.compute(values, inputs)
        else:
            forward = part.run_forward(values, inputs)
            outputs = forward.outputs
        kept = forward.activation_bytes if forward else array_bytes([inputs])
        kept_values = values if self.rules.stash else None
        self._held[chunk, number] = MicroBatchState(inputs, version, kept_values, forward, kept)
        self.report.versions[chunk, number] = version
        self._count()
        place = self._place(chunk)
        if place + 1 < self.schedule.stages * self.schedule.chunks:
            return ("F", number, place + 1), outputs
        loss, gradient = find_loss(
            self.labels[number], outputs, self.divide_by[number], part.device
        )
        self.report.losses[number] = float(loss)
        self.report.loss += float(loss)
        return ("B", number, place), gradient

    def _recall(self, operation: Operation) -> tuple[Part, MicroBatchState]:
        """Return what is held of a micro-batch, computed again where only its input is."""
        part, held = self.parts[operation.chunk], self._held[operation.chunk, operation.micro_batch]
        if held.forward is None:
            values = held.values if self.rules.stash else part.read_weights()
            held.forward = part.run_forward(values, held.inputs)
            held.held_bytes = held.forward.activation_bytes
            self._count()
        return part, held

    def _both(self, operation: Operation, upstream: Any) -> tuple[Key | None, Any]:
        part, held = self._recall(operation)
        gradient, own = part.find_both(held.forward, upstream)
        self._finish(operation, own)
        return self._hand_back(operation, gradient)

    def _backward(self, operation: Operation, upstream: Any) -> tuple[Key | None, Any]:
        part, held = self._recall(operation)
        held.upstream = upstream
        return self._hand_back(operation, part.find_input_gradient(held.forward, upstream))

    def _weights(self, operation: Operation, _: None) -> tuple[None, None]:
        part, held = self._recall(operation)
        self._finish(operation, part.find_weight_gradients(held.forward, held.upstream))
        return None, None

    def _hand_back(self, operation: Operation, gradient: Any) -> tuple[Key | None, Any]:
        place = self._place(operation.chunk)
        return (("B", operation.micro_batch, place - 1) if place else None), gradient

    def _finish(self, operation: Operation, gradients: list[Any]) -> None:
        """Take the gradients of one micro-batch, and forget its activations."""
        import tensorflow as tf

        chunk, part = operation.chunk, self.parts[operation.chunk]
        del self._held[chunk, operation.micro_batch]
        with tf.device(part.device):
            if self.rules.learning_rate is None:
                sums = self.report.gradients.get(chunk)
                pairs = zip(sums, gradients, strict=True) if sums else ()
                self.report.gradients[chunk] = [a + b for a, b in pairs] if sums else gradients
                return
            for weight, gradient in zip(part.weights, gradients, strict=True):
                weight.assign_sub(self.rules.learning_rate * gradient)
        self._updates[chunk] += 1
        self.report.each[chunk, operation.micro_batch] = _copy(gradients)
        self.report.history[chunk].append(_copy(part.weights))

    def _count(self) -> None:
        """Note the most bytes held at once."""
        held = list(self._held.values())
        report = self.report
        report.peak_live = max(report.peak_live, len(held))
        report.peak_bytes = max(report.peak_bytes, sum(each.held_bytes for each in held))
        versions = {(chunk, held.version) for (chunk, _), held in self._held.items()}
        versions |= set(enumerate(self._updates))
        kept = len(versions) if self.rules.stash else len(self.parts)
        report.peak_versions = max(report.peak_versions, kept)


def _copy(tensors: list[Any]) -> list[np.ndarray]:
    return [tensor.numpy() for tensor in tensors]


def _sleep_until(end: float) -> None:
    left = end - time.monotonic()
    if left > 0:
        time.sleep(left)
