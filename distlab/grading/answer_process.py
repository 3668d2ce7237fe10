"""The process of an answer, inside the sandbox: it has the learner's statements and nothing else.

It gets parts of cells, runs them, and then calls what they define, or runs an exercise with
it, as often as the harness asks. Nothing that it says is trusted; no seed, no other exercise
and no pipe of the grader are in it.
"""

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

from distlab.exercises.exercise import list_exercises
from distlab.grading.answer_calls import AnswerGone, Channel, pack_changed, unpack
from distlab.grading.clocks import read_own
from distlab.grading.encoding import decode, encode
from distlab.grading.program_cell import FUNCTION, write_program
from distlab.grading.tripwire import Tripwire

MAX_TEXT = 4000


class Answer:
    """What the statements of a learner have defined: `space` is their namespace."""

    def __init__(self, parts: Sequence[Mapping[str, Any]]) -> None:
        module = types.ModuleType("__main__")
        sys.modules["__main__"] = module  # as in a kernel: cloudpickle sends what is in it
        self.space, self.labels = vars(module), dict[str, str]()
        self.space["display"] = print
        self.space[FUNCTION] = write_program
        self.failed: list[str] = []
        for number, part in enumerate(parts):
            self._run_part(f"<answer {number}>", part)

    def _run_part(self, name: str, part: Mapping[str, Any]) -> None:
        """Run the chosen statements of a cell; one that fails does not stop the others."""
        text = part["text"]
        self.labels[name] = part["label"]
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        body = ast.parse(text).body
        for index in part["chosen"]:
            module = ast.Module([body[index]], [])
            try:
                flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
                code = compile(module, name, "exec", flags=flags, dont_inherit=True)
                found = eval(code, self.space)  # noqa: S307 - the sandbox is here for this
                if inspect.iscoroutine(found):
                    asyncio.run(found)
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                said = describe(error, self.labels)["error"]
                self.failed.append(f"{part['label']} raised {said}")

    def find(self, name: str) -> Any:
        """Return what is called `name`; NameError with what failed before."""
        if name in self.space:
            return self.space[name]
        said = f" ({self.failed[-1]})" if self.failed else ""
        raise NameError(f"name {name!r} is not defined{said}")


def describe(error: BaseException, labels: Mapping[str, str]) -> dict[str, str]:
    """Return the error in one line and the learner's own frames, whatever the error does."""
    kind = type(error).__name__
    try:
        text = str(error).strip() or kind
        said = kind if text == kind else f"{kind}: {text}"
        frames = traceback.extract_tb(error.__traceback__)
        lines = [f"{labels[f.filename]}, line {f.lineno} in {f.name}: {(f.line or '')[:200]}"
                 for f in frames if f.filename in labels]  # fmt: skip
    except BaseException:  # the learner's own exception class
        said, lines = kind, []
    return {"error": said[:MAX_TEXT], "trace": "\n".join(lines[-6:])[:MAX_TEXT]}


def serve(channel: Channel, tripwire: Tripwire) -> None:
    """Answer the harness until it hangs up."""
    process, answer, calls = os.getpid(), Answer(()), 0
    while True:
        try:
            asked = channel.receive()
        except AnswerGone:
            return
        labels, begun = answer.labels, read_own()
        try:
            calls += 1
            if asked["do"] == "load":
                answer, calls = Answer(asked["parts"]), 0
                told = {"failed": answer.failed[:8]}
            elif asked["do"] == "files":
                told = write_files(asked["files"])
            elif asked["do"] == "call":
                told = call(channel, answer, asked)
            else:
                told = {"result": observe(answer, asked)}
            if calls & (calls - 1) == 0 or asked["do"] != "call":  # calls 1, 2, 4, 8, …
                told["changed_course"] = tripwire.find_changed()
            told["spent"] = [now - then for now, then in zip(read_own(), begun)]
        except BaseException as error:
            told = describe(error, labels)
            told |= {"failed": answer.failed[:8], "changed_course": tripwire.find_changed()}
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        if os.getpid() != process:
            os._exit(0)  # a process that the learner's code forked has nothing to say
        channel.send(**told)


def write_files(files: Mapping[str, str]) -> dict[str, Any]:
    """Put the files that were handed in with the notebook into the working folder."""
    for name, body in files.items():
        with open(os.path.basename(name), "wb") as file:
            file.write(base64.b64decode(body))
    return {}


def call(channel: Channel, answer: Answer, asked: Mapping[str, Any]) -> dict[str, Any]:
    arguments = unpack(channel, asked["arguments"])
    result = answer.find(asked["name"])(*arguments)
    return {"result": encode(result), "changed": pack_changed(arguments)}


def observe(answer: Answer, asked: Mapping[str, Any]) -> Any:
    """Run an exercise here: TensorFlow's objects cannot travel."""
    module = importlib.import_module(f"distlab.labs.{asked['lab']}.exercise")
    exercise = list_exercises(module)[asked["exercise"]]
    found = tuple(answer.find(name) for name in asked["names"])
    cases = decode(asked["cases"])
    return encode(exercise.observe(found[0] if len(found) == 1 else found, cases))


def be_answer(end: int, tripwire: Tripwire) -> None:
    """Be the process of an answer: `end` is the descriptor of its channel."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = open(number, "w", buffering=1, encoding="utf-8", errors="backslashreplace",
                      closefd=False)  # fmt: skip
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # rather this process than the harness
    folder = os.environ["TMPDIR"]
    for name in ("work", "home"):
        os.makedirs(f"{folder}/{name}", exist_ok=True)
    os.environ.update(HOME=f"{folder}/home", MPLCONFIGDIR=f"{folder}/home/mpl")
    os.chdir(f"{folder}/work")
    sys.path.append("")  # last: a file of theirs stands for no package
    tempfile.tempdir = None  # looked up again in TMPDIR
    random.seed(0)
    np.random.seed(0)
    serve(Channel(socket.socket(fileno=end)), tripwire)
