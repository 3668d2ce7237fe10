"""List the files of a submission without trusting any: a folder, a zip, or one notebook.

A name is only ever read, never used to write to: what comes out of a zip is kept under its SHA-256.
Links aren't followed, nothing but plain files is opened, and a zip is unpacked with our limits,
whatever its directory says. The limits are per student: they hold for all files in the same
outermost folder or file.
"""

import hashlib
import io
import lzma
import os
import re
import stat
import struct
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from distlab.errors import CourseError
from distlab.grading.naming import is_stamp
from distlab.submission import read_packed_name

Files = Sequence[tuple[str, Path]]  # submitted with a notebook: names and places

MAX_NOTEBOOK_BYTES = 200 * 2**20
MAX_BYTES_OF_ONE = 400 * 2**20  # what one student's zips may unpack to, together
MAX_FILES_OF_ONE = 500
MAX_FOLDERS = 12  # how deep a path may go
MAX_DIRECTORY_BYTES = (64 * 2**20, 2**20)  # of a zip's list of files: the class's, a student's
NOTEBOOKS = (".ipynb", ".ipynb.txt", ".ipynb.json")
_LINK = "a link, which isn't followed: hand in the file itself"
_OTHER = "not a notebook"
_SKIPPED = {".ipynb_checkpoints", "__MACOSX", "__pycache__"}
_PIECE = 2**20
_PLATFORM = re.compile(r"_\d+_(assignsubmission_|\d+_)")  # of a student called .ana, too
_LAB = re.compile(r"lab\d\d(-|$)")
_BROKEN = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error)
_DAMAGE = (*_BROKEN, OSError, ValueError, RuntimeError, EOFError, MemoryError)


class TooMuch(Exception):
    """A file that unpacks to more than its limit."""


@dataclass(frozen=True)
class Entry:
    """One file: its name in parts, its time, the place to read it, or why it can't be read.

    `own_zip` says that it was in a zip within the submission, packed by the student. `text` is the
    content of a timestamp; `other` marks a file that isn't a notebook. `attached` is the name of a
    file that the lab wants with its notebook, "" for all others. Until it is looked at, `path` is
    its place on the disk, None in a zip, and `open` reads it.
    """

    parts: tuple[str, ...]
    modified: datetime | None
    path: Path | None = None
    problem: str = ""
    own_zip: bool = False
    text: str = ""
    other: bool = False
    attached: str = ""
    open: Callable[[], BinaryIO] = io.BytesIO

    @property
    def name(self) -> str:
        return "/".join(self.parts)


def _find_outer(parts: tuple[str, ...]) -> str:
    """Return what one student's limits hold for: the outermost part, but for a lab's folder."""
    return "/".join(parts[:2]) if len(parts) > 2 and _LAB.match(parts[0]) else parts[0]


Unwrap = Callable[[list[tuple[str, ...]]], int]  # names in parts -> how many outer ones to drop


@dataclass
class Listing:
    """Every notebook and timestamp of a submission, and notes on skipped files."""

    keep: Path
    wanted: Mapping[str, int] = field(default_factory=dict)  # files with notebooks, most bytes
    entries: list[Entry] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    unpacked: Counter[str] = field(default_factory=Counter)  # bytes

    def add(self, file: Entry, **found: Any) -> None:
        """Add what was found of `file`, unless its student has too many files already."""
        outer = _find_outer(file.parts)
        self.counts[outer] += 1
        if self.counts[outer] == MAX_FILES_OF_ONE + 1:
            self.notes.append(f"{outer}: more than {MAX_FILES_OF_ONE} files: the rest passed over")
        if self.counts[outer] <= MAX_FILES_OF_ONE:
            self.entries.append(
                replace(file, **{"path": None, "problem": "", "open": io.BytesIO, **found})
            )

    def copy(self, file: Entry, write: Callable[[bytes], object]) -> None:
        """Unpack `file` with `write`; TooMuch where that is more than one student may."""
        total, outer = 0, _find_outer(file.parts)
        with closing(file.open()) as stream:
            while piece := stream.read(_PIECE):
                total += len(piece)
                self.unpacked[outer] += len(piece)
                if total > MAX_NOTEBOOK_BYTES or self.unpacked[outer] > MAX_BYTES_OF_ONE:
                    most = (MAX_NOTEBOOK_BYTES, MAX_BYTES_OF_ONE)
                    own, all_own = (f"{m // 2**20:,} MiB" for m in most)
                    said = f"unpacks to more than {own}, or all of its student's"
                    raise TooMuch(f"{said} to more than {all_own}")
                write(piece)

    def clear(self, used: set[Path]) -> None:
        """Remove what was unpacked, now or by an earlier run, and isn't in `used`."""
        for path in set(self.keep.glob("*.ipynb")) - used:
            path.unlink()


def list_files(
    source: Path,
    keep: Path,
    unwrap: Unwrap = lambda names: 0,
    wanted: Mapping[str, int] | None = None,
) -> Listing:
    """Return the contents of `source`: a folder, a zip, or one notebook.

    Notebooks of a zip are unpacked into the folder `keep`, under their SHA-256. `unwrap` says how
    many outer folders are only a wrapper; `wanted` are the files that the lab wants with a
    notebook, with the most bytes of each. Raises CourseError if there is nothing to list.
    """
    listing = Listing(keep, wanted or {})
    course = _is_course(source)
    source = source / "submitted" if course else source
    packed = source.suffix.lower() == ".zip" and read_packed_name(source.stem)[1]
    if source.is_dir():
        _look_at_all(list(_walk(source, ())), listing, None if course else unwrap)
    elif not source.is_file():
        raise CourseError(f"{source}: no such folder, zip or notebook. Check the path.")
    elif source.name.lower().endswith(NOTEBOOKS) or packed:
        _look_at(_find_on_disk(source, (source.name,)), listing)
    elif zipfile.is_zipfile(source):
        with source.open("rb") as stream:
            _look_into(stream, Entry((source.name,), None, open=source.open), listing, unwrap)
    else:
        raise CourseError(f"{source} must be a folder, a zip or a notebook. Unpack it first.")
    return listing


def _is_course(source: Path) -> bool:
    """Return whether `source` is an nbgrader course, not a student's folder called submitted."""
    inside = source / "submitted"
    names = [path.name for path in inside.iterdir()] if inside.is_dir() else ["lab00"]
    return not names or not all(_LAB.match(name) for name in names)


def _look_at_all(files: list[Entry], listing: Listing, unwrap: Unwrap | None) -> None:
    depth = unwrap([file.parts for file in files]) if unwrap and files else 0
    if depth and files[0].parts[0].lower() != "submitted":
        inside = f"everything is inside the one folder {files[0].parts[0]!r}"
        listing.notes.append(f"{inside}: each folder or file in it was taken for one student")
    for file in files:
        _look_at(replace(file, parts=file.parts[depth:]), listing)


def _walk(folder: Path, parts: tuple[str, ...]) -> Iterator[Entry]:
    try:
        found = sorted(os.scandir(folder), key=lambda item: item.name)
    except OSError as error:
        yield _find_nothing(parts or (folder.name,), f"cannot be read ({error.strerror})")
        return
    found = [item for item in found if not _is_skipped(item.name)]
    if parts and not found:
        yield _find_nothing(parts, "an empty folder")
    for item in found:
        here = (*parts, item.name)
        if not item.is_dir(follow_symlinks=False) or _is_notebook(item.name):
            yield _find_on_disk(Path(item.path), here)
        elif len(here) > MAX_FOLDERS:
            yield _find_nothing(here, "folders too deep: passed over")
        else:
            yield from _walk(Path(item.path), here)


def _find_nothing(parts: tuple[str, ...], problem: str) -> Entry:
    """Return what stands for a folder without files: its student is listed too."""
    return Entry((*parts, "(nothing)"), None, problem=problem)


def _is_skipped(name: str) -> bool:
    return name in _SKIPPED or (name.startswith(".") and not _PLATFORM.search(name))


def _is_notebook(name: str) -> bool:
    return name.lower().endswith(NOTEBOOKS)


def _find_on_disk(path: Path, parts: tuple[str, ...]) -> Entry:
    modified, problem = None, ""
    try:
        found = path.lstat()
        modified = datetime.fromtimestamp(found.st_mtime, UTC).replace(tzinfo=None)
        problem = _find_problem(found)
        if not problem and _is_wanted(parts):
            open_plain(path).close()
    except (OSError, ValueError, OverflowError) as error:
        problem = f"cannot be read ({getattr(error, 'strerror', '') or error})"
    return Entry(parts, modified, path, problem, open=lambda: open_plain(path))


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


def _is_wanted(parts: tuple[str, ...]) -> bool:
    return parts[-1].lower().endswith((*NOTEBOOKS, ".zip")) or is_stamp(parts)


def open_plain(path: Path) -> BinaryIO:
    """Open `path` to read; OSError if it is a link or no plain file, even one just put there."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    stream = os.fdopen(os.open(path, flags), "rb")
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise OSError(f"{path} isn't a plain file")
    return stream


def _look_at(file: Entry, listing: Listing) -> None:
    """Add what one file is; whatever is wrong with it becomes an entry with a problem."""
    if attached := next((n for n in listing.wanted if file.parts[-1].endswith(n)), ""):
        _attach(file, attached, listing)
    elif not _is_wanted(file.parts):
        listing.add(file, problem=file.problem or _OTHER, other=file.problem != _LINK)
    elif file.problem:
        listing.add(file, problem=file.problem)
    elif _is_notebook(file.parts[-1]) and file.path:
        listing.add(file, path=file.path)
    else:
        try:
            _unpack(file, listing)
        except (*_DAMAGE, TooMuch) as error:
            listing.add(file, problem=f"cannot be unpacked: {error}")


def _attach(file: Entry, name: str, listing: Listing) -> None:
    """Add a file that the lab wants with its notebook, unless it is too large."""
    problem, path, most = file.problem, None, listing.wanted[name]
    try:
        if not problem:
            path = file.path or _keep(file, listing)
            with closing(open_plain(path)) as stream:
                size = os.fstat(stream.fileno()).st_size
            if size > most:
                problem = f"{size / 2**20:,.1f} MiB: more than {most / 2**20:g} MiB: left out"
    except (*_DAMAGE, TooMuch) as error:
        problem = f"cannot be read: {error}"
    listing.add(file, path=None if problem else path, problem=problem, other=True, attached=name)


def _unpack(file: Entry, listing: Listing) -> None:
    if _is_notebook(file.parts[-1]):
        listing.add(file, path=_keep(file, listing))
    elif is_stamp(file.parts):
        with closing(file.open()) as stream:
            text = stream.read(200).decode("utf-8", "replace").strip()
        listing.add(file, text=text)
    elif file.own_zip:
        listing.add(file, problem="a zip in a zip in a zip")
    elif file.path:
        with closing(file.open()) as stream:
            _look_into(stream, replace(file, own_zip=True), listing)
    else:
        with tempfile.TemporaryFile() as copy:
            listing.copy(file, copy.write)
            _look_into(copy, replace(file, own_zip=True), listing)


def _look_into(
    stream: BinaryIO, file: Entry, listing: Listing, unwrap: Unwrap | None = None
) -> None:
    """Look at the files of one zip: the class's, or a student's own."""
    try:
        _check_directory(stream, MAX_DIRECTORY_BYTES[file.own_zip])
        with zipfile.ZipFile(stream) as archive:
            items = [item for item in archive.infolist() if not item.is_dir()]
            if file.own_zip and len(items) > 2 * MAX_FILES_OF_ONE:
                raise TooMuch(f"holds {len(items):,} files")
            found = [f for item in items if (f := _find_in_zip(archive, item, file))]
            _look_at_all(found, listing, unwrap)
    except (*_DAMAGE, TooMuch) as error:
        listing.add(file, problem=f"a zip that is not read: {error}")


def _check_directory(stream: BinaryIO, most: int) -> None:
    """Raise TooMuch for a zip whose list of files has more than `most` bytes, before it is read."""
    size = stream.seek(0, os.SEEK_END)
    stream.seek(max(0, size - 2**16 - 22))
    tail = stream.read()
    place = tail.rfind(b"PK\5\6")
    listed = int.from_bytes(tail[place + 12 : place + 16], "little") if place >= 0 else 0
    if listed > most:  # all ones: more than 4 GiB, as a zip's 64-bit record says
        raise TooMuch(f"its list of files must have at most {most // 2**20} MiB")
    stream.seek(0)


def _find_in_zip(archive: zipfile.ZipFile, item: zipfile.ZipInfo, outer: Entry) -> Entry | None:
    steps = [s for s in item.filename.replace("\\", "/").split("/") if s not in ("", ".")]
    if not steps or any(_is_skipped(s) for s in steps if s != ".."):
        return None
    parts = (*(outer.parts if outer.own_zip else ()), *(s for s in steps if s != ".."))
    if not parts:
        return None

    def open_item() -> BinaryIO:
        return archive.open(item)  # type: ignore[return-value]

    problem = _find_zip_problem(item, steps)
    return Entry(parts, _read_time(item), None, problem, outer.own_zip, open=open_item)


def _find_zip_problem(item: zipfile.ZipInfo, steps: list[str]) -> str:
    if ".." in steps or item.filename.startswith(("/", "\\")) or ":" in steps[0][:2]:
        return f"its name in the zip, {item.filename!r}, points outside"
    if stat.S_ISLNK(item.external_attr >> 16):
        return _LINK
    return "packed with a password" if item.flag_bits & 1 else ""


def _read_time(item: zipfile.ZipInfo) -> datetime | None:
    try:
        found = datetime(*item.date_time)
    except ValueError:
        return None
    return found if found > datetime(1980, 1, 2) else None  # the zero of a zip


def _keep(file: Entry, listing: Listing) -> Path:
    """Unpack a notebook; return where it lies, named by its SHA-256."""
    keep = listing.keep
    keep.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    handle, name = tempfile.mkstemp(dir=keep, suffix=".part")
    partial = Path(name)
    try:
        with os.fdopen(handle, "wb") as copy:

            def write(piece: bytes) -> None:
                digest.update(piece)
                copy.write(piece)

            listing.copy(file, write)
        return partial.replace(keep / f"{digest.hexdigest()}.ipynb")
    finally:
        partial.unlink(missing_ok=True)


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a plain file, as hex digits."""
    with closing(open_plain(path)) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def hash_together(sha256: str, files: Files) -> str:
    """Return the digest of a notebook's `sha256` and the files submitted with it."""
    if not files or not sha256:
        return sha256
    told = [sha256, *(f"{name} {hash_file(path)}" for name, path in files)]
    return hashlib.sha256("\n".join(told).encode()).hexdigest()
