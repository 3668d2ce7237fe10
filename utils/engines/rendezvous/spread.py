"""The host's side of the checkpoint: the newest copy goes to every machine that lacks it."""

import contextlib
import threading
import time
from collections.abc import Callable, Sequence

from ...errors import RunError
from ...processes.handshake import ChannelLost
from .copies import CheckpointCopy, Copy
from .guest import Guest
from .lobby import Lobby

LOOK_SECONDS = 0.25  # between two looks at the checkpoint folder
COPY_SECONDS = 600.0  # for every machine to have the newest copy, before an attempt
LAST_SECONDS = 60.0  # for them to have the last one, once the tasks have ended


class CheckpointSpread:
    """Keeps the copies of `folder` on all machines of `lobby` alike, until `close`."""

    def __init__(self, folder: str, lobby: Lobby, say: Callable[[str], None]) -> None:
        self._copy, self._lobby, self._say = CheckpointCopy(folder, is_origin=True), lobby, say
        lobby.read_piece = self._copy.read_piece
        self.saved_at = 0.0  # when a new complete state of the folder was seen last
        self._told, self._over = set[str](), threading.Event()
        self._thread = threading.Thread(target=self._hand_out, daemon=True)
        self._thread.start()

    def _hand_out(self) -> None:
        """In a thread, while tasks run: each new state of the folder goes to every machine."""
        while not self._over.wait(LOOK_SECONDS):
            self._tell_failures()
            if self._lobby.is_running and (copy := self._copy.look()) is not None:
                self.saved_at = time.monotonic()
                self._offer(copy, self._lobby.guests)

    def _tell_failures(self) -> None:
        """Say once for each machine that it keeps no copy, and why: the run continues."""
        for guest in self._lobby.guests:
            if guest.copy_error and guest.host not in self._told:
                self._told.add(guest.host)
                self._say(f"{guest.host} has no copy of the checkpoint: {guest.copy_error}")

    def bring(self, guests: Sequence[Guest], states: Sequence[Copy]) -> None:
        """Give every guest, which has the copy in `states`, the newest one, wherever that is.

        Raises ChannelLost where a guest is lost meanwhile, RunError where one can't take it.
        """
        own = self._copy.find_state()
        for guest, state in sorted(zip(guests, states), key=lambda pair: -pair[1].number):
            if state.number > own.number and self._fetch(guest, state):
                own = state
        rivals = [state for state in states if state.number >= own.number and state != own]
        if rivals and own.number:
            own = self._copy.raise_number(max(state.number for state in rivals) + 1)
        lacking = [
            g for g, s in zip(guests, states) if (s.number, s.files) != (own.number, own.files)
        ]
        if not own.number or not lacking:
            return
        others = f"{len(lacking)} other machines" if len(lacking) > 1 else "another machine"
        self._say(f"the checkpoint ({own.bytes} bytes) goes to {others}")
        self._offer(own, lacking)
        done = self._lobby.wait_until(lambda: all(_has(g, own) for g in lacking), COPY_SECONDS)
        for guest in lacking:
            if guest.lost:
                raise ChannelLost(guest.lost)
            if guest.copy_error or not done:
                why = guest.copy_error or f"no copy within {COPY_SECONDS:.0f} s"
                raise RunError(f"{guest.host} didn't get the checkpoint: {why}")

    def _fetch(self, guest: Guest, state: Copy) -> bool:
        self._say(
            f"the newest checkpoint is the copy on {guest.host} ({state.bytes} bytes), so the run "
            "resumes from it. To start over, empty the folder on every machine."
        )
        return self._copy.fetch(state, guest.pieces.ask)

    def hand_out_last(self) -> None:
        """Once the tasks have ended: what they saved last goes to every machine that is there."""
        last = self._copy.find_state()
        guests = self._lobby.guests if last.number else []
        self._offer(last, guests)
        if not self._lobby.wait_until(lambda: all(_has(g, last) for g in guests), LAST_SECONDS):
            self._say("not every machine has a copy of the last checkpoint")
        self._tell_failures()

    def _offer(self, copy: Copy, guests: Sequence[Guest]) -> None:
        for guest in guests:
            guest.copy_error = ""
            with contextlib.suppress(ChannelLost):
                guest.send("offer", **copy.to_data())

    def close(self) -> None:
        self._over.set()
        self._thread.join(5)


def _has(guest: Guest, copy: Copy) -> bool:
    """True once the guest has the copy, or will not get it."""
    return bool(guest.lost or guest.copy_error) or guest.copied >= copy.number
