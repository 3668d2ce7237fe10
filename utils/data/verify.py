"""Find each data set on this machine, and check it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..errors import InputError
from . import bundled
from .catalog import DATA_SETS, DataSetFacts, find_facts
from .images import ImageData
from .tfds_folder import find_prepared, read_full_prepared, standard_folder


@dataclass(frozen=True)
class Place:
    """A data set in one place.

    `state` is "found" (not checked), "verified" (read whole, its checksums correct: the sample's
    own, or the ones of a TFDS folder's records) or "damaged" (`problem` says what is wrong). The
    numbers of examples are None unless verified.
    """

    name: str
    kind: str
    folder: str
    state: str
    train_examples: int | None = None
    test_examples: int | None = None
    problem: str | None = None


def list_places(
    name: str | None = None, check: bool = True, sample_root: Path | None = None
) -> list[Place]:
    """Return every place where `name`, or any data set, is found, and check it if `check`.

    The bundled sample comes first, then TFDS's standard folder if it has one. A check reads the
    whole data set: about a second for the sample, some seconds for a full set. `sample_root` is
    where the samples are, the course's own folder when None. Raises InputError for an unknown name.
    """
    chosen = [find_facts(name)] if name is not None else list(DATA_SETS.values())
    return [
        check_place(facts, kind, path, read) if check else _not_checked(facts, kind, path)
        for facts in chosen
        for kind, path, read in _find_readers(facts, sample_root or bundled.FOLDER)
    ]


def check_place(
    facts: DataSetFacts, kind: str, folder: Path, read: Callable[[], ImageData]
) -> Place:
    """Call `read`, which reads and checks the data in `folder`, and return what came of it."""
    try:
        data = read()
    except InputError as error:
        return Place(facts.name, kind, str(folder), "damaged", problem=str(error))
    counts = len(data.train), len(data.test)
    return Place(facts.name, kind, str(folder), "verified", *counts)


def _not_checked(facts: DataSetFacts, kind: str, folder: Path) -> Place:
    return Place(facts.name, kind, str(folder), "found")


def _find_readers(
    facts: DataSetFacts, sample_root: Path
) -> Iterator[tuple[str, Path, Callable[[], ImageData]]]:
    """Yield (kind, folder, what reads it) for each place where the data set is found."""
    sample = partial(bundled.verify_bundled, facts.name, sample_root)
    yield "bundled sample", sample_root / f"{facts.name}.npz", sample
    prepared = find_prepared(standard_folder(), facts.name)
    if prepared is not None:
        yield "TFDS folder", prepared, partial(read_full_prepared, prepared, facts)
