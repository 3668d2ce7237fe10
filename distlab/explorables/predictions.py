"""The prediction explorer: one image and each model version's prediction for it."""

from collections.abc import Mapping, Sequence

import numpy as np

from distlab.errors import CourseError
from distlab.explorables.controls import Choice, Slider
from distlab.explorables.explorer import Explorer, Try, explore
from distlab.figures import Picture
from distlab.figures.canvas import (
    BLUE,
    SMALL_PX,
    VERMILION,
    WIDTH_PX,
    Sheet,
    draw_sheet,
    text_width_px,
)
from distlab.figures.grids import encode_png
from distlab.figures.picture import INK

TOP_PX, IMAGE_PX, ROW_PX, BAR_PX = 38.0, 224.0, 24.0, 16.0


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
    Raises CourseError where the shapes don't fit.
    """
    check_shapes(images, labels, class_names, probabilities)
    versions = list(probabilities)

    def show(image: int, version: str) -> Picture:
        row = probabilities[version][image]
        title = f"Image {image}, {version}"
        return draw_prediction(images[image], labels[image], class_names, row, title=title)

    sure = [100 * float(probabilities[v][start][labels[start]]) for v in versions]
    asked = Try(
        f"What did the model say {versions[0]}?",
        {"image": start, "version": versions[-1]},
        {"version": versions[0]},
        f"It gave this image's own class {sure[0]:.0f} %, and {versions[-1]} {sure[-1]:.0f} %.",
    )
    return explore(
        show,
        tries=[asked] if len(versions) > 1 else [],
        image=Slider("Image", 0, len(images) - 1, start),
        version=Choice("Model", versions, versions[-1]),
    )


def check_shapes(images, labels, class_names, probabilities) -> None:
    """Raise CourseError where images, labels, classes and probabilities don't fit together."""
    if len(images) < 2 or len(labels) != len(images):
        raise CourseError(
            "predictions must have 2 or more images and a label for each, got "
            f"{len(images)} images and {len(labels)} labels."
        )
    if not probabilities:
        raise CourseError("probabilities must have at least one version by name, got none.")
    want = (len(images), len(class_names))
    for version, table in probabilities.items():
        if np.shape(table) != want:
            shape = np.shape(table)
            raise CourseError(f"probabilities[{version!r}] must have shape {want}, got {shape}.")


def draw_prediction(
    image: np.ndarray,
    label: int,
    class_names: Sequence[str],
    probabilities: np.ndarray,
    *,
    title: str,
) -> Picture:
    """Draw `image` [height, width] or [height, width, 1] next to a bar for each class.

    The largest of `probabilities` [classes] is the model's answer: its bar is
    vermilion and hatched where it is wrong; the true class has its name in bold.
    """
    answer = int(np.argmax(probabilities))

    def paint(sheet: Sheet) -> None:
        _draw_image(sheet, np.asarray(image).reshape(np.shape(image)[:2]))
        left = IMAGE_PX + 40 + max(text_width_px(name, weight="bold") for name in class_names)
        for place, (name, value) in enumerate(zip(class_names, probabilities, strict=True)):
            wrong = place == answer != label
            _draw_row(sheet, TOP_PX + place * ROW_PX, left, name, value, place == label, wrong)

    percent = f"{100 * float(probabilities[answer]):.0f} %"
    verdict = "right" if answer == label else f"wrong: it is {class_names[label]}"
    alt = f"{title}. The model says {class_names[answer]} with {percent}, which is {verdict}."
    height_px = TOP_PX + max(IMAGE_PX, len(class_names) * ROW_PX) + 10
    shares = zip(class_names, probabilities, strict=True)
    bars = [[name, round(100 * float(share))] for name, share in shares]
    wrong = class_names[answer] if answer != label else ""
    chart = {
        "kind": "bars",
        "unit": "%",
        "groups": [["", bars]],
        "most": 100,
        "bold": class_names[label],
        "wrong": wrong,
        "image": encode_png(image),
    }
    return draw_sheet(paint, title=title, alt=alt, height_px=height_px, chart=chart)


def _draw_image(sheet: Sheet, image: np.ndarray) -> None:
    place = (0, IMAGE_PX, TOP_PX + IMAGE_PX, TOP_PX)
    sheet.axes.imshow(image, cmap="gray", extent=place, interpolation="none", aspect="auto")
    sheet.rectangle(0, TOP_PX, IMAGE_PX, IMAGE_PX, INK, facecolor="none", alpha=0.35)


def _draw_row(sheet: Sheet, y, left: float, name: str, value: float, true: bool, wrong) -> None:
    color, hatch = (VERMILION, "////") if wrong else (BLUE, None)
    wide = (WIDTH_PX - left - 64) * float(value)
    weight = "bold" if true else "normal"
    middle = y + ROW_PX / 2
    sheet.write(left - 10, middle, name, "right", weight=weight)
    place = (left, middle - BAR_PX / 2, wide, BAR_PX)
    sheet.rectangle(*place, color, 0.55, linewidth=1.2, hatch=hatch)
    says = f"{100 * float(value):.0f} %"
    sheet.write(left + wide + 6, middle, says, "left", SMALL_PX, weight=weight)
