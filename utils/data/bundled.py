"""The bundled samples: real data that travels with the code, as plain NumPy arrays.

`bundled/<name>.npz` holds the first 10,000 training and 2,000 test examples of the
original, in order, under the keys of Keras's own `mnist.npz`: `x_train`, `y_train`,
`x_test`, `y_test`, all uint8. `np.load` reads it anywhere. The license of the data is
next to it, as `<name>.LICENSE`.
"""

import hashlib
import io
import zipfile
from pathlib import Path

import numpy as np

from ..errors import InputError
from ..files import replace_atomically
from .catalog import SAMPLE_EXAMPLES, TFDS_VERSION, find_facts
from .idx import to_idx_bytes
from .images import ImageData, Split

FOLDER = Path(__file__).parent / "bundled"
KEYS = {"train": ("x_train", "y_train"), "test": ("x_test", "y_test")}
ZIP_TIME = (1980, 1, 1, 0, 0, 0)  # the same arrays give the same file, whenever it is written
RESTORE = "restore it with git checkout, or install the package again"


def load_bundled(name: str, root: Path = FOLDER) -> ImageData:
    """Read the bundled sample of `name` from `root`: no network, no TensorFlow.

    Raises InputError that names the file if it is missing, damaged or of another size.
    `verify_bundled` also compares the content with the published checksum.
    """
    facts = find_facts(name)
    path = root / f"{facts.name}.npz"
    try:
        with np.load(path, allow_pickle=False) as arrays:
            splits = {
                split: Split(arrays[images], arrays[labels].astype(np.int64))
                for split, (images, labels) in KEYS.items()
            }
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror or error}): {RESTORE}") from None
    except Exception:  # a damaged zip file fails in a dozen ways, and the cure is always the same
        raise InputError(f"{path} is damaged: {RESTORE}") from None
    found = {split: len(examples) for split, examples in splits.items()}
    if found != SAMPLE_EXAMPLES:
        raise InputError(f"{path} holds {found}, not the sample's {SAMPLE_EXAMPLES}: {RESTORE}")
    return ImageData(
        name=facts.name,
        source=f"bundled sample (TFDS {TFDS_VERSION})",
        full=False,
        train=splits["train"],
        test=splits["test"],
        class_names=facts.class_names,
    )


def verify_bundled(name: str, root: Path = FOLDER) -> ImageData:
    """Read the bundled sample as `load_bundled` does, and compare every byte with its checksum.

    Raises InputError that names the file if it is missing, damaged or not the sample.
    """
    data = load_bundled(name, root)
    if sample_sha256(data) != find_facts(name).sample_sha256:
        path = root / f"{data.name}.npz"
        raise InputError(f"{path} is damaged: its content has the wrong SHA-256: {RESTORE}")
    return data


def sample_sha256(data: ImageData) -> str:
    """Return the SHA-256 of the four arrays of `data`, each as an uncompressed idx file."""
    digest = hashlib.sha256()
    for split in (data.train, data.test):
        digest.update(to_idx_bytes(split.images))
        digest.update(to_idx_bytes(split.labels))
    return digest.hexdigest()


def write_bundled(data: ImageData, folder: Path) -> Path:
    """Write the sample of the full set `data` to `folder/<name>.npz` and return that path.

    The file appears whole or not at all, and depends on the arrays alone. Raises
    InputError if it exists or `folder` cannot be written.
    """
    path = folder.expanduser().absolute() / f"{data.name}.npz"
    if path.exists():
        raise InputError(f"{path} exists already and is not overwritten: remove it first")
    try:
        with replace_atomically(path, mode=0o644) as file, zipfile.ZipFile(file, "w") as archive:
            for split, (images, labels) in KEYS.items():
                sample = getattr(data, split).take(SAMPLE_EXAMPLES[split])
                _add_array(archive, images, sample.images)
                _add_array(archive, labels, sample.labels.astype(np.uint8))
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror}") from None
    return path


def _add_array(archive: zipfile.ZipFile, key: str, array: np.ndarray) -> None:
    content = io.BytesIO()
    np.lib.format.write_array(content, array, allow_pickle=False)
    entry = zipfile.ZipInfo(f"{key}.npy", ZIP_TIME)
    archive.writestr(entry, content.getvalue(), zipfile.ZIP_DEFLATED, compresslevel=9)
