"""Checks of the addresses in a cluster specification."""

import re
from collections.abc import Iterator

from .findings import Finding, show
from .spec import LOOPBACK_HOSTS, split_address

HIGHEST_PORT = 65535
LAST_PRIVILEGED_PORT = 1023
ANY_HOSTS = ("0.0.0.0", "::")
PORT_WORDS = ("port", "<port>", "PORT", "{port}", "$PORT")  # as documents write it
HOST = re.compile(r"[A-Za-z0-9_.-]+|[0-9A-Fa-f:.%]*:[0-9A-Fa-f:.%a-z]*")
Place = tuple[str, int]


def check_addresses(jobs: dict[str, list[str]], own: Place | None) -> list[Finding]:
    """Return the faults of all addresses, one by one and beside each other.

    `own` is the (job, index) of the task whose configuration this is: a loopback
    address among remote ones may be meant for it alone.
    """
    places = [(job, i, address) for job, all_ in jobs.items() for i, address in enumerate(all_)]
    found: list[Finding] = []
    for job, index, address in places:
        found += _check_address(f"cluster.{job}[{index}]", address)
    return found + list(_find_duplicates(places)) + list(_find_mixed_loopback(places, own))


def _check_address(where: str, address: str) -> list[Finding]:
    if "://" in address:
        scheme, _, rest = address.partition("://")
        rest = rest.strip("/") or "host:port"
        return [Finding("error", where, f"{show(address)} has a scheme, {scheme}://",
                        f"write {show(rest)}")]  # fmt: skip
    if address != address.strip() or any(c.isspace() for c in address):
        cure = f"write {show(''.join(address.split()))}"
        return [Finding("error", where, f"{show(address)} has a space in it", cure)]
    if "," in address:
        what = f"{show(address)} is several addresses in one text"
        return [Finding("error", where, what, 'write a list: ["a:2222", "b:2222"]')]
    if address.count(":") > 1 and not address.startswith("["):
        return [Finding("error", where, f"{show(address)} has several colons",
                        "write host:port, an IPv6 host in brackets: [::1]:2222")]  # fmt: skip
    host, port = split_address(address)
    return _check_host(where, host, address) + _check_port(where, port, address)


def _check_host(where: str, host: str, address: str) -> list[Finding]:
    if not host:
        return [Finding("error", where, f"{show(address)} names no host",
                        "write the name under which the other tasks reach it")]  # fmt: skip
    if host in ANY_HOSTS:
        what = f"{host} is where a server listens, not an address that others can reach"
        return [Finding("error", where, what, "write this task's own host name or address")]
    if not HOST.fullmatch(host):
        what = f"{show(host)} is no host name"
        return [Finding("error", where, what, "letters, digits, dots and hyphens only")]
    return []


def _check_port(where: str, port: str | None, address: str) -> list[Finding]:
    if port is None or port == "":
        return [Finding("error", where, f"{show(address)} has no port", "write host:port")]
    if port in PORT_WORDS:
        what = f"{show(address)} still has the documents' word for the port"
        return [Finding("warning", where, what, "put a number in before you start")]
    if not (port.isascii() and port.isdigit()):
        return [Finding("error", where, f"the port {show(port)} is not a number",
                        f"write a number from 1 to {HIGHEST_PORT}")]  # fmt: skip
    if not 1 <= int(port[:9]) <= HIGHEST_PORT or len(port) > 9:
        what = f"there is no port {port[:12]} for peers to call"
        return [Finding("error", where, what, f"choose from 1 to {HIGHEST_PORT}")]
    if int(port) <= LAST_PRIVILEGED_PORT:
        what = f"port {port} is privileged: only root may listen there"
        return [Finding("warning", where, what, f"choose one above {LAST_PRIVILEGED_PORT}")]
    return []


def _find_duplicates(places: list[tuple[str, int, str]]) -> Iterator[Finding]:
    first: dict[tuple[str, str | None], str] = {}
    for job, index, address in places:
        host, port = split_address(address)
        key = ("loopback" if host.lower() in LOOPBACK_HOSTS else host.lower(), port)
        if port in PORT_WORDS and key in first:
            continue
        if key in first:
            what = f"{show(address)} is the address of {first[key]} too"
            cure = "give each task its own port, or its own host"
            yield Finding("error", f"cluster.{job}[{index}]", what, cure)
        first.setdefault(key, f"{job}:{index}")


def _find_mixed_loopback(
    places: list[tuple[str, int, str]], own: Place | None
) -> Iterator[Finding]:
    local = [p for p in places if split_address(p[2])[0].lower() in LOOPBACK_HOSTS]
    if not local or len(local) == len(places):
        return
    remote = next(p for p in places if p not in local)
    for job, index, address in local:
        what = f"{show(address)} is each machine's own, but {remote[0]}:{remote[1]} is elsewhere"
        severity = "warning" if (job, index) == own else "error"
        cure = "write the host name that the other machines know"
        yield Finding(severity, f"cluster.{job}[{index}]", what, cure)
