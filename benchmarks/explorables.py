"""Explorables: milliseconds from the input event to the next painted frame, while one core trains.

Each example is opened in Chromium and moved by the keyboard. The time runs from the moment
that the browser stamped on the event to just after the frame in which the piece drew its
answer was handed to the screen. Needs playwright and chromium.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from distlab.explorables.amdahl import amdahl_explorer
from distlab.explorables.catalog import EXAMPLES
from distlab.explorables.choosing import choosing_explorer
from distlab.explorables.explorer import Explorer
from distlab.explorables.page_replicas import RECORDING, write_page_replicas
from distlab.explorables.screenshots import find_chromium, write_page
from utils.data import load


def _freeze(explorer: Explorer) -> Explorer:
    explorer._repr_mimebundle_()  # as when it is shown
    return explorer


PIECES = EXAMPLES | {
    "lines": lambda: _freeze(amdahl_explorer(0.9, {"measured": {2: 1.7}})),
    "choosing": lambda: _freeze(choosing_explorer()),
}
MOVES_A_ROUND, LIMITS_MS = 12, (50, 100)
_TRAIN = "train --strategy one-device --epochs 1000".split()
_WATCH = """() => {
  window.times = [];
  window.addEventListener("input", (event) => requestAnimationFrame(() => {
    const painted = new MessageChannel();
    painted.port1.onmessage = () => window.times.push(performance.now() - event.timeStamp);
    painted.port2.postMessage(0);
  }), true);
}"""


def run(rounds: int) -> None:
    """Print median and 95th percentile of each example over `rounds` rounds of moves."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        print("\nExplorables: not measured, playwright is not installed")
        return
    print("\nExplorables, milliseconds from the input to the painted frame, while one core trains")
    print(f"{'piece':<14}{'moves':>8}{'median':>10}{'95 %':>10}")
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder, train():
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        for name in PIECES:
            times = sorted(measure(browser, name, Path(folder), rounds))
            median, late = statistics.median(times), times[int(0.95 * len(times))]
            held = median <= LIMITS_MS[0] and late <= LIMITS_MS[1]
            mark = "" if held else "  more than 50 and 100"
            print(f"{name:<14}{len(times):>8}{median:>10.1f}{late:>10.1f}{mark}", flush=True)
        rate = count_steps(browser, Path(folder))
        print(f"\nlesson 00's replicas in the page: {rate:.0f} steps per second")
        browser.close()


def count_steps(browser, folder: Path) -> float:
    """Return the steps per second with which a page without a kernel trains two replicas."""
    path = folder / "replicas_page.html"
    text = write_page_replicas(load("fashion_mnist"), RECORDING.as_uri())
    path.write_text(f"<!doctype html><body>{text}</body>", encoding="utf-8")
    page = browser.new_page(viewport={"width": 1270, "height": 1000})
    page.goto(path.as_uri())
    page.wait_for_timeout(6000)  # after the slow first steps
    steps = []
    for _ in range(2):
        label = page.locator("canvas").get_attribute("aria-label")
        steps.append((int(label.split(".")[0].removeprefix("Step ")), time.perf_counter()))
        page.wait_for_timeout(5000)
    page.close()
    (first, begun), (last, ended) = steps
    return (last - first) / (ended - begun)


def measure(browser, name: str, folder: Path, rounds: int) -> list[float]:
    """Return the milliseconds of each move of the example's sliders, or of keys in its fields."""
    page = browser.new_page(viewport={"width": 1270, "height": 1000})
    page.goto(write_page(PIECES[name](), folder / f"{name}.html").as_uri())
    page.evaluate(_WATCH)
    page.evaluate("document.querySelectorAll('.ex-more').forEach((more) => (more.open = true))")
    sliders, keys = page.locator(".ex-slider input, .ex-player input"), ("ArrowRight", "ArrowLeft")
    if not sliders.count():
        sliders, keys = page.locator("textarea"), ("Space", "Backspace")
    for number in range(rounds * MOVES_A_ROUND):
        sliders.nth(number // 2 % sliders.count()).focus()
        page.keyboard.press(keys[number % 2])
        page.wait_for_timeout(60 if number % 3 else 400)  # gliding, or at rest
    times = page.evaluate("window.times")
    page.close()
    return times


@contextmanager
def train() -> Iterator[None]:
    """Keep a core busy with a real training run, and end it."""
    command = [sys.executable, "-m", "distlab", *_TRAIN]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    training = subprocess.Popen(["taskset", "-c", "0", *command], start_new_session=True, **quiet)
    try:
        yield
        assert training.poll() is None, f"{' '.join(command)} ended early: {training.returncode}"
    finally:
        training.kill()
        training.wait()
