"""Prepared TFDS folders: what `tensorflow_datasets` leaves on disk, read without TensorFlow.

A prepared folder is `<data folder>/<name>/<version>/` with `dataset_info.json`
(splits, how many examples each file holds) and the files themselves.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from .catalogue import FULL_EXAMPLES, DataSetFacts
from .idx import content_sha256
from .images import ImageData, Split
from .tfrecord import read_labelled_images

INFO_FILE = "dataset_info.json"


def standard_folder() -> Path:
    """Return the folder in which TFDS keeps its data: $TFDS_DATA_DIR or ~/tensorflow_datasets."""
    return Path(os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets").expanduser()


def find_prepared(folder: Path, name: str) -> Path | None:
    """Return the prepared folder of `name` at or below `folder`, the newest version; None if none.

    `folder` may be TFDS's data folder, its `<name>` folder or a version's folder itself.
    """
    if (folder / INFO_FILE).is_file():
        return folder
    found = [
        path.parent
        for parent in (folder / name, folder)
        for path in parent.glob(f"*.*.*/{INFO_FILE}")
        if path.parent.name.replace(".", "").isdigit()
    ]
    return max(found, key=lambda path: [int(n) for n in path.name.split(".")], default=None)


def read_prepared(folder: Path, facts: DataSetFacts) -> dict[str, Split]:
    """Return the splits "train" and "test" of a prepared folder, in the original order.

    TFDS stores a data set either in order (`disableShuffling`) or sorted by a
    hash of each example's number; the second is undone. Raises InputError that
    names the file which is missing, damaged or of another data set.
    """
    info = _read_info(folder, facts)
    in_order = bool(info.get("disableShuffling"))
    splits = {}
    for split in FULL_EXAMPLES:
        paths, examples = _find_shards(folder, info, split)
        stored = read_labelled_images(paths, examples)
        splits[split] = stored if in_order else _restore_order(stored, split)
    return splits


def read_full_prepared(folder: Path, facts: DataSetFacts) -> ImageData:
    """Read the full data set from a prepared folder, in the original order, and check it.

    Raises InputError that names what is missing, damaged or not the full set.
    """
    splits = read_prepared(folder, facts)
    for name, split in splits.items():
        if len(split) != FULL_EXAMPLES[name]:
            raise InputError(
                f"{folder} holds {len(split):,} {name} examples; the full {facts.title} "
                f"has {FULL_EXAMPLES[name]:,}"
            )
        if (content_sha256(split.images), content_sha256(split.labels)) != facts.sha256[name]:
            raise InputError(
                f"the {name} files in {folder} are damaged or not {facts.title}'s: "
                "their content differs from the original"
            )
    return ImageData(
        name=facts.name,
        source=f"TFDS folder {folder}",
        full=True,
        train=splits["train"],
        test=splits["test"],
        class_names=facts.class_names,
    )


def _read_info(folder: Path, facts: DataSetFacts) -> dict[str, Any]:
    path = folder / INFO_FILE
    try:
        info = json.loads(path.read_bytes())
        name, file_format = info["name"], info.get("fileFormat", "tfrecord")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"{path} is damaged: it is not TFDS's description of data") from None
    if name != facts.name:
        raise InputError(f"{folder} holds {name}, not {facts.name}")
    if file_format != "tfrecord":
        raise InputError(f"{folder} is stored as {file_format}: prepare it as tfrecord")
    return info


def _find_shards(folder: Path, info: dict[str, Any], split: str) -> tuple[list[Path], list[int]]:
    """Return the files of `split` and how many examples each must hold."""
    try:
        (description,) = [s for s in info["splits"] if s["name"] == split]
        examples = [int(length) for length in description["shardLengths"]]
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{folder / INFO_FILE} does not describe one split {split!r}") from None
    if min(examples, default=-1) < 0 or sum(examples) > FULL_EXAMPLES[split]:
        raise InputError(f"{folder / INFO_FILE} is damaged: {split} has {examples} examples")
    count = len(examples)
    names = [f"{info['name']}-{split}.tfrecord-{i:05d}-of-{count:05d}" for i in range(count)]
    return [folder / name for name in names], examples


def _restore_order(stored: Split, split: str) -> Split:
    """Undo TFDS's shuffle, which sorts by the MD5 of the split's name and the example's number."""
    salt = hashlib.md5(split.encode(), usedforsecurity=False)
    digests = []
    for number in range(len(stored)):
        digest = salt.copy()
        digest.update(str(number).encode())
        digests.append(digest.digest())
    stored_numbers = sorted(range(len(stored)), key=digests.__getitem__)
    order = np.argsort(stored_numbers)
    return Split(stored.images[order], stored.labels[order])
