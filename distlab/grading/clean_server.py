"""The other side of `clean_process`: forks for each request, waits with a limit, answers.

`python -m distlab.grading.clean_server DESCRIPTOR SECONDS [DATA …]`, the lab's pickle on
standard input: whoever starts it has read the lab already.
"""

import gc
import json
import os
import pickle
import resource
import selectors
import signal
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from distlab.grading import alignment, cell_text, evidence, notebook_file
from distlab.grading.labs import LabSpec
from distlab.grading.observe import CellObservation
from utils.cluster.protocol import receive_message, send_message
from utils.data import load
from utils.environment import skip_uri_grammar

MOST_DATA, MOST_ANSWER = 3 * 2**30, 64 * 2**20


def align(lab: LabSpec, request: dict[str, Any]) -> dict[str, Any]:
    """Read and align the notebook at `path`; `problem` says why there is nothing to run."""
    found: dict[str, Any] = {"sha256": "", "problem": "", "cells": [], "notes": []}
    try:
        data = notebook_file.read_bytes(Path(request["path"]))
        found["sha256"] = notebook_file.hash_bytes(data)
        plan = alignment.Aligner(lab, notebook_file.read_notebook(data)).align()
    except notebook_file.Unreadable as error:
        return {**found, "problem": str(error)}
    return {**found, **asdict(plan)}


def judge(lab: LabSpec, request: dict[str, Any]) -> dict[str, Any]:
    """Judge the evidence of graded cells: a verdict for each."""
    cells = [CellObservation(**cell) for cell in request["cells"]]
    seed = request["seed"]
    return {"cells": [asdict(evidence.judge_cell(lab.graded[c.id], c, seed)) for c in cells]}


def answer(lab: LabSpec, request: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Answer one request in a fork; say why where it ended without an answer."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            write_answer(lab, request, writer, seconds)
        finally:
            os._exit(1)
    os.close(writer)
    data = read_answer(reader, time.monotonic() + seconds)
    if data is None:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if data is None:
        return {"refused": f"it took more than {seconds:g} s or {MOST_ANSWER // 2**20} MiB"}
    try:
        return {"result": json.loads(data)}
    except ValueError:
        code = os.waitstatus_to_exitcode(status)
        return {"refused": data.decode(errors="replace")[:300] or f"it ended with status {code}"}


def write_answer(lab: LabSpec, request: dict[str, Any], writer: int, seconds: float) -> None:
    """In the fork: take the limits, do what is asked, write the result."""
    limits = {resource.RLIMIT_DATA: MOST_DATA, resource.RLIMIT_FSIZE: 0,
              resource.RLIMIT_CORE: 0, resource.RLIMIT_CPU: int(seconds) + 1}  # fmt: skip
    for kind, most in limits.items():
        resource.setrlimit(kind, (most, most))
    try:
        result = {"align": align, "judge": judge}[request["do"]](lab, request)
        data = json.dumps(result).encode()
    except BaseException as error:
        data = f"{type(error).__name__}: {error}"[:300].encode(errors="replace")
    while data:
        data = data[os.write(writer, data) :]
    os._exit(0)


def read_answer(reader: int, deadline: float) -> bytes | None:
    """Return all that comes, None if it takes too long or is too much."""
    data = bytearray()
    with selectors.DefaultSelector() as selector, os.fdopen(reader, "rb", buffering=0) as file:
        selector.register(file, selectors.EVENT_READ)
        while len(data) <= MOST_ANSWER and (left := deadline - time.monotonic()) > 0:
            if not selector.select(left):
                continue
            piece = file.read(2**18)
            if not piece:
                return bytes(data)
            data += piece
    return None


def warm_up(lab: LabSpec, data: Sequence[str]) -> None:
    """Import and work out what every request needs, before the forks."""
    for graded in lab.graded.values():
        graded.asking  # noqa: B018 - a cached property
    for cell in lab.given:
        cell_text.compiles(cell.text)
        cell_text.find_defined(cell.text)
    for name in data:
        load(name)


def main() -> None:
    skip_uri_grammar()
    connection = socket.socket(fileno=int(sys.argv[1]))
    lab = pickle.load(sys.stdin.buffer)
    warm_up(lab, sys.argv[3:])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    gc.collect()
    gc.freeze()
    send_message(connection, {"told": "ready"})
    while (received := receive_message(connection)) is not None:
        send_message(connection, answer(lab, received[0], float(sys.argv[2])))


if __name__ == "__main__":
    main()
