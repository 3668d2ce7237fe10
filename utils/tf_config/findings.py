"""What the linter of TF_CONFIG finds."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

SEVERITIES = ("error", "warning", "note")


@dataclass(frozen=True)
class Finding:
    """One thing about a configuration.

    `severity`: "error" (the cluster will not start, or not do what it says),
    "warning" (it may work, and often does not), "note" (right, and worth knowing).
    `where`: a path such as "cluster.worker[1]"; `what` is wrong there; `cure`: what
    to write instead, "" for a note that asks for nothing.
    """

    severity: str
    where: str
    what: str
    cure: str = ""

    def __post_init__(self) -> None:
        if self.severity not in SEVERITIES:
            raise ValueError(f"severity {self.severity!r}: one of {SEVERITIES}")

    def __str__(self) -> str:
        text = f"{self.severity}: {self.where}: {self.what}"
        return " ".join(f"{text}; {self.cure}".split() if self.cure else text.split())

    def to_record(self) -> dict[str, Any]:
        return asdict(self)


def is_right(findings: Iterable[Finding]) -> bool:
    """Return whether no finding is an error."""
    return all(finding.severity != "error" for finding in findings)


def show(value: object, most: int = 60) -> str:
    """Return `value` as it would be written in Python, cut to `most` characters, on one line."""
    text = repr(value)
    return text if len(text) <= most else text[: most - 1] + "…"
