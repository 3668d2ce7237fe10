"""Saying every few seconds which peers of a task don't answer, while TensorFlow waits for them.

This is a separate process: while TensorFlow makes a strategy of several workers, it lets no thread
of that process run Python. TensorFlow itself names a missing peer at most once, and only on worker
0.
"""

import contextlib
import json
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping

from .connection import answers
from .module_command import make_module_command

WORD_SECONDS, PROBE_SECONDS = 5.0, 1.0


@contextlib.contextmanager
def name_missing_peers(who: str, peers: Mapping[str, str]) -> Iterator[None]:
    """While the block runs, name on standard error the `peers` that don't answer.

    `peers` are names and addresses ("host:port"). Begins after five seconds, and then says so
    every five seconds: "WHO: waiting for worker:1 at 10.0.0.2:2222, which does not answer". The
    one who says it ends with the block, or with this process in whatever way.
    """
    command = make_module_command(__name__, who, json.dumps(dict(peers)))
    watcher = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    try:
        yield
    finally:
        watcher.stdin.close()
        watcher.wait()


def main() -> None:
    who, peers = sys.argv[1], json.loads(sys.argv[2])
    while not select.select([sys.stdin], [], [], WORD_SECONDS)[0]:  # the pipe ends: all are there
        missing = [
            f"{name} at {at}" for name, at in peers.items() if not answers(at, PROBE_SECONDS)
        ]
        if missing:
            does = "which doesn't" if len(missing) == 1 else "which don't"
            words = f"{who}: waiting for {', '.join(missing)}, {does} answer"
            print(words, file=sys.stderr, flush=True)
