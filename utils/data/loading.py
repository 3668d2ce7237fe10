"""`load`: the bundled sample, or the full set from where it is found."""

import functools
import os
from pathlib import Path

from ..errors import InputError
from .bundled import load_bundled, read_npz
from .catalog import DataSetFacts, find_facts
from .images import ImageData
from .tfds_folder import find_prepared, make_full, read_full_prepared, standard_folder

_load_sample = functools.cache(load_bundled)  # once per process: its arrays are read-only


def load(name: str, full: bool = False, folder: str | os.PathLike[str] | None = None) -> ImageData:
    """Return the data set `name`, "fashion_mnist" or "mnist".

    The default is the bundled sample: the first 10,000 training and 2,000 test examples, the same
    on every machine, without a network. `full=True` gives all 60,000 and 10,000, from the first of
    these that exists:

    1. `folder`, if given: a prepared TFDS folder, or an .npz file as Keras has it; nothing
       else is tried;
    2. TFDS's standard folder, $TFDS_DATA_DIR or ~/tensorflow_datasets, where
       `distlab data fetch` puts it. Nothing is downloaded here.

    Images are uint8 [examples, 28, 28], labels int64 [examples]. A full set keeps the order of its
    files (TFDS stores it shuffled). Raises InputError that names a damaged file, or says what to do
    if there is no full set. Starts no TensorFlow runtime, so you can call it before devices are
    split or a strategy is made.

        >>> load("mnist").train.images.shape
        (10000, 28, 28)
    """
    facts = find_facts(name)
    if not full:
        if folder is not None:
            raise InputError("folder is for the full data set. Add full=True.")
        return _load_sample(facts.name)
    if folder is not None:
        return read_folder(Path(folder).expanduser(), facts)
    prepared = find_prepared(standard_folder(), facts.name)
    if prepared is not None:
        return read_full_prepared(prepared, facts)
    raise InputError(f"The full {facts.title} isn't on this machine. {_advise(facts)}")


def read_folder(folder: Path, facts: DataSetFacts) -> ImageData:
    """Read the full set from `folder`: a prepared TFDS folder, or an .npz file as Keras has it.

    Raises InputError if it is neither, or names the file that is damaged.
    """
    if folder.suffix == ".npz":
        return make_full(facts, read_npz(folder, "Download it again."), f"file {folder}")
    prepared = find_prepared(folder, facts.name)
    if prepared is not None:
        return read_full_prepared(prepared, facts)
    raise InputError(
        f"{folder} has no prepared TFDS folder of {facts.name}. Name one, or an .npz file with "
        "x_train, y_train, x_test and y_test"
    )


def _advise(facts: DataSetFacts) -> str:
    name = facts.name.replace("_", "-")
    return f"Run `distlab data fetch {name}`, or name a TFDS folder or an .npz file."
