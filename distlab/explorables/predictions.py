"""The prediction explorer: images from the surest right answer to the surest wrong one."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

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
from utils.measure import count

TOP_PX, IMAGE_PX, ROW_PX, BAR_PX, STRIP_PX = 38.0, 224.0, 24.0, 16.0, 120.0
MAX_PLACES = 99  # where the slider stops on a page without a kernel, about


def prediction_explorer(
    images: np.ndarray,
    labels: Sequence[int],
    class_names: Sequence[str],
    probabilities: Mapping[str, np.ndarray],
    start: int = 0,
) -> Explorer:
    """Show one of `images` and its class probabilities under a chosen version of the model.

    The images are in the order of the last version: from the surest right answer to the surest
    wrong one.
    `images` is [n, height, width] or [n, height, width, 1], `labels` [n]; each
    of `probabilities` is named after its version ("before training") and holds
    [n, classes] from 0 to 1. Starts with image `start` and the last version.
    Raises CourseError where the shapes don't fit, or `start` is no image's place.
    """
    check_shapes(images, labels, class_names, probabilities)
    if not 0 <= start < len(images):
        raise CourseError(f"start must be from 0 to {len(images) - 1}, got {start}.")
    versions = list(probabilities)
    found = {version: _sign_shares(table, labels) for version, table in probabilities.items()}
    order = np.argsort(-found[versions[-1]], kind="stable")  # from the surest right answer on

    def show(place: int, version: str) -> list[Picture]:
        image = order[place]
        row = probabilities[version][image]
        title = f"Image {image}, {version}"
        shown = draw_prediction(images[image], labels[image], class_names, row, title=title)
        says = shown.alt.removeprefix(f"{title}. ")
        return [_draw_strip(found[version][order], place, version), replace(shown, caption=says)]

    last, begin = len(order) - 1, int(np.flatnonzero(order == start)[0])
    wrong = int((found[versions[-1]] > 0).sum())  # the place of the first wrong answer
    grid = {*range(0, last, max(1, last // MAX_PLACES)), last, begin, min(wrong, last)}
    return explore(
        show,
        tries=_list_tries({v: each[order] for v, each in found.items()}, wrong),
        place=Slider("From surest right to surest wrong", 0, last, begin, grid=sorted(grid)),
        version=Choice("Model", versions, versions[-1]),
    )


def _sign_shares(table: np.ndarray, labels: Sequence[int]) -> np.ndarray:
    """Return the share of each image's answer in percent: below 0 for a wrong one."""
    right = np.argmax(table, axis=1) == np.asarray(labels)
    return np.round(100 * np.max(table, axis=1)) * np.where(right, 1, -1)


def _list_tries(found: Mapping[str, np.ndarray], wrong: int) -> list[Try]:
    """Return the questions; `found` has each version's signed shares in the explorer's order."""
    versions = list(found)
    before, after = (found[versions[k]] for k in (0, -1))
    most, start = len(after), {"place": 0, "version": versions[-1]}
    if not 0 < wrong < most:
        return []
    sure = int((after <= -50).sum())
    proves = ", so being sure proves nothing" if sure else ": here it was never sure and wrong"
    tries = [
        Try(
            "Drag to the right end. Is the model unsure when it's wrong?",
            start,
            {"place": most - 1},
            f"It gives its surest wrong answer {-after[-1]:.0f} %. Of "
            f"{count(most - wrong, 'wrong answer')}, {sure or 'none'} got 50 % or more{proves}.",
        ),
        Try(
            "Where does it first go wrong?",
            start,
            {"place": [wrong]},
            f"At {wrong}, after as many right answers. Its least sure right answer has "
            f"{after[wrong - 1]:.0f} %, and its least sure wrong one {-after[wrong]:.0f} %.",
        ),
    ]
    if len(versions) > 1:
        tries.append(
            Try(
                f"The same images {versions[0]}: is nothing lost by training?",
                start,
                {"version": versions[0]},
                f"{(before > 0).sum()} of {most} were right, with {before.max():.0f} % at most. "
                f"{((before > 0) & (after <= 0)).sum()} of these are wrong {versions[-1]}.",
            )
        )
    return tries


def _draw_strip(shares: np.ndarray, place: int, version: str) -> Picture:
    """Draw the share of every image's answer, upwards if it's right; `place` is marked."""
    shown = f"{abs(shares[place]):.0f} % and {'right' if shares[place] > 0 else 'wrong'}"
    title = f"How sure the model is of each of {len(shares)} images, {version}"
    alt = f"{title}: {(shares > 0).sum()} right, upwards, and {(shares <= 0).sum()} wrong, "
    alt += f"downwards. The marked answer is {shown}."

    def paint(sheet: Sheet) -> None:
        wide, middle = WIDTH_PX / len(shares), TOP_PX + STRIP_PX / 2
        for k, share in enumerate(shares):
            color, tall = (BLUE, share) if share > 0 else (VERMILION, -share)
            tall *= STRIP_PX / 200
            top = middle - tall if share > 0 else middle
            sheet.rectangle(k * wide, top, wide * 0.8, tall, color, 1 if k == place else 0.45)
        sheet.line([0, WIDTH_PX], [middle, middle])

    told = " ".join(f"{share:.0f}" for share in shares)  # one string for all frames of a version
    chart = {"kind": "strip", "shares": told, "at": place}
    height_px = TOP_PX + STRIP_PX + 8
    return draw_sheet(paint, title=title, alt=alt, height_px=height_px, chart=chart)


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
