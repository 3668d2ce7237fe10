"""Real image data that needs no network: `load("fashion_mnist")` and `load("mnist")`."""

from .images import ImageData, Split
from .loading import load
from .tfds_folder import make_tfds_folder

__all__ = ["ImageData", "Split", "load", "make_tfds_folder"]
