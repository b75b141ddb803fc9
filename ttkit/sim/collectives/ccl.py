"""Compute collectives between chips, each in one operation on the leading axes.

Each collective is a spec for `run`: checks in ttnn's order, movement of values, topology of the
result, and plan of a card's transfers. A new collective is one spec and one function.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ttkit.errors import fail, is_strict, older_form
from ttkit.plans import Plan
from ttkit.sim.arguments import describe, keywords_of, refuse
from ttkit.sim.collectives import exchanged
from ttkit.sim.ops import axis_of, moved, on_mesh, operation, result, written
from ttkit.sim.ranks import mpi
from ttkit.sim.tape import CollectiveRecord, running
from ttkit.sim.tensor import FabricConfig, MeshCoordinate, TensorTopology, Topology
from ttkit.sim.tensor.dtypes import bytes_of
from ttkit.sim.tensor.grid import after_collective, after_scatter, is_inside, unchanged
from ttkit.sim.tensor.tensor import Tensor, check_room

# With these topologies and fabrics, a line of chips is a ring where cables close it.
CLOSED = {Topology.Ring, Topology.Torus, FabricConfig.FABRIC_1D_RING}
CLOSED |= {config for config in FabricConfig if "TORUS" in config.name}


@dataclass(slots=True, kw_only=True)
class Path:
    """Keywords of most collectives: which chips exchange values, and how they send.

    Args:
        cluster_axis: 0 joins the chips of each column, 1 those of each row. Without it all chips of
            the mesh take part. A broadcast then needs the chips to be one line. So does all_gather
            in ttnn, unless the fabric is 2-D.
        num_links: how many links each pair of chips uses; by default all, for all_broadcast one.
        topology: a line or a ring of chips; by default the fabric's, for broadcasts a line.
    """

    cluster_axis: int | None = None
    num_links: int | None = None
    topology: Topology | None = None


@dataclass(slots=True)
class Call(Path):
    """One call of a collective, while it is checked and carried out."""

    name: str
    tensor: Tensor
    dim: Any = None
    ends: tuple = ()  # The ends are the sender and, if there is one, the receiver.
    mesh: Any = None
    # The checks set the mesh axes that the collective runs along.
    axes: list[int] = field(default_factory=list)
    others: tuple = ()  # These are arguments that only one collective has.

    @property
    def asked(self) -> str:
        """The call as text, for messages and for the comparison between ranks."""
        shown = list(map(describe.show, (self.tensor, *self.ends)))
        shown += [] if self.dim is None else [f"dim={self.dim}"]
        shown += [] if self.ends else [f"cluster_axis={self.cluster_axis}"]
        return f"{self.name}({', '.join(shown)})"

    @property
    def rank(self) -> int:
        """How many dimensions a shard has."""
        return len(self.tensor.shard_shape)

    @property
    def chips(self) -> int:
        """How many chips exchange values with each other."""
        return math.prod(self.mesh._shape[axis] for axis in self.axes)


Check = Callable[[Call], None]


# ---------------------------------------------------------------- checks, with ttnn's phrases
# A check raises an error, or it sets fields of the call, such as the axes or the dimension.
# If a tensor covers a rectangle of the mesh, these collectives run there; others need all chips.
AMONG_COVERED = ("all_broadcast", "broadcast", "all_reduce")


def tensor_and_axis(call: Call) -> None:
    """Check that the tensor is on a mesh that has this cluster axis; set the mesh and the axes."""
    tensor, axis = call.tensor, call.cluster_axis
    if tensor.mesh is None:
        rule = f"Mesh device is required for {call.name} operation, which takes device tensors"
        refuse(rule, "ttnn.to_device(tensor, mesh)")
    call.mesh = mesh = on_mesh(tensor)
    if axis is None:
        call.axes = list(range(len(mesh._shape)))
        return
    call.axes = [axis]
    if not 0 <= axis < len(mesh._shape):
        rule = f"Invalid cluster axis {axis}: index out of range. Only support cluster axis of None"
        refuse(f"{rule}, 0 or 1", "cluster_axis=0 for columns of the mesh, 1 for rows")


def fabric_is_on(call: Call) -> None:
    """Check that the mesh has a fabric: without a fabric, links do not forward data."""
    if call.mesh.fabric is FabricConfig.DISABLED and not call.mesh.is_reference:
        cure = "ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D) before opening the mesh"
        if not older_form(f"{call.name} without set_fabric_config", cure):
            fail(call.name, "Trying to get un-initialized fabric context", cure)


def covers_mesh(call: Call) -> None:
    grid = call.tensor.grid
    rectangle = grid.local and grid.lead == len(call.mesh._shape)
    if grid is not call.mesh.grid and not (rectangle and call.name in AMONG_COVERED):
        rule = f"the tensor covers {len(grid.covers)} of {call.mesh.get_num_devices()} chips"
        cure = "a mapper that covers the mesh, or a submesh"
        refuse(f"{rule}, but every chip of the mesh takes part in a collective", cure)


def neighbours(call: Call) -> None:
    """Check that chips have neighbours along the axis.

    In the older form of the guide (section 9), an axis of one chip stands for the other axis.
    """
    shape, axis = call.mesh._shape, call.cluster_axis
    alone = f"{call.name} will only work for num_devices > 1, got 1: there is no neighbour"
    if math.prod(shape) == 1:
        if not call.mesh.is_reference and (is_strict() or call.name == "all_gather"):
            refuse(alone, "a mesh of several devices")
    elif axis is not None and shape[axis] == 1:
        form, cure = f"{call.name}(cluster_axis={axis})", f"cluster_axis={1 - axis}"
        if not older_form(f"{form} along an axis of one chip", cure):
            fail(f"{form} on {call.mesh!r}", alone, cure)
        call.cluster_axis = 1 - axis
        call.axes = [1 - axis]


def axis_is_named(call: Call) -> None:
    mesh = call.mesh
    if call.cluster_axis is None and min(mesh._shape) > 1 and "2D" not in mesh.fabric.name:
        cure = "cluster_axis=0 or 1, one after the other"
        if not older_form(f"{call.name} on a 2-D mesh without cluster_axis", cure):
            rule = "1D fabric on a 2D mesh_device requires cluster_axis to be set"
            fail(call.asked, rule, "cluster_axis=0 or cluster_axis=1")


def dim_in_range(call: Call) -> None:
    """Check that the shard has this dimension, and count the dimension from 0."""
    call.dim = axis_of(call.tensor, call.dim)


def divides(rule: str) -> Check:
    """Return a check that the number of chips divides the dimension."""

    def check(call: Call) -> None:
        size, shape = call.tensor.shard_shape[call.dim], call.tensor.shape
        if size % call.chips:
            text = rule.format(dim=call.dim, size=size, chips=call.chips, shape=shape)
            refuse(text, "another dim, or ttnn.pad first")

    return check


def scatters(call: Call) -> None:
    """Check that a shard has two dimensions or more, and that a pair has `num_links` links."""
    if call.rank < 2:
        rule = "reduce_scatter currently supports rank 2 tensors at minimum"
        refuse(rule, "ttnn.unsqueeze first")
    have = call.mesh.system.links_per_pair
    if call.num_links is not None and call.num_links > have:
        rule = f"Requested link index {have} is out of bounds. {have} ethernet channels available"
        refuse(f"{rule} to forward b/w src and dst", f"num_links of at most {have}")


def result_fits(call: Call) -> None:
    shape = list(call.tensor.shard_shape)
    shape[call.dim] *= call.chips
    check_room(call.tensor, tuple(shape))


def one_line(call: Call) -> None:
    """If there is no cluster axis, check that the chips are one line, and set its axis."""
    if call.cluster_axis is not None:
        return
    grid = call.tensor.grid
    # If ranks share the mesh, the grid's shape is that of this rank's chips.
    shape = grid.shape if grid.local else call.mesh._shape
    if min(shape) > 1:
        rule = f"{call.name} op is only supported for a linear tensor topology shape"
        refuse(rule, "cluster_axis=0 or 1")
    call.axes = [shape.index(max(shape))]


def ends_fit(call: Call) -> None:
    """Check that the ends are chips of the mesh, and that two ends share a row or a column."""
    for what, coordinate in zip(("sender", "receiver"), call.ends):
        if not is_inside(tuple(coordinate), call.mesh._shape):
            rule = f"Mesh device must contain {what} coordinate device {coordinate!r}"
            refuse(rule, f"a coordinate inside {call.mesh.shape!r}")
    first, last = call.ends[0], call.ends[-1]
    if sum(a != b for a, b in zip(first, last)) > 1:
        rule = f"Routing coordinates {first!r} and {last!r} invalid for 1D fabric"
        refuse(rule, "two hops: along the row, then along the column")


# ---------------------------------------------------------------- specs
def _path(call: Call) -> dict[str, Any]:
    """Return the arguments of the plan's builder in `ttkit.plans` that say how chips send."""
    algorithm = None if (call.topology or call.mesh.fabric) in CLOSED else "line"
    return {"axis": call.cluster_axis, "algorithm": algorithm, "links": call.num_links}


def _path_between(call: Call) -> dict[str, Any]:
    source, destination = (call.mesh.id_at(tuple(end)) for end in call.ends)
    return {"source": source, "destination": destination, "links": call.num_links}


class Collective(NamedTuple):
    """The spec of a collective.

    Args:
        checks: the checks that follow `tensor_and_axis`, in ttnn's order.
        moves: a function that returns the result's values.
        label: a function that returns the result's topology from the operand's.
        plan: the name of the plan's builder in `ttkit.plans`; "" where nothing is sent.
        path: a function that returns the other arguments of the builder.
        sums: whether the shards are added, so that the result must be rounded.
    """

    checks: tuple[Check, ...]
    moves: Callable[[Call], Any]
    label: Callable[..., TensorTopology]
    plan: str
    path: Callable[[Call], dict[str, Any]] = _path
    sums: bool = False


def along(call: Call, into: int | None = None, cut: int | None = None) -> np.ndarray:
    """Exchange values along the call's mesh axes, in this process or between ranks."""
    tensor, sums = call.tensor, COLLECTIVES[call.name].sums
    if tensor.grid.local:
        return exchanged(tensor.array, tensor.grid.shape, call.axes, into, cut, sums=sums)
    return mpi.move(tensor, call.axes, into, cut, sums)


def each(call: Call) -> list[np.ndarray]:
    """Return the shards along the call's mesh axes in row-major order; every chip gets each one."""
    whole, lead = along(call, 0), call.tensor.grid.lead
    return np.split(whole, whole.shape[lead] // call.tensor.shard_shape[0], lead)


PARTS = "Dimension {dim} must be divisible by ring_size: {size} over {chips} chips"


def _sent(call: Call):
    """Return the values of the output (or the input), with the sender's shard at the receiver."""
    tensor, (sender, receiver) = call.tensor, map(tuple, call.ends)
    grid, shard = tensor.grid, tensor.shard_shape
    values, chips = (tensor.full_array(), grid) if grid.local else mpi.collected(tensor)
    every = np.array((call.others[0] or tensor).full_array(), order="C")
    if receiver in grid.coords:
        own = every.reshape((grid.size, *shard))
        shards = values.reshape((chips.size, *shard))
        own[grid.coords.index(receiver)] = shards[chips.coords.index(sender)]
    return every


COLLECTIVES = {
    "all_gather": Collective(
        (fabric_is_on, dim_in_range, axis_is_named, neighbours, result_fits),
        lambda call: along(call, call.dim),
        after_collective,
        "all_gather",
    ),
    "reduce_scatter": Collective(
        (fabric_is_on, dim_in_range, scatters, neighbours, divides(PARTS)),
        lambda call: along(call, cut=call.dim),
        after_scatter,
        "reduce_scatter",
        sums=True,
    ),
    "all_reduce": Collective(
        (fabric_is_on, neighbours), along, after_collective, "all_reduce", sums=True
    ),
    "all_broadcast": Collective(
        (fabric_is_on, neighbours),
        each,
        after_collective,
        "all_gather",  # The transfers are the same as in all_gather, but no shards are joined.
    ),
    "broadcast": Collective(
        (one_line, ends_fit, neighbours, fabric_is_on),
        lambda call: each(call)[
            call.ends[0][call.axes[0]] - call.tensor.grid.covers[0][call.axes[0]]
        ],
        after_collective,
        "broadcast",
        lambda call: {"root": call.ends[0][call.axes[0]], **_path(call)},
    ),
    "point_to_point": Collective(
        (ends_fit, fabric_is_on), _sent, unchanged, "point_to_point", _path_between
    ),
}


def run(call: Call):
    """Check a call, move its values, report its plan; return a tensor or a list of tensors."""
    spec = COLLECTIVES[call.name]
    tensor_and_axis(call)
    for check in spec.checks:
        check(call)
    covers_mesh(call)
    tensor, grid = call.tensor, call.tensor.grid
    if spec.plan and not grid.local:
        mpi.compare(call.asked, mpi.members(grid))
    values = spec.moves(call)
    if spec.plan:
        report(spec.plan, call.mesh, bytes_of(tensor.padded, tensor.dtype), **spec.path(call))
    at = call.mesh.grid, call.rank, call.cluster_axis, call.dim
    topology = spec.label(tensor.topology, *at)
    if isinstance(values, list):
        return [moved(tensor, part, topology=topology) for part in values]
    if not spec.sums:
        return moved(tensor, values, topology=topology)
    owned = values.flags.owndata or (grid.local and not np.may_share_memory(values, tensor.array))
    return result(tensor, values, topology=topology, owned=owned)


# ---------------------------------------------------------------- what has run
_last: list[CollectiveRecord] = []  # This has the collective that ran last, if there is one.


def report(collective: str, mesh, shard_bytes: int, **how) -> None:
    """Record in the latest event of each running tape that a collective has run.

    Args:
        collective, how: the name of a plan's builder in `ttkit.plans`, and its other arguments.
    """
    record = CollectiveRecord(collective, mesh, shard_bytes, tuple(how.items()))
    for tape in running:
        tape.events[-1].sent.append(record)
    if mesh.has_values:
        _last[:] = [record]


def last_plan() -> Plan:
    """Return the plan of the collective that ran last on the simulator.

    It is a ring where the call or the fabric asks for one and cables close it, else a line.

    Raises:
        TTKitError: no collective has run yet.

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
    if not _last:
        rule = "no collective has run yet; on a card they are not recorded"
        fail("ttkit.last_plan()", rule, "ttnn.all_gather(...) on the simulator first")
    return _last[0].plan


# ---------------------------------------------------------------- the collectives
@operation("all_gather", "collective")
@keywords_of(Path)
def all_gather(input_tensor: Tensor, dim: int, **path: Any) -> Tensor:
    """Return on every chip the shards of all chips along `cluster_axis`, joined along `dim`.

    Args:
        dim: the shard's dimension to join along; the shards are in the order of the mesh axis.
        path: the keywords of `Path`.

    Raises:
        TTKitError: the fabric is off, `dim` or axis does not exist, or the tensor is on the host.

    Example: with dim=1 and cluster_axis=1, [32, 32] on each chip of a 2x4 mesh gives [32, 128].
    """
    return run(Call("all_gather", input_tensor, dim, **path))


@operation("reduce_scatter", "collective")
@keywords_of(Path)
def reduce_scatter(input_tensor: Tensor, dim: int, **path: Any) -> Tensor:
    """Add the shards of all chips along `cluster_axis`; each chip keeps its part of `dim`.

    Raises:
        TTKitError: the fabric is off, `dim` or axis does not exist, or the number of chips does
            not divide the dimension.

    Example: with dim=1 and cluster_axis=1, [32, 128] on each chip of a 2x4 mesh gives [32, 32].
    """
    return run(Call("reduce_scatter", input_tensor, dim, **path))


@operation("all_reduce", "collective")
@keywords_of(Path)
def all_reduce(input_tensor: Tensor, **path: Any) -> Tensor:
    """Add the shards of all chips along `cluster_axis`, or of the mesh; every chip gets the sum.

    Raises:
        TTKitError: the fabric is off, the axis does not exist, or the tensor is on the host.
    """
    return run(Call("all_reduce", input_tensor, **path))


@operation("all_broadcast", "collective")
@keywords_of(Path)
def all_broadcast(input_tensor: Tensor, **path: Any) -> list[Tensor]:
    """Return the shards of all chips along `cluster_axis`, or of the mesh, in row-major order.

    Each shard becomes a tensor that is the same on every chip.
    """
    usual: Any = {"num_links": 1, "topology": Topology.Linear}
    return run(Call("all_broadcast", input_tensor, **usual | path))


@operation("broadcast", "collective")
@keywords_of(Path)
def broadcast(input_tensor: Tensor, sender_coord: MeshCoordinate, **path: Any) -> Tensor:
    """Return on every chip the shard of the chip at the sender's place along `cluster_axis`."""
    usual = {"topology": Topology.Linear}
    return run(Call("broadcast", input_tensor, ends=(sender_coord,), **usual | path))


@operation("point_to_point", "collective")
def point_to_point(
    input_tensor: Tensor,
    sender_coord: MeshCoordinate,
    receiver_coord: MeshCoordinate,
    *,
    topology: Topology = Topology.Linear,
    output_tensor: Tensor | None = None,
) -> Tensor:
    """Return the input, or `output_tensor` if given, with the sender's shard at the receiver.

    Raises:
        TTKitError: a coordinate is outside the mesh, or the chips share neither a row nor a column.
    """
    ends, others = (sender_coord, receiver_coord), (output_tensor,)
    call = Call("point_to_point", input_tensor, ends=ends, others=others, topology=topology)
    return run(call) if output_tensor is None else written(run(call), output_tensor)
