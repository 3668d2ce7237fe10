"""Pipeline times data parallelism: several copies of a pipeline, each with a share of the batch."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from distlab.errors import CourseError
from utils.collectives import ring_all_reduce
from utils.parallel.parts import StepResult
from utils.parallel.pipeline import (
    Pipeline,
    PipelineStep,
    check_fit,
    collect_step,
    feed_images,
    make_stages,
    run_threads,
)
from utils.parallel.stage import Mailbox, Rules
from utils.parallel.traffic import Traffic
from utils.schedules import Schedule


@dataclass(frozen=True, eq=False)
class ReplicatedStep(StepResult):
    """A step of all replicas: its result, each replica's own step, and the all-reduces.

    `reduced_bytes[stage]` is what each replica of a stage sent, the most of them.
    """

    steps: list[PipelineStep]
    reduced_bytes: list[int]


def run_replicas(
    pipelines: Sequence[Pipeline],
    schedule: Schedule,
    images: np.ndarray,
    labels: np.ndarray,
) -> ReplicatedStep:
    """Run one batch over several pipelines of the same weights, all at the same time.

    Each replica runs the schedule on its share of the examples. Then the replicas
    of each stage sum their gradients round a ring. Raises CourseError for fewer
    than two pipelines, for pipelines cut in different ways, and for what `run_pipeline` refuses.
    """
    _check(pipelines)
    shares = [np.array_split(array, len(pipelines)) for array in (images, labels)]
    mailboxes, traffics = [Mailbox() for _ in pipelines], [Traffic() for _ in pipelines]
    counts, stages = [len(labels)] * schedule.micro_batches, []
    for pipeline, mailbox, traffic, *share in zip(
        pipelines, mailboxes, traffics, *shares, strict=True
    ):
        check_fit(schedule, pipeline.stages, pipeline.chunks, *share)
        stages += make_stages(pipeline, schedule, mailbox, traffic, share[1], counts, Rules())
        feed_images(pipeline, schedule, mailbox, share[0])
    reports = run_threads(stages, *mailboxes)
    wide = schedule.stages
    steps = [
        collect_step(schedule, reports[number * wide : (number + 1) * wide], traffic)
        for number, traffic in enumerate(traffics)
    ]
    return _reduce(pipelines[0], steps)


def _check(pipelines: Sequence[Pipeline]) -> None:
    if isinstance(pipelines, Pipeline) or len(pipelines) < 2:
        raise CourseError("replicas must be a list of at least two pipelines. Add one.")
    if len({(each.layers, each.stages) for each in pipelines}) > 1:
        raise CourseError("All pipelines must be cut at the same layers.")


def _reduce(pipeline: Pipeline, steps: list[PipelineStep]) -> ReplicatedStep:
    """Sum the gradients over the replicas, each part of the model on its own."""
    sent, gradients, first = [0] * pipeline.stages, [], 0
    for place, part in enumerate(pipeline.parts):
        own = slice(first, first + len(part.weights))
        first = own.stop
        for vectors in zip(*(step.gradients[own] for step in steps), strict=True):
            result = ring_all_reduce(vectors)
            gradients.append(result.vectors[0])
            sent[place % pipeline.stages] += max(result.bytes_per_rank)
    return ReplicatedStep(sum(step.loss for step in steps), gradients, steps, sent)
