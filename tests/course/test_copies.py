"""Learners' copies in `work/`: made at the first opening, followed, kept, and left by updates."""

import asyncio
import json
import subprocess
from pathlib import Path

import pytest

from distlab import copies
from distlab.cli import main
from distlab.errors import CourseError
from distlab.home.page import make_page
from distlab.notebook_files import NotebookFiles

LESSON = "05-loss-scaling.ipynb"


def write(course: Path, name: str, text: str) -> Path:
    """Write a notebook with one cell."""
    path = course / name
    path.parent.mkdir(parents=True, exist_ok=True)
    cell = {"cell_type": "markdown", "id": "a", "metadata": {}, "source": f"# Title\n\n{text}"}
    path.write_text(
        json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    )
    return path


@pytest.fixture
def course(tmp_path: Path) -> Path:
    (tmp_path / "README.md").write_text("# The course\n")
    write(tmp_path, "labs/lab05-loss-scaling.ipynb", "lab")
    write(tmp_path, f"notebooks/{LESSON}", "old")
    return tmp_path


def test_a_copy_is_made_at_the_first_opening_and_the_original_stays(course: Path) -> None:
    files = NotebookFiles(root_dir=str(course))
    assert not asyncio.run(files.file_exists("work/mine.ipynb"))
    model = asyncio.run(files.get(f"work/{LESSON}"))
    original = (course / "notebooks" / LESSON).read_text()
    assert (course / "work" / LESSON).read_text() == original
    model["content"]["cells"][0]["source"] = "mine"
    asyncio.run(files.save(model, f"work/{LESSON}"))
    assert (course / "notebooks" / LESSON).read_text() == original
    opened = asyncio.run(files.get(f"work/{LESSON}"))
    assert opened["content"]["cells"][0]["source"] == "mine"
    assert asyncio.run(files.file_exists("work/lab05-loss-scaling.ipynb"))


def test_a_newer_original_is_followed_or_named_and_start_over_brings_it(course: Path) -> None:
    copy = copies.open_copy(course, LESSON)
    write(course, f"notebooks/{LESSON}", "newer")
    assert copies.open_copy(course, LESSON) == copy and "newer" in copy.read_text()
    copy.write_text(copy.read_text().replace("newer", "mine"))
    assert not copies.is_outdated(course, LESSON)
    newest = write(course, f"notebooks/{LESSON}", "newest").read_text()
    copies.open_copy(course, LESSON)
    assert copies.is_outdated(course, LESSON) and "mine" in copy.read_text()
    assert "newer version" in make_page(course)
    kept = copies.start_over(course, LESSON)
    assert "mine" in kept.read_text() and copy.read_text() == newest
    assert not copies.is_outdated(course, LESSON) and "newer version" not in make_page(course)


def test_only_notebooks_of_the_course_are_copied(course: Path) -> None:
    for name in ("mine.ipynb", "README.md", "../README.md", ""):
        assert copies.open_copy(course, name) is None
    with pytest.raises(CourseError, match="isn't there"):
        copies.start_over(course, LESSON)
    (course / ".distlab").mkdir()
    (course / copies.FILE).write_text("damaged")
    assert copies.open_copy(course, LESSON).is_file()


def git(folder: Path, *words: str) -> str:
    line = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *words]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=240, check=True)
    return done.stdout


def test_update_over_a_used_clone_keeps_what_was_written(
    course: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch, capsys
) -> None:
    (course / ".gitignore").write_text(".distlab/\n/work/\n")
    git(course, "init", "-q")
    git(course, "add", ".")
    git(course, "commit", "-qm", "One")
    clone = tmp_path_factory.mktemp("clones") / "used"
    git(course, "clone", "-q", str(course), str(clone))
    copy = copies.open_copy(clone, LESSON)
    copy.write_text(copy.read_text().replace("old", "mine"))
    write(clone, "labs/lab05-loss-scaling.ipynb", "answered in place")
    newer = write(course, f"notebooks/{LESSON}", "newer").read_text()
    write(course, "labs/lab05-loss-scaling.ipynb", "newer lab")
    git(course, "commit", "-qam", "Two")
    monkeypatch.chdir(clone / "labs")
    assert main(["update"]) == 0
    said = capsys.readouterr().out
    assert (clone / "notebooks" / LESSON).read_text() == newer and "mine" in copy.read_text()
    assert "newer lab" in (clone / "labs" / "lab05-loss-scaling.ipynb").read_text()
    assert "answered in place" in (clone / "work" / "lab05-loss-scaling.ipynb").read_text()
    assert f"newer  {LESSON}" in said and "newer  lab05-loss-scaling.ipynb" in said
    assert git(clone, "status", "--porcelain") == ""
    assert main(["update"]) == 0, "a second time"
    (clone / ".gitignore").write_text("mine\n")
    (course / ".gitignore").write_text("theirs\n")
    git(course, "commit", "-qam", "Three")
    assert main(["update"]) == 2
    assert "overwritten by merge: .gitignore Run: git stash -u" in capsys.readouterr().err
    git(clone, "commit", "-qam", "Mine")
    assert main(["update"]) == 2 and "Run: git pull --rebase" in capsys.readouterr().err
    git(clone, "checkout", "-q", "--detach")
    assert main(["update"]) == 2 and "Run: git switch main" in capsys.readouterr().err
    monkeypatch.setenv("PATH", "")
    assert main(["update"]) == 2 and "needs git. Install it" in capsys.readouterr().err


def test_update_says_what_to_do_without_git_and_what_git_says(course: Path, monkeypatch, capsys):
    monkeypatch.chdir(course)
    assert main(["update"]) == 0 and "unpack" in capsys.readouterr().out
    git(course, "init", "-q")
    assert main(["update"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
