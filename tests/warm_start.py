"""Python programs that tests start, forked from a warm process instead of a fresh Python.

A fresh Python that imports TensorFlow takes 4 to 6 seconds of one core, and the suite starts
hundreds: kernels of notebooks, `distlab train`, the warm process of each cluster. On Linux,
`WarmStart.install` stands where `subprocess` starts a process, and runs the commands that
`is_listed` in a fork of one process that has imported TensorFlow and has one thread. It is a
real process, a child of the one that started it, with its own arguments, environment,
folder, descriptors and session, and what it starts itself starts in the same way (but not what
a kernel starts that a test looks at from outside). Every other command starts as ever, and so
does each one of a test that is marked `cold_start`.

What differs: /proc shows the command line of the warm process, and a program's modules aren't
taken apart at its end.
"""

import contextlib
import ctypes
import fcntl
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from utils.environment import quiet_tensorflow
from utils.processes.connection import Connection, PeerGone, PeerSilent, WireMessage
from utils.processes.forked_program import (
    KERNEL,
    enter,
    forget_modules,
    pick_starting,
    run_program,
    run_to_the_end,
)
from utils.processes.lifetime import count_threads, die_with_parent
from utils.processes.module_command import is_module_command
from utils.processes.preload import import_modules, import_tensorflow

ROOT = Path(__file__).resolve().parents[1]
TASKS = "utils.cluster.task_server"
MODULES = (
    TASKS,
    KERNEL,
    "utils.cluster.cold_task",
    "distlab.classroom.program",
    "benchmarks.gpu_checks",
)
COMMANDS = (
    "train",
    "tune-input",
    "tpu-ready",
    "classroom",
)  # of `distlab`: they, or theirs, need TensorFlow
USER_CHILD = str(ROOT / "distlab/cli/user_child.py")  # for projects with a `utils` of their own
FOLDERS = (ROOT / "examples", ROOT / "tests")
RUNS = ROOT / "notebooks/runs"  # a lesson's programs, each lesson's in a folder
# what `distlab run` sets for its programs: a fork reads them in time, or takes one core anyway
UNBUFFERED = "PYTHONUNBUFFERED"
RUN_SETS = "TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS", "TF_USE_LEGACY_KERAS"
PRELOADED = (
    "IPython.core.completer ipykernel.kernelapp matplotlib.pyplot tf_keras "
    "matplotlib.backends.backend_svg ipywidgets distlab.explorables distlab.figures"
).split()
OURS = ("utils", "distlab")
START_SECONDS, HIGH = 300.0, 100  # from HIGH up, descriptors are in nobody's way
ROOM = {"WARM_START_ROOM": 2**16 * "-"}  # for the environments that /proc is to show
# whose kernels' programs start warm, too: nobody looks at these kernels' children
NOTEBOOKS = ("notebooks/", "solutions/", "tests/course/test_nbgrader_stock.py")
COUNTING = "notebooks/08-tf-config.ipynb"  # counts its children, and finds none of ours
PR_SET_CHILD_SUBREAPER = 36  # prctl(2)

start_fresh = getattr(subprocess, "_fork_exec", None)  # what `subprocess.Popen` calls


def has_other_packages(folder: Path, own: Path, names: Iterable[str]) -> bool:
    """Return whether a package of `names` that isn't `own`'s is in `folder`, or above it.

    A program that starts there would import that one; a notebook may put the folder above
    its own on its path.
    """
    above = [one for one in (folder, *folder.parents) if one != own]
    return any(
        (one / f"{name}{end}").exists() for one in above for name in names for end in ("", ".py")
    )


@dataclass(frozen=True)
class Start:
    """What `subprocess` says of a process to be started, as `_posixsubprocess.fork_exec` has it."""

    arguments: Sequence[Any]
    executables: Sequence[bytes]
    close_others: bool
    kept: Sequence[int]
    folder: Any
    variables: Sequence[bytes] | None
    stdin: int
    _to_stdin: int
    _from_stdout: int
    stdout: int
    _from_stderr: int
    stderr: int
    _answer: int
    told: int  # closed by the new process when it is what it should be, or told what failed
    restore_signals: bool
    session: bool
    group: int
    gid: Any
    groups: Any
    uid: Any
    umask: int
    before: Any
    vfork: bool

    @property
    def words(self) -> list[str]:
        return [os.fsdecode(word) for word in self.arguments]

    @property
    def place(self) -> str:
        return os.getcwd() if self.folder is None else os.path.abspath(os.fsdecode(self.folder))

    @property
    def environment(self) -> dict[str, str]:
        if self.variables is None:
            return dict(os.environ)
        return dict(os.fsdecode(pair).split("=", 1) for pair in self.variables)

    @property
    def is_plain(self) -> bool:
        """Whether nothing is asked for that a fork of the warm process doesn't do."""
        nobody = self.gid is self.groups is self.uid is None
        # it means the thread that starts it, and a fork's parent is the main one
        in_main = threading.current_thread() is threading.main_thread()
        known = self.before is None or self.before is die_with_parent and in_main
        return bool(self.close_others and nobody and known and self.umask == -1)

    def to_request(self) -> dict[str, Any]:
        return {
            "words": self.words,
            "folder": self.place,
            "environment": self.environment,
            "session": self.session,
            "group": self.group,
            "dies": self.before is die_with_parent,
            "folders": [str(one) for one in FOLDERS],
        }

    def list_descriptors(self) -> tuple[list[int], list[int]]:
        """Return the descriptors to pass, `told` last, and their numbers in the new process."""
        streams = enumerate((self.stdin, self.stdout, self.stderr))
        others = [one for one in self.kept if one != self.told]
        ends = [end if end >= 0 else number for number, end in streams]
        return [*ends, *others, self.told], [0, 1, 2, *others]


class WarmStart:
    """The side of who starts programs. `server` starts the warm process when it is first needed."""

    def __init__(self, end: socket.socket, server: socket.socket | None = None) -> None:
        self.enabled, self._lock = True, threading.Lock()
        self._broken = False
        self._connection, self._server = Connection(end, "the warm process", START_SECONDS), server
        self._environment, self._owner = dict(os.environ), os.getpid()

    def install(self) -> None:
        """Stand where `subprocess` starts a process, in this process and until it ends."""
        subprocess._USE_POSIX_SPAWN = False  # from Python 3.13 on, it would go around `_fork_exec`
        subprocess._fork_exec = self.start

    def start(self, *arguments: Any) -> int:
        """Start a process, warm where it can be; return its number."""
        wanted = Start(*arguments)
        if self.enabled and os.getpid() == self._owner and self._can_start(wanted):
            try:
                with self._lock:
                    return self._ask(wanted)
            except (PeerGone, PeerSilent, OSError) as error:
                warnings.warn(f"{wanted.words[1:4]} starts from scratch: {error}", stacklevel=2)
        return start_fresh(*arguments)

    def _can_start(self, wanted: Start) -> bool:
        if self._broken or not (wanted.is_plain and is_listed(wanted.words, wanted.place)):
            return False
        if not is_apart(wanted.words) and has_other_packages(
            Path(wanted.place).resolve(), ROOT, OURS
        ):
            return False
        free = {UNBUFFERED, *RUN_SETS} - set(self._environment)
        starting = pick_starting(wanted.environment)
        own = {name: starting[name] for name in starting if name not in free}
        return own == pick_starting(self._environment)

    def _ask(self, wanted: Start) -> int:
        self._start_server()
        descriptors, numbers = wanted.list_descriptors()
        with adopting_orphans():
            self._connection.send([wanted.to_request(), numbers], descriptors=descriptors)
            try:
                return self._connection.receive().content
            except BaseException:
                self._broken = True  # its answer may still come, and isn't the next one's
                raise

    def _start_server(self) -> None:
        server, self._server = self._server, None
        if server is None:
            return
        with server, contextlib.ExitStack() as cold:
            self.enabled = False
            cold.callback(setattr, self, "enabled", True)
            # one thread: NumPy's library would make others
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(server.fileno()), str(self._owner)],
                cwd=ROOT,
                env=self._environment | ROOM | {"OPENBLAS_NUM_THREADS": "1"},
                pass_fds=[server.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._connection.receive()


def is_listed(words: Sequence[str], folder: str) -> bool:
    """Return whether a command imports TensorFlow, and is one of those that start warm."""
    if words[0] != sys.executable or len(words) < 2:
        return False
    if words[1:] == ["-P", USER_CHILD]:
        return True
    if is_module_command(words):
        return words[4] == str(ROOT) and words[5] in MODULES
    if words[1:4] == ["-m", "distlab", "run"]:
        return is_warm_folder(Path(folder).resolve())
    if words[1] == "-m":
        return (
            words[2] in MODULES
            or words[2] == "distlab"
            and words[3:4] != []
            and (words[3] in COMMANDS)
        )
    return words[1].endswith(".py") and is_warm_folder(Path(folder, words[1]).resolve().parent)


def is_warm_folder(folder: Path) -> bool:
    return folder in FOLDERS or RUNS in (folder, *folder.parents)


def is_apart(words: Sequence[str]) -> bool:
    """Return whether a command finds our packages, or none, whatever is in its folder."""
    return is_module_command(words) or words[1:] == ["-P", USER_CHILD]


@contextlib.contextmanager
def adopting_orphans() -> Iterator[None]:
    """While the block runs, a process of the warm one whose parent ends becomes ours."""
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def make_warm_start() -> WarmStart | None:
    """Return one for the tests; None where forking isn't safe, or DISTLAB_COLD_START is set."""
    if sys.platform != "linux" or start_fresh is None or os.environ.get("DISTLAB_COLD_START"):
        return None
    return WarmStart(*socket.socketpair())


# ---- in the warm process, and in the programs that are forked from it


class Programs:
    """The programs forked for the process `parent`, the tests: none outlives it.

    A closed connection isn't enough to know that the tests are gone: a fork of theirs may hold it.
    """

    def __init__(self, parent: int) -> None:
        self._parent, self._programs = os.pidfd_open(parent), list[int]()

    def add(self, process: int) -> None:
        """Note a program that was started; forget those that have ended."""
        for ended in select.select(self._programs, [], [], 0)[0]:
            self._programs.remove(ended)
            os.close(ended)
        with contextlib.suppress(ProcessLookupError):
            self._programs.append(os.pidfd_open(process))

    def wait_for_request(self, connection: Connection) -> None:
        """Wait until there is one; if the tests are gone, end all programs and this process."""
        if self._parent in select.select([connection, self._parent], [], [])[0]:
            self.end()

    def end(self) -> None:
        for program in self._programs:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(program, signal.SIGKILL)
        os._exit(0)

    def drop_copy(self) -> None:
        """In a forked child: close the descriptors."""
        for one in (self._parent, *self._programs):
            os.close(one)


def serve(connection: Connection, programs: Programs | None = None) -> WireMessage:
    """Fork for each request until the client is gone. Returns in the forks alone."""
    while True:
        try:
            if programs:
                programs.wait_for_request(connection)
            message = connection.receive(float("inf"))
        except PeerGone:
            programs.end() if programs else os._exit(0)
        reader, writer = os.pipe()
        between = os.fork()
        if not between:
            os.close(reader)
            fork_orphan(writer)
            os.close(writer)
            connection.drop_copy()
            if programs:
                programs.drop_copy()
            return message
        os.waitpid(between, 0)  # the client has adopted the fork by now
        process = int(os.read(reader, 20))
        connection.send(process)
        if programs:
            programs.add(process)
        for descriptor in (reader, writer, *message.descriptors):
            os.close(descriptor)


def fork_orphan(writer: int) -> None:
    """Fork, say the child's number, and end; the child returns when it has another parent."""
    between = os.getpid()
    process = os.fork()
    if process:
        os.write(writer, str(process).encode())
        os._exit(0)
    while os.getppid() == between:
        time.sleep(0.0005)


def serve_programs(connection: Connection, programs: Programs | None = None) -> None:
    """Serve; in each fork, run its program, to the end of the process."""
    global FOLDERS
    message = serve(connection, programs)
    request, numbers = message.content
    FOLDERS = tuple(map(Path, request["folders"]))
    held = [fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, HIGH) for one in message.descriptors]
    for descriptor in message.descriptors:
        os.close(descriptor)
    if is_helped(request) and leave_warm_fork(held):
        return
    become(request, held, numbers)
    run = run_user_child if request["words"][2:] == [USER_CHILD] else run_program
    os._exit(run_to_the_end(lambda: run(request["words"])))


def is_helped(request: Mapping[str, Any]) -> bool:
    """Return whether what a program starts is to start warm; a cluster's own process forks."""
    test = request["environment"].get("PYTEST_CURRENT_TEST", "")
    if KERNEL in request["words"]:
        return test.startswith(NOTEBOOKS) and not test.startswith(COUNTING)
    return TASKS not in request["words"]


def run_user_child(words: Sequence[str]) -> None:
    """Run it with none of our packages loaded, as it begins."""
    forget_modules(OURS)
    del sys.path[0]
    sys.orig_argv, sys.argv = list(words), list(words[2:])
    runpy.run_path(USER_CHILD, run_name="__main__")


def leave_warm_fork(held: Sequence[int]) -> bool:
    """Fork a warm process for what this program starts; it ends with it. True once it has."""
    ours, theirs = socket.socketpair()
    if os.fork():
        theirs.close()
        WarmStart(ours).install()
        return False
    ours.close()
    for descriptor in held:
        os.close(descriptor)
    os.setsid()
    die_with_parent()
    serve_programs(Connection(theirs, "the program"))
    return True


def become(request: Mapping[str, Any], held: Sequence[int], numbers: Sequence[int]) -> None:
    """Take session, folder, descriptors and environment of the program, and tell `subprocess`."""
    *ends, told = held
    if request["session"]:
        os.setsid()
    elif request["group"] >= 0:
        os.setpgid(0, request["group"])
    for end, number in zip(ends, numbers, strict=True):
        os.dup2(end, number)
        os.close(end)
    try:
        enter(request["folder"], request["environment"])
    except OSError as error:  # in the words that `subprocess` reads
        where = "noexec:chdir" if sys.version_info >= (3, 13) else "noexec"
        os.write(told, f"{type(error).__name__}:{error.errno:x}:{where}".encode())
        os._exit(255)
    show_environment(request["environment"])
    if request["dies"]:
        die_with_parent()
    if os.environ.get(UNBUFFERED):
        sys.stdout.reconfigure(write_through=True)
    os.close(told)


def show_environment(environment: Mapping[str, str]) -> None:
    """Write `environment` to where /proc/PID/environ reads, the block this process began with."""
    numbers = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = map(int, numbers[47:49])  # env_start and env_end of proc(5)
    block = b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in environment.items())
    assert len(block) <= end - start
    ctypes.memmove(start, block.ljust(end - start, b"\0"), end - start)


def main() -> None:
    import gc

    # not `die_with_parent`: that is the end of the thread that needed it first
    programs = Programs(int(sys.argv[2]))
    connection = Connection(socket.socket(fileno=int(sys.argv[1])), "the tests")
    gc.disable()
    import_tensorflow()
    with quiet_tensorflow():
        import_modules((*PRELOADED, ".devices", ".data.batches", ".training.loops"))
    threads = count_threads()
    if threads > 1:
        raise SystemExit(f"the warm process has {threads} threads: forking would not be safe")
    connection.send("ready")
    gc.freeze()
    gc.enable()
    serve_programs(connection, programs)


if __name__ == "__main__":
    main()
