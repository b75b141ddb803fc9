"""The distributed context: which rank this is, of how many, and plain bytes between ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ttkit.errors import fail
from ttkit.sim import fabric, ranks
from ttkit.sim.operation import checked
from ttkit.sim.types import integer


@dataclass(frozen=True, repr=False)
class _Number:
    """A number with a name of its own, as in ttnn."""

    value: int

    def __int__(self) -> int:
        return self.value

    __index__ = __int__

    def __str__(self) -> str:
        return str(self.value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value})"


class Rank(_Number):
    """The number of a rank.

    Example:
        >>> Rank(1), int(Rank(1)), f"rank {Rank(1)}"
        (Rank(1), 1, 'rank 1')
    """


class Size(_Number):
    """A number of ranks."""


_alone = [False]  # one process on its own has a context


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


def distributed_context_barrier() -> None:
    """Wait for all ranks."""
    here = _here()
    if here is None:
        return
    if fabric.settings.checks:
        fabric.compare("distributed_context_barrier()", range(here.size))
    else:
        here.comm.Barrier()


def _peer(asked: str, rank: Any, what: str) -> fabric.World:
    here = _here()
    number, size = integer(rank, asked), here.size if here else 1
    if not 0 <= number < size or here is None:
        rule = f"{what} failed: MPI_ERR_RANK: invalid rank {number} of {size}"
        fail(asked, rule, f"a rank of 0 to {size - 1}, in a program that MPI started")
    return here


@checked("distributed_context_send_bytes")
def distributed_context_send_bytes(data: bytes, dest: int, tag: int = 0) -> None:
    """Send bytes to a rank; return when the buffer may be used again."""
    asked = f"distributed_context_send_bytes({len(data)} bytes, dest={dest}, tag={tag})"
    here, buffer = _peer(asked, dest, "MPI_Send"), np.frombuffer(data, np.uint8)
    here.run(here.user, "Send", (buffer, int(dest), tag), asked, [int(dest)])


@checked("distributed_context_recv_bytes")
def distributed_context_recv_bytes(size: int, source: int, tag: int = 0) -> bytes:
    """Receive `size` bytes from a rank.

    Raises:
        TTKitError: more bytes arrived than were asked for.
    """
    asked = f"distributed_context_recv_bytes({size}, source={source}, tag={tag})"
    here, buffer = _peer(asked, source, "MPI_Recv"), np.empty(integer(size, asked, 0), np.uint8)
    try:
        here.run(here.user, "Recv", (buffer, int(source), tag), asked, [int(source)])
    except here.mpi.Exception as error:
        fail(asked, f"MPI_Recv failed: {error}", "the size that was sent")
    return buffer.tobytes()
