"""The tensors of a call: their arrays on the chips that all of them cover, checks, the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ttkit.sim.arguments import check
from ttkit.sim.ops.operation import Together, aligned, check_broadcast, on_mesh, result, together
from ttkit.sim.tensor.enums import DataType
from ttkit.sim.tensor.tensor import Tensor

Array = np.ndarray


class Operands:
    """The tensors of a call, on one mesh.

    Args:
        tensors: some may be None.

    Attributes:
        arrays: those of the tensors on the chips of `like`, None for a tensor that is None.
        like: the operand on the fewest chips; the result lies on these.
        lead: how many axes of the arrays run over the chips.
    """

    def __init__(self, *tensors: Tensor | None):
        given = tuple(t for t in tensors if t is not None)
        on_mesh(*given)
        self.tensors = given
        self.like, arrays, self.topology = together(given)
        self.lead, found = len(self.like.grid.shape), iter(arrays)
        self.arrays: list[Any] = [None if t is None else next(found) for t in tensors]

    def check(self, *rules: tuple[Any, ...]) -> None:
        """Check rules as `arguments.check` does."""
        check(*rules)

    def result(self, array: Array, dtype: DataType | None = None, **how: Any) -> Tensor:
        """Return a tensor as the function `result` does, by default like the first operand."""
        first = self.tensors[0]
        how = {"layout": first.layout, "topology": self.topology, **how}
        return result(self.like, array, dtype=dtype or first.dtype, **how)


def broadcast(tensors: Sequence[Tensor]) -> Together:
    """Return `aligned` of operands on one mesh whose shards broadcast."""
    on_mesh(*tensors)
    for other in tensors[1:]:
        check_broadcast(tensors[0].shard_shape, other.shard_shape)
    return aligned(tensors)


def in_whole_tiles(values: Array) -> Array:
    """Return values with the last two dimensions rounded up to 32, filled with zeros."""
    ends = [(0, -n % 32) for n in values.shape[-2:]]
    return np.pad(values, [(0, 0)] * (values.ndim - 2) + ends)


def spread(arrays: Sequence[Array], lead: int) -> list[Array]:
    """Return arrays whose first `lead` axes, over the chips, have equal lengths."""
    lengths = np.broadcast_shapes(*(a.shape[:lead] for a in arrays))
    return [np.broadcast_to(a, lengths + a.shape[lead:]) for a in arrays]
