"""The sandbox from outside: bubblewrap around the fork server, and the requests to it.

Inside, the file system is read-only and holds the system, the Python environment and
the course's packages without its judges: no solutions, no home, no network, no process
of the outside. https://github.com/containers/bubblewrap
"""

import os
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

import distlab
from distlab.errors import CourseError
from distlab.grading.judging import LabRules
from distlab.grading.process_tree import FOLDER_PREFIX
from utils.processes.fork_server import ForkServer, NotStarted

COURSE = "/course"
ENVIRONMENT = Path("/environment")  # where an environment below /tmp is shown: /tmp is private
# what of distlab.grading the sandbox needs; everything else of it isn't there
INSIDE = [
    f"{name}.py"
    for name in (
        "__init__ absent encoding sealing process_tree submission_server harness answer_calls "
        "answer_process program_cell"
    ).split()
]
SYSTEM = (
    "/usr /lib /lib64 /lib32 /bin /sbin /etc/ld.so.cache /etc/alternatives /etc/fonts "
    "/etc/localtime /etc/ssl/openssl.cnf"
).split()
DEVICES = ("null", "zero", "full", "random", "urandom")
START_SECONDS = 180.0
ADVICE = "`distlab doctor` says what is missing; --no-sandbox is for your own work only"


def check_can_seal() -> str:
    """Return the path of bubblewrap; CourseError with the reason where nothing can be sealed."""
    if sys.platform != "linux":
        raise CourseError("Grading needs Linux or WSL2 for its sandbox. Grade on such a system.")
    path = shutil.which("bwrap")
    if path is None:
        raise CourseError(
            "Grading needs bubblewrap for its sandbox. Install the package bubblewrap (or use "
            "--no-sandbox, for your own work only)."
        )
    return path


def build_command(bwrap: str) -> list[str]:
    """Return bubblewrap's command line for a sealed fork server, without what it needs."""
    package = Path(distlab.__file__).resolve().parent
    secret = [package.parent, Path.cwd()]
    apart = "--unshare-ipc --unshare-pid --unshare-net --unshare-uts --unshare-cgroup-try"
    command = [bwrap, *apart.split(), "--die-with-parent", "--new-session", "--clearenv"]
    # root stays root until the fork server has uncovered /proc, and then becomes nobody
    command += ["--cap-add", "ALL"] if os.getuid() == 0 else ["--unshare-user"]
    variables = _environment(COURSE)
    variables["PATH"] = f"{_show_at(Path(sys.prefix))}/bin:/usr/bin:/bin"
    for name, value in variables.items():
        command += ["--setenv", name, value]
    command += _show_places(package, secret)
    command += ["--perms", "0755", "--dir", "/dev"]
    for name in DEVICES:
        command += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    command += ["--perms", "0755", "--dir", "/dev/shm", "--perms", "1777", "--tmpfs", "/tmp"]
    command += ["--proc", "/proc", "--remount-ro", "/", "--chdir", "/"]
    python = str(_show_at(Path(sys.executable)))
    return [*command, python, "-m", "distlab.grading.submission_server", "sealed"]


def _show_at(path: Path) -> Path:
    """Return where a path of the environment is seen inside: its own place, unless below /tmp."""
    prefix = Path(sys.prefix)
    private = any(prefix.is_relative_to(place) for place in ("/tmp", "/dev/shm"))
    if private and path.is_relative_to(prefix):
        return ENVIRONMENT / path.relative_to(prefix)
    return path


def _show_places(package: Path, secret: list[Path]) -> list[str]:
    """Return the arguments that show what may be read, and hide what lies below it and may not."""
    shown: dict[Path, Path] = {Path(p): Path(p) for p in SYSTEM if os.path.exists(p)}
    for prefix in {sys.prefix, sys.base_prefix, sysconfig.get_paths()["purelib"]}:
        shown[_show_at(Path(prefix))] = Path(prefix)
    links = {p: os.readlink(p) for p in shown if p.is_symlink()}
    shown = {p: source for p, source in shown.items() if p not in links}
    inside = map(_show_at, (*secret, package))
    hidden = {p for p in inside if any(s in p.parents or s == p for s in shown)}
    hidden -= set(shown)
    places = {
        **{p: ["--ro-bind", str(source), str(p)] for p, source in shown.items()},
        **{p: ["--perms", "0755", "--tmpfs", str(p)] for p in hidden},
        **{p: ["--symlink", to, str(p)] for p, to in links.items()},
    }
    arguments: list[str] = []
    for place in sorted(places, key=lambda p: len(p.parts)):
        arguments += _make_parents(place) + places[place]
    for place in sorted(hidden):  # nothing may stay there for the next submission
        arguments += ["--remount-ro", str(place)]
    return arguments + _show_course(package)


def _make_parents(place: Path) -> list[str]:
    parents = [p for p in reversed(place.parents) if p != Path("/")]
    return [a for p in parents for a in ("--perms", "0755", "--dir", str(p))]


def _show_course(package: Path) -> list[str]:
    inside, library = f"{COURSE}/distlab", str(package.parent / "utils")
    arguments = ["--perms", "0755", "--dir", COURSE, "--ro-bind", str(package), inside]
    arguments += ["--ro-bind", library, f"{COURSE}/utils"]
    arguments += ["--perms", "0755", "--tmpfs", f"{inside}/grading"]
    for name in INSIDE:
        arguments += ["--ro-bind", str(package / "grading" / name), f"{inside}/grading/{name}"]
    arguments += ["--remount-ro", f"{inside}/grading"]
    arguments += ["--perms", "0755", "--tmpfs", f"{inside}/labs"]
    for path in sorted((package / "labs").glob("lab*")):
        arguments += ["--perms", "0755", "--dir", f"{inside}/labs/{path.name}"]
    for path in sorted((package / "labs").rglob("*.*")):
        if path.suffix in (".py", ".json") and path.name != "judge.py":
            arguments += ["--ro-bind", str(path), f"{inside}/{path.relative_to(package)}"]
    arguments += ["--remount-ro", f"{inside}/labs"]
    hosts = _open_data(b"127.0.0.1 localhost lab\n::1 localhost\n")
    users = _open_data(b"learner:x:1000:1000::/tmp/home:/bin/sh\n")
    files = {"/etc/hosts": hosts, "/etc/passwd": users}
    return arguments + [a for p, d in files.items() for a in ("--perms", "0644", "--file", d, p)]


def _open_data(text: bytes) -> str:
    descriptor = os.memfd_create("data")
    os.write(descriptor, text)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return str(descriptor)


def _environment(course: str) -> dict[str, str]:
    """Return the whole environment of what runs inside: nothing of the teacher's."""
    return {
        "PATH": f"{sys.prefix}/bin:/usr/bin:/bin",
        "PYTHONPATH": course,
        "HOME": "/tmp/home",
        "TMPDIR": "/tmp",
        "LANG": "C.UTF-8",
        "USER": "learner",
        "MPLBACKEND": "Agg",
        "MPLCONFIGDIR": "/tmp/mpl",
        "KERAS_HOME": "/tmp/keras",
        "IPYTHONDIR": "/tmp/ipython",
        "OPENBLAS_NUM_THREADS": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "PYTHONDONTWRITEBYTECODE": "1",
        "CUDA_VISIBLE_DEVICES": "",  # answers run on the CPU, on every machine
    }


class Sandbox(ForkServer):
    """The fork server as its parent sees it: its requests are submissions.

    `lab` is the lab whose `exercise` it imports, `rules` the lab's. A request is the most of each
    thing in `submission_server.TOO_MUCH`, with the descriptors of the order, and of where frames,
    output and errors go.
    """

    def __init__(self, lab: str, rules: LabRules, sealed: bool = True) -> None:
        self.sealed, passed = sealed, list[int]()
        # sealed, it has its own /tmp; otherwise the fork server removes the folder as it ends
        self.folder = "/tmp" if sealed else tempfile.mkdtemp(prefix=FOLDER_PREFIX)
        if sealed:
            command, environment = build_command(check_can_seal()), None
            passed = [int(n) for f, n in zip(command, command[1:]) if f == "--file"]
        else:
            command = [sys.executable, "-m", "distlab.grading.submission_server", "unsealed"]
            course = str(Path(distlab.__file__).resolve().parent.parent)
            places = {n: v.replace("/tmp", self.folder) for n, v in _environment(course).items()}
            environment = {**places, "PYTHONPATH": course}
        try:
            super().__init__(
                "the sandbox",
                [*command, lab, f"onednn={rules.onednn:d}", *rules.data],
                errors=tempfile.TemporaryFile(),
                passed=passed,
                env=environment,
                cwd="/",
            )
        finally:
            for number in passed:
                os.close(number)

    def wait_until_ready(self, seconds: float = START_SECONDS) -> dict[str, Any]:
        """Wait until it can fork; CourseError, with the reason, if it can't seal or start."""
        try:
            return {} if self.ready else super().wait_until_ready(seconds)
        except NotStarted as error:
            why = f"cannot seal here ({error.why}): {ADVICE}" if self.sealed else str(error)
            raise CourseError(why) from None

    def close(self) -> None:
        """End the fork server and every submission; safe to call twice."""
        super().close()
        if self._errors is not None:
            self._errors.close()
        if not self.sealed:
            shutil.rmtree(self.folder, ignore_errors=True)
