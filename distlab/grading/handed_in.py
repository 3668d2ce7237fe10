"""The files of a hand-in, listed without trusting one of them: a folder, a zip, or one notebook.

A name is only ever read, never used to write to: what comes out of a zip is kept under
its SHA-256. Links are not followed, nothing but plain files is opened, and a zip is
unpacked with limits of ours, whatever its directory says.
"""

import hashlib
import os
import stat
import struct
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from distlab.errors import CourseError

MAX_NOTEBOOK_BYTES = 200 * 2**20
MAX_ZIP_BYTES = 4 * 2**30  # what one zip may unpack to; a student's own, 400 MiB
MAX_INNER_BYTES = 400 * 2**20
MAX_FOLDERS = 12  # how deep a path may go
MAX_FILES_OF_ONE = 500  # in one student's folder or zip
TIMESTAMP = "timestamp.txt"
_LINK = "a link, which is not followed: hand in the file itself"
_OTHER = "not a notebook"
_SKIPPED = {".ipynb_checkpoints", "__MACOSX", "__pycache__"}
_PIECE = 2**20
_DAMAGE = (
    zipfile.BadZipFile, zlib.error, struct.error, OSError, ValueError, RuntimeError, EOFError
)  # fmt: skip


class TooMuch(Exception):
    """A file that unpacks to more than its limit."""


@dataclass(frozen=True)
class Entry:
    """One file: its name in parts, when it was written, where it can be read, or why not.

    `own_zip` says that it was in a zip within the hand-in: one that a student packed.
    `text` is the content of a timestamp; `other` marks what is no notebook at all.
    """

    parts: tuple[str, ...]
    modified: datetime | None
    path: Path | None = None
    problem: str = ""
    own_zip: bool = False
    text: str = ""
    other: bool = False

    @property
    def name(self) -> str:
        return "/".join(self.parts)


@dataclass
class Listing:
    """Every notebook and timestamp of a hand-in, and notes on what was passed over."""

    keep: Path
    entries: list[Entry] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, entry: Entry) -> None:
        if len(entry.parts) > 1:
            self.counts[entry.parts[0]] += 1
            if self.counts[entry.parts[0]] == MAX_FILES_OF_ONE + 1:
                self.notes.append(
                    f"{entry.parts[0]}: more than {MAX_FILES_OF_ONE} files: the rest passed over"
                )
            if self.counts[entry.parts[0]] > MAX_FILES_OF_ONE:
                return
        self.entries.append(entry)


def list_files(source: Path, keep: Path) -> Listing:
    """Return what lies in `source`: a folder, a zip, or one notebook.

    Notebooks of a zip are unpacked into the folder `keep`, under their SHA-256.
    Raises CourseError where there is nothing to list.
    """
    listing = Listing(keep)
    if (source / "submitted").is_dir():  # an nbgrader course
        source = source / "submitted"
    if source.is_dir():
        _walk(source, (), listing)
    elif not source.is_file():
        raise CourseError(f"{source}: no such folder, zip or notebook")
    elif source.suffix.lower() == ".ipynb":
        listing.add(_read_entry(source, (source.name,)))
    elif zipfile.is_zipfile(source):
        with source.open("rb") as stream:
            _unpack(stream, (), listing, MAX_ZIP_BYTES)
    else:
        raise CourseError(f"{source}: not a folder, a zip or a notebook: unpack it first")
    return listing


def _walk(folder: Path, parts: tuple[str, ...], listing: Listing) -> None:
    try:
        found = sorted(os.scandir(folder), key=lambda item: item.name)
    except OSError as error:
        listing.notes.append(f"{'/'.join(parts) or folder}: cannot be read ({error.strerror})")
        return
    for item in found:
        here = (*parts, item.name)
        if _is_skipped(item.name):
            continue
        if not item.is_dir(follow_symlinks=False) or _is_notebook(item.name):
            _add_file(Path(item.path), here, listing)
        elif len(here) > MAX_FOLDERS:
            listing.notes.append(f"{'/'.join(here)}: folders too deep: passed over")
        else:
            _walk(Path(item.path), here, listing)


def _is_skipped(name: str) -> bool:
    return name.startswith(".") or name in _SKIPPED


def _is_notebook(name: str) -> bool:
    return name.lower().endswith(".ipynb")


def _add_file(path: Path, parts: tuple[str, ...], listing: Listing) -> None:
    name = path.name.lower()
    if not _is_wanted(name):
        link = path.is_symlink()
        listing.add(Entry(parts, None, problem=_LINK if link else _OTHER, other=not link))
        return
    entry = _read_entry(path, parts)
    if entry.path is None or name.endswith(".ipynb"):
        listing.add(entry)
    elif name == TIMESTAMP:
        with closing(open_plain(path)) as stream:
            listing.add(Entry(parts, entry.modified, text=_to_text(stream.read(200))))
    else:
        with closing(open_plain(path)) as stream:
            _unpack(stream, parts, listing, MAX_INNER_BYTES)


def _is_wanted(name: str) -> bool:
    return name.endswith((".ipynb", ".zip")) or name == TIMESTAMP


def _to_text(data: bytes) -> str:
    return data.decode("utf-8", "replace").strip()


def open_plain(path: Path) -> BinaryIO:
    """Open `path` to read; OSError if it is a link or no plain file, even one just put there."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    stream = os.fdopen(os.open(path, flags), "rb")
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise OSError(f"{path}: not a plain file")
    return stream


def _read_entry(path: Path, parts: tuple[str, ...]) -> Entry:
    try:
        found = path.lstat()
        problem = _find_problem(found)
        if not problem:
            open_plain(path).close()
    except OSError as error:
        return Entry(parts, None, problem=f"cannot be read ({error.strerror or error})")
    modified = datetime.fromtimestamp(found.st_mtime, UTC).replace(tzinfo=None)
    return Entry(parts, modified, None if problem else path, problem)


def _find_problem(found: os.stat_result) -> str:
    if stat.S_ISLNK(found.st_mode):
        return _LINK
    if stat.S_ISDIR(found.st_mode):
        return "a folder with a notebook's name"
    if not stat.S_ISREG(found.st_mode):
        return "not a plain file"
    if found.st_size > MAX_NOTEBOOK_BYTES:
        return f"{found.st_size / 2**20:,.0f} MiB: more than {MAX_NOTEBOOK_BYTES // 2**20} MiB"
    return ""


def _unpack(stream: BinaryIO, parts: tuple[str, ...], listing: Listing, most: int) -> None:
    """Add the files of one zip; whatever is wrong with it becomes one entry with a problem."""
    left: list[int] = [most]
    lefts: dict[str, list[int]] = {}
    try:
        with zipfile.ZipFile(stream) as archive:
            items = archive.infolist()
            if parts and len(items) > 2 * MAX_FILES_OF_ONE:
                raise TooMuch(f"holds {len(items):,} files")
            for item in items:
                _unpack_item(archive, item, parts, listing, left, lefts)
    except (*_DAMAGE, TooMuch) as error:
        listing.add(Entry(parts or ("the zip",), None, problem=f"a zip that is not read: {error}"))


def _unpack_item(
    archive: zipfile.ZipFile,
    item: zipfile.ZipInfo,
    parts: tuple[str, ...],
    listing: Listing,
    left: list[int],
    lefts: dict[str, list[int]],
) -> None:
    steps = [s for s in item.filename.replace("\\", "/").split("/") if s not in ("", ".")]
    if item.is_dir() or not steps or any(_is_skipped(s) for s in steps if s != ".."):
        return
    here = (*parts, *(s for s in steps if s != ".."))
    name = steps[-1].lower()
    if not parts and len(here) > 1:  # one student's folder cannot use up what others may unpack
        left = lefts.setdefault(here[0], [MAX_INNER_BYTES])
    if not _is_wanted(name):
        listing.add(Entry(here, None, problem=_OTHER, own_zip=bool(parts), other=True))
        return
    problem = _find_zip_problem(item, steps)
    if problem or not name.endswith(".ipynb"):
        _unpack_other(archive, item, here, listing, left, problem)
        return
    try:
        kept = _keep(archive, item, listing.keep, left)
        listing.add(Entry(here, _read_time(item), kept, own_zip=bool(parts)))
    except (*_DAMAGE, TooMuch) as error:
        listing.add(Entry(here, None, problem=f"cannot be unpacked: {error}", own_zip=bool(parts)))


def _find_zip_problem(item: zipfile.ZipInfo, steps: list[str]) -> str:
    if ".." in steps or item.filename.startswith(("/", "\\")) or ":" in steps[0][:2]:
        return f"its name in the zip, {item.filename!r}, points outside"
    if stat.S_ISLNK(item.external_attr >> 16):
        return _LINK
    return "packed with a password" if item.flag_bits & 1 else ""


def _unpack_other(
    archive: zipfile.ZipFile,
    item: zipfile.ZipInfo,
    here: tuple[str, ...],
    listing: Listing,
    left: list[int],
    problem: str,
) -> None:
    inner = len(here) > 1 and any(step.lower().endswith(".zip") for step in here[:-1])
    if problem or inner and here[-1].lower().endswith(".zip"):
        problem = problem or "a zip in a zip in a zip"
        listing.add(Entry(here, None, problem=problem, own_zip=inner))
        return
    try:
        if here[-1].lower() == TIMESTAMP:
            with archive.open(item) as stream:
                text = _to_text(stream.read(200))
            listing.add(Entry(here, _read_time(item), own_zip=inner, text=text))
            return
        with tempfile.TemporaryFile() as copy:
            _copy(archive, item, copy.write, MAX_NOTEBOOK_BYTES, left)
            _unpack(copy, here, listing, MAX_INNER_BYTES)
    except (*_DAMAGE, TooMuch) as error:
        listing.add(Entry(here, None, problem=f"cannot be unpacked: {error}", own_zip=inner))


def _read_time(item: zipfile.ZipInfo) -> datetime | None:
    try:
        found = datetime(*item.date_time)
    except ValueError:
        return None
    return found if found > datetime(1980, 1, 2) else None  # the zero of a zip


def _copy(
    archive: zipfile.ZipFile,
    item: zipfile.ZipInfo,
    write: Callable[[bytes], object],
    most: int,
    left: list[int],
) -> None:
    total = 0
    with archive.open(item) as stream:
        while piece := stream.read(_PIECE):
            total += len(piece)
            left[0] -= len(piece)
            if total > most or left[0] < 0:
                raise TooMuch(f"unpacks to more than {most // 2**20:,} MiB, or its zip to too much")
            write(piece)


def _keep(archive: zipfile.ZipFile, item: zipfile.ZipInfo, keep: Path, left: list[int]) -> Path:
    keep.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    handle, name = tempfile.mkstemp(dir=keep, suffix=".part")
    partial = Path(name)
    try:
        with os.fdopen(handle, "wb") as copy:

            def write(piece: bytes) -> None:
                digest.update(piece)
                copy.write(piece)

            _copy(archive, item, write, MAX_NOTEBOOK_BYTES, left)
        return partial.replace(keep / f"{digest.hexdigest()}.ipynb")
    finally:
        partial.unlink(missing_ok=True)


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a plain file, as hex digits."""
    with closing(open_plain(path)) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
