"""The fork server of the sandbox: it has imported TensorFlow and forks ready submissions.

It keeps nothing of any submission. Each is the harness (`harness`), the server's own child,
which no learner's process can see, and a sealed process 1 below it. Process 1 forks the
process of each answer (`answer_process`), and ends all that this has started before the
next. When process 1 is killed, the kernel ends everything in its namespaces.

`python -m distlab.grading.submission_server sealed|unsealed LAB onednn=0|1 [DATA …]
DESCRIPTOR`, started by `sandbox.SubmissionServer`.
"""

import contextlib
import importlib
import json
import os
import select
import shutil
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import utils
from distlab.grading import process_tree, sealing
from distlab.grading.absent import find_absent, find_places, list_imported
from utils.processes.fork_server import Child, ForkLoop, serve
from utils.processes.lifetime import die_with_parent
from utils.processes.preload import import_modules, import_tensorflow

WATCH_SECONDS, NICER = 0.1, 5
PATIENCE = 30  # rounds of watching until process 1 is killed where it doesn't end an answer
TOO_MUCH = {
    signal.SIGUSR1: "it used more than {memory_mib:,} MiB of memory",
    signal.SIGUSR2: "it had more than {processes} processes",
    signal.SIGXCPU: "it used more than {processor_seconds:,.0f} s of the processors",
    signal.SIGHUP: "it wrote more output than {output_mib} MiB",
    signal.SIGTERM: process_tree.SHORTAGE,
}


class SubmissionLoop(ForkLoop):
    """Forks submissions. A request has the most of each thing in TOO_MUCH.

    The descriptors: the order to read, where frames, output and errors go.
    """

    watch_seconds = WATCH_SECONDS

    def __init__(self, sealed: bool, lab: str, onednn: str, data: Sequence[str]) -> None:
        super().__init__()
        self.sealed, self.lab, self.onednn, self.data = sealed, lab, onednn, data
        self._rounds: dict[int, int] = {}

    def check(self) -> str:
        """Seal a child for trial, after root has been dropped."""
        if not self.sealed:
            return ""
        sealing.drop_root()
        return try_to_seal()

    def prepare(self) -> Mapping[str, Any]:
        os.environ["TF_ENABLE_ONEDNN_OPTS"] = self.onednn
        import_everything(self.lab, self.data)
        self.absent = find_absent(self.lab)
        if there := list_imported(self.absent):
            raise RuntimeError(f"{there[0]} is imported, and answers of {self.lab} may not have it")
        self.hidden = find_places(self.absent, Path(utils.__file__).parents[1])
        if self.sealed:
            sealing.make_filter()
            sealing.make_filter(processes=False)
        return {}

    def run(self, request: Any, body: bytes, descriptors: Sequence[int]) -> int:
        """As the harness: make the namespaces, start their process 1, run the order."""
        order, channel, output, errors = descriptors
        os.dup2(output, 1)
        os.dup2(errors, 2)
        if self.sealed:
            sealing.enter_namespaces()
        traffic = open("/proc/self/net/dev")  # before process 1 mounts a /proc without us
        ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)  # a message at a time
        first = os.fork()
        if first == 0:
            self._be_first(theirs, request)
        theirs.close()
        from distlab.grading.harness import run_order

        status = run_order(self.lab, order, ours, channel, traffic)
        os.kill(first, signal.SIGKILL)
        _wait_for(first)
        return status

    def _be_first(self, control: socket.socket, request: Any) -> NoReturn:
        status = 1
        try:
            die_with_parent()
            status = First(self.sealed, control, request, self.absent, self.hidden).serve()
        except Exception as error:
            os.write(2, f"{error}\n".encode())
        finally:
            os._exit(status)

    def send_signal(self, child: Child, number: int) -> None:
        """Tell process 1 what an answer had too much of, or kill everything."""
        first = process_tree.find_tree(child.process, recursive=False)[1:]
        if number in TOO_MUCH:
            return process_tree.send_signal(first, number)
        everyone = [] if self.sealed else process_tree.find_tree(child.process)[1:]
        process_tree.send_signal([*first, *everyone, child.process], signal.SIGKILL)

    def watch(self) -> None:
        """End an answer that has too many processes, or too much memory or processor time."""
        short = process_tree.is_memory_short()
        for child in self.children.values():
            members = process_tree.find_tree(child.process)
            asked = child.request
            used = process_tree.measure_memory_mib(members, asked["memory_mib"])
            number = None
            if len(members) > asked["processes"]:
                number = signal.SIGUSR2
            elif used > asked["memory_mib"]:
                number = signal.SIGUSR1
            elif process_tree.measure_processor_seconds(members) > asked["processor_seconds"]:
                number = signal.SIGXCPU
            elif short:  # by memory that no process holds: it isn't clear which one did it
                number = signal.SIGTERM
            rounds = self._rounds.get(child.process, 0) + 1 if number else 0
            self._rounds[child.process] = rounds
            if rounds > PATIENCE:
                child.why = TOO_MUCH[number].format(**asked)
                self.send_signal(child, signal.SIGKILL)
            elif number:
                self.send_signal(child, number)

    def clear_up(self) -> None:
        folder = os.environ["TMPDIR"]  # sealed, it is gone with the sandbox
        if not self.sealed and os.path.basename(folder).startswith(process_tree.FOLDER_PREFIX):
            shutil.rmtree(folder, ignore_errors=True)  # also where the parent was killed


class First:
    """Process 1 of a submission: it forks the process of each answer, reaps, ends, clears up."""

    def __init__(
        self,
        sealed: bool,
        control: socket.socket,
        request: Any,
        absent: Sequence[str],
        hidden: Sequence[Path],
    ) -> None:
        self.sealed, self.control, self.request = sealed, control, request
        self.absent = absent
        self.answer, self.why = 0, ""
        os.setsid()
        os.nice(NICER)
        close_all_but({0, 1, 2, control.fileno()})
        self.wake, waker = socket.socketpair()
        for end in (self.wake, waker):
            end.setblocking(False)
        self._waker = waker
        if sealed:
            sealing.seal(count_threads(request["processes"]), hidden)
        else:
            sealing.call("prctl", sealing.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        signal.set_wakeup_fd(waker.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number, text in TOO_MUCH.items():
            signal.signal(number, lambda *_, text=text: self.end(text.format(**request)))

    def serve(self) -> int:
        """Do what the harness asks until it hangs up."""
        while True:
            ready, _, _ = select.select([self.control, self.wake], [], [])
            if self.wake in ready:
                with contextlib.suppress(BlockingIOError):
                    self.wake.recv(4096)
            self.reap()
            if self.control in ready:
                asked, descriptors, _, _ = socket.recv_fds(self.control, 1, 1)
                if not asked:
                    return 0
                if asked == b"S":
                    self.fork(descriptors[0])
                elif self.answer:
                    self.end("")

    def fork(self, channel: int) -> None:
        self.why = ""
        self.answer = os.fork()
        if self.answer == 0:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, *TOO_MUCH):
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.setpgid(0, 0)
            os.dup2(channel, 3)
            close_all_but({0, 1, 2, 3})
            if self.sealed and self.request["timed"]:  # a process that ends unseen wouldn't count
                sealing.forbid_calls(processes=False)
            try:
                from distlab.grading.answer_process import be_answer

                be_answer(3, self.absent)
            finally:
                os._exit(0)
        os.close(channel)
        self.control.send(json.dumps({"process": self.answer}).encode())

    def end(self, why: str) -> None:
        """Kill the answer and whatever it has started."""
        self.why = self.why or why
        if self.sealed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
        else:
            process_tree.send_signal(process_tree.find_tree(os.getpid())[1:], signal.SIGKILL)

    def reap(self) -> None:
        """Take in what has ended; when it is the answer, end the rest, clear up and say so."""
        while True:
            try:
                ended, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if ended == 0:
                return
            if ended == self.answer:
                self.answer = 0
                self.end("")
                self._reap_rest()
                self.clear()
                code = os.waitstatus_to_exitcode(status)
                self.control.send(json.dumps({"status": code, "why": self.why}).encode())

    def _reap_rest(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                self.end("")
                os.wait()

    def clear(self) -> None:
        """Leave nothing for the next answer: no file, no shared memory."""
        if not self.sealed:
            return
        for place in ("/tmp", "/dev/shm"):
            for entry in os.scandir(place):
                if entry.is_dir(follow_symlinks=False):
                    os.chmod(entry.path, 0o700)
                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    os.unlink(entry.path)


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


def import_everything(lab: str, data: Sequence[str]) -> None:
    """Import what submissions of `lab` need, also what is imported late; read the sets `data`."""
    import_tensorflow()
    import_modules((".devices", ".strategies"))
    for name in ("matplotlib.pyplot", "numpy.random"):  # late, in cells; MPLBACKEND is Agg
        importlib.import_module(name)
    from distlab.grading import answer_process, harness  # noqa: F401

    for name in data:
        from utils.data import load

        load(name)
    importlib.import_module(f"distlab.labs.{lab}.exercise")


def try_to_seal() -> str:
    """Seal a child for trial; return why it failed, "" if it didn't."""
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
