"""The findings as text for people and as one record for programs, with what works here."""

import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from distlab.doctor.findings import STATUSES, Finding, can_run
from utils.strategies import CLUSTER, SINGLE_MACHINE

WIDTH = 80
MARKS = {"ok": "✓", "missing": "–", "warning": "!", "problem": "✗"}
PLAIN_MARKS = {"ok": "+", "missing": "-", "warning": "!", "problem": "x"}
NAME_WIDTH = 20
INDENT = 2 + 9 + NAME_WIDTH
WITHOUT = {  # finding -> what the course does without it
    "GPU": "speed: all strategies run, on logical CPU devices that share the cores",
    "bubblewrap": "grading: it refuses to run submissions that it can't seal",
    "JAX": "Keras on JAX, with keras.distribution",
    "Java": "the Spark part of lesson 19",
    "browser": "opening JupyterLab automatically: `distlab lab --no-browser` prints the address",
    "fork": "fast starts of workers: each imports TensorFlow itself",
    "full Fashion-MNIST": "`--full-data` with Fashion-MNIST: the bundled sample serves",
    "full MNIST": "`--full-data` with MNIST: the bundled sample serves",
}
NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"


def describe_works(findings: Sequence[Finding]) -> dict[str, Any]:
    """Return what of the course works here and what doesn't, as plain data.

    `lessons`: the notebooks that are here, each with whether it runs.
    `strategies`: those that `distlab train` has. `without`: what isn't to be had, and the
    finding that says why.
    """
    runs = can_run(findings)
    lacking = [f for f in findings if f.name in WITHOUT and f.status != "ok"]
    return {
        "lessons": {path.stem: runs for path in sorted(NOTEBOOKS.glob("[0-9][0-9]-*.ipynb"))},
        "strategies": list(SINGLE_MACHINE + CLUSTER) if runs else [],
        "without": [{"what": WITHOUT[f.name], "why": f"{f.name}: {f.value}"} for f in lacking],
    }


def make_record(findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the object that `--json` prints: `ok`, `findings`, `works`."""
    return {
        "ok": can_run(findings),
        "findings": [asdict(finding) for finding in findings],
        "works": describe_works(findings),
    }


def format_report(findings: Sequence[Finding], plain: bool = False) -> str:
    """Return the findings and what works here as text of 80 columns at most.

    Every line has its status as a word. `plain` keeps to ASCII marks.
    """
    lines = [line for finding in findings for line in _format_finding(finding, plain)]
    counts = {status: sum(f.status == status for f in findings) for status in STATUSES}
    lines += ["", "What works here", *_format_works(describe_works(findings)), ""]
    verdict = "The course can run here" if can_run(findings) else "The course can't run here yet"
    counted = ", ".join(f"{count} {_name_count(s, count)}" for s, count in counts.items() if count)
    return "\n".join([*lines, f"{verdict}: {counted}."])


def _format_finding(finding: Finding, plain: bool) -> list[str]:
    mark = (PLAIN_MARKS if plain else MARKS)[finding.status]
    status = f"{mark} {finding.status:<9}"
    first, *more = _wrap(finding.value, WIDTH - INDENT) or [""]
    advice = _wrap(finding.advice, WIDTH - INDENT - 3)
    more += [f"{'->' if number == 0 else '  '} {text}" for number, text in enumerate(advice)]
    lines = [f"{status}{finding.name:<{NAME_WIDTH}}{first}"]
    return lines + [" " * INDENT + text for text in more]


def _format_works(works: dict[str, Any]) -> list[str]:
    ready = ", ".join(name[:2] for name, runs in works["lessons"].items() if runs)
    texts = [f"lessons: {ready or 'none'}"]
    texts.append(f"distlab train --strategy: {', '.join(works['strategies']) or 'none'}")
    lines = [line for text in texts for line in _wrap_item(text)]
    if works["without"]:
        lines += ["", "What you do without here"]
        for item in works["without"]:
            lines += _wrap_item(f"{item['what']} ({item['why']})")
    return lines


def _wrap(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, break_on_hyphens=False)


def _wrap_item(text: str) -> list[str]:
    lines = _wrap(text, WIDTH - 4)
    return [f"  {line}" if number == 0 else f"    {line}" for number, line in enumerate(lines)]


def _name_count(status: str, count: int) -> str:
    return f"{status}s" if count != 1 and status in ("warning", "problem") else status
