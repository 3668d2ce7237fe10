"""idx arrays -> a prepared TFDS folder, and the bundled sample from the originals."""

import contextlib
import io
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ..environment import quiet_tensorflow
from ..errors import InputError
from .bundled import CHECKSUMS_FILE, describe_content, describe_files
from .catalogue import SAMPLE_EXAMPLES, TFDS_VERSION, find_facts
from .idx import content_sha256
from .images import ImageData
from .prepared import read_prepared


def prepare(data: ImageData, folder: Path) -> Path:
    """Write `data` as a prepared TFDS folder `folder/<name>/3.0.1` and return that.

    Follows `tfds.core.GeneratorBasedBuilder`: PNG images in TFRecord, in the
    order of `data`. Written beside its place, read back, compared, then renamed,
    so that it appears whole or not at all. Raises InputError if it exists.
    """
    target = folder.expanduser().absolute() / data.name / TFDS_VERSION
    with replace_nothing(target) as partial:
        written = _write(data, partial)
        splits = read_prepared(written, find_facts(data.name))
        for name, original in (("train", data.train), ("test", data.test)):
            same = content_sha256(splits[name].images) == content_sha256(original.images)
            if not same or list(splits[name].labels) != list(original.labels):
                raise InputError(f"{target}: the {name} examples do not read back as written")
        move_into_place(written, target)
    return target


def prepare_sample(data: ImageData, folder: Path) -> Path:
    """Write the sample that the course bundles to `folder/<name>` and return that.

    `data` is the full set; its first 10,000 training and 2,000 test examples are
    taken. Adds `checksums.json`. Raises InputError if the folder exists.
    """
    target = folder.expanduser().absolute() / data.name
    sample = ImageData(
        name=data.name,
        source=data.source,
        full=False,
        train=data.train.take(SAMPLE_EXAMPLES["train"]),
        test=data.test.take(SAMPLE_EXAMPLES["test"]),
        class_names=data.class_names,
    )
    with replace_nothing(target) as partial:
        prepared = prepare(sample, partial)
        checksums = {
            "content": describe_content({"train": sample.train, "test": sample.test}),
            "files": describe_files(prepared),
        }
        text = json.dumps(checksums, indent=2) + "\n"
        (prepared.parent / CHECKSUMS_FILE).write_text(text, encoding="utf-8")
        move_into_place(prepared.parent, target)
    return target


@contextlib.contextmanager
def replace_nothing(target: Path) -> Iterator[Path]:
    """Give a temporary folder on `target`'s disk, removed at the end whatever happens.

    Raises InputError if `target` exists, or if its parent cannot be written.
    """
    if target.exists():
        raise InputError(f"{target} exists already and is not overwritten: remove it first")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent)
    except OSError as error:
        raise InputError(f"{target.parent} cannot be written: {error.strerror}") from None
    try:
        yield Path(partial)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def move_into_place(written: Path, target: Path) -> None:
    """Rename the folder `written` to `target`; InputError if `target` has come to exist."""
    try:
        os.rename(written, target)
    except OSError as error:
        raise InputError(f"{target} could not be put in place: {error.strerror}") from None


def _write(data: ImageData, folder: Path) -> Path:
    """Let TFDS write `data` below `folder`; return the version's folder."""
    with quiet_tensorflow(), contextlib.redirect_stdout(io.StringIO()):  # it names partial folders
        import tensorflow_datasets as tfds

        from .tfds_builder import BUILDERS

        tfds.disable_progress_bar()
        builder = BUILDERS[data.name](data=data, data_dir=folder)
        try:
            builder.download_and_prepare(file_format="tfrecord")
        except OSError as error:
            problem = error.strerror or error
            raise InputError(f"{folder.parent} cannot be written: {problem}") from None
    return Path(builder.data_dir)
