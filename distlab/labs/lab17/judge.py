"""Lab 17, layouts on a mesh: what each variable's part is, and which gathers are the least."""

import re
from itertools import accumulate, combinations
from math import prod
from typing import Any

from distlab.exercises.comparing import AnyOf, Anything
from distlab.grading.judging import Judge, LabRules
from distlab.labs.lab17 import exercise as lab17
from distlab.labs.lab17.compiled_step import start
from distlab.labs.lab17.exercise import BYTES, can_cut, draw_gather, draw_layouts, list_shapes

RULES = LabRules(cell_seconds=20, submission_seconds=60, judge_seconds=300, warm=start, data=())


def expect_read(seed: int, batch: int, model: int, way: str = "right") -> dict[str, Any]:
    """Return each variable's part under the layouts of a case, and the keys that none uses."""
    layouts, shapes = draw_layouts(seed, batch, model)
    mesh = {"batch": batch, "model": model}
    used = {path: _find_key(layouts, path, way) for path in shapes}
    parts = {}
    for path, shape in shapes.items():
        axes = layouts.get(used[path], (None,) * len(shape))
        if used[path] is None and way == "left-out":
            continue
        axes = axes[::-1] if way == "backwards" else axes
        parts[path] = [_cut(n, axis, mesh, way) for n, axis in zip(shape, axes)]
        if len(axes) != len(shape):  # of a mistake's key: left out, or zip ends early
            parts[path] = AnyOf((list(shape), parts[path]))
    taken = set(used.values())
    if way == "match-is-use":
        taken |= {key for key in layouts if any(re.fullmatch(key, path) for path in shapes)}
    if way == "whole-shapes":
        parts = {path: list(shape) for path, shape in shapes.items()}
    keys = set(layouts) & taken if way == "used-ones" else set(layouts) - taken
    return {"parts": parts, "keys": sorted(keys)}


def _find_key(layouts: dict[str, Any], path: str, way: str) -> str | None:
    """Return the key whose layout a variable gets, None if it gets none."""
    match = {"search": re.search, "prefix": re.match}.get(way, re.fullmatch)
    patterns = [key for key in layouts if match(key, path) and key != path]
    if way == "names-only":
        patterns = []
    own = [path] if path in layouts else []
    return next(iter(patterns + own if way == "pattern-wins" else own + patterns), None)


def _cut(n: int, axis: str | None, mesh: dict[str, int], way: str) -> int:
    if axis is None:
        return n
    if way == "counted":
        return n * mesh[axis]
    return n // (prod(mesh.values()) if way == "whole-mesh" else mesh[axis])


def expect_cut(*case: Any, way: str = "right") -> dict[str, Any]:
    """Return that nothing is wrong with the compiled step, or what is wrong by a mistake."""
    return {"flaw": "none" if way == "right" else way, "said": Anything()}


def find_costs(seed: int, devices: int, share: float) -> tuple[dict[str, int], float]:
    """Return what a device sends to gather each matrix, and what must be sent at the least.

    As much as a device sends to gather a matrix is what it doesn't hold of it.
    """
    sizes, memory = draw_gather(seed, devices, share)
    shapes = list_shapes(sizes)
    costs = {
        path: BYTES * prod(shape) * (devices - 1) // devices
        for path, shape in shapes.items()
        if can_cut(path, shape, devices)
    }
    return costs, (2 * BYTES * sum(map(prod, shapes.values())) - memory) / 2


def expect_gather(seed: int, devices: int, share: float, way: str = "right") -> dict[str, Any]:
    """Return the least that a fitting choice gathers, or what is wrong by a mistake."""
    costs, needed = find_costs(seed, devices, share)
    small = sorted(costs.values())
    choices = (sum(some) for n in range(len(small) + 1) for some in combinations(small, n))
    if way == "everything":
        return _say("none", sum(small))
    if way in ("smallest-first", "largest-first"):
        sums = accumulate(small if way == "smallest-first" else small[::-1])
        return _say("none", next(sent for sent in sums if sent >= needed))
    if way == "right":
        return _say("none", min(sent for sent in choices if sent >= needed))
    return _say(way, Anything())


def _say(flaw: str, gathered: Any) -> dict[str, Any]:
    return {"flaw": flaw, "gathered": gathered, "said": Anything()}


READ = Judge(lab17.READ, expect_read)
CUT = Judge(lab17.CUT, expect_cut)
GATHER = Judge(lab17.GATHER, expect_gather)
