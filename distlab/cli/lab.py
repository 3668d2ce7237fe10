"""`distlab lab`: JupyterLab at the course home, on this machine only, that leaves nothing behind.

JupyterLab runs as a child in its own session, with the configuration
folder `distlab/lab_config` in front of the reader's (`JUPYTER_CONFIG_PATH`); the
reader's own settings are read as always and none is written. Its window
layout is kept in the course folder, under `.distlab`.

No signal reaches the child but from here: the first Ctrl-C, SIGTERM or SIGHUP asks it to shut its
kernels and itself down. What is still there after a few seconds is killed. Kernels, and what they
started, are known by the variable `JPY_PARENT_PID` that Jupyter gives them, so that a killed
server's kernels are found as well, and a browser that the server opened stays. On Linux the server
gets SIGTERM should this process be killed.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from urllib.parse import quote

import psutil

from distlab import progress
from distlab.cli.parser import Commands, add_command, declare
from distlab.errors import CourseError
from utils.checks import check_count, list_few, suggest
from utils.processes.lifetime import die_with_parent

CONFIG_FOLDER = Path(__file__).resolve().parent.parent / "lab_config"
GRACE_SECONDS = 10.0
END_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
OPTIONS = """
--port PORT  port to listen on [the first free port from 8888]
--no-browser  print the address, don't open a browser
--notebook NAME  open this notebook, such as 03 or 03-mirrored
"""


class _Stop(Exception):
    """A signal asked this process to end."""


def add_parser(subparsers: Commands) -> None:
    text = "Open the course in JupyterLab. Options after `--` are passed to `jupyter lab`."
    parser = add_command(subparsers, "lab", run, "open the course in JupyterLab", text)
    parser.usage = "distlab lab [options] [-- JupyterLab's options]"
    declare(parser, OPTIONS, port={"type": int})
    parser.add_argument("options", nargs="*", help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Run JupyterLab until it ends or a signal comes; return the exit status.

    0: it was ended in an orderly way (Ctrl-C, SIGTERM, SIGHUP, or from its own menu), otherwise the
    status of `jupyter lab`. Raises CourseError if the course folder or the notebook can't be found,
    the port isn't one, or for a word that isn't an option.
    """
    if arguments.options and not arguments.options[0].startswith("-"):
        word = arguments.options[0]
        raise CourseError(f"{word!r} isn't an option. Did you mean `--notebook {word}`?")
    folder = find_course_folder()
    page = find_page(folder, arguments.notebook)
    if arguments.port is not None:
        check_count("--port", arguments.port, 1, 65535)
    command = make_command(folder, page, arguments)
    print("JupyterLab is starting; Ctrl-C here ends it and its kernels.", flush=True)
    return supervise(command, make_environment(folder), folder)


def find_course_folder() -> Path:
    """Return the course folder in or above the current folder, else the package's own.

    Raises CourseError when neither is there.
    """
    own = Path(__file__).resolve().parents[2]
    return progress.find_course() or progress.require_course(own)


def find_page(folder: Path, name: str | None) -> str:
    """Return the notebook that `name` begins, relative to `folder`; "" (the home page) for None.

    Raises CourseError, which lists what there is, unless exactly one fits.
    """
    if name is None:
        return ""
    pages = sorted(
        path.relative_to(folder).as_posix()
        for part in ("notebooks", "labs", "solutions")
        for path in (folder / part).glob("*.ipynb")
    )
    wanted = re.sub(r"^(lab)?(\d)$", r"\g<1>0\2", name.removesuffix(".ipynb"))  # lab5 is lab05
    exact = [
        page for page in pages if page.removesuffix(".ipynb") in (wanted, f"notebooks/{wanted}")
    ]
    fitting = exact or [page for page in pages if Path(page).name.startswith(wanted)]
    fitting = [page for page in fitting if page.startswith("notebooks/")] or fitting
    fitting = [page for page in fitting if page.startswith("labs/")] or fitting
    if len(fitting) == 1:
        return fitting[0]
    listed = list_few(Path(page).stem for page in fitting or pages)
    trouble = "fits several notebooks" if fitting else "fits no notebook"
    stems = [Path(page).stem for page in pages]
    near = "" if fitting else suggest(wanted, [stem.split("-")[0] for stem in stems] + stems)
    raise CourseError(f"--notebook must be one of {listed}, got {name}: it {trouble}{near or '.'}")


def make_command(folder: Path, page: str, arguments: argparse.Namespace) -> list[str]:
    """Return the command line of JupyterLab. The options of the caller come last."""
    command = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={folder}"]
    if page:
        command.append(f"--LabApp.default_url=/lab/tree/{quote(page)}")
    if arguments.port is not None:
        command.append(f"--ServerApp.port={arguments.port}")
    if arguments.no_browser:
        command.append("--no-browser")
    return command + arguments.options


def make_environment(folder: Path) -> dict[str, str]:
    """Return the child's environment: our configuration first, its layout in `.distlab`."""
    environment = dict(os.environ)
    own = environment.get("JUPYTER_CONFIG_PATH")
    environment["JUPYTER_CONFIG_PATH"] = os.pathsep.join(
        [str(CONFIG_FOLDER), *([own] if own else [])]
    )
    environment["JUPYTERLAB_WORKSPACES_DIR"] = str(folder / ".distlab" / "workspaces")
    return environment


def supervise(command: list[str], environment: dict[str, str], folder: Path) -> int:
    """Run `command` until it ends or a signal comes, then leave no process of it behind."""
    with _signals_raise():
        child = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=partial(die_with_parent, signal.SIGTERM),
        )
        try:
            status = child.wait()
        except _Stop:
            status = 0
        finally:
            _block_signals()
            _end(child)
    return status


@contextmanager
def _signals_raise() -> Iterator[None]:
    """Raise _Stop on the first signal that asks to end; ignore those after it."""

    def stop(number: int, frame: object) -> None:
        _block_signals()
        raise _Stop

    before = {number: signal.signal(number, stop) for number in END_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _block_signals() -> None:
    for number in END_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _end(child: subprocess.Popen) -> None:
    """End the server and its kernels: first asking, then killing."""
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
    left = find_kernel_processes(child.pid)
    for ask in (psutil.Process.terminate, psutil.Process.kill):
        for process in left:
            with suppress(psutil.NoSuchProcess):
                ask(process)
        _, left = psutil.wait_procs(left, timeout=2.0)


def find_kernel_processes(server_pid: int) -> list[psutil.Process]:
    """Return the kernels of a server, and what they started, by the server's process id."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.environ().get("JPY_PARENT_PID") == str(server_pid):
                found.append(process)
    return found
