"""A mesh without values: operations check, count memory and send as on any mesh, and compute
nothing. What a program would do on many chips is then on its tape in milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from ttkit.hardware import SYSTEMS
from ttkit.plans import recorded
from ttkit.sim.mesh.mesh import MeshDevice
from ttkit.sim.tape import Tape, TapeWithoutValues, running
from ttkit.sim.tensor.enums import FabricConfig

ANY_SYSTEM = SYSTEMS["galaxy"]  # Any system serves, because a dry run never uses its links.


class MeshWithoutValues(MeshDevice):
    """A mesh whose tensors have shape, type, placement and bytes; its memory has no limit."""

    has_values = False

    def __init__(self, shape: tuple[int, int]):
        super().__init__(ANY_SYSTEM, tuple(range(math.prod(shape))), shape)
        self.fabric = FabricConfig.FABRIC_2D
        self.dram_bytes = 1 << 62


@contextmanager
def without_values(shape: tuple[int, int]) -> Iterator[tuple[MeshDevice, Tape]]:
    """Open a mesh without values, of any shape, beside what is open, and record what runs on it.

    Other tapes rest meanwhile, and `last_plan` stays.

    Example:
        >>> from ttkit import ttnn
        >>> with without_values((8, 4)) as (mesh, calls):
        ...     x = ttnn.zeros([1 << 20, 1 << 20], layout=ttnn.TILE_LAYOUT, device=mesh)
        ...     y = ttnn.all_gather(x, dim=0, cluster_axis=1)
        >>> y.shape, calls.events[-1].in_use
        (Shape([4194304, 1048576]), 10995116277760)
    """
    mesh = MeshWithoutValues(shape)
    others, collectives = running[:], list(recorded.latest)
    calls = TapeWithoutValues(mesh)
    running[:] = [calls]
    try:
        yield mesh, calls
    finally:
        running[:] = others
        recorded.latest.clear()
        recorded.latest.extend(collectives)
        mesh.is_open = False
