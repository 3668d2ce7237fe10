"""The known engines: the module for each, what it needs, where its cluster is."""

import importlib.util
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

from ..checks import check_choice
from ..errors import InputError

SLURM_COMMANDS = ("sbatch", "srun", "scontrol", "squeue", "scancel", "sinfo")
SLURM_DAEMONS = ("munged", "slurmctld", "slurmd")
ANSWER_SECONDS = 30.0  # of Slurm's controller


@dataclass(frozen=True)
class Engine:
    """An engine: `find_missing(is_local)` names what it lacks here, and how to get it.

    `find_host(address)` returns the machine that a cluster at `address` is led by. `no_gpus` says
    why it isn't asked for the GPUs of each task, "" if it is.
    """

    name: str
    title: str
    address_is: str
    find_missing: Callable[[bool], str | None]
    find_host: Callable[[str], str]
    no_gpus: str = ""

    @property
    def module(self) -> str:
        """The module of its driver, which asks it for agents."""
        return f"{__package__}.{self.name}_driver"


def _find_missing_ray(is_local: bool) -> str | None:
    if importlib.util.find_spec("ray") is None:
        return "the package ray. Run: pip install -e '.[ray]'"
    return None


def _find_missing_spark(is_local: bool) -> str | None:
    if importlib.util.find_spec("pyspark") is None:
        return "the package pyspark. Run: pip install -e '.[spark]'"
    java = os.path.join(os.environ.get("JAVA_HOME", ""), "bin", "java")
    if shutil.which("java") is None and not os.access(java, os.X_OK):
        return "Java 17 or later. Run: apt install default-jre-headless"
    return None


def _find_missing_slurm(is_local: bool) -> str | None:
    places = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin"))
    needed = (*SLURM_COMMANDS, *(SLURM_DAEMONS if is_local else ()))
    missing = [name for name in needed if shutil.which(name, path=places) is None]
    if missing:
        return f"{', '.join(missing)}. Run: apt install slurm-wlm munge"
    return None


def _find_host_of_address(address: str) -> str:
    found = re.fullmatch(r"(?:[a-z]+://)?\[?([^\]/,]+?)\]?:\d+.*", address)
    return found[1] if found else "127.0.0.1"


def _find_slurm_controller(partition: str) -> str:
    command, said = ["scontrol", "show", "config"], "no controller is named"
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_SECONDS)
        output, said = asked.stdout, (asked.stderr.strip().splitlines() or [said])[-1]
    except subprocess.TimeoutExpired:
        output, said = "", f"no answer in {ANSWER_SECONDS:g} s"
    found = re.search(r"SlurmctldHost\[0\]\s*=\s*([^\s(]+)(?:\(([^)]+)\))?", output)
    if not found:
        raise InputError(
            f"Engine slurm: Slurm doesn't answer here ({said}). Run this on a machine where "
            "sbatch works, or leave the address out."
        )
    return found[2] or found[1]


ENGINES = {
    engine.name: engine
    for engine in (
        Engine("ray", "Ray", "host:port", _find_missing_ray, _find_host_of_address),
        Engine(
            "spark",
            "Spark",
            "spark://host:port",
            _find_missing_spark,
            _find_host_of_address,
            "its executors hold the GPUs. Set spark.task.resource.gpu.amount in Spark's own "
            "configuration.",
        ),
        Engine("slurm", "Slurm", "a partition", _find_missing_slurm, _find_slurm_controller),
    )
}


def find_engine(name: str, address: str | None = None) -> Engine:
    """Return the engine; raise InputError for an unknown one, or one that lacks something here."""
    check_choice("engine", name, ENGINES)
    missing = ENGINES[name].find_missing(address is None)
    if missing:
        raise InputError(f"Engine {name} needs {missing}")
    return ENGINES[name]


def check_gpus(engine: str, address: str | None, gpus: int) -> None:
    """Raise InputError where an engine can't be asked for GPUs."""
    if not gpus:
        return
    if engine in ENGINES and ENGINES[engine].no_gpus:
        why = ENGINES[engine].no_gpus
        raise InputError(f"gpus must be left out for engine {engine}, got {gpus}: {why}")
    if address is None:
        raise InputError(
            f"gpus must be left out for {engine}'s cluster on this machine, which gives none, got "
            f"{gpus}. Leave --gpus out, or name a cluster with GPUs: --engine-address."
        )


def find_own_host(engine: Engine, address: str | None) -> str:
    """Return the address of this machine at which the cluster's machines reach it.

    Loopback for a local cluster. Raises InputError if there is no route to the cluster.
    """
    if address is None:
        return "127.0.0.1"
    host = engine.find_host(address)
    try:
        family, _, _, _, place = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as one:
            one.connect(place)  # sends nothing: it only chooses the way
            return one.getsockname()[0]
    except (OSError, UnicodeError) as error:
        raise InputError(
            f"Engine {engine.name}'s address can't be reached, got {host} ({error}). Give "
            f"{engine.address_is}."
        ) from None
