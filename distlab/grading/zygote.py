"""The fork server of the sandbox: it has imported TensorFlow and forks ready submissions.

It has one thread and runs no TensorFlow operation (forking is unsafe otherwise), keeps
nothing of any submission, and ends with its parent. Each submission is a small process
1 (it reaps, and forwards an interrupt) and the runner below it. When process 1 is
killed, the kernel ends everything in its namespaces.

`python -m distlab.grading.zygote DESCRIPTOR sealed|unsealed LAB onednn=0|1 [DATA …]`,
started by `sandbox.Zygote`.
"""

import ctypes
import gc
import importlib
import os
import selectors
import shutil
import signal
import socket
import sys
import tempfile
from dataclasses import dataclass
from typing import Any

from distlab.grading import family, sealing
from utils.cluster import warm_server
from utils.cluster.protocol import receive_message, send_message

WATCH_SECONDS, NICER = 0.1, 5


@dataclass
class Running:
    """One submission: `outer` waits outside its namespaces for its process 1."""

    outer: int
    memory_mib: int
    most_processes: int
    why: str = ""


class Server:
    """Answers fork, interrupt and kill; tells when a submission has ended, and why."""

    def __init__(self, connection: socket.socket, sealed: bool, shell: Any) -> None:
        self.connection, self.sealed, self.shell = connection, sealed, shell
        self.running: dict[int, Running] = {}

    def serve(self) -> None:
        awake, wake = socket.socketpair()
        awake.setblocking(False)
        wake.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake.fileno())
        self.private = (self.connection, awake, wake)
        with selectors.DefaultSelector() as selector:
            selector.register(self.connection, selectors.EVENT_READ)
            selector.register(awake, selectors.EVENT_READ)
            while True:
                seconds = WATCH_SECONDS if self.running else None
                ready = [key.fileobj for key, _ in selector.select(seconds)]
                if awake in ready:
                    awake.recv(4096)
                if self.connection in ready and not self.answer():
                    return
                self.report_ended()
                self.watch()

    def answer(self) -> bool:
        received = receive_message(self.connection)
        if received is None:
            return False
        message, descriptors = received
        if message["ask"] == "fork":
            self.fork(message, descriptors)
        elif message["id"] in self.running:
            self.end(self.running[message["id"]], message["ask"])
        return True

    def fork(self, message: dict[str, Any], descriptors: list[int]) -> None:
        outer = os.fork()
        if outer == 0:
            most = message["processes"]
            self.run_child(lambda: enter_submission(self, descriptors, most))
        for descriptor in descriptors:
            os.close(descriptor)
        self.running[message["id"]] = Running(outer, message["memory_mib"], message["processes"])

    def run_child(self, call: Any) -> None:
        """In a forked child: leave the server behind, call, and never return."""
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            sealing.call("prctl", sealing.PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            for end in self.private:
                end.close()
            status = call()
        finally:
            os._exit(status)

    def end(self, run: Running, how: str) -> None:
        """Interrupt or kill a submission: its process 1 is the only child of `outer`."""
        first = family.find_children(run.outer)
        if how == "interrupt":
            family.send_signal(first, signal.SIGUSR1)
        else:
            everyone = [] if self.sealed else family.find_family(run.outer)
            family.send_signal([*first, *everyone], signal.SIGKILL)

    def report_ended(self) -> None:
        for number, run in list(self.running.items()):
            ended, status = os.waitpid(run.outer, os.WNOHANG)
            if ended:
                del self.running[number]
                code = os.waitstatus_to_exitcode(status)
                send_message(self.connection, {"told": "ended", "id": number, "status": code,
                                               "why": run.why})  # fmt: skip

    def watch(self) -> None:
        """End a submission that has too many processes or too much memory."""
        for run in self.running.values():
            if run.why:
                continue
            members = family.find_family(run.outer)
            if len(members) > run.most_processes:
                run.why = f"it had more than {run.most_processes} processes"
            elif family.measure_memory_mib(members, run.memory_mib) > run.memory_mib:
                run.why = f"it used more than {run.memory_mib:,} MiB of memory"
            if run.why:
                self.end(run, "kill")


def enter_submission(server: Server, descriptors: list[int], most: int) -> int:
    """In the outer process: make the namespaces and wait for their process 1."""
    if server.sealed:
        sealing.enter_namespaces()
    first = os.fork()
    if first == 0:
        status = 1
        try:
            sealing.call("prctl", sealing.PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            status = be_first(server, descriptors, most)
        except Exception as error:
            os.write(2, f"{error}\n".encode())
        finally:
            os._exit(status)
    close_all_but(set())
    return _wait_for(first)


def be_first(server: Server, descriptors: list[int], most: int) -> int:
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
        family.send_signal(family.find_family(os.getpid())[1:], signal.SIGKILL)
    return status


def be_runner(shell: Any, order: int, channel: int) -> int:
    from distlab.grading.cell_runner import run_order

    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = open(number, "w", buffering=1, encoding="utf-8", errors="backslashreplace",
                      closefd=False)  # fmt: skip
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    tempfile.tempdir = None  # found afresh from TMPDIR
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


def import_everything(lab: str, data: list[str]) -> Any:
    """Import what submissions of `lab` need, also what is imported late; read the sets `data`.

    Return IPython's shell.
    """
    warm_server.import_everything()
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


def main() -> None:
    connection = socket.socket(fileno=int(sys.argv[1]))
    sealed = sys.argv[2] == "sealed"
    if sealed:
        sealing.drop_root()
        if why := try_to_seal():
            send_message(connection, {"told": "cannot seal", "why": why})
            return
    gc.disable()  # it would look through what is imported again and again: 0.5 s
    lab, onednn, *data = sys.argv[3:]
    os.environ["TF_ENABLE_ONEDNN_OPTS"] = onednn.removeprefix("onednn=")
    shell = import_everything(lab, data)
    if (threads := warm_server.count_threads()) > 1:
        send_message(connection, {"told": "unsafe", "why": f"{threads} threads before the fork"})
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    gc.freeze()
    gc.enable()
    from utils.environment import versions

    server, folder = Server(connection, sealed, shell), os.environ["TMPDIR"]
    try:
        if not sealed:  # from here on the parent's end is seen, and there is a folder to remove
            sealing.call("prctl", sealing.PR_SET_PDEATHSIG, 0, 0, 0, 0)
        send_message(connection, {"told": "ready", "versions": versions()})
        server.serve()
    except ConnectionError:
        pass
    finally:
        for run in server.running.values():
            server.end(run, "kill")
            os.waitpid(run.outer, 0)
        if not sealed and os.path.basename(folder).startswith(family.FOLDER_PREFIX):
            shutil.rmtree(folder, ignore_errors=True)  # also where the parent was killed


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(sealing.PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    main()
    os._exit(0)  # taking all the modules apart takes 0.1 s
