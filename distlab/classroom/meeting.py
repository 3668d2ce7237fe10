"""The meeting of a class: its address, and what must be the same on every laptop."""

import hashlib
import os
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from getpass import getuser
from pathlib import Path

from distlab.classroom.settings import name_folder
from distlab.errors import CourseError
from utils.cluster.streams import clean_line
from utils.engines.rendezvous import Gathering, RendezvousSettings
from utils.engines.rendezvous.names import clean_name
from utils.engines.settings import RunSettings
from utils.environment import find_kernel_shell

PORT, JOIN_SECONDS, GRACE_SECONDS = 2950, 600.0, 3.0
PROGRAM = "distlab.classroom.program"
COMMAND = [sys.executable, "-m", PROGRAM]
ELSEWHERE = "10.255.255.255"  # nothing is sent there: it only shows our own address


@dataclass(frozen=True)
class ClassPlace:
    """This laptop in a class: where to meet, what it is called, and where its files go.

    `address` is the teacher's, "host" or "host:port". `advertise_address` is where the others reach
    this machine (None: found automatically).
    """

    address: str
    name: str | None = None
    logs: str | None = None
    checkpoint_dir: str | None = None
    advertise_address: str | None = None
    join_seconds: float = JOIN_SECONDS
    trust_network: bool = False

    def to_rendezvous(self, only_tests: bool = False) -> RendezvousSettings:
        gathering = Gathering(
            "class",
            clean_name(self.name or find_user()),
            {"course": find_course()},
            only_tests=only_tests,
        )
        return RendezvousSettings(
            add_port(self.address),
            1,
            self.advertise_address,
            self.join_seconds,
            self.trust_network,
            gathering,
        )

    def to_run(
        self, workers: int = 1, restarts: int = 0, handout: str | None = None
    ) -> RunSettings:
        logs = self.logs or os.path.join("runs", f"{name_folder()}-{os.getpid()}")
        kept = self.checkpoint_dir or os.path.join(logs, "checkpoint")
        return RunSettings(
            workers=workers,
            min_workers=1,
            max_restarts=restarts,
            checkpoint_dir=kept,
            logs=logs,
            grace_seconds=GRACE_SECONDS,
            handout=handout,
        )


def add_port(address: str) -> str:
    """Return "host:port" for "host", too. Raises CourseError for an empty one."""
    if not address.strip(":[] "):
        raise CourseError(
            "The address must be the teacher's, got none. "
            "Type the one that the teacher shows, such as 192.168.1.10."
        )
    if address.count(":") > 1 and not address.startswith("["):
        address = f"[{address}]"  # IPv6
    has_port = ":" in address.rpartition("]")[2]
    return address if has_port else f"{address}:{PORT}"


def find_own_address() -> str:
    """Return this machine's address in its network, as far as that can be seen from here.

    Raises CourseError where it has none.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        try:
            end.connect((ELSEWHERE, PORT))  # sends nothing
            return end.getsockname()[0]
        except OSError:
            raise CourseError(
                "This machine has no network. Join one, or try it alone with "
                "--advertise-address 127.0.0.1."
            ) from None


def find_user() -> str:
    """Return what this machine's user is called, or the machine."""
    try:
        return getuser()
    except (KeyError, OSError):
        return socket.gethostname()


@cache
def find_course() -> str:
    """Return the checksum of all code that a class runs: it must be the same on every laptop."""
    digest, root = hashlib.sha256(), Path(__file__).parents[2]
    for folder in ("utils", "distlab/classroom"):
        for path in sorted((root / folder).rglob("*.py")):
            code = path.read_bytes().replace(b"\r\n", b"\n")
            digest.update(path.relative_to(root).as_posix().encode() + code)
    return digest.hexdigest()[:12]


def say(text: str) -> None:
    """Print a line about the class, without what a terminal would obey.

    On standard error, but in a notebook, which shows that in red, on standard output.
    """
    stream = sys.stdout if find_kernel_shell() else sys.stderr
    print(f"distlab classroom: {clean_line(text)}", file=stream, flush=True)


Say = Callable[[str], None]
