"""Mesh devices: opening a part of the system, views, submeshes, reshaping, and the fabric between chips."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ttkit.errors import fail
from ttkit.hardware import System, current_system
from ttkit.sim import memory
from ttkit.sim.arguments import checked
from ttkit.sim.enums import Arch, FabricConfig, FabricManagerMode, FabricReliabilityMode, FabricTensixConfig, FabricUDMMode
from ttkit.sim.types import MeshCoordinate, MeshCoordinateRange, MeshShape, integer, integers

Coordinate = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Grid:
    """Which chips of a mesh a tensor covers, and in which shape its leading array axes run over them.

    The mesh's own shape when all chips are covered, a rectangle's when they form one, else one flat axis.
    Grids are interned by `grid_over`: two tensors cover the same chips exactly when their grids are the same object.
    """

    mesh_shape: Coordinate
    shape: Coordinate
    coords: tuple[Coordinate, ...]

    @property
    def size(self) -> int:
        """How many chips."""
        return len(self.coords)

    @property
    def whole(self) -> bool:
        """True where every chip of the mesh is covered."""
        return self.shape == self.mesh_shape


@lru_cache(maxsize=4096)
def grid_over(mesh_shape: Coordinate, coords: tuple[Coordinate, ...] | None = None) -> Grid:
    """The grid of the chips at `coords` (in row-major order), or of the whole mesh."""
    everything = tuple(itertools.product(*map(range, mesh_shape)))
    if coords is None or coords == everything:
        return _intern(mesh_shape, mesh_shape, everything)
    axes = [sorted({c[axis] for c in coords}) for axis in range(len(mesh_shape))]
    shape = tuple(map(len, axes))
    if coords == tuple(itertools.product(*axes)) and all(a[-1] - a[0] + 1 == len(a) for a in axes):
        return _intern(mesh_shape, shape, coords)
    return _intern(mesh_shape, (len(coords),), coords)


@lru_cache(maxsize=4096)
def _intern(mesh_shape: Coordinate, shape: Coordinate, coords: tuple[Coordinate, ...]) -> Grid:
    return Grid(mesh_shape, shape, coords)


SINGLE = grid_over((1, 1))  # a host tensor that was never distributed


class MeshDevice:
    """Chips opened together as a mesh; get one from `open_mesh_device`, close it with `close_mesh_device` or a `with`."""

    used: Counter[Grid]
    _ids_opened = itertools.count(1)

    def __init__(self, system: System, ids: tuple[int, ...], shape: Coordinate, parent: MeshDevice | None = None):
        self.system = system
        self.parent = parent
        self.is_open = True
        self.fabric: FabricConfig = parent.fabric if parent else _fabric[0]
        self._ids, self._shape = ids, shape
        self._submeshes: list[MeshDevice] = []
        self._number = next(self._ids_opened)
        self._grid = grid_over(shape)
        memory.register(self)

    def __repr__(self) -> str:
        return f"MeshDevice({'x'.join(map(str, self._shape))} grid, {len(self._ids)} devices)"

    def __enter__(self) -> MeshDevice:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _repr_html_(self) -> str:
        from ttkit.visualize import mesh_html

        return mesh_html(self)

    @property
    def shape(self) -> MeshShape:
        """Rows and columns."""
        return MeshShape(self._shape)

    @property
    def grid(self) -> Grid:
        """All chips of the mesh, as tensors refer to them."""
        return self._grid

    def get_device_ids(self) -> list[int]:
        """Device ids in row-major order."""
        return list(self._ids)

    def get_num_devices(self) -> int:
        """How many chips."""
        return len(self._ids)

    @checked("get_device_id")
    def get_device_id(self, coord: MeshCoordinate, /) -> int:
        """The id of the chip at `coord`."""
        if not isinstance(coord, MeshCoordinate):
            fail("MeshDevice.get_device_id", f"incompatible function arguments: {coord!r}", "MeshCoordinate(row, column)", TypeError)
        if not self._inside(tuple(coord)):
            fail(f"get_device_id({coord!r}) on {self!r}", f"Device ID requested for MeshCoord {coord!r} not found: the mesh is {self.shape!r}")
        return self.id_at(tuple(coord))

    def id_at(self, coordinate: Coordinate) -> int:
        """The id of the chip at a plain (row, column) that is known to be inside."""
        index = 0
        for c, n in zip(coordinate, self._shape, strict=True):
            index = index * n + c
        return self._ids[index]

    def _inside(self, coordinate: Coordinate) -> bool:
        return len(coordinate) == len(self._shape) and all(0 <= c < n for c, n in zip(coordinate, self._shape, strict=True))

    def get_view(self) -> MeshDeviceView:
        """The mesh as a view: shape and which coordinates are local."""
        return MeshDeviceView(self)

    def get_submeshes(self) -> list[MeshDevice]:
        """The submeshes made so far and not closed."""
        return list(self._submeshes)

    @checked("create_submesh")
    def create_submesh(self, submesh_shape: MeshShape, offset: MeshCoordinate | None = None) -> MeshDevice:
        """A mesh over a rectangle of this one; its tensors share the chips' memory. Submeshes may overlap.

        Raises:
            TTKitError: the rectangle has another rank, no device, or does not fit.
        """
        asked = f"create_submesh({submesh_shape!r}, {offset!r}) on {self!r}"
        self.check_open(asked)
        if not isinstance(submesh_shape, MeshShape) or not isinstance(offset, (MeshCoordinate, type(None))):
            fail(asked, "incompatible function arguments", "create_submesh(MeshShape(r, c), MeshCoordinate(row, column))", TypeError)
        shape, start = tuple(submesh_shape), tuple(offset) if offset is not None else (0,) * submesh_shape.dims()
        if len(shape) != len(self._shape) or len(start) != len(self._shape):
            fail(asked, f"Submesh shape {submesh_shape!r}, offset and parent mesh {self.shape!r} must have the same number of dimensions")
        if min(shape) <= 0:
            fail(asked, f"Invalid submesh shape: ({submesh_shape!r}). All dimensions must be positive.")
        if any(o + n > m for o, n, m in zip(start, shape, self._shape, strict=True)):
            fail(asked, f"Submesh shape {submesh_shape!r} and offset {MeshCoordinate(start)!r} does not fit within parent mesh ({self.shape!r}).")
        ids = tuple(self.id_at(tuple(o + i for o, i in zip(start, c, strict=True))) for c in itertools.product(*map(range, shape)))
        submesh = MeshDevice(self.system, ids, shape, self)
        self._submeshes.append(submesh)
        return submesh

    @checked("create_submeshes")
    def create_submeshes(self, submesh_shape: MeshShape) -> list[MeshDevice]:
        """The mesh cut into equal submeshes, in row-major order of their corners.

        Raises:
            TTKitError: the shape does not divide the mesh.
        """
        asked = f"create_submeshes({submesh_shape!r}) on {self!r}"
        if not isinstance(submesh_shape, MeshShape):
            fail(asked, "incompatible function arguments", "create_submeshes(MeshShape(r, c))", TypeError)
        shape = tuple(submesh_shape)
        if len(shape) != len(self._shape):
            fail(asked, f"Submesh shape and parent mesh {self.shape!r} must have the same number of dimensions")
        if min(shape) <= 0:
            fail(asked, f"Invalid submesh shape: ({submesh_shape!r}). All dimensions must be positive.")
        for axis, (n, m) in enumerate(zip(shape, self._shape, strict=True)):
            if m % n:
                fail(asked, f"Shape {self.shape!r} is not divisible by submesh shape {submesh_shape!r} along dimension {axis}")
        corners = itertools.product(*(range(0, m, n) for n, m in zip(shape, self._shape, strict=True)))
        return [self.create_submesh(submesh_shape, MeshCoordinate(corner)) for corner in corners]

    @checked("reshape")
    def reshape(self, new_shape: MeshShape) -> None:
        """Give the mesh another shape with the same chips; the new shape must be a line or a grid that is physically joined."""
        asked = f"reshape({new_shape!r}) on {self!r}"
        self.check_open(asked)
        if not isinstance(new_shape, MeshShape):
            fail(asked, "incompatible function arguments", "reshape(MeshShape(r, c))", TypeError)
        shape = tuple(new_shape)
        if math.prod(shape) != len(self._ids):
            fail(asked, f"New shape must have the same number of devices as current shape: {math.prod(shape)} and {len(self._ids)}")
        if shape == self._shape:
            return
        if max(shape) == len(self._ids):
            if max(self._shape) != len(self._ids):
                self._ids = tuple(self.id_at(c) for c in line_coordinates(self._shape, (0, 0), len(self._ids)))
        else:
            where = [self.system.coordinate_of[d] for d in self._ids]
            rows, columns = ({w[axis] for w in where} for axis in (0, 1))
            box = sorted(where)
            if len(rows) * len(columns) != len(box) or shape not in ((len(rows), len(columns)), (len(columns), len(rows))):
                rule = (
                    f"Request to reshape to {new_shape!r}, but it is not possible to form a physically connected mesh grid with the {len(box)} opened devices"
                )
                fail(asked, rule, "open the shape directly")
            if shape != (len(rows), len(columns)):
                box.sort(key=lambda w: w[::-1])
            self._ids = tuple(self.system.ids[r][c] for r, c in box)
        self._shape = shape
        self._grid = grid_over(shape)

    def close(self) -> None:
        """Close the mesh and its submeshes; closing twice is silent."""
        for submesh in self.get_submeshes():
            submesh.close()
        if self.is_open:
            self.is_open = False
            if self.parent is None:
                _opened.remove(self)
                if not _opened:
                    _fabric[0] = FabricConfig.DISABLED
            elif self in self.parent._submeshes:
                self.parent._submeshes.remove(self)

    def check_open(self, asked: object) -> None:
        """Raise where the mesh has been closed."""
        if not self.is_open:
            fail(asked, f"{self!r} is closed", "open a mesh with ttnn.open_mesh_device and put the tensors on it")

    def id(self) -> int:
        """A number that no other mesh has."""
        return self._number

    def arch(self) -> Arch:
        """The chip generation."""
        return Arch[self.system.chip.arch]

    def num_program_cache_entries(self) -> int:
        """Always 0: the simulator compiles nothing."""
        return 0

    def enable_program_cache(self) -> None:
        """Nothing to do: the simulator compiles nothing."""

    def disable_and_clear_program_cache(self) -> None:
        """Nothing to do: the simulator compiles nothing."""

    def quiesce_devices(self) -> None:
        """Nothing to wait for: execution is eager."""


class MeshDeviceView:
    """A mesh seen as a grid of chips."""

    def __init__(self, mesh: MeshDevice):
        self._mesh = mesh

    def shape(self) -> MeshShape:
        """Rows and columns."""
        return self._mesh.shape

    def num_devices(self) -> int:
        """How many chips."""
        return self._mesh.get_num_devices()

    def is_local(self, coord: MeshCoordinate) -> bool:
        """True where this process drives the chip at `coord`."""
        return self._mesh._inside(tuple(coord))

    def get_local_mesh_coord_range(self) -> MeshCoordinateRange:
        """The coordinates that this process drives."""
        return MeshCoordinateRange(self._mesh.shape)


class SystemMeshDescriptor:
    """The whole machine: its shape and its device ids, opened or not."""

    def __init__(self) -> None:
        self._system = current_system()

    def shape(self) -> MeshShape:
        """Rows and columns of the machine."""
        return MeshShape(self._system.shape)

    def local_shape(self) -> MeshShape:
        """Rows and columns of the part that this host drives."""
        return MeshShape(self._system.shape)

    def all_local(self) -> bool:
        """True where one host drives everything."""
        return True

    def is_local(self, coord: MeshCoordinate) -> bool:
        """True where this host drives the chip at `coord`."""
        return all(0 <= c < n for c, n in zip(coord, self._system.shape, strict=True))

    def get_device_id(self, coord: MeshCoordinate) -> int:
        """The id of the chip at `coord`."""
        row, column = coord
        return self._system.ids[row][column]


_opened: list[MeshDevice] = []
_fabric = [FabricConfig.DISABLED]


def line_coordinates(shape: Coordinate, start: Coordinate, length: int) -> Iterator[Coordinate]:
    """The chips of a line through a grid: around its rim from `start`; back and forth over all rows where the rim is too short."""
    rows, columns = shape
    if rows == 1 or columns == 1:
        rim = list(itertools.product(range(rows), range(columns)))
    else:
        rim = [(0, c) for c in range(columns)] + [(r, columns - 1) for r in range(1, rows)]
        rim += [(rows - 1, c) for c in range(columns - 2, -1, -1)] + [(r, 0) for r in range(rows - 2, 0, -1)]
    if length > len(rim) or start not in rim:
        rim = [(r, c if r % 2 == 0 else columns - 1 - c) for r in range(rows) for c in range(columns)]
    first = rim.index(start)  # type: ignore[arg-type]
    return (rim[(first + i) % len(rim)] for i in range(length))


@checked("open_mesh_device")
def open_mesh_device(
    mesh_shape: MeshShape | None = None,
    l1_small_size: int = 0,
    trace_region_size: int = 0,
    num_command_queues: int = 1,
    dispatch_core_config: Any = None,
    offset: MeshCoordinate | None = None,
    physical_device_ids: list[int] = [],  # noqa: B006  (ttnn's own signature; never written to)
    worker_l1_size: int = 0,
) -> MeshDevice:
    """Open chips of the system as a mesh.

    A shape that fits at `offset` opens as it stands, else transposed; one row or one column opens as a line around the rim.

    Args:
        mesh_shape: [rows, columns]; the whole system when left out.
        offset: the corner to start from.
        physical_device_ids: these chips in this order instead.

    Raises:
        TTKitError: too many devices, none, or a shape that fits neither way.

    Example:
        >>> with open_mesh_device(MeshShape(2, 4)) as mesh:
        ...     mesh.get_device_ids()
        [4, 0, 2, 6, 5, 1, 3, 7]
    """
    system = current_system()
    asked = f"open_mesh_device({mesh_shape!r}{'' if offset is None else f', offset={offset!r}'}) on a {system.name}"
    for value, kind in ((mesh_shape, MeshShape), (offset, MeshCoordinate)):
        if value is not None and not isinstance(value, kind):
            fail(asked, f"incompatible function arguments: {value!r} is not a {kind.__name__}", f"ttnn.{kind.__name__}(2, 4)", TypeError)
    for number in (l1_small_size, trace_region_size, num_command_queues, worker_l1_size):
        integer(number, asked, 0)
    ids = integers(physical_device_ids, asked)
    if ids:
        if mesh_shape is None:
            fail(asked, "Mesh shape must be provided when physical device ids are supplied")
        for device in ids:
            if device not in system.coordinate_of:
                fail(asked, f"Device index {device} out of range. There are {system.num_devices} devices available.")
        if len(ids) != mesh_shape.mesh_size():
            fail(asked, f"Shape and values size mismatch; shape mesh_size: {mesh_shape.mesh_size()}, values size: {len(ids)}")
        shape = tuple(mesh_shape)
    else:
        shape = tuple(mesh_shape) if mesh_shape is not None else system.shape
        ids = tuple(system.ids[r][c] for r, c in _place(system, shape, tuple(offset) if offset is not None else (0, 0), asked))
    mesh = MeshDevice(system, ids, shape)
    _opened.append(mesh)
    return mesh


def _place(system: System, shape: Coordinate, start: Coordinate, asked: object) -> Iterator[Coordinate]:
    """Coordinates in the system of the chips of a mesh of `shape`, in row-major order."""
    size, whole = math.prod(shape), MeshShape(system.shape)
    if size == 0:
        fail(asked, f"Requested mesh shape {MeshShape(shape)!r} has zero devices (mesh_size=0). MeshShape must have at least one device.")
    if size > system.num_devices:
        rule = f"Requested mesh shape {MeshShape(shape)!r} requires {size} devices, but only {system.num_devices} devices are available"
        rule += f" in the system mesh {whole!r}."
        fail(asked, rule, "a smaller shape, or another system: ttkit.use_system(...)")
    if len(shape) != len(system.shape) or len(start) != len(system.shape):
        fail(asked, f"Requested mesh shape {MeshShape(shape)!r}, offset and system mesh {whole!r} must have the same number of dimensions")
    if any(o >= n for o, n in zip(start, system.shape, strict=True)):
        fail(asked, f"Offset {MeshCoordinate(start)!r} is out of bounds for the system mesh shape {whole!r}")
    if max(shape) == size:
        yield from line_coordinates(system.shape, start, size)  # type: ignore[arg-type]
        return
    (rows, columns), (height, width), (top, left) = shape, system.shape, start
    if top + rows <= height and left + columns <= width:
        yield from ((top + r, left + c) for r in range(rows) for c in range(columns))
    elif top + columns <= height and left + rows <= width:
        yield from ((top + c, left + r) for r in range(rows) for c in range(columns))
    else:
        rule = f"Requested mesh is too big and is not rotatable: {MeshShape(shape)!r} and SystemMesh {whole!r}, offset {MeshCoordinate(start)!r}"
        fail(asked, rule, "an offset of (0, 0), or a smaller shape")


@checked("close_mesh_device")
def close_mesh_device(mesh_device: MeshDevice) -> None:
    """Close a mesh; shape and ids can still be read, everything else says that it is closed."""
    mesh_device.close()


@contextmanager
def create_mesh_device(*args: Any, **kwargs: Any) -> Iterator[MeshDevice]:
    """`open_mesh_device` for a `with` block."""
    mesh = open_mesh_device(*args, **kwargs)
    try:
        yield mesh
    finally:
        mesh.close()


@checked("open_device")
def open_device(
    device_id: int,
    l1_small_size: int = 0,
    trace_region_size: int = 0,
    dispatch_core_config: Any = None,
    worker_l1_size: int = 0,
) -> MeshDevice:
    """Open one chip as a 1x1 mesh."""
    return open_mesh_device(MeshShape(1, 1), l1_small_size, trace_region_size, physical_device_ids=[integer(device_id, "open_device")])


@checked("close_device")
def close_device(device: MeshDevice) -> None:
    """Close what `open_device` opened."""
    device.close()


@contextmanager
def manage_device(device_id: int) -> Iterator[MeshDevice]:
    """`open_device` for a `with` block."""
    device = open_device(device_id)
    try:
        yield device
    finally:
        device.close()


@checked("synchronize_device")
def synchronize_device(device: MeshDevice, cq_id: Any = None, sub_device_ids: Any = ()) -> None:
    """Wait until the device has done everything; the simulator is eager, so this only checks that it is open."""
    device.check_open("synchronize_device")


def get_device_ids() -> list[int]:
    """Ids of all visible devices."""
    return sorted(current_system().coordinate_of)


def get_num_devices() -> int:
    """How many devices are visible."""
    return current_system().num_devices


def get_num_pcie_devices() -> int:
    """How many boards are visible: each has one PCIe connection."""
    return len(current_system().boards)


def set_fabric_config(
    config: FabricConfig,
    reliability_mode: FabricReliabilityMode = FabricReliabilityMode.STRICT_INIT,
    num_planes: int | None = None,
    fabric_tensix_config: FabricTensixConfig = FabricTensixConfig.DISABLED,
    fabric_udm_mode: FabricUDMMode = FabricUDMMode.DISABLED,
    fabric_manager_mode: FabricManagerMode = FabricManagerMode.DEFAULT,
    router_config: Any = object(),  # noqa: B008  (ttnn's own default is an opaque object)
) -> None:
    """Choose how links forward, for the meshes opened next; closing the last mesh goes back to DISABLED.

    Raises:
        TTKitError: a mesh is still open.
    """
    if not isinstance(config, FabricConfig):
        fail("set_fabric_config", f"incompatible function arguments: {config!r}", "ttnn.FabricConfig.FABRIC_1D", TypeError)
    if _opened and config is not FabricConfig.DISABLED and config is not _fabric[0]:
        fail(f"set_fabric_config({config!r})", f"SetFabricConfig({config.name}) is not allowed while devices are still open", "close the mesh first")
    _fabric[0] = config


def get_fabric_config() -> FabricConfig:
    """How the links of the meshes opened next will forward."""
    return _fabric[0]
