"""Lesson 04: one training step of several replicas as a picture, metrics and updates included."""

from distlab.figures import Arrow, Box, Picture, diagram
from distlab.figures.canvas import WIDTH_PX
from utils.measure import count

GAP_PX = 16.0


def draw_training_step(replicas: int = 4, global_batch_size: int = 128) -> Picture:
    """Draw a step from the global batch down to each replica's own update and metrics.

    The batch is cut evenly; at most four replicas fit the page.
    """
    examples = global_batch_size // replicas
    wide = (WIDTH_PX - GAP_PX * (replicas - 1)) / replicas
    words = f"global batch: {global_batch_size} examples, cut in {replicas}"
    boxes = {"batch": Box(words, 0, 34, WIDTH_PX, 36, "data")}
    arrows = []
    for i in range(replicas):
        inside = {"x": i * (wide + GAP_PX), "width": wide}
        step = f"replica {i}:\nloss and gradients"
        boxes[f"step {i}"] = Box(step, y=106, height=54, kind="compute", **inside)
        boxes[f"update {i}"] = Box(
            "updates its copy\nof the weights", y=278, height=54, kind="variables", **inside
        )
        boxes[f"metrics {i}"] = Box(
            f"counts {examples} in its\nown metrics", y=350, height=54, kind="server", **inside
        )
        arrows += [
            Arrow("batch", f"step {i}", str(examples)),
            Arrow(f"step {i}", "sum", "gradients"),
            Arrow("sum", f"update {i}", "the sum"),
            Arrow(f"update {i}", f"metrics {i}"),
        ]
    words = "all-reduce: the sum of all gradients"
    boxes["sum"] = Box(words, 0, 202, WIDTH_PX, 36, "reduce")
    alt = (
        f"One training step from top to bottom: a global batch of {global_batch_size} examples is "
        f"cut into {examples} for each of {count(replicas, 'replica')}; each computes loss and "
        "gradients; an all-reduce adds the gradients; each replica makes the same update to its "
        "own copy of the weights and counts its own examples in its own metrics."
    )
    return diagram(boxes, arrows, title="One step", alt=alt, height_px=410)
