"""The pictures of README's gallery: what the capstone's full run drew, as PNG files.

distlab build 22 --force                     # runs the lesson, which leaves its pictures
python -m distlab.lessons.capstone_gallery   # copies them to notebooks/pictures
"""

import shutil
import sys
from pathlib import Path

from distlab.errors import CourseError
from distlab.figures import Picture

ROOT = Path(__file__).parents[2]
LEFT = ROOT / "notebooks" / "runs" / "lesson22" / "pictures"
GALLERY = ROOT / "notebooks" / "pictures"


def save_pictures(folder: Path, **pictures: Picture) -> None:
    """Write each picture to `folder`/capstone-NAME.png, on opaque white."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, picture in pictures.items():
        (folder / f"capstone-{name}.png").write_bytes(picture.png())


def copy_pictures() -> list[Path]:
    """Copy what a run left to the gallery and return the copies.

    Raises CourseError where no run has left any.
    """
    found = sorted(LEFT.glob("capstone-*.png"))
    if not found:
        raise CourseError(f"{LEFT} has no pictures. Run distlab build 22 --force first.")
    GALLERY.mkdir(exist_ok=True)
    return [Path(shutil.copy(path, GALLERY)) for path in found]


if __name__ == "__main__":
    try:
        print("\n".join(str(path.relative_to(ROOT)) for path in copy_pictures()))
    except CourseError as error:
        sys.exit(f"capstone_gallery: {error}")
