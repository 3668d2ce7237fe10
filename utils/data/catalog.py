"""What is known of each data set: classes, original files, their checksums, sources.

The checksums are the SHA-256 of the four original idx files, uncompressed, as
they are published for both data sets. An array has such a checksum wherever it
was read from (`utils.data.idx.content_sha256`), so one table checks idx files,
TFDS folders and downloads alike.
"""

from dataclasses import dataclass
from pathlib import Path

from ..errors import InputError

IMAGE_SIZE = 28
CLASSES = 10
TFDS_VERSION = "3.0.1"  # of the data sets' definition in TensorFlow Datasets
FULL_EXAMPLES = {"train": 60_000, "test": 10_000}
SAMPLE_EXAMPLES = {"train": 10_000, "test": 2_000}
IDX_FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}


@dataclass(frozen=True)
class DataSetFacts:
    """One data set's classes, origin and full content.

    `sha256[split]` holds two checksums, of the images and of the labels, each
    of the uncompressed idx file; `sample_sha256` is the bundled sample's
    (`utils.data.bundled.sample_sha256`). `idx_folder` is where a system package
    puts the four files, None if there is no such package.
    """

    name: str
    title: str
    class_names: tuple[str, ...]
    homepage: str
    description: str
    citation: str
    sha256: dict[str, tuple[str, str]]
    sample_sha256: str
    idx_folder: Path | None = None
    idx_package: str | None = None


FASHION_MNIST = DataSetFacts(
    name="fashion_mnist",
    title="Fashion-MNIST",
    class_names=(
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    ),
    homepage="https://github.com/zalandoresearch/fashion-mnist",
    description="Gray-scale pictures, 28 by 28 pixels, of ten kinds of clothing.",
    citation=(
        "Han Xiao, Kashif Rasul and Roland Vollgraf: Fashion-MNIST, a Novel Image Dataset for "
        "Benchmarking Machine Learning Algorithms, arXiv:1708.07747, 2017"
    ),
    sha256={
        "train": (
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        ),
        "test": (
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
    },
    sample_sha256="05abb8a75047c2246d827656a52e382ab19d4fad7ac80c529b12bfb09bfc3bc1",
    idx_folder=Path("/usr/share/datasets/fashion-mnist"),
    idx_package="dataset-fashion-mnist",
)

MNIST = DataSetFacts(
    name="mnist",
    title="MNIST",
    class_names=tuple("0123456789"),
    homepage="http://yann.lecun.com/exdb/mnist/",
    description="Gray-scale pictures, 28 by 28 pixels, of handwritten digits.",
    citation=(
        "Yann LeCun, Corinna Cortes and Christopher J. C. Burges: The MNIST database of "
        "handwritten digits"
    ),
    sha256={
        "train": (
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        ),
        "test": (
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
    },
    sample_sha256="eaf71cf55b51e1dd7f24a41425ce60ed055550699bec7fe9dfb302ec1d9a362a",
)

DATA_SETS = {facts.name: facts for facts in (FASHION_MNIST, MNIST)}


def find_facts(name: str) -> DataSetFacts:
    """Return what is known of the data set `name`; "fashion-mnist" is "fashion_mnist" too.

    Raises InputError, which names the data sets that there are.
    """
    facts = DATA_SETS.get(str(name).lower().replace("-", "_"))
    if facts is None:
        raise InputError(f"no data set is called {name!r}: choose {' or '.join(DATA_SETS)}")
    return facts
