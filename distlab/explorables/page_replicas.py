"""The replicas of lesson 00 for a page without a kernel: 600 images, and a recording as the still.

The browser trains on them itself (`browser/replicas.js`).
"""

import base64
import gzip
import html
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from distlab.explorables.explorable import write_fragment
from utils.data.images import ImageData

RECORDING = Path(__file__).parents[1] / "lessons" / "two_replicas.svg"
EACH_CLASS, TEST_IMAGES = 60, 100
LABEL = "Replicas that train"
OPTIONS = {"replicas": 2, "broken": False, "running": True, "again": 0, "seen": False}


def write_page_replicas(data: ImageData, source: str) -> str:
    """Return the replicas as HTML for a page: they train in the browser, without a kernel.

    `source` is the address of the recording, which stands there until the script runs.
    """
    shown = {"label": LABEL, "images": pack_for_page(data)}
    still = f'<img src="{source}" alt="{html.escape(read_alt())}">'
    return write_fragment("replicas", shown, OPTIONS, still)


def read_alt() -> str:
    """Return what the recording shows, in words."""
    return ElementTree.parse(RECORDING).getroot().get("aria-label")


def pack_for_page(data: ImageData) -> dict[str, Any]:
    """Return the images for a page's training: 60 of each class, and 100 to test on."""
    labels = data.train.labels
    first = [np.flatnonzero(labels == c)[:EACH_CLASS] for c in range(len(data.class_names))]
    places = np.concatenate(first)
    return {
        "train": pack_images(data.train.images[places], labels[places]),
        "test": pack_images(data.test.images[:TEST_IMAGES], data.test.labels[:TEST_IMAGES]),
        "names": list(data.class_names),
    }


def pack_images(images: np.ndarray, labels: np.ndarray) -> str:
    """Return images [n, 28, 28] uint8 and labels [n] as base64 of gzip.

    Each image is a byte for its label, then two pixels of 16 grays a byte.
    """
    grays = np.round(images.reshape(len(images), -1) / 17).astype(np.uint8)
    pixels = grays[:, ::2] << 4 | grays[:, 1::2]
    rows = np.concatenate([labels.astype(np.uint8)[:, None], pixels], axis=1)
    return base64.b64encode(gzip.compress(rows.tobytes(), 9, mtime=0)).decode("ascii")
