"""Lab 16 asks one step more than lesson 23 shows: the lesson's code, renamed, earns nothing."""

import ast
from pathlib import Path

import pytest
from lab_runner import get_lab

from distlab.exercises.exercise import list_exercises
from distlab.labs.lab16 import exercise as lab16
from distlab.turns import lesson23 as turns
from distlab.turns.turn import Turn

SEED = 2028
LESSON = Path(__file__).parents[2].joinpath("notebooks/src/23_which_way_to_cut.py").read_text()
PRELUDE = """
import numpy as np
import tensorflow as tf
from utils.collectives import Network, Send, ring_all_gather, ring_reduce_scatter, split_into_chunks
RANKS, ORDER = 4, [1, 2, 3, 0]
class group:
    apply = staticmethod(lambda function, *parts: [function(*own) for own in zip(*parts)])
"""
# what a learner would make of it, with the arguments of the lab
ADAPTED = {
    "zero": """
def zero_step(weights, velocities, gradients, rate, momentum, limit):
    P = len(gradients)
    sums = [sum(np.array_split(g, P)[k] for g in gradients) for k in range(P)]
    states = [[v, np.zeros_like(v)] for v in velocities]
    new = [adam(w, g / P, state, 1, rate)
           for w, g, state in zip(np.array_split(weights, P), sums, states)]
    return np.concatenate(new), [state[0] for state in states], [np.sum(g**2) for g in sums]
""",
    "merge": """
def merge(outputs, lses):
    tops, sums = np.max(lses, axis=0), []
    sums = np.exp(lses - tops)[..., None]
    output = (sums * outputs).sum(axis=0) / sums.sum(axis=0)
    return output, tops + np.log(sums.sum(axis=0)[:, 0])
""",
    "dispatch": """
def dispatch(tokens, gates, experts, capacity):
    choices = [np.argmax(own, axis=1) for own in gates]
    outputs, dropped = [np.zeros_like(own) for own in tokens], []
    sent = np.zeros((len(tokens), len(experts)), int)
    for r, own in enumerate(choices):
        for e, kernel in enumerate(experts):
            kept = keep(own, e, capacity)
            outputs[r][kept] = tokens[r][kept] @ kernel
            sent[r, e] = len(kept)
            dropped += [(r, k, e) for k in np.flatnonzero(own == e) if k not in kept]
    return outputs, dropped, sent
""",
    "layout": "def choose_layout(model, machine):\n    return machine['devices'], 1, 1\n",
}


def read_functions() -> dict[str, str]:
    """Return every function of the lesson and of its turns, by name."""
    code = "\n".join(
        part.partition("\n")[2] for part in LESSON.split("# %%") if "[markdown]" not in part[:12]
    )
    found = [n for n in ast.parse(code).body if isinstance(n, ast.FunctionDef)]
    for turn in vars(turns).values():
        if isinstance(turn, Turn) and "def " in turn.answer:
            found += ast.parse("if 1:" + turn.answer).body[0].body
    return {node.name: ast.unparse(node) for node in found}


FUNCTIONS = read_functions()


@pytest.mark.parametrize("exercise", list_exercises(lab16).values(), ids=lambda e: e.name)
def test_the_lessons_code_renamed_or_adapted_earns_nothing(exercise) -> None:
    assert {"zero_step", "add_block", "run_experts", "join", "flash"} <= set(FUNCTIONS)
    code = PRELUDE + "\n".join(FUNCTIONS.values())
    attempts = {
        name: f"{code}\n_own = {name}\n"
        f"def {exercise.function}(*given):\n"
        f"    return _own(*given[: _own.__code__.co_argcount])\n"
        for name in FUNCTIONS
    }
    attempts["adapted"] = code + "\n" + ADAPTED[exercise.name]
    lab = get_lab("lab16")
    for name, text in attempts.items():
        outcome = lab.try_answer(exercise.name, text, SEED)
        assert outcome.visible is not None and outcome.judged is not None, name
