"""idx files, the original form of MNIST and Fashion-MNIST: a reader and a checksum.

An idx file is a header (two zero bytes, the type of the elements, the number of
dimensions, then each dimension as a big-endian uint32) and the elements in row
order. The format is described on the MNIST page of Yann LeCun. Only unsigned
bytes (type 8) occur here. Files may be gzip-compressed.
"""

import gzip
import hashlib
import math
import os
import struct
import zlib
from pathlib import Path

import numpy as np

from ..errors import InputError
from .catalog import FULL_EXAMPLES, IDX_FILES, IMAGE_SIZE, DataSetFacts
from .images import ImageData, Split

UNSIGNED_BYTE = 0x08


def read_idx(path: str | os.PathLike[str]) -> np.ndarray:
    """Return the array in the idx file `path` (`.gz` or plain): uint8, read-only.

    Raises InputError that names the file if it is missing, truncated, corrupt,
    longer than its header says, or not idx.
    """
    path = Path(path)
    content = _read_content(path)
    if len(content) < 4 or content[:2] != b"\0\0":
        raise InputError(f"{path} is damaged or not an idx file: its header is wrong")
    element_type, dimensions = content[2], content[3]
    if element_type != UNSIGNED_BYTE or not 1 <= dimensions <= 3:
        raise InputError(
            f"{path} is damaged or not images or labels: its idx header says type "
            f"{element_type:#04x} with {dimensions} dimensions"
        )
    start = 4 + 4 * dimensions
    if len(content) < start:
        raise InputError(f"{path} is damaged: it ends inside its header")
    shape = struct.unpack(f">{dimensions}I", content[4:start])
    if len(content) - start != math.prod(shape):
        raise InputError(
            f"{path} is damaged: its header promises {math.prod(shape):,} elements "
            f"and {len(content) - start:,} follow"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _read_content(path: Path) -> bytes:
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rb") as file:
            return file.read()
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{path} is truncated or corrupt ({error}): fetch it again") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None


def to_idx_bytes(array: np.ndarray) -> bytes:
    """Return `array` (integers 0 to 255, one to three dimensions) as an uncompressed idx file."""
    if array.size and not (0 <= array.min() and array.max() <= 255):
        raise ValueError(f"idx bytes hold 0 to 255, not {array.min()} to {array.max()}")
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, UNSIGNED_BYTE, array.ndim, *array.shape)
    return header + array.astype(np.uint8).tobytes()


def content_sha256(array: np.ndarray) -> str:
    """Return the SHA-256 of `array` as an uncompressed idx file: header, then bytes.

    For the four original arrays this is the checksum published for the files.
    """
    return hashlib.sha256(to_idx_bytes(array)).hexdigest()


def has_idx_files(folder: Path) -> bool:
    """Return whether `folder` holds at least one of the four original file names."""
    names = [name for pair in IDX_FILES.values() for name in pair]
    return any((folder / f"{name}{end}").is_file() for name in names for end in ("", ".gz"))


def read_idx_folder(folder: Path, facts: DataSetFacts) -> ImageData:
    """Read the full data set from the four idx files in `folder`.

    Raises InputError that names the file that is missing, damaged, or not what
    the original is.
    """
    splits = {name: _read_split(folder, facts, name) for name in IDX_FILES}
    return ImageData(
        name=facts.name,
        source=f"idx files in {folder}",
        full=True,
        train=splits["train"],
        test=splits["test"],
        class_names=facts.class_names,
    )


def _read_split(folder: Path, facts: DataSetFacts, split: str) -> Split:
    paths = [_find_file(folder, name) for name in IDX_FILES[split]]
    images, labels = (read_idx(path) for path in paths)
    examples = FULL_EXAMPLES[split]
    expected = ((examples, IMAGE_SIZE, IMAGE_SIZE), (examples,))
    for path, array, shape, checksum in zip(
        paths, (images, labels), expected, facts.sha256[split], strict=True
    ):
        if array.shape != shape:
            raise InputError(
                f"{path} holds an array of shape {array.shape}; {facts.title}'s is {shape}"
            )
        if content_sha256(array) != checksum:
            raise InputError(
                f"{path} is damaged or not {facts.title}'s: its content differs from the original"
            )
    return Split(images, labels.astype(np.int64))


def _find_file(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise InputError(f"{folder} has no {name} (plain or .gz): all four idx files are needed")
