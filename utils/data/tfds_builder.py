"""The TFDS builder that prepares arrays in memory. Imports tensorflow_datasets: import it late.

The form on disk (features, names, version) is the same as in TFDS's own `mnist` and
`fashion_mnist`, except that examples stay in the order of the original. TFDS wants its builders in
an importable module.
"""

from collections.abc import Iterator
from typing import Any

import tensorflow_datasets as tfds

from .catalog import CLASSES, FASHION_MNIST, IMAGE_SIZE, TFDS_VERSION, find_facts
from .images import ImageData, Split


class ArrayBuilder(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """Prepares the `ImageData` that it is made with; `data_dir` and so on as in TFDS."""

    VERSION = tfds.core.Version(TFDS_VERSION)

    def __init__(self, *, data: ImageData, **options: Any) -> None:
        self._data, self.name = data, data.name
        super().__init__(**options)

    def _info(self) -> tfds.core.DatasetInfo:
        facts = find_facts(self.name)
        names = list(facts.class_names)
        label = {"names": names} if facts is FASHION_MNIST else {"num_classes": CLASSES}
        return tfds.core.DatasetInfo(
            builder=self,
            description=facts.description,
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(IMAGE_SIZE, IMAGE_SIZE, 1)),
                    "label": tfds.features.ClassLabel(**label),
                }
            ),
            supervised_keys=("image", "label"),
            homepage=facts.homepage,
            citation=facts.citation,
            disable_shuffling=True,
        )

    def _split_generators(self, dl_manager: Any) -> dict[str, Iterator[tuple[int, dict]]]:
        return {
            "train": self._generate_examples(self._data.train),
            "test": self._generate_examples(self._data.test),
        }

    def _generate_examples(self, split: Split) -> Iterator[tuple[int, dict]]:
        for number, (image, label) in enumerate(zip(split.images, split.labels, strict=True)):
            yield number, {"image": image[..., None], "label": int(label)}
