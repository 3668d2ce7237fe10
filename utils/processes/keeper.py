"""A small process that ends a run's tasks if the process that started them is killed.

Its argument is the identity of a cluster, its standard input a pipe. The launcher writes a word
into that before it leaves. If the pipe ends without one, the launcher is dead, and every process
that carries the mark of its cluster is killed. It also removes what earlier clusters left that
were killed together with their keepers.
"""

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator

from .module_command import make_module_command
from .registry import ClusterMark, end_cluster, make_mark, remove_folder, remove_orphaned_folders

DONE = b"done\n"
DEAF_TO = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class Keeper:
    """The launcher's end. Start it before the tasks; `close` once they have ended.

    It is deaf from its first moment: Slurm, for one, asks all processes of a step to end.
    """

    def __init__(self, identity: str) -> None:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, DEAF_TO)  # which a child inherits
        try:
            self.process = subprocess.Popen(
                make_module_command(__name__, identity),
                stdin=subprocess.PIPE,
                start_new_session=True,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def close(self) -> None:
        """Let it leave; safe to call twice."""
        if self.process.stdin is not None and not self.process.stdin.closed:
            try:
                self.process.stdin.write(DONE)
                self.process.stdin.close()
            except BrokenPipeError:
                pass  # it was killed
            self.process.wait()


@contextlib.contextmanager
def keep_marked() -> Iterator[ClusterMark]:
    """Give a mark for the tasks of a run: when the block ends, or this process, none is left."""
    mark = make_mark()
    keeper = Keeper(mark.identity)
    try:
        yield mark
    finally:
        end_cluster(mark.identity)  # what tasks started and took out of their groups
        remove_folder(mark.folder)
        keeper.close()


def main() -> None:
    remove_orphaned_folders()
    if sys.stdin.buffer.read() != DONE:
        end_cluster(sys.argv[1])
