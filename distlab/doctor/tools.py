"""Probes of programs next to Python: browser, bubblewrap, Java, nvidia-smi; and of the data."""

import ctypes
import os
import re
import shutil
import sys
from pathlib import Path

from distlab.doctor.commands import Outcome, run_command
from distlab.doctor.findings import Finding
from utils.data import bundled
from utils.data.catalog import DATA_SETS
from utils.data.verify import Place, list_places
from utils.errors import DistributedError

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome", "firefox", "microsoft-edge")
MAC_BROWSERS = ("Google Chrome", "Chromium", "Firefox", "Safari")
SEAL = ("--ro-bind", "/", "/", "--unshare-all", "true")
JAVA_TESTED = 17
LIMIT_SECONDS = 8.0
SYSCTL = Path("/proc/sys")


def examine_browser(applications: Path = Path("/Applications")) -> Finding:
    """Is there a browser that `distlab lab` can open?"""
    for name in BROWSERS:
        if path := shutil.which(name):
            return Finding("browser", "ok", path)
    for name in MAC_BROWSERS if sys.platform == "darwin" else ():
        if (applications / f"{name}.app").exists():
            return Finding("browser", "ok", name)
    if path := shutil.which("wslview") or os.environ.get("BROWSER"):
        return Finding("browser", "ok", path)
    advice = "`distlab lab --no-browser` prints an address to open in a browser elsewhere"
    return Finding("browser", "missing", "none found", advice)


def examine_bubblewrap(limit_seconds: float = 5.0, sysctl: Path = SYSCTL) -> Finding:
    """Can bubblewrap seal a process, as grading needs: is it there, and does it really run?"""
    if sys.platform != "linux":
        return Finding("bubblewrap", "missing", "Linux only", "grading needs Linux or WSL2")
    path = shutil.which("bwrap")
    if path is None:
        advice = "only grading needs it; Debian, Ubuntu: `sudo apt install bubblewrap`"
        return Finding("bubblewrap", "missing", "not installed", advice)
    try:
        outcome = run_command([path, *SEAL], limit_seconds)
    except OSError as error:
        outcome = Outcome(126, "", str(error))
    if outcome.status == 0:
        try:
            ctypes.CDLL("libseccomp.so.2")
        except OSError:
            advice = "grading limits system calls with it; `sudo apt install libseccomp2`"
            return Finding("bubblewrap", "warning", f"{path}, but no libseccomp", advice)
        return Finding("bubblewrap", "ok", f"{path}, seals a process")
    if outcome.status is None:
        value = f"{path} gave no answer within {limit_seconds:g} s"
        return Finding("bubblewrap", "warning", value, "grading refuses to run unsealed")
    value = f"cannot seal: {outcome.last_error_line or f'exit status {outcome.status}'}"
    return Finding("bubblewrap", "warning", value, _explain_seal(sysctl))


def _explain_seal(sysctl: Path) -> str:
    """Say which setting of the kernel forbids unprivileged user namespaces."""
    forbidding = {
        "kernel/apparmor_restrict_unprivileged_userns": "1",
        "kernel/unprivileged_userns_clone": "0",
        "user/max_user_namespaces": "0",
    }
    for name, value in forbidding.items():
        path = sysctl / name
        if path.is_file() and path.read_text().strip() == value:
            setting = f"{name.replace('/', '.')}={value}"
            return f"grading refuses to run unsealed; {setting} forbids it: see docs/grading.md"
    return "grading refuses to run unsealed; a container may forbid it: grade on the host"


def examine_java() -> Finding:
    """Which Java is there? The Spark part of lesson 19 was tested on Java 17."""
    home = os.environ.get("JAVA_HOME")
    path = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    advice = f"only the Spark part of lesson 19 needs it; tested on Java {JAVA_TESTED}"
    if path is None:
        value = f"none in JAVA_HOME, {home}" if home else "not installed"
        return Finding("Java", "missing", value, advice)
    outcome = run_command([path, "-version"], LIMIT_SECONDS)
    if outcome.status is None:
        return Finding("Java", "warning", f"no answer within {LIMIT_SECONDS:g} s", advice)
    match = re.search(r'version "(\d+)(?:\.(\d+))?[^"]*"', outcome.errors + outcome.output)
    if outcome.status != 0 or match is None:
        return Finding("Java", "missing", "not installed", advice)
    version = int(match[2] or 0) if match[1] == "1" else int(match[1])
    if version != JAVA_TESTED:
        return Finding("Java", "warning", str(version), advice)
    return Finding("Java", "ok", str(version))


def examine_bundled_data(root: Path = bundled.FOLDER) -> list[Finding]:
    """Is the bundled sample of each data set complete, by its checksum?"""
    return [_examine_sample(name, title, root) for name, title in _titles().items()]


def _examine_sample(name: str, title: str, root: Path) -> Finding:
    try:
        data = bundled.verify_bundled(name, root)
    except DistributedError as error:
        return Finding(title, "problem", "the bundled sample is damaged", str(error))
    value = f"{len(data.train):,} + {len(data.test):,} bundled examples, verified"
    return Finding(title, "ok", value)


def examine_full_data(check: bool = True) -> list[Finding]:
    """Where is each full data set, and is it whole? `check=False` only looks where it is."""
    return [_examine_full(name, title, check) for name, title in _titles().items()]


def _examine_full(name: str, title: str, check: bool) -> Finding:
    label = f"full {title}"
    places = [p for p in list_places(name, check=check) if p.kind != "bundled sample"]
    if not places:
        advice = f"lessons use the sample; `distlab data fetch {name.replace('_', '-')}` gets it"
        return Finding(label, "missing", "not on this machine", advice)
    damaged = [place for place in places if place.state == "damaged"]
    if damaged:
        return Finding(label, "warning", "damaged; lessons use the sample", damaged[0].problem)
    return Finding(label, "ok", "; ".join(_describe_place(place) for place in places))


def _describe_place(place: Place) -> str:
    state = "verified" if place.state == "verified" else "not checked"
    return f"{place.kind} in {place.folder}, {state}"


def _titles() -> dict[str, str]:
    return {name: facts.title for name, facts in DATA_SETS.items()}
