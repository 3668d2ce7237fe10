"""TFRecord shards of PNG examples, and where they are read from: local disk, or a slow store.

Each record is a serialized `tf.train.Example` with `image` (a PNG, 28 by 28, gray),
`label` and `id`, the example's number in the data set, which says who got what. Several
files, the shards, so that several can be read at once and shared out over workers.

The slow store, emulated on the local disk, answers each request after a delay: one when a shard is
opened, one for each block of records. The delay is tf.data's own sleeping dataset (C++, no Python,
nothing computed meanwhile), so other requests, and other stages, continue while one waits, as they
do while a network answers.
"""

import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..checks import check_count
from ..data.images import Split
from ..environment import quiet_tensorflow
from ..errors import InputError, RunError


@dataclass(frozen=True)
class Shards:
    """The files of one data set on disk, in order, and how many examples they hold."""

    files: tuple[str, ...]
    examples: int

    @property
    def bytes(self) -> int:
        """The size of all files together."""
        return sum(Path(name).stat().st_size for name in self.files)

    def repeat(self, times: int) -> "Shards":
        """Return the same files named `times` times over: more to read, no more on disk."""
        check_count("times", times)
        return Shards(self.files * times, self.examples * times)


def write_shards(
    split: Split, folder: str | Path, shards: int = 8, order: np.ndarray | None = None
) -> Shards:
    """Write the examples of `split` to `shards` files in `folder`, which is made if needed.

    Shard k holds the k-th run of examples. `order` [examples], a permutation, is the order in
    which they are written [unchanged]. Returns the files and how many examples they hold.
    Raises InputError for fewer than one example per shard, an `order` that isn't a permutation
    and a folder that holds such files already, RunError if it can't be written. Follows
    `tf.io.TFRecordWriter`.

        shards = write_shards(load("mnist").train.take(64), "shards", shards=2)
    """
    examples = len(split)
    check_count("shards", shards, 1, examples)
    numbers = np.arange(examples) if order is None else np.asarray(order)
    if not np.array_equal(np.sort(numbers), np.arange(examples)):
        raise InputError(f"order must hold each number from 0 to {examples - 1:,} once.")

    def make_example(number: int) -> dict[str, bytes | int]:
        png = encode_png(split.images[number])
        return {"image": png, "label": int(split.labels[number]), "id": number}

    return write_examples(make_example, numbers, folder, shards)


def write_examples(
    make_example: Callable[[int], dict[str, bytes | int]],
    numbers: np.ndarray,
    folder: str | Path,
    shards: int,
) -> Shards:
    """Write `make_example(number)` for each of `numbers`, one at a time, to `shards` files.

    An example is a dictionary of bytes and whole numbers. Raises as `write_shards` does.
    """
    folder = Path(folder)
    names = [folder / f"part-{k:03d}-of-{shards:03d}.tfrecord" for k in range(shards)]
    if taken := next((name for name in names if name.exists()), None):
        raise InputError(f"{taken} exists already and isn't overwritten. Remove it first.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, part in zip(names, np.array_split(numbers, shards), strict=True):
            _write_file(name, (make_example(int(number)) for number in part))
    except OSError as error:
        raise RunError(
            f"{folder} can't be written ({error.strerror or error}). Name another folder."
        ) from None
    return Shards(tuple(str(name) for name in names), len(numbers))


def _write_file(name: Path, examples: Iterable[dict[str, bytes | int]]) -> None:
    with quiet_tensorflow():
        import tensorflow as tf
    name.touch()  # TensorFlow's own error would be pages long
    with tf.io.TFRecordWriter(str(name)) as writer:
        for example in examples:
            writer.write(_serialize(example))


def encode_png(image: np.ndarray) -> bytes:
    """Return `image`, uint8 [height, width], as the bytes of a PNG file."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(image).save(file, "PNG")
    return file.getvalue()


def _serialize(example: dict[str, bytes | int]) -> bytes:
    import tensorflow as tf

    def feature(value: bytes | int) -> tf.train.Feature:
        if isinstance(value, bytes):
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
        return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))

    features = tf.train.Features(feature={name: feature(v) for name, v in example.items()})
    return tf.train.Example(features=features).SerializeToString()


@dataclass(frozen=True)
class Store:
    """The cost of a request: seconds to open a shard, and seconds for each block of records.

    Raises InputError for delays below 0 and blocks below 1.
    """

    open_seconds: float = 0.0
    block_seconds: float = 0.0
    block_records: int = 128

    def __post_init__(self) -> None:
        if min(self.open_seconds, self.block_seconds) < 0 or self.block_records < 1:
            raise InputError(f"Delays must be 0 or more and blocks at least 1 record, got {self}.")

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

    def answer(value: Any, seconds: float) -> Any:
        return delay(tf.data.Dataset.from_tensors(value), seconds).take(1)  # its end makes no call

    return answer(file, store.open_seconds).flat_map(
        lambda name: (
            tf.data.TFRecordDataset(name)
            .batch(store.block_records)
            .flat_map(lambda block: answer(block, store.block_seconds))
        )
    )


def delay(dataset: Any, seconds: float) -> Any:
    """Return `dataset` with each element `seconds` late (SleepDataset, of tf.data's own tests)."""
    from tensorflow.python.data.experimental.ops import testing

    return dataset.apply(testing.sleep(round(seconds * 1e6))) if seconds > 0 else dataset
