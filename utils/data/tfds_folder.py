"""Prepared TFDS folders: what `tensorflow_datasets` reads and leaves on disk.

A prepared folder is `<data folder>/<name>/<version>/` with `dataset_info.json`
(splits, how many examples each file holds), the description of the features, and
TFRecord files of PNG images.

Reading imports TensorFlow but runs no operation of it: the first operation starts
TensorFlow's runtime, after which the CPU can no longer be split into logical devices
and no multi-worker strategy can be made.
"""

import contextlib
import io
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..environment import quiet_tensorflow
from ..errors import InputError
from .bundled import load_bundled
from .catalog import FULL_EXAMPLES, TFDS_VERSION, DataSetFacts, find_facts
from .images import ImageData, Split

if TYPE_CHECKING:
    import tensorflow_datasets as tfds

INFO_FILE = "dataset_info.json"


def standard_folder() -> Path:
    """Return the folder where TFDS keeps its data: $TFDS_DATA_DIR or ~/tensorflow_datasets."""
    return Path(os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets").expanduser()


def cache_folder() -> Path:
    """Return where what can be made again is kept: below $XDG_CACHE_HOME or ~/.cache."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return root / "distributed-training"


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


def make_tfds_folder(name: str) -> Path:
    """Return a prepared TFDS folder of the bundled sample, for `tfds.builder_from_directory`.

    Made from the arrays on first use, without a network, in `cache_folder()`, which takes
    some seconds; found there afterwards. Raises InputError if the cache can't be written.
    """
    facts = find_facts(name)
    root = cache_folder() / f"sample-{facts.sample_sha256[:16]}"
    target = root / facts.name / TFDS_VERSION
    if not target.exists():
        try:
            prepare(load_bundled(facts.name), root)
        except InputError:
            if not target.exists():  # another process may have been faster
                raise
    return target


def prepare(data: ImageData, folder: Path) -> Path:
    """Write `data` as a prepared TFDS folder `folder/<name>/3.0.1` and return that.

    Follows `tfds.core.GeneratorBasedBuilder`: PNG images in TFRecord, in the order of
    `data`. Written next to its place, read back, compared, then renamed, so that it
    appears whole or not at all. Raises InputError if it exists.
    """
    target = folder.expanduser().absolute() / data.name / TFDS_VERSION
    with replace_nothing(target) as partial:
        written = _write(data, partial)
        splits = read_prepared(written, find_facts(data.name))
        for name, original in (("train", data.train), ("test", data.test)):
            same = np.array_equal(splits[name].images, original.images)
            if not same or not np.array_equal(splits[name].labels, original.labels):
                raise InputError(
                    f"{target}: the {name} examples don't read back as they were written. Is the "
                    "disk full or damaged?"
                )
        move_into_place(written, target)
    return target


def _write(data: ImageData, folder: Path) -> Path:
    """Let TFDS write `data` below `folder`; return the version's folder."""
    with quiet_tensorflow(), contextlib.redirect_stdout(io.StringIO()):  # it names partial folders
        import tensorflow_datasets as tfds

        from .tfds_builder import ArrayBuilder

        tfds.disable_progress_bar()
        builder = ArrayBuilder(data=data, data_dir=folder)
        try:
            builder.download_and_prepare(file_format="tfrecord")
        except OSError as error:
            problem = error.strerror or error
            raise InputError(
                f"{folder.parent} can't be written ({problem}). Name another folder."
            ) from None
    return Path(builder.data_dir)


@contextlib.contextmanager
def replace_nothing(target: Path) -> Iterator[Path]:
    """Give a temporary folder on `target`'s disk, removed at the end whatever happens.

    Raises InputError if `target` exists, or if its parent can't be written.
    """
    if target.exists():
        raise InputError(f"{target} exists already and isn't overwritten. Remove it first.")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent)
    except OSError as error:
        raise InputError(
            f"{target.parent} can't be written ({error.strerror}). Name another folder."
        ) from None
    try:
        yield Path(partial)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def move_into_place(written: Path, target: Path) -> None:
    """Rename the folder `written` to `target`; InputError if `target` has come to exist."""
    try:
        os.rename(written, target)
    except OSError as error:
        raise InputError(f"{target} couldn't be moved into place ({error.strerror}).") from None


def read_full_prepared(folder: Path, facts: DataSetFacts) -> ImageData:
    """Read the full data set from a prepared folder, in the stored order.

    TFDS compares downloads with its own checksums, and TFRecord files carry one for
    each record. Raises InputError that names what is missing, damaged or not the full set.
    """
    return make_full(facts, read_prepared(folder, facts), f"TFDS folder {folder}")


def make_full(facts: DataSetFacts, splits: dict[str, Split], source: str) -> ImageData:
    """Return the full set `splits`, read from `source`; InputError if examples are missing."""
    for name, split in splits.items():
        if len(split) != FULL_EXAMPLES[name]:
            raise InputError(
                f"The full {facts.title} has {FULL_EXAMPLES[name]:,} {name} examples, and "
                f"the {source} holds {len(split):,}."
            )
    return ImageData(
        name=facts.name,
        source=source,
        full=True,
        train=splits["train"],
        test=splits["test"],
        class_names=facts.class_names,
    )


def read_prepared(folder: Path, facts: DataSetFacts) -> dict[str, Split]:
    """Return the splits "train" and "test" of a prepared folder, in the order stored.

    Raises InputError that names the file which is missing, damaged or of another data set.
    """
    builder = _open(folder, facts)
    return {split: _read_stored(builder, split) for split in FULL_EXAMPLES}


def _open(folder: Path, facts: DataSetFacts) -> "tfds.core.DatasetBuilder":
    """Return TFDS's builder of `folder`, its description checked."""
    with quiet_tensorflow():
        import tensorflow_datasets as tfds
    path = folder / INFO_FILE
    try:
        builder = tfds.builder_from_directory(folder)
        name, stored_as = builder.info.name, builder.info.file_format
        missing = [split for split in FULL_EXAMPLES if split not in builder.info.splits]
    except Exception as error:  # whatever TFDS stumbles over, the description is to blame
        raise InputError(f"{path} can't be read: {_one_line(error)}. Prepare it again.") from None
    if name != facts.name:
        raise InputError(f"{folder} must hold {facts.name}, got {name}.")
    if stored_as.value != "tfrecord":
        raise InputError(
            f"{folder} must be stored as tfrecord, got {stored_as.value}. Prepare it as tfrecord."
        )
    if missing:
        raise InputError(
            f"{path} must describe one split {missing[0]!r}. Prepare the folder again."
        )
    return builder


def _read_stored(builder: "tfds.core.DatasetBuilder", split: str) -> Split:
    """Return the examples of `split` in the stored order."""
    from tensorflow.compat.v1.io import tf_record_iterator  # starts no runtime, checks the CRCs

    info = builder.info.splits[split]
    examples = []
    for path, expected in zip(info.filepaths, info.shard_lengths, strict=True):
        try:
            records = tf_record_iterator(str(path))
            stored = [builder.info.features.deserialize_example_np(record) for record in records]
            pairs = [(example["image"][..., 0], example["label"]) for example in stored]
        except Exception as error:  # TensorFlow, protobuf and PIL each have their own
            raise InputError(
                f"{path} is damaged or missing ({_one_line(error)}). Prepare the folder again."
            ) from None
        if len(pairs) != expected:
            raise InputError(
                f"{path} is damaged: it must hold {expected:,} examples, got {len(pairs):,}. "
                "Prepare the folder again."
            )
        examples += pairs
    images, labels = zip(*examples, strict=True)
    return Split(np.stack(images), np.array(labels, np.int64))


def _one_line(error: Exception) -> str:
    return str(error).splitlines()[0][:80] if str(error) else type(error).__name__
