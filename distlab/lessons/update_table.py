"""Lesson 05: everything that was measured of updates, as a table with a verdict on each."""

from collections.abc import Mapping

from IPython.display import Markdown

MAX_STRAIGHT = 1e-9  # a residual of rounding alone


def judge(ratio: float, residual: float) -> str:
    """Return what is wrong with an update of this ratio and residual, or "✓ right"."""
    if residual > MAX_STRAIGHT:
        return "turned"
    if abs(ratio - 1) < 1e-9:
        return "✓ right"
    return "too long" if ratio > 1 else "too short"


def update_table(measured: Mapping[tuple[str, str], tuple[float, float]]) -> Markdown:
    """Return {(topic, way): (ratio, residual)} as a table, one row each, in their order."""
    rows = [
        f"| {topic} | {way} | ×{ratio:.4g} | {residual:.2f} | {judge(ratio, residual)} |"
        for (topic, way), (ratio, residual) in measured.items()
    ]
    head = ["| topic | way | ratio | residual | verdict |", "|---|---|--:|--:|---|"]
    return Markdown("\n".join(head + rows))
