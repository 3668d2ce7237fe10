"""Where shards are read from: the local disk, or a slow store emulated on it.

The slow store answers each request after a delay: one when a shard is opened, one
for each block of records. The delay is tf.data's own sleeping dataset (C++, no
Python, nothing computed meanwhile), so other requests, and other stages, go on
while one waits, as they do while a network answers.
"""

from dataclasses import dataclass
from typing import Any

from ..errors import InputError


@dataclass(frozen=True)
class Store:
    """What a request costs: seconds to open a shard, and seconds for each block of records.

    Raises InputError for delays below 0 and blocks below 1.
    """

    open_seconds: float = 0.0
    block_seconds: float = 0.0
    block_records: int = 128

    def __post_init__(self) -> None:
        if min(self.open_seconds, self.block_seconds) < 0 or self.block_records < 1:
            raise InputError(f"{self}: give delays of 0 or more and blocks of 1 record or more")

    @property
    def is_slow(self) -> bool:
        return self.open_seconds > 0 or self.block_seconds > 0

    def wait_seconds(self, records: int) -> float:
        """Return how long a shard of `records` takes at least, read alone."""
        return self.open_seconds + -(-records // self.block_records) * self.block_seconds


LOCAL = Store()
SLOW = Store(open_seconds=0.05, block_seconds=0.02)


def read_shard(file: Any, store: Store = LOCAL) -> Any:
    """Return the records of the shard `file` (a scalar string tensor) as a tf.data.Dataset.

    The first block waits for the opening too.
    """
    import tensorflow as tf

    if not store.is_slow:
        return tf.data.TFRecordDataset(file)
    return read_blocks(file, store).unbatch()


def read_blocks(file: Any, store: Store) -> Any:
    """Return the records of one shard as blocks, string [block_records or fewer], with delays."""
    import tensorflow as tf

    opened = delay(tf.data.Dataset.from_tensors(file), store.open_seconds)
    return opened.flat_map(
        lambda name: delay(
            tf.data.TFRecordDataset(name).batch(store.block_records), store.block_seconds
        )
    )


def delay(dataset: Any, seconds: float) -> Any:
    """Return `dataset` with each element `seconds` late (SleepDataset, of tf.data's own tests)."""
    from tensorflow.python.data.experimental.ops import testing

    return dataset.apply(testing.sleep(round(seconds * 1e6))) if seconds > 0 else dataset
