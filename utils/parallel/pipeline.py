"""A pipeline that runs: stages and micro-batches on devices, in the order of a schedule.

    pipeline = cut_model(model, costs, stages=4, devices=devices)
    step = run_pipeline(pipeline, make_schedule("1f1b", 4, 8), images, labels)
    step.loss, step.gradients            # the unsplit model's
    step.rows()                          # when each stage did what

Each stage is a thread that works on its own device; `schedules` says in which order, and
results go to the neighbors as soon as they are there.

Huang et al. 2019, "GPipe", arXiv:1811.06965 (micro-batches and their flush); Narayanan et
al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM",
arXiv:2104.04473, section 2.2 (1F1B and interleaving); Qi et al. 2023, "Zero Bubble Pipeline
Parallelism", arXiv:2401.10241 (backward passes for inputs and weights apart).
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import check_count
from ..errors import InputError
from ..schedules import Schedule, check_schedule, partition_layers
from ..simulate.pipeline import Row, Span, list_rows
from .parts import Part, StepResult, as_inputs, as_labels, read_chain
from .stage import Key, Mailbox, Rules, Stage, StageReport
from .traffic import Traffic, short_device

if TYPE_CHECKING:
    import keras


@dataclass(frozen=True, eq=False)
class Pipeline:
    """A model cut into `stages` * `chunks` parts; stage s holds parts s, s + P, s + 2P ...

    `layers[part]` are the numbers of its layers.
    """

    model: "keras.Model"
    parts: list[Part]
    layers: tuple[range, ...]
    stages: int
    chunks: int

    def count_parameter_bytes(self) -> list[int]:
        """Return the bytes of the weights that each stage holds."""
        own = [self.parts[stage :: self.stages] for stage in range(self.stages)]
        return [sum(part.parameter_bytes for part in parts) for parts in own]


def cut_model(
    model: "keras.Model",
    costs: Sequence[float],
    stages: int,
    devices: Sequence[str],
    chunks: int = 1,
) -> Pipeline:
    """Cut `model`, a `keras.Sequential`, into `stages` of nearly equal cost on their own devices.

    `costs` has one number for each layer, as `measure_layers` gives them in seconds, and `devices`
    one name for each stage. With `chunks` each stage gets that many parts, for interleaved
    schedules. Returns the pipeline, with copied weights. Raises InputError for costs, stages or
    chunks that don't fit the layers, and for fewer devices than stages.

        devices = use_logical_devices(2)
        pipeline = cut_model(build_mlp(), costs=[1, 1, 1], stages=2, devices=devices)
    """
    runs = plan_cut(model, costs, stages, chunks)
    if len(devices) < stages:
        raise InputError(
            f"devices must have one entry per stage, got {len(devices)} for {stages} stages."
        )
    layers = read_chain(model)
    parts = [
        Part([layers[number] for number in run], devices[place % stages])
        for place, run in enumerate(runs)
    ]
    return Pipeline(model, parts, runs, stages, chunks)


def plan_cut(
    model: "keras.Model", costs: Sequence[float], stages: int, chunks: int = 1
) -> tuple[range, ...]:
    """Return the layer numbers of each part, `stages` * `chunks` of them, in the model's order.

    Raises InputError for costs, stages or chunks that don't fit the layers.
    """
    layers = read_chain(model)
    if len(costs) != len(layers):
        raise InputError(
            f"costs must have one number per layer, got {len(costs)} for {len(layers)} layers."
        )
    check_count("stages", stages)
    check_count("chunks", chunks)
    return partition_layers(costs, stages * chunks)


@dataclass(frozen=True, eq=False)
class PipelineStep(StepResult):
    """One step of a pipeline: its result, and what happened.

    `spans` are in seconds from the first start on. `peak_activations_per_stage` is
    the most micro-batches that a stage kept at once, one of V chunks counting
    1/V; `peak_bytes_per_stage` what they took.
    """

    schedule: Schedule
    spans: list[Span]
    reports: list[StageReport]
    traffic: Traffic

    @property
    def peak_activations_per_stage(self) -> tuple[float, ...]:
        chunks = self.schedule.chunks
        peaks = [report.peak_live for report in self.reports]
        return tuple(peak if chunks == 1 else peak / chunks for peak in peaks)

    @property
    def peak_bytes_per_stage(self) -> tuple[int, ...]:
        return tuple(report.peak_bytes for report in self.reports)

    @property
    def makespan(self) -> float:
        """Seconds from the first start to the last end."""
        return max(span.end for span in self.spans)

    @property
    def longest_stage_span(self) -> float:
        """Seconds from a stage's first start to its last end, of the stage that took longest."""
        orders = self._by_stage()
        return max(spans[-1].end - spans[0].start for spans in orders if spans)

    @property
    def bubble_fraction(self) -> float:
        """1 - work / longest stage span, the work being the mean over the stages."""
        work = sum(span.end - span.start for span in self.spans) / self.schedule.stages
        return max(0.0, 1.0 - work / self.longest_stage_span)

    def rows(self) -> list[Row]:
        """Return the rows of a timeline, as a simulated run does."""
        return list_rows(self.spans)

    def orders(self) -> list[list[tuple[str, int, int]]]:
        """Return what each stage did, in order of time: (kind, micro-batch, chunk)."""
        return [[(s.kind, s.micro_batch, s.chunk) for s in spans] for spans in self._by_stage()]

    def _by_stage(self) -> list[list[Span]]:
        numbers = range(self.schedule.stages)
        chosen = [[span for span in self.spans if span.stage == number] for number in numbers]
        return [sorted(spans, key=lambda span: span.start) for spans in chosen]


def run_pipeline(
    pipeline: Pipeline,
    schedule: Schedule,
    images: np.ndarray,
    labels: np.ndarray,
    rules: Rules | None = None,
) -> PipelineStep:
    """Run one batch through `pipeline` in the order of `schedule`; return losses and gradients.

    `images` is [batch, ...], `labels` [batch]. The batch is cut into micro-batches that differ
    by one example at most. Each divides its loss by the examples of the full batch, so losses
    and gradients add up to the batch's. `rules` None is the usual loss. Raises InputError for a
    schedule that doesn't fit the pipeline or can't run, and for more micro-batches than
    examples.

        step = run_pipeline(pipeline, make_schedule("gpipe", 2, 4), images, labels)
    """
    rules = rules or Rules()
    check_fit(schedule, pipeline.stages, pipeline.chunks, images, labels)
    counts = [len(labels)] * schedule.micro_batches
    if rules.learning_rate is not None:  # every micro-batch is its own batch
        counts = [len(part) for part in np.array_split(labels, schedule.micro_batches)]
    traffic, mailbox = Traffic(), Mailbox()
    stages = make_stages(pipeline, schedule, mailbox, traffic, labels, counts, rules)
    feed_images(pipeline, schedule, mailbox, images)
    reports = run_threads(stages, mailbox)
    return collect_step(schedule, reports, traffic)


def check_fit(
    schedule: Schedule, stages: int, chunks: int, images: np.ndarray, labels: np.ndarray
) -> None:
    """Raise InputError unless the schedule can run on these stages with these examples."""
    fault = check_schedule(schedule, stages=stages, chunks=chunks)
    if fault:
        raise InputError(f"Schedule {schedule.name!r} doesn't fit: {fault}")
    examples = len(images)
    if len(labels) != examples:
        raise InputError(
            f"images and labels must be equally long, got {examples} and {len(labels)}."
        )
    if schedule.micro_batches > examples:
        raise InputError(
            f"micro_batches must be at most the {examples} examples, got {schedule.micro_batches}."
        )


def make_stages(
    pipeline: Pipeline,
    schedule: Schedule,
    mailbox: Mailbox,
    traffic: Traffic,
    labels: np.ndarray,
    divide_by: list[int],
    rules: Rules,
) -> list[Stage]:
    """Return one Stage for each stage; they post to `mailbox` and count in `traffic`.

    `labels` is [batch]; `divide_by[micro_batch]` is what its sum of losses is divided by.
    """
    delay = rules.slowed_to.read_delay() if rules.slowed_to else 0.0

    def post(key: Key, tensor: Any) -> None:
        direction, _, place = key
        device = pipeline.parts[place].device
        what = "activations" if direction == "F" else "gradients"
        away = short_device(tensor.device) != device
        mailbox.put(key, traffic.send(tensor, device, what), delay if away else 0.0)

    split_labels = np.array_split(as_labels(labels), schedule.micro_batches)
    return [
        Stage(
            number,
            schedule,
            pipeline.parts[number :: pipeline.stages],
            mailbox,
            post,
            split_labels,
            divide_by,
            rules,
        )
        for number in range(pipeline.stages)
    ]


def feed_images(
    pipeline: Pipeline, schedule: Schedule, mailbox: Mailbox, images: np.ndarray
) -> None:
    """Put the micro-batches of `images` [batch, ...] into `mailbox`, for the first part."""
    import tensorflow as tf

    cut = np.array_split(as_inputs(pipeline.model, images), schedule.micro_batches)
    with tf.device(pipeline.parts[0].device):
        for number, micro_batch in enumerate(cut):
            mailbox.put(("F", number, 0), tf.constant(micro_batch))


def run_threads(stages: Sequence[Stage], *mailboxes: Mailbox) -> list[StageReport]:
    """Run each stage in its own thread. Return their reports, or raise the first error."""
    errors: list[BaseException] = []

    def run(stage: Stage) -> None:
        try:
            stage.run()
        except BaseException as error:
            errors.append(error)
            for mailbox in mailboxes:
                mailbox.fail(error)

    threads = [threading.Thread(target=run, args=(stage,), daemon=True) for stage in stages]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except BaseException as interrupt:
        for mailbox in mailboxes:
            mailbox.fail(interrupt)
        raise
    if errors:
        raise errors[0]
    return [stage.report for stage in stages]


def collect_step(schedule: Schedule, reports: list[StageReport], traffic: Traffic) -> PipelineStep:
    """Put the stages' reports together, gradients in the model's order, times from 0 on."""
    begin = min(span.start for report in reports for span in report.spans)
    spans = [
        Span(s.stage, s.start - begin, s.end - begin, s.kind, s.micro_batch, s.chunk)
        for report in reports
        for s in report.spans
    ]
    gradients = [
        gradient
        for chunk in range(schedule.chunks)
        for report in reports
        for gradient in report.gradients.get(chunk, [])
    ]
    loss = sum(report.loss for report in reports)
    return PipelineStep(loss, gradients, schedule, spans, reports, traffic)
