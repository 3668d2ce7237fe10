"""A mesh of eight devices, 2 x 2 x 2, drawn: which two talk to each other along each axis."""

import numpy as np

from distlab.figures import Arrow, Box, Picture, diagram

_X, _Y = (20, 190), (72, 192)  # of a box in its frame: stage, tensor
_NODES = (0, 390)  # left edges of the two frames


def draw_mesh(ranks: np.ndarray, axes: tuple[str, str, str]) -> Picture:
    """Draw `ranks` [2, 2, 2] with an arrow for each pair along an axis; the first cuts nodes."""
    outer, across, down = axes
    boxes = {f"node {d}": Box(f"{outer} {d}", _NODES[d], 34, 330, 250) for d in range(2)}
    for d, s, t in np.ndindex(2, 2, 2):
        text = f"GPU {ranks[d, s, t]}\n{across} {s}\n{down} {t}"
        place = (_NODES[d] + _X[s], _Y[t], 120, 76)
        boxes[str(ranks[d, s, t])] = Box(text, *place, "variables" if s else "compute")
    arrows = [Arrow("node 0", "node 1", outer, both=True)]
    for d, k in np.ndindex(2, 2):
        stages, tensors = ranks[d, :, k], ranks[d, k]
        arrows.append(Arrow(str(stages[0]), str(stages[1]), both=True, dashed=True))
        arrows.append(Arrow(str(tensors[0]), str(tensors[1]), both=True))
    alt = (
        f"Eight GPUs in two frames, {outer} 0 and {outer} 1, joined by an arrow. In each frame "
        f"dashed arrows join the two stages of {across}, full arrows the two ranks of {down}."
    )
    title = f"A mesh of 2 × 2 × 2: {outer}, {across} (dashed), {down} (full)"
    return diagram(boxes, arrows, title=title, alt=alt, height_px=294)
