"""A Slurm cluster of two nodes on this machine: munged, slurmctld, and two slurmd.

All listen on loopback only. The nodes share this machine's processors, each claiming as many as the
run needs.
"""

import contextlib
import os
import secrets
import shutil
import subprocess
import time
from pathlib import Path

import psutil

from ..tf_config import pick_free_ports
from .driver import GivesUp

NODES = ("n1", "n2")
READY_SECONDS = 60.0
CONFIGURATION = """\
ClusterName=distlab
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
MailProg=/bin/true
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SlurmdTimeout=5
KillWait=2
MessageTimeout=5
ReturnToService=2
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=1,batch_sched_delay=0
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
{nodes}
PartitionName=local Nodes={names} Default=YES MaxTime=INFINITE State=UP
"""


def find_daemon(name: str) -> str | None:
    """Return the path of a daemon, which the PATH of a plain user may not list."""
    return shutil.which(name, path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin")))


class LocalSlurm:
    """Two nodes, each with room for `processors` tasks; all that it keeps is in `folder`."""

    def __init__(self, folder: str, processors: int) -> None:
        self._folder, self._processors = Path(folder), processors
        self.configuration = self._folder / "slurm.conf"

    def start(self) -> None:
        """Start everything, and wait until both nodes are there. Raises GivesUp."""
        (self._folder / "state").mkdir()
        self._write_configuration()
        self._start_munge()
        self._run_daemon("slurmctld", "-c", "-f", str(self.configuration))
        for node in NODES:
            (self._folder / f"spool-{node}").mkdir()
            self._run_daemon("slurmd", "-N", node, "-f", str(self.configuration))
        self._wait_until_ready()

    def _write_configuration(self) -> None:
        first, *others = pick_free_ports(1 + len(NODES))
        host = os.uname().nodename
        nodes = "\n".join(
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} "
            f"CPUs={self._processors}"
            for name, port in zip(NODES, others)
        )
        text = CONFIGURATION.format(
            controller_port=first,
            user=psutil.Process().username(),
            folder=self._folder,
            nodes=nodes,
            names=",".join(NODES),
        )
        self.configuration.write_text(text)

    def _start_munge(self) -> None:
        key = self._folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(1024))
        self._run_daemon(
            "munged",
            "--force",
            *(
                f"--{name}={self._folder}/munge.{ending}"
                for name, ending in (
                    ("key-file", "key"),
                    ("socket", "socket"),
                    ("pid-file", "pid"),
                    ("log-file", "log"),
                    ("seed-file", "seed"),
                )
            ),
        )

    def _run_daemon(self, name: str, *arguments: str) -> None:
        """Start a daemon, which puts itself in the background."""
        done = subprocess.run([find_daemon(name), *arguments], capture_output=True, text=True)
        if done.returncode:
            said = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise GivesUp(f"{name} didn't start: {said}")

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            asked = subprocess.run(
                ["sinfo", "--noheader", "--Node", "--format=%T"], capture_output=True, text=True
            )
            if asked.stdout.split() == ["idle"] * len(NODES):
                return
            time.sleep(0.1)
        raise GivesUp(f"Slurm's nodes aren't ready after {READY_SECONDS:g} s.")

    def stop(self) -> None:
        """End the daemons; safe where some were never started."""
        for file in self._folder.glob("*.pid"):
            with contextlib.suppress(OSError, ValueError, psutil.Error):
                psutil.Process(int(file.read_text())).kill()
