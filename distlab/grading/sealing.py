"""Sealing one process, from inside: namespaces, mounts, limits, no way back.

The fork server runs under bubblewrap. Every submission gets namespaces of its own on
top of that: user, pid, mount, network, ipc, host name. Only the standard library is
used: this file is read inside the sandbox. Follows namespaces(7), user_namespaces(7),
capabilities(7), seccomp(2) and landlock(7).
"""

import ctypes
import fcntl
import os
import platform
import resource
import socket
import struct

NEW_NAMESPACES = 0x10000000 | 0x20000 | 0x20000000 | 0x40000000 | 0x08000000 | 0x04000000
# user, mount, pid, network, ipc, host name
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_REC, MS_PRIVATE = (
    1, 2, 4, 8, 32, 16384, 1 << 18,
)  # fmt: skip
PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 4, 24, 38
PR_SET_SECCOMP, SECCOMP_MODE_FILTER, PR_SET_CHILD_SUBREAPER = 22, 2, 36
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
TEMPORARY_MIB, SHARED_MIB = 256, 128
INSIDE_ID, NOBODY = 1000, 65534
LIMITS = {
    resource.RLIMIT_NOFILE: 4096,
    resource.RLIMIT_FSIZE: TEMPORARY_MIB * 2**20,
    resource.RLIMIT_CORE: 0,
    resource.RLIMIT_MEMLOCK: 2**16,
}
# System calls that no lab needs; (x86_64, aarch64) numbers, None where there is none.
FORBIDDEN = {
    "ptrace": (101, 117), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "chroot": (161, 51), "unshare": (272, 97), "setns": (308, 268), "bpf": (321, 280),
    "perf_event_open": (298, 241), "keyctl": (250, 219), "add_key": (248, 217),
    "request_key": (249, 218), "userfaultfd": (323, 282), "open_by_handle_at": (304, 265),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kexec_load": (246, 104),
    "init_module": (175, 105), "finit_module": (313, 273), "io_uring_setup": (425, 425),
    "move_mount": (429, 429), "fsopen": (430, 430), "open_tree": (428, 428),
    "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "pidfd_getfd": (438, 438), "name_to_handle_at": (303, 264), "swapon": (167, 224),
}  # fmt: skip
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: int | bytes | None) -> int:
    """Call a function of the C library; OSError with its name if it fails."""
    given = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = getattr(_libc, name)(*given)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def drop_root() -> None:
    """If this is the machine's root, uncover /proc and become nobody for good.

    bubblewrap covers parts of /proc where root could write to them, and the kernel
    then refuses a fresh /proc in an inner namespace. Nobody cannot write to them.
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


def enter_namespaces() -> None:
    """Give the next child of this process namespaces of its own; this process keeps its pid."""
    user, group = os.getuid(), os.getgid()
    call("unshare", NEW_NAMESPACES)
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{INSIDE_ID} {user} 1"),
        ("gid_map", f"{INSIDE_ID} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def seal(most_threads: int) -> None:
    """As process 1 of the new namespaces: private mounts, loopback, then no way back."""
    _mount_private()
    _bring_up_loopback()
    socket.sethostname("lab")
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("800")  # an answer raises its own to 1000
    _forbid_user_namespaces()
    for kind, most in {**LIMITS, resource.RLIMIT_NPROC: most_threads}.items():
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))
    _drop_capabilities()
    call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    restrict_files()
    forbid_calls()


def _mount_private() -> None:
    call("mount", b"none", b"/", None, MS_REC | MS_PRIVATE, None)
    for place, mib in ((b"/tmp", TEMPORARY_MIB), (b"/dev/shm", SHARED_MIB)):
        options = f"size={mib}m,mode=1777,nr_inodes=65536".encode()
        call("mount", b"tmpfs", place, b"tmpfs", MS_NOSUID | MS_NODEV, options)
    call("mount", b"proc", b"/proc", b"proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, None)


def _forbid_user_namespaces() -> None:
    with open("/proc/sys/user/max_user_namespaces", "w") as file:
        file.write("0")
    flags = MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC
    call("mount", b"proc", b"/proc", b"proc", flags, None)


def _bring_up_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        asked = fcntl.ioctl(probe, SIOCGIFFLAGS, struct.pack("16sh", b"lo", 0))
        flags = struct.unpack("16sh", asked)
        fcntl.ioctl(probe, SIOCSIFFLAGS, struct.pack("16sh", b"lo", flags[1] | IFF_UP))


def _drop_capabilities() -> None:
    for capability in range(64):
        if _libc.prctl(PR_CAPBSET_DROP, ctypes.c_long(capability), 0, 0, 0) < 0:
            break
    header = struct.pack("Ii", 0x20080522, 0)  # version 3, this process
    call("capset", header, struct.pack("6I", *[0] * 6))


def restrict_files() -> bool:
    """Let this process and its children write below /tmp, /dev/shm and to devices only.

    Landlock; returns False where the kernel has none.
    """
    version = _libc.syscall(444, None, ctypes.c_long(0), ctypes.c_long(1))
    if version < 1:
        return False
    writing = 0b1_1111_1111_0010 & ~0b1100  # all rights of version 1 but execute and reading
    writing |= (1 << 13 if version >= 2 else 0) | (1 << 14 if version >= 3 else 0)
    attributes = struct.pack("Q", writing)
    ruleset = call("syscall", 444, attributes, len(attributes), 0)
    for place in ("/tmp", "/dev"):
        folder = os.open(place, os.O_PATH)
        rule = struct.pack("=Qi", writing, folder)
        call("syscall", 445, ruleset, 1, rule, 0)
        os.close(folder)
    call("syscall", 446, ruleset, 0)
    os.close(ruleset)
    return True


def forbid_calls() -> bool:
    """Refuse, with EPERM, the system calls of FORBIDDEN; False on other processors."""
    known = _ARCHITECTURES.get(platform.machine())
    if known is None:
        return False
    column, architecture = known
    numbers = sorted(pair[column] for pair in FORBIDDEN.values())
    kill, refuse, allow = 0x80000000, 0x00050001, 0x7FFF0000
    load, equal, at_least, give = 0x20, 0x15, 0x35, 0x06
    program = [(load, 0, 0, 4), (equal, 1, 0, architecture), (give, 0, 0, kill), (load, 0, 0, 0)]
    program += [(at_least, 0, 1, 0x40000000), (give, 0, 0, kill)]  # the x32 numbers
    for number in numbers:
        program += [(equal, 0, 1, number), (give, 0, 0, refuse)]
    program.append((give, 0, 0, allow))
    body = b"".join(struct.pack("HBBI", *line) for line in program)
    buffer = ctypes.create_string_buffer(body, len(body))
    descriptor = struct.pack("HxxxxxxP", len(program), ctypes.addressof(buffer))
    call("prctl", PR_SET_SECCOMP, SECCOMP_MODE_FILTER, descriptor, 0, 0)
    return True
