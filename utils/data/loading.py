"""`load`: the bundled sample, or the full set from where it is found."""

import functools
import os
from pathlib import Path

from ..errors import InputError
from .bundled import load_bundled
from .catalog import DataSetFacts, find_facts
from .fetch import DOWNLOAD_SECONDS, fetch
from .idx import has_idx_files, read_idx_folder
from .images import ImageData
from .tfds_folder import find_prepared, read_full_prepared, standard_folder


def load(
    name: str,
    full: bool = False,
    folder: str | os.PathLike[str] | None = None,
    download: bool = False,
) -> ImageData:
    """Return the data set `name`, "fashion_mnist" or "mnist", in the original's order.

    By default the bundled sample: the first 10,000 training and 2,000 test
    examples, the same on every machine, no network. With `full=True` all 60,000
    and 10,000, from the first of these that exists:

    1. `folder`, if given: a prepared TFDS folder or the four idx files; nothing else is tried;
    2. TFDS's standard folder, $TFDS_DATA_DIR or ~/tensorflow_datasets;
    3. idx files that a system package installed (Debian's dataset-fashion-mnist);
    4. a download through TFDS into the standard folder, only with `download=True`,
       ended after two minutes.

    Images are uint8 [examples, 28, 28], labels int64 [examples]. The content of a
    full set is compared with the original's checksum, that of the sample by
    `distlab data verify`. Raises InputError that names a damaged file, or says what
    to do where there is no full set. Starts no TensorFlow runtime, so it may come
    before devices are split or a strategy is made.
    """
    facts = find_facts(name)
    if not full:
        if folder is not None or download:
            raise InputError("folder and download are for the full set: add full=True")
        return _load_sample(facts.name)
    if folder is not None:
        return read_folder(Path(folder).expanduser(), facts)
    prepared = find_prepared(standard_folder(), facts.name)
    if prepared is not None:
        return read_full_prepared(prepared, facts)
    if facts.idx_folder is not None and has_idx_files(facts.idx_folder):
        return read_idx_folder(facts.idx_folder, facts)
    if download:
        return read_full_prepared(fetch(facts.name, seconds=DOWNLOAD_SECONDS), facts)
    raise InputError(f"the full {facts.title} is not on this machine: {_advise(facts)}")


@functools.cache
def _load_sample(name: str) -> ImageData:
    """Read a bundled sample once per process: its arrays are read-only."""
    return load_bundled(name)


def read_folder(folder: Path, facts: DataSetFacts) -> ImageData:
    """Read the full set from `folder`: a prepared TFDS folder or the four idx files.

    Raises InputError if it holds neither, or names the file that is damaged.
    """
    prepared = find_prepared(folder, facts.name)
    if prepared is not None:
        return read_full_prepared(prepared, facts)
    if has_idx_files(folder):
        return read_idx_folder(folder, facts)
    raise InputError(
        f"{folder} holds neither a prepared TFDS folder of {facts.name} nor its idx files "
        "(train-images-idx3-ubyte and the other three, plain or .gz)"
    )


def _advise(facts: DataSetFacts) -> str:
    package = f"install Debian's {facts.idx_package}, " if facts.idx_package else ""
    return (
        f"{package}name a folder with its idx files or its TFDS folder, "
        f"or run `distlab data fetch {facts.name.replace('_', '-')}`"
    )
