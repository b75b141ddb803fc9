"""The collectives that ran last: recorded when they run, made into plans on request."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from ttkit.errors import fail
from ttkit.plans import collectives
from ttkit.plans.plan import Plan
from ttkit.plans.topology import topology


class Record(NamedTuple):
    """The arguments of a collective: enough to plan it, and cheap to keep."""

    collective: str
    mesh: Any
    shard_bytes: int  # The size of each chip's shard includes tile padding.
    axis: int | None
    algorithm: str | None  # It is "line", or None for a ring where cables close it.
    links: int | None
    # The coordinates are a broadcast's sender, or a point_to_point's sender and receiver.
    ends: tuple[Any, ...] = ()
    backwards: bool = False  # Only a shift uses this.


# These are the collectives that ran last, the newest at the end.
latest: deque[Record] = deque(maxlen=64)


def plan_of(what: Record) -> Plan:
    """Return the plan of a recorded collective."""
    there = topology(what.mesh)
    ends = [what.mesh.id_at(tuple(end)) for end in what.ends]
    how: dict[str, Any] = {"links": what.links, "axis": what.axis, "algorithm": what.algorithm}
    if what.collective == "shift":
        how["backwards"] = what.backwards
        del how["algorithm"]
    elif what.collective == "broadcast":
        how["root"] = there.place[ends[0]] if what.axis is None else what.ends[0][what.axis]
    elif what.collective == "point_to_point":
        how = {"links": what.links, "source": ends[0], "destination": ends[1]}
    build: Callable[..., Plan] = getattr(collectives, what.collective)
    return build(there, what.shard_bytes, **how)


def last_plan() -> Plan:
    """Return the plan of the collective that ran last on the simulator.

    It is a ring where the caller or the fabric asks for one and cables close it, else a line.

    Raises:
        TTKitError: none has run yet.

    Example:
        >>> import ttkit
        >>> from ttkit import ttnn
        >>> _ = ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D)
        >>> with ttnn.open_mesh_device(ttnn.MeshShape(2, 4)) as mesh:
        ...     x = ttnn.ones([32, 32], device=mesh, layout=ttnn.TILE_LAYOUT, dtype=ttnn.bfloat16)
        ...     _ = ttnn.all_gather(x, dim=0, cluster_axis=1)
        >>> ttkit.last_plan()
        Plan(all_gather along axis 1 on t3000 2x4: line, 3 steps)
    """
    if not latest:
        fail(
            "ttkit.last_plan()",
            "no collective has run yet; on a card they are not recorded",
            "ttnn.all_gather(...) on the simulator first",
        )
    return plan_of(latest[-1])
