"""Collectives: what chips send each other, in one operation on the leading axes.

Each collective is a spec: what is checked, in ttnn's order; the plan that it stands for; how values
move; what the result's topology says. `_run` does these four for all of them. A new collective is
one spec and one function.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ttkit.dialect import is_strict, older_form
from ttkit.errors import fail
from ttkit.plans import recorded
from ttkit.sim import ccl_mpi, ccl_numpy, fabric, quirks
from ttkit.sim import placement_rules as rules
from ttkit.sim.arguments import describe
from ttkit.sim.enums import FabricConfig, Layout, Topology
from ttkit.sim.memory import bytes_of, would_fit
from ttkit.sim.operation import moved, operation, result
from ttkit.sim.tensor import Tensor
from ttkit.sim.types import MeshCoordinate, integer

# What a collective takes when it is not told: the fabric's own topology.
OF_FABRIC = {FabricConfig.FABRIC_1D_RING: Topology.Ring, FabricConfig.FABRIC_2D: Topology.Mesh}
OF_FABRIC |= {config: Topology.Torus for config in FabricConfig if "TORUS" in config.name}
CLOSED = (Topology.Ring, Topology.Torus)
NO_NEIGHBOUR = "DEBUG: forward_coord or backward_coord is null, there is no neighbour"


@dataclass(slots=True)
class _Call:
    """One call of a collective, while it is checked and carried out."""

    name: str
    tensor: Tensor
    axis: int | None  # the cluster axis
    dim: Any = None
    ends: tuple[Any, ...] = ()  # sender, receiver
    topology: Topology | None = None
    num_links: Any = None
    output: Tensor | None = None
    mesh: Any = None
    axes: list[int] = field(default_factory=list)  # the mesh axes that it runs along, in the end

    @property
    def asked(self) -> describe:
        """The call for a message."""
        how = {"dim": self.dim, "cluster_axis": self.axis}
        shown = {name: value for name, value in how.items() if value is not None}
        return describe(self.name, (self.tensor, *self.ends), shown)

    @property
    def rank(self) -> int:
        """How many dimensions a shard has."""
        return len(self.tensor.shard_shape)

    @property
    def chips(self) -> int:
        """How many chips take part with each other."""
        return math.prod(self.mesh._shape[axis] for axis in self.axes)


@dataclass(frozen=True)
class _Collective:
    """A collective.

    Args:
        checks: in the order in which ttnn makes them; each raises, or settles something of the
            call.
        moves: the result's values, from `ccl_numpy`, or `ccl_mpi` where ranks share the mesh.
        label: the result's topology.
        plan: its name in `plans`; "" where nothing is sent.
        sums: the result is computed, and rounded.
        alone: what ttnn says of an axis of one chip.
        along_axes: values go along the mesh axes of the call.
    """

    checks: tuple[Callable[[_Call], None], ...]
    moves: Callable[[Any, _Call], Any]
    label: Callable[[_Call], Any]
    plan: str
    sums: bool = False
    alone: str = ""
    along_axes: bool = True


def _run(call: _Call, older: dict[str, Any]) -> Any:
    """Check, plan, move, label."""
    spec = COLLECTIVES[call.name]
    _place(call, older)
    for check in spec.checks:
        check(call)
    _covers_mesh(call)
    if not call.axes:
        shape = call.mesh._shape
        call.axes = list(range(len(shape))) if call.axis is None else [call.axis]
    tensor = call.tensor
    if spec.plan:
        wanted = call.topology or OF_FABRIC.get(call.mesh.fabric)
        nbytes = bytes_of(tensor.padded, tensor.dtype)
        algorithm = None if wanted in CLOSED else "line"
        how = (call.axis, algorithm, call.num_links, call.ends)
        recorded.latest[:] = [recorded.Record(spec.plan, call.mesh, nbytes, *how)]
    values = spec.moves(_way(call, spec), call)
    topology = spec.label(call)
    if isinstance(values, list):
        return [moved(tensor, each, topology=topology) for each in values]
    if not spec.sums:
        return moved(tensor, values, topology=topology, output=call.output)
    owned = values.flags.owndata
    return result(tensor, values, topology=topology, output=call.output, owned=owned)


def _way(call: _Call, spec: _Collective) -> Any:
    """What moves the values: in this process, or between ranks that agree on the call."""
    grid = call.tensor.grid
    if len(grid.coords) == len(grid.covers):
        return ccl_numpy
    if fabric.settings.checks and spec.plan:
        fabric.agree(grid, call.asked)
    return ccl_mpi.mover(call.tensor, call.axes) if spec.along_axes else ccl_mpi


# ---------------------------------------------------------------- checks
def _place(call: _Call, older: dict[str, Any]) -> None:
    """The tensor is on a mesh, and the cluster axis is one of its axes."""
    tensor, axis = call.tensor, call.axis
    if tensor.mesh is None:
        rule = f"Mesh device is required for {call.name} operation, which takes device tensors as"
        rule = f"{rule} inputs: the tensor is on the host"
        fail(call.asked, rule, "ttnn.to_device(tensor, mesh)")
    if tensor._array is None:
        rule = f"Mesh device is required for {call.name} operation: Input Tensor A is not allocated"
        fail(call.asked, rule, "use it before ttnn.deallocate")
    call.mesh = mesh = tensor.mesh
    if not mesh.is_open:
        mesh.check_open(call.asked)
    if older:
        _older(call, older)
    if axis is None:
        return
    if type(axis) is not int:
        axis = call.axis = integer(axis, call.asked)
    if axis < 0:
        rule = f"incompatible function arguments: cluster_axis={axis} is negative"
        fail(call.asked, rule, "cluster_axis=0 or 1", TypeError)
    if axis >= len(mesh._shape):
        rule = f"Invalid cluster axis {axis}. Must be 0 or 1"
        words = {"all_gather": f"index out of range: {rule}"}
        words["mesh_partition"] = f"Only support cluster axis of None, 0 or 1, got {axis}"
        cure = "cluster_axis=0 for columns of the mesh, 1 for rows"
        fail(call.asked, words.get(call.name, rule), cure)


def _older(call: _Call, older: dict[str, Any]) -> None:
    """The older form with mesh_device= is taken outside of the strict dialect."""
    if set(older) != {"mesh_device"}:
        rule = f"incompatible function arguments: {', '.join(sorted(older))}"
        fail(call.name, rule, f"help(ttnn.{call.name})", TypeError)
    given = older["mesh_device"]
    cure = f"ttnn.{call.name} without mesh_device: the tensor knows its mesh"
    if not older_form(f"{call.name}(..., mesh_device=)", cure):
        fail(call.asked, "incompatible function arguments: mesh_device", cure, TypeError)
    if given is not None and given is not call.mesh:
        fail(call.asked, f"mesh_device is {given!r}, but the tensor lies on {call.mesh!r}")


def _fabric(call: _Call) -> None:
    """Links forward only with a fabric."""
    cure = "ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D) before the mesh is opened"
    if call.mesh.fabric is FabricConfig.DISABLED:
        if not older_form(f"{call.name} without set_fabric_config", cure):
            fail(call.name, "Trying to get un-initialized fabric context", cure)


def _covers_mesh(call: _Call) -> None:
    tensor = call.tensor
    if tensor.grid is not call.mesh.grid:
        rule = (
            f"the tensor covers {len(tensor.grid.covers)} of {call.mesh.get_num_devices()} chips,"
        )
        cure = "a mapper that covers the mesh, or a submesh"
        fail(call.asked, f"{rule} but every chip of the mesh takes part in a collective", cure)


def _neighbours(call: _Call) -> None:
    """Along an axis of one chip there is nobody to send to.

    The guide (section 9) means the other.
    """
    shape, axis = call.mesh._shape, call.axis
    alone = COLLECTIVES[call.name].alone
    if math.prod(shape) == 1:
        if is_strict() or call.name == "all_gather":
            fail(f"{call.name} on {call.mesh!r}", alone, "a mesh of several devices")
    elif axis is not None and shape[axis] == 1:
        form, cure = f"{call.name}(cluster_axis={axis})", f"cluster_axis={1 - axis}"
        if not older_form(f"{form} along an axis of one chip", cure):
            fail(f"{form} on {call.mesh!r}", alone, cure)
        call.axis = 1 - axis


def _one_line(call: _Call) -> None:
    """Without a cluster axis the mesh must be a line; the collective runs along it."""
    if call.axis is not None:
        return
    shape = call.mesh._shape
    if min(shape) > 1:
        rule = f"{call.name} op is only supported for a linear tensor topology shape"
        fail(call.asked, rule, "cluster_axis=0 or 1")
    call.axes = [shape.index(max(shape))]


def _axis_is_named(call: _Call) -> None:
    if call.axis is None and min(call.mesh._shape) > 1:
        cure = "cluster_axis=0 or 1, one after the other"
        if not older_form(f"{call.name} on a 2-D mesh without cluster_axis", cure):
            rule = "1D fabric on a 2D mesh_device requires cluster_axis to be set"
            fail(call.asked, rule, "cluster_axis=0 or cluster_axis=1")


def _dim(rule: str) -> Callable[[_Call], None]:
    """The dimension is one of the shard's."""

    def check(call: _Call) -> None:
        dim, rank = call.dim, call.rank
        if type(dim) is not int:
            dim = integer(dim, call.asked)
        if not -rank <= dim < rank:
            words = {"dim": dim, "rank": rank, "least": -max(rank, 4), "last": rank - 1}
            fail(call.asked, rule.format(**words), f"a dim from {-rank} to {rank - 1}")
        call.dim = dim % rank

    return check


def _divides(rule: str) -> Callable[[_Call], None]:
    """The chips divide the dimension."""

    def check(call: _Call) -> None:
        shape = call.mesh._shape
        call.axes = list(range(len(shape))) if call.axis is None else [call.axis]
        size, tensor = call.tensor.shard_shape[call.dim], call.tensor
        if size % call.chips:
            text = rule.format(dim=call.dim, size=size, chips=call.chips, shape=tensor.shape)
            fail(call.asked, text, "another dim, or ttnn.pad first")

    return check


def _at_least_two_dims(call: _Call) -> None:
    if call.rank < 2:
        rule = "reduce_scatter currently supports rank 2 tensors at minimum"
        fail(call.asked, rule, "ttnn.unsqueeze first")


def _some_links(call: _Call) -> None:
    if call.num_links is not None and integer(call.num_links, call.asked) <= 0:
        links = call.num_links
        rule = f"num_links must be greater than 0, got {links}"
        other = f"Error, num_links should be more than 0 but has {links}"
        fail(call.asked, other if call.name == "all_reduce" else rule, "num_links=1")


def _enough_links(call: _Call) -> None:
    _some_links(call)
    have, ids = call.mesh.system.links_per_pair, call.mesh._ids
    if call.num_links is not None and call.num_links > have:
        rule = (
            f"Requested link index {have} is out of bounds. {have} ethernet channels available to"
        )
        rule += f" forward b/w src and dst {ids[0]} and {ids[min(1, len(ids) - 1)]}"
        fail(call.asked, rule, f"num_links of at most {have}")


def _result_fits(call: _Call) -> None:
    shape = list(call.tensor.shard_shape)
    axes = range(len(call.mesh._shape)) if call.axis is None else [call.axis]
    shape[call.dim] *= math.prod(call.mesh._shape[a] for a in axes)
    would_fit(call.tensor, tuple(shape))


def _whole_tiles(call: _Call) -> None:
    tensor, dim = call.tensor, call.dim
    piece = tensor.shard_shape[dim] // call.chips
    if call.chips > 1 and tensor.layout is Layout.TILE and dim >= call.rank - 2 and piece % 32:
        side = "width" if dim == call.rank - 1 else "height"
        rule = f"Can only slice tilized tensor with {side} begin index aligned to tiles"
        fail(call.asked, f"{rule}: pieces of {piece}", "a row-major tensor, or pieces of 32")


def _ends_inside(call: _Call) -> None:
    for what, coordinate in zip(("sender", "receiver"), call.ends, strict=False):
        if not call.mesh._inside(tuple(coordinate)):
            rule = f"Mesh device must contain {what} coordinate device {coordinate!r}"
            fail(call.asked, rule, f"a coordinate inside {call.mesh.shape!r}")


def _one_hop(call: _Call) -> None:
    sender, receiver = call.ends
    if sum(a != b for a, b in zip(sender, receiver, strict=True)) > 1:
        rule = f"Routing coordinates {sender!r} and {receiver!r} invalid for 1D fabric"
        fail(call.asked, rule, "two hops: along the row, then along the column")


# ---------------------------------------------------------------- the collectives
def _cleared(call: _Call) -> Any:
    """The axis does not shard any more."""
    return rules.gather(call.tensor.topology, call.mesh.grid, call.rank, call.axis, None)


ALONE = "{} op will only work for num_devices > 1, got 1"
COLLECTIVES = {
    "all_gather": _Collective(
        (_fabric, _dim("Invalid gather dim {dim} for {rank}D input tensor"), _axis_is_named)
        + (_neighbours, _result_fits),
        lambda way, call: way.gathered(call.tensor, call.axes, call.dim),
        lambda c: rules.gather(c.tensor.topology, c.mesh.grid, c.rank, c.axis, c.dim),
        "all_gather",
        alone="all_gather collective will only work for num_devices > 1, got 1",
    ),
    "reduce_scatter": _Collective(
        (
            _fabric,
            _dim(
                "Index is out of bounds for the rank, should be between 0 and {last} however is {dim}"
            ),
            _at_least_two_dims,
            _enough_links,
            _neighbours,
            _divides("Dimension {dim} must be divisible by ring_size: {size} over {chips} chips"),
        ),
        lambda way, call: way.reduced(call.tensor, call.axes, call.dim),
        lambda c: rules.scatter(c.tensor.topology, c.mesh.grid, c.rank, c.axis, c.dim),
        "reduce_scatter",
        sums=True,
        alone=NO_NEIGHBOUR,
    ),
    "all_reduce": _Collective(
        (_fabric, _some_links, _neighbours, lambda call: quirks.check_summed(call.tensor, call)),
        lambda way, call: way.summed(call.tensor, call.axes),
        _cleared,
        "all_reduce",
        sums=True,
        alone=NO_NEIGHBOUR,
    ),
    "all_broadcast": _Collective(
        (_fabric, _one_line, _neighbours),
        lambda way, call: way.each(call.tensor, call.axes[0]),
        _cleared,
        "all_gather",  # the same transfers; the shards stay apart
        alone=ALONE.format("all_broadcast"),
    ),
    "broadcast": _Collective(
        (_one_line, _ends_inside, _neighbours, _fabric),
        lambda way, call: way.one_of(call.tensor, call.axes[0], call.ends[0][call.axes[0]]),
        _cleared,
        "broadcast",
        alone=ALONE.format("broadcast"),
    ),
    "mesh_partition": _Collective(
        (
            _dim(
                "dim must be less than the rank of the input tensor: {dim}, rank {rank}; ShapeBase[]"
                " index out of range. {dim} not in [{least}, {rank})"
            ),
            _divides("input shape {shape!r} must be divisible by cluster axis size {chips}"),
            _whole_tiles,
        ),
        lambda way, call: way.partitioned(call.tensor, call.axes, call.dim),
        lambda c: rules.partition(c.tensor.topology, c.mesh.grid, c.rank, c.axis, c.dim),
        "",
        along_axes=False,
    ),
    "point_to_point": _Collective(
        (_ends_inside, _fabric, _one_hop),
        lambda way, call: way.sent(call.tensor, call.output or call.tensor, *map(tuple, call.ends)),
        lambda call: call.tensor.topology,
        "point_to_point",
        along_axes=False,
    ),
}

TUNING = "memory_config subdevice_id sub_core_grids chunks_per_sync num_workers_per_link"
TUNING += " num_buffers_per_channel use_l1_small_for_semaphores"


@operation("all_gather", "collective", hints=TUNING)
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
    call = _Call(name, input_tensor, cluster_axis, dim, (), topology, num_links, output_tensor)
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
    call = _Call(name, input_tensor, cluster_axis, dim, (), topology, num_links, output_tensor)
    return _run(call, older)  # type: ignore[no-any-return]


@operation("all_reduce", "collective", hints="memory_config subdevice_id", quiet=False)
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
    call = _Call("all_reduce", input_tensor, cluster_axis, None, (), topology, num_links)
    return _run(call, older)  # type: ignore[no-any-return]


@operation("all_broadcast", "collective", hints=TUNING)
def all_broadcast(
    input_tensor: Tensor,
    *,
    cluster_axis: int | None = None,
    num_links: int | None = 1,
    topology: Topology | None = Topology.Linear,
    **older: Any,
) -> list[Tensor]:
    """Return the shards of all chips along `cluster_axis`, each as a tensor that every chip has."""
    call = _Call("all_broadcast", input_tensor, cluster_axis, None, (), topology, num_links)
    return _run(call, older)  # type: ignore[no-any-return]


@operation("broadcast", "collective", hints=TUNING)
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
    call = _Call("broadcast", input_tensor, cluster_axis, None, ends, topology, num_links)
    return _run(call, older)  # type: ignore[no-any-return]


@operation("mesh_partition", "arrange", moves="part", hints="memory_config")
def mesh_partition(input_tensor: Tensor, dim: int, cluster_axis: int | None = None) -> Tensor:
    """Keep on each chip its part of `dim`, by its place along `cluster_axis`; nothing is sent.

    Raises:
        TTKitError: the chips do not divide the dimension, or cut it inside a tile.
    """
    call = _Call("mesh_partition", input_tensor, cluster_axis, dim)
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
    call = _Call("point_to_point", input_tensor, None, None, ends, topology, None, output_tensor)
    return _run(call, older)  # type: ignore[no-any-return]
