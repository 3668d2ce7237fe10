"""A pipeline that never stops for an update, and the weights that it must keep for that.

Narayanan et al. 2019, "PipeDream", section 3.3: each stage updates its weights after
every micro-batch, so a micro-batch may find other weights on its way back than on
its way there. Stashing keeps the old ones until it has come back.
"""

from dataclasses import dataclass

import numpy as np

from distlab.errors import CourseError
from utils.parallel.parts import Part, as_inputs, as_labels, find_loss
from utils.parallel.pipeline import Pipeline, PipelineStep, run_pipeline
from utils.parallel.stage import Rules
from utils.schedules import Schedule


@dataclass(frozen=True, eq=False)
class StaleRun:
    """A run without a flush.

    `gradients[micro-batch]` are those applied, in the order of
    `model.trainable_variables`; `versions[micro-batch][stage]` how many updates the
    weights had seen that its forward used; `weights[micro-batch]` those weights.
    `peak_versions_per_stage` is the most versions that a stage kept at once.
    """

    step: PipelineStep
    losses: list[float]
    gradients: list[list[np.ndarray]]
    versions: list[tuple[int, ...]]
    weights: list[list[np.ndarray]]
    peak_versions_per_stage: tuple[int, ...]


def run_without_flush(
    pipeline: Pipeline,
    schedule: Schedule,
    images: np.ndarray,
    labels: np.ndarray,
    learning_rate: float,
    stash: bool = True,
) -> StaleRun:
    """Train with one SGD update on each stage after each micro-batch, which counts as a batch.

    The weights of `pipeline` change. With `stash` a backward uses the weights of
    its forward. Otherwise it computes the forward again with the present ones, as
    a system does that keeps inputs alone. Raises CourseError for a learning rate
    that isn't above 0, for a pipeline with several chunks, and for what
    `run_pipeline` refuses.
    """
    if not 0 < learning_rate < float("inf"):
        raise CourseError(f"learning_rate must be above 0, got {learning_rate}.")
    if pipeline.chunks > 1:
        raise CourseError(f"chunks must be 1 without a flush, got {pipeline.chunks}.")
    rules = Rules(learning_rate=learning_rate, stash=stash)
    return _collect(run_pipeline(pipeline, schedule, images, labels, rules))


def _collect(step: PipelineStep) -> StaleRun:
    """Put together what the stages report of each micro-batch."""
    reports, numbers = step.reports, range(step.schedule.micro_batches)
    versions = [tuple(report.versions[0, number] for report in reports) for number in numbers]
    used = [[report.history[0][v] for report, v in zip(reports, own)] for own in versions]
    return StaleRun(
        step=step,
        losses=[reports[-1].losses[number] for number in numbers],
        gradients=[
            [gradient for report in reports for gradient in report.each[0, number]]
            for number in numbers
        ],
        versions=versions,
        weights=[[array for stage in own for array in stage] for own in used],
        peak_versions_per_stage=tuple(report.peak_versions for report in reports),
    )


def measure_errors(
    pipeline: Pipeline, run: StaleRun, images: np.ndarray, labels: np.ndarray
) -> list[float]:
    """Return how far each micro-batch's gradient is from the true one, as a part of its length.

    The true gradient is the unsplit model's, with the weights that the
    micro-batch's forward used on each stage.
    """
    import tensorflow as tf

    layers = [layer for part in pipeline.parts for layer in part.layers]
    whole, errors = Part(layers, "CPU:0"), []
    micro_batches = len(run.gradients)
    inputs = np.array_split(as_inputs(pipeline.model, images), micro_batches)
    answers = np.array_split(as_labels(labels), micro_batches)
    for number, applied in enumerate(run.gradients):
        values = [tf.constant(array) for array in run.weights[number]]
        forward = whole.run_forward(values, tf.constant(inputs[number]))
        own = answers[number]
        _, upstream = find_loss(own, forward.outputs, len(own), whole.device)
        true = whole.find_weight_gradients(forward, upstream)
        gaps = [a - np.asarray(b) for a, b in zip(applied, true, strict=True)]
        errors.append(_length(gaps) / _length([np.asarray(b) for b in true]))
    return errors


def _length(arrays: list[np.ndarray]) -> float:
    return float(np.sqrt(sum(np.sum(array**2) for array in arrays)))
