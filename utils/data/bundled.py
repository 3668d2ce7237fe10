"""The bundled samples: real data that travels with the code, as plain NumPy arrays.

`bundled/<name>.npz` holds the first 10,000 training and 2,000 test examples of the
original, in order, under the keys of Keras's own `mnist.npz`: `x_train`, `y_train`,
`x_test`, `y_test`, all uint8. `np.load` reads it anywhere. The license of the data is
next to it, as `<name>.LICENSE`.
"""

import hashlib
from pathlib import Path

import numpy as np

from ..errors import InputError
from .catalog import SAMPLE_EXAMPLES, TFDS_VERSION, find_facts
from .images import ImageData, Split

FOLDER = Path(__file__).parent / "bundled"
KEYS = {"train": ("x_train", "y_train"), "test": ("x_test", "y_test")}
RESTORE = "Restore it with git checkout, or install the package again."


def load_bundled(name: str, root: Path = FOLDER) -> ImageData:
    """Read the bundled sample of `name` from `root`: no network, no TensorFlow.

    Raises InputError that names the file if it is missing, damaged or of another size.
    `verify_bundled` also compares the content with the published checksum.
    """
    facts = find_facts(name)
    path = root / f"{facts.name}.npz"
    splits = read_npz(path, RESTORE)
    found = dict(zip(splits, map(len, splits.values())))
    if found != SAMPLE_EXAMPLES:
        raise InputError(f"{path} must hold the sample's {SAMPLE_EXAMPLES}, got {found}. {RESTORE}")
    return ImageData(
        name=facts.name,
        source=f"bundled sample (TFDS {TFDS_VERSION})",
        full=False,
        train=splits["train"],
        test=splits["test"],
        class_names=facts.class_names,
    )


def read_npz(path: Path, advice: str) -> dict[str, Split]:
    """Return the splits "train" and "test" of an .npz file with the keys of Keras's `mnist.npz`.

    Raises InputError, which ends with `advice`, if the file is missing, damaged or lacks a key.
    """
    try:
        found = {}
        with np.load(path, allow_pickle=False) as arrays:
            for split, (images, labels) in KEYS.items():
                found[split] = Split(arrays[images], arrays[labels].astype(np.int64))
        return found
    except OSError as error:
        raise InputError(f"{path} can't be read ({error.strerror or error}). {advice}") from None
    except Exception:  # a damaged zip file fails in a dozen ways, and the fix is always the same
        raise InputError(f"{path} is damaged. {advice}") from None


def verify_bundled(name: str, root: Path = FOLDER) -> ImageData:
    """Read the bundled sample as `load_bundled` does, and compare every byte with its checksum.

    Raises InputError that names the file if it is missing, damaged or not the sample.
    """
    data = load_bundled(name, root)
    if sample_sha256(data) != find_facts(name).sample_sha256:
        path = root / f"{data.name}.npz"
        raise InputError(f"{path} is damaged: its SHA-256 is wrong. {RESTORE}")
    return data


def sample_sha256(data: ImageData) -> str:
    """Return the SHA-256 of the four arrays of `data`: their bytes as uint8, one after another."""
    digest = hashlib.sha256()
    for split in (data.train, data.test):
        digest.update(split.images.tobytes())
        digest.update(split.labels.astype(np.uint8).tobytes())
    return digest.hexdigest()
