"""One run of grading: collect, run, judge, book. It can be stopped at any moment."""

import shlex
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from distlab.errors import CourseError
from distlab.grading import memory
from distlab.grading.collect import Collection, HandIn, collect, set_times
from distlab.grading.executor import LabProcesses, observe
from distlab.grading.gradebook import Book, Entry
from distlab.grading.journal import Journal, Record
from distlab.grading.judge_process import JudgeProcess
from distlab.grading.labs import LabSpec
from distlab.grading.naming import LabNames
from distlab.grading.observation import Observation, Submission
from distlab.grading.policy import Policy
from distlab.grading.results import ClassResult, Course, Result, finish, hold_back
from distlab.grading.roster import ByHand, Roster, read_times
from distlab.grading.verdict import ExerciseVerdict, Verdict
from utils.checks import check_choice
from utils.measure import Stopwatch, count


@dataclass(frozen=True)
class Settings:
    """The settings of a grading. `students` and `exercises` () mean all of them."""

    lab: LabSpec
    source: Path
    out: Path
    gradebook: Path
    policy: Policy = field(default_factory=Policy)
    pattern: str = ""
    jobs: int = 2
    sealed: bool = True
    again: bool = False
    students: tuple[str, ...] = ()
    exercises: tuple[str, ...] = ()
    by_hand: tuple[tuple[str, ByHand], ...] = ()  # (student, mark)
    above_maximum: bool = False  # whether marks by hand may be above it
    roster: Roster = Roster()
    times: Path | None = None  # a list of each student's time of submission
    rules: Mapping[str, str] = field(default_factory=dict)  # the lab's memory of this run
    kept_marks: str = ""  # "restore" or "forget" the marks by hand that a new gradebook lacks
    remove: tuple[str, ...] = ()  # students of the gradebook whom nothing else knows


Progress = Callable[[int, int], None]  # how many are done, of how many
_Booked = tuple[tuple[Result, ...], Course]


def grade(settings: Settings, on_progress: Progress = lambda done, total: None) -> ClassResult:
    """Grade the submissions, book the marks, and return them; pages are written elsewhere.

    Raises CourseError for problems that the user can fix. Stopped at any moment, it keeps its
    observations, and the same call resumes from there.
    """
    lab = settings.lab
    _check_exercises(settings)
    with (
        Stopwatch() as watch,
        Journal(settings.out / "journal", lab) as journal,
        ExitStack() as stack,
    ):
        found = _collect(settings, journal)
        chosen = _choose(settings, journal, found.hand_ins)
        new = [h for h in chosen if h.path and _find_kept(settings, journal, h) is None]
        processes = LabProcesses(lab, settings.sealed) if new else None
        if processes is not None:
            stack.enter_context(processes)
        students = {h.student for h in found.hand_ins} | set(found.absent)
        _check_list(settings, journal)
        _set_by_hand(settings, journal, students)
        if settings.rules:
            memory.write_rules(journal.folder, {**settings.rules, "ids": [*settings.roster.ids]})
        _run(settings, journal, chosen, on_progress, processes)
        stack.close()
        results, course = _book(settings, journal, found)
    graded = {result.student for result in results}
    waiting = tuple(h.student for h in found.hand_ins if h.student not in graded)
    absent = {s: why for s, why in found.absent.items() if s not in graded}
    result = ClassResult(
        lab,
        results,
        settings.policy,
        (),
        waiting,
        watch.seconds,
        course,
        absent,
        settings.roster,
        journal.code_for,
    )
    notes = (*found.notes, *journal.notes, *_name_orphans(result))
    return replace(result, notes=notes)


def _check_list(settings: Settings, journal: Journal) -> None:
    """Raise CourseError for marks by hand under another list of students than the last one."""
    before = memory.read_rules(journal.folder).get("ids", [])
    lost = [student for student in before if student not in settings.roster.students]
    if settings.by_hand and lost:
        raise CourseError(
            f"this list of students isn't the last grading's: {lost[0]!r} isn't in "
            "it. No mark was set. Grade with the new list first."
        )


def _name_orphans(found: ClassResult) -> list[str]:
    """Return a note on students in the gradebook whom no submission and no list knows."""
    known = {r.student for r in found.results}.union(found.waiting, found.absent, found.roster.ids)
    booked = [s for s, marks in sorted(found.course.items()) if found.assignment in marks]
    orphans = [student for student in booked if student not in known]
    options = " ".join(f"--remove {shlex.quote(student)}" for student in orphans[:5])
    said = "in the gradebook, but no submission and no list of students knows them"
    return [f"{count(len(orphans), 'student')} {said}. To remove: {options}"] if orphans else []


def _collect(settings: Settings, journal: Journal) -> Collection:
    """Collect the submissions, and add the times that the teacher has given."""
    names = LabNames(settings.lab.name, settings.lab.slug)
    found = collect(
        settings.source, names, journal.folder / "unpacked", settings.pattern, settings.roster
    )
    if settings.times is not None:
        listed = read_times(settings.times, settings.policy.zone)
        hand_ins, notes = set_times(found.hand_ins, *listed)
        found = replace(found, hand_ins=hand_ins, notes=(*found.notes, *notes))
    _check_readable(settings.source, found)
    return replace(found, notes=(*found.notes, *_name_unknown(settings, found)))


def _check_readable(source: Path, found: Collection) -> None:
    """Raise CourseError if not one file of the class can be opened: that isn't the students'."""
    problems = [
        h.problem
        for h in found.hand_ins
        if any(word in h.problem for word in ("cannot be read", "a link"))
    ]
    if len(problems) == len(found.hand_ins):
        raise CourseError(f"{source}: no file of the class can be opened ({problems[0]}).")


def _name_unknown(settings: Settings, found: Collection) -> list[str]:
    """Return a note on students in the rules who don't exist."""
    known = {h.student for h in found.hand_ins} | set(found.absent) | set(settings.roster.ids)
    confirmed = {key.rpartition(" ")[0] for key in settings.policy.confirmed}
    ruled = {*settings.policy.extra, *confirmed} - known
    return [
        f"the rules name {name!r}, who submitted nothing here. Is the name spelled correctly?"
        for name in sorted(ruled)
    ]


def _is_judged(journal: Journal, hand_in: HandIn) -> bool:
    record = journal.find(hand_in.student, hand_in.sha256)
    return record is not None and record.verdict is not None


def _check_exercises(settings: Settings) -> None:
    known = [exercise.id for exercise in settings.lab.exercises]
    for name in (*settings.exercises, *settings.policy.weights):
        check_choice(f"An exercise of {settings.lab.name}", name, known)


def _choose(settings: Settings, journal: Journal, hand_ins: Sequence[HandIn]) -> list[HandIn]:
    """Return whom to run and judge: all or those asked for; with marks by hand, who has no mark."""
    students = settings.students
    known = [hand_in.student for hand_in in hand_ins]
    for student in students:
        check_choice("--student", student, known)
    quick = settings.by_hand and not settings.again and not settings.exercises
    return [
        h
        for h in hand_ins
        if (not students or h.student in students) and not (quick and _is_judged(journal, h))
    ]


def _set_by_hand(settings: Settings, journal: Journal, students: set[str]) -> None:
    """Open the gradebook (so that a bad one is known before hours of work) and set marks in it."""
    codes = {journal.code_for(student): student for student in students}
    with Book(settings.gradebook, settings.lab, settings.policy.weights) as book:
        _bring_back(settings, journal, book)
        booked = book.read_course() if settings.by_hand or settings.remove else {}
        known = {s: settings.roster.show(s) for s in sorted(students | set(booked))}
        for told, by_hand in settings.by_hand:
            student = codes.get(told, told)
            if student not in known:
                near = memory.suggest_student(student, known)
                raise CourseError(
                    "A mark must be of a student with a submission or in the gradebook, got "
                    f"{student!r}{near or '.'} No mark was set."
                )
            for mark in memory.spread(by_hand, book.most):
                book.set_points(student, mark, settings.above_maximum)
        for student in settings.remove:
            if student in students or student in settings.roster.ids:
                raise CourseError(
                    f"--remove must name a student with no submission who isn't in the list of "
                    f"students, got {student!r}. Nothing was removed."
                )
            book.remove(student)


def _bring_back(settings: Settings, journal: Journal, book: Book) -> None:
    """Bring the remembered marks by hand into a new gradebook, or stop and say so."""
    kept = memory.read_marks(journal.folder)
    if not book.is_new or not kept or settings.kept_marks == "forget":
        return
    if settings.kept_marks != "restore":
        number = count(sum(map(len, kept.values())), "mark")
        raise CourseError(
            f"{settings.gradebook} is new, but this lab remembers {number} set by hand. Add "
            "--restore to set them again, or --forget."
        )
    for student, marks in kept.items():
        for by_hand in marks.values():
            book.set_points(student, by_hand, above=True)


def _run(
    settings: Settings,
    journal: Journal,
    hand_ins: Sequence[HandIn],
    on_progress: Progress,
    processes: LabProcesses | None,
) -> None:
    """Run the new ones of `hand_ins`, and judge all, each as soon as it has run."""
    judging: deque[tuple[Observation, Future[Verdict]]] = deque()
    pool, done = ThreadPoolExecutor(1), 0
    with JudgeProcess(settings.lab) as judges:
        try:
            for seen in _see(settings, journal, hand_ins, processes):
                judging.append((seen, pool.submit(judges.judge, seen)))
                last = len(judging) + done == len(hand_ins)
                while judging and (last or judging[0][1].done()):
                    judged, said = judging.popleft()
                    _keep(settings, journal, judged, said.result())
                    done += 1
                    on_progress(done, len(hand_ins))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _find_kept(settings: Settings, journal: Journal, hand_in: HandIn) -> Observation | None:
    """Return the observation of a submission from an earlier run, if that still counts."""
    kept = None if settings.again else journal.find(hand_in.student, hand_in.sha256)
    seen = kept.observation if kept else None
    return seen if seen is not None and (seen.sealed or not settings.sealed) else None


def _see(
    settings: Settings, journal: Journal, hand_ins: Sequence[HandIn], processes: LabProcesses | None
) -> Generator[Observation, None, None]:
    """Yield the observation of each of `hand_ins`: the one that was kept, or of a new run."""
    todo = []
    for hand_in in hand_ins:
        if hand_in.path is None:
            seen = _observe_nothing(settings, hand_in)
            journal.begin(hand_in.student, "", False)
            yield seen
        elif _find_kept(settings, journal, hand_in) is not None:
            yield journal.recall(hand_in.student)
        else:
            todo.append(hand_in)
    yield from _observe(settings, journal, todo, processes)


def _observe_nothing(settings: Settings, hand_in: HandIn) -> Observation:
    problem = hand_in.problem or "nothing was submitted"
    return Observation(
        hand_in.student, settings.lab.name, "", 0, problem=problem, sealed=settings.sealed
    )


def _observe(
    settings: Settings, journal: Journal, todo: Sequence[HandIn], processes: LabProcesses | None
) -> Generator[Observation, None, None]:
    if processes is None:  # there is one exactly where there is something to run
        return
    records: dict[str, Record] = {}
    for hand_in in todo:
        records[hand_in.student] = journal.begin(hand_in.student, hand_in.sha256, settings.again)

    def seed_for(submission: Submission) -> int:
        record = records[submission.student]
        return journal.seed_for(record.student, record.sha256, record.attempt)

    submissions = [Submission(h.student, h.path, h.files) for h in todo if h.path is not None]
    seen = observe(settings.lab, submissions, seed_for, settings.jobs, processes=processes)
    with closing(seen):  # ends its processes
        for each in seen:
            before = records[each.student].verdict if settings.exercises else None
            journal.keep(each, before)  # at once: a stop costs no run that has ended
            yield each


def _keep(settings: Settings, journal: Journal, seen: Observation, said: Verdict) -> None:
    """Keep what was seen and its verdict; with `exercises`, it replaces only theirs."""
    record = journal.records[seen.student]
    if settings.exercises and record.verdict is not None:
        said = _merge(said, record.verdict, settings.exercises)
    if record.observation is None or record.verdict != said:
        journal.keep(seen, said)


def _merge(new: Verdict, old: Verdict, exercises: Sequence[str]) -> Verdict:
    kept = {e.id: e for e in old.exercises if e.id not in exercises}
    return replace(new, exercises=tuple(kept.get(e.id, e) for e in new.exercises))


def _book(settings: Settings, journal: Journal, found: Collection) -> _Booked:
    """Book every mark in one transaction. Return the results and the whole course's marks."""
    policy = settings.policy
    with Book(settings.gradebook, settings.lab, policy.weights) as book:
        manual, reasons = book.read_manual(), book.read_reasons()
        seen = {h.student: journal.find(h.student, h.sha256) for h in found.hand_ins}
        hand_ins = {h.student: h for h in found.hand_ins}
        ran = {*seen, *journal.records, *book.read_scored()}
        for student in manual.keys() - ran:  # a mark by hand needs no submission
            hand_ins[student], seen[student] = _make_empty(settings, student)
        results, entries, waiting = [], [], []
        for student, hand_in in sorted(hand_ins.items()):
            record = seen[student]
            if record is None or record.verdict is None or record.observation is None:
                waiting.append(student)
                continue
            mine, why = (m.get(student, {}) for m in (manual, reasons))
            said = hold_back(hand_in, record.verdict, policy)
            result = finish(hand_in, said, record.observation, policy, mine, why)
            extra = policy.find_extra(student)
            entries.append(Entry(said, hand_in.timestamp, extra, result.penalty))
            results.append(result)
        book.write(entries, policy.due, waiting, settings.roster)
        course = book.read_course()
    memory.write_marks(journal.folder, manual, reasons)
    return tuple(results), course


def _make_empty(settings: Settings, student: str) -> tuple[HandIn, Record]:
    """Return what stands for the submission of a student who has marks by hand and no file."""
    lab, said = settings.lab, "nothing was submitted"
    exercises = tuple(
        ExerciseVerdict(e.id, 0.0, e.points, "", said, "wrong") for e in lab.exercises
    )
    seen = Observation(student, lab.name, "", 0, sealed=settings.sealed)
    verdict = Verdict(student, lab.name, exercises, (said,))
    return HandIn(student, None), Record(student, "", "", observation=seen, verdict=verdict)
