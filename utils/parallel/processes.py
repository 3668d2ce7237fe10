"""A pipeline whose stages are worker processes: tensors go over sockets from one to the next.

    with LocalCluster(workers=2) as cluster:
        reports = cluster.run(run_stage, build_model, costs, schedule, images, labels)
    step = join_reports(schedule, reports)

Every process finds its stage and the others' addresses in TF_CONFIG. A message between
two of them has key, dtype and shape for its content, the bytes of the array for its body.
"""

import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError
from ..processes.connection import Connection, PeerGone, connect, listen
from ..schedules import Schedule
from .parts import Part, as_inputs, as_labels, read_chain
from .pipeline import PipelineStep, check_fit, collect_step, plan_cut
from .stage import Key, Mailbox, Rules, Stage, StageReport
from .traffic import Traffic, Transfer

if TYPE_CHECKING:
    import keras


class Wire:
    """Listens at this worker's own address and sends to the others.

    What arrives is laid into `mailbox` as a tensor, under its key. Use it in a
    `with` block: all sockets are closed at its end. Raises InputError where the
    own address can't be used, RunError where another worker can't be reached in time.
    """

    def __init__(
        self, addresses: list[str], index: int, mailbox: Mailbox, limit_seconds: float
    ) -> None:
        self._addresses, self._mailbox, self._limit = addresses, mailbox, limit_seconds
        self._peers: dict[int, Connection] = {}
        self._accepted: list[Connection] = []
        self.bytes_sent = 0
        self._listener = listen(addresses[index])
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *exception: object) -> None:
        """Hang up. What was sent still arrives; threads that wait for more are woken."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()
        for connection in [*self._peers.values(), *self._accepted]:
            connection.close()

    def send(self, worker: int, key: tuple[str, int, int], array: np.ndarray) -> None:
        """Send an array to `worker`, where it will lie under `key`."""
        if worker not in self._peers:
            address = self._addresses[worker]
            self._peers[worker] = connect(address, f"worker {worker}", self._limit)
        array = np.ascontiguousarray(array)
        body = array.reshape(-1).view(np.uint8).data
        content = [list(key), array.dtype.str, list(array.shape)]
        self.bytes_sent += self._peers[worker].send(content, body)

    def _accept(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return  # closed
            self._accepted.append(Connection(caller, "another stage", self._limit))
            arguments = [self._accepted[-1]]
            threading.Thread(target=self._receive, args=arguments, daemon=True).start()

    def _receive(self, connection: Connection) -> None:
        import tensorflow as tf

        try:
            while True:
                message = connection.receive(float("inf"))
                key, dtype, shape = message.content
                array = np.frombuffer(message.body, np.dtype(dtype)).reshape(shape)
                self._mailbox.put(tuple(key), tf.constant(array))
        except PeerGone as error:
            if not error.between_messages:
                self._mailbox.fail(error)
        except (ValueError, TypeError) as error:
            self._mailbox.fail(error)


DEVICE = "CPU:0"  # of each process


@dataclass(frozen=True, eq=False)
class ProcessReport:
    """One worker process's work as a stage: its report, the bytes it held, the bytes it sent.

    `wire_bytes` counts whole messages, their headers included.
    """

    process: int
    report: StageReport
    parameter_bytes: int
    transfers: list[Transfer]
    wire_bytes: int


def run_stage(
    build_model: Callable[[], "keras.Model"],
    costs: Sequence[float],
    schedule: Schedule,
    images: np.ndarray,
    labels: np.ndarray,
    rules: Rules | None = None,
) -> ProcessReport:
    """Run in each worker of a cluster: be the stage that TF_CONFIG's index says.

    `costs` has one number for each layer, `images` is [batch, ...], `labels` [batch]: the
    same on every worker. Each builds the model and keeps only the weights of its own parts.
    Raises InputError unless there is one worker for each stage, for what `run_pipeline`
    refuses, for a learning rate, and where a neighbor doesn't answer in time.
    """
    rules = rules or Rules()
    addresses, index = read_place(schedule.stages)
    _check(schedule, rules, images, labels)
    parts, inputs = _make_parts(build_model(), costs, schedule, index, images)
    mailbox, traffic = Mailbox(), Traffic()
    with Wire(addresses, index, mailbox, rules.limit_seconds) as wire:
        if index == 0:
            _feed(inputs, schedule, mailbox)
        post = _make_post(wire, schedule, index, mailbox, traffic)
        cut = np.array_split(as_labels(labels), schedule.micro_batches)
        counts = [len(labels)] * schedule.micro_batches
        stage = Stage(index, schedule, parts, mailbox, post, cut, counts, rules)
        held = sum(part.parameter_bytes for part in parts)
        return ProcessReport(os.getpid(), stage.run(), held, traffic.transfers, wire.bytes_sent)


def _check(schedule: Schedule, rules: Rules, images: np.ndarray, labels: np.ndarray) -> None:
    check_fit(schedule, schedule.stages, schedule.chunks, images, labels)
    if rules.learning_rate is not None:
        raise InputError(
            "learning_rate must be left out for stages in processes. Update after the step."
        )


def _make_parts(
    model: "keras.Model", costs: Sequence[float], schedule: Schedule, index: int, images: np.ndarray
) -> tuple[list[Part], np.ndarray]:
    """Return the parts of stage `index`, and the images as the model's first layer gets them."""
    layers = read_chain(model)
    own = plan_cut(model, costs, schedule.stages, schedule.chunks)[index :: schedule.stages]
    parts = [Part([layers[number] for number in run], DEVICE) for run in own]
    return parts, as_inputs(model, images)


def join_reports(schedule: Schedule, reports: Sequence[ProcessReport]) -> PipelineStep:
    """Return one step from the workers' reports, which are in the order of stages.

    Loss and gradients are the unsplit model's, spans in seconds. The workers' clocks are
    one: `time.monotonic` counts for the whole machine.
    """
    traffic = Traffic()
    traffic.transfers = [transfer for report in reports for transfer in report.transfers]
    return collect_step(schedule, [report.report for report in reports], traffic)


def read_place(stages: int) -> tuple[list[str], int]:
    """Return all workers' addresses and this one's index, from TF_CONFIG.

    Raises InputError if there isn't one worker for each stage.
    """
    config = json.loads(os.environ.get("TF_CONFIG", "{}"))
    addresses = config.get("cluster", {}).get("worker", [])
    if len(addresses) != stages:
        raise InputError(
            f"TF_CONFIG must have one worker per stage, got {len(addresses)} workers for "
            f"{stages} stages."
        )
    return addresses, config["task"]["index"]


def _feed(inputs: np.ndarray, schedule: Schedule, mailbox: Mailbox) -> None:
    import tensorflow as tf

    for number, micro_batch in enumerate(np.array_split(inputs, schedule.micro_batches)):
        mailbox.put(("F", number, 0), tf.constant(micro_batch))


def _make_post(
    wire: Wire, schedule: Schedule, index: int, mailbox: Mailbox, traffic: Traffic
) -> Callable[[Key, Any], None]:
    """Return what sends a tensor to the process that holds the part it is for."""

    def post(key: Key, tensor: Any) -> None:
        stage = key[2] % schedule.stages
        if stage == index:
            mailbox.put(key, tensor)
            return
        array = tensor.numpy()
        wire.send(stage, key, array)
        what = "activations" if key[0] == "F" else "gradients"
        ends = f"worker {index}", f"worker {stage}"
        traffic.transfers.append(Transfer(what, *ends, array.nbytes))

    return post
