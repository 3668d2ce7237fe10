"""One pipeline, rebuilt a stage at a time, from naive to tuned: each step is one function.

Every function takes `Shards` and a `Store` and returns a dataset of batches (images float32 [batch,
28, 28, 1], labels, ids): the same examples, each once an epoch. Read them from top to bottom, as a
diff. Wrap one in `as_written` to switch off TensorFlow's own changes, so that each step shows what
its own line does.

Advice followed and put to the test: tensorflow.org/guide/data_performance.
"""

from collections.abc import Callable
from typing import Any

from .chain import as_written as as_written
from .parsing import augment, augment_batch, parse, parse_batch
from .store import LOCAL, Shards, Store, read_shard

BATCH = 128
CALLS = 2  # at once, in maps: one for each core of the course's machine
SHARDS_AT_ONCE = 8
Variant = Callable[..., Any]


def list_files(shards: Shards) -> Any:
    """Return the names of the shards as a dataset."""
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices(list(shards.files))


def naive(shards: Shards, store: Store = LOCAL, batch: int = BATCH) -> Any:
    """One shard after another, one example after another, nothing at the same time."""
    records = list_files(shards).flat_map(lambda file: read_shard(file, store))
    return records.map(parse).map(augment).batch(batch)


def interleaved(shards: Shards, store: Store = LOCAL, batch: int = BATCH) -> Any:
    """A record from each of 8 shards in turn: mixed, and still one read at a time."""
    records = list_files(shards).interleave(
        lambda file: read_shard(file, store), cycle_length=SHARDS_AT_ONCE
    )
    return records.map(parse).map(augment).batch(batch)


def read_at_once(shards: Shards, store: Store) -> Any:
    """Return records from 8 shards, read at the same time (parallel interleave)."""
    return list_files(shards).interleave(
        lambda file: read_shard(file, store),
        cycle_length=SHARDS_AT_ONCE,
        num_parallel_calls=SHARDS_AT_ONCE,
    )


def interleaved_in_parallel(shards: Shards, store: Store = LOCAL, batch: int = BATCH) -> Any:
    """8 shards read at the same time: their delays overlap."""
    return read_at_once(shards, store).map(parse).map(augment).batch(batch)


def mapped_in_parallel(shards: Shards, store: Store = LOCAL, batch: int = BATCH) -> Any:
    """Parse and augment on two threads, example by example."""
    records = read_at_once(shards, store)
    return records.map(parse, CALLS).map(augment, CALLS).batch(batch)


def batched_first(shards: Shards, store: Store = LOCAL, batch: int = BATCH) -> Any:
    """Vectorized maps: batch the records, then parse and augment whole batches."""
    batches = read_at_once(shards, store).batch(batch)
    return batches.map(parse_batch, CALLS).map(augment_batch, CALLS)


def cached(shards: Shards, store: Store = LOCAL, batch: int = BATCH) -> Any:
    """A cache after parsing, before augmentation: later epochs read and decode nothing."""
    batches = read_at_once(shards, store).batch(batch).map(parse_batch, CALLS)
    return batches.cache().map(augment_batch, CALLS)


def prefetched(shards: Shards, store: Store = LOCAL, batch: int = BATCH) -> Any:
    """The same, two batches ahead of the step that consumes them."""
    return cached(shards, store, batch).prefetch(2)


def tuned(shards: Shards, store: Store = LOCAL, batch: int = BATCH) -> Any:
    """All of it, and examples in a new order each epoch: cached one by one, shuffled, batched.

    To cache batches, as `cached` does, keeps each example in the same company for
    ever. Parsed images are small (uint8), so the cache holds examples, and the
    buffer all of them.
    """
    examples = read_at_once(shards, store).map(parse, CALLS).cache()
    batches = examples.shuffle(shards.examples).batch(batch, num_parallel_calls=CALLS)
    return batches.map(augment_batch, CALLS).prefetch(2)


def autotuned(shards: Shards, store: Store = LOCAL, batch: int = BATCH) -> Any:
    """Parallel everywhere and prefetched, every number left to AUTOTUNE, no cache."""
    import tensorflow as tf

    auto = tf.data.AUTOTUNE
    files = list_files(shards)
    records = files.interleave(lambda file: read_shard(file, store), num_parallel_calls=auto)
    return records.map(parse, auto).map(augment, auto).batch(batch).prefetch(auto)


LADDER: dict[str, Variant] = {
    "naive": naive,
    "interleave": interleaved,
    "parallel interleave": interleaved_in_parallel,
    "parallel map": mapped_in_parallel,
    "vectorized map": batched_first,
    "cache": cached,
    "prefetch": prefetched,
    "tuned": tuned,
}
