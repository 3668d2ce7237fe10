"""Runs many command lines of `distlab`, each in a fork of one warm process: a child program.

Reads [[arguments...], ...] as JSON on standard input and prints
[[status, output, errors], ...] as JSON; status is None for one that took too long.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

SECONDS = 200  # only so that a hang ends


def run_all(lines, folder):
    """Return [status, output, errors] of each command line, run in `folder`."""
    done = subprocess.run(
        [sys.executable, __file__],
        input=json.dumps(lines),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=560,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "COLUMNS": "80"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def run(arguments):
    """Return (status, output, errors) of one command line."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        child = os.fork()
        if not child:
            signal.alarm(SECONDS)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(output.fileno(), 1)
            os.dup2(errors.fileno(), 2)
            status = 70
            try:
                status = sys.modules["distlab.cli"].main(arguments)
            except SystemExit as error:
                status = error.code
            except BaseException:
                import traceback

                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status if isinstance(status, int) else 71)
        _, ended = os.waitpid(child, 0)
        status = None if os.WIFSIGNALED(ended) else os.WEXITSTATUS(ended)
        texts = []
        for stream in (output, errors):
            stream.seek(0)
            texts.append(stream.read().decode(errors="replace"))
    return [status, *texts]


if __name__ == "__main__":
    import distlab.cli

    lines = json.load(sys.stdin)
    distlab.cli.make_parser = cache(distlab.cli.make_parser)
    for word in {tuple(line[:1]) for line in lines}:  # once for all lines that begin so
        distlab.cli.make_parser(*word)
    print(json.dumps([run(arguments) for arguments in lines]))
