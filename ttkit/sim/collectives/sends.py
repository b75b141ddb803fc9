"""Collectives that only copy: broadcasts, point to point, and the cut that sends nothing."""

from __future__ import annotations

from typing import Any

from ttkit.errors import fail
from ttkit.sim.collectives import ccl_numpy
from ttkit.sim.collectives.ccl import (
    COLLECTIVES,
    Call,
    Collective,
    along,
    dim_in_range,
    divides,
    fabric_is_on,
    neighbours,
    run,
)
from ttkit.sim.ops.operation import operation
from ttkit.sim.ranks import ccl_mpi
from ttkit.sim.tensor import quirks
from ttkit.sim.tensor.enums import Layout, Topology
from ttkit.sim.tensor.grid import is_inside
from ttkit.sim.tensor.tensor import Tensor
from ttkit.sim.tensor.types import MeshCoordinate


# ---------------------------------------------------------------- checks
def one_line(call: Call) -> None:
    """Without a cluster axis the mesh must be a line; the collective runs along it."""
    if call.cluster_axis is not None:
        return
    shape = call.mesh._shape
    if min(shape) > 1:
        rule = f"{call.name} op is only supported for a linear tensor topology shape"
        fail(call.asked, rule, "cluster_axis=0 or 1")
    call.axes = [shape.index(max(shape))]


def whole_tiles(call: Call) -> None:
    tensor, dim = call.tensor, call.dim
    size = tensor.shard_shape[dim] // call.chips
    if call.chips > 1 and tensor.layout is Layout.TILE and dim >= call.rank - 2 and size % 32:
        side = "width" if dim == call.rank - 1 else "height"
        rule = f"Can only slice tilized tensor with {side} begin index aligned to tiles"
        fail(call.asked, f"{rule}: parts of {size}", "a row-major tensor, or parts of 32")


def ends_inside(call: Call) -> None:
    for what, coordinate in zip(("sender", "receiver"), call.ends, strict=False):
        if not is_inside(tuple(coordinate), call.mesh._shape):
            rule = f"Mesh device must contain {what} coordinate device {coordinate!r}"
            fail(call.asked, rule, f"a coordinate inside {call.mesh.shape!r}")


def one_hop(call: Call) -> None:
    sender, receiver = call.ends
    if sum(a != b for a, b in zip(sender, receiver, strict=True)) > 1:
        rule = f"Routing coordinates {sender!r} and {receiver!r} invalid for 1D fabric"
        fail(call.asked, rule, "two hops: along the row, then along the column")


# ---------------------------------------------------------------- specs
def _sent(call: Call) -> Any:
    way = ccl_numpy if call.tensor.grid.local else ccl_mpi
    return way.sent(call.tensor, call.output or call.tensor, *map(tuple, call.ends))


BELOW = "dim must be less than the rank of the input tensor: {dim}, rank {rank}; ShapeBase[] index"
BELOW += " out of range. {dim} not in [{least}, {rank})"
EVEN = "input shape {shape!r} must be divisible by cluster axis size {chips}"

COLLECTIVES |= {
    "all_broadcast": Collective(
        (fabric_is_on, neighbours),
        lambda call: along("each", call),
        quirks.gather,
        "all_gather",  # It sends the same transfers, but the shards are not joined.
    ),
    "broadcast": Collective(
        (one_line, ends_inside, neighbours, fabric_is_on),
        lambda call: along("one_of", call, call.ends[0][call.axes[0]]),
        quirks.gather,
        "broadcast",
    ),
    "mesh_partition": Collective(
        (dim_in_range(BELOW), divides(EVEN), whole_tiles),
        lambda call: ccl_numpy.partitioned(call.tensor, call.axes, call.dim),
        quirks.partition,
        "",
    ),
    "point_to_point": Collective(
        (ends_inside, fabric_is_on, one_hop), _sent, quirks.unchanged, "point_to_point"
    ),
}


# ---------------------------------------------------------------- the collectives
@operation("all_broadcast", "collective")
def all_broadcast(
    input_tensor: Tensor,
    *,
    cluster_axis: int | None = None,
    num_links: int | None = 1,
    topology: Topology | None = Topology.Linear,
    use_l1_small_for_semaphores: bool = False,
    **older: Any,
) -> list[Tensor]:
    """Return the shards of all chips along `cluster_axis`, or of the mesh, in row-major order.

    Each is a tensor that every chip has.
    """
    call = Call("all_broadcast", input_tensor, cluster_axis, older=older)
    call.topology, call.num_links = topology, num_links
    return run(call)  # type: ignore[no-any-return]


@operation("broadcast", "collective")
def broadcast(
    input_tensor: Tensor,
    sender_coord: MeshCoordinate,
    *,
    num_links: int | None = None,
    topology: Topology = Topology.Linear,
    cluster_axis: int | None = None,
    **older: Any,
) -> Tensor:
    """Return on every chip along `cluster_axis` the shard at the sender's place of that axis."""
    ends = (sender_coord,)
    call = Call(
        "broadcast", input_tensor, cluster_axis, None, ends, topology, num_links, older=older
    )
    return run(call)  # type: ignore[no-any-return]


@operation("mesh_partition", "arrange", moves="part")
def mesh_partition(input_tensor: Tensor, dim: int, cluster_axis: int | None = None) -> Tensor:
    """Keep on each chip its part of `dim`, by its place along `cluster_axis`; nothing is sent.

    Raises:
        TTKitError: the chips do not divide the dimension, or cut it inside a tile.
    """
    call = Call("mesh_partition", input_tensor, cluster_axis, dim)
    return run(call)  # type: ignore[no-any-return]


@operation("point_to_point", "collective")
def point_to_point(
    input_tensor: Tensor,
    sender_coord: MeshCoordinate,
    receiver_coord: MeshCoordinate,
    *,
    topology: Topology = Topology.Linear,
    output_tensor: Tensor | None = None,
    intermediate_tensor: Tensor | None = None,
    **older: Any,
) -> Tensor:
    """Replace the receiver's shard by the sender's; others stay, or are those of `output_tensor`.

    Raises:
        TTKitError: a coordinate outside the mesh, or two chips in no row or column together.
    """
    ends = (sender_coord, receiver_coord)
    call = Call(
        "point_to_point",
        input_tensor,
        None,
        None,
        ends,
        topology,
        output=output_tensor,
        older=older,
    )
    return run(call)  # type: ignore[no-any-return]
