"""`distlab lab` started for real, and the browser that looks at it."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import psutil
import pytest

from distlab.cli import lab

START_SECONDS, END_SECONDS = 60, 30
BROWSER_FLAGS = (
    "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update "
    "--disable-sync --no-first-run"
).split()


class Lab:
    """A running `distlab lab` with a home of its own."""

    def __init__(self, course: Path, home: Path, *options: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = [sys.executable, "-m", "distlab", "lab", "--no-browser", "--port", str(self.port)]
        root = str(Path(lab.__file__).parents[2])
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER", "JPY_"))}
        self.log = home / "lab.log"
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                [*command, *options], cwd=course, stdout=log, stderr=log,
                env={**clean, "HOME": str(home), "PYTHONPATH": path},
            )  # fmt: skip
        self.url, self.token = self._wait_for_address()
        self.server = psutil.Process(self.process.pid).children()[0]

    def _wait_for_address(self) -> tuple[str, str]:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            found = re.search(r"(http://127\.0\.0\.1:\d+/\S+)\?token=(\w+)", self.log.read_text())
            if found:
                return found.group(1), found.group(2)
            time.sleep(0.05)
        self.process.kill()
        raise AssertionError(f"distlab lab gave no address:\n{self.log.read_text()}")

    def ask(self, path: str, data: dict | None = None) -> dict | str:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/{path}",
            data=None if data is None else json.dumps(data).encode(),
            headers={"Authorization": f"token {self.token}"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read().decode()
        return json.loads(text) if path.lstrip("/").startswith(("api", "lab/api")) else text

    def start_kernel(self) -> list[psutil.Process]:
        self.ask("api/kernels", {"name": "python3"})
        deadline = time.monotonic() + START_SECONDS
        while not (kernels := lab.find_kernel_processes(self.server.pid)):
            assert time.monotonic() < deadline, "no kernel process appeared"
            time.sleep(0.05)
        return kernels

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(END_SECONDS)


def browser_path() -> str:
    """Return the path of Chromium; skip where it or Playwright is missing, but fail in CI."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        found = None
    if found is None:
        miss = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        miss("needs the package playwright and the program chromium")
    return found
