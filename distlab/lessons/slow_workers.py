"""A worker made slow for real: the op sleeps, in the worker's process, without using a core.

A Python `time.sleep` would run in the coordinator while it traces, and `py_function`
finds no Python on the other side. The dataset op `SleepDataset` is C++.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from distlab.errors import CourseError

if TYPE_CHECKING:
    import tensorflow as tf


def sleep_in_graph(seconds: tf.Tensor) -> tf.Tensor:
    """Sleep `seconds` where the op is placed; returns 0, to depend on."""
    import tensorflow as tf

    one = tf.data.Dataset.range(1)
    slow = tf.raw_ops.SleepDataset(
        input_dataset=tf.data.experimental.to_variant(one),
        sleep_microseconds=tf.cast(seconds * 1e6, tf.int64),
        output_types=[tf.int64],
        output_shapes=[[]],
    )
    dataset = tf.data.experimental.from_variant(slow, one.element_spec)
    return dataset.reduce(tf.constant(0, tf.int64), lambda total, value: total + value)


def check_delays(delays: Sequence[float] | None, workers: int) -> tuple[float, ...]:
    """Return a delay in seconds for each worker; None means no delay.

    Raises CourseError for another number of delays than workers and for negative ones.
    """
    delays = (0.0,) * workers if delays is None else tuple(float(d) for d in delays)
    if len(delays) != workers or min(delays) < 0:
        raise CourseError(
            f"delays must be {workers} numbers of seconds of at least 0, got {delays}."
        )
    return delays
