"""Probes of starting processes: fork, ports, who reaches them, and what a crashed kernel left."""

import os
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from distlab.doctor.commands import run_command
from distlab.doctor.findings import Finding
from utils.processes.private_network import VARIABLE
from utils.processes.registry import find_clusters

LAB_PORT, NOBODY = 8888, 65534


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
    """Are there clusters whose owner, a kernel or a script, is gone? They keep memory and ports."""
    gone = [each for each in find_clusters() if each.processes and not each.mark.owner_lives]
    left = [each.mark.identity for each in gone]
    if not left:
        return Finding("left-over workers", "ok", "none")
    value = ", ".join(left[:5]) + (f" and {len(left) - 5} more" if len(left) > 5 else "")
    advice = "what started them is gone: `distlab processes stop` ends them"
    return Finding("left-over workers", "warning", value, advice)
