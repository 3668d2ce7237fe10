"""Labelled images out of TFRecord files, without TensorFlow.

Why not through tf.data? Its first operation starts TensorFlow's runtime, after
which the CPU can no longer be split into logical devices and no multi-worker
strategy can be made. Data should be loadable before either.

A TFRecord file is a row of records: length (uint64), CRC of the length, the
bytes, CRC of the bytes (tensorflow.org/tutorials/load_data/tfrecord). Here each
record is a serialised `tf.train.Example` with `image`, a PNG, and `label`. The
CRCs are not computed: whoever calls checks a SHA-256 of what comes out.
"""

import io
import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from .catalogue import CLASSES, IMAGE_SIZE
from .images import Split

# tensorflow/core/example/example.proto: a map is a repeated message of key and value.
EXAMPLE_SCHEMA = """
name: "labelled_image.proto"  package: "labelled_image"  syntax: "proto3"
message_type { name: "BytesList"
  field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_BYTES } }
message_type { name: "Int64List"
  field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_INT64 } }
message_type { name: "Feature"
  field { name: "bytes_list" number: 1 label: LABEL_OPTIONAL type: TYPE_MESSAGE
          type_name: ".labelled_image.BytesList" }
  field { name: "int64_list" number: 3 label: LABEL_OPTIONAL type: TYPE_MESSAGE
          type_name: ".labelled_image.Int64List" } }
message_type { name: "Entry"
  field { name: "key" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
  field { name: "value" number: 2 label: LABEL_OPTIONAL type: TYPE_MESSAGE
          type_name: ".labelled_image.Feature" } }
message_type { name: "Features"
  field { name: "feature" number: 1 label: LABEL_REPEATED type: TYPE_MESSAGE
          type_name: ".labelled_image.Entry" } }
message_type { name: "Example"
  field { name: "features" number: 1 label: LABEL_OPTIONAL type: TYPE_MESSAGE
          type_name: ".labelled_image.Features" } }
"""


def read_records(path: Path) -> Iterator[bytes]:
    """Yield the records of the TFRecord file `path`, in order.

    Raises InputError that names the file if it is missing or does not end with
    the end of a record.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    start = 0
    while start < len(content):
        data = start + 12  # after the length (8 bytes) and its CRC (4 bytes)
        length = struct.unpack_from("<Q", content, start)[0] if data <= len(content) else 0
        end = data + length
        if end + 4 > len(content):
            raise InputError(f"{path} is truncated or corrupt: it ends inside a record")
        yield content[data:end]
        start = end + 4


def read_labelled_images(paths: list[Path], examples_per_file: list[int]) -> Split:
    """Read the examples of `paths`, in the order in which they are stored.

    `examples_per_file[i]` is how many `paths[i]` must hold. Raises InputError
    that names the file which is truncated or corrupt, or holds another number.
    """
    total = sum(examples_per_file)
    images = np.empty((total, IMAGE_SIZE, IMAGE_SIZE), np.uint8)
    labels = np.empty(total, np.int64)
    position = 0
    for path, expected in zip(paths, examples_per_file, strict=True):
        found = 0
        for found, record in enumerate(read_records(path), start=1):
            if found <= expected:
                images[position], labels[position] = _decode_record(record, path, found)
                position += 1
        if found != expected:
            raise InputError(f"{path} is damaged: it holds {found:,} examples, not {expected:,}")
    return Split(images, labels)


def _decode_record(record: bytes, path: Path, number: int) -> tuple[np.ndarray, int]:
    """Return the image (uint8 [28, 28]) and label of the `number`-th record of `path`."""
    from google.protobuf.message import DecodeError
    from PIL import Image

    try:
        entries = _example_class().FromString(record).features.feature
        values = {entry.key: entry.value for entry in entries}
        label = values["label"].int64_list.value[0]
        with Image.open(io.BytesIO(values["image"].bytes_list.value[0])) as image:
            pixels = np.asarray(image)
    except (DecodeError, KeyError, IndexError, OSError, SyntaxError, ValueError) as error:
        raise InputError(
            f"{path} is corrupt: record {number} is not a labelled image ({_one_line(error)})"
        ) from None
    if pixels.shape != (IMAGE_SIZE, IMAGE_SIZE) or not 0 <= label < CLASSES:
        raise InputError(
            f"{path}: record {number} is an image of shape {pixels.shape} with label {label}, "
            f"not ({IMAGE_SIZE}, {IMAGE_SIZE}) with a label below {CLASSES}"
        )
    return pixels, label


@cache
def _example_class() -> Any:
    from google.protobuf import (
        descriptor_pb2,
        descriptor_pool,
        message_factory,
        text_format,
    )

    schema = text_format.Parse(EXAMPLE_SCHEMA, descriptor_pb2.FileDescriptorProto())
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(schema.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("labelled_image.Example"))


def _one_line(error: Exception) -> str:
    return str(error).splitlines()[0][:80] if str(error) else type(error).__name__
