"""Checks of collectives before anything moves, with ttnn's phrases; each check is one function.

A check takes the call, and raises, or sets something of it: the axis, the dimension.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ttkit.dialect import is_strict, older_form
from ttkit.errors import fail
from ttkit.sim.arguments import describe
from ttkit.sim.enums import FabricConfig, Layout, Topology
from ttkit.sim.grid import is_inside
from ttkit.sim.memory import would_fit
from ttkit.sim.tensor import Tensor
from ttkit.sim.types import integer

NO_NEIGHBOUR = "DEBUG: forward_coord or backward_coord is null, there is no neighbour"
# ttnn's messages about an axis of one chip.
ALONE = dict.fromkeys(("all_reduce", "reduce_scatter"), NO_NEIGHBOUR)
ALONE |= {
    name: f"{name} {what} will only work for num_devices > 1, got 1"
    for name, what in (("all_broadcast", "op"), ("broadcast", "op"), ("all_gather", "collective"))
}
# These run among the chips that the tensor covers; the others among all of the mesh.
AMONG_COVERED = ("all_broadcast", "broadcast", "all_reduce", "all_reduce_async")


@dataclass(slots=True)
class Call:
    """One call of a collective, while it is checked and carried out."""

    name: str
    tensor: Tensor
    cluster_axis: int | None = None
    dim: Any = None
    ends: tuple[Any, ...] = ()  # sender, receiver
    topology: Topology | None = None
    num_links: Any = None
    output: Tensor | None = None
    mesh: Any = None
    axes: list[int] = field(default_factory=list)  # the mesh axes that it runs along, in the end
    others: tuple[Any, ...] = ()  # what only this collective has
    nbytes: int = 0  # that a chip sends, where it is not its whole shard

    @property
    def asked(self) -> describe:
        """The call for a message."""
        shown = {} if self.dim is None else {"dim": self.dim}
        shown |= {} if self.ends else {"cluster_axis": self.cluster_axis}
        numbers = (n for n in self.others if type(n) is int)
        return describe(self.name, (self.tensor, *self.ends, *numbers), shown)

    @property
    def rank(self) -> int:
        """How many dimensions a shard has."""
        return len(self.tensor.shard_shape)

    @property
    def chips(self) -> int:
        """How many chips take part with each other."""
        return math.prod(self.mesh._shape[axis] for axis in self.axes)


Check = Callable[[Call], None]


def check(call: Call, checks: Sequence[Check], older: dict[str, Any]) -> None:
    """Make the checks of all collectives, with its own ones between them."""
    place(call, older)
    for each in checks:
        each(call)
    covers_mesh(call)


def place(call: Call, older: dict[str, Any]) -> None:
    """The tensor is on a mesh, and the cluster axis is one of its axes."""
    tensor, axis = call.tensor, call.cluster_axis
    if tensor.mesh is None or tensor._array is None:
        rule = f"Mesh device is required for {call.name} operation, which takes device tensors as"
        place = "the tensor is on the host"
        place = place if tensor.mesh is None else "Input Tensor A is not allocated"
        fail(call.asked, f"{rule} inputs: {place}", "ttnn.to_device(tensor, mesh)")
    call.mesh = mesh = tensor.mesh
    if not mesh.is_open:
        mesh.check_open(call.asked)
    if older:  # the form with mesh_device= is taken outside of the strict dialect
        cure = f"ttnn.{call.name} without mesh_device: the tensor has its mesh"
        form = f"{call.name}(..., mesh_device=)"
        if set(older) != {"mesh_device"} or not older_form(form, cure):
            rule = f"incompatible function arguments: {', '.join(sorted(older))}"
            fail(call.asked, rule, f"help(ttnn.{call.name})", TypeError)
    if axis is None:
        call.axes = list(range(len(mesh._shape)))
        return
    if type(axis) is not int:
        axis = call.cluster_axis = integer(axis, call.asked)
    call.axes = [axis]
    if axis < 0:
        rule = f"incompatible function arguments: cluster_axis={axis} is negative"
        fail(call.asked, rule, "cluster_axis=0 or 1", TypeError)
    if axis >= len(mesh._shape):
        rule = f"Invalid cluster axis {axis}. Must be 0 or 1"
        words = {"all_gather": f"ShapeBase[] index out of range. {axis} not in [-4, 2)"}
        words["mesh_partition"] = f"Only support cluster axis of None, 0 or 1, got {axis}"
        words["all_gather_async"] = (
            f"{rule}: cluster axis {axis} is out of range for mesh shape rank 2"
        )
        cure = "cluster_axis=0 for columns of the mesh, 1 for rows"
        fail(call.asked, words.get(call.name, rule), cure)


def fabric(call: Call) -> None:
    """Links forward only with a fabric."""
    if call.mesh.fabric is FabricConfig.DISABLED:
        cure = "ttnn.set_fabric_config(ttnn.FabricConfig.FABRIC_1D) before opening the mesh"
        if not older_form(f"{call.name} without set_fabric_config", cure):
            fail(call.name, "Trying to get un-initialized fabric context", cure)


def covers_mesh(call: Call) -> None:
    grid = call.tensor.grid
    rectangle = grid.local and len(grid.shape) == len(call.mesh._shape)
    if grid is not call.mesh.grid and not (rectangle and call.name in AMONG_COVERED):
        rule = f"the tensor covers {len(grid.covers)} of {call.mesh.get_num_devices()} chips"
        cure = "a mapper that covers the mesh, or a submesh"
        fail(call.asked, f"{rule}, but every chip of the mesh takes part in a collective", cure)


def neighbours(call: Call) -> None:
    """An axis of one chip has no neighbours; the guide (section 9) means the other axis."""
    shape, axis = call.mesh._shape, call.cluster_axis
    alone = ALONE.get(call.name, NO_NEIGHBOUR)
    if math.prod(shape) == 1:
        if is_strict() or call.name == "all_gather":
            fail(f"{call.name} on {call.mesh!r}", alone, "a mesh of several devices")
    elif axis is not None and shape[axis] == 1:
        form, cure = f"{call.name}(cluster_axis={axis})", f"cluster_axis={1 - axis}"
        if not older_form(f"{form} along an axis of one chip", cure):
            fail(f"{form} on {call.mesh!r}", alone, cure)
        call.cluster_axis = 1 - axis
        call.axes = [1 - axis]


def one_line(call: Call) -> None:
    """Without a cluster axis the mesh must be a line; the collective runs along it."""
    if call.cluster_axis is not None:
        return
    shape = call.mesh._shape
    if min(shape) > 1:
        rule = f"{call.name} op is only supported for a linear tensor topology shape"
        fail(call.asked, rule, "cluster_axis=0 or 1")
    call.axes = [shape.index(max(shape))]


def axis_is_named(call: Call) -> None:
    if call.cluster_axis is None and min(call.mesh._shape) > 1:
        cure = "cluster_axis=0 or 1, one after the other"
        if not older_form(f"{call.name} on a 2-D mesh without cluster_axis", cure):
            rule = "1D fabric on a 2D mesh_device requires cluster_axis to be set"
            fail(call.asked, rule, "cluster_axis=0 or cluster_axis=1")


def dim(rule: str) -> Callable[[Call], None]:
    """The dimension is one of the shard's."""

    def check(call: Call) -> None:
        dim, rank = call.dim, call.rank
        if type(dim) is not int:
            dim = integer(dim, call.asked)
        if not -rank <= dim < rank:
            words = {"dim": dim, "rank": rank, "least": -max(rank, 4), "last": rank - 1}
            fail(call.asked, rule.format(**words), f"a dim from {-rank} to {rank - 1}")
        call.dim = dim % rank

    return check


def divides(rule: str) -> Callable[[Call], None]:
    """The chips divide the dimension."""

    def check(call: Call) -> None:
        size, tensor = call.tensor.shard_shape[call.dim], call.tensor
        if size % call.chips:
            text = rule.format(dim=call.dim, size=size, chips=call.chips, shape=tensor.shape)
            fail(call.asked, text, "another dim, or ttnn.pad first")

    return check


def at_least_two_dims(call: Call) -> None:
    if call.rank < 2:
        rule = "reduce_scatter currently supports rank 2 tensors at minimum"
        fail(call.asked, rule, "ttnn.unsqueeze first")


def some_links(call: Call) -> None:
    if call.num_links is not None and integer(call.num_links, call.asked) <= 0:
        links = call.num_links
        rule = f"num_links must be greater than 0, got {links}"
        other = f"Error, num_links should be more than 0 but has {links}"
        fail(call.asked, other if call.name.startswith("all_") else rule, "num_links=1")


def enough_links(call: Call) -> None:
    some_links(call)
    have, ids = call.mesh.system.links_per_pair, call.mesh._ids
    if call.num_links is not None and call.num_links > have:
        rule = f"Requested link index {have} is out of bounds. {have} ethernet channels available"
        rule += f" to forward b/w src and dst {ids[0]} and {ids[min(1, len(ids) - 1)]}"
        fail(call.asked, rule, f"num_links of at most {have}")


def result_fits(call: Call) -> None:
    shape = list(call.tensor.shard_shape)
    shape[call.dim] *= call.chips
    would_fit(call.tensor, tuple(shape))


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
