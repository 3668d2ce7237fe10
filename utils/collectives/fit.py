"""The alpha-beta model of a network, fitted to timings.

Seconds = messages * latency + bytes / bandwidth (alpha is the latency, beta one
over the bandwidth), after Hockney 1994, "The communication challenge for MPP".
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import InputError


@dataclass(frozen=True)
class AlphaBeta:
    """A fitted network: latency of a message in seconds, bandwidth in bytes/s.

    `residual_seconds[i]` is measured minus fitted time of point i.
    """

    latency_seconds: float
    bandwidth_bytes_per_second: float
    residual_seconds: tuple[float, ...] = ()


def fit_alpha_beta(
    messages: Sequence[float],
    payload_bytes: Sequence[float],
    seconds: Sequence[float],
    *,
    relative: bool = False,
) -> AlphaBeta:
    """Fit latency and bandwidth to timings by least squares.

    Three lists of one length: messages that followed one another, the bytes they carried in all,
    the seconds they took. `relative` weighs each point's error by its time, so that short messages
    count as much as long ones; use it when sizes span decades. If the best latency would be
    negative, it is 0 and the bandwidth alone is fitted. Raises InputError for fewer than two
    points, points that can't tell latency from bandwidth, values that can't be, and times that
    don't grow with bytes.
    """
    columns = _check_points(messages, payload_bytes, seconds)
    weights = 1 / columns[2] if relative else np.ones_like(columns[2])
    design = columns[:2].T  # [point, (messages, bytes)]
    scale = np.maximum(design.max(axis=0), np.finfo(float).tiny)
    weighted = design / scale * weights[:, None]
    if np.linalg.matrix_rank(weighted) < 2:
        raise InputError(
            "These points don't separate latency from bandwidth. Time messages of at least "
            "two different sizes."
        )
    target = columns[2] * weights
    alpha, beta = np.linalg.lstsq(weighted, target, rcond=None)[0] / scale
    if alpha < 0:
        column = weighted[:, 1]
        alpha, beta = 0.0, float(column @ target / (column @ column)) / scale[1]
    if beta <= 0:
        raise InputError(
            "The times don't grow with the bytes. Time larger messages, or repeat each size "
            "more often."
        )
    residuals = columns[2] - design @ np.array([alpha, beta])
    return AlphaBeta(float(alpha), float(1 / beta), tuple(float(r) for r in residuals))


def _check_points(
    messages: Sequence[float], payload_bytes: Sequence[float], seconds: Sequence[float]
) -> np.ndarray:
    """Return the three lists as one array [3, points], or raise InputError."""
    lengths = {len(messages), len(payload_bytes), len(seconds)}
    if len(lengths) > 1:
        raise InputError(
            f"messages, payload_bytes and seconds must be equally long, got {len(messages)}, "
            f"{len(payload_bytes)} and {len(seconds)}."
        )
    if len(seconds) < 2:
        raise InputError(
            f"A fit must have timings of at least two sizes, got {len(seconds)}: latency and "
            "bandwidth are two unknowns."
        )
    columns = np.array([messages, payload_bytes, seconds], dtype=float)
    if not np.all(np.isfinite(columns)) or np.any(columns[:2] < 0) or np.any(columns[2] <= 0):
        raise InputError(
            "Messages and bytes must be 0 or more and seconds above 0, all of them finite."
        )
    return columns
