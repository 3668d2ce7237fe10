"""Measured all-reduces: read from nccl-tests' output or a CSV, interpolated.

    table = read_measured("all_reduce_perf.txt")      # as nccl-tests prints it
    table.find_seconds(25 * 2**20, ranks=64)

Between two sizes the time follows a monotone cubic, which is the line of a latency and a rate if
the points lie on one. Beyond the table it follows the line through its last two points. NumPy at
most.
"""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..checks import check_number
from ..errors import InputError

SECONDS_COLUMNS = {"seconds": 1.0, "time_us": 1e-6, "time_us_out_of_place": 1e-6}


@dataclass(frozen=True)
class MeasuredAllReduce:
    """Seconds of an all-reduce by its bytes, in increasing order; `ranks` None: not stated.

    Raises InputError for fewer than two sizes, and for sizes or times that aren't above 0.
    """

    payload_bytes: tuple[float, ...]
    seconds: tuple[float, ...]
    ranks: int | None = None
    source: str = "table"

    def __post_init__(self) -> None:
        if len(self.payload_bytes) < 2:
            raise InputError(
                f"{self.source} must have 2 or more sizes, got {len(self.payload_bytes)}. Measure "
                "more, or give one rate such as 400Gb/s."
            )
        for size, seconds in zip(self.payload_bytes, self.seconds, strict=True):
            check_number(f"{self.source}: bytes", size, above=0)
            check_number(f"{self.source}: time of {size:g} bytes", seconds, above=0)

    def find_seconds(self, payload_bytes: float, ranks: int | None = None) -> float:
        """Return the time for `payload_bytes`, over `ranks` ranks if that isn't the table's number.

        Another number of ranks keeps the bus bandwidth of that size, as nccl-tests' PERFORMANCE.md
        defines it: time grows with (P - 1)/P. The latency of more ranks is left out.
        """
        scale = 1.0
        if ranks is not None and self.ranks is not None:
            scale = (1 - 1 / ranks) / (1 - 1 / self.ranks)
        return scale * self._interpolate(payload_bytes)

    def _interpolate(self, size: float) -> float:
        sizes, seconds = self.payload_bytes, self.seconds
        if sizes[0] <= size <= sizes[-1]:
            return float(interpolate(size, np.array(sizes), np.array(seconds)))
        a, b = (0, 1) if size < sizes[0] else (-2, -1)
        slope = max(0.0, (seconds[b] - seconds[a]) / (sizes[b] - sizes[a]))
        return max(min(seconds) / 2, seconds[a] + slope * (size - sizes[a]))


def interpolate(at: float, x: np.ndarray, y: np.ndarray) -> float:
    """Return the monotone cubic through the points (x, y), x [point] increasing, at `at`.

    Fritsch and Butland 1984, "A method for constructing local monotone piecewise cubic
    interpolants": the slope in a point is the weighted harmonic mean of the slopes next to it, and
    0 if they differ in sign.
    """
    gap = np.diff(x)
    slope = np.diff(y) / gap
    before, after = 2 * gap[1:] + gap[:-1], gap[1:] + 2 * gap[:-1]
    turns = slope[:-1] * slope[1:] <= 0
    with np.errstate(divide="ignore", invalid="ignore"):
        middle = (before + after) / (before / slope[:-1] + after / slope[1:])
    tangent = np.concatenate([slope[:1], np.where(turns, 0.0, middle), slope[-1:]])
    k = min(int(np.searchsorted(x, at, side="right")) - 1, len(gap) - 1)
    t = (at - x[k]) / gap[k]
    left = (1 + 2 * t) * (1 - t) ** 2 * y[k] + t * (1 - t) ** 2 * gap[k] * tangent[k]
    return left + t**2 * (3 - 2 * t) * y[k + 1] + t**2 * (t - 1) * gap[k] * tangent[k + 1]


def read_measured(path: str | Path) -> MeasuredAllReduce:
    """Return the all-reduce times in a file: the printed output of nccl-tests, or a CSV.

    The CSV has a column `bytes`, a column `seconds` or `time_us`, and may have `ranks`. Raises
    InputError, in one line, for a file that can't be read and for a table of another collective.
    """
    path = Path(path)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise InputError(f"network {path} can't be read ({reason}). Name another file.") from None
    plain = [line for line in lines if line.strip() and not line.startswith("#")]
    is_csv = bool(plain) and "," in plain[0]
    try:
        found, ranks = (_read_csv if is_csv else _read_nccl)(lines, plain)
    except (ValueError, KeyError, IndexError) as error:
        raise InputError(
            f"network {path} must be nccl-tests' all-reduce output, or a CSV with the columns "
            f"bytes and seconds ({error}). Keep the program's whole output."
        ) from None
    rows = sorted(found.items())
    sizes, seconds = tuple(n for n, _ in rows), tuple(s for _, s in rows)
    return MeasuredAllReduce(sizes, seconds, ranks, str(path))


def _read_csv(lines: list[str], plain: list[str]) -> tuple[dict[float, float], int | None]:
    rows = list(csv.DictReader(plain))
    column = next(name for name in [*SECONDS_COLUMNS, ""] if name in rows[0] or not name)
    if not column:
        raise ValueError("no column seconds or time_us")
    found = {float(row["bytes"]): float(row[column]) * SECONDS_COLUMNS[column] for row in rows}
    return found, int(rows[0]["ranks"]) if rows[0].get("ranks") else None


def _read_nccl(lines: list[str], plain: list[str]) -> tuple[dict[float, float], int | None]:
    """Read the out-of-place times, microseconds, from below the header line with `size`."""
    named = [line for line in lines if "_perf" in line]
    if named and not any("all_reduce" in line for line in named):
        raise ValueError("another collective")
    header = next((ln.strip("# ").split() for ln in lines if "size" in ln and "busbw" in ln), None)
    if header is None:
        raise ValueError("no header with size and busbw")
    place = header.index("time")
    rows = [line.split() for line in plain if line.split()[0].isdecimal()]
    ranks = sum(line.strip("# ").lower().startswith("rank ") for line in lines)
    return {float(r[0]): float(r[place]) / 1e6 for r in rows if float(r[0]) > 0}, ranks or None
