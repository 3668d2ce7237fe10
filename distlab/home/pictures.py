"""A small picture for each lesson, `lesson_pictures/NN.svg`: 240 by 120 units.

The page's style sheet colors its shapes by class, in the theme's colors: `c1` to
`c6` fill, `l1` to `l6` draw a line, `t1` to `t6` tint. One is forward, two backward, three
all-reduce, four variables, five data, as in `distlab.figures.palette`. What has the class `go`
moves when the tile is pointed at. The `aria-label` says in words what the picture shows.
"""

from pathlib import Path

FOLDER = Path(__file__).parent / "lesson_pictures"


def read_picture(lesson: str) -> str:
    """Return the picture of a lesson ("05") as one `<svg>` element; a general one without it."""
    path = FOLDER / f"{lesson}.svg"
    return (path if path.exists() else FOLDER / "other.svg").read_text(encoding="utf-8").strip()
