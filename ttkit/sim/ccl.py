"""Collectives: what chips send each other, in one operation on the leading axes.

Each collective is a spec: what is checked, in ttnn's order; the plan that it stands for; how values
move; the topology of the result. `_run` does these four for all of them. A new collective is
one spec and one function.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ttkit.plans import recorded
from ttkit.sim import ccl_checks as checks
from ttkit.sim import ccl_mpi, ccl_numpy, fabric, quirks
from ttkit.sim.ccl_checks import Call
from ttkit.sim.enums import FabricConfig, Topology
from ttkit.sim.grid import TensorTopology
from ttkit.sim.memory import bytes_of
from ttkit.sim.operation import moved, operation, result
from ttkit.sim.tensor import Tensor
from ttkit.sim.types import MeshCoordinate

# Topologies whose lines are closed to rings, and the fabrics of such a topology.
CLOSED = {Topology.Ring, Topology.Torus, FabricConfig.FABRIC_1D_RING}
CLOSED |= {config for config in FabricConfig if "TORUS" in config.name}


@dataclass(frozen=True)
class _Collective:
    """A collective.

    Args:
        checks: in the order in which ttnn makes them; each raises, or sets something of the call.
        moves: returns the result's values.
        label: returns the result's topology from the operand's.
        plan: its name in `plans`; "" where nothing is sent.
        sums: the result is computed, and rounded.
    """

    checks: tuple[checks.Check, ...]
    moves: Callable[[Call], Any]
    label: Callable[..., TensorTopology]
    plan: str
    sums: bool = False


def _run(call: Call, older: dict[str, Any]) -> Any:
    """Check, plan, move, label."""
    spec = COLLECTIVES[call.name]
    checks.check(call, spec.checks, older)
    tensor, grid = call.tensor, call.tensor.grid
    if spec.plan:
        wanted = call.topology or call.mesh.fabric
        nbytes = call.nbytes or bytes_of(tensor.padded, tensor.dtype)
        how = (call.cluster_axis, None if wanted in CLOSED else "line", call.num_links, call.ends)
        recorded.latest[:] = [recorded.Record(spec.plan, call.mesh, nbytes, *how)]
        if not grid.local:
            fabric.agree(grid, call.asked)
    values = spec.moves(call)
    where = (call.mesh.grid, call.rank, call.cluster_axis, call.dim)
    topology = spec.label(tensor.topology, *where)
    if isinstance(values, list):
        return [moved(tensor, each, topology=topology) for each in values]
    if not spec.sums:
        return moved(tensor, values, topology=topology, output=call.output)
    owned = values.flags.owndata
    return result(tensor, values, topology=topology, output=call.output, owned=owned)


# ---------------------------------------------------------------- the collectives
def _along(name: str, call: Call, *how: Any) -> Any:
    """Move values along the call's mesh axes, in this process or between ranks."""
    tensor, grid = call.tensor, call.tensor.grid
    if grid.local:
        return getattr(ccl_numpy, name)(tensor._array, grid.shape, call.axes, *how)
    return ccl_mpi.move(name, tensor, call.axes, *how)


def _sent(call: Call) -> Any:
    way = ccl_numpy if call.tensor.grid.local else ccl_mpi
    return way.sent(call.tensor, call.output or call.tensor, *map(tuple, call.ends))


COLLECTIVES = {
    "all_gather": _Collective(
        (
            checks.fabric,
            checks.dim("Invalid gather dim {dim} for {rank}D input tensor"),
            checks.axis_is_named,
            checks.neighbours,
            checks.result_fits,
        ),
        lambda call: _along("gathered", call, call.dim),
        quirks.gather,
        "all_gather",
    ),
    "reduce_scatter": _Collective(
        (
            checks.fabric,
            checks.dim(
                "Index is out of bounds for the rank, should be between 0 and {last} however is "
                "{dim}"
            ),
            checks.at_least_two_dims,
            checks.enough_links,
            checks.neighbours,
            checks.divides(
                "Dimension {dim} must be divisible by ring_size: {size} over {chips} chips"
            ),
        ),
        lambda call: _along("reduced", call, call.dim),
        quirks.scatter,
        "reduce_scatter",
        sums=True,
    ),
    "all_reduce": _Collective(
        (checks.fabric, checks.some_links, checks.neighbours, quirks.check_summed),
        lambda call: _along("summed", call),
        quirks.gather,
        "all_reduce",
        sums=True,
    ),
    "all_broadcast": _Collective(
        (checks.fabric, checks.neighbours),
        lambda call: _along("each", call),
        quirks.gather,
        "all_gather",  # the same transfers; the shards stay apart
    ),
    "broadcast": _Collective(
        (checks.one_line, checks.ends_inside, checks.neighbours, checks.fabric),
        lambda call: _along("one_of", call, call.ends[0][call.axes[0]]),
        quirks.gather,
        "broadcast",
    ),
    "mesh_partition": _Collective(
        (
            checks.dim(
                "dim must be less than the rank of the input tensor: {dim}, rank {rank}; "
                "ShapeBase[] index out of range. {dim} not in [{least}, {rank})"
            ),
            checks.divides("input shape {shape!r} must be divisible by cluster axis size {chips}"),
            checks.whole_tiles,
        ),
        lambda call: ccl_numpy.partitioned(call.tensor, call.axes, call.dim),
        quirks.partition,
        "",
    ),
    "point_to_point": _Collective(
        (checks.ends_inside, checks.fabric, checks.one_hop),
        _sent,
        quirks.unchanged,
        "point_to_point",
    ),
}

SHORT = "memory_config subdevice_id"
TUNING = f"{SHORT} chunks_per_sync num_workers_per_link num_buffers_per_channel"
TUNING += " use_l1_small_for_semaphores"


@operation("all_gather", "collective", hints=f"{TUNING} sub_core_grids")
def all_gather(
    input_tensor: Tensor,
    dim: int,
    *,
    cluster_axis: int | None = None,
    output_tensor: Tensor | None = None,
    num_links: int | None = None,
    topology: Topology | None = None,
    **older: Any,
) -> Tensor:
    """Return on every chip the shards of all chips along `cluster_axis`, joined along `dim`.

    Args:
        dim: the shard's dimension to join along, in the order of the axis.
        cluster_axis: 0 joins the chips of each column, 1 those of each row; may be left out where
            the mesh is one line.

    Raises:
        TTKitError: no fabric, no such dim or axis, a host tensor.

    Example: [32, 32] on each chip of a 2x4 mesh, dim=1, cluster_axis=1: [32, 128] on each.
    """
    name = "all_gather"
    call = Call(name, input_tensor, cluster_axis, dim, (), topology, num_links, output_tensor)
    return _run(call, older)  # type: ignore[no-any-return]


@operation(
    "reduce_scatter",
    "collective",
    hints=f"{TUNING} intermediate_memory_config compute_kernel_config",
)
def reduce_scatter(
    input_tensor: Tensor,
    dim: int,
    *,
    cluster_axis: int | None = None,
    output_tensor: Tensor | None = None,
    num_links: int | None = None,
    topology: Topology | None = None,
    **older: Any,
) -> Tensor:
    """Add the shards of all chips along `cluster_axis`; each chip keeps its part of `dim`.

    Raises:
        TTKitError: the chips do not divide the dimension; no fabric; no such dim or axis.

    Example: [32, 128] on each chip of a 2x4 mesh, dim=1, cluster_axis=1: [32, 32] on each.
    """
    name = "reduce_scatter"
    call = Call(name, input_tensor, cluster_axis, dim, (), topology, num_links, output_tensor)
    return _run(call, older)  # type: ignore[no-any-return]


@operation("all_reduce", "collective", hints=SHORT)
def all_reduce(
    input_tensor: Tensor,
    *,
    cluster_axis: int | None = None,
    num_links: int | None = None,
    topology: Topology | None = None,
    **older: Any,
) -> Tensor:
    """Add the shards of all chips along `cluster_axis`, or of the mesh; every chip gets the sum.

    Raises:
        TTKitError: no fabric, no such axis, a host tensor.
    """
    call = Call("all_reduce", input_tensor, cluster_axis, None, (), topology, num_links)
    return _run(call, older)  # type: ignore[no-any-return]


@operation("all_broadcast", "collective", hints=f"{SHORT} use_l1_small_for_semaphores")
def all_broadcast(
    input_tensor: Tensor,
    *,
    cluster_axis: int | None = None,
    num_links: int | None = 1,
    topology: Topology | None = Topology.Linear,
    **older: Any,
) -> list[Tensor]:
    """Return the shards of all chips along `cluster_axis`, or of the mesh, in row-major order.

    Each is a tensor that every chip has.
    """
    call = Call("all_broadcast", input_tensor, cluster_axis, None, (), topology, num_links)
    return _run(call, older)  # type: ignore[no-any-return]


@operation("broadcast", "collective", hints=SHORT)
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
    call = Call("broadcast", input_tensor, cluster_axis, None, ends, topology, num_links)
    return _run(call, older)  # type: ignore[no-any-return]


@operation("mesh_partition", "arrange", moves="part", hints="memory_config")
def mesh_partition(input_tensor: Tensor, dim: int, cluster_axis: int | None = None) -> Tensor:
    """Keep on each chip its part of `dim`, by its place along `cluster_axis`; nothing is sent.

    Raises:
        TTKitError: the chips do not divide the dimension, or cut it inside a tile.
    """
    call = Call("mesh_partition", input_tensor, cluster_axis, dim)
    return _run(call, {})  # type: ignore[no-any-return]


@operation("point_to_point", "collective", hints="intermediate_tensor")
def point_to_point(
    input_tensor: Tensor,
    sender_coord: MeshCoordinate,
    receiver_coord: MeshCoordinate,
    *,
    topology: Topology = Topology.Linear,
    output_tensor: Tensor | None = None,
    **older: Any,
) -> Tensor:
    """Replace the receiver's shard by the sender's; others stay, or are those of `output_tensor`.

    Raises:
        TTKitError: a coordinate outside the mesh, or two chips in no row or column together.
    """
    ends = (sender_coord, receiver_coord)
    call = Call("point_to_point", input_tensor, None, None, ends, topology, None, output_tensor)
    return _run(call, older)  # type: ignore[no-any-return]
