"""`distlab update`: get the newest version of the course and keep what a learner wrote."""

import argparse
import os
import subprocess
from pathlib import Path

from distlab import copies, progress
from distlab.cli.parser import Commands, add_command
from distlab.errors import CourseError

GIT_SECONDS = 300
UNPACK = """\
This folder isn't a git clone, so download and unpack the newer version yourself:
unpack it over this folder. Your work/ and .distlab/ aren't part of it and stay as they are."""


def add_parser(subparsers: Commands) -> None:
    add_command(
        subparsers,
        "update",
        run,
        "get the newest version of the course",
        "Pull the newest version with git, or say how to unpack it. Your copies in work/, your "
        "progress and your answers stay. Lessons and labs that you changed in place are moved "
        "to work/ first, so nothing conflicts.",
    )


def run(arguments: argparse.Namespace) -> int:
    """Update the course around the current folder and list the copies that are older now."""
    course = progress.require_course()
    if (course / ".git").exists():
        if not _run_git(course, "branch", "--show-current"):
            raise CourseError("This clone must be on a branch to update. Run: git switch main")
        for name in _list_edited(course):
            print(f"{name} was changed in place; your version is {_move(course, name)} now")
        print(_run_git(course, "pull", "--ff-only").strip())
        print("`make lab` installs what the new version needs.")
    else:
        print(UNPACK)
    names = sorted(path.name for path in (course / copies.FOLDER).glob("*.ipynb"))
    for name in names:
        if copies.is_outdated(course, name):
            print(
                f"newer  {name}: your copy stays until you press Start over in JupyterLab, or "
                f"run `distlab reset work/{name}`"
            )
    return 0


def _list_edited(course: Path) -> list[str]:
    """Return the committed lessons and labs that differ from their commit."""
    found = _run_git(course, "diff", "--name-only", "-z", "HEAD", "--", *copies.ORIGINALS)
    return [name for name in found.split("\0") if name.endswith(".ipynb")]


def _move(course: Path, name: str) -> str:
    """Move a notebook changed in place to the copies, and restore the original."""
    path, copy = course / name, course / copies.FOLDER / Path(name).name
    moved = path.is_file() and not copy.exists()
    if not path.is_file():  # deleted
        place = copy
    elif copy.exists():
        place = copies.keep(course, path)
    else:
        copy.parent.mkdir(exist_ok=True)
        place = path.rename(copy)
    _run_git(course, "checkout", "HEAD", "--", name)
    if moved:
        copies.note_origin(course, path)
    return place.relative_to(course).as_posix()


def _run_git(course: Path, *words: str) -> str:
    """Return what git prints. Raises CourseError with its reason if it fails."""
    try:
        done = subprocess.run(
            ["git", *words],
            cwd=course,
            capture_output=True,
            text=True,
            timeout=GIT_SECONDS,
            check=False,
            env={**os.environ, "LC_ALL": "C"},  # its words are read below
        )
    except FileNotFoundError:
        raise CourseError("Updating this clone needs git. Install it, then try again.") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CourseError(f"git {words[0]} failed: {error}") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        at = next((k for k, x in enumerate(lines) if x.startswith(("fatal:", "error:"))), 0)
        said = " ".join(line.strip() for line in lines[at : at + 1 + lines[at].endswith(":")])
        if "fast-forward" in said:
            said += " You have your own commits here. Run: git pull --rebase"
        elif "overwritten" in said:
            said += " Run: git stash -u, then distlab update, then git stash pop"
        raise CourseError(f"git {words[0]} failed: {said}")
    return done.stdout
