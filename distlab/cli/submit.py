"""`distlab submit`: check a lab and pack what is to be handed in."""

import argparse
import getpass
import re
import zipfile
from datetime import UTC, datetime
from pathlib import Path

from distlab.cli.check import check_notebook, find_lab
from distlab.cli.long_command import say_waiting
from distlab.cli.parser import Commands
from distlab.errors import CourseError

PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


def add_parser(subparsers: Commands) -> None:
    parser = subparsers.add_parser("submit", help="check a lab and pack what is to be handed in")
    parser.add_argument("lab", help="lab05, 05, or a notebook's path")
    parser.add_argument("--name", help="what your teacher knows you by (your login name)")
    parser.add_argument("--out", type=Path, default=Path("handed-in"), help="where to put the zip")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Check the lab, say what is missing, and pack the notebook; return 0."""
    path = find_lab(arguments.lab)
    name = arguments.name or _login_name()
    if not PLAIN_NAME.fullmatch(name):
        raise CourseError(
            f"--name {name!r}: letters, digits, '.', '-' and '_' only, as your teacher knows you"
        )
    with say_waiting(f"distlab submit: running {path.name}"):
        results = check_notebook(path)
    right = sum(result["passed"] for result in results)
    for result in results:
        if not result["passed"]:
            print(f"not yet  {result['id']}: {result['said']}")
    print(f"{right} of {len(results)} checks pass")
    packed = pack(path, name, arguments.out)
    print(f"hand in: {packed}")
    return 0


def _login_name() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        raise CourseError("who are you? Give --name") from None


def pack(path: Path, name: str, folder: Path) -> Path:
    """Zip the notebook as STUDENT/LAB/LAB.ipynb, with the time, and return the zip's path.

    Nothing that is there is overwritten: each zip's name has its time.
    """
    now = datetime.now(UTC)
    folder.mkdir(parents=True, exist_ok=True)
    packed = folder / f"{path.stem}_{name}_{now:%Y%m%d-%H%M%S}.zip"
    with zipfile.ZipFile(packed, "x", zipfile.ZIP_DEFLATED) as archive:
        archive.write(path, f"{name}/{path.stem}/{path.name}")
        archive.writestr(f"{name}/{path.stem}/timestamp.txt", f"{now:%Y-%m-%d %H:%M:%S} UTC\n")
    return packed
