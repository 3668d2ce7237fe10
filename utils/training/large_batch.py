"""Learning rates for large batches: the linear scaling rule and gradual warm-up.

Goyal and others, "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour", 2017,
arXiv:1706.02677, sections 2.1 and 2.2. Plain numbers here; `training.warm_up` is the same
as a Keras schedule, `training.layerwise` holds LARS and LAMB, and `training.accumulation`
makes a large batch of small ones. Imports no TensorFlow.
"""

from dataclasses import dataclass

import numpy as np

from ..checks import check_count, check_number
from ..errors import InputError


def scale_rate(base_rate: float, base_batch_size: int, global_batch_size: int) -> float:
    """Return the rate for `global_batch_size`: k times the batch, k times the rate.

    `base_rate` is one that trains well at `base_batch_size`. Raises InputError for a
    rate that isn't above 0 and for batch sizes that aren't whole numbers from 1 up.
    """
    check_number("base rate", base_rate, above=0)
    check_count("base batch size", base_batch_size)
    check_count("global batch size", global_batch_size)
    return base_rate * global_batch_size / base_batch_size


@dataclass(frozen=True)
class RatePlan:
    """A rate for each of `steps` steps: up from `base_rate` to `peak_rate`, then down to 0.

    The first `warm_up_steps` rise by equal amounts, from `base_rate` at step 0; step
    number `warm_up_steps` has `peak_rate`. After it the rate falls in a straight line.
    `warm_up_steps` 0 is no warm-up. Raises InputError, in one line, for a value out of range.
    """

    base_rate: float
    peak_rate: float
    warm_up_steps: int
    steps: int

    def __post_init__(self) -> None:
        check_number("base rate", self.base_rate, above=0)
        check_number("peak rate", self.peak_rate, above=0)
        check_count("steps", self.steps)
        check_count("warm-up steps", self.warm_up_steps, least=0)
        if self.warm_up_steps >= self.steps:
            raise InputError(
                f"warm_up_steps must be fewer than the {self.steps} steps, so that the peak "
                f"rate is reached, got {self.warm_up_steps}."
            )


def list_rates(plan: RatePlan) -> np.ndarray:
    """Return the rate of every step: float64 [steps]."""
    step = np.arange(plan.steps, dtype=np.float64)
    slope = (plan.peak_rate - plan.base_rate) / max(plan.warm_up_steps, 1)
    left = (plan.steps - step) / (plan.steps - plan.warm_up_steps)
    rising = plan.base_rate + slope * step
    return np.where(step < plan.warm_up_steps, rising, plan.peak_rate * left)


def plan_rates(
    base_rate: float,
    base_batch_size: int,
    global_batch_size: int,
    *,
    examples: int,
    epochs: int,
    warm_up_epochs: float = 0,
) -> RatePlan:
    """Return the learning rates that the linear scaling rule gives for a run of full batches.

    `base_rate` is good for `base_batch_size`, and the run has `global_batch_size`. `examples` per
    epoch and `epochs` give the steps; a last batch that isn't full is left out of every epoch.
    `warm_up_epochs` are given as in the paper (5 of 90) and rounded to whole steps. The rate then
    falls in a straight line. Raises InputError as `scale_rate` and `RatePlan` do, and for a
    batch larger than the data. Follows Goyal and others 2017, arXiv:1706.02677.

        plan = plan_rates(0.1, 64, 256, examples=1024, epochs=4, warm_up_epochs=1)
        print(plan.peak_rate, plan.warm_up_steps, plan.steps)  # 0.4 4 16
    """
    peak_rate = scale_rate(base_rate, base_batch_size, global_batch_size)
    check_count("examples", examples)
    check_count("epochs", epochs)
    check_number("warm-up epochs", warm_up_epochs, least=0)
    steps_per_epoch = examples // global_batch_size
    if steps_per_epoch == 0:
        raise InputError(
            f"global_batch_size must be at most the {examples} examples, got {global_batch_size}."
        )
    warm_up_steps = round(warm_up_epochs * steps_per_epoch)
    return RatePlan(base_rate, peak_rate, warm_up_steps, epochs * steps_per_epoch)
