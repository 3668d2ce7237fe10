"""The fork server of the sandbox: it has imported TensorFlow and forks ready submissions.

It keeps nothing of any submission. Each is a small process 1 (it reaps, and forwards an
interrupt) and the runner below it, both below `outer`, the server's own child, which
stays outside their namespaces and waits. When process 1 is killed, the kernel ends
everything in its namespaces.

`python -m distlab.grading.submission_server sealed|unsealed LAB onednn=0|1 [DATA …]
DESCRIPTOR`, started by `sandbox.SubmissionServer`.
"""

import importlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from distlab.grading import process_tree, sealing
from utils.processes.fork_server import Child, ForkLoop, serve
from utils.processes.lifetime import die_with_parent
from utils.processes.preload import import_modules, import_tensorflow

WATCH_SECONDS, NICER = 0.1, 5


class SubmissionLoop(ForkLoop):
    """Forks submissions. A request has `memory_mib` and `processes`, the most of each.

    The descriptors: the order to read, where frames, output and errors go.
    """

    watch_seconds = WATCH_SECONDS

    def __init__(self, sealed: bool, lab: str, onednn: str, data: Sequence[str]) -> None:
        super().__init__()
        self.sealed, self.lab, self.onednn, self.data = sealed, lab, onednn, data
        self.shell: Any = None

    def check(self) -> str:
        """Seal a child for trial, after root has been dropped."""
        if not self.sealed:
            return ""
        sealing.drop_root()
        return try_to_seal()

    def prepare(self) -> Mapping[str, Any]:
        os.environ["TF_ENABLE_ONEDNN_OPTS"] = self.onednn
        self.shell = import_everything(self.lab, self.data)
        from utils.environment import versions

        return {"versions": versions()}

    def run(self, request: Any, body: bytes, descriptors: Sequence[int]) -> int:
        """As the outer process: make the namespaces and wait for their process 1."""
        if self.sealed:
            sealing.enter_namespaces()
        first = os.fork()
        if first == 0:
            status = 1
            try:
                die_with_parent()
                status = be_first(self, descriptors, request["processes"])
            except Exception as error:
                os.write(2, f"{error}\n".encode())
            finally:
                os._exit(status)
        close_all_but(set())
        return _wait_for(first)

    def send_signal(self, child: Child, number: int) -> None:
        """Interrupt or kill a submission: its process 1 is the only child of its outer one."""
        first = process_tree.find_children(child.process)
        if number == signal.SIGINT:
            process_tree.send_signal(first, signal.SIGUSR1)
        else:
            everyone = [] if self.sealed else process_tree.find_tree(child.process)
            process_tree.send_signal([*(first or [child.process]), *everyone], signal.SIGKILL)

    def watch(self) -> None:
        """End a submission that has too many processes or too much memory."""
        for child in self.children.values():
            if child.why:
                continue
            members = process_tree.find_tree(child.process)
            most, memory_mib = child.request["processes"], child.request["memory_mib"]
            if len(members) > most:
                child.why = f"it had more than {most} processes"
            elif process_tree.measure_memory_mib(members, memory_mib) > memory_mib:
                child.why = f"it used more than {memory_mib:,} MiB of memory"
            if child.why:
                self.send_signal(child, signal.SIGKILL)

    def clear_up(self) -> None:
        folder = os.environ["TMPDIR"]  # sealed, it is gone with the sandbox
        if not self.sealed and os.path.basename(folder).startswith(process_tree.FOLDER_PREFIX):
            shutil.rmtree(folder, ignore_errors=True)  # also where the parent was killed


def be_first(server: SubmissionLoop, descriptors: Sequence[int], most: int) -> int:
    """As process 1: seal, start the runner, forward interrupts to it, reap, end with it."""
    order, channel, output, errors = descriptors
    os.setsid()
    os.nice(NICER)
    os.dup2(output, 1)
    os.dup2(errors, 2)
    if server.sealed:
        sealing.seal(count_threads(most))
    else:
        sealing.call("prctl", sealing.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    runner = os.fork()
    if runner == 0:
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        close_all_but({0, 1, 2, order, channel})
        return be_runner(server.shell, order, channel)
    signal.signal(signal.SIGUSR1, lambda *_: os.kill(runner, signal.SIGINT))
    close_all_but(set())
    status = _wait_for(runner)
    if not server.sealed:
        process_tree.send_signal(process_tree.find_tree(os.getpid())[1:], signal.SIGKILL)
    return status


def be_runner(shell: Any, order: int, channel: int) -> int:
    from distlab.grading.cell_runner import run_order

    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = open(number, "w", buffering=1, encoding="utf-8", errors="backslashreplace",
                      closefd=False)  # fmt: skip
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    tempfile.tempdir = None  # looked up again in TMPDIR
    run_order(shell, order, channel)
    sys.stdout.flush()
    return 0


def count_threads(most_processes: int) -> int:
    """Return how many threads a submission may have: TensorFlow makes several for each core."""
    return 12 * most_processes + 16 * (os.cpu_count() or 1)


def close_all_but(kept: set[int]) -> None:
    """Close this process's descriptors, without /proc: it may show other namespaces by now."""
    first = 0
    for descriptor in (*sorted(kept), os.sysconf("SC_OPEN_MAX")):
        if first < descriptor:  # closerange(0, 0) would close everything
            os.closerange(first, descriptor)
        first = descriptor + 1


def _wait_for(wanted: int) -> int:
    """Reap children until `wanted` has ended; return its exit status, 128 + N for signal N."""
    while True:
        ended, status = os.wait()
        if ended == wanted:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def import_everything(lab: str, data: Sequence[str]) -> Any:
    """Import what submissions of `lab` need, also what is imported late; read the sets `data`.

    Return IPython's shell.
    """
    import_tensorflow()
    import_modules()
    import IPython.core.magics  # noqa: F401
    import IPython.display  # noqa: F401

    from distlab.grading import cell_runner
    from utils.data import load

    for name in data:
        load(name)
    importlib.import_module(f"distlab.exercises.{lab}")
    shell = cell_runner.make_shell()
    shell.run_cell("import matplotlib.pyplot")  # as cells do; MPLBACKEND is Agg
    shell.reset(new_session=True)
    shell.execution_count = 1
    return shell


def try_to_seal() -> str:
    """Seal a child for trial; return why it failed, "" if it did not."""
    reader, writer = os.pipe()
    outer = os.fork()
    if outer == 0:
        try:
            sealing.enter_namespaces()
            first = os.fork()
            if first == 0:
                sealing.seal(64)
                os._exit(0)
            os._exit(_wait_for(first))
        except BaseException as error:
            os.write(writer, str(error).encode()[:500])
            os._exit(1)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        said = file.read(500).decode(errors="replace")
    _, status = os.waitpid(outer, 0)
    return said or (f"exit status {status}" if status else "")


if __name__ == "__main__":
    kind, lab, onednn, *data, _ = sys.argv[1:]
    serve(SubmissionLoop(kind == "sealed", lab, onednn.removeprefix("onednn="), data))
