"""A pytest plugin: what a run shows while it goes on, records, and says at its end.

`--record FILE` notes what became of each test; `--after FILE` runs only what didn't pass in
the run recorded there, and fails if a test was skipped in both (`.ci/run` calls the two).
Tests that do more there run again: marked `more_with_tools`, or `more_in_all` for all tests.
A test marked `long` takes over 20 s. A bare `make test` skips it; a run that asks for it by a
path, `-k` or `-m`, a run after another, and `make test-all` don't.
"""

import json
import os
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from needs import EVERYTHING, HARDWARE

REPORT_SECONDS = 20.0  # between two lines of progress
ALL = "make test-all"
LONG = "over 20 s each"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("the course")
    group.addoption("--record", type=Path, metavar="FILE", help="write each test's outcome")
    group.addoption("--after", type=Path, metavar="FILE", help="run what did not pass there")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Meter(), "the meter")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Run(config), "the run")


def skips_long(config: pytest.Config) -> bool:
    """Return whether this is the bare `make test`, which skips the longest tests."""
    chosen = ("keyword", "markexpr", "after", "lf", "failedfirst")  # pytest's names, and ours
    return config.args_source is pytest.Config.ArgsSource.TESTPATHS and not any(
        [EVERYTHING, *(config.getoption(name, None) for name in chosen)]
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what is too long; leave out what passed in the run of `--after`."""
    if skips_long(config):
        for item in items:
            if item.get_closest_marker("long"):
                item.add_marker(pytest.mark.skip(reason=LONG))
    if config.option.after is None:
        return
    before = json.loads(config.option.after.read_text())
    again = {item for item in items if does_more_now(item)}
    files = {item.path for item in items if before.get(item.nodeid) != "passed"}
    kept = [
        item
        for item in items
        if item in again
        or before.get(item.nodeid) != "passed"
        or (item.path.suffix == ".ipynb" and item.path in files)  # a cell needs those before it
    ]
    chosen = set(kept)
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = kept


def does_more_now(item: pytest.Item) -> bool:
    """Return whether a test does more than in the first run: with tools, or everything whole."""
    marks = ("more_with_tools", "more_in_all") if EVERYTHING else ("more_with_tools",)
    return any(item.get_closest_marker(mark) for mark in marks)


class Meter:
    """Notes in each report how many seconds of a processor the step took, with its processes.

    A process that has ended counts in the step where it ended; what those that still run have
    taken counts in the last step of the file.
    """

    def __init__(self) -> None:
        self._ended, self._running = sum(os.times()[:4]), 0.0
        self._is_last = False

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> object:
        self._is_last = nextitem is None or nextitem.path != item.path
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo) -> pytest.TestReport:
        report = yield
        before, self._ended = self._ended, sum(os.times()[:4])
        report.processor_seconds = self._ended - before
        if self._is_last and call.when == "teardown":
            before, self._running = self._running, _count_running()
            report.processor_seconds += self._running - before
        return report


def _count_running() -> float:
    """Return the processor seconds of this process's descendants, and of theirs that ended."""
    seconds = 0.0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            seconds += sum(process.cpu_times()[:4])
    return seconds


class Run:
    """Counts outcomes in the process that reports; xdist's workers have none."""

    def __init__(self, config: pytest.Config) -> None:
        self.config, self.outcomes, self.reasons = config, dict[str, str](), dict[str, str]()
        self.seconds, self.spent = Counter[str](), Counter[str]()  # of each file
        self.began = self.said_at = time.monotonic()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[_get_file(report)] += report.duration
        self.spent[_get_file(report)] += getattr(report, "processor_seconds", 0.0)
        before = self.outcomes.get(report.nodeid)
        if report.when == "call" or report.outcome != "passed":
            if before != "failed":
                self.outcomes[report.nodeid] = report.outcome
            if report.outcome == "failed":
                self._say(f"failed: {report.nodeid}")
            if report.outcome == "skipped":
                self.reasons[report.nodeid] = _read_reason(report)
        if time.monotonic() - self.said_at > REPORT_SECONDS:
            self.said_at = time.monotonic()
            self._say_progress(report)

    def _say_progress(self, report: pytest.TestReport) -> None:
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        total = getattr(reporter._session, "testscollected", 0)
        counts = Counter(self.outcomes.values())
        failed = f", {counts['failed']} failed" if counts["failed"] else ""
        minutes = (time.monotonic() - self.began) / 60
        place = f"{minutes:.0f} min: {_get_file(report)}"
        words = f"{len(self.outcomes):,} of {total:,} tests{failed}, {place}"
        self._say(words)

    def _say(self, words: str) -> None:
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        reporter.ensure_newline()
        reporter.write_line(words)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if path := self.config.option.record:
            path.write_text(json.dumps(self.outcomes, indent=0))
        if self._list_twice_skipped():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def _list_twice_skipped(self) -> list[str]:
        """Return the tests that were skipped here and didn't pass in the run of `--after`."""
        if self.config.option.after is None:
            return []
        before = json.loads(self.config.option.after.read_text())
        return [
            test
            for test, outcome in self.outcomes.items()
            if outcome == "skipped" and before.get(test) != "passed"
            if not self.reasons[test].startswith(tuple(f"needs {one}" for one in HARDWARE))
        ]

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for test in self._list_twice_skipped():
            terminalreporter.write_line(f"skipped in both runs: {test}: {self.reasons[test]}")
        counts = Counter(self.outcomes.values())
        minutes = (time.monotonic() - self.began) / 60
        terminalreporter.write_line(
            f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped"
        )
        for reason, count in Counter(self.reasons.values()).most_common():
            terminalreporter.write_line(f"  {count} skipped: {reason}")
        if self.reasons:
            terminalreporter.write_line(f"  `{ALL}` runs them, once what they need is installed.")
        if count := self.config.option.durations:
            for file, spent in self.spent.most_common(count):
                seconds = self.seconds[file]
                terminalreporter.write_line(f"  {spent:.0f} s of a core, {seconds:.0f} s in {file}")
            terminalreporter.write_line(f"{self.spent.total():.0f} s of a core in all files")
        terminalreporter.write_line(f"{minutes:.1f} minutes")


def _get_file(report: pytest.TestReport) -> str:
    return report.nodeid.split("::")[0]


def _read_reason(report: pytest.TestReport) -> str:
    words = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return words.removeprefix("Skipped: ")
