"""Runs the cells of one submission as a notebook would, inside the sandbox.

This process also runs the learner's code, so nothing that it says is trusted: it says
what happened through a pipe, as frames that the other side reads with limits. A frame
is one line of JSON; where it has a `size`, as many bytes follow.
"""

import json
import os
import random
import re
import sys
import time
import traceback
from typing import Any

import numpy as np

from distlab.grading.encoding import encode

MAX_NAMES, MAX_TEXT = 64, 4000
_LEARNERS = re.compile(r"^<ipython-input-(\d+)-")


class Runner:
    """One submission: `order` holds its cells and the seed, `channel` is the pipe for frames."""

    def __init__(self, shell: Any, order: dict[str, Any], channel: int) -> None:
        self.shell, self.order, self.channel = shell, order, channel
        self.process = os.getpid()
        self.labels: dict[int, str] = {}
        self.graded_lines: set[int] = set()

    def run(self) -> None:
        """Run every cell in turn; then again those graded cells that lacked what came later."""
        unanswered = [k for k, cell in enumerate(self.order["cells"]) if not self.run_cell(k, cell)]
        for k in unanswered:
            self.run_cell(k, self.order["cells"][k], again=True)
        self.say({"at": "done"})

    def run_cell(self, k: int, cell: dict[str, Any], again: bool = False) -> bool:
        """Run cell `k`; return False only for a graded cell that lacked a name."""
        graded = cell["kind"] == "graded"
        self.labels[self.shell.execution_count] = cell["label"]
        if graded:
            self.graded_lines.add(self.shell.execution_count)
            self.prepare(cell)
        self.say({"at": "begin", "cell": k, "again": again})
        for descriptor in (1, 2):  # a mark, to tell what each cell writes
            os.write(descriptor, b"\0" + f"{self.order['token']}:{k:06}".encode())
        begun = time.monotonic()
        try:
            error = self.execute(cell["source"])
            got = self.collect() if graded else {}
        except BaseException as mistake:  # an interrupt in between, or a learner's object
            error, got = mistake, {}
        self.leave_if_forked()
        frame = {"at": "end", "cell": k, "again": again, "status": "raised" if error else "ok",
                 "seconds": time.monotonic() - begun, **describe(error, self)}  # fmt: skip
        self.say(frame, json.dumps(got).encode())
        return not (graded and isinstance(error, NameError) and set(cell["got"]) - set(got))

    def prepare(self, cell: dict[str, Any]) -> None:
        space = self.shell.user_ns
        for name in [n for n in space if isinstance(n, str) and n.startswith("got_")]:
            del space[name]
        space["SEED"] = self.order["seed"]

    def execute(self, source: str) -> BaseException | None:
        result = self.shell.run_cell(source, store_history=True)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        return result.error_before_exec or result.error_in_exec

    def collect(self) -> dict[str, Any]:
        space = self.shell.user_ns
        names = [n for n in space if type(n) is str and n.startswith("got_")]
        return {name[:80]: encode(space[name]) for name in names[:MAX_NAMES]}

    def say(self, frame: dict[str, Any], body: bytes | None = None) -> None:
        if body is not None:
            frame["size"] = len(body)
        data = json.dumps(frame).encode() + b"\n" + (body or b"")
        while data:
            data = data[os.write(self.channel, data) :]

    def leave_if_forked(self) -> None:
        """A process that the learner's code forked, and that came back here, has nothing to say."""
        if os.getpid() != self.process:
            os._exit(0)


def describe(error: BaseException | None, runner: Runner) -> dict[str, str]:
    """Return the error in one line and the learner's own frames, whatever the error does."""
    if error is None:
        return {"error": "", "trace": ""}
    kind = type(error).__name__
    try:
        text = str(error).strip() or kind
        said = kind if text == kind else f"{kind}: {text}"
        frames = traceback.extract_tb(error.__traceback__)
        lines = [line for frame in frames if (line := describe_frame(frame, runner))]
        if isinstance(error, SyntaxError) and not lines and error.lineno:
            lines = [f"line {error.lineno}: {str(error.text or '').strip()[:200]}"]
    except BaseException:  # the learner's own exception class
        said, lines = kind, []
    return {"error": said[:MAX_TEXT], "trace": "\n".join(lines[-6:])[:MAX_TEXT]}


def describe_frame(frame: traceback.FrameSummary, runner: Runner) -> str:
    found = _LEARNERS.match(frame.filename)
    count = int(found[1]) if found else -1
    if not found or count in runner.graded_lines:
        return ""
    where = runner.labels.get(count, "a cell")
    return f"{where}, line {frame.lineno} in {frame.name}: {(frame.line or '')[:200]}"


def make_shell() -> Any:
    """Return IPython's shell, without history, colours or anything that writes a file."""
    from IPython.core.history import HistoryManager
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    HistoryManager.enabled = False
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "nocolor"
    config.InteractiveShell.enable_tip = False
    shell = InteractiveShell.instance(config=config)
    quiet = lambda *a, **k: None  # noqa: E731 - the error travels in its own frame
    shell._format_exception_for_storage = lambda *a, **k: {}  # slow with TensorFlow's modules
    shell.system = shell.system_piped  # as in a kernel: without a terminal
    shell.showtraceback = shell.showsyntaxerror = shell.showindentationerror = quiet
    return shell


def run_order(shell: Any, order_file: int, channel: int) -> None:
    """Read the order, go to the folder that it names, and run its cells."""
    with os.fdopen(order_file, "rb") as file:
        file.seek(0)
        order = json.loads(file.read())
    home = order["folder"]
    for name in ("work", "home"):
        os.makedirs(f"{home}/{name}", exist_ok=True)
    os.environ.update(HOME=f"{home}/home", TMPDIR=home, MPLCONFIGDIR=f"{home}/home/mpl")
    os.chdir(f"{home}/work")
    sys.path.insert(0, "")
    random.seed(order["seed"])
    np.random.seed(order["seed"] % 2**32)
    Runner(shell, order, channel).run()
