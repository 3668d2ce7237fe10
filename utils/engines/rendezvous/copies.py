"""Copies of a checkpoint folder on several machines: which is newest, and how it travels.

Any program's folder: nothing is known of it but that files which haven't changed for a while,
and didn't change while they were read, are whole (of TensorFlow's checkpoints, only complete
ones). Each state of the folder has a number that grows from run to run;
number and files stand in `.distlab-copy.json`. A copy is fetched piece by piece, checked
by its hashes, and put in place file by file by renaming, TensorFlow's list of checkpoints
last. From before the first renaming until after the last one the copy is marked as not whole.
"""

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from ...errors import RunError, first_line
from ...files import write_atomically

MANIFEST, STAGING = ".distlab-copy.json", ".distlab-copy.part"
PIECE_BYTES = 2**18
QUIET_SECONDS = 0.5  # for which a folder must not have changed
MAX_FILES, MAX_PATH = 4000, 400
UNFINISHED = re.compile(r"(_temp|\.part|\.tmp|\.tempstate\w*|~)$|^workertemp|^\.")
SHARD = re.compile(r"(?P<prefix>.+)\.data-\d{5}-of-(?P<count>\d{5})")
LISTS = ("checkpoint", "latest")  # TensorFlow's list of checkpoints comes last


@dataclass(frozen=True)
class FileState:
    """One file: its path below the folder, bytes, time of change in ns, and hash ("" unread)."""

    path: str
    size: int
    changed: int
    digest: str = ""

    @property
    def look(self) -> tuple[str, int, int]:
        return self.path, self.size, self.changed


@dataclass(frozen=True)
class Copy:
    """A state of the folder. `number` 0: nothing that is whole is there."""

    number: int = 0
    files: tuple[FileState, ...] = ()
    whole: bool = True
    is_origin: bool = False

    @property
    def bytes(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def identity(self) -> tuple[int, tuple[FileState, ...]]:
        return self.number, self.files

    def to_data(self) -> dict[str, Any]:
        return {"number": self.number, "files": [list(asdict(f).values()) for f in self.files]}


def read_copy(data: Any) -> Copy:
    """Return the copy that another machine describes. Raises RunError for a doubtful one."""
    try:
        files = tuple(FileState(str(p), int(s), int(c), str(d)) for p, s, c, d in data["files"])
        copy = Copy(int(data["number"]), files)
    except (KeyError, TypeError, ValueError):
        raise RunError("Another machine's list of checkpoint files can't be read.") from None
    if any(file.size < 0 for file in files):
        raise RunError("Another machine's list of checkpoint files has a negative size.")
    if len(files) > MAX_FILES:
        raise RunError(
            f"checkpoint-dir must hold at most {MAX_FILES:,} files to be copied, got "
            f"{len(files):,}. Keep fewer checkpoints."
        )
    for file in files:
        check_path(file.path)
    return copy


def check_path(path: str) -> str:
    """Return `path`; raises RunError unless it stays below the folder and isn't hidden."""
    parts = PurePosixPath(path).parts
    odd = not parts or len(path) > MAX_PATH or "\\" in path or "\0" in path
    if odd or path.startswith("/") or any(part.startswith(".") for part in parts):
        words = f"relative, not hidden and at most {MAX_PATH} letters"
        raise RunError(f"A checkpoint's path must be {words}, got {path[:60]!r}.")
    return path


class CheckpointCopy:
    """This machine's checkpoint folder. On the host (`is_origin`) the program writes into it."""

    def __init__(self, folder: str | Path, is_origin: bool) -> None:
        self.folder, self._is_origin = Path(os.path.abspath(folder)), is_origin
        self._last_look: tuple[tuple[str, int, int], ...] = ()
        self._since = time.monotonic()

    def look(self, quiet_seconds: float = QUIET_SECONDS) -> Copy | None:
        """Return the folder's state if it has settled and is another than the one noted, or None.

        With `quiet_seconds` 0 whatever is there now counts as settled.
        """
        files = list_files(self.folder)
        looks, now = tuple(file.look for file in files), time.monotonic()
        if looks != self._last_look:
            self._last_look, self._since = looks, now
        if quiet_seconds and now - self._since < quiet_seconds:
            return None
        noted = self.read_note()
        if not files or looks == tuple(f.look for f in noted.files):
            return None
        hashed = tuple(_with_hash(self.folder, file) for file in files)
        if None in hashed or tuple(f.look for f in list_files(self.folder)) != looks:
            return None  # it changed while it was read
        copy = Copy(noted.number + 1, hashed, True, True)
        self._write_note(copy)
        return copy

    def find_state(self) -> Copy:
        """Return the current state: the noted copy, or a newer one made by a program."""
        noted = self.read_note()
        if not noted.whole:
            return Copy()
        looks = {file.look for file in list_files(self.folder)}
        wanted = {file.look for file in noted.files}
        if noted.number and (looks == wanted or not self._is_origin and wanted <= looks):
            return noted
        return self.look(0.0) or (noted if wanted <= looks else Copy())

    def raise_number(self, least: int) -> Copy:
        """Give the present state a number of `least` at least, where it is to be the newest."""
        noted = self.read_note()
        if noted.number >= least:
            return noted
        copy = Copy(least, noted.files, noted.whole, noted.is_origin)
        self._write_note(copy)
        return copy

    def read_note(self) -> Copy:
        try:
            noted = json.loads((self.folder / MANIFEST).read_text())
            files = tuple(FileState(*file) for file in noted["files"])
            return Copy(int(noted["number"]), files, bool(noted["whole"]), bool(noted["origin"]))
        except (OSError, ValueError, KeyError, TypeError):
            return Copy()

    def _write_note(self, copy: Copy) -> None:
        noted = copy.to_data() | {"whole": copy.whole, "origin": copy.is_origin}
        write_atomically(self.folder / MANIFEST, json.dumps(noted), durable=True)

    def read_piece(self, path: str, offset: int) -> bytes | None:
        """Return a piece of a file of this machine's copy, None if it is gone."""
        try:
            with (self.folder / check_path(path)).open("rb") as stream:
                stream.seek(offset)
                return stream.read(PIECE_BYTES)
        except OSError:
            return None

    def fetch(self, copy: Copy, ask: Callable[[str, int], bytes | None]) -> bool:
        """Make this machine's copy that one; `ask(path, offset)` gets a piece, None if it is gone.

        Returns False if the other side has moved on meanwhile: nothing has changed here then.
        Raises RunError where it can't be written.
        """
        noted, staging = self.read_note(), self.folder / STAGING
        if noted.whole and noted.number >= copy.number:
            return True  # the folder is shared with the other side
        shutil.rmtree(staging, ignore_errors=True)
        try:
            present = {f.look: f.digest for f in noted.files if self._is_here(f)}
            missing = [f for f in copy.files if present.get(f.look) != f.digest]
            needed, free = sum(f.size for f in missing), shutil.disk_usage(self.folder).free
            if needed > free:
                words = f"checkpoint-dir {self.folder} needs {needed:,} bytes, has {free:,}"
                raise RunError(f"{words}. Free some space.")
            if not all(_fetch_file(file, staging / file.path, ask) for file in missing):
                return False
            self._put_in_place(copy, missing, staging)
            return True
        except OSError as error:
            why = first_line(error)
            raise RunError(
                f"checkpoint-dir {self.folder} can't be written ({why}). Make room, or name "
                "another folder."
            ) from None
        finally:
            shutil.rmtree(staging, ignore_errors=True)

    def _is_here(self, file: FileState) -> bool:
        return _look_at(self.folder, self.folder / file.path) == file.look

    def _put_in_place(self, copy: Copy, missing: Iterable[FileState], staging: Path) -> None:
        before = self.read_note()
        self._write_note(Copy(before.number, before.files, False))
        for file in sorted(missing, key=lambda f: (PurePosixPath(f.path).name in LISTS, f.path)):
            place = self.folder / file.path
            place.parent.mkdir(parents=True, exist_ok=True)
            if not place.parent.resolve().is_relative_to(self.folder.resolve()):
                raise RunError(f"{place.parent} is a link out of checkpoint-dir. Remove the link.")
            os.replace(staging / file.path, place)
        kept = {file.path for file in copy.files}
        for file in before.files:  # what this machine had copied and the origin has no more
            if file.path not in kept and not before.is_origin:
                (self.folder / check_path(file.path)).unlink(missing_ok=True)
        self._write_note(Copy(copy.number, copy.files, True))


def _fetch_file(file: FileState, place: Path, ask: Callable[[str, int], bytes | None]) -> bool:
    place.parent.mkdir(parents=True, exist_ok=True)
    digest, offset = hashlib.sha256(), 0
    with place.open("wb") as stream:
        while offset < file.size:
            piece = ask(file.path, offset)
            if not piece:
                return False
            stream.write(piece)
            digest.update(piece)
            offset += len(piece)
        stream.flush()
        os.fsync(stream.fileno())
    os.utime(place, ns=(file.changed, file.changed))
    return offset == file.size and digest.hexdigest() == file.digest


def list_files(folder: Path) -> list[FileState]:
    """Return the finished files below `folder`, by path, without hashes."""
    found = []
    for path in sorted(_walk(folder)):
        look = _look_at(folder, path)
        if look is not None and len(found) < MAX_FILES:
            found.append(FileState(*look))
    names = {file.path for file in found}
    return [file for file in found if _belongs_to_whole(file.path, names)]


def _walk(folder: Path) -> Iterator[Path]:
    for here, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not UNFINISHED.search(name)]
        yield from (Path(here, name) for name in files if not UNFINISHED.search(name))


def _look_at(folder: Path, path: Path) -> tuple[str, int, int] | None:
    try:
        about = path.lstat()
    except OSError:
        return None
    name = path.relative_to(folder).as_posix()
    return (name, about.st_size, about.st_mtime_ns) if path.is_file() else None


def _belongs_to_whole(path: str, names: set[str]) -> bool:
    """Return whether a file isn't part of a TensorFlow checkpoint that lacks its index."""
    piece = SHARD.fullmatch(path)
    return piece is None or f"{piece['prefix']}.index" in names


def _with_hash(folder: Path, file: FileState) -> FileState | None:
    try:
        with (folder / file.path).open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return None
    return FileState(*file.look, digest)
