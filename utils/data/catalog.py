"""Facts on each data set: classes, sources, sizes, and the bundled sample's checksum."""

from dataclasses import dataclass

from ..errors import InputError

IMAGE_SIZE = 28
CLASSES = 10
TFDS_VERSION = "3.0.1"  # of the data sets' definition in TensorFlow Datasets
FULL_EXAMPLES = {"train": 60_000, "test": 10_000}
SAMPLE_EXAMPLES = {"train": 10_000, "test": 2_000}


@dataclass(frozen=True)
class DataSetFacts:
    """One data set's classes and origin; `sample_sha256` is of the bundled sample's arrays."""

    name: str
    title: str
    class_names: tuple[str, ...]
    homepage: str
    description: str
    citation: str
    sample_sha256: str


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
    sample_sha256="4084017359325b0b158fe7759bc20781f98a81c5bd2d091c099af840dbce1625",
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
    sample_sha256="1e69420d546ce587b9fb07b6d2eafc89ce39cc8c539be4352f4e4eb1fafe84a4",
)

DATA_SETS = {facts.name: facts for facts in (FASHION_MNIST, MNIST)}


def find_facts(name: str) -> DataSetFacts:
    """Return what is known of the data set `name`; "fashion-mnist" is "fashion_mnist" too.

    Raises InputError, which names the data sets that there are.
    """
    facts = DATA_SETS.get(str(name).lower().replace("-", "_"))
    if facts is None:
        raise InputError(f"dataset must be {' or '.join(DATA_SETS)}, got {name!r}.")
    return facts
