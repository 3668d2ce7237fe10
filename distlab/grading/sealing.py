"""Sealing one process, from inside: namespaces, mounts, limits, no way back.

The fork server runs under bubblewrap. Every submission gets its own namespaces on top of that:
user, pid, mount, network, ipc, host name. This file is read inside the sandbox. Follows
namespaces(7), user_namespaces(7), capabilities(7) and seccomp(2).
"""

import ctypes
import os
import resource
import socket
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from utils.processes.private_network import bring_up_loopback, call, drop_capabilities, map_identity

NEW_NAMESPACES = 0x10000000 | 0x20000 | 0x20000000 | 0x40000000 | 0x08000000 | 0x04000000
# user, mount, pid, network, ipc, host name
NEW_MOUNTS = 0x20000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 4, 24, 38
PR_SET_CHILD_SUBREAPER = 36
TEMPORARY_MIB, SHARED_MIB = 256, 128
INSIDE_ID, NOBODY = 1000, 65534
LIMITS = {
    resource.RLIMIT_NOFILE: 1024,
    resource.RLIMIT_FSIZE: TEMPORARY_MIB * 2**20,
    resource.RLIMIT_CORE: 0,
    resource.RLIMIT_MEMLOCK: 2**16,
}
# System calls that no lab needs. Memory without an owner (a segment, a memfd) would escape the
# measurement of the processes.
FORBIDDEN = (
    "ptrace mount umount2 pivot_root chroot unshare setns bpf perf_event_open keyctl add_key "
    "request_key userfaultfd open_by_handle_at name_to_handle_at process_vm_readv "
    "process_vm_writev kexec_load init_module finit_module io_uring_setup move_mount fsopen "
    "open_tree fsmount fspick "
    "mount_setattr pidfd_getfd swapon memfd_create memfd_secret shmget shmat msgget semget "
    "process_madvise kcmp vmsplice"
).split()
FAMILIES = (1, 2, 10, 16)  # of sockets that may be made: unix, inet, inet6, netlink
BUFFERS = (7, 8, 32, 33)  # SO_SNDBUF, SO_RCVBUF and the ones for root: a socket's memory
SOL_SOCKET, F_SETPIPE_SZ = 1, 1031
SCMP_ALLOW, SCMP_REFUSE, SCMP_UNKNOWN = 0x7FFF0000, 0x00050001, 0x00050026  # EPERM, ENOSYS
SCMP_EQUAL, SCMP_GREATER, SCMP_MASKED, CLONE_THREAD = 4, 6, 7, 0x10000
_libc = ctypes.CDLL(None, use_errno=True)


def drop_root() -> None:
    """If this is the machine's root, uncover /proc and become nobody for good.

    bubblewrap covers parts of /proc where root could write to them, and the kernel
    then refuses a fresh /proc in an inner namespace. Nobody can't write to them.
    """
    if os.getuid() != 0:
        return
    for name in ("sys", "sysrq-trigger", "irq", "bus"):
        while _libc.umount2(f"/proc/{name}".encode(), 2) == 0:
            pass
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    call("prctl", PR_SET_DUMPABLE, 1, 0, 0, 0)  # else /proc/self would belong to root


def forbid_looking() -> None:
    """Keep other processes of this user, such as its own workers, out of this one's memory."""
    call("prctl", PR_SET_DUMPABLE, 0, 0, 0, 0)


def enter_namespaces() -> None:
    """Give the next child of this process its own namespaces; this process keeps its pid."""
    user, group = os.getuid(), os.getgid()
    call("unshare", NEW_NAMESPACES)
    map_identity(user, group, INSIDE_ID)


def seal(most_threads: int, hidden: Sequence[Path] = ()) -> None:
    """As process 1 of the new namespaces: private mounts, loopback, then no way back.

    What is `hidden`, files or folders, is empty from here on. The parent sees its mounts as before.
    """
    call("unshare", NEW_MOUNTS)
    _mount_private()
    for place in hidden:
        _hide(place)
    bring_up_loopback()
    socket.sethostname("lab")
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("800")
    _forbid_user_namespaces()
    for kind, most in {**LIMITS, resource.RLIMIT_NPROC: most_threads}.items():
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))
    _drop_capabilities()
    call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    forbid_calls()


def _mount_private() -> None:
    call("mount", b"none", b"/", None, MS_REC | MS_PRIVATE, None)
    for place, mib in ((b"/tmp", TEMPORARY_MIB), (b"/dev/shm", SHARED_MIB)):
        options = f"size={mib}m,mode=1777,nr_inodes=65536".encode()
        call("mount", b"tmpfs", place, b"tmpfs", MS_NOSUID | MS_NODEV, options)
    call("mount", b"proc", b"/proc", b"proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, None)


def _hide(place: Path) -> None:
    target = str(place).encode()
    if place.is_dir():
        flags = MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC
        call("mount", b"none", target, b"tmpfs", flags, b"size=4k,mode=0555")
    else:
        call("mount", b"/dev/null", target, None, MS_BIND, None)


def _forbid_user_namespaces() -> None:
    with open("/proc/sys/user/max_user_namespaces", "w") as file:
        file.write("0")
    flags = MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC
    call("mount", b"proc", b"/proc", b"proc", flags, None)


def _drop_capabilities() -> None:
    for capability in range(64):
        if _libc.prctl(PR_CAPBSET_DROP, ctypes.c_long(capability), 0, 0, 0) < 0:
            break
    drop_capabilities()


class _Condition(ctypes.Structure):
    """A condition on one argument of a system call, as libseccomp has it."""

    _fields_ = (
        ("argument", ctypes.c_uint),
        ("compare", ctypes.c_int),
        ("value", ctypes.c_uint64),
        ("other", ctypes.c_uint64),
    )


def _list_rules(processes: bool) -> list[tuple[str, list[tuple[int, ...]]]]:
    """Return the calls that a filter refuses, and with which arguments ([]: with any)."""
    if not processes:  # the C library makes its threads with clone if there is no clone3
        start = [(0, SCMP_MASKED, CLONE_THREAD, 0)]
        return [("fork", []), ("vfork", []), ("clone", start), ("clone3", [])]
    families = [[(0, SCMP_EQUAL, n)] for n in range(max(FAMILIES)) if n not in FAMILIES]
    families.append([(0, SCMP_GREATER, max(FAMILIES))])
    buffers = [[(1, SCMP_EQUAL, SOL_SOCKET), (2, SCMP_EQUAL, n)] for n in BUFFERS]
    rules = [(name, list[tuple[int, ...]]()) for name in FORBIDDEN]
    rules += [(name, when) for when in families for name in ("socket", "socketpair")]
    rules += [("setsockopt", when) for when in buffers]
    return [*rules, ("fcntl", [(1, SCMP_EQUAL, F_SETPIPE_SZ)])]


@cache
def make_filter(processes: bool = True) -> tuple[ctypes.CDLL, int]:
    """Return libseccomp and its filter, for this processor, of what no lab needs: EPERM.

    Without `processes` it is another one, of what starts a process. Called before a fork, it is
    made once for all. OSError where libseccomp isn't there or refuses.
    """
    library = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_rule_add_array.argtypes = [
        ctypes.c_void_p,
        ctypes.c_uint32,
        ctypes.c_int,
        ctypes.c_uint,
        ctypes.POINTER(_Condition),
    ]
    library.seccomp_load.argtypes = [ctypes.c_void_p]
    made = library.seccomp_init(ctypes.c_uint32(SCMP_ALLOW))
    for name, when in _list_rules(processes):
        number = library.seccomp_syscall_resolve_name(name.encode())
        conditions = (_Condition * len(when))(*(_Condition(*each) for each in when))
        if number == -1:  # a call that this version of the library doesn't know
            continue
        action = SCMP_UNKNOWN if name == "clone3" else SCMP_REFUSE
        failed = library.seccomp_rule_add_array(made, action, number, len(when), conditions)
        if failed:
            raise OSError(-failed, f"libseccomp: no rule for {name}: {os.strerror(-failed)}")
    return library, made


def forbid_calls(processes: bool = True) -> None:
    """Refuse what no lab needs, or new `processes`, here and in what this process starts."""
    library, made = make_filter(processes)
    if failed := library.seccomp_load(made):
        raise OSError(-failed, f"libseccomp: {os.strerror(-failed)}")
