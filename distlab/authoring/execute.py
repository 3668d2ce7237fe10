"""Run a notebook's cells in a fresh kernel that leaves nothing behind.

Library: https://nbclient.readthedocs.io (NotebookClient).
"""

import asyncio
import atexit
import contextlib
import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import psutil
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

from distlab.errors import CourseError
from distlab.keras_backend import pick_variables
from utils.processes import keeper


class KernelGroup:
    """The processes of one kernel: its process group, and what its cells started."""

    live: ClassVar[set["KernelGroup"]] = set()

    def __init__(self) -> None:
        self.leader: int | None = None
        self.started: dict[int, psutil.Process] = {}
        self.out_of_time = False

    def note_children(self) -> None:
        """Remember the descendants alive now, so that none outlives the kernel as an orphan."""
        with contextlib.suppress(psutil.Error):
            if self.leader:
                for child in psutil.Process(self.leader).children(recursive=True):
                    self.started[child.pid] = child

    def kill(self) -> None:
        """End every process of the group, and every noted descendant, with SIGKILL.

        Only keepers are spared: each ends what its own launcher left, and then itself.
        """
        self.note_children()
        for child in self.started.values():
            with contextlib.suppress(psutil.Error):
                if keeper.__name__ not in child.cmdline():
                    child.kill()  # psutil compares start times: a reused pid is safe
        if self.leader:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.leader, signal.SIGKILL)

    def expire(self) -> None:
        self.out_of_time = True
        self.kill()

    @contextlib.contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Kill the group when the block ends, or after `seconds`, whichever comes first."""
        watchdog = threading.Timer(seconds, self.expire)
        watchdog.daemon = True
        KernelGroup.live.add(self)
        watchdog.start()
        try:
            yield
        finally:
            watchdog.cancel()
            self.kill()
            KernelGroup.live.discard(self)


class _Client(NotebookClient):
    """nbclient with this interpreter's own kernel, whose process group is known.

    Their sockets are files in `profile`: a free TCP port may be taken by another program
    between Jupyter's choice of it and the kernel's bind.
    """

    group: KernelGroup
    profile: str
    cell_index = -1

    def create_kernel_manager(self) -> AsyncKernelManager:
        specs = KernelSpecManager(kernel_dirs=[], ensure_native_kernel=True)
        sockets = {"transport": "ipc", "ip": f"{self.profile}/kernel"}
        self.km = AsyncKernelManager(kernel_name="python3", kernel_spec_manager=specs, **sockets)
        return self.km

    async def async_start_new_kernel(self, **kwargs: Any) -> None:
        await super().async_start_new_kernel(**kwargs)
        self.group.leader = self.km.provisioner.pid
        if self.group.out_of_time:  # before there was anything to kill
            self.group.kill()

    async def _async_cleanup_kernel(self) -> None:
        # a cell that ran out of time: find its processes while its kernel lives
        self.group.note_children()
        await super()._async_cleanup_kernel()

    def note_cell(self, cell: Any, cell_index: int, **_: Any) -> None:
        self.cell_index = cell_index
        self.group.note_children()


def execute_notebook(notebook: Any, folder: Path, seconds: float, cell_seconds: float) -> None:
    """Run all cells of `notebook` in place, in `folder`, and leave no process behind.

    The kernel's environment has PYTEST_CURRENT_TEST set, so that what C++ or
    child processes write stays out of the outputs, as it does under nbval, and
    no TF_CONFIG. A cell with `seconds` in its metadata has that limit, and adds it to the
    notebook's. Raises CourseError, which names the cell, for an error in a
    cell without the tag `raises-exception`, anything on standard error, a dead
    kernel, or more than `cell_seconds` in a cell or `seconds` in all.
    """
    longer = sum(cell.metadata.get("seconds", 0) for cell in notebook.cells)
    _run(_make_client(notebook, folder, cell_seconds), seconds + longer)
    _refuse_stderr(notebook)


def run_cells(notebook: Any, folder: Path, seconds: float, cell_seconds: float) -> None:
    """Run all cells in place, whatever they raise, and leave no process behind.

    A cell that takes more than `cell_seconds` is interrupted, and the next one runs.
    Raises CourseError for a dead kernel, or more than `seconds` in all.
    """
    client = _make_client(notebook, folder, cell_seconds, allow_errors=True)
    client.interrupt_on_timeout = True
    _run(client, seconds)


def _run(client: _Client, seconds: float) -> None:
    client.group = group = KernelGroup()
    with (
        tempfile.TemporaryDirectory() as profile,
        open(f"{profile}/log", "w+b") as log,
        group.within(seconds),
    ):
        client.profile = profile
        try:
            asyncio.run(_execute(client, log))
        except CellExecutionError as error:
            raise _failure(client, f"{error.ename}: {error.evalue}") from error
        except CellTimeoutError as error:
            limit = client.timeout_func(client.nb.cells[client.cell_index])
            raise _failure(client, f"took more than {limit:g} s") from error
        except (DeadKernelError, RuntimeError) as error:
            atexit.unregister(client._cleanup_kernel)  # nbclient forgets it of one that dies early
            log.seek(0)
            said = log.read().decode(errors="replace").strip().split("\n")[-1]
            late = f"the notebook took more than {seconds:g} s"
            died = f"the kernel died ({said or error})"
            raise _failure(client, late if group.out_of_time else died) from error


def _make_client(notebook: Any, folder: Path, cell_seconds: float, **options: Any) -> _Client:
    client = _Client(
        notebook,
        **options,
        timeout_func=lambda cell: cell.metadata.get("seconds", cell_seconds),
        startup_timeout=120,
        record_timing=False,
        store_widget_state=False,
        resources={"metadata": {"path": str(folder)}},
    )
    client.on_cell_execute = client.on_cell_executed = client.note_cell
    return client


async def _execute(client: _Client, log: Any) -> None:
    environment = dict(os.environ, PYTEST_CURRENT_TEST="distlab build", IPYTHONDIR=client.profile)
    for name in ("TF_CONFIG", "MPLBACKEND", "PYTHONSTARTUP", "JPY_SESSION_NAME"):
        environment.pop(name, None)
    environment |= pick_variables(client.nb.metadata)
    await client.async_execute(env=environment, stdout=log, stderr=log, cleanup_kc=True)


def _failure(client: _Client, what: str) -> CourseError:
    cell = client.nb.cells[client.cell_index] if client.cell_index >= 0 else None
    first = cell.source.split("\n")[0][:60] if cell else "before the first cell"
    return CourseError(f"cell {client.cell_index} ({first}): {what.strip()}")


def _refuse_stderr(notebook: Any) -> None:
    for index, cell in enumerate(notebook.cells):
        for output in cell.get("outputs", []):
            if output.output_type == "stream" and output.name == "stderr":
                text = output.text.strip().split("\n")[-1][:200]
                raise CourseError(f"cell {index} must not write to standard error, got: {text}")
