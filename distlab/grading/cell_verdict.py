"""Judges what one graded cell gave: draws the inputs, decodes the answers, runs the hidden tests.

The learner's code isn't here, and neither is anything that it could have changed.
"""

import json
from dataclasses import asdict, dataclass
from functools import cache
from types import CodeType
from typing import Any

import numpy as np

from distlab.exercises.refusing import explain_words
from distlab.grading.encoding import decode
from distlab.grading.judging import Traffic, WrongAnswer
from distlab.grading.labs import GradedCell
from distlab.grading.observation import CellObservation
from distlab.grading.text import clean

MAX_MESSAGE = 2000
MISSING = "ModuleNotFoundError"
OURS = ("'distlab", "'utils")  # a missing module of the course is no reason to wait


@dataclass(frozen=True)
class CellVerdict:
    """The verdict on one graded cell. `status`: "right", "wrong" or "for a human".

    `table` has the fields of an `AnswerTable` if the judge has one.
    """

    status: str
    misconception: str = ""
    message: str = ""
    table: dict[str, Any] | None = None


def judge_cell(
    graded: GradedCell, cell: CellObservation, seed: int, traffic: Traffic | None = None
) -> CellVerdict:
    """Return the verdict of one graded cell from its observation.

    `traffic` works out the least and the most bytes that it has to send, where it has to.
    """
    try:
        got = read_got(cell.got, graded.got)
    except ValueError as error:
        return CellVerdict("for a human", "", f"what came back is no answer: {error}"[:300])
    if set(got) < set(graded.got):
        return judge_unanswered(cell)
    try:
        inputs = run_hidden(graded, got, seed)
    except AssertionError as error:
        said = clean(str(error), MAX_MESSAGE)
        if not isinstance(error, WrongAnswer):
            return CellVerdict("wrong", "", said)
        return CellVerdict("wrong", error.misconception, said, error.table and asdict(error.table))
    except Exception as error:
        what = clean(f"{type(error).__name__}: {error}", MAX_MESSAGE)
        return CellVerdict("for a human", "", f"the judge couldn't read this answer ({what})")
    return judge_right(cell, traffic(inputs) if traffic else None)


def read_got(text: str, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the decoded answers among `names`; ValueError for what `encode` didn't write."""
    try:
        data = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(data, dict):
        raise ValueError("it isn't a dictionary of answers")
    return {name: decode(data[name]) for name in names if name in data}


def run_hidden(graded: GradedCell, got: dict[str, Any], seed: int) -> dict[str, Any]:
    """Run the hidden tests; return the names of the inputs that they were run with."""
    space: dict[str, Any] = {"np": np, "SEED": seed, "__name__": "judge"}
    inputs, hidden = compile_hidden(graded.id, graded.inputs, graded.hidden)
    exec(inputs, space)  # noqa: S102 - ours
    space.update(got)
    exec(hidden, space)  # noqa: S102 - ours
    return space


@cache
def compile_hidden(name: str, inputs: str, hidden: str) -> tuple[CodeType, CodeType]:
    """Return the code of a graded cell's inputs and of its hidden tests: before a fork, once."""
    return (
        compile(inputs, f"<inputs of {name}>", "exec"),
        compile(hidden, f"<judge of {name}>", "exec"),
    )


def judge_unanswered(cell: CellObservation) -> CellVerdict:
    """Judge a cell that didn't get to its answers."""
    if cell.status == "raised" and cell.error.startswith("NotImplementedError"):
        return CellVerdict("wrong", "", "this exercise is not written yet")
    if cell.status == "raised" and (missing := find_missing(cell)):
        said = f"the answer needs what isn't here ({missing}): a human should look at it"
        return CellVerdict("for a human", "", said[:MAX_MESSAGE])
    if cell.status == "raised":
        where = f" ({cell.trace.split(chr(10))[-1]})" if cell.trace else ""
        ours = cell.error.startswith("AssertionError")  # which explains itself
        why = "" if ours else explain_words(cell.error)
        said = f"the answer raised {cell.error}{where}" + (f": {why}" if why else "")
        return CellVerdict("wrong", "", said[:MAX_MESSAGE])
    if cell.status in ("timed out", "killed"):
        return CellVerdict("wrong", "", f"the answer gave nothing: {cell.error}"[:MAX_MESSAGE])
    return CellVerdict("for a human", "", f"no answer came back ({cell.error or cell.status})")


def find_missing(cell: CellObservation) -> str:
    """Return what raised for want of a package that the learner had, "" if nothing."""
    found = (said for said in (*cell.failed, cell.error) if MISSING in said)
    return next((said for said in found if not any(ours in said for ours in OURS)), "")


def judge_right(cell: CellObservation, traffic: tuple[float, float] | None = None) -> CellVerdict:
    """Judge a cell whose answers to the judge's inputs are right: did it send what it has to?"""
    if traffic is not None and not traffic[0] <= cell.traffic_bytes <= traffic[1]:
        least, most = traffic
        said = (
            f"its results are right, but the kernel counted {cell.traffic_bytes:,} bytes between "
            f"its processes: this exercise sends {least:,.0f} to {most:,.0f}"
        )
        return CellVerdict("wrong", "", said)
    return CellVerdict("right")
