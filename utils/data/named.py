"""Any data set that training knows by name."""

import os

from .images import ImageData
from .loading import load
from .scenes import load_scenes


def open_data(
    name: str, full: bool = False, folder: str | os.PathLike[str] | None = None
) -> ImageData:
    """Return the data set `name`: "fashion-scenes", or one that `load` knows.

    Raises InputError for any other name, as `load` does.
    """
    if name == "fashion-scenes":
        return load_scenes(full=full, folder=folder)
    return load(name, full=full, folder=folder)
