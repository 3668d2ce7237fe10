"""Probes of the installed software: packages, their pinned versions, which `utils` is imported, and
the environment variables that change how code runs.
"""

import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from distlab.doctor.commands import run_command
from distlab.doctor.findings import Finding
from utils.errors import shorten

COURSE = "distributed-training-lab"
CONSTRAINTS = Path(__file__).resolve().parents[2] / "constraints.txt"
SHOWN = {
    "TensorFlow": "tensorflow",
    "Keras": "keras",
    "tf_keras": "tf_keras",
    "JAX": "jax",
    "JupyterLab": "jupyterlab",
}
RIVALS = "tensorflow-cpu tensorflow-intel tensorflow-macos tf-nightly intel-tensorflow".split()
WITHOUT = {"jax": "`pip install -c constraints.txt jax` adds it"}  # the course does without
REPAIR = "`make lab` builds the environment; or `pip install -c constraints.txt -e '.[lab]'`"
FIND_UTILS = "import importlib.util as u; s = u.find_spec('utils'); print(s.origin if s else '')"


def read_pins() -> dict[str, str]:
    """Return the versions that the course was tested with, by normalized package name.

    From `constraints.txt` next to the package. Without that (an installed wheel), from the `==`
    requirements of the installed course.
    """
    try:
        lines = CONSTRAINTS.read_text().splitlines()
    except OSError:
        lines = _read_requirements()
    found = (re.match(r"([\w.-]+)==([^\s;,]+)", line) for line in lines)
    return {normalize_package(match[1]): match[2] for match in found if match}


def normalize_package(name: str) -> str:
    """Return a package's name in the one spelling that PEP 503 gives it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def examine_shown_packages(pins: dict[str, str] | None = None) -> list[Finding]:
    """Are TensorFlow, Keras, tf_keras, JAX and JupyterLab installed, in the pinned versions?"""
    pins = read_pins() if pins is None else pins
    return [_examine_package(title, name, pins) for title, name in SHOWN.items()]


def _examine_package(title: str, name: str, pins: dict[str, str]) -> Finding:
    wanted, installed = pins.get(normalize_package(name)), find_version(name)
    if installed is None:
        status = "missing" if name in WITHOUT else "problem"
        return Finding(title, status, "not installed", WITHOUT.get(name, REPAIR))
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
    shown = {normalize_package(name) for name in SHOWN.values()}
    missing = sorted(name for name in _name_required(requirements) if find_version(name) is None)
    installed = {name: find_version(name) for name in pins.keys() - shown}
    installed = {name: version for name, version in installed.items() if version is not None}
    drifted = sorted(name for name, version in installed.items() if version != pins[name])
    value = f"{len(installed) - len(drifted)} of {len(installed)} as pinned"
    if missing := [name for name in missing if normalize_package(name) not in shown]:
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
    """Return the installed version of the package `name`, None where it isn't installed."""
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
    """Return the packages that the course needs, and its `lab` extra's."""
    needed = [r for r in requirements if "extra ==" not in r or re.search(r"extra == .lab.", r)]
    names = (re.match(r"[\w.-]+", requirement) for requirement in needed)
    return [match[0] for match in names if match]


def examine_utils() -> Finding:
    """Do notebooks import this `utils`, or is there none, or another that comes first?

    Asks a Python started in the course's `notebooks/`, as a kernel is.
    """
    ours = Path(__file__).resolve().parents[2] / "utils" / "__init__.py"
    notebooks = ours.parents[1] / "notebooks"
    folder = notebooks if notebooks.is_dir() else Path.cwd()
    outcome = run_command([sys.executable, "-c", FIND_UTILS], 8.0, folder)
    if outcome.status != 0:
        value = outcome.last_error_line or "no answer"
        return Finding("utils", "warning", f"Python couldn't look for it: {value}", REPAIR)
    seen = outcome.output.strip()
    if not seen:
        advice = f"notebooks cannot import `utils`: {REPAIR}"
        return Finding("utils", "problem", "not installed in this Python", advice)
    if seen == "None" or Path(seen).resolve() != ours:
        where = "PYTHONPATH" if os.environ.get("PYTHONPATH") else "this environment"
        advice = f"another package of that name comes first: take it out of {where}; in a project "
        advice += "with its own `utils`, run `pip install ./utils` and import `distkit`"
        return Finding("utils", "problem", f"not the course's: {seen}", advice)
    return Finding("utils", "ok", str(ours.parent))


@dataclass(frozen=True)
class Rule:
    """A variable, the values that matter, how much, and its effect."""

    name: str
    matters: Callable[[str], bool]
    status: str
    advice: str


def _is_set(value: str) -> bool:
    return bool(value.strip())


def _is_on(value: str) -> bool:
    return value.strip().lower() in ("1", "true", "yes", "on")


def _is_off(value: str) -> bool:
    return value.strip().lower() in ("0", "false", "no", "off")


RULES = (
    Rule(
        "TF_CONFIG",
        _is_set,
        "warning",
        "every program started here believes it is a task of that cluster, and a multi-worker one "
        "waits for the others: `unset TF_CONFIG`",
    ),
    Rule(
        "TF_ENABLE_ONEDNN_OPTS",
        _is_off,
        "warning",
        "turns off the fast CPU kernels: a small CNN trained four times slower. "
        "`unset TF_ENABLE_ONEDNN_OPTS`; the banner is caught without it",
    ),
    Rule(
        "KERAS_BACKEND",
        lambda value: _is_set(value) and value != "tensorflow",
        "problem",
        "tf.distribute needs Keras on TensorFlow: `unset KERAS_BACKEND`",
    ),
    Rule(
        "TF_USE_LEGACY_KERAS",
        _is_on,
        "warning",
        "makes tf.keras the old tf_keras, while the course is about Keras 3: "
        "`unset TF_USE_LEGACY_KERAS`",
    ),
    Rule(
        "TF_XLA_FLAGS",
        lambda value: "auto_jit" in value,
        "warning",
        "compiles everything with XLA, which makes small CPU training slower: `unset TF_XLA_FLAGS`",
    ),
    Rule(
        "PYTHONOPTIMIZE",
        _is_set,
        "warning",
        "Python leaves out `assert`: lessons and labs check nothing. `unset PYTHONOPTIMIZE`",
    ),
)


def examine_variables(environment: Mapping[str, str] = os.environ) -> list[Finding]:
    """Return a finding for each variable that is in the way, or one that says that none is."""
    found = []
    for rule in RULES:
        value = environment.get(rule.name, "")
        if rule.matters(value):
            found.append(Finding(rule.name, rule.status, shorten(value), rule.advice))
    found += _examine_visible_gpus(environment) + _examine_proxy(environment)
    return found or [Finding("variables", "ok", "none in the way")]


def _examine_visible_gpus(environment: Mapping[str, str]) -> list[Finding]:
    name = "CUDA_VISIBLE_DEVICES"
    if name not in environment or not shutil.which("nvidia-smi"):
        return []
    value = environment[name].strip()
    seen = "no GPU" if value in ("", "-1") else f"only GPU {value}"
    advice = f"TensorFlow sees {seen}: `unset {name}` to let it see all"
    return [Finding(name, "warning", value or "(empty)", advice)]


def _examine_proxy(environment: Mapping[str, str]) -> list[Finding]:
    """gRPC takes a proxy from grpc_proxy, https_proxy or http_proxy, even for this machine."""
    names = ("grpc_proxy", "https_proxy", "http_proxy")
    used = next((name for name in names if environment.get(name)), None)
    spared = environment.get("no_grpc_proxy") or environment.get("no_proxy") or ""
    listed = {host.strip() for host in spared.split(",")}
    if used is None or "*" in listed or {"localhost", "127.0.0.1"} <= listed:
        return []
    advice = "workers on this machine may look for each other through it: "
    advice += "`export no_proxy=localhost,127.0.0.1`"
    return [Finding(used, "warning", "set, without this machine in no_proxy", advice)]
