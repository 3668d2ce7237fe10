"""The meeting point of machines, and the user's consent before they meet."""

import errno
import ipaddress
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ...checks import check_choice, check_count, check_number
from ...errors import InputError
from ...processes.connection import split_address
from ...tf_config import is_loopback
from ..settings import MAX_TASKS, RunSettings

JOIN_SECONDS, HEARTBEAT_SECONDS, MIN_HEARTBEAT_SECONDS, BACKLOG = 300.0, 10.0, 3.0, 96
GROW = ("at-failure", "at-checkpoint")
WARNING = (
    "While the run lasts, TensorFlow's own servers listen on every interface of this machine, "
    "without a password. Anyone who can reach their ports can read and write files here."
)


@dataclass(frozen=True)
class Gathering:
    """People who meet for a run, each with a machine, where one of them decides what is run.

    Everyone's program must be the same, and so must `same`; its `kind` names the occasion. All
    else is the host's: members take its handout (`RunSettings`) and its number of workers. `name`
    is this machine's name on the others. The first start waits for all workers until `begin` is set
    or the time to join is over, and continues with the machines that are there. With `only_tests`
    machines try to reach each other, and nothing is run.
    """

    kind: str
    name: str
    same: Mapping[str, str] = field(default_factory=dict)
    begin: threading.Event = field(default_factory=threading.Event)
    only_tests: bool = False


@dataclass(frozen=True)
class RendezvousSettings:
    """The meeting point of a run's machines: `address` is "host:port", one machine's own.

    `local_workers` is how many workers this machine offers, `advertise_address` where the others
    reach it (None: the address that it reaches the host from). Host and members wait
    `join_seconds` for each other. `trust_network` agrees to WARNING beforehand. `gathering` is
    for people who meet; without it all machines are one user's, who has typed one line on each.

    A machine that says nothing for `heartbeat_seconds` is lost. `grow` says when one that came
    later takes part: when all start again after a failure, or as soon as there is a new complete
    checkpoint. Members have the ranks of their `node_rank`, those without one by address; the
    host is 0. `preflight` measures how fast each pair of machines is, first. `line` is what
    to type on any machine of the run. Messages show it when the host is lost.
    """

    address: str
    local_workers: int = 1
    advertise_address: str | None = None
    join_seconds: float = JOIN_SECONDS
    trust_network: bool = False
    gathering: Gathering | None = None
    heartbeat_seconds: float = HEARTBEAT_SECONDS
    grow: str = GROW[0]
    node_rank: int | None = None
    preflight: bool = False
    line: str = ""

    def __post_init__(self) -> None:
        split_address(self.address)
        check_count("local-workers", self.local_workers, 1, MAX_TASKS)
        check_number("join-timeout", self.join_seconds, above=0.0)
        check_number("heartbeat-timeout", self.heartbeat_seconds, least=MIN_HEARTBEAT_SECONDS)
        check_choice("grow", self.grow, GROW)
        if self.node_rank is not None:
            check_count("node-rank", self.node_rank, 0, MAX_TASKS)
        if self.advertise_address is not None and not is_own_host(self.advertise_address):
            raise InputError(
                "advertise-address must be this machine's own in the network, got "
                f"{self.advertise_address}. Correct it, or leave it out."
            )


def check_meeting(settings: RunSettings, rendezvous: RendezvousSettings) -> None:
    """Raise InputError for a run that machines which meet can't do."""
    is_elastic = settings.min_workers not in (None, settings.workers)
    if settings.ps and is_elastic:
        raise InputError(
            f"workers must be one number with ps={settings.ps}, got {settings.workers_text}. "
            f"Try {settings.workers}, or leave --ps out."
        )
    if settings.independent and settings.checkpoint_dir:
        raise InputError(
            "checkpoint-dir must be left out for independent tasks at a rendezvous, as all would "
            "overwrite the one folder that it copies. Give each task its own folder."
        )
    if rendezvous.grow == "at-checkpoint" and not (is_elastic and settings.checkpoint_dir):
        raise InputError(
            "grow=at-checkpoint needs a range of workers and the folder of checkpoints. Add "
            "--workers MIN:MAX and --checkpoint-dir."
        )


def check_rank(rank: int | None, hosts: bool) -> None:
    """Raise InputError unless the host, and only the host, has rank 0 where one is given."""
    if rank is not None and hosts != (rank == 0):
        must = "0 on the machine that hosts" if hosts else "above 0 on a machine that doesn't host"
        raise InputError(f"node-rank must be {must}, got {rank}. Leave --node-rank out.")


def is_own_host(host: str) -> bool:
    """Return whether an address, or a name, is one of this machine's, and not all of them."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        socket.create_server(found[4], family=found[0]).close()
    except (OSError, UnicodeError):
        return False
    return not ipaddress.ip_address(found[4][0].partition("%")[0]).is_unspecified


def open_address(address: str) -> socket.socket | None:
    """Return a socket that listens at `address` and nowhere else, None if that isn't ours to do.

    It is another machine's, or another launcher of this machine hosts there already. Raises
    InputError if it isn't one machine's address.
    """
    host, port = split_address(address)
    if not port:
        raise InputError(f"rendezvous must have a port above 0, the same for all, got {address}.")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        why = error.strerror or error
        raise InputError(f"rendezvous must be a known host, got {address} ({why}).") from None
    family, place = found[0], found[4]
    if ipaddress.ip_address(place[0].partition("%")[0]).is_unspecified:
        raise InputError(
            f"rendezvous must be one machine's address, got {address}, which stands for all. Name "
            "the address that the other machines see."
        )
    try:
        return socket.create_server(place, family=family, backlog=BACKLOG)
    except OSError as error:
        if error.errno in (errno.EADDRNOTAVAIL, errno.EADDRINUSE):
            return None
        why = error.strerror or error
        raise InputError(f"Can't listen at {address} ({why}). Name another port.") from None


def explain_own_address(address: str, place: str) -> str:
    """Return why no other machine may come to a host at `address`, found at `place`, else ""."""
    if not is_loopback(place):
        return ""
    name = split_address(address)[0]
    leads = f"{name} leads to {place}, which" if name != place else place
    return (
        f" On each machine {leads} is that machine itself, so if the others are elsewhere, name "
        "the address at which they see this one."
    )


def confirm_trust(address: str, agreed: bool, say: Callable[[str], None]) -> None:
    """Beyond loopback, say what TensorFlow opens, and continue only with a yes.

    Raises InputError without one.
    """
    if is_loopback(split_address(address)[0]):
        return
    say(WARNING)
    if not agreed and sys.stdin.isatty():
        print("Continue in this network? [y/N] ", end="", file=sys.stderr, flush=True)
        agreed = sys.stdin.readline().strip().lower() in ("y", "yes")
    if not agreed:
        raise InputError("The run was not started. Add --trust-network if you trust this network.")
