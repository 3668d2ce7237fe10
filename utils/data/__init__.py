"""Real image data that needs no network: `load("fashion_mnist")` and `load("mnist")`."""

from .bundled import builder
from .images import ImageData, Split
from .loading import load

__all__ = ["ImageData", "Split", "builder", "load"]
