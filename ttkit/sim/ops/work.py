"""Count the work of a call on one chip: floating-point operations, and traffic with DRAM."""

from collections.abc import Sequence
from typing import NamedTuple

from ttkit.sim.ops import Operation
from ttkit.sim.ops.shaping import keeps_rows
from ttkit.sim.tape import Event, stored_bytes


class Work(NamedTuple):
    """The work of a call on each of its chips.

    Attributes:
        flops: floating-point operations on the values, without padding.
        flops_of_tiles: floating-point operations on whole tiles, with padding, for the time model.
        read, written: bytes that are read from DRAM and written to DRAM.
    """

    flops: int
    flops_of_tiles: int
    read: int
    written: int

    @property
    def moved(self) -> int:
        """The bytes that are read and written."""
        return self.read + self.written


def work_of(event: Event, operation: Operation) -> Work | None:
    """Return the work of a call, or None if the call neither computes nor moves anything."""
    operands = event.operands
    results = event.results
    given = operation.takes.given(event.args, event.kwargs)
    socket = given.get("mesh_socket")  # A send has a socket and no result.
    sent = getattr(socket, "shift", None) is not None and not results
    if not sent and nothing_done(operation, operands, results):
        return None
    # An operand that is also a result, except the first, is an output: its bytes are not read.
    outputs = [t for t in operands[1:] if any(is_same(t, r) for r in results)]
    read = stored_bytes(operands) - stored_bytes(outputs)
    written = stored_bytes(results)
    # With "part", a call reads at most as many bytes as it writes. An embedding also reads its
    # indices.
    if operation.moves == "part":
        others = operands[:-1] if operation.name == "embedding" else []
        read = min(read, written + stored_bytes(others))
    flops = operation.flops(given, operands, results, lambda tensor: tensor.shard_shape)
    tiles = operation.flops(given, operands, results, lambda tensor: tensor.padded)
    return Work(flops, tiles, read, written)


def is_same(one, other) -> bool:
    """Return whether two descriptions are of the same tensor."""
    return one.tensor is other.tensor  # type: ignore[no-any-return]


def nothing_done(operation: Operation, operands: Sequence, results: Sequence) -> bool:
    """Return whether a call neither computes nor moves anything.

    Writes into a cache, such as those of `fill_cache` and `update_cache`, are not counted either.
    """
    if operation.moves == "none" or not results:
        return True
    if not operands:
        return False
    before, after = operands[0], results[0]
    if is_same(before, after) and operation.kind not in ("compute", "product"):
        return True
    same_layout = before.layout is after.layout
    return operation.moves == "shape" and same_layout and keeps_rows(before, after)
