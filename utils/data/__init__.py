"""Real image data that needs no network: `load("fashion_mnist")` and `load("mnist")`."""

from utils.data.bundled import builder
from utils.data.images import ImageData, Split
from utils.data.loading import load

__all__ = ["ImageData", "Split", "builder", "load"]
