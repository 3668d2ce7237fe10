"""The messages that identify a failed start: the entries of `symptoms.toml`."""

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TASK = r"/job:(?P<job>\w+)(?:/replica:\d+)?/task:(?P<index>\d+)"
ON_PEER = r"(?:(?!Additional GRPC)[^\n])*(?:\n[^\n]*remote target " + TASK + r")?"


@dataclass(frozen=True)
class Symptom:
    """One saying; the head of `symptoms.toml` says what the fields mean."""

    name: str
    pattern: re.Pattern[str]
    cause: str
    cure: str
    needs: str = ""
    said: Sequence[str] = ()


def _make_symptom(fields: dict[str, str | list[str]]) -> Symptom:
    said = fields["pattern"]
    pattern = said if isinstance(said, str) else "|".join(said)
    pattern = pattern.replace("{ON_PEER}", ON_PEER).replace("{TASK}", TASK)
    return Symptom(**fields | {"pattern": re.compile(pattern, re.MULTILINE)})


_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
CONFIGURATION, PROGRAM, OLD_PROGRAMS, EXCEPTIONS, COLLATERAL = (
    tuple(map(_make_symptom, _TABLE[kind]))
    for kind in ("configuration", "program", "old-program", "exception", "collateral")
)
PACKAGES: dict[str, str] = _TABLE["packages"]


def find_package(module: str) -> str:
    """Return the package that has `module`, as pip calls it; the module's own name if unknown."""
    top = module.split(".")[0]
    return PACKAGES.get(module) or PACKAGES.get(top, top)
