"""Real image data that needs no network: `load("fashion_mnist")` and `load("mnist")`.

`load_scenes()` draws pictures of several garments, with masks, from the former;
`open_data(name)` gives any of the three.
"""

from .images import ImageData, Split
from .loading import load
from .named import open_data
from .scenes import SceneData, SceneSplit, load_scenes
from .shares import split_batch
from .tfds_folder import make_tfds_folder

__all__ = [
    "SceneData", "SceneSplit", "ImageData", "Split", "load", "load_scenes", "make_tfds_folder",
    "open_data", "split_batch",
]  # fmt: skip
