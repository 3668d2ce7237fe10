"""A submission, and the observation of its run: plain data that can be kept and judged again.

`executor.observe` makes observations, `judge_process` judges them. Nothing here runs or
decodes what a learner wrote.
"""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from distlab.errors import CourseError

STATUSES = ("ok", "raised", "timed out", "killed", "missing")


@dataclass(frozen=True)
class Submission:
    """One submitted notebook: `student` is any text, `path` is its file.

    `files` were submitted with it: names and places.
    """

    student: str
    path: Path
    files: tuple[tuple[str, Path], ...] = ()


@dataclass(frozen=True)
class CellObservation:
    """The result of one graded cell.

    `status`: "ok"; "raised" (see `error`; the got_ values that it had by then are
    there); "timed out"; "killed" (the process ended in it: `error` says why); "missing" (it was
    not reached). `got` is the JSON text of a dictionary of `encode`d values, as it came out of
    the sandbox: not parsed, not trusted. `error` is one line, `trace` the learner's own frames,
    `output` and `errors` its stdout and stderr, cut and without control
    characters. `failed` says which of the learner's cells raised or were cut off before it.
    `traffic_bytes` is what the kernel carried on loopback meanwhile.
    """

    id: str
    status: str
    got: str = "{}"
    error: str = ""
    trace: str = ""
    output: str = ""
    errors: str = ""
    traffic_bytes: int = 0
    failed: tuple[str, ...] = ()

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> "CellObservation":
        """Return it from plain data, in which tuples are lists."""
        return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in data.items()})


@dataclass(frozen=True)
class Observation:
    """The observation of one submission. `problem` is "" unless it couldn't be run at all.

    `notes` say what was mended and what a human should look at, `facts` what a teacher may want
    to know of its text. `sealed` is False where it ran outside the sandbox.
    """

    student: str
    lab: str
    sha256: str
    seed: int
    cells: tuple[CellObservation, ...] = ()
    notes: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    problem: str = ""
    sealed: bool = True

    def lighten(self) -> "Observation":
        """Return it without the answers' results, which may be large and are judged once."""
        return replace(self, cells=tuple(replace(cell, got="{}") for cell in self.cells))

    def to_json(self) -> str:
        """Return it as one line of JSON."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "Observation":
        """Return the observation of `to_json`'s text; CourseError if it isn't one."""
        try:
            data: dict[str, Any] = json.loads(text)
            cells = tuple(CellObservation.from_data(cell) for cell in data.pop("cells"))
            notes, facts = (tuple(map(str, data.pop(name))) for name in ("notes", "facts"))
            found = cls(**data, cells=cells, notes=notes, facts=facts)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise CourseError(f"it isn't an observation ({error}). Grade it again.") from None
        if any(cell.status not in STATUSES for cell in found.cells):
            raise CourseError("it isn't an observation (an unknown status). Grade it again.")
        return found
