"""The ring between processes: each rank holds one socket to the next rank and one from the last.

    with ProcessRing(addresses, rank) as ring:     # in each process
        total = ring.all_reduce(my_gradient)       # the sum over all ranks, on all ranks

The algorithm is that of `utils.collectives.ring`, written from one rank's side. A
message is a header of fixed length (which all-reduce, which chunk, how many bytes,
which dtype) and the chunk's bytes. Nothing that arrives is run as code.
"""

import contextlib
import select
import socket
import struct
import time
from collections.abc import Sequence
from typing import NoReturn

import numpy as np

from ..errors import InputError
from .ring import split_into_chunks

HELLO = struct.Struct("!4sII")  # mark, rank, ranks
HEADER = struct.Struct("!4sIIQ8s")  # mark, all-reduce, chunk (or rank to blame), bytes, dtype
CHUNK, GONE = b"ring", b"gone"
PAUSE_SECONDS = 0.02  # between two attempts to reach a rank that is not listening yet
LAST_WORD_SECONDS = 1.0  # to tell the next rank who is to blame


class ProcessRing:
    """One rank's place on a ring of processes; use it in a `with` block.

    `addresses[r]` is the "host:port" at which rank r listens, the same list on all
    ranks; each needs a port of its own (TF_CONFIG's belong to TensorFlow). Making
    it waits until both neighbours are there. `limit_seconds` bounds every wait.
    `messages_sent` and `bytes_sent` count chunks and their bytes, without headers.
    Raises InputError for a rank that is not on the list, an address that cannot be
    used, and a neighbour that does not come in time.
    """

    def __init__(self, addresses: Sequence[str], rank: int, limit_seconds: float = 30.0) -> None:
        if not 0 <= rank < len(addresses):
            raise InputError(f"rank {rank} with {len(addresses)} addresses: give one for each")
        self.rank, self.ranks = rank, len(addresses)
        self.messages_sent = self.bytes_sent = 0
        self._places, self._limit, self._calls = [_split(a) for a in addresses], limit_seconds, 0
        self._sockets: list[socket.socket] = []
        self._unsent: list[memoryview] = []
        if self.ranks == 1:
            return
        try:
            self._join()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "ProcessRing":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up; safe to call twice. The neighbours' next all-reduce fails, and says who left."""
        for one in self._sockets:
            one.close()
        self._sockets.clear()

    @property
    def next_rank(self) -> int:
        return (self.rank + 1) % self.ranks

    @property
    def previous_rank(self) -> int:
        return (self.rank - 1) % self.ranks

    def all_reduce(self, array: np.ndarray) -> np.ndarray:
        """Return the sum of `array` over all ranks: a new array of its shape and dtype.

        All ranks call it as often, in the same order, with one shape and dtype; all
        get the same sum, bit for bit. Raises InputError, which names the rank, when
        one has died, sends nothing for `limit_seconds`, or reduces something else;
        the ring is closed then, and every rank is told whom to blame.
        """
        array = np.asarray(array)
        if array.dtype.hasobject:
            raise InputError(f"arrays of {array.dtype} cannot travel: give numbers")
        flat = np.array(array, order="C").reshape(-1)
        chunks, rank = split_into_chunks(flat, self.ranks), self.rank
        for step in range(self.ranks - 1):  # reduce-scatter
            going, coming = (rank - step) % self.ranks, (rank - step - 1) % self.ranks
            arrived = np.empty_like(chunks[coming])
            self._exchange(going, chunks[going], coming, arrived)
            chunks[coming] += arrived
        for step in range(self.ranks - 1):  # all-gather
            going, coming = (rank + 1 - step) % self.ranks, (rank - step) % self.ranks
            self._exchange(going, chunks[going], coming, chunks[coming])
        self._calls += 1
        return flat.reshape(array.shape)

    # ---- one step: a chunk goes out while another comes in

    def _exchange(self, going: int, values: np.ndarray, coming: int, into: np.ndarray) -> None:
        """Send chunk `going` to the next rank while chunk `coming` arrives from the previous."""
        if not self._sockets:
            raise InputError(f"the ring of rank {self.rank} is closed: make a new one")
        dtype = values.dtype.str.encode()
        header = HEADER.pack(CHUNK, self._calls, going, values.nbytes, dtype)
        self._unsent = _views(header, values)
        heard = bytearray(HEADER.size)
        missing = [memoryview(heard), *_views(into)]
        self._push()
        while self._unsent or missing:
            self._wait(bool(missing))
            if self._unsent:
                self._push()
            if missing and self._pull(missing) and len(heard) == HEADER.size:
                self._check(heard, coming, into)
                heard = bytearray()
        self.messages_sent += 1
        self.bytes_sent += values.nbytes

    def _wait(self, missing: bool) -> None:
        """Wait until something can be sent or received; the limit counts from the last progress."""
        before, after = self._sockets
        reads, writes = [before] * missing, [after] * bool(self._unsent)
        if not any(select.select(reads, writes, [], self._limit)[:2]):
            silent = self.previous_rank if missing else self.next_rank
            what = "sent" if missing else "taken"
            self._fail(silent, f"has {what} nothing for {self._limit:g} s: it, or one beyond it, "
                       "is frozen or busy with something else")  # fmt: skip

    def _push(self) -> None:
        """Send as much as the socket takes now."""
        try:
            sent = self._sockets[1].sendmsg(self._unsent)
        except BlockingIOError:
            return
        except OSError:
            self._fail(self.next_rank, "has hung up: its process ended, or closed the ring")
        while self._unsent and sent >= len(self._unsent[0]):
            sent -= len(self._unsent.pop(0))
        if self._unsent:
            self._unsent[0] = self._unsent[0][sent:]

    def _pull(self, missing: list[memoryview]) -> bool:
        """Receive what is there into the first of `missing`; return whether that is now full."""
        try:
            count = self._sockets[0].recv_into(missing[0])
        except BlockingIOError:
            return False
        except OSError:
            count = 0
        if not count:
            self._fail(self.previous_rank, "has hung up: its process ended, or closed the ring")
        missing[0] = missing[0][count:]
        if missing[0]:
            return False
        missing.pop(0)
        return True

    def _check(self, heard: bytearray, chunk: int, into: np.ndarray) -> None:
        """Fail unless the header announces what this rank waits for."""
        mark, calls, number, size, dtype = HEADER.unpack(heard)
        if mark == GONE:
            self._fail(number, f"has failed: so says rank {self.previous_rank}")
        kind = dtype.rstrip(b"\0").decode("ascii", "replace")
        theirs, ours = (
            (calls, number, size, kind),
            (self._calls, chunk, into.nbytes, into.dtype.str),
        )
        if mark != CHUNK or theirs != ours:
            self._fail(
                self.previous_rank,
                f"is at all-reduce {calls} with a chunk of {size} bytes of {kind}, rank "
                f"{self.rank} at {self._calls} with {into.nbytes} of {into.dtype.str}: all ranks "
                "reduce the same shapes and dtypes in the same order",
            )

    def _fail(self, blamed: int, why: str) -> NoReturn:
        """Tell the next rank whom to blame, close the ring, and raise."""
        after = self._sockets[1]
        header = HEADER.pack(GONE, self._calls, blamed, 0, b"")
        with contextlib.suppress(OSError):  # the next rank may be the one that is gone
            after.settimeout(min(self._limit, LAST_WORD_SECONDS))
            after.sendall(b"".join([*self._unsent, header]))
        self.close()
        raise InputError(f"ring all-reduce on rank {self.rank}: rank {blamed} {why}")

    # ---- meeting the neighbours

    def _join(self) -> None:
        """Listen, reach the next rank, wait for the previous one."""
        end = time.monotonic() + self._limit
        host, port = self._places[self.rank]
        try:
            listener = socket.create_server((host, port))
        except OSError as error:
            raise InputError(
                f"rank {self.rank} cannot listen at {host}:{port} ({error}): take another port"
            ) from None
        with listener:
            after = self._reach_next(end)
            self._sockets = [after]
            before = self._meet_previous(listener, end)
        self._sockets = [before, after]
        for one in self._sockets:
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            one.setblocking(False)

    def _reach_next(self, end: float) -> socket.socket:
        host, port = self._places[self.next_rank]
        while True:
            try:
                after = socket.create_connection((host, port), timeout=_left(end))
                after.sendall(HELLO.pack(CHUNK, self.rank, self.ranks))
                return after
            except OSError as error:
                if time.monotonic() > end:
                    raise InputError(
                        f"rank {self.rank}: rank {self.next_rank} does not answer at {host}:{port} "
                        f"after {self._limit:g} s ({error})"
                    ) from None
                time.sleep(PAUSE_SECONDS)

    def _meet_previous(self, listener: socket.socket, end: float) -> socket.socket:
        """Accept until the previous rank of this ring says hello; hang up on anybody else."""
        hello = HELLO.pack(CHUNK, self.previous_rank, self.ranks)
        while time.monotonic() < end:
            listener.settimeout(_left(end))
            with contextlib.suppress(OSError):
                caller, _ = listener.accept()
                caller.settimeout(_left(end))
                if caller.recv(HELLO.size, socket.MSG_WAITALL) == hello:
                    return caller
                caller.close()
        raise InputError(
            f"rank {self.rank}: rank {self.previous_rank} did not come within {self._limit:g} s"
        )


def _views(*parts: bytes | np.ndarray) -> list[memoryview]:
    """Return the bytes of each part that has any, without copying them."""
    raw = [part if isinstance(part, bytes) else part.view(np.uint8).data for part in parts]
    return [memoryview(one) for one in raw if len(one)]


def _left(end: float) -> float:
    return max(end - time.monotonic(), 0.01)


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not (host and port.isdigit() and int(port) < 65536):
        raise InputError(f"{address!r} is no address: write host:port")
    return host, int(port)
