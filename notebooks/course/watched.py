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
MESSAGES = ("Send", "Isend", "Recv", "Irecv", "Sendrecv")
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
    """

    def __init__(self, comm: Any, limit_s: float, allowed: tuple[str, ...] = MESSAGES):
        self._comm, self._limit_s, self._allowed = comm, limit_s, allowed
        self.rank, self.size = comm.rank, comm.size
        self.sent = self.calls = 0
        self.log: list[Call] = []

    def Get_rank(self) -> int:
        return self.rank

    def Get_size(self) -> int:
        return self.size

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # of Python, such as pickle's
            raise AttributeError(name)
        if name not in self._allowed:
            raise CheckFailed(f"comm.{name} is not for this exercise: {', '.join(self._allowed)}")
        if name in MESSAGES:
            return getattr(self, f"_{name.lower()}")
        call = getattr(self._comm, name)

        def counted(*arguments: Any, **keywords: Any) -> Any:
            self.calls += 1
            given = [*arguments, *keywords.values()]  # one of two may be MPI.IN_PLACE
            self.sent += next(each.nbytes for each in given if isinstance(each, np.ndarray))
            return call(*arguments, **keywords)

        return counted

    def _send(self, buf: Any, dest: int, tag: int = 0) -> None:
        self._wait([self._sending("Send", buf, dest, tag)])

    def _isend(self, buf: Any, dest: int, tag: int = 0) -> Any:
        return self._request(self._sending("Isend", buf, dest, tag))

    def _recv(self, buf: Any, source: int | None = None, tag: int | None = None) -> None:
        self._wait([self._receiving("Recv", buf, source, tag)], buf)

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
    ) -> None:
        receiving = self._receiving("Sendrecv", recvbuf, source, recvtag, note=False)
        sending = self._sending("Sendrecv", sendbuf, dest, sendtag, _any(source))
        self._wait([receiving, sending], recvbuf)

    def _sending(self, name: str, buf: Any, dest: int, tag: int, source: int | None = None) -> Any:
        array = np.asarray(buf[0] if isinstance(buf, (list, tuple)) else buf)
        self._there_is(dest)
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

        if source is not None:
            self._there_is(source)
        source = _any(source)
        request = self._comm.Irecv(buf, source, MPI.ANY_TAG if tag is None else tag)
        self.calls += 1
        if note:
            self.log.append(Call(name, source=_peer(source), line=_line()))
        return request

    def _wait(self, requests: list[Any], into: Any = None) -> None:
        """Wait for requests; what is received comes first."""
        from mpi4py import MPI

        end = time.monotonic() + self._limit_s
        left, status = list(enumerate(requests)), MPI.Status()
        while left:
            left = [(i, r) for i, r in left if not r.Test(status if i == 0 else None)]
            if left and time.monotonic() > end:
                _kept.extend(requests)
                raise Stuck
            if left:
                time.sleep(POLL_S)
        came, room = status.Get_count(MPI.BYTE), getattr(into, "nbytes", None)
        if room not in (None, came) and status.source != MPI.PROC_NULL:
            cure = "np.empty_like(x) has the shape and the dtype of x"
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
                    watched._wait([request])
                except Stuck:
                    watched.log.append(began._replace(name="Wait", line=_line()))
                    raise
                return True

            wait = Wait

        _kept.append(request)  # the answer may never wait for it
        return Request(request)

    def _there_is(self, rank: int) -> None:
        """Raise `CheckFailed` where there is no such rank."""
        from mpi4py import MPI

        if not 0 <= rank < self.size and rank != MPI.PROC_NULL:
            there = f"there is no rank {rank}; there are 0 to {self.size - 1}"
            raise CheckFailed(f"{there}. % comm.size closes the ring")


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
