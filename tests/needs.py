"""What some tests need that not every machine has, and how to get it.

A test that lacks one is skipped; the last line of a run says so. `.ci/run` installs all of
them for its second step, and fails if a test was skipped in both.
"""

import importlib.util
import os
import shutil
import subprocess

import pytest

EVERYTHING = os.environ.get("DISTLAB_TEST_ALL") == "1"  # as `make test-all` sets it
TOOLS = {
    "Chromium": "Debian's chromium, and pip install playwright",
    "Node.js": "Debian's nodejs",
    "bubblewrap": "Debian's bubblewrap and libseccomp2",
    "Slurm": "Debian's slurm-wlm and munge, and root",
    "Ray": "pip install -e '.[ray]'",
    "Spark": "pip install -e '.[spark]', and Debian's default-jre-headless",
    "Optuna": "pip install -e '.[search]'",
    "the manifests' checkers": "pip install -e '.[manifests]'",
    "a type checker": "pip install -e '.[types]'",
    "the book's builder": "pip install -e '.[book]'",
    "JupyterHub": "root, pip install -e '.[hub]', and npm's configurable-http-proxy on the PATH",
    "network namespaces": "root, and Debian's iproute2",
}
HARDWARE = ("a GPU", "a TPU")  # nothing installs these: a skip for want of one is no failure
WORDS = "needs {}: {}"


def skip_without(tool: str, why: str = "") -> None:
    """Skip the test, saying what it needs and how to get it (or `why` it can't be had)."""
    pytest.skip(WORDS.format(tool, why or TOOLS[tool]), allow_module_level=True)


def need_packages(tool: str, *modules: str) -> None:
    """Skip unless all `modules` can be imported."""
    if any(importlib.util.find_spec(module) is None for module in modules):
        skip_without(tool)


def need_browser() -> str:
    """Return the path of Chromium; skip if it or Playwright is missing."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        skip_without("Chromium")
    need_packages("Chromium", "playwright.sync_api")
    return found


def need_node() -> str:
    """Return the path of Node.js; skip if it's missing."""
    found = shutil.which("node")
    if found is None:
        skip_without("Node.js")
    return found


def need_engine(name: str) -> None:
    """Skip unless the engine `name` (ray, spark, slurm) is installed here."""
    from utils.engines.catalog import find_engine
    from utils.errors import InputError

    try:
        find_engine(name, None)
    except InputError:
        skip_without(name.capitalize())
    if name == "slurm" and os.getuid():
        skip_without("Slurm")


def need_hub() -> None:
    """Skip unless a hub with users of this machine can run here."""
    if os.getuid() or not all(map(shutil.which, ("configurable-http-proxy", "useradd"))):
        skip_without("JupyterHub")
    need_packages("JupyterHub", "jupyterhub")


def need_namespaces() -> None:
    """Skip unless this user can make a network namespace and a bridge."""
    from machines import Namespaces

    if os.getuid() or shutil.which("ip") is None:
        skip_without("network namespaces")
    try:
        Namespaces(1).close()
    except subprocess.CalledProcessError:
        skip_without("network namespaces")


def need_sandbox() -> None:
    """Skip unless submissions can be run in a sandbox here."""
    from distlab.errors import CourseError
    from distlab.grading.sandbox import check_can_seal

    try:
        check_can_seal()
    except CourseError as error:
        skip_without("bubblewrap", str(error) if shutil.which("bwrap") else "")
