"""Probes of starting processes: fork, ports, who reaches them, and what a crashed kernel left."""

import os
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from distlab.doctor.commands import run_command
from distlab.doctor.findings import Finding
from utils.processes.private_network import VARIABLE

LAB_PORT, NOBODY = 8888, 65534
OUR_MODULES = ("utils.",)  # `python -m utils.…`: each starts or is a worker
ADOPTERS = ("systemd", "init", "launchd", "tini", "dumb-init")


def examine_fork(system: str = sys.platform) -> Finding:
    """Can workers be forked from a process that has imported TensorFlow (Linux only)?"""
    if system == "linux" and hasattr(os, "fork"):
        return Finding("fork", "ok", "workers can start from a warm process")
    advice = "workers are spawned instead: each takes the 5 to 20 s that TensorFlow's import takes"
    return Finding("fork", "missing", f"not safe on {system}", advice)


def examine_ports(lab_port: int = LAB_PORT) -> Finding:
    """Can programs here listen on loopback; is `localhost` this machine; is Jupyter's port free?"""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen(1)
            address = listener.getsockname()
            with socket.create_connection(address, timeout=2.0):
                pass
    except OSError as error:
        advice = "JupyterLab and workers need loopback: a firewall or sandbox forbids it"
        return Finding("ports", "problem", f"127.0.0.1 doesn't work: {error}", advice)
    try:
        named = {entry[4][0] for entry in socket.getaddrinfo("localhost", None)}
    except OSError:
        named = set()
    if not named & {"127.0.0.1", "::1"}:
        advice = "add the line `127.0.0.1 localhost` to /etc/hosts"
        return Finding("ports", "warning", "`localhost` isn't this machine", advice)
    if _is_free(lab_port):
        return Finding("ports", "ok", f"loopback works, {lab_port} is free")
    advice = "JupyterLab takes the next free port automatically"
    return Finding("ports", "ok", f"loopback works, {lab_port} is taken", advice)


def examine_network(environment: Mapping[str, str] | None = None) -> Finding:
    """Who reaches the ports of a cluster's servers? They read and write files as their owner."""
    given = os.environ if environment is None else environment
    wanted, why = given.get(VARIABLE) == "private", _find_obstacle()
    if wanted and not why:
        return Finding("cluster ports", "ok", "private: only you reach them; nothing is downloaded")
    open_to = "while a cluster runs, anyone who reaches its ports can read and write your files"
    if wanted:
        value = f"open to this machine's other users: no private network ({why})"
        return Finding("cluster ports", "warning", value, f"{open_to}; docs/hub.md names remedies")
    value = "open to this machine's users and, without a firewall, to its network"
    advice = f"{open_to}; " + (
        f"the system allows no private network ({why})"
        if why
        else f"{VARIABLE}=private closes them"
    )
    shared = "JUPYTERHUB_USER" in given and _sees_other_users()
    return Finding("cluster ports", "warning" if shared else "ok", value, advice)


def _find_obstacle() -> str:
    """Try a private network in a program with one thread, which this one isn't."""
    text = "from utils.processes import private_network as p; print(p.find_obstacle())"
    done = run_command([sys.executable, "-c", text], 8.0, Path(__file__).resolve().parents[2])
    return done.output.strip() if done.status == 0 else done.last_error_line or "no answer"


def _sees_other_users() -> bool:
    """Return whether an ordinary user other than this one has a process here."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.uids().real not in (os.getuid(), *range(1000), NOBODY):
                return True
    return False


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def examine_workers() -> Finding:
    """Are there workers or kernels whose owner is gone? They keep memory, cores and ports."""
    found = list_workers()
    left = [worker for worker in found if _is_orphan(worker)]
    if left:
        value = "; ".join(_describe(worker) for worker in left[:5])
        value += f" and {len(left) - 5} more" if len(left) > 5 else ""
        pids = " ".join(str(worker.pid) for worker in left)
        advice = "the process that started them is gone, and a waiting worker ignores SIGTERM: "
        return Finding("left-over workers", "warning", value, f"{advice}`kill -9 {pids}`")
    if found:
        value = "none; running for another process: "
        value += "; ".join(_describe(worker) for worker in found[:5])
        return Finding("left-over workers", "ok", value)
    return Finding("left-over workers", "ok", "none")


def list_workers() -> list[psutil.Process]:
    """Return this user's processes that are tasks of a TensorFlow cluster, or ours, by pid.

    A task is a Python with TF_CONFIG in its environment (one that it didn't get from the shell that
    this process has it from), one that runs a module of ours that starts workers, or a
    kernel (or its child) without its JupyterLab. This process, its ancestors and other
    containers' processes aren't.
    """
    own = psutil.Process()
    family = {own.pid, *(parent.pid for parent in own.parents())}
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.pid in family or process.uids().real != os.getuid():
                continue
            if _in_our_namespace(process.pid) and _is_worker(process):
                found.append(process)
    return sorted(found, key=lambda process: process.pid)


def _is_worker(process: psutil.Process) -> bool:
    command = process.cmdline()
    if not command or "python" not in os.path.basename(command[0]).lower():
        return False
    if process.status() == psutil.STATUS_ZOMBIE:
        return False
    if any(part.startswith(module) for part in command for module in OUR_MODULES):
        return True
    environment = process.environ()
    config = environment.get("TF_CONFIG")
    return bool(config and config != os.environ.get("TF_CONFIG")) or _lost_its_server(environment)


def _lost_its_server(environment: Mapping[str, str]) -> bool:
    """Jupyter gives kernels their server's pid in JPY_PARENT_PID, and they pass it on."""
    server = environment.get("JPY_PARENT_PID", "")
    return server.isdigit() and not psutil.pid_exists(int(server))


def _is_orphan(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        parent = process.parent()
        adopted = parent is None or parent.pid == 1 or parent.name() in ADOPTERS
        return adopted or _lost_its_server(process.environ())
    return False


def _in_our_namespace(pid: int) -> bool:
    """On Linux, is `pid` of the same pid namespace (that is, container) as this process?"""
    if sys.platform != "linux":
        return True
    return os.readlink(f"/proc/{pid}/ns/pid") == os.readlink("/proc/self/ns/pid")


def _describe(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        minutes, seconds = divmod(int(time.time() - process.create_time()), 60)
        hours, minutes = divmod(minutes, 60)
        age = f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds} s"
        return f"pid {process.pid}, {age} old"
    return f"pid {process.pid}, just ended"
