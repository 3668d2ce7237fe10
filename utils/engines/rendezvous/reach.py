"""Try if the machines of a run reach each other, at the very ports that it will use."""

import contextlib
import errno
import ipaddress
import secrets
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import psutil

from ...tf_config import bind_ports

TRY_SECONDS, TOKEN_BYTES = 5.0, 16
TRIAL_BYTES, TRIAL_SECONDS = 64 * 10**6, 3.0
MAX_TRIAL_BYTES = 2 * TRIAL_BYTES
UNREACHABLE = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN)
CAUSES = {
    "silent": "a firewall, or Wi-Fi client isolation (usual in guest networks). Allow Python's "
    "ports in the firewall, or use another network.",
    "refused": "a firewall, or an address that isn't that machine's. Allow Python's ports in the "
    "firewall, or name the correct address with --advertise-address.",
    "unreachable": "different networks. Join the same network, or name an address in a common "
    "network with --advertise-address.",
    "stranger": "another machine at that address. Name the correct one with --advertise-address.",
}
WSL = (
    "WSL2's own NAT. Write networkingMode=mirrored under [wsl2] into .wslconfig on Windows, run "
    "`wsl --shutdown`, and allow the ports in Windows' firewall."
)


class OpenPorts:
    """Hold ports of this machine and answer on them until `release`, so that peers can try them.

    Whoever connects gets `token`, which shows that it has reached this machine.
    """

    def __init__(self, host: str, count: int, among: Sequence[int] | None = None) -> None:
        """Open `count` of the ports in `among`, None for any."""
        self.token = secrets.token_hex(TOKEN_BYTES)
        self._listeners = bind_ports(count, host, among)
        self.ports = [one.getsockname()[1] for one in self._listeners]
        for one in self._listeners:
            one.listen()
            threading.Thread(target=self._answer, args=(one,), daemon=True).start()

    def _answer(self, listener: socket.socket) -> None:
        while True:
            try:
                end, _ = listener.accept()
            except OSError:
                return  # released
            with end, contextlib.suppress(OSError):
                end.settimeout(TRY_SECONDS)
                end.sendall(self.token.encode())
                got, space = 0, bytearray(2**20)
                while got < MAX_TRIAL_BYTES and (size := end.recv_into(space)):
                    got += size  # the caller hangs up first, so that the port is free at once
                end.sendall(b"+" * bool(got))

    def release(self) -> None:
        """Close the ports; safe to call twice."""
        for one in self._listeners:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


def try_address(host: str, port: int, token: str, seconds: float = TRY_SECONDS) -> str | None:
    """Return why the machine with `token` can't be reached there (of CAUSES), None if it can."""
    try:
        with socket.create_connection((host, port), seconds) as end:
            got = end.recv(2 * TOKEN_BYTES, socket.MSG_WAITALL)
            return None if got == token.encode() else "stranger"
    except TimeoutError:
        return "silent"
    except OSError as error:
        return "unreachable" if error.errno in UNREACHABLE else "refused"


def measure_rate(
    host: str, port: int, token: str, size: int = TRIAL_BYTES, seconds: float = TRIAL_SECONDS
) -> float:
    """Return how fast the machine with `token` takes bytes there, in bytes/s.

    `size` bytes are sent over one connection, or as many as go in `seconds`. 0 if it isn't
    reached, which `try_address` explains.
    """
    piece, sent = memoryview(bytes(2**20)), 0
    with (
        contextlib.suppress(OSError),
        socket.create_connection((host, port), TRY_SECONDS) as end,
    ):
        if end.recv(2 * TOKEN_BYTES, socket.MSG_WAITALL) == token.encode():
            begun = time.monotonic()
            while sent < size and time.monotonic() - begun < seconds:
                sent += end.send(piece)
            end.shutdown(socket.SHUT_WR)
            if end.recv(1):  # all has arrived
                return sent / (time.monotonic() - begun)
    return 0.0


def try_all(targets: list[tuple[str, int, str]]) -> list[str | None]:
    """Try (host, port, token) all at once; return `try_address`'s answer for each."""
    answers: list[str | None] = [None] * len(targets)

    def try_one(index: int) -> None:
        answers[index] = try_address(*targets[index])

    threads = [threading.Thread(target=try_one, args=(i,)) for i in range(len(targets))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def describe_firewall(address: str, port: int, among: Sequence[int]) -> str:
    """Return the firewall rule that lets the other machines of the network through."""
    _, network = find_interface(address)
    family = "ip6" if network.version == 6 else "ip"
    ports = f"{port}, {min(among)}-{max(among)}"
    return (
        "if this machine has a firewall: nft add rule inet filter input "
        f"{family} saddr {network} tcp dport '{{ {ports} }}' accept"
    )


def name_interface(address: str) -> dict[str, str]:
    """Return the variables that let NCCL and gloo use the interface that has `address`."""
    name, _ = find_interface(address)
    return {"NCCL_SOCKET_IFNAME": f"={name}", "GLOO_SOCKET_IFNAME": name} if name else {}


def find_interface(address: str) -> tuple[str, ipaddress.IPv4Network | ipaddress.IPv6Network]:
    """Return the interface of this machine that has `address`, "" for none, and its network."""
    own = ipaddress.ip_address(address.partition("%")[0])
    for name, addresses in psutil.net_if_addrs().items():
        for each in addresses:
            with contextlib.suppress(ValueError):  # no IP address, or no mask
                bits = int(ipaddress.ip_address(each.netmask or "")).bit_count()
                place = f"{each.address.partition('%')[0]}/{bits}"
                network = ipaddress.ip_network(place, strict=False)
                if own in network:
                    return name, network
    return "", ipaddress.ip_network(own)


def explain_unreachable(why: str, caller: Mapping[str, Any], called: Mapping[str, Any]) -> str:
    """Return one line: which machine doesn't reach which, the likely cause, what to do."""
    cause = WSL if caller.get("wsl") or called.get("wsl") else CAUSES.get(why, "its network.")
    names = [f"{machine['host']} ({machine['address']})" for machine in (caller, called)]
    said = {"silent": "gets no answer from", "refused": "is refused by"}.get(why, "can't reach")
    return f"{names[0]} {said} {names[1]}. Likely cause: {cause}"
