"""The prediction explorer: one image beside what each version of a model says of it."""

from collections.abc import Mapping, Sequence

import numpy as np

from distlab.errors import CourseError
from distlab.figures import Picture, draw_prediction
from distlab.widgets.controls import Choice, Slider
from distlab.widgets.explorer import Explorer, explore


def prediction_explorer(
    images: np.ndarray,
    labels: Sequence[int],
    class_names: Sequence[str],
    probabilities: Mapping[str, np.ndarray],
    start: int = 0,
) -> Explorer:
    """Show one of `images` and its class probabilities under a chosen version of the model.

    `images` is [n, height, width] or [n, height, width, 1], `labels` [n]; each
    of `probabilities` is named after its version ("before training") and holds
    [n, classes] from 0 to 1. Starts with image `start` and the last version.
    Raises CourseError where the shapes do not fit.
    """
    check_shapes(images, labels, class_names, probabilities)
    versions = list(probabilities)

    def show(image: int, version: str) -> Picture:
        row = probabilities[version][image]
        title = f"Image {image}, {version}"
        return draw_prediction(images[image], labels[image], class_names, row, title=title)

    return explore(
        show,
        image=Slider("Image", 0, len(images) - 1, start),
        version=Choice("Model", versions, versions[-1]),
    )


def check_shapes(images, labels, class_names, probabilities) -> None:
    """Raise CourseError where images, labels, classes and probabilities do not fit together."""
    if len(images) < 2 or len(labels) != len(images):
        raise CourseError(
            f"predictions: {len(images)} images and {len(labels)} labels: give 2 or more, one each"
        )
    if not probabilities:
        raise CourseError("predictions: no probabilities: give at least one version by name")
    want = (len(images), len(class_names))
    for version, table in probabilities.items():
        if np.shape(table) != want:
            raise CourseError(f"predictions: {version!r} has shape {np.shape(table)}, not {want}")
