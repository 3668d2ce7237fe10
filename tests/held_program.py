"""Runs a program that stays where a test disturbs it.

`held_program.py GO CALLS OWNER NAME PROGRAM …`: after call number CALLS of OWNER's function NAME
(`numpy savez`, `keras:Model fit`) it waits until the file GO is there.
"""

import pkgutil
import runpy
import sys
import time
from pathlib import Path


def hold(go: Path, calls: int, owner: object, name: str) -> None:
    """Wrap a function, so that its `calls`-th call returns once `go` is there."""
    function, left = getattr(owner, name), iter(range(calls - 1, -1, -1))

    def call(*arguments, **options):
        result = function(*arguments, **options)
        if next(left, None) == 0:
            while not go.exists():
                time.sleep(0.02)
        return result

    setattr(owner, name, call)


if __name__ == "__main__":
    go, calls, owner, name = sys.argv[1:5]
    sys.argv[:] = sys.argv[5:]
    hold(Path(go), int(calls), pkgutil.resolve_name(owner), name)
    program = Path(sys.argv[0]).resolve()
    sys.path[0] = str(program.parent)
    runpy.run_path(str(program), run_name="__main__")
