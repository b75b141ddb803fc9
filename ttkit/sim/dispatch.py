"""The one table of operations, and the one point that every call goes through.

Watchers (trace capture, the call tape, later the profiler) see each outermost call with its arguments and its result;
what an operation calls to do its work is its own business.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from ttkit.errors import fail
from ttkit.sim import dtypes
from ttkit.sim.arguments import checked, describe, told
from ttkit.sim.enums import DataType, Layout, MemoryConfig
from ttkit.sim.mesh import Grid, MeshDevice
from ttkit.sim.tensor import Tensor, new_tensor
from ttkit.sim.types import MeshShape, Placement, PlacementReplicate, TensorTopology

F = TypeVar("F", bound=Callable[..., Any])
OPERATIONS: dict[str, Callable[..., Any]] = {}


class Watcher(Protocol):
    """Something that wants to see calls."""

    def before(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Called with the arguments, before the operation; may raise to refuse it."""

    def after(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Called with what the operation gave."""


watchers: list[Watcher] = []
_inside = [False]


def operation(name: str, *, computes: bool = True) -> Callable[[F], F]:
    """Enter a function into the table under ttnn's `name`, and let calls pass through the dispatch point and the checks of `checked`."""

    def enter(function: F) -> F:
        guarded = checked(name, computes=computes)(function)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            return told(watchers, _inside, name, guarded, args, kwargs) if watchers and not _inside[0] else guarded(*args, **kwargs)

        call.operation_name = name  # type: ignore[attr-defined]
        OPERATIONS[name] = call
        return call  # type: ignore[return-value]

    return enter


def on_mesh(name: str, *tensors: Tensor, letters: str = "ABC") -> MeshDevice:
    """The mesh that all operands lie on; a host, freed or foreign operand is an error."""
    mesh = None
    for letter, tensor in zip(letters, tensors, strict=False):
        if not isinstance(tensor, Tensor):
            fail(name, f"incompatible function arguments: {type(tensor).__name__} is not a ttnn.Tensor", "ttnn.from_torch(...) it first", TypeError)
        if tensor.mesh is None:
            rule = f"Input tensor {letter} must be on device, got storage type: StorageType::HOST"
            fail(describe(name, tensors), rule, "ttnn.to_device(tensor, mesh)")
        if tensor._array is None:
            fail(describe(name, tensors), f"Input Tensor {letter} is not allocated", "use it before ttnn.deallocate")
        if mesh is not None and tensor.mesh is not mesh:
            fail(
                describe(name, tensors),
                f"operands lie on different meshes: {mesh!r} and {tensor.mesh!r}",
                "move one with ttnn.to_device(ttnn.from_device(tensor), mesh)",
            )
        mesh = tensor.mesh
    if not mesh.is_open:  # type: ignore[union-attr]
        mesh.check_open(describe(name, tensors))  # type: ignore[union-attr]
    return mesh  # type: ignore[return-value]


def result(
    like: Tensor,
    array: np.ndarray,
    *,
    dtype: DataType | None = None,
    layout: Layout | None = None,
    topology: TensorTopology | None = None,
    memory_config: MemoryConfig | None = None,
    output: Tensor | None = None,
    owned: bool = True,
) -> Tensor:
    """A tensor of an operation's values on the mesh and grid of `like`, rounded as its dtype is stored.

    Args:
        array: leading axes over the grid, then the shard's axes.
        output: where ttnn was given an output tensor: it gets the values and is returned.
        owned: the array is fresh and may be overwritten by the rounding.
    """
    dtype = dtype or like.dtype
    if dtype is not DataType.FLOAT32 or array.dtype != np.float32:
        array = dtypes.convert(array, dtype, owned=owned, foreign=not owned)
    if topology is None:
        topology = like.topology if like.grid is like.mesh.grid else merged(like.mesh.grid, like.topology)  # type: ignore[union-attr]
    if output is not None:
        if output.mesh is not like.mesh or output._array is None:
            fail("output_tensor", "the output tensor is not allocated on the mesh of the operands", "a tensor on their mesh, before ttnn.deallocate")
        if output.shard_shape != array.shape[len(like.grid.shape) :] or output.grid is not like.grid:
            fail(
                "output_tensor",
                f"the result has shape {list(array.shape[len(like.grid.shape) :])} on {len(like.grid.covers)} chips, "
                f"the output tensor {list(output.shard_shape)} on {len(output.grid.covers)}",
                "an output of that shape on those chips",
            )
        if output.dtype is not dtype:
            array = dtypes.convert(array, output.dtype)
        output.rebind(array)
        output.topology = topology  # ttnn lets an output tensor speak of the operands
        return output
    return new_tensor(array, dtype, layout or like.layout, like.grid, topology, like.mesh, memory_config)


REPLICATE = PlacementReplicate()


@functools.lru_cache(maxsize=4096)
def merged(grid: Grid, *topologies: TensorTopology) -> TensorTopology:
    """What ttnn says of a result with these operands on the mesh `grid`.

    An axis that any operand shards is sharded, and the first operand names the dim; replicated operands of another
    distribution rank do not count. ttnn looks at placements alone, never at the values, and names every chip of the mesh.
    """
    sharded = [t for t in topologies if any(p != REPLICATE for p in t._placements)]
    rank = max(len(t._shape) for t in sharded) if sharded else len(topologies[0]._shape)
    shape = [1] * rank
    placements: list[Placement] = [REPLICATE] * rank
    claimed: set[Placement] = set()
    for topology in topologies:
        if len(topology._shape) == rank:
            shape = [max(a, b) for a, b in zip(shape, topology._shape, strict=True)]
            for axis, placement in enumerate(topology._placements):
                if placement != REPLICATE and placement not in claimed:
                    claimed.add(placement)
                    if placements[axis] == REPLICATE:
                        placements[axis] = placement
    return TensorTopology(MeshShape(shape), placements, grid.covers)  # type: ignore[arg-type]


def common_grid(tensors: Sequence[Tensor], asked: Callable[[], object]) -> tuple[Tensor, list[np.ndarray]]:
    """The operand that covers the fewest chips, and all operands' arrays on its chips."""
    like = min(tensors, key=lambda t: len(t.grid.covers))
    grid = like.grid
    arrays = []
    for tensor in tensors:
        if tensor.grid is grid:
            arrays.append(tensor.array)
            continue
        if not set(grid.covers) <= set(tensor.grid.covers):
            rule = f"operands lie on different chips: {list(grid.covers)} and {list(tensor.grid.covers)}"
            fail(asked(), rule, "the same mapper for both")
        index = {c: i for i, c in enumerate(tensor.grid.coords)}
        whole = tensor.full_array().reshape((tensor.grid.size,) + tensor.shard_shape)
        arrays.append(whole[[index[c] for c in grid.coords]].reshape(grid.shape + tensor.shard_shape))
    return like, arrays
