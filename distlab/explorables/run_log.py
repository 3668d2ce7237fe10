"""A killed run's logbook on one axis of time, and the same run with other choices below it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from distlab.errors import CourseError
from distlab.explorables.controls import Choice, Slider
from distlab.explorables.explorer import Explorer, Try, explore
from distlab.figures import Picture, timeline
from distlab.figures.canvas import say_number
from distlab.figures.timeline import Row
from distlab.lessons.chaos import make_kill_rows
from distlab.lessons.killed_run import KilledRun, StepLine
from utils.measure import count

NEVER = "never"
LANES = {"killed": "your choice", "undisturbed": "no kill"}  # of make_kill_rows
LAST = "scores, exports"
IDEAS = {
    "kept": "forward",
    "trained, then lost": "over",
    "no training": "wait",
    LAST: "optimizer",
}


@dataclass(frozen=True)
class RunLog:
    """The times of `run`, in seconds; it saved after every `every` steps, `save_seconds` each."""

    run: KilledRun
    every: int
    save_seconds: float

    def lines(self, attempt: int) -> list[StepLine]:
        return [line for line in self.run.steps if line.attempt == attempt]

    @property
    def total(self) -> int:
        return self.run.steps[-1].step

    @property
    def pace(self) -> float:
        """Mean seconds of a step, saves included."""
        ends = [(lines[0], lines[-1]) for lines in (self.lines(1), self.lines(2))]
        steps = sum(last.step - first.step for first, last in ends)
        return sum(last.seconds - first.seconds for first, last in ends) / steps

    @property
    def died(self) -> int:
        """The last step before the kill; one that was saved may not have been reported."""
        return max(self.lines(1)[-1].step, self.run.resumed_from)

    @property
    def restart(self) -> float:
        """From the last step before the kill to the first one after it, which isn't included."""
        return self.when(2, self.run.resumed_from) - self.when(1, self.died)

    def when(self, attempt: int, step: int) -> float:
        """Return when `step` ended, from the nearest step that was reported."""
        near = min(self.lines(attempt), key=lambda line: abs(line.step - step))
        return max(0.0, near.seconds + (step - near.step) * self.pace)

    def list_measured(self) -> list[Row]:
        """Return the spans of the run as it was."""
        saved, total = self.run.resumed_from, self.total
        times = [0.0, self.when(1, 0), self.when(1, saved), self.when(1, self.died)]
        times += [self.when(2, saved), self.when(2, total), self.run.report.seconds]
        spans = zip(
            times[:-1],
            times[1:],
            ("start", f"steps 1 to {saved}", "", "restart", f"steps {saved + 1} to {total:,}", ""),
            ("no training", "kept", "trained, then lost", "no training", "kept", LAST),
            strict=True,
        )
        return [("as it ran", *span) for span in spans]

    def list_changed(self, saves: str, dies: int, restart: float) -> Iterator[Row]:
        """Yield the calculated spans with other choices, and those without a kill."""
        start, tail = self.when(1, 0), self.run.report.seconds - self.when(2, self.total)
        rows = make_kill_rows(
            step_seconds=self.find_step_seconds(saves),
            restart_seconds=restart,
            saved=find_saved(saves, dies),
            killed=dies,
            total=self.total,
        )
        for name, lane in LANES.items():
            yield lane, 0.0, start, "start", "no training"
            own = [row for row in rows if row[0] == name]
            for _, begun, ended, label, kind in own:
                if ended > begun:
                    yield lane, start + begun, start + ended, label, kind
            yield lane, start + own[-1][2], start + own[-1][2] + tail, "", LAST

    def find_step_seconds(self, saves: str) -> float:
        """Return a step's mean seconds with a save after every `saves` steps."""
        alone = max(0.0, self.pace - self.save_seconds / self.every)
        return alone + (0.0 if saves == NEVER else self.save_seconds / int(saves))

    def show(self, saves: str, dies: int, restart: float) -> Picture:
        """Draw the run as it was, with other choices, and without a kill."""
        changed = list(self.list_changed(saves, dies, restart))
        spans = [*self.list_measured(), *changed]
        rows = [(lane, round(a, 2), round(b, 2), *words) for lane, a, b, *words in spans]
        drawn = timeline(rows, title="One run, its kill, and what you would change")
        lost = dies - find_saved(saves, dies)
        made = 0 if saves == NEVER else self.total // int(saves)
        ended, undisturbed = find_end(changed), rows[-1][2]
        says = (
            f"Your choice, calculated: {count(lost, 'step')} trained twice, "
            f"{count(made, 'save')} in {say_number(made * self.save_seconds)} s. It ends after "
            f"{ended:.0f} s, {ended - undisturbed:.1f} s later than without a kill."
        )
        return replace(drawn, caption=f"{self.tell()} {says}").with_ideas(IDEAS)

    def tell(self) -> str:
        """Return the run's own log in words."""
        run, died = self.run, self.died
        return (
            f"As it ran: step {died} after {self.when(1, died):.1f} s, and worker {run.victim} is "
            f"killed. All start again, from the checkpoint of step {run.resumed_from}. The "
            f"next step is reported after {self.lines(2)[0].seconds:.1f} s, the last one after "
            f"{run.steps[-1].seconds:.1f} s, and the model is exported after "
            f"{run.report.seconds:.0f} s."
        )


def find_saved(saves: str, dies: int) -> int:
    """Return the last step up to `dies` that was saved, 0 if none was."""
    return 0 if saves == NEVER else dies // int(saves) * int(saves)


def find_end(rows: Iterable[Row]) -> float:
    """Return when the run with other choices ends."""
    return max(row[2] for row in rows if row[0] == LANES["killed"])


def run_explorer(run: KilledRun, every: int, save_seconds: float) -> Explorer:
    """Show `run`, and let the hand change how often it saves, when it dies, how long a restart is.

    It saved after every `every` steps, and a save took about `save_seconds`.
    """
    log = RunLog(run, every, save_seconds)
    if min(len(log.lines(1)), len(log.lines(2))) < 2:
        raise CourseError("The run reported fewer than two steps before or after its kill.")
    total, died, restart = log.total, log.died, max(0.0, round(log.restart, 1))
    saves = sorted({5, every, *(n for n in (20, 80, 320) if n < total)})
    most = round(max(60.0, 2 * restart))
    start = {"saves": str(every), "dies": died, "restart": restart}
    often = find_end(log.list_changed("5", died, restart))
    sooner = find_end(log.list_changed(*start.values())) - often
    return explore(
        log.show,
        tries=[
            Try(
                "Restart in one second: what is left of the kill's cost?",
                start,
                {"restart": 1.0},
                f"The steps since the last checkpoint. Here the restart took {log.restart:.1f} s, "
                f"and the lost steps ({run.lost_steps}) took {run.lost_steps * log.pace:.1f} s.",
            ),
            Try(
                "Save after every 5 steps: does it end sooner?",
                start,
                {"saves": "5"},
                f"It ends {abs(sooner):.1f} s {'sooner' if sooner > 0 else 'later'}. Fewer steps "
                f"are lost, but {total // 5} saves of {save_seconds:.2g} s have to be paid.",
            ),
            Try(
                "Never save, and die late: what does that cost?",
                start,
                {"saves": NEVER, "dies": total * 7 // 8},
                "Everything up to the kill, again. A save costs little compared with that.",
            ),
        ],
        saves=Choice("Save every … steps", [*map(str, saves), NEVER], str(every)),
        dies=Slider(
            "Killed after step", 1, total - 1, died, grid=[total * k // 8 for k in range(1, 8)]
        ),
        restart=Slider("A restart takes", 0, most, restart, step=0.1, unit="s", grid=(1, 15, most)),
    )
