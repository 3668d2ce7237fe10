"""One hand-in for each student, out of whatever came in; nothing of it is lost.

Every file that is passed over leaves a note, and a student whose file cannot be read
is still listed, with the reason: never silently without a mark.
"""

from collections import defaultdict
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from distlab.errors import CourseError
from distlab.grading.handed_in import TIMESTAMP, Entry, hash_file, list_files
from distlab.grading.naming import LabNames, Owner, find_owner, parse_time


@dataclass(frozen=True)
class HandIn:
    """What one student handed in: the notebook that counts, when, and what was noticed.

    `path` is None, and `problem` says why, where there is no notebook that can be read.
    `timestamp` (UTC) is None where nothing trustworthy tells it.
    """

    student: str
    path: Path | None
    sha256: str = ""
    timestamp: datetime | None = None
    notes: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class Collection:
    """The hand-ins, by student, and notes on what belongs to nobody."""

    hand_ins: tuple[HandIn, ...]
    notes: tuple[str, ...]


def collect(source: Path, lab: LabNames, keep: Path, pattern: str = "") -> Collection:
    """Return one hand-in for each student in `source` (a folder, a zip, or one notebook).

    `pattern` says how file names tell the student (see `distlab.grading.naming`); what a
    zip holds is unpacked into `keep`. Raises CourseError where nothing is found.
    """
    listing = list_files(source, keep)
    alone = "" if source.suffix else source.resolve().name
    owned, notes = _sort_by_student(_unwrap(listing.entries, lab), lab, pattern, alone)
    hand_ins = [_choose(student, found, lab) for student, found in sorted(owned.items())]
    if not hand_ins:
        why = "; ".join([*listing.notes, *notes][:2]) or "no notebook (.ipynb) lies there"
        raise CourseError(f"{source}: no hand-in of {lab.short} found: {why}")
    return Collection(tuple(hand_ins), (*listing.notes, *notes))


_Owned = dict[str, list[tuple[Entry, Owner]]]


def _unwrap(entries: list[Entry], lab: LabNames) -> list[Entry]:
    """Drop the one folder that a zip or a download has put round everything."""
    tops = {entry.parts[0] for entry in entries}
    if len(tops) != 1 or any(len(entry.parts) == 1 or entry.own_zip for entry in entries):
        return entries
    inside = [entry.parts[1:] for entry in entries if not entry.other]
    folders = {parts[0] for parts in inside if len(parts) > 1}
    stems = {parts[0].lower().removesuffix(".ipynb") for parts in inside if len(parts) == 1}
    several = len(stems) > 1 and not folders and lab.slug.lower() not in stems
    if several or any(not lab.is_folder(name) for name in folders):
        return [replace(entry, parts=entry.parts[1:]) for entry in entries]
    return entries


def _sort_by_student(
    entries: list[Entry], lab: LabNames, pattern: str, alone: str
) -> tuple[_Owned, list[str]]:
    numbered: dict[tuple[str, str], list[tuple[Entry, Owner]]] = defaultdict(list)
    nobody = []
    for entry in entries:
        if entry.other and len(entry.parts) == 1 and not pattern:
            continue  # a list or a read-me beside the hand-ins
        owner = find_owner(entry.parts, lab, pattern, alone)
        if owner is not None:
            numbered[owner.student, owner.number].append((entry, owner))
        elif entry.parts[-1].lower() != TIMESTAMP and not entry.other:
            nobody.append(entry.name)
    return _name_apart(numbered), _describe_nobody(nobody, pattern)


def _name_apart(numbered: dict[tuple[str, str], list[tuple[Entry, Owner]]]) -> _Owned:
    """Two students of one name keep both their hand-ins, under name and number."""
    numbers: dict[str, set[str]] = defaultdict(set)
    for student, number in numbered:
        numbers[student].add(number)
    return {
        student if len(numbers[student]) == 1 else f"{student} {number}".strip(): found
        for (student, number), found in numbered.items()
        if any(e.parts[-1].lower() != TIMESTAMP for e, _ in found)
    }


def _describe_nobody(names: list[str], pattern: str) -> list[str]:
    if not names:
        return []
    why = "do not fit the pattern" if pattern else "belong to other labs"
    shown = ", ".join(repr(name) for name in names[:5]) + (", ..." if len(names) > 5 else "")
    return [f"{len(names)} files {why} and were left alone: {shown}"]


def _choose(student: str, found: list[tuple[Entry, Owner]], lab: LabNames) -> HandIn:
    stamps = [(e, o) for e, o in found if e.parts[-1].lower() == TIMESTAMP]
    files = [(e, o) for e, o in found if e.parts[-1].lower() != TIMESTAMP]
    readable = [(e, o) for e, o in files if e.path is not None]
    told = [e for e, _ in files if e.problem and not (readable and e.other)]
    notes = [f"{e.name!r}: {e.problem}" for e in told[:20]]
    if not readable:
        return HandIn(student, None, notes=tuple(notes), problem="; ".join(notes))
    best = max(_rank(entry, lab) for entry, _ in readable)
    rivals = [(e, o, *_find_time(e, o, stamps)) for e, o in readable if _rank(e, lab) == best]
    rivals.sort(key=lambda r: (r[2] or r[0].modified or datetime.min, r[0].name))
    entry, _, timestamp, stamp_note = rivals[-1]
    notes += stamp_note + _describe_choice(entry, [r[0] for r in rivals[:-1]], lab)
    others = [e.name for e, _ in readable if _rank(e, lab) < best]
    notes += [f"{name!r} was left alone: {entry.parts[-1]!r} is the lab" for name in others]
    assert entry.path is not None
    try:
        return HandIn(student, entry.path, hash_file(entry.path), timestamp, tuple(notes))
    except OSError as error:
        problem = f"{entry.name!r}: cannot be read ({error.strerror or error})"
        return HandIn(student, None, timestamp=timestamp, notes=(*notes, problem), problem=problem)


def _rank(entry: Entry, lab: LabNames) -> int:
    """3 for the lab's own file name, 2 for one that holds its slug, 1 for its number, 0 else."""
    stem = entry.parts[-1].lower().removesuffix(".ipynb")
    if stem == lab.slug.lower():
        return 3
    return 2 if lab.slug.lower() in stem else int(lab.short.lower() in stem)


def _find_time(
    entry: Entry, owner: Owner, stamps: list[tuple[Entry, Owner]]
) -> tuple[datetime | None, list[str]]:
    """Return when a file was handed in, as its name or nbgrader's timestamp beside it says.

    A timestamp that the student may have written counts for nothing.
    """
    if owner.timestamp is not None:
        return owner.timestamp, []
    beside = [e for e, o in stamps if e.parts[:-1] == entry.parts[:-1] and o.collected]
    if entry.own_zip or not owner.collected or not beside:
        return None, []
    time = parse_time(beside[0].text)
    wrong = f"{beside[0].name!r} holds no time ({beside[0].text[:40]!r}): hand-in time unknown"
    return (time, []) if time else (None, [wrong])


def _describe_choice(entry: Entry, older: list[Entry], lab: LabNames) -> list[str]:
    notes = []
    if older:
        names = ", ".join(repr(e.name) for e in older[-5:])
        count = f"handed in {len(older) + 1} times"
        notes.append(f"{count}: {entry.name!r}, the latest, counts; not {names}")
    stem = entry.parts[-1].lower().removesuffix(".ipynb")
    if lab.slug.lower() not in stem and len(entry.parts) > 1:
        notes.append(f"the notebook is called {entry.parts[-1]!r}, not {lab.slug + '.ipynb'!r}")
    return notes
