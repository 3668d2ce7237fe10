"""Runs many command lines of `distlab`, in forks of one warm process: a child program.

A line that ends in the parser needs no fork.
Reads [[arguments...], ...] as JSON on standard input and prints
[[status, output, errors], ...] as JSON; status is None for one that took too long.
"""

import contextlib
import io
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


def refuse(arguments):
    """Return [status, output, errors] of a command line that ends in the parser, else None."""
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            distlab.cli.make_parser(*arguments[:1]).parse_args(arguments or ["--help"])
        except SystemExit as error:
            return [error.code, output.getvalue(), errors.getvalue()]
        except Exception:  # `main` says it
            return None


def run(arguments):
    """Return [status, output, errors] of one command line."""
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
    import distlab.grading.labs  # these are there for all forks
    import utils.engines.programs  # noqa: F401

    lines = json.load(sys.stdin)
    distlab.cli.make_parser = cache(distlab.cli.make_parser)
    for word in {tuple(line[:1]) for line in lines}:  # once for all lines that begin so
        distlab.cli.make_parser(*word)
    print(json.dumps([refuse(arguments) or run(arguments) for arguments in lines]))
