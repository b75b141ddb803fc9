"""The simulated tensor: one NumPy array for all chips, with its type, layout and topology.

The module also counts the bytes in use in each chip's DRAM. A buffer counts until its tensor is
deallocated or Python deletes it. Buffers in L1 are not counted.
"""

from __future__ import annotations

import math
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np

from ttkit.errors import OutOfMemoryError, fail
from ttkit.lazy import drawn_by
from ttkit.sim.tensor import (
    BufferType,
    DataType,
    Layout,
    MeshCoordinate,
    MeshShape,
    PlacementReplicate,
    Shape,
    Sizes,
    StorageType,
    TensorTopology,
)
from ttkit.sim.tensor.dtypes import Tile, element_size, stored, widened
from ttkit.sim.tensor.grid import SINGLE, Grid, MeshDeviceView
from ttkit.sim.tensor.sharding import DRAM_MEMORY_CONFIG, MemoryConfig, TensorSpec, check_fits

Array = np.ndarray
MeshDevice = Any  # The class is in `sim.mesh`, which imports this module.
DRAM = BufferType.DRAM


# ---------------------------------------------------------------- bytes
_meshes: weakref.WeakSet[MeshDevice] = weakref.WeakSet()
# This is the sum, over all buffers, of the bytes that a buffer takes on one chip. While the sum
# fits in the DRAM of one chip, no chip can be full, so the bytes of each chip need not be counted.
_bound = [0]


def register(mesh: MeshDevice) -> None:
    """Start counting the bytes of the tensors on `mesh`.

    Only meshes with values count in `bytes_in_use`.
    """
    mesh.used = Counter()
    if mesh.has_values:
        _meshes.add(mesh)


class Allocation:
    """A buffer of `nbytes` on each chip of `grid`, until `free` is called or its tensor is deleted.

    Raises:
        OutOfMemoryError: a chip has less than `nbytes` free.
    """

    __slots__ = "__weakref__ made_of nbytes owner used".split()
    # If the buffer belongs to a reshaped view, the view was made of these tensors. They are
    # deallocated with the view.
    made_of: tuple[weakref.ref[Tensor], ...]

    def __init__(self, mesh: MeshDevice, grid: Grid, nbytes: int):
        self.nbytes, self.made_of = 0, ()
        if _bound[0] + nbytes > mesh.dram_bytes:
            _check(mesh, grid, nbytes)
        self.owner = mesh.owner or grid
        self.nbytes = nbytes
        self.used = mesh.used
        _bound[0] += nbytes
        self.used[self.owner] += nbytes

    def free(self) -> None:
        """Stop counting the bytes as in use; a second call does nothing."""
        if self.nbytes:
            _bound[0] -= self.nbytes
            self.used[self.owner] -= self.nbytes
            self.nbytes = 0

    __del__ = free

    def give_to(self, owner: str) -> None:
        """Count the bytes under another owner; see `MeshDevice.owner`."""
        self.used[self.owner] -= self.nbytes
        self.owner = owner
        self.used[owner] += self.nbytes


def _check(mesh: MeshDevice, grid: Grid, nbytes: int) -> None:
    in_use = bytes_in_use()
    total = mesh.dram_bytes
    for coordinate in grid.coords:
        device = mesh.id_at(coordinate, grid.mesh_shape)
        free = total - in_use[device]
        if nbytes > free:
            fail(
                f"allocate on {mesh!r}",
                f"Out of Memory: chip {device} was asked for {nbytes:,} bytes of DRAM; "
                f"{in_use[device]:,} of {total:,} are in use, {free:,} are free",
                "shard the tensor over more chips, deallocate what is no longer needed, or use a "
                "narrower dtype",
                OutOfMemoryError,
            )


def check_room(like: Tensor, shape: Sizes, dtype: DataType | None = None) -> None:
    """Raise if a result with shards of this shape would not fit on the chips of `like`."""
    _, nbytes = stored(shape, like.layout, dtype or like.dtype)
    if _bound[0] + nbytes > like.mesh.dram_bytes:
        _check(like.mesh, like.grid, nbytes)


def bytes_in_use() -> Counter[int]:
    """Return DRAM bytes in use: {device id: bytes}. A closed mesh uses nothing, as on a card."""
    used: Counter[int] = Counter()
    for mesh in _meshes:
        for grid, nbytes in mesh.used.items() if mesh.is_open else ():
            if nbytes:
                used.update(dict.fromkeys(mesh.ids_over(grid), nbytes))
    return used


def most_in_use(mesh: MeshDevice | None) -> int:
    """Return the DRAM bytes in use of the chip that holds most.

    Args:
        mesh: a mesh without values, whose tensors lie on all of its chips; if it is not given, all
            meshes with values are counted.
    """
    if mesh is not None:
        return sum(mesh.used.values())
    return max(bytes_in_use().values(), default=0)


# ---------------------------------------------------------------- tensors
LONE = TensorTopology(MeshShape([1]), [PlacementReplicate()], [MeshCoordinate(0, 0)])


class Tensor:
    """A tensor, on the host or on a mesh; `shape` is the shape of one shard.

    `array` has the values of all chips. Its leading axes run over `grid`. Each of them is as long
    as its mesh axis, or has length 1 if the shards along that axis are bit-identical. The axes of
    the shard follow. Several tensors may share an array, so no code writes into an array that it
    did not allocate: an operation in place gives the tensor a new array.

    Args:
        data: a NumPy array or torch tensor, followed by other arguments of `from_torch`; or a list
            of values, followed by their shape, type and layout, as in `ttnn.Tensor([1.0, 2.0], [1,
            2], ttnn.bfloat16, ttnn.ROW_MAJOR_LAYOUT)`, and perhaps by a mesh and a memory
            configuration.
    """

    _allocation: Allocation | None
    _array: Any  # This is a NumPy array, or None after `deallocate`.
    dtype: DataType
    grid: Grid
    layout: Layout
    mesh: Any  # This is a MeshDevice, or None on the host.
    padded: Sizes
    plain_memory_config: MemoryConfig
    shard_shape: Sizes
    topology: TensorTopology
    __slots__ = (*__annotations__, "__weakref__")

    # The modules that define these operations add them to this class. They also add the methods of
    # Python's operators.
    __getitem__: Callable[[Tensor, Any], Tensor]
    cpu: Callable[..., Tensor]
    reshape: Callable[..., Tensor]
    to: Callable[..., Tensor]
    to_numpy: Callable[..., Array]
    to_torch: Callable

    def __init__(self, *args, **kwargs):
        """Do nothing: `__new__`, which `ttkit.sim.tensor.creation` adds, has made the tensor."""

    @property
    def array(self) -> Array:
        """The values: leading axes over the grid, then the shard's axes; do not write into them."""
        if self._array is None:
            asked = f"read {self.dtype.name} tensor of shape {list(self.shard_shape)}"
            fail(asked, "Tensor is not allocated", "use it before ttnn.deallocate")
        return widened(self._array)

    @property
    def shape(self) -> Shape:
        """The shape of one shard."""
        return Shape._of(self.shard_shape)

    @property
    def padded_shape(self) -> Shape:
        """The shape of one shard as it is stored, tile padding included."""
        return Shape._of(self.padded)

    @property
    def tile(self) -> Tile:
        """The shape of a tile."""
        return TensorSpec.tile

    @property
    def spec(self) -> TensorSpec:
        """Shape, type, layout and memory configuration, as one `TensorSpec`."""
        return TensorSpec._make((self.shape, self.dtype, self.layout, self.memory_config()))

    def buffer_address(self) -> int:
        """Return a number for the buffer: the lower 32 bits of the values' address on the host.

        For a large tensor of a narrow type, each call may return another number.
        """
        return self.array.ctypes.data & 0xFFFFFFFF

    def shards(self) -> Iterator[Array]:
        """Yield each chip's values in the order of `grid.coords`; do not write into these views."""
        whole = self.full_array()
        return (whole[index] for index in np.ndindex(self.grid.shape))

    def full_array(self) -> Array:
        """Return `array` with every leading axis at its full length (a view)."""
        shape = self.grid.shape + self.shard_shape
        array = self.array
        return array if array.shape == shape else np.broadcast_to(array, shape)

    def rebind(self, array: Array) -> None:
        """Give the tensor new values of the same shard shape, as an operation in place does."""
        self._array = array

    def storage_type(self) -> StorageType:
        """Return HOST or DEVICE."""
        return StorageType.HOST if self.mesh is None else StorageType.DEVICE

    def tensor_topology(self) -> TensorTopology:
        """Return the placements and the distribution shape, as ttnn keeps them."""
        return self.topology

    def update_tensor_topology(self, topology: TensorTopology) -> None:
        """Replace the topology; the values do not move."""
        self.topology = topology

    def device(self) -> MeshDevice | None:
        """Return the mesh of the tensor, or None on the host."""
        return self.mesh

    def device_coords(self) -> list[MeshCoordinate]:
        """Return the coordinates of the chips that have a shard."""
        return list(map(MeshCoordinate, self.grid.covers))

    def host_buffer(self) -> MeshDeviceView:
        """Return a view of the mesh that the host shards were made for."""
        return MeshDeviceView(self.grid)

    def memory_config(self) -> MemoryConfig:
        """Return where the buffers are."""
        return self.plain_memory_config

    def is_sharded(self) -> bool:
        """Return whether a chip stores the tensor in shards, as `MemoryConfig` says."""
        return self.plain_memory_config.is_sharded()

    def is_allocated(self) -> bool:
        """Return whether the tensor has values: on a mesh, False after `deallocate`."""
        return self._array is not None

    def deallocate(self, force: bool = False) -> None:
        """Free the chips' memory; the tensor keeps its shape and type. On the host, do nothing.

        If the tensor is a reshaped view, the tensors that it was made of are deallocated, too. If
        one of those is deallocated first, the view keeps its values, as in ttnn 0.81.1.
        """
        if self._allocation is not None:
            self._allocation.free()
            for source in self._allocation.made_of:
                if (tensor := source()) is not None:
                    tensor.deallocate()
        if self.mesh is not None:
            self._array = None

    def volume(self) -> int:
        """Return the number of elements of one shard, padding included."""
        return math.prod(self.padded)

    def element_size(self) -> int:
        """Return the bytes of an element."""
        return element_size(self.dtype)

    def logical_volume(self) -> int:
        """Return the number of elements of one shard."""
        return math.prod(self.shard_shape)

    def _lone(self) -> Array:
        if self.grid.size != 1:
            fail(
                "read one buffer",
                "Can't get a single buffer from host storage distributed over mesh shape "
                f"{MeshShape(self.grid.mesh_shape)!r}",
                "ttnn.get_device_tensors(tensor)",
            )
        return next(self.shards())

    def item(self) -> float | int:
        """Return the value of a tensor of one element."""
        return self._lone().item()

    def to_list(self):
        """Return the values as nested lists."""
        return self._lone().tolist()

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled, deep-copied, or sent to another process.

        Raises:
            TTKitError: always.
        """
        asked = f"pickle or deepcopy a {self.dtype.name} tensor of shape {list(self.shard_shape)}"
        rule = "a tensor belongs to the process that made it, as its mesh does"
        fail(asked, rule, "ttkit.to_numpy(tensor), whose array may go anywhere; ttnn.clone(tensor)")

    def __repr__(self) -> str:
        """Return the text of each shard; on a mesh, its device id and coordinate come first."""
        tail = f", shape={self.shape!r}, dtype=DataType::{self.dtype.name}, "
        tail += f"layout=Layout::{self.layout.name})"
        if not self.is_allocated():
            return f"ttnn.Tensor(<buffer is not allocated>{tail}"
        texts = []
        for coordinate, shard in zip(self.grid.coords, self.shards()):
            text = f"ttnn.Tensor({_values(shard)}{tail}"
            if self.mesh is not None:
                device = self.mesh.id_at(coordinate, self.grid.mesh_shape)
                text = f"device_id: {device}, MeshCoordinate({list(coordinate)})\n{text}"
            texts.append(text)
        return "\n".join(texts)

    _repr_html_ = drawn_by("tensor:draw_tensor")


for _field in ("dtype", "layout", "tile"):
    setattr(Tensor, f"get_{_field}", lambda tensor, field=_field: getattr(tensor, field))


def is_tensor_storage_on_device(tensor: Tensor) -> bool:
    """Return whether a tensor lies on a mesh."""
    return tensor.mesh is not None


def new_tensor(
    array: Array | None,
    dtype: DataType,
    layout: Layout,
    grid: Grid = SINGLE,
    topology: TensorTopology = LONE,
    mesh: MeshDevice | None = None,
    memory_config: MemoryConfig | None = None,
    *,
    shape: Sizes | None = None,
) -> Tensor:
    """Return a tensor around `array`, whose values `dtype` can represent, and allocate its memory.

    If `array` is None, `shape` is the shape of a shard, and the caller sets the array afterwards.
    So an error about memory comes before the array is made.
    """
    tensor = object.__new__(Tensor)
    tensor.dtype = dtype
    tensor.layout = layout
    tensor.grid = grid
    tensor.mesh = mesh
    tensor.topology = topology
    if shape is None:
        shape = array.shape[grid.lead :]  # type: ignore[union-attr]
    tensor.shard_shape = shape
    tensor.padded, nbytes = stored(shape, layout, dtype)
    tensor.plain_memory_config = DRAM_MEMORY_CONFIG
    tensor._allocation = None
    if mesh is not None and (memory_config is None or memory_config.buffer_type is DRAM):
        tensor._allocation = Allocation(mesh, grid, nbytes)
    if memory_config is not None:
        keep_in(tensor, memory_config)
    tensor._array = array
    return tensor


def keep_in(tensor: Tensor, config: MemoryConfig) -> None:
    """Record where the buffers of a new tensor are; buffers in L1 are not counted.

    Raises:
        TTKitError: the configuration does not fit this tensor.
    """
    check_fits(config, tensor.padded, tensor.layout)
    tensor.plain_memory_config = config
    if config.buffer_type is not DRAM and tensor._allocation is not None:
        tensor._allocation.free()


# ---------------------------------------------------------------- print
def _values(shard: Array) -> str:
    """Return values as text: as integers, or in fixed-point or scientific form by torch's rule.

    Only the first and last two values along a long axis are shown.
    """
    form = "5d" if shard.dtype.kind != "f" else "7.4f"
    finite = np.abs(shard[np.isfinite(shard) & (shard != 0)])
    if form == "7.4f" and finite.size:
        low, high = finite.min(), finite.max()
        form = "11.4e" if high > 1e8 or low < 1e-4 or high / low > 1000 else form
    text = np.array2string(
        shard,
        1 << 30,
        separator=", ",
        prefix="ttnn.Tensor(",
        formatter={"all": lambda value: f"{value:{form}}"},
        threshold=0,
        edgeitems=2,
    )
    return text.replace(", ...,", ",  ...,")
