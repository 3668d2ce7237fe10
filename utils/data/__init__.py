"""Real image data that needs no network: `load("fashion_mnist")` and `load("mnist")`.

`load_canvases()` draws pictures of several garments, with masks, from the former;
`open_data(name)` gives any of the three.
"""

from .canvases import CanvasData, CanvasSplit, load_canvases
from .images import ImageData, Split
from .loading import load
from .named import open_data
from .shares import split_batch
from .tfds_folder import make_tfds_folder

__all__ = [
    "CanvasData", "CanvasSplit", "ImageData", "Split", "load", "load_canvases", "make_tfds_folder",
    "open_data", "split_batch",
]  # fmt: skip
