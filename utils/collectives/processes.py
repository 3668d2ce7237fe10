"""The ring between processes: each rank holds one socket to the next rank and one from the last.

    with ProcessRing(addresses, rank) as ring:     # in each process
        total = ring.all_reduce(my_gradient)       # the sum over all ranks, on all ranks

The algorithm is the one in `utils.collectives.ring`, written from one rank's side. A message
says which all-reduce, which chunk and which dtype; its body is the chunk's bytes.
"""

import contextlib
import socket
import time
from collections.abc import Sequence
from typing import NoReturn

import numpy as np

from ..errors import DistributedError, InputError, RunError
from ..processes.connection import (
    Connection,
    PeerGone,
    PeerSilent,
    WireMessage,
    accept,
    connect,
    listen,
    split_address,
    wait_for,
)
from .ring import split_into_chunks

LAST_WORD_SECONDS = 1.0  # to tell the next rank who is to blame


class ProcessRing:
    """One rank's place on a ring of processes; use it in a `with` block.

    `addresses[r]` is the "host:port" at which rank r listens, the same list on all
    ranks. Each needs its own port (TF_CONFIG's belong to TensorFlow). Making
    it waits until both neighbors are there. `limit_seconds` bounds every wait.
    `bytes_sent` counts the bytes of all chunks, without headers.
    Raises InputError for a rank that isn't on the list, an address that can't be
    used, and a neighbor that doesn't come in time.
    """

    def __init__(self, addresses: Sequence[str], rank: int, limit_seconds: float = 30.0) -> None:
        if not 0 <= rank < len(addresses):
            raise InputError(
                f"addresses must have one entry per rank, got {len(addresses)} for rank {rank}."
            )
        for address in addresses:
            split_address(address)  # refuses a bad address before this rank listens
        self.rank, self.ranks = rank, len(addresses)
        self.bytes_sent = 0
        self._addresses, self._limit, self._calls = addresses, limit_seconds, 0
        self._connections: list[Connection] = []  # from the previous rank, to the next one
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
        """Hang up; safe to call twice. The neighbors' next all-reduce fails, and says who left."""
        for connection in self._connections:
            connection.close()
        self._connections.clear()

    @property
    def next_rank(self) -> int:
        return (self.rank + 1) % self.ranks

    @property
    def previous_rank(self) -> int:
        return (self.rank - 1) % self.ranks

    def all_reduce(self, array: np.ndarray) -> np.ndarray:
        """Return the sum of `array` over all ranks: a new array of its shape and dtype.

        All ranks call it equally often, in the same order, with one shape and dtype. All
        get the same sum, bit for bit. Raises RunError, which names the rank, when
        one has died, sends nothing for `limit_seconds`, or reduces something else;
        the ring is closed then, and every rank learns which rank failed.
        """
        array = np.asarray(array)
        if array.dtype.hasobject:
            raise InputError(f"Only arrays of numbers can be sent, got dtype {array.dtype}.")
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
        if not self._connections:
            raise InputError(f"The ring of rank {self.rank} is closed. Make a new one.")
        before, after = self._connections
        after.post([self._calls, going, values.dtype.str], values.view(np.uint8).data)
        sent, arrived = self._push(after), None
        while arrived is None or not sent:
            arrived = arrived or self._pull(before, into)
            sent = sent or self._push(after)
            if arrived is None or not sent:
                self._wait([before] * (arrived is None), [after] * (not sent))
        self._check(arrived, coming, into)
        self.bytes_sent += values.nbytes

    def _wait(self, readers: list[Connection], writers: list[Connection]) -> None:
        """Wait until something can be sent or received. The limit counts from the last progress."""
        if not wait_for(readers, writers, self._limit):
            silent = self.previous_rank if readers else self.next_rank
            what = "sent" if readers else "taken"
            self._fail(
                silent,
                f"has {what} nothing for {self._limit:g} s: it, or one beyond it, "
                "is frozen or busy with something else",
            )

    def _push(self, after: Connection) -> bool:
        try:
            return after.push()
        except PeerGone:
            self._fail(self.next_rank, "has hung up: its process ended, or closed the ring")

    def _pull(self, before: Connection, into: np.ndarray) -> WireMessage | None:
        try:
            return before.pull(into.view(np.uint8).data)
        except PeerGone:
            self._fail(self.previous_rank, "has hung up: its process ended, or closed the ring")

    def _check(self, arrived: WireMessage, chunk: int, into: np.ndarray) -> None:
        """Fail unless the message is what this rank waits for."""
        if "gone" in arrived.content:
            rank = arrived.content["gone"]
            self._fail(rank, f"has failed: so says rank {self.previous_rank}")
        calls, number, dtype = arrived.content
        size = arrived.body_bytes
        ours = (self._calls, chunk, into.nbytes, into.dtype.str)
        if (calls, number, size, dtype) != ours:
            self._fail(
                self.previous_rank,
                f"is at all-reduce {calls} with a chunk of {size} bytes of {dtype}, rank "
                f"{self.rank} at {self._calls} with {into.nbytes} of {into.dtype.str}: all ranks "
                "reduce the same shapes and dtypes in the same order",
            )

    def _fail(self, blamed: int, why: str) -> NoReturn:
        """Tell the next rank whom to blame, close the ring, and raise."""
        with contextlib.suppress(PeerGone, PeerSilent):  # the next rank may be the one that is gone
            limit = min(self._limit, LAST_WORD_SECONDS)
            self._connections[1].send({"gone": blamed}, limit_seconds=limit)
        self.close()
        raise RunError(f"Ring all-reduce on rank {self.rank}: rank {blamed} {why}")

    # ---- joining the neighbors

    def _join(self) -> None:
        """Listen, reach the next rank, wait for the previous one."""
        end = time.monotonic() + self._limit
        try:
            with listen(self._addresses[self.rank]) as listener:
                address, name = self._addresses[self.next_rank], f"rank {self.next_rank}"
                after = connect(address, name, self._limit)
                self._connections = [after]
                after.send({"rank": self.rank, "ranks": self.ranks})
                self._connections.insert(0, self._accept_previous(listener, end))
        except DistributedError as error:
            raise type(error)(f"rank {self.rank}: {error}") from None

    def _accept_previous(self, listener: socket.socket, end: float) -> Connection:
        """Accept until the previous rank of this ring says hello; hang up on all others."""
        name, hello = (
            f"rank {self.previous_rank}",
            {"rank": self.previous_rank, "ranks": self.ranks},
        )
        while (left := end - time.monotonic()) > 0:
            with contextlib.suppress(PeerGone, PeerSilent):
                caller = accept(listener, name, left)
                if caller.receive(max(end - time.monotonic(), 0.01)).content == hello:
                    return caller
                caller.close()
        raise PeerSilent(f"{name} didn't connect within {self._limit:g} s.")
