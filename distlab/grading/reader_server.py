"""The fork server of the course's own readers and judges: each request has its own fork.

`python -m distlab.grading.reader_server SECONDS [DATA …] DESCRIPTOR`, started by
`reader_process.ReaderProcess`, with the lab's pickle on standard input: its parent has already read
the lab.
"""

import gc
import importlib
import json
import pickle
import resource
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from distlab.grading import alignment, cell_text, cell_verdict, notebook_file
from distlab.grading.labs import LabSpec
from distlab.grading.observation import CellObservation
from utils.data import load
from utils.environment import skip_uri_grammar
from utils.processes.fork_server import ForkLoop, serve

MAX_DATA_BYTES = 3 * 2**30


class ReaderLoop(ForkLoop):
    """Answers requests: a body of JSON, and the descriptor where the answer goes, as JSON."""

    def __init__(self, seconds: float, data: Sequence[str]) -> None:
        super().__init__()
        self.seconds, self.data = seconds, data
        self.lab: LabSpec | None = None

    def prepare(self) -> Mapping[str, Any]:
        skip_uri_grammar()
        self.lab = pickle.load(sys.stdin.buffer)
        warm_up(self.lab, self.data)
        gc.collect()
        return {}

    def run(self, request: Any, body: bytes, descriptors: Sequence[int]) -> int:
        """Take the limits, do the request, write the answer."""
        limits = {
            resource.RLIMIT_DATA: MAX_DATA_BYTES,
            resource.RLIMIT_FSIZE: 0,
            resource.RLIMIT_CORE: 0,
            resource.RLIMIT_CPU: int(self.seconds) + 1,
        }
        for kind, most in limits.items():
            resource.setrlimit(kind, (most, most))
        try:
            asked = json.loads(body)
            found = {"align": align, "judge": judge}[asked["do"]](self.lab, asked)
            answer = {"result": found}
        except BaseException as error:
            answer = {"refused": f"{type(error).__name__}: {error}"[:300]}
        with Connection(descriptors[0], readable=False) as writer:
            writer.send_bytes(json.dumps(answer).encode())
        return 0


def align(lab: LabSpec, request: dict[str, Any]) -> dict[str, Any]:
    """Read and align the notebook at `path`; `problem` says why there is nothing to run."""
    empty = alignment.Plan((), unanswered={})
    found: dict[str, Any] = {"sha256": "", "problem": "", **asdict(empty)}
    try:
        data = notebook_file.read_bytes(Path(request["path"]))
        found["sha256"] = notebook_file.hash_bytes(data)
        plan = alignment.Aligner(lab, notebook_file.read_notebook(data)).align()
    except notebook_file.Unreadable as error:
        return {**found, "problem": str(error)}
    return {**found, **asdict(plan)}


def judge(lab: LabSpec, request: dict[str, Any]) -> dict[str, Any]:
    """Judge the evidence of graded cells: a verdict for each."""
    cells = [CellObservation.from_data(cell) for cell in request["cells"]]
    found = []
    for cell in cells:
        graded = lab.graded[cell.id]
        bounds = lab.rules.traffic.get(graded.exercise) if request["sealed"] else None
        found.append(asdict(cell_verdict.judge_cell(graded, cell, request["seed"], bounds)))
    return {"cells": found}


def warm_up(lab: LabSpec, data: Sequence[str]) -> None:
    """Import and work out what every request needs, before the forks."""
    for name in ("numpy.random", f"distlab.labs.{lab.name}.judge"):
        importlib.import_module(name)
    if lab.rules.warm is not None:
        lab.rules.warm()
    for graded in lab.graded.values():
        graded.asking  # noqa: B018 - a cached property
        cell_verdict.compile_hidden(graded.id, graded.inputs, graded.hidden)
    for cell in lab.given:
        cell_text.compiles(cell.text)
        cell_text.find_defined(cell.text)
    for name in data:
        load(name)


if __name__ == "__main__":
    serve(ReaderLoop(float(sys.argv[1]), sys.argv[2:-1]))
