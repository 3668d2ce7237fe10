"""The process of an answer, inside the sandbox: it has the learner's own cells and nothing else.

It runs them, and then calls their functions, or runs an exercise with them, each time the harness
asks. Its output isn't trusted; no seed and no pipe of the grader are in it.
"""

import __future__

import ast
import asyncio
import base64
import contextlib
import importlib
import inspect
import linecache
import os
import random
import socket
import sys
import tempfile
import traceback
import types
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from distlab.exercises.exercise import Exercise, list_exercises
from distlab.exercises.traveling import TravelingAnswer, pack_answers
from distlab.grading.absent import AbsentFinder
from distlab.grading.answer_calls import AnswerGone, Channel, pack_changed, unpack, within
from distlab.grading.encoding import decode, encode
from distlab.grading.program_cell import FUNCTION, write_program
from distlab.grading.sealing import forbid_looking

MAX_TEXT = 4000
FUTURE = sum({getattr(__future__, name).compiler_flag for name in __future__.all_feature_names})
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)


class CutOff(BaseException):
    """Raised to stop a cell that takes too long: no `except Exception` catches it."""


class Shell:
    """A cell's IPython: a magic does nothing, and the cell continues."""

    def __getattr__(self, name: str) -> Any:
        return lambda *given, **named: [] if name == "getoutput" else None


class Answer:
    """The definitions of a learner's cells: `space` is their namespace."""

    def __init__(self) -> None:
        module = types.ModuleType("__main__")
        sys.modules["__main__"] = module  # as in a kernel: cloudpickle sends what is in it
        self.space, self.labels = vars(module), dict[str, str]()
        self.space |= {"display": print, FUNCTION: write_program, "get_ipython": Shell}
        self.space["input"] = lambda *prompt: ""
        self.failed: list[str] = []
        self.flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT

    def run_cell(self, label: str, text: str, seconds: float) -> None:
        """Run a cell; a statement that fails stops no other, one that is cut off all but `def`."""
        name = f"<answer {len(self.labels)}>"
        self.labels[name] = label
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        late = False
        try:
            body = ast.parse(text).body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            self._note(label, error)
            return
        with within(3 * seconds, CutOff, seconds, again=0):
            for statement in body:
                if late and not isinstance(statement, DEFINITIONS):
                    continue
                try:
                    self._run(statement, name)
                except KeyboardInterrupt:
                    raise
                except CutOff:
                    self.failed.append(f"{label} was cut off after {seconds:g} s")
                    late = True
                except BaseException as error:
                    self._note(label, error)

    def _run(self, statement: ast.stmt, name: str) -> None:
        module = ast.Module([statement], [])
        code = compile(module, name, "exec", flags=self.flags, dont_inherit=True)
        self.flags |= code.co_flags & FUTURE  # `from __future__` holds from here on, as in IPython
        found = eval(code, self.space)  # noqa: S307 - the sandbox is here for this
        if inspect.iscoroutine(found):
            asyncio.run(found)

    def _note(self, label: str, error: BaseException) -> None:
        self.failed.append(f"{label} raised {describe(error, self.labels)['error']}")

    def find(self, name: str) -> Any:
        """Return what is called `name`; NameError with what failed before."""
        if name in self.space:
            return self.space[name]
        said = f" ({'; '.join(self.failed[-2:])})" if self.failed else ""
        raise NameError(f"name {name!r} is not defined{said}")


def describe(error: BaseException, labels: Mapping[str, str]) -> dict[str, str]:
    """Return the error in one line and the learner's own frames, whatever the error does."""
    kind = type(error).__name__
    try:
        text = str(error).strip() or kind
        said = kind if text == kind else f"{kind}: {text}"
        frames = traceback.extract_tb(error.__traceback__)
        lines = [
            f"{labels[f.filename]}, line {f.lineno} in {f.name}: {(f.line or '')[:200]}"
            for f in frames
            if f.filename in labels
        ]
    except BaseException:  # the learner's own exception class
        said, lines = kind, []
    return {"error": said[:MAX_TEXT], "trace": "\n".join(lines[-6:])[:MAX_TEXT]}


def serve(channel: Channel) -> None:
    """Answer the harness until it hangs up."""
    process, answer = os.getpid(), Answer()
    while True:
        try:
            asked = channel.receive()
        except AnswerGone:
            return
        try:
            told = do(channel, answer, asked)
        except BaseException as error:
            told = describe(error, answer.labels)
        told["failed"] = answer.failed[-8:]
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        if os.getpid() != process:
            os._exit(0)  # a process that the learner's code forked has nothing to say
        channel.send(**told)


def do(channel: Channel, answer: Answer, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Do the request; return the reply."""
    if asked["do"] == "call":
        return call(channel, answer, asked)
    if asked["do"] == "observe":
        return {"result": observe(answer, asked)}
    if asked["do"] == "serve":
        found = [answer.find(asked["name"])] if asked["name"] else []
        served = find_exercise(asked["lab"], asked["exercise"]).serve(*found)
        answer.space[f"{asked['name']} served"] = served
        return {}
    if asked["do"] == "pack":
        return {"packed": pack_answers([answer.find(name) for name in asked["names"]])}
    if asked["do"] == "cell":
        answer.run_cell(asked["label"], asked["text"], asked["seconds"])
    elif asked["do"] == "travel":
        for place, name in enumerate(asked["names"]):
            answer.space[name] = TravelingAnswer(name, asked["packed"], place)
    elif asked["do"] == "begin":
        if asked["alone"]:
            forbid_looking()
        else:
            sys.path.append("")  # last: a file of theirs stands for no package
        write_files(asked["files"])
        for statement in ast.parse(asked["prelude"]).body:
            with contextlib.suppress(ImportError):  # of what only a picture of the lab needs
                code = compile(ast.Module([statement], []), "<the lab>", "exec")
                exec(code, answer.space)  # noqa: S102 - ours
    else:
        answer.space |= asked["names"]
    return {}


def write_files(files: Mapping[str, str]) -> None:
    """Put the files submitted with the notebook into the working folder."""
    for name, body in files.items():
        with open(os.path.basename(name), "wb") as file:
            file.write(base64.b64decode(body))


def call(channel: Channel, answer: Answer, asked: Mapping[str, Any]) -> dict[str, Any]:
    arguments = unpack(channel, asked["arguments"])
    result = answer.find(asked["name"])(*arguments)
    return {"result": encode(result), "changed": pack_changed(arguments)}


def find_exercise(lab: str, name: str) -> Exercise:
    """Return the exercise of a lab."""
    return list_exercises(importlib.import_module(f"distlab.labs.{lab}.exercise"))[name]


def observe(answer: Answer, asked: Mapping[str, Any]) -> Any:
    """Run an exercise here: TensorFlow's objects can't travel."""
    exercise = find_exercise(asked["lab"], asked["exercise"])
    found = tuple(answer.find(name) for name in asked["names"])
    part = found[0] if len(found) == 1 else found
    return encode(exercise.observe_part(part, **decode(asked["given"])))


def be_answer(end: int, absent: Sequence[str]) -> None:
    """Be the process of an answer without `absent`: `end` is the descriptor of its channel."""
    sys.meta_path.insert(0, AbsentFinder(absent))
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = open(
            number, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # rather this process than the harness
    folder = os.environ["TMPDIR"]
    for name in ("work", "home"):
        os.makedirs(f"{folder}/{name}", exist_ok=True)
    os.environ.update(HOME=f"{folder}/home", MPLCONFIGDIR=f"{folder}/home/mpl")
    os.chdir(f"{folder}/work")
    tempfile.tempdir = None  # looked up again in TMPDIR
    random.seed(0)
    np.random.seed(0)
    serve(Channel(socket.socket(fileno=end)))
