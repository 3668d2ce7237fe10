"""Grading's observations, kept so that it can be stopped and resumed at any moment.

Each student has one file, written under another name and renamed (the disk has all of it or
nothing). The seeds come from one secret of the folder, so that a killed run draws the same numbers
again: https://docs.python.org/3/library/hmac.html
"""

import contextlib
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from distlab.errors import CourseError
from distlab.grading.labs import LabSpec
from distlab.grading.observation import Observation
from distlab.grading.verdict import ExerciseVerdict, Verdict
from utils.errors import DistributedError
from utils.files import PART, write_atomically

VERSION = 3


@dataclass(frozen=True)
class Record:
    """The record of one student: the file, its reruns, the observation and the verdict.

    `asked` says which lab text was run (`describe_lab`); `observation` is None while a run
    is under way, `verdict` until it is judged.
    """

    student: str
    sha256: str
    asked: str
    attempt: int = 0
    observation: Observation | None = None
    verdict: Verdict | None = None

    def to_json(self) -> str:
        """Return it as JSON."""
        return json.dumps({"version": VERSION, **asdict(self)}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "Record":
        """Return the record of `to_json`'s text; CourseError if it isn't one."""
        try:
            data: dict[str, Any] = json.loads(text)
            if data["version"] != VERSION:
                raise CourseError(f"it is from another version of distlab ({data['version']})")
            seen, said = data["observation"], data["verdict"]
            return cls(
                str(data["student"]),
                str(data["sha256"]),
                str(data["asked"]),
                int(data["attempt"]),
                Observation.from_json(json.dumps(seen)) if seen else None,
                _read_verdict(said) if said else None,
            )
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise CourseError(f"it isn't a record ({error})") from None


def _read_verdict(data: dict[str, Any]) -> Verdict:
    exercises = tuple(ExerciseVerdict(**item) for item in data.pop("exercises"))
    return Verdict(**data | {"exercises": exercises, "notes": tuple(data["notes"])})


class Journal:
    """The records of one lab in a folder; `with` holds its lock: one run at a time writes there."""

    def __init__(self, folder: Path, lab: LabSpec) -> None:
        self.folder, self.lab, self.asked = folder, lab, describe_lab(lab)
        self.notes: list[str] = []
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> "Journal":
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        busy = "another `distlab grade` is at work there: wait until it has ended"
        self._stack.enter_context(hold_lock(self.folder / "lock", f"{self.folder.parent}: {busy}"))
        self._secret = self._read_secret()
        self.records = self._read_records()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def _read_secret(self) -> bytes:
        path = self.folder / "secret"
        if not path.exists():
            write_atomically(path, secrets.token_hex(32), durable=True)
        return path.read_bytes()

    def _read_records(self) -> dict[str, Record]:
        found = {}
        for path in sorted((self.folder / "records").glob("*.json")):
            try:
                record = Record.from_json(path.read_text(encoding="utf-8"))
                found[record.student] = _lighten(record)
            except (DistributedError, OSError, UnicodeDecodeError) as error:
                path.replace(path.with_suffix(".damaged"))
                self.notes.append(f"{path.name} in the journal is damaged, run anew: {error}")
        for path in self.folder.glob(f"*/*{PART}"):
            path.unlink(missing_ok=True)
        return found

    def seed_for(self, student: str, sha256: str, attempt: int) -> int:
        """Return the seed of a run: always the same one for the same file and attempt."""
        text = json.dumps([self.lab.name, student, sha256, attempt])
        digest = hmac.new(self._secret, text.encode(), "sha256").digest()
        return int.from_bytes(digest[:4], "big") >> 1  # [0, 2**31)

    def code_for(self, student: str) -> str:
        """Return the code under which a student is marked without a name: always the same."""
        digest = hmac.new(self._secret, f"code {student}".encode(), "sha256").hexdigest()
        return f"anon-{digest[:8]}"

    def find(self, student: str, sha256: str) -> Record | None:
        """Return the observation of this very file under the present lab, if there is one."""
        record = self.records.get(student)
        same = record and (record.sha256, record.asked) == (sha256, self.asked)
        return record if same and record and record.observation else None

    def begin(self, student: str, sha256: str, again: bool) -> Record:
        """Note that a run begins; `again` draws other numbers than the last one did."""
        last = self.records.get(student)
        known = last is not None and last.sha256 == sha256
        attempt = (last.attempt + again) if last and known else 0
        verdict = last.verdict if last and known else None
        record = Record(student, sha256, self.asked, attempt, None, verdict)
        self.records[student] = record
        if again:
            self._write(record)
        return record

    def keep(self, observation: Observation, verdict: Verdict | None) -> None:
        """Keep what a run has seen, of the file as it was when it was run, and its verdict.

        `verdict` is None until it is judged.
        """
        record = self.records[observation.student]
        sha256 = observation.sha256 or record.sha256
        record = replace(record, observation=observation, sha256=sha256, verdict=verdict)
        self._write(record)
        self.records[record.student] = _lighten(record)

    def recall(self, student: str) -> Observation:
        """Return the complete observation, with the answers' results: only the disk has these."""
        path = self.folder / "records" / _file_name(student)
        seen = Record.from_json(path.read_text(encoding="utf-8")).observation
        assert seen is not None
        return seen

    def _write(self, record: Record) -> None:
        path = self.folder / "records" / _file_name(record.student)
        write_atomically(path, record.to_json(), durable=True)


def _lighten(record: Record) -> Record:
    seen = record.observation
    return replace(record, observation=seen.lighten() if seen else None)


def _file_name(student: str) -> str:
    return f"{hashlib.sha256(student.encode()).hexdigest()[:32]}.json"


def describe_lab(lab: LabSpec) -> str:
    """Return a digest of what a run of `lab` executes: judges may change without a new run."""
    cells = [(c.id, c.imports, c.inputs, c.visible) for c in lab.graded.values()]
    return hashlib.sha256(json.dumps([lab.name, cells]).encode()).hexdigest()


@contextlib.contextmanager
def hold_lock(path: Path, busy: str, wait_seconds: float = 0.0) -> Iterator[None]:
    """Hold the lock file `path`; CourseError(`busy`) if another process still does.

    The lock goes with the process, however it ends.
    """
    import fcntl

    path.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + wait_seconds
    with path.open("a") as stream:
        while True:
            try:
                fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() >= deadline:
                    raise CourseError(busy) from None
                time.sleep(0.1)
        yield
