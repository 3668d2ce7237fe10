"""Compare what has to be the same on every machine of a run, and name what differs."""

import hashlib
import importlib.metadata
import platform
import shutil
import socket
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from ... import __version__
from ...errors import InputError
from ..settings import RunSettings
from .settings import RendezvousSettings

DISTRIBUTIONS = {
    "TensorFlow": ("tensorflow", "tensorflow-cpu", "tensorflow-macos"),
    "Keras": ("keras",),
}
CURES = {
    "Python": "Use the same Python on every machine.",
    **dict.fromkeys(
        ("distkit", "TensorFlow", "Keras"), "Install the same version on every machine."
    ),
    "program": "Copy the same file to every machine.",
    "course": "Use the same copy of the course on every machine.",
}
CURE = "Type the same command on every machine."
MAX_SHOWN = 80


def describe_machine(
    command: Sequence[str], settings: RunSettings | None, rendezvous: RendezvousSettings
) -> dict[str, Any]:
    """Return what this machine brings: plain data that a host compares with its own."""
    is_wsl, gathering = "microsoft" in platform.release().lower(), rendezvous.gathering
    if gathering is None:
        same = {"command": "run"} | find_versions() | describe_line(command, settings)
        same["--grow"] = rendezvous.grow
        return {"same": same, "host": socket.gethostname(), "wsl": is_wsl}
    same = {"command": gathering.kind} | find_versions() | dict(gathering.same)
    return {"same": same, "host": gathering.name, "wsl": is_wsl, "test": gathering.only_tests}


def find_versions() -> dict[str, str]:
    """Return the versions of Python, this library, TensorFlow and Keras; no module is imported."""
    python = ".".join(platform.python_version_tuple()[:2])
    return {"Python": python, "distkit": __version__} | {
        name: find_version(name) for name in DISTRIBUTIONS
    }


def describe_line(command: Sequence[str], settings: RunSettings) -> dict[str, str]:
    """Return what a command line says, and the program that it names."""
    same, program = {}, find_program(command)
    in_python = command[0] == sys.executable  # which may be in another place elsewhere
    same["program"] = hash_file(program) if program else " ".join(command[in_python:][:2])
    same["options"] = " ".join(command[2:] if in_python else command[1:])
    same["--workers"] = settings.workers_text
    same["--ps"] = str(settings.ps)
    given = "with --tf-config" if settings.tf_config else "given"
    same["--independent"] = given if settings.independent else "not given"
    same["--checkpoint-dir"] = "given" if settings.checkpoint_dir else "not given"
    same["--max-restarts"] = str(settings.max_restarts)  # only the host's counts, as what follows
    idle = settings.idle_timeout_seconds
    same["--idle-timeout"] = "not given" if idle is None else f"{idle:g}"
    return same


def find_version(name: str) -> str:
    """Return the installed version, "none" if there isn't one; nothing is imported."""
    for distribution in DISTRIBUTIONS[name]:
        try:
            return importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "none"


def find_program(command: Sequence[str]) -> Path | None:
    """Return the file that the command runs: a Python file, a module's, or another program."""
    if command[0] != sys.executable:
        found = shutil.which(command[0])
    elif command[1:2] == ["-m"]:
        found = find_module(command[2])
    else:
        found = command[1]
    return Path(found) if found and Path(found).is_file() else None


def find_module(name: str) -> str | None:
    """Return the file that `python -m name` runs in this folder; nothing is imported."""
    places, spec = ["", *sys.path], None
    for part in name.split("."):
        spec = PathFinder.find_spec(part, places)
        if spec is None:
            return None
        places = spec.submodule_search_locations
    if places is not None:
        spec = PathFinder.find_spec("__main__", places)
    return spec and spec.origin


def hash_file(path: Path) -> str:
    """Return the file's SHA-256, as much of it as tells two versions apart.

    Raises InputError where it can't be read.
    """
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()[:16]
    except OSError as error:
        raise InputError(f"{path} can't be read ({error.strerror}). Fix its permissions.") from None


def find_difference(host: Mapping[str, Any], member: Mapping[str, Any]) -> str | None:
    """Return the first difference, with both values and a fix; None if there isn't one."""
    for name, wanted in host.items():
        got = member.get(name)
        if got != wanted:
            cure = CURES.get(name, CURE)
            return f"{name} must be the host's, {_cut(wanted)}, got {_cut(got)}. {cure}"
    return None


def _cut(value: Any) -> str:
    text = "none" if value in (None, "") else str(value)
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "…"
