"""A communicator that records messages and ends waits; it lives on a rank."""

from __future__ import annotations

import sys
import time
from typing import Any, Literal

import numpy as np

from ttkit.cluster.engines.stacks import is_library
from ttkit.lessons import CheckFailed
from ttkit.plans.messages import ANY, Call

POLL_S = 0.0005
MESSAGES = ("Send", "Isend", "Ssend", "Recv", "Irecv", "Sendrecv")
MESSAGES_ARE = "Send, Recv and Sendrecv (capital letters, NumPy arrays) are"
SHOWN = 2  # numbers of a message that a picture shows
_kept: list[Any] = []  # requests that nobody completes: MPI still knows their buffers


class Stuck(BaseException):
    """A message has taken too long; no `except Exception` of an answer hides it."""


class Watched:
    """A communicator with some of MPI's calls; it records messages and ends waits.

    `Send` waits until the other rank receives, as `Ssend` does: MPI may do so with any message, and
    does with large ones.

    Args:
        comm: of mpi4py.
        limit_s: how long one message may take.
        allowed: which calls it has.
        those_are: the end of the message about another one.
    """

    def __init__(
        self,
        comm: Any,
        limit_s: float,
        allowed: tuple[str, ...] = MESSAGES,
        those_are: str = MESSAGES_ARE,
    ):
        self._comm, self._limit_s = comm, limit_s
        self._allowed, self._those_are = allowed, those_are
        self.rank, self.size = comm.rank, comm.size
        self.sent = self.calls = 0
        self.stuck = False  # a bare `except:` of an answer hides Stuck, but not this
        self.log: list[Call] = []
        self.minus_one = False  # it asked to receive from rank -1
        self._begun: list[tuple[Any, Any, str]] = []  # requests, as MPI and as the answer has them
        self._rooms: list[tuple[Any, int]] = []  # how many bytes each receive has room for

    def Get_rank(self) -> int:
        return self.rank

    def Get_size(self) -> int:
        return self.size

    @property
    def unfinished(self) -> str:
        """The name of a call that nobody waited for, "" where there is none."""
        return next((name for request, own, name in self._begun if request and own), "")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # of Python, such as pickle's
            raise AttributeError(name)
        if name not in self._allowed:
            raise CheckFailed(f"comm.{name} is not for this exercise: {self._those_are}")
        if name in MESSAGES:
            return getattr(self, f"_{name.lower()}")
        call = getattr(self._comm, name)

        def counted(*arguments: Any, **keywords: Any) -> Any:
            self.calls += 1
            given = [*arguments, *keywords.values()]
            arrays = [each[0] if isinstance(each, (list, tuple)) else each for each in given]
            self.sent += next((array.nbytes for array in arrays if hasattr(array, "nbytes")), 0)
            return call(*arguments, **keywords)

        return counted

    def _send(self, buf: Any, dest: int, tag: int = 0) -> None:
        self._wait([self._sending("Send", buf, dest, tag)])

    def _ssend(self, buf: Any, dest: int, tag: int = 0) -> None:
        self._wait([self._sending("Ssend", buf, dest, tag)])

    def _isend(self, buf: Any, dest: int, tag: int = 0) -> Any:
        return self._request(self._sending("Isend", buf, dest, tag))

    def _recv(
        self, buf: Any, source: int | None = None, tag: int | None = None, status: Any = None
    ) -> None:
        self._wait([self._receiving("Recv", buf, source, tag)], status)

    def _irecv(self, buf: Any, source: int | None = None, tag: int | None = None) -> Any:
        return self._request(self._receiving("Irecv", buf, source, tag))

    def _sendrecv(
        self,
        sendbuf: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int | None = None,
        recvtag: int | None = None,
        status: Any = None,
    ) -> None:
        receiving = self._receiving("Sendrecv", recvbuf, source, recvtag, note=False)
        sending = self._sending("Sendrecv", sendbuf, dest, sendtag, _any(source))
        self._wait([receiving, sending], status)

    def _sending(self, name: str, buf: Any, dest: int, tag: int, source: int | None = None) -> Any:
        array = np.asarray(buf[0] if isinstance(buf, (list, tuple)) else buf)
        self._there_is(dest)
        _sendable(name, buf)
        start = self._comm.Isend if name == "Isend" else self._comm.Issend
        request = start(buf, dest=dest, tag=tag)
        self.calls += 1
        self.sent += array.nbytes
        text = ", ".join(f"{x:g}" for x in array.ravel()) if array.size <= SHOWN else ""
        peers = _peer(dest), _peer(source)
        self.log.append(Call(name, *peers, array.nbytes, text, _line()))
        return request

    def _receiving(
        self, name: str, buf: Any, source: int | None, tag: int | None, note: bool = True
    ) -> Any:
        from mpi4py import MPI

        _sendable(name, buf)
        self.minus_one |= source == -1
        source = _any(source)
        if source != MPI.ANY_SOURCE:
            self._there_is(source)
        request = self._comm.Irecv(buf, source, MPI.ANY_TAG if tag is None else tag)
        if isinstance(buf, np.ndarray):
            self._rooms.append((request, buf.nbytes))
        self.calls += 1
        if note:
            self.log.append(Call(name, source=_peer(source), line=_line()))
        return request

    def _wait(self, requests: list[Any], status: Any = None) -> None:
        """Wait for requests; what is received comes first and fills the status."""
        from mpi4py import MPI

        if self.stuck:
            raise Stuck
        end = time.monotonic() + self._limit_s
        left, status = list(enumerate(requests)), status or MPI.Status()
        room = next((room for request, room in self._rooms if request is requests[0]), None)
        cure = "make the array with np.empty_like, which takes the shape and the dtype"
        while left:
            try:
                left = [(i, r) for i, r in left if not r.Test(status if i == 0 else None)]
            except MPI.Exception as error:
                if error.Get_error_class() != MPI.ERR_TRUNCATE:
                    raise
                text = f"more bytes arrived than the {room} of the array for them: {cure}"
                raise CheckFailed(text) from None
            if left and time.monotonic() > end:
                _kept.extend(requests)
                self.stuck = True
                raise Stuck
            if left:
                time.sleep(POLL_S)
        came = status.Get_count(MPI.BYTE) if room else room
        if came != room and status.source != MPI.PROC_NULL:
            raise CheckFailed(f"{came} bytes arrived in an array of {room}: {cure}")
        if self.log[-1].source == ANY:  # now it is known
            self.log[-1] = self.log[-1]._replace(source=status.source)

    def _request(self, request: Any) -> Any:
        """Return the request of a call that did not wait, with a `Wait` that ends."""
        from mpi4py import MPI

        watched, began = self, self.log[-1]

        class Request(MPI.Request):  # type: ignore[misc]
            def Wait(self, status: Any = None) -> Literal[True]:
                try:
                    watched._wait([request], status)
                except Stuck:
                    watched.log.append(began._replace(name="Wait", line=_line()))
                    raise
                return True

            wait = Wait

        own = Request(request)
        self._begun.append((request, own, began.name))
        return own

    def _there_is(self, rank: int) -> None:
        """Raise `CheckFailed` where there is no such rank."""
        from mpi4py import MPI

        if not 0 <= rank < self.size and rank != MPI.PROC_NULL:
            there = f"there is no rank {rank}; there are 0 to {self.size - 1}"
            raise CheckFailed(f"{there}. % comm.size closes the ring")


def _sendable(call: str, buf: Any) -> None:
    """Raise `CheckFailed` where MPI cannot send from here, or receive into it."""
    flags = getattr(buf[0] if isinstance(buf, (list, tuple)) and buf else buf, "flags", None)
    if flags is None:
        one = "an array is missing" if buf is None else f"it got a {type(buf).__name__}"
        raise CheckFailed(f"{call} takes NumPy arrays, {one}: np.empty_like(x) makes one")
    if not (flags.c_contiguous or flags.f_contiguous):
        apart = "whose numbers do not lie beside each other in memory, as a column"
        raise CheckFailed(f"{call} got a part of an array {apart}: use a copy of it")


def _any(source: int | None) -> int:
    """Return MPI's number for any rank where none is named."""
    from mpi4py import MPI

    return MPI.ANY_SOURCE if source is None else source


def _peer(rank: int | None) -> int | None:
    """Return a rank as a picture has it: None for nobody, `ANY` for any."""
    from mpi4py import MPI

    if rank is None or rank == MPI.PROC_NULL:
        return None
    return ANY if rank == MPI.ANY_SOURCE else rank


def _line() -> str:
    """Return the learner's line that is running, as "file|number|function"."""
    frame: Any = sys._getframe(1)
    while frame is not None and (
        frame.f_code.co_filename == __file__ or is_library(frame.f_code.co_filename)
    ):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}|{frame.f_lineno}|{frame.f_code.co_name}" if frame else ""
