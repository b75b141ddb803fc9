"""The distributed context: which rank this is, of how many, and plain bytes between ranks."""

from __future__ import annotations

from typing import Any

import numpy as np

from ttkit.errors import fail
from ttkit.sim import fabric, ranks
from ttkit.sim.operation import checked
from ttkit.sim.types import integer


class _Number:
    """A number with a name of its own, as ttnn gives it."""

    __slots__ = ("_value",)

    def __init__(self, value: int):
        self._value = integer(value, type(self).__name__)

    def __int__(self) -> int:
        return self._value

    __index__ = __int__

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and int(other) == self._value  # type: ignore[call-overload, no-any-return]

    def __hash__(self) -> int:
        return hash((type(self), self._value))

    def __str__(self) -> str:
        return str(self._value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._value})"


class Rank(_Number):
    """The number of a rank.

    Example:
        >>> Rank(1), int(Rank(1)), f"rank {Rank(1)}"
        (Rank(1), 1, 'rank 1')
    """


class Size(_Number):
    """How many ranks there are."""


_alone = [False]  # a context that was made by one process on its own


def _here() -> fabric.World | None:
    """All ranks, where MPI started several."""
    return fabric.world() if ranks.world_size() > 1 else None


def init_distributed_context() -> None:
    """Find the other ranks; a second call does nothing. All ranks must call."""
    _alone[0] = True
    _here()


def distributed_context_is_initialized() -> bool:
    """True after `init_distributed_context`, and in every process that MPI started."""
    return _alone[0] or ranks.launched()


def using_distributed_env() -> bool:
    """True where MPI started this process."""
    return ranks.launched()


def distributed_context_get_rank() -> Rank:
    """This rank."""
    here = _here()
    return Rank(here.rank if here else 0)


def distributed_context_get_size() -> Size:
    """How many ranks there are.

    Example:
        >>> distributed_context_get_size()  # of one process on its own
        Size(1)
    """
    here = _here()
    return Size(here.size if here else 1)


distributed_context_world_rank, distributed_context_world_size = (
    distributed_context_get_rank,
    distributed_context_get_size,
)


def distributed_context_barrier() -> None:
    """Wait until all ranks have come here."""
    here = _here()
    if here is None:
        return
    if fabric.settings.checks:
        fabric.compare("distributed_context_barrier()", range(here.size))
    else:
        here.comm.Barrier()


def distributed_context_allgather_int(value: int) -> list[int]:
    """Each rank's number, in the order of the ranks."""
    mine = np.array([integer(value, "distributed_context_allgather_int")], np.int64)
    here = _here()
    if here is None:
        return mine.tolist()  # type: ignore[no-any-return]
    call, everybody = "distributed_context_allgather_int", range(here.size)
    if fabric.settings.checks:
        fabric.compare(call, everybody)
    everyone = np.empty(here.size, np.int64)
    here.run(here.comm, "Allgather", (mine, everyone), call, everybody)
    return everyone.tolist()  # type: ignore[no-any-return]


def _peer(asked: str, rank: Any, what: str) -> fabric.World:
    here = _here()
    number = int(rank) if isinstance(rank, Rank) else integer(rank, asked)
    size = here.size if here else 1
    if not 0 <= number < size or here is None:
        rule = f"{what} failed: MPI_ERR_RANK: invalid rank {number} of {size}"
        fail(asked, rule, f"a rank of 0 to {size - 1}, in a program that MPI started")
    return here


@checked("distributed_context_send_bytes")
def distributed_context_send_bytes(data: bytes, dest: int, tag: int = 0) -> None:
    """Send bytes to a rank, and wait until they are on their way."""
    asked = f"distributed_context_send_bytes({len(data)} bytes, dest={dest}, tag={tag})"
    here, buffer = _peer(asked, dest, "MPI_Send"), np.frombuffer(data, np.uint8)
    here.run(here.user, "Send", (buffer, int(dest), tag), asked, [int(dest)])


@checked("distributed_context_recv_bytes")
def distributed_context_recv_bytes(size: int, source: int, tag: int = 0) -> bytes:
    """`size` bytes from a rank.

    Raises:
        TTKitError: more bytes came than were asked for.
    """
    asked = f"distributed_context_recv_bytes({size}, source={source}, tag={tag})"
    here, buffer = _peer(asked, source, "MPI_Recv"), np.empty(integer(size, asked, 0), np.uint8)
    try:
        here.run(here.user, "Recv", (buffer, int(source), tag), asked, [int(source)])
    except here.mpi.Exception as error:
        fail(asked, f"MPI_Recv failed: {error}", "the size that was sent")
    return buffer.tobytes()
