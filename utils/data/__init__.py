"""Real image data that needs no network: `load("fashion_mnist")` and `load("mnist")`.

`load_scenes()` draws pictures of several garments, with masks, from the former;
`open_data(name)` gives any of the three.

- `batches`: batches for training under any strategy: fixed shapes, uneven ends exact
- `bundled`: the bundled samples: real data that travels with the code, as plain NumPy arrays
- `catalog`: what is known of each data set: classes, sources, sizes, and the bundled sample's
  checksum
- `fetch`: the one place that uses a network, and only when asked: a TFDS download with a time
  limit
- `images`: labeled images in memory, as plain records of NumPy arrays
- `loading`: `load`: the bundled sample, or the full set from where it is found
- `masks`: how good predicted masks are: intersection over union, from one table of counts
- `named`: any data set that training knows by name
- `scenes`: scenes: pictures of one to three garments with a mask that says what each pixel shows
- `shares`: how TensorFlow splits a global batch over replicas
- `tfds_builder`: the TFDS builder that prepares arrays in memory
- `tfds_folder`: prepared TFDS folders: what `tensorflow_datasets` reads and leaves on disk
- `verify`: where each data set is found on this machine, and whether it is what it should be
"""

from .images import ImageData, Split
from .loading import load
from .named import open_data
from .scenes import SceneData, SceneSplit, load_scenes
from .shares import split_batch
from .tfds_folder import make_tfds_folder

__all__ = [
    "SceneData",
    "SceneSplit",
    "ImageData",
    "Split",
    "load",
    "load_scenes",
    "make_tfds_folder",
    "open_data",
    "split_batch",
]
