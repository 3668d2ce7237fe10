"""What a container or a batch system allows this process: Linux control groups, v1 and v2.

Follows the kernel's documentation, admin-guide/cgroup-v2 and cgroup-v1. A limit
holds for a group and all groups below it, so every group upwards is read.
"""

from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
OWN_GROUPS = Path("/proc/self/cgroup")
NO_LIMIT = 2**60  # v1 writes "no limit" as a number near 2**63


def read_cpu_quota(root: Path = ROOT, own_groups: Path = OWN_GROUPS) -> float | None:
    """Return how many processors' time this process may use (1.5, say), None for no limit."""
    quotas = []
    for text in _read_upwards(root, own_groups, "", "cpu.max"):
        quota, _, period = text.partition(" ")
        if quota != "max":
            quotas.append(int(quota) / int(period or 100_000))
    for group in _groups_upwards(root, own_groups, "cpu"):
        quota, period = (_read(group / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
        if quota and period and int(quota) > 0:
            quotas.append(int(quota) / int(period))
    return min(quotas, default=None)


def read_memory_limit_bytes(root: Path = ROOT, own_groups: Path = OWN_GROUPS) -> int | None:
    """Return the most memory this process and its group may hold, in bytes; None for no limit."""
    texts = [*_read_upwards(root, own_groups, "", "memory.max")]
    texts += _read_upwards(root, own_groups, "memory", "memory.limit_in_bytes")
    limits = [int(text) for text in texts if text != "max"]
    return min((limit for limit in limits if limit < NO_LIMIT), default=None)


def _read_upwards(root: Path, own_groups: Path, controller: str, name: str) -> Iterator[str]:
    for group in _groups_upwards(root, own_groups, controller):
        text = _read(group / name)
        if text:
            yield text


def _groups_upwards(root: Path, own_groups: Path, controller: str) -> Iterator[Path]:
    """Yield the folder of this process's group and of those above it ("" is v2's hierarchy)."""
    for line in (_read(own_groups) or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            mount = root / controllers if controller else root
            mount = mount if mount.is_dir() else root / controller
            group = mount / path.lstrip("/")
            while True:
                yield group
                if group == mount:
                    break
                group = group.parent


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
