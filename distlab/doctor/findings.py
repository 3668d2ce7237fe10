"""The doctor's findings, and probes that may fail or hang without harm to the others."""

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from distlab.doctor.commands import end_running_commands

STATUSES = ("ok", "missing", "warning", "problem")


@dataclass(frozen=True)
class Finding:
    """One finding about the machine.

    `status`: "ok"; "missing" (not there, and the course does without); "warning"
    (the course runs, with the disadvantage that `advice` names); "problem" (the
    course can't run before `advice` is followed). `value` is what was found,
    `advice` what it means or what to do, in plain words, "" where nothing is.
    """

    name: str
    status: str
    value: str
    advice: str = ""

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ValueError(
                f"The status of {self.name} must be one of {STATUSES}, got {self.status!r}."
            )


@dataclass(frozen=True)
class Probe:
    """A function that looks at one thing, and the longest it may take.

    `look` returns one finding or several. If it fails or doesn't answer in `limit_seconds`, a
    finding called `name` says so.
    """

    name: str
    look: Callable[[], Finding | Iterable[Finding]]
    limit_seconds: float = 10.0
    results: list[Finding] = field(default_factory=list, compare=False)


def can_run(findings: Iterable[Finding]) -> bool:
    """Return whether the course can run: no finding is a problem."""
    return all(finding.status != "problem" for finding in findings)


def run_probes(probes: Iterable[Probe]) -> list[Finding]:
    """Run all probes at once, each in a thread. Return their findings in the probes' order.

    A probe that raises, or gives no answer within its limit, becomes a warning
    that says so. Programs that the probes started are ended on the way out.
    """
    probes = list(probes)
    threads = [threading.Thread(target=_look, args=(p,), daemon=True) for p in probes]
    begun = time.monotonic()
    try:
        for thread in threads:
            thread.start()
        found: list[Finding] = []
        for probe, thread in zip(probes, threads):
            thread.join(max(0.0, begun + probe.limit_seconds - time.monotonic()))
            found += _no_answer(probe) if thread.is_alive() else probe.results
        return found
    finally:
        end_running_commands()


def _look(probe: Probe) -> None:
    try:
        found = probe.look()
        probe.results[:] = [found] if isinstance(found, Finding) else list(found)
    except Exception as error:  # whatever happens here, the other probes continue
        lines = str(error).splitlines() or [""]
        value = f"could not be examined: {type(error).__name__}: {lines[0]}"
        probe.results[:] = [
            Finding(probe.name, "warning", value, "the other checks aren't affected")
        ]


def _no_answer(probe: Probe) -> list[Finding]:
    value = f"no answer within {probe.limit_seconds:g} s"
    advice = (
        "the machine is very busy, or what this check waits for (a network disk, a program) hangs"
    )
    return [Finding(probe.name, "warning", value, advice)]
