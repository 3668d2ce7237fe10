"""List the clusters on this machine, and end what a crashed owner left.

Every process of a cluster carries a mark in its environment (`DISTLAB_CLUSTER`),
which forks and children inherit, and the cluster's temporary folder holds the same
mark in a file. So both are found when the owner, the process that made the
cluster, is long dead. Nothing without a mark is ever touched. Imports no TensorFlow.
"""

import os
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from ..errors import InputError

MARK_VARIABLE = "DISTLAB_CLUSTER"
PREFIX, MARK_FILE = "distlab-", "cluster-mark"
END_SECONDS = 60.0  # a killed process needs a processor to end
CLOCK_SECONDS = 2.0  # how far two readings of one process's start may differ


@dataclass(frozen=True)
class ClusterMark:
    """A cluster's identity: `owner` is the process that made it, `folder` its temporary folder.

    `namespace` is where the owner's process number holds, as a container has its own.
    """

    identity: str
    owner: int
    owner_started: float
    namespace: str
    folder: str

    @property
    def value(self) -> str:
        return (
            f"{self.identity}:{self.owner}:{self.owner_started:.2f}:{self.namespace}:{self.folder}"
        )

    @property
    def owner_lives(self) -> bool:
        """True if the process that made the cluster runs, or can't be seen from here."""
        if self.namespace != _name_namespace():
            return True
        try:
            process = psutil.Process(self.owner)
            same = abs(process.create_time() - self.owner_started) < CLOCK_SECONDS
            return same and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False


def parse_mark(value: str) -> ClusterMark | None:
    """Return the mark that `value` spells, None if it isn't one."""
    try:
        identity, owner, started, namespace, folder = value.split(":", 4)
        mark = ClusterMark(identity, int(owner), float(started), namespace, folder)
    except ValueError:
        return None
    right = identity.isalnum() and Path(folder).name.startswith(PREFIX)
    return mark if right and os.path.isabs(folder) else None


def make_mark() -> ClusterMark:
    """Return the mark of a new cluster of this process, and make its folder."""
    folder = os.path.abspath(tempfile.mkdtemp(prefix=PREFIX))
    started = psutil.Process().create_time()
    mark = ClusterMark(secrets.token_hex(4), os.getpid(), started, _name_namespace(), folder)
    Path(folder, MARK_FILE).write_text(mark.value)
    return mark


def _name_namespace() -> str:
    """Return the name of this process's namespace of process numbers, "" if there is none."""
    try:
        return os.readlink("/proc/self/ns/pid").strip("pid:[]")
    except OSError:
        return ""


@dataclass
class FoundCluster:
    """A cluster that was found: its mark and its live processes."""

    mark: ClusterMark
    processes: list[psutil.Process] = field(default_factory=list)

    def to_record(self) -> dict[str, Any]:
        """Return it as plain data; `processes` are dicts of `process`, `name` and `ports`."""
        mark = self.mark
        described = [_describe(process) for process in self.processes]
        told = [process for process in described if process["started"] is not None]
        return {
            "id": mark.identity,
            "owner": mark.owner,
            "owner_lives": mark.owner_lives,
            "started": min((p["started"] for p in told), default=None),
            "folder": mark.folder,
            "processes": [{k: p[k] for k in ("process", "name", "ports")} for p in told],
        }


def _describe(process: psutil.Process) -> dict[str, Any]:
    told = {"process": process.pid, "name": "", "ports": [], "started": None}
    try:
        told["name"], told["started"] = process.name(), process.create_time()
        listening = [c for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
        told["ports"] = sorted({c.laddr.port for c in listening})
    except (psutil.Error, OSError):
        pass  # it ended meanwhile
    return told


def find_clusters(identity: str | None = None) -> list[FoundCluster]:
    """Return this user's clusters on this machine, oldest folder first, or the one of `identity`.

    Found by their processes and, for those that have none left, by their folders in
    the directory for temporary files.
    """
    found: dict[str, FoundCluster] = {}
    for process, mark in _find_marked_processes():
        found.setdefault(mark.identity, FoundCluster(mark)).processes.append(process)
    for mark in _find_marked_folders():
        found.setdefault(mark.identity, FoundCluster(mark))
    chosen = [c for c in found.values() if identity in (None, c.mark.identity)]
    return sorted(chosen, key=lambda c: (_folder_time(c.mark.folder), c.mark.identity))


def _find_marked_processes() -> Iterator[tuple[psutil.Process, ClusterMark]]:
    own = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    for process in psutil.process_iter():
        try:
            if process.pid in own or process.uids().real != os.getuid():
                continue
            mark = _find_mark(process)
            if mark is not None and process.status() != psutil.STATUS_ZOMBIE:
                yield process, mark
        except (psutil.Error, OSError):
            continue


def _find_mark(process: psutil.Process) -> ClusterMark | None:
    """Return a process's mark: from its environment, or where it has wiped that.

    Slurm's step daemons write their titles over it, but stay in their cluster's folder. Ray's
    agents do, too; they have the mark of the process that has started them.
    """
    environment = process.environ()
    if any(environment):
        return parse_mark(environment.get(MARK_VARIABLE, ""))
    folder = process.cwd()
    if Path(folder).name.startswith(PREFIX):
        return _read_folder(folder)
    parent = process.parent()
    return _find_mark(parent) if parent is not None else None


def _find_marked_folders() -> Iterator[ClusterMark]:
    for folder in Path(tempfile.gettempdir()).glob(PREFIX + "*"):
        mark = _read_folder(os.path.abspath(folder))
        if mark is not None:
            yield mark


def _read_folder(folder: str) -> ClusterMark | None:
    """Return the mark in `folder` if it is our folder and the mark names it."""
    try:
        about = os.lstat(folder)
        if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid():
            return None
        mark = parse_mark(Path(folder, MARK_FILE).read_text())
    except (OSError, UnicodeDecodeError):
        return None
    return mark if mark is not None and mark.folder == folder else None


def _folder_time(folder: str) -> float:
    try:
        return os.lstat(folder).st_mtime
    except OSError:
        return 0.0


def end_cluster(identity: str) -> int:
    """Kill every process of the cluster, remove its folder, return how many were killed.

    Raises InputError if one is still there after END_SECONDS.
    """
    killed: set[int] = set()
    folders: set[str] = set()
    deadline = time.monotonic() + END_SECONDS
    while found := find_clusters(identity):
        folders.add(found[0].mark.folder)
        for process in found[0].processes:
            try:
                process.kill()  # not if its number has gone to another process
                killed.add(process.pid)
            except psutil.Error:
                pass
        if not found[0].processes:
            break
        if time.monotonic() > deadline:
            left = ", ".join(str(process.pid) for process in found[0].processes)
            raise InputError(
                f"Processes {left} of cluster {identity} can't be ended. See `ps -p {left}`."
            )
        time.sleep(0.02)
    for folder in folders:
        remove_folder(folder)
    return len(killed)


def remove_folder(folder: str) -> None:
    """Remove a cluster's folder, and nothing that isn't one."""
    if _read_folder(folder) is not None:
        shutil.rmtree(folder, ignore_errors=True)


def remove_orphaned_folders() -> None:
    """Remove the folders of clusters that have neither an owner nor a process any more."""
    if all(mark.owner_lives for mark in _find_marked_folders()):
        return
    for cluster in find_clusters():
        if not cluster.processes and not cluster.mark.owner_lives:
            remove_folder(cluster.mark.folder)
