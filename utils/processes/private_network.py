"""A network that only one process and its children see, so that TensorFlow's ports are out of
reach of everyone else. Linux only.

TensorFlow's servers listen on all interfaces without asking for a password: anyone who reaches such
a port can read and write files as its owner. With `DISTLAB_NETWORK=private` kernels, warm processes
and the commands that start clusters here enter a network namespace that has nothing but a loopback
device. Ports still work between the tasks of a cluster. Nothing goes out either: no downloads.

Follows namespaces(7), user_namespaces(7), network_namespaces(7) and capabilities(7). A user who
isn't root needs unprivileged user namespaces, which some systems and most containers forbid.
"""

import ctypes
import os
import socket
import struct
import sys

VARIABLE = "DISTLAB_NETWORK"
NEW_USER, NEW_NETWORK = 0x10000000, 0x40000000
SIOCGIFFLAGS, SIOCSIFFLAGS, SIOCSIFADDR, IFF_UP = 0x8913, 0x8914, 0x8916, 1


def call(name: str, *arguments: int | bytes | None) -> int:
    """Call a function of the C library; OSError with its name if it fails."""
    given = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = getattr(ctypes.CDLL(None, use_errno=True), name)(*given)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def is_private_wanted() -> bool:
    """Return whether the environment asks for a private network that isn't there yet."""
    wanted, entered = os.environ.get(VARIABLE), os.environ.get(f"{VARIABLE}_ENTERED")
    return wanted == "private" and sys.platform == "linux" and entered != _name_network()


def enter_if_wanted() -> str:
    """Enter a private network if the environment asks for it. Return why that can't be, or "".

    Call it while this process has one thread. What it starts from now on is inside as well.
    """
    if not is_private_wanted():
        return ""
    why = find_obstacle()
    if not why:
        _enter()
        os.environ[f"{VARIABLE}_ENTERED"] = _name_network()
    return why


def find_obstacle() -> str:
    """Try it in a child; return why this process can't have a private network, "" if it can."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _enter()
            with socket.create_server(("127.0.0.1", 0)) as server:
                socket.create_connection(server.getsockname(), timeout=2).close()
        except BaseException as error:
            os.write(writer, (str(error) or type(error).__name__).encode()[:300])
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader) as told:
        why = told.read()
    os.waitpid(child, 0)
    return why


def _enter() -> None:
    """Leave the machine's network for a new one. Root needs no user namespace for it."""
    user, group = os.getuid(), os.getgid()
    try:
        call("unshare", NEW_NETWORK)
    except OSError:
        call("unshare", NEW_USER | NEW_NETWORK)
        map_identity(user, group)
        bring_up_loopback()
        add_address("127.0.0.2")
        drop_capabilities()
    else:
        bring_up_loopback()
        add_address("127.0.0.2")


def map_identity(user: int, group: int, inside: int | None = None) -> None:
    """In a new user namespace, be the same user and group as before, or `inside` for both."""
    names = (user, group) if inside is None else (inside, inside)
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{names[0]} {user} 1"),
        ("gid_map", f"{names[1]} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def bring_up_loopback() -> None:
    """Switch on the loopback device of this network."""
    import fcntl  # which Windows lacks

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        asked = fcntl.ioctl(probe, SIOCGIFFLAGS, struct.pack("16sh", b"lo", 0))
        flags = struct.unpack("16sh", asked)
        fcntl.ioctl(probe, SIOCSIFFLAGS, struct.pack("16sh", b"lo", flags[1] | IFF_UP))


def add_address(address: str) -> None:
    """Give the loopback device a second address.

    With 127.0.0.1 alone, getaddrinfo(3) with AI_ADDRCONFIG takes IPv4 for switched off, so that
    Slurm's programs can't even resolve 127.0.0.1.
    """
    import fcntl

    wanted = struct.pack("16sHH4s8x", b"lo:1", socket.AF_INET, 0, socket.inet_aton(address))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        fcntl.ioctl(probe, SIOCSIFADDR, wanted)


def drop_capabilities() -> None:
    """Give up what the first process of a user namespace may do in it."""
    header = struct.pack("Ii", 0x20080522, 0)  # version 3, this process
    call("capset", header, struct.pack("6I", *[0] * 6))


def _name_network() -> str:
    return os.readlink("/proc/self/ns/net")


def main() -> None:
    """Become the program whose words are this one's arguments, in a private network if wanted."""
    if why := enter_if_wanted():
        print(f"{sys.argv[1]}: other users can reach its ports, as {why}", file=sys.stderr)
    os.execvp(sys.argv[1], sys.argv[1:])
