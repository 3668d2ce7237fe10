"""One budget of memory for everything in the sandbox, in a cgroup where this machine has one.

Files in memory and socket buffers, which no process holds, count there too. When the budget is used
up, the kernel ends an answer (`oom_score_adj`) and no other program.
https://docs.kernel.org/admin-guide/cgroup-v2.html
"""

import contextlib
import os
import secrets
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
LIMITS = {"memory.max": 1, "memory.swap.max": 0}  # version 2; 0 for none
OLD_LIMITS = {"memory.limit_in_bytes": 1}


class MemoryBudget:
    """A separate cgroup for processes; without one, `path` is None and nothing is limited.

    `add` puts a process in, its children follow; `close` removes the group once it is empty.
    """

    def __init__(self, most_bytes: int) -> None:
        self.path: Path | None = None
        for folder, limits in _find_places():
            path = folder / f"distlab-grade-{secrets.token_hex(4)}"
            try:
                path.mkdir()
            except OSError:
                continue
            try:
                for name, share in limits.items():
                    if share or (path / name).exists():
                        (path / name).write_text(str(most_bytes * share))
                self.path = path
                return
            except OSError:
                path.rmdir()

    def add(self, process: int) -> None:
        """Put a process into the group; if that is refused, there is no budget."""
        if self.path is not None:
            try:
                (self.path / "cgroup.procs").write_text(str(process))
            except OSError:
                self.close()

    def close(self) -> None:
        """Remove the group, which its processes have left; safe to call twice."""
        path, self.path = self.path, None
        if path is not None:
            with contextlib.suppress(OSError):
                path.rmdir()


def _find_places() -> list[tuple[Path, dict[str, int]]]:
    """Return where a group may be made, next to this process's own, and its limits."""
    found = []
    try:
        lines = Path("/proc/self/cgroup").read_text().split("\n")
    except OSError:
        return []
    for line in filter(None, lines):
        _, controllers, path = line.split(":", 2)
        if not controllers:  # a group that holds processes can't share memory out: its parent
            own = ROOT / path.lstrip("/")
            found += [(own.parent, LIMITS), (own, LIMITS)]
        elif "memory" in controllers.split(","):
            for top in (path.lstrip("/"), ""):
                found.append((ROOT / "memory" / top, OLD_LIMITS))
    return [
        (p, limits)
        for p, limits in found
        if (p / "cgroup.procs").exists() and os.access(p, os.W_OK)
    ]
