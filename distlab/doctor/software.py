"""Probes of what is installed: packages and their pinned versions, which `utils` is imported."""

import os
import re
import sys
from importlib import metadata
from pathlib import Path

from distlab.doctor.commands import run_command
from distlab.doctor.findings import Finding

COURSE = "distributed-training-lab"
CONSTRAINTS = Path(__file__).resolve().parents[2] / "constraints.txt"
SHOWN = {
    "TensorFlow": "tensorflow",
    "Keras": "keras",
    "tf_keras": "tf_keras",
    "JupyterLab": "jupyterlab",
}
RIVALS = (
    "tensorflow-cpu", "tensorflow-intel", "tensorflow-macos", "tf-nightly", "intel-tensorflow",
)  # fmt: skip
REPAIR = "`make lab` builds the environment; or `pip install -c constraints.txt -e '.[lab]'`"
FIND_UTILS = "import importlib.util as u; s = u.find_spec('utils'); print(s.origin if s else '')"


def read_pins(constraints: Path = CONSTRAINTS) -> dict[str, str]:
    """Return the versions that the course was tested with, by normalised package name.

    From `constraints.txt` next to the package; where that is not (an installed
    wheel), from the `==` requirements of the installed course.
    """
    try:
        lines = constraints.read_text().splitlines()
    except OSError:
        lines = _read_requirements()
    found = (re.match(r"([\w.-]+)==([^\s;,]+)", line) for line in lines)
    return {normalise_package(match[1]): match[2] for match in found if match}


def normalise_package(name: str) -> str:
    """Return a package's name in the one spelling that PEP 503 gives it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def examine_shown_packages(pins: dict[str, str] | None = None) -> list[Finding]:
    """Are TensorFlow, Keras, tf_keras and JupyterLab there, in the pinned versions?"""
    pins = read_pins() if pins is None else pins
    return [_examine_package(title, name, pins) for title, name in SHOWN.items()]


def _examine_package(title: str, name: str, pins: dict[str, str]) -> Finding:
    wanted, installed = pins.get(normalise_package(name)), find_version(name)
    if installed is None:
        return Finding(title, "problem", "not installed", REPAIR)
    if wanted and installed != wanted:
        advice = f"the course was tested with {wanted}: `pip install {name}=={wanted}`"
        return Finding(title, "warning", installed, advice)
    return Finding(title, "ok", f"{installed}, as pinned" if wanted else installed)


def examine_other_packages(
    pins: dict[str, str] | None = None, requirements: list[str] | None = None
) -> Finding:
    """Is everything else that the course requires there, and at its pinned version?"""
    pins = read_pins() if pins is None else pins
    requirements = _read_requirements() if requirements is None else requirements
    shown = {normalise_package(name) for name in SHOWN.values()}
    missing = sorted(name for name in _name_required(requirements) if find_version(name) is None)
    installed = {name: find_version(name) for name in pins.keys() - shown}
    installed = {name: version for name, version in installed.items() if version is not None}
    drifted = sorted(name for name, version in installed.items() if version != pins[name])
    value = f"{len(installed) - len(drifted)} of {len(installed)} as pinned"
    if missing := [name for name in missing if normalise_package(name) not in shown]:
        return Finding("packages", "problem", f"missing: {', '.join(missing)}", REPAIR)
    rivals = [name for name in RIVALS if find_version(name) and find_version("tensorflow")]
    if rivals:
        advice = f"two TensorFlows overwrite each other's files: `pip uninstall {rivals[0]}`, "
        advice += "then install tensorflow again"
        return Finding("packages", "warning", f"{rivals[0]} next to tensorflow", advice)
    if drifted:
        named = ", ".join(f"{name} {installed[name]} ({pins[name]})" for name in drifted[:4])
        named += f" and {len(drifted) - 4} more" if len(drifted) > 4 else ""
        return Finding("packages", "warning", f"{value}; not: {named}", REPAIR)
    return Finding("packages", "ok", value)


def find_version(name: str) -> str | None:
    """Return the installed version of the package `name`, None where it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _read_requirements() -> list[str]:
    try:
        return metadata.requires(COURSE) or []
    except metadata.PackageNotFoundError:
        return []


def _name_required(requirements: list[str]) -> list[str]:
    """Return the packages that the course needs, and those of its `lab` extra."""
    needed = [r for r in requirements if "extra ==" not in r or re.search(r"extra == .lab.", r)]
    names = (re.match(r"[\w.-]+", requirement) for requirement in needed)
    return [match[0] for match in names if match]


def examine_utils(folder: Path | None = None) -> Finding:
    """Do notebooks import this `utils`, or is there none, or another that comes first?

    Asks a Python started in `folder`, by default the course's `notebooks/`, as a
    kernel is.
    """
    ours = Path(__file__).resolve().parents[2] / "utils" / "__init__.py"
    notebooks = ours.parents[1] / "notebooks"
    folder = folder or (notebooks if notebooks.is_dir() else Path.cwd())
    outcome = run_command([sys.executable, "-c", FIND_UTILS], 8.0, folder)
    if outcome.status != 0:
        value = outcome.last_error_line or "no answer"
        return Finding("utils", "warning", f"Python could not look for it: {value}", REPAIR)
    seen = outcome.output.strip()
    if not seen:
        advice = f"notebooks cannot import `utils`: {REPAIR}"
        return Finding("utils", "problem", "not installed in this Python", advice)
    if seen == "None" or Path(seen).resolve() != ours:
        where = "PYTHONPATH" if os.environ.get("PYTHONPATH") else "this environment"
        advice = f"another package of that name comes first: take it out of {where}; in a project "
        advice += "with its own `utils`, copy the folder of ours into it as `dist_utils`"
        return Finding("utils", "problem", f"not the course's: {seen}", advice)
    return Finding("utils", "ok", str(ours.parent))
