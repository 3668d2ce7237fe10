"""The last traceback in a task's output: its error in one line, and the user's line behind it.

AutoGraph, graph execution and Keras print messages of many lines, and what went wrong stands
below the first one.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

TRACEBACK = "Traceback (most recent call last)"
SYNTAX = re.compile(r'  File ".*", line \d+')  # how Python begins where a file has a mistake
FRAME = re.compile(r'\s*File "(?P<file>[^"]+)", line (?P<line>\d+)')
FOREIGN = re.compile(r"(?:site|dist)-packages/|/lib/python3|__autograph_generated_file|^<")
IN_USER_CODE, IN_GRAPH, IN_CALL = "in user code:", "Graph execution error:", ".call()."
ROOTS = "root error(s) found."
NAMED = re.compile(r"    \w[\w.]*: ")  # an error's name in what AutoGraph prints
NOISE = re.compile(
    r"tensorflow\.python\.framework\.errors_impl\.|\x1b\[[\d;]*m|"
    r"\{\{function_node [^}]*\}\} | \[Op:\w+\](?: name: ?)?$"
)
BETWEEN = re.compile(r"\s|Detected at node|<stack traces|$")  # lines before a graph's error
LAST = re.compile(r"\[Op:\w+\]|^Arguments received by ")
MAX_LINES = 100  # of a message


@dataclass(frozen=True)
class RaisedError:
    """Python's output: the error in one line, its place, and the whole traceback.

    `place` is the last line of the user's own code, such as "train.py, line 8", or "".
    """

    error: str
    place: str
    traceback: str

    def __str__(self) -> str:
        return f"{self.error} ({self.place})" if self.place else self.error


def read_error(lines: Iterable[str]) -> RaisedError | None:
    """Return the error of the last traceback that Python printed, None if there is none."""
    traceback = find_traceback(lines)
    if not traceback:
        return None
    told = traceback.split("\n")
    message = [k for k, line in enumerate(told) if k and line.strip() and line[0] != " "]
    first = message[0] if message else len(told) - 1
    frames = [*map(FRAME.match, told[:first]), *map(FRAME.match, told[first:])]
    own = [frame for frame in frames if frame and not FOREIGN.search(frame["file"])]
    place = f"{own[-1]['file']}, line {own[-1]['line']}" if own else ""
    return RaisedError(unwrap(told[first:]), place, traceback)


def find_traceback(lines: Iterable[str]) -> str:
    """Return the last traceback that Python printed, from its first line to its message's last.

    For a file that isn't Python, it prints that error with the place alone. A prefix that each
    line has, as in `distlab run`'s output, is left out.
    """
    lines = list(lines)
    begins = [i for i, line in enumerate(lines) if TRACEBACK in line]
    begins = begins or [i for i, line in enumerate(lines) if SYNTAX.fullmatch(line)]
    if not begins:
        return ""
    first, *rest = lines[begins[-1] :]
    prefix = first.partition(TRACEBACK)[0].strip("\n")
    if prefix.strip() and rest and rest[0].startswith(prefix):
        rest = [line.removeprefix(prefix) for line in rest if line.startswith(prefix)]
        first = first.removeprefix(prefix)
    end = 0
    while end < len(rest) and (rest[end].startswith(" ") or not rest[end].strip()):
        end += 1
    message = _find_message(rest[end:])
    return "\n".join([first, *rest[:end], *message]).rstrip()


def _find_message(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines of the message that begins here: one, unless it is known to have more."""
    for number, line in enumerate(lines[:MAX_LINES]):
        inside = number and lines[0].endswith(IN_USER_CODE)
        if TRACEBACK in line or (inside and line.strip() and line[0] != " "):
            return
        yield line
        if not lines[0].endswith((IN_USER_CODE, IN_GRAPH, IN_CALL, ROOTS)) or LAST.search(line):
            return


def unwrap(message: Sequence[str]) -> str:
    """Return an error's message, "Name: words" first, as one line that says what went wrong."""
    first, *rest = [NOISE.sub("", line).rstrip() for line in message]
    name = first.partition(":")[0].rpartition(".")[2]
    if first.endswith(IN_USER_CODE):
        named = [k for k, line in enumerate(rest) if NAMED.match(line)]
        return unwrap([line[4:] for line in rest[named[-1] :]]) if named else first
    if first.endswith(IN_GRAPH):
        rest = rest[next((k for k, line in enumerate(rest) if not BETWEEN.match(line)), 0) :]
        return unwrap([f"{name}: {rest[0]}", *rest[1:]]) if rest else first
    if first.endswith((IN_CALL, ROOTS)):
        said = [line.strip() for line in rest if line.strip()]
        said = said[1:] if len(said) > 1 and said[0].endswith("Error encountered:") else said
        return f"{name}: {said[0]}" if said else first
    return first.strip()
