"""Choose one submission for each student, from any mix of files; nothing is lost.

Every skipped file leaves a note, and a student whose file can't be read is still listed, with the
reason. If the owner of a submission isn't certain, it is listed with a question, and waits for a
human.
"""

import re
from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import count
from pathlib import Path

from distlab.errors import CourseError
from distlab.grading.handed_in import (
    NOTEBOOKS,
    Entry,
    hash_file,
    hash_together,
    list_files,
)
from distlab.grading.naming import (
    TIMESTAMP,
    LabNames,
    Owner,
    find_owner,
    is_stamp,
    parse_time,
)
from distlab.grading.roster import Match, Roster
from distlab.submission import is_generic, list_attached

_COPIES = {"originals", "kept"}  # the course's own folders, submitted with the full course
_STRANGER = "isn't in the list of students"
_UNSURE = f"several {TIMESTAMP} say when this was handed in: which one is nbgrader's?"
# what browsers, Jupyter, Canvas and file managers add to a name that is there already
_COPY = re.compile(
    r"[ _-]*(copy|kopie|copie)?[ _-]*(\d{1,2}|\(\d{1,2}\)|\(?(copy|kopie|copie)\)?)?"
)
_QUIET = (".csv", ".md", ".txt", ".html", ".htm", ".pdf")  # lists and read-mes next to submissions


@dataclass(frozen=True)
class HandIn:
    """One student's submission: the notebook that counts, its time, and notes.

    `path` is None, and `problem` says why, if there is no readable notebook. `timestamp` (UTC) is
    None without a trustworthy source, which `clock` names. `question` is "", or why a human must
    decide whose it is. `owner` is the platform's name for the student. `files` are the names and
    places of files that the lab wants with the notebook.
    """

    student: str
    path: Path | None
    sha256: str = ""
    timestamp: datetime | None = None
    notes: tuple[str, ...] = ()
    problem: str = ""
    question: str = ""
    clock: str = ""
    owner: Owner = Owner("")
    files: tuple[tuple[str, Path], ...] = ()
    by_name_only: bool = False  # the platform's number is another than the roster's
    is_latest: bool = False  # later than every other notebook of this student

    @property
    def key(self) -> str:
        """The line that settles a question: the student and this very file."""
        return f"{self.student} {self.sha256[:8]}"


@dataclass(frozen=True)
class Collection:
    """The submissions, by student; students without one for this lab, with their other files.

    `notes` are about files without an owner.
    """

    hand_ins: tuple[HandIn, ...]
    notes: tuple[str, ...]
    absent: Mapping[str, str] = field(default_factory=dict)


def collect(
    source: Path, lab: LabNames, keep: Path, pattern: str = "", roster: Roster | None = None
) -> Collection:
    """Return one submission for each student in `source` (a folder, a zip, or one notebook).

    `pattern` says how file names tell the student (see `distlab.grading.naming`); what a
    zip holds is unpacked into `keep`. Raises CourseError where nothing is found.
    """
    roster = roster or Roster()
    wanted = list_attached(lab.short)
    listing = list_files(source, keep, lambda names: _find_depth(names, lab), wanted)
    alone = source.resolve().name if source.is_dir() else source.stem
    groups, notes = _group(listing.entries, lab, pattern, alone)
    mine = {key: found for key, found in groups.items() if any(_is_mine(e, lab) for e, _ in found)}
    hand_ins = _settle(mine, lab, roster)
    if not hand_ins:
        other = "files of other labs" if groups else "no notebook (.ipynb)"
        why = "; ".join([*listing.notes, *notes][:2]) or f"only {other}"
        raise CourseError(f"{source} must have a submission of {lab.short}, got {why}.")
    many = len(hand_ins) > 1 or source.suffix == ".zip"  # a lone folder may be a guest's
    if many and all(_STRANGER in h.question for h in hand_ins):
        number = f"the {len(hand_ins)} submissions is" if len(hand_ins) > 1 else "its files is"
        none = f"{source}: none of {number} from a student in the list"
        raise CourseError(f"{none}. Is it another course's list, or a zip in a zip?")
    used = [h.path for h in hand_ins] + [path for h in hand_ins for _, path in h.files]
    listing.clear({path for path in used if path})
    absent = {name: "handed in nothing" for name in roster.ids}
    for key in groups.keys() - mine.keys():
        student = roster.find(groups[key][0][1]) or groups[key][0][1].student
        absent[student] = f"handed in nothing of {lab.short}, only {groups[key][0][0].name!r}"
    absent = {s: why for s, why in absent.items() if s not in {h.student for h in hand_ins}}
    notes += _describe_numbers(hand_ins)
    return Collection(tuple(hand_ins), (*listing.notes, *notes), dict(sorted(absent.items())))


def _describe_numbers(hand_ins: Sequence[HandIn]) -> list[str]:
    """Return a note if names had to decide because the list has other numbers."""
    named = [h.student for h in hand_ins if h.by_name_only]
    why = "their platform numbers differ from the list's: they belong to another assignment"
    return _describe(named, f"students were found by name, because {why}:")


_Found = list[tuple[Entry, Owner]]


def _find_depth(names: list[tuple[str, ...]], lab: LabNames) -> int:
    """Return how many outer folders a zip or a download has put round everything: 0 or 1."""
    tops = {parts[0] for parts in names}
    if len(tops) != 1 or any(len(parts) == 1 for parts in names):
        return 0
    (top,) = tops
    owner = find_owner((top, "x"), lab)
    if lab.is_nobody(top) or owner and owner.platform:
        return 0
    wanted = [parts[1:] for parts in names if parts[-1].lower().endswith((*NOTEBOOKS, ".zip"))]
    folders = {parts[0] for parts in wanted if len(parts) > 1}
    files = {parts[0].lower() for parts in wanted if len(parts) == 1}
    several = len(files) > 1 and not folders and not any(lab.is_named(name) for name in files)
    packed = any(name.endswith(".zip") for name in files) and len(files) > 1
    students = {f for f in folders if not lab.is_nobody(f) and not lab.is_other_lab(f)}
    return int(several or packed or bool(students))


def _group(
    entries: list[Entry], lab: LabNames, pattern: str, alone: str
) -> tuple[dict[str, _Found], list[str]]:
    """Return the files by the outermost part that names their student, and notes on the rest."""
    groups: dict[str, _Found] = defaultdict(list)
    nobody, unknown = [], []
    for entry in entries:
        owner = find_owner(entry.parts, lab, pattern, alone)
        if entry.other and len(entry.parts) == 1 and not (owner and owner.platform):
            unknown += [entry.name] * (not entry.name.lower().endswith(_QUIET))
        elif owner is not None:
            groups[owner.source or owner.told].append((entry, owner))
        elif not is_stamp(entry.parts) and not entry.other:
            nobody.append(entry.name)
    held = {key: f for key, f in groups.items() if any(not is_stamp(e.parts) for e, _ in f)}
    why = "don't fit the pattern: whose are they?" if pattern else "belong to other labs"
    notes = _describe(nobody, f"files {why}:")
    return held, notes + _describe(unknown, "files aren't notebooks: whose are they?")


def _describe(names: list[str], what: str) -> list[str]:
    shown = ", ".join(repr(name) for name in names[:5]) + (", ..." if len(names) > 5 else "")
    return [f"{len(names)} {what} {shown}"] if names else []


def _is_mine(entry: Entry, lab: LabNames) -> bool:
    """Return whether a file may be a submission for this lab: not named as another's."""
    if is_stamp(entry.parts):
        return False
    if lab.is_named(entry.parts[-1]) or not entry.parts[1:]:
        return True
    return not any(lab.is_other_lab(part) for part in entry.parts[1:])


def _settle(groups: Mapping[str, _Found], lab: LabNames, roster: Roster) -> list[HandIn]:
    """Return each student's submission. If two sources may be one student, ask a human."""
    told: dict[tuple[str, str], list[str]] = defaultdict(list)
    for key, found in groups.items():
        told[found[0][1].told, found[0][1].number].append(key)
    taken = {number for _, number in told if number}
    chosen, alone = [], len(groups) == 1
    for keys in told.values():
        one = _choose([f for k in keys for f in groups[k]], lab, roster, alone, taken)
        chosen.append(replace(one, question=one.question or _ask_of_two(keys, groups, one)))
    return sorted(_name_apart(chosen, roster), key=lambda h: h.student)


def _ask_of_two(keys: list[str], groups: Mapping[str, _Found], hand_in: HandIn) -> str:
    """Return what to ask if several files or folders name one student and none is the latest."""
    found = [entry for key in keys for entry, _ in groups[key] if entry.path]
    if len(keys) == 1 or hand_in.is_latest or len({_hash(entry) for entry in found}) == 1:
        return ""
    names = ", ".join(repr(key) for key in keys[:4])
    return f"{len(keys)} different files or folders name this student ({names}): which counts?"


def _hash(entry: Entry) -> str:
    try:
        return hash_file(entry.path) if entry.path else ""
    except OSError:
        return entry.name


def _name_apart(hand_ins: list[HandIn], roster: Roster) -> list[HandIn]:
    """Tell students of one name apart: by the platform's number, or with a question."""
    same: dict[str, list[HandIn]] = defaultdict(list)
    for hand_in in hand_ins:
        same[hand_in.student].append(hand_in)
    found: dict[str, HandIn] = {}
    for student, several in same.items():
        numbers = {h.owner.number for h in several if h.owner.number}
        named = len(numbers) == len(several) > 1 and student not in roster.ids
        names = ", ".join(repr(h.owner.source) for h in several[:4])
        for hand_in in several:
            name = f"{student} {hand_in.owner.number}" if named else student
            if name in found or len(several) > 1 and not named:
                ask = f"{max(2, len(several))} names look the same ({names}): is it one student?"
                hand_in = replace(hand_in, question=ask)
            name = next(
                n for k in count(1) if (n := name if k == 1 else f"{name} ({k})") not in found
            )
            found[name] = replace(hand_in, student=name)
    return list(found.values())


def _choose(
    found: _Found, lab: LabNames, roster: Roster, only: bool, taken: Container[str]
) -> HandIn:
    owner = found[0][1]
    student, question, by_name_only = _ask_whose(owner, roster, only, taken)
    base = HandIn(student, None, question=question, owner=owner, by_name_only=by_name_only)
    stamps = [e for e, _ in found if is_stamp(e.parts)]
    files = [(e, o) for e, o in found if _is_mine(e, lab) and not e.attached]
    readable = [(e, o) for e, o in files if e.path is not None]
    told = [e for e, _ in files if e.problem and not (readable and e.other)]
    notes = [f"{e.name!r}: {e.problem}" for e in told[:20]]
    if not readable:
        return replace(base, notes=tuple(notes), problem="; ".join(notes) or "no notebook")
    readable = _drop_originals(readable)
    best = max(_rank(e, o, lab) for e, o in readable)
    rivals = [
        (e, o, *_find_time(e, o, stamps, lab)) for e, o in readable if _rank(e, o, lab) == best
    ]
    rivals.sort(key=lambda r: (_find_clock(r), -len(r[0].parts), r[0].name))
    entry, owner, timestamp, clock, stamp_notes = rivals[-1]
    clocks = [_find_clock(rival) for rival in rivals]
    comparable = len({r[0].own_zip if r[2] is None else "told" for r in rivals}) == 1
    latest = comparable and datetime.min not in clocks and clocks.count(clocks[-1]) == 1
    notes += stamp_notes + _describe_choice(entry, [r[0] for r in rivals[:-1]], lab)
    other = [e.name for e, o in readable if _rank(e, o, lab) < best]
    notes += [f"{name!r} was left alone: {entry.parts[-1]!r} is the lab" for name in other]
    notes += ["the platform calls it late"] * owner.late
    attached, said = _find_attached(entry, [e for e, _ in found if e.attached])
    if clock == _UNSURE:
        question, clock = question or _UNSURE, ""
    base = replace(
        base,
        timestamp=timestamp,
        clock=clock,
        notes=(*notes, *said),
        owner=owner,
        files=attached,
        question=question,
        is_latest=latest,
    )
    notes = list(base.notes)
    assert entry.path is not None
    try:
        sha256 = hash_together(hash_file(entry.path), attached)
        return replace(base, path=entry.path, sha256=sha256)
    except OSError as error:
        problem = f"{entry.name!r}: cannot be read ({error.strerror or error})"
        return replace(base, notes=(*notes, problem), problem=problem)


def _find_clock(rival: tuple[Entry, Owner, datetime | None, str, list[str]]) -> datetime:
    """Return when a notebook was submitted, or else written; `datetime.min` if unknown."""
    entry, _, timestamp, *_ = rival
    return timestamp or entry.modified or datetime.min


def _find_attached(
    notebook: Entry, entries: list[Entry]
) -> tuple[tuple[tuple[str, Path], ...], list[str]]:
    """Return the files submitted with a notebook: next to it, or else the latest; and notes."""
    found: dict[str, Path] = {}
    entries = sorted(entries, key=lambda e: (e.modified or datetime.min, e.name))
    near = [e for e in entries if e.parts[:-1] == notebook.parts[:-1]]
    for entry in [*entries, *near]:
        if entry.path is not None:
            found[entry.attached] = entry.path
    return tuple(sorted(found.items())), [f"{e.name!r}: {e.problem}" for e in entries if e.problem]


def _ask_whose(owner: Owner, roster: Roster, only: bool, taken: Container[str]) -> Match:
    """Return the student's id and what a human must be asked, "" if it is certain."""
    known = roster.match(owner, taken)
    if known.question or known.student is not None:
        return known._replace(student=known.student or owner.student)
    if roster.ids:
        return Match(owner.student, f"{owner.told!r} {_STRANGER}")
    if owner.inside and not only:
        return Match(owner.student, f"nothing outside tells whose {owner.source!r} is")
    shared = is_generic(owner.told) and not owner.number
    said = f"{owner.told!r} is a login that many people share" if shared else ""
    return Match(owner.student, said)


def _drop_originals(readable: list[tuple[Entry, Owner]]) -> list[tuple[Entry, Owner]]:
    """Leave out a course's labs/LAB.ipynb if work/LAB.ipynb, the student's copy, is next to it."""
    there = {entry.parts for entry, _ in readable}

    def has_copy(parts: tuple[str, ...]) -> bool:
        return parts[-2:-1] == ("labs",) and (*parts[:-2], "work", parts[-1]) in there

    return [(entry, owner) for entry, owner in readable if not has_copy(entry.parts)]


def _rank(entry: Entry, owner: Owner, lab: LabNames) -> int:
    """3 for the lab's own file name or a copy's, 2 for one that holds its slug, 1 for its number.

    A file that the teacher named after its student is as good as the lab's own name. A copy that
    the course itself keeps is below all.
    """
    if len(entry.parts) == 1 and not owner.platform:
        return 3
    if _COPIES & {part.lower() for part in entry.parts[1:-1]}:
        return -1
    stem = entry.parts[-1].lower().partition(".ipynb")[0]
    if stem.startswith(lab.slug.lower()) and _COPY.fullmatch(stem[len(lab.slug) :]):
        return 3
    return 2 if lab.slug.lower() in stem else int(lab.short.lower() in stem)


def _find_time(
    entry: Entry, owner: Owner, stamps: list[Entry], lab: LabNames
) -> tuple[datetime | None, str, list[str]]:
    """Return when a file was submitted, the source of that time, and notes.

    That is the outermost part's name, or the timestamp that nbgrader writes at
    STUDENT/LAB/timestamp.txt. Whatever else a student may have written counts for nothing, but
    a second file of that name that says another time, in any spelling, makes it uncertain.
    """
    if owner.timestamp is not None:
        return owner.timestamp, owner.clock, []
    theirs = [
        e
        for e in stamps
        if len(e.parts) == 3 and lab.is_folder(e.parts[1]) and not e.own_zip and not owner.platform
    ]
    near = [e for e in theirs if e.parts[:2] == entry.parts[:2]]
    beside = near if any(map(_is_nbgraders, near)) else theirs
    if not any(map(_is_nbgraders, beside)):
        return None, "", []
    if len({e.text for e in beside}) > 1:
        return None, _UNSURE, []
    time = parse_time(beside[0].text)
    wrong = f"{beside[0].name!r} holds no time ({beside[0].text[:40]!r}): submission time unknown"
    return (time, "nbgrader's timestamp", []) if time else (None, "", [wrong])


def _is_nbgraders(entry: Entry) -> bool:
    return entry.parts[-1] == TIMESTAMP


def _describe_choice(entry: Entry, older: list[Entry], lab: LabNames) -> list[str]:
    notes = []
    if older:
        names = ", ".join(repr(e.name) for e in older[-5:])
        count = f"handed in {len(older) + 1} times"
        notes.append(f"{count}: {entry.name!r}, the latest, counts; not {names}")
    if lab.slug.lower() not in entry.parts[-1].lower() and len(entry.parts) > 1:
        notes.append(f"the notebook is called {entry.parts[-1]!r}, not {lab.slug + '.ipynb'!r}")
    return notes


def set_times(
    hand_ins: tuple[HandIn, ...], named: Roster, times: Mapping[str, datetime]
) -> tuple[tuple[HandIn, ...], list[str]]:
    """Return the submissions with the times of a teacher's list, which come first.

    Notes name list entries that fit no submission.
    """
    found, left = [], set(times)
    for hand_in in hand_ins:
        student = hand_in.student if hand_in.student in times else named.find(hand_in.owner)
        if student is not None:
            left.discard(student)
            hand_in = replace(hand_in, timestamp=times[student], clock="the list of times")
        found.append(hand_in)
    return tuple(found), _describe(sorted(left), "in the list of times submitted nothing here:")
