"""Count the bytes that a task really sent and received over TCP, by the kernel's counters.

Linux tells every connection's counters over netlink (sock_diag(7), `tcp_info` in
linux/tcp.h); /proc/PID/fd tells whose connection it is. Elsewhere, or if that isn't
allowed, nothing is known, and nothing is made up.
"""

import os
import socket
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress

SOCK_DIAG, SOCK_DIAG_BY_FAMILY, REQUEST_AND_DUMP = 4, 20, 0x301
INFO = 2  # INET_DIAG_INFO: the attribute that holds tcp_info
HEADER_BYTES, MESSAGE_BYTES, INODE_AT = 16, 72, 68
RECEIVED_AT, SENT_AT = 128, 200  # tcpi_bytes_received, tcpi_bytes_sent in tcp_info
Counts = tuple[int, int]  # bytes sent, bytes received


class TrafficMeter:
    """Adds up what processes send and receive, also over connections that have closed since."""

    def __init__(self) -> None:
        self._seen: dict[int, dict[int, Counts]] = {}  # process -> socket -> counts

    def read(self, processes: Iterable[int]) -> dict[int, Counts]:
        """Return process -> (bytes sent, bytes received) so far; without those unknown."""
        counts = read_sockets()
        for process in processes:
            seen = self._seen.setdefault(process, {})
            seen.update({s: counts[s] for s in list_sockets(process) if s in counts})
        return {
            process: (sum(c[0] for c in seen.values()), sum(c[1] for c in seen.values()))
            for process, seen in self._seen.items()
            if seen
        }


def list_sockets(process: int) -> list[int]:
    """Return the inode numbers of the sockets that a process of this user has open."""
    found = []
    with suppress(OSError):  # it has ended, or this isn't Linux
        for name in os.listdir(f"/proc/{process}/fd"):
            with suppress(OSError):
                target = os.readlink(f"/proc/{process}/fd/{name}")
                if target.startswith("socket:["):
                    found.append(int(target[8:-1]))
    return found


def read_sockets() -> dict[int, Counts]:
    """Return socket inode -> counts of every TCP connection here; {} where it can't be had."""
    counts: dict[int, Counts] = {}
    with suppress(OSError, AttributeError, struct.error):
        for family in (socket.AF_INET, socket.AF_INET6):
            counts.update(_dump(family))
    return counts


def _dump(family: int) -> Iterator[tuple[int, Counts]]:
    every_state = 0xFFFFFFFF
    request = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 1 << (INFO - 1), 0, every_state)
    request += bytes(48)  # any address, any port
    head = struct.pack(
        "=IHHII", HEADER_BYTES + len(request), SOCK_DIAG_BY_FAMILY, REQUEST_AND_DUMP, 1, 0
    )
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, SOCK_DIAG) as connection:
        connection.settimeout(1)
        connection.send(head + request)
        while True:
            data = connection.recv(1 << 16)
            for kind, message in _split(data):
                if kind != SOCK_DIAG_BY_FAMILY:  # done, or an error
                    return
                (inode,) = struct.unpack_from("=I", message, INODE_AT)
                for attribute, value in _split_attributes(message[MESSAGE_BYTES:]):
                    if attribute == INFO and len(value) >= SENT_AT + 8:
                        yield inode, _read_counts(value)


def _read_counts(info: bytes) -> Counts:
    (sent,) = struct.unpack_from("=Q", info, SENT_AT)
    (received,) = struct.unpack_from("=Q", info, RECEIVED_AT)
    return sent, received


def _split(data: bytes) -> Iterator[tuple[int, bytes]]:
    place = 0
    while place + HEADER_BYTES <= len(data):
        length, kind = struct.unpack_from("=IH", data, place)
        yield kind, data[place + HEADER_BYTES : place + length]
        place += (length + 3) & ~3


def _split_attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    place = 0
    while place + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, place)
        if length < 4:
            return
        yield kind, data[place + 4 : place + length]
        place += (length + 3) & ~3
