"""Reads what a sandbox says, with limits: nothing of it is trusted.

A frame is one line of JSON with `at` ("begin", "end", "done"); an "end" has `size`,
and as many bytes follow, which are kept as text and not parsed.
"""

import json
from dataclasses import dataclass
from typing import Any

from distlab.grading.text import clean

MAX_LINE, MAX_BODY = 2**16, 8 * 2**20
STATUSES = ("ok", "raised", "timed out", "killed")
MAX_KEPT, MAX_WRITTEN = 20_000, 32 * 2**20


class BadFrame(ValueError):
    """A frame that the runner can't have written."""


@dataclass(frozen=True)
class Frame:
    """One frame: `cell` is the index in the order; the rest belongs to an "end"."""

    at: str
    cell: int = -1
    status: str = ""
    error: str = ""
    trace: str = ""
    failed: str = ""
    seconds: float = 0.0
    traffic: int = 0
    got: str = "{}"


class FrameReader:
    """Turns the bytes of one pipe into frames. Raises BadFrame for a malformed one."""

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.head: dict[str, Any] | None = None
        self.began = False  # whether the runner has sent anything

    def feed(self, data: bytes) -> list[Frame]:
        self.began = self.began or bool(data)
        self.buffer += data
        found = []
        while (frame := self._next()) is not None:
            found.append(frame)
        return found

    def _next(self) -> Frame | None:
        if self.head is None:
            end = self.buffer.find(b"\n", 0, MAX_LINE)
            if end < 0:
                if len(self.buffer) >= MAX_LINE:
                    raise BadFrame("a line without an end")
                return None
            self.head = read_head(bytes(self.buffer[:end]))
            del self.buffer[: end + 1]
        size = self.head.get("size", 0)
        if len(self.buffer) < size:
            return None
        body, head = bytes(self.buffer[:size]).decode("utf-8", "replace"), self.head
        del self.buffer[:size]
        self.head = None
        return make_frame(head, body or "{}")


def read_head(line: bytes) -> dict[str, Any]:
    """Return the frame's line as a dictionary whose parts have the right types."""
    try:
        head = json.loads(line)
    except (ValueError, RecursionError):
        raise BadFrame("a line that isn't JSON") from None
    kinds = {
        "at": str,
        "cell": int,
        "status": str,
        "error": str,
        "trace": str,
        "failed": str,
        "seconds": float,
        "traffic": int,
        "size": int,
    }
    if not isinstance(head, dict) or any(type(v) is not kinds.get(k) for k, v in head.items()):
        raise BadFrame("a line that isn't a frame")
    if not 0 <= head.get("size", 0) <= MAX_BODY:
        raise BadFrame(f"an answer of more than {MAX_BODY:,} bytes")
    return head


def make_frame(head: dict[str, Any], body: str) -> Frame:
    parts = {k: v for k, v in head.items() if k != "size"}
    if parts.get("at") not in ("begin", "end", "done"):
        raise BadFrame("a frame of an unknown type")
    if parts["at"] == "end" and parts.get("status") not in STATUSES:
        raise BadFrame("an end with an unknown status")
    for name in ("error", "trace", "failed"):
        parts[name] = clean(parts.get(name, ""), MAX_KEPT)
    seconds = parts.get("seconds", 0.0)
    parts["seconds"] = round(min(max(seconds, 0.0), 1e6), 4) if seconds == seconds else 0.0
    return Frame(**parts, got=body)


class OutputReader:
    """One stream, cut at the marks that the runner writes before each cell.

    The beginning of what each cell writes is kept, all is counted. A mark is
    `make_mark(token, cell)`; a learner who finds the token out muddles his own output.
    """

    def __init__(self, token: str) -> None:
        self.token = make_mark(token, 0)[:-MARK_DIGITS]
        self.kept: dict[int, bytearray] = {}
        self.rest, self.written, self.cell = b"", 0, -1  # written: since the last mark

    def feed(self, data: bytes) -> None:
        self.written += len(data)
        data = self.rest + data
        size = len(self.token) + MARK_DIGITS
        while (at := data.find(self.token)) >= 0 and at + size <= len(data):
            self._keep(data[:at])
            number = data[at + len(self.token) : at + size]
            self.cell = int(number) if number.isdigit() else -1
            data = data[at + size :]
            self.kept[self.cell], self.written = bytearray(), len(data)
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
