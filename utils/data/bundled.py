"""The bundled sample: real data that travels with the course, checked each time it is read.

`bundled/<name>/` holds the first 10,000 training and 2,000 test examples of the
original, in order, as a prepared TFDS folder (`3.0.1/`), with the SHA-256 of
every file and of the content (`checksums.json`) and the licence beside it.
`utils.data.prepare` made them.

To decode 12,000 PNGs takes half a second, so the arrays are kept in
`bundled/<name>/__pycache__/`, as Python keeps what it compiles, and used while their
checksums are those of the content.
"""

import contextlib
import hashlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..environment import quiet_tensorflow
from ..errors import InputError
from ..files import replace_atomically
from .catalogue import FULL_EXAMPLES, TFDS_VERSION, find_facts
from .idx import content_sha256
from .images import ImageData, Split
from .prepared import read_prepared

if TYPE_CHECKING:
    import tensorflow_datasets as tfds

FOLDER = Path(__file__).parent / "bundled"
CHECKSUMS_FILE = "checksums.json"
RESTORE = "restore it from the course (git checkout) or install the course again"


def load_bundled(name: str, root: Path = FOLDER) -> ImageData:
    """Read the bundled sample of `name` from `root`, files and content checked.

    Needs no network and no TensorFlow. Raises InputError that names the file
    which is missing or damaged.
    """
    facts = find_facts(name)
    folder = check_files(facts.name, root)
    checksums = _read_checksums(facts.name, root)
    kept = _name_kept(root / facts.name, checksums["files"])
    splits = _read_kept(kept)
    if splits is None or describe_content(splits) != checksums["content"]:
        splits = read_prepared(folder, facts)
        if describe_content(splits) != checksums["content"]:
            raise InputError(
                f"{folder}: the content has another checksum than it should: {RESTORE}"
            )
        _keep(kept, splits)
    return ImageData(
        name=facts.name,
        source=f"bundled sample (TFDS {TFDS_VERSION})",
        full=False,
        train=splits["train"],
        test=splits["test"],
        class_names=facts.class_names,
    )


def _name_kept(folder: Path, files: Any) -> Path:
    """Return where the arrays of exactly these files are kept."""
    digest = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
    return folder / "__pycache__" / f"{digest[:16]}.npz"


def _read_kept(path: Path) -> dict[str, Split] | None:
    """Return the splits kept at `path`; None if there are none, or not whole ones."""
    try:
        with np.load(path) as arrays:
            return {
                split: Split(arrays[f"{split}_images"], arrays[f"{split}_labels"])
                for split in FULL_EXAMPLES
            }
    except Exception:  # a copy: whatever is wrong with it, the files are read instead
        return None


def _keep(path: Path, splits: dict[str, Split]) -> None:
    """Keep the arrays, where Python would keep compiled code too and the folder can be written."""
    if sys.dont_write_bytecode:
        return
    arrays = {f"{name}_images": split.images for name, split in splits.items()}
    arrays |= {f"{name}_labels": split.labels for name, split in splits.items()}
    with contextlib.suppress(OSError), replace_atomically(path, mode=0o644) as file:
        np.savez(file, **arrays)


def builder(name: str, root: Path = FOLDER) -> "tfds.core.DatasetBuilder":
    """Return a TFDS builder of the bundled sample, with `.info` and `.as_dataset(split=...)`.

    Follows `tfds.builder_from_directory`: reads what is prepared, downloads
    nothing. Raises InputError that names the file which is missing or damaged.
    """
    folder = check_files(find_facts(name).name, root)
    with quiet_tensorflow():
        import tensorflow_datasets as tfds

        return tfds.builder_from_directory(folder)


def check_files(name: str, root: Path = FOLDER) -> Path:
    """Compare each bundled file of `name` with its checksum; return the prepared folder.

    Raises InputError that names the first file which is missing or differs.
    """
    folder = root / name / TFDS_VERSION
    for file_name, expected in _read_checksums(name, root)["files"].items():
        path = folder / file_name
        try:
            content = path.read_bytes()
        except OSError as error:
            problem = error.strerror or error
            raise InputError(f"{path} cannot be read ({problem}): {RESTORE}") from None
        if len(content) != expected["bytes"]:
            raise InputError(
                f"{path} is damaged: {len(content):,} bytes, not {expected['bytes']:,}: {RESTORE}"
            )
        if hashlib.sha256(content).hexdigest() != expected["sha256"]:
            raise InputError(f"{path} is damaged: its SHA-256 differs: {RESTORE}")
    return folder


def describe_content(splits: dict[str, Split]) -> dict[str, dict[str, Any]]:
    """Return per split the number of examples and the SHA-256 of images and labels as idx files."""
    return {
        name: {
            "examples": len(split),
            "images_sha256": content_sha256(split.images),
            "labels_sha256": content_sha256(split.labels),
        }
        for name, split in splits.items()
    }


def describe_files(folder: Path) -> dict[str, dict[str, Any]]:
    """Return bytes and SHA-256 of each file in `folder`, by name."""
    contents = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    return {
        name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in contents.items()
    }


def _read_checksums(name: str, root: Path) -> dict[str, Any]:
    path = root / name / CHECKSUMS_FILE
    try:
        checksums = json.loads(path.read_bytes())
        if not checksums["files"] or not checksums["content"]:
            raise KeyError("files, content")
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): {RESTORE}") from None
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{path} is damaged: {RESTORE}") from None
    return checksums
