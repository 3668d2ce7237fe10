"""Any data set that training knows by name."""

import os

from .canvases import CanvasData, load_canvases
from .images import ImageData
from .loading import load


def open_data(
    name: str, full: bool = False, folder: str | os.PathLike[str] | None = None
) -> ImageData | CanvasData:
    """Return the data set `name`: "canvases", or one that `load` knows; raises InputError as it."""
    if name == "canvases":
        return load_canvases(full=full, folder=folder)
    return load(name, full=full, folder=folder)
