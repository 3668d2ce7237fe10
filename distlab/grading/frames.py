"""Reads what a sandbox says, with limits: nothing of it is trusted.

A frame is the observation of one graded cell, as one line of JSON. Its `got` is kept as text and
not parsed. An empty line says only that the harness has begun.
"""

import json
from dataclasses import fields, replace
from typing import get_origin

from distlab.grading.observation import STATUSES, CellObservation
from distlab.grading.text import clean

MAX_LINE, MAX_FAILED = 20 * 2**20, 8
MAX_KEPT, MAX_WRITTEN = 20_000, 32 * 2**20


class BadFrame(ValueError):
    """A frame that the runner can't have written."""


class FrameReader:
    """Turns the bytes of one pipe into observations. Raises BadFrame for a malformed one."""

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.began = False  # whether the runner has sent anything

    def feed(self, data: bytes) -> list[CellObservation]:
        self.began = self.began or bool(data)
        *lines, rest = data.split(b"\n")
        if len(self.buffer) + len(data) > MAX_LINE:
            raise BadFrame(f"more than {MAX_LINE:,} bytes at a time")
        if lines:
            lines[0] = bytes(self.buffer) + lines[0]
            self.buffer.clear()
        self.buffer += rest
        return [read_frame(line) for line in lines if line]


def read_frame(line: bytes) -> CellObservation:
    """Return the frame of a line, with its parts of the right types and its texts cleaned."""
    try:
        cell = CellObservation.from_data(json.loads(line))
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise BadFrame("a line that isn't a frame") from None
    kinds = ((getattr(cell, part.name), part.type) for part in fields(cell))
    fits = all(type(value) is (get_origin(kind) or kind) for value, kind in kinds)
    fits = fits and len(cell.failed) <= MAX_FAILED and all(type(s) is str for s in cell.failed)
    if not fits:
        raise BadFrame("a frame with a part of another type")
    if cell.status not in STATUSES or cell.status == "missing":  # which the grader alone finds
        raise BadFrame("a frame with an unknown status")
    texts = {k: clean(getattr(cell, k), MAX_KEPT) for k in ("error", "trace", "output", "errors")}
    return replace(cell, **texts, failed=tuple(clean(said, MAX_KEPT) for said in cell.failed))


class OutputReader:
    """One stream, cut at the marks that the runner writes before each cell.

    The beginning of what each cell writes is kept, all is counted. A mark is
    `make_mark(token, cell)`; a learner who finds the token out muddles his own output.
    """

    def __init__(self, token: str) -> None:
        self.token = make_mark(token, 0)[:-MARK_DIGITS]
        self.kept: dict[int, bytearray] = {}
        self.rest, self.written, self.cell = b"", 0, -1  # written: since the last mark
        self.over = False  # whether its cell was ended for writing too much

    def feed(self, data: bytes) -> None:
        self.written += len(data)
        data = self.rest + data
        size = len(self.token) + MARK_DIGITS
        while (at := data.find(self.token)) >= 0 and at + size <= len(data):
            self._keep(data[:at])
            number = data[at + len(self.token) : at + size]
            self.cell = int(number) if number.isdigit() else -1
            data = data[at + size :]
            self.kept[self.cell], self.written, self.over = bytearray(), len(data), False
        sure = max(0, len(data) - size) if at < 0 else at
        self._keep(data[:sure])
        self.rest = data[sure:]

    def _keep(self, data: bytes) -> None:
        kept = self.kept.setdefault(self.cell, bytearray())
        kept += data[: max(0, MAX_KEPT - len(kept))]

    def finish(self) -> dict[int, str]:
        """Return what each cell wrote, cleaned; nothing more is to come."""
        self._keep(self.rest)
        self.rest = b""
        texts = {
            k: clean(b.decode("utf-8", "replace"), MAX_KEPT).strip("\n")
            for k, b in self.kept.items()
        }
        return {k: text for k, text in texts.items() if text}


MARK_DIGITS = 6


def make_mark(token: str, cell: int) -> bytes:
    """Return what the runner writes to a stream before cell `cell` of its order."""
    return b"\0" + token.encode() + f":{cell:0{MARK_DIGITS}}".encode()
