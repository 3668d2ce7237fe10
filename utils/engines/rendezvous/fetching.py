"""Fetching a copy of the checkpoint while tasks run: one at a time, the newest offer first."""

import queue
import threading
from collections.abc import Callable
from typing import Any

from ...errors import DistributedError, RunError, first_line
from ...processes.handshake import ChannelLost
from .channel import MeetingFrame
from .copies import CheckpointCopy, read_copy

PIECE_SECONDS = 60.0  # for one piece on the slowest network


class PieceAsker:
    """Asks the other side for pieces of files, one after the other. `take` gets its answers."""

    def __init__(self, send: Callable[..., None], kind: str) -> None:
        self._send, self._kind, self._pieces = send, kind, queue.Queue[MeetingFrame]()

    def take(self, frame: MeetingFrame) -> None:
        self._pieces.put(frame)

    def ask(self, path: str, offset: int) -> bytes | None:
        """Return a piece, None if the file is gone there. Raises RunError if none comes."""
        self._send(self._kind, path=path, offset=offset)
        try:
            frame = self._pieces.get(timeout=PIECE_SECONDS)
        except queue.Empty:
            raise RunError(
                f"{path} didn't arrive within {PIECE_SECONDS:.0f} s. Check the network."
            ) from None
        return None if frame.data.get("gone") else frame.body


class Fetcher:
    """A member's thread that fetches what the host offers, and tells it what came of it."""

    def __init__(self, copy: CheckpointCopy, send: Callable[..., None]) -> None:
        self._copy, self._send = copy, send
        self._asker = PieceAsker(send, "want")
        self._offers = queue.Queue[dict[str, Any] | None]()
        threading.Thread(target=self._work, daemon=True).start()

    def offer(self, data: dict[str, Any]) -> None:
        self._offers.put(data)

    def take(self, frame: MeetingFrame) -> None:
        """Take the host's answer to a question for a piece; an empty one when all is over."""
        self._asker.take(frame)

    def close(self) -> None:
        self._offers.put(None)
        self._asker.take(MeetingFrame("piece", {"gone": True}))

    def _work(self) -> None:
        while (data := self._offers.get()) is not None:
            if not self._offers.empty():
                continue  # there is a newer one
            try:
                copy = read_copy(data)
                done = self._copy.fetch(copy, self._asker.ask)
                self._send("copied", number=copy.number if done else 0)
            except ChannelLost:
                return
            except DistributedError as error:
                self._say_failure(first_line(error))

    def _say_failure(self, words: str) -> None:
        try:
            self._send("copied", number=0, error=words)
        except ChannelLost:
            pass  # the main loop sees it too
