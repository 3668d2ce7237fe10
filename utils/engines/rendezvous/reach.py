"""Whether the machines of a run reach each other, tried at the very ports that it will use."""

import contextlib
import errno
import secrets
import socket
import threading
from collections.abc import Mapping
from typing import Any

TRY_SECONDS, TOKEN_BYTES = 5.0, 16
UNREACHABLE = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN, errno.EHOSTDOWN)
CAUSES = {
    "silent": "a firewall that drops, or a Wi-Fi that keeps its clients apart (client isolation, "
    "usual in guest networks): allow the ports of Python in the firewall, or use another network",
    "refused": "a firewall that rejects, or an address that is not that machine's: allow the "
    "ports of Python in the firewall, or name the right address with --advertise-address",
    "unreachable": "they are in different networks: join the same one, or name an address that "
    "both have with --advertise-address",
    "stranger": "another machine answers there: name the right address with --advertise-address",
}
WSL = (
    "WSL2 is behind a NAT of its own: write networkingMode=mirrored under [wsl2] into .wslconfig "
    "on Windows, then `wsl --shutdown`, and allow the ports in Windows' firewall"
)


class OpenPorts:
    """Ports of this machine that are held and answered until `release`, so that peers can try.

    Whoever connects gets `token`, which shows that it has reached this machine.
    """

    def __init__(self, host: str, count: int) -> None:
        self.token = secrets.token_hex(TOKEN_BYTES)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listeners = []
        try:
            for _ in range(count):
                self._listeners.append(socket.create_server((host, 0), family=family))
        except BaseException:
            self.release()
            raise
        self.ports = [one.getsockname()[1] for one in self._listeners]
        for one in self._listeners:
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
                end.recv(1)  # the caller hangs up first, so that the port is free at once

    def release(self) -> None:
        """Close the ports; safe to call twice."""
        for one in self._listeners:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


def try_address(host: str, port: int, token: str, seconds: float = TRY_SECONDS) -> str | None:
    """Return why the machine with `token` cannot be reached there (of CAUSES), None if it can."""
    try:
        with socket.create_connection((host, port), seconds) as end:
            got = end.recv(2 * TOKEN_BYTES, socket.MSG_WAITALL)
            return None if got == token.encode() else "stranger"
    except TimeoutError:
        return "silent"
    except OSError as error:
        return "unreachable" if error.errno in UNREACHABLE else "refused"


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


def explain_unreachable(why: str, caller: Mapping[str, Any], called: Mapping[str, Any]) -> str:
    """Return one line: which machine does not reach which, the likely cause, what to do."""
    cause = WSL if caller.get("wsl") or called.get("wsl") else CAUSES.get(why, "see its network")
    names = [f"{machine['host']} ({machine['address']})" for machine in (caller, called)]
    said = {"silent": "gets no answer from", "refused": "is refused by"}.get(why, "cannot reach")
    return f"{names[0]} {said} {names[1]}; likely {cause}"
