"""The rates of `training.large_batch` as a Keras learning-rate schedule."""

from dataclasses import asdict
from typing import Any

import keras
from keras import ops

from .large_batch import RatePlan


@keras.saving.register_keras_serializable("dist_utils")
class WarmUp(keras.optimizers.schedules.LearningRateSchedule):
    """Up from `base_rate` to `peak_rate` over the warm-up, then down; see `RatePlan`.

    Takes `RatePlan`'s arguments, `warm_up_steps` and `steps` among them, and raises InputError as
    it does. Keras hands a schedule the number of *calls* of the optimizer: with
    `gradient_accumulation_steps=n` these are micro-batches, n to a step, so give all its lengths n
    times as long.

        optimizer = keras.optimizers.SGD(WarmUp(0.1, 0.4, warm_up_steps=4, steps=16))
    """

    def __init__(self, base_rate: float, peak_rate: float, warm_up_steps: int, steps: int) -> None:
        self.plan = RatePlan(base_rate, peak_rate, warm_up_steps, steps)

    def __call__(self, step: Any) -> Any:
        """Return the rate of `step`, a scalar of Keras's float type; 0 after the last step."""
        plan = self.plan
        step = ops.cast(step, keras.config.floatx())
        slope = (plan.peak_rate - plan.base_rate) / max(plan.warm_up_steps, 1)
        left = (plan.steps - step) / (plan.steps - plan.warm_up_steps)
        falling = plan.peak_rate * ops.maximum(left, 0.0)
        return ops.where(step < plan.warm_up_steps, plan.base_rate + slope * step, falling)

    def get_config(self) -> dict[str, Any]:
        return asdict(self.plan)
