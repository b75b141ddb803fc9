"""Mesh devices: chips as a grid, views, submeshes, reshaping; and traces.

A trace is a run of operations captured once and replayed on the current contents of its inputs.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from functools import partial

from ttkit.errors import fail
from ttkit.hardware import System
from ttkit.hardware.device_order import line_coordinates
from ttkit.lazy import drawn_by
from ttkit.sim.arguments import describe, refuse
from ttkit.sim.hints import SubDevice, nothing
from ttkit.sim.ops import OPERATIONS, checked
from ttkit.sim.ranks import SharedSystem
from ttkit.sim.tape import Event, Tape, running, tensors_in
from ttkit.sim.tensor import Arch, FabricConfig, MeshCoordinate, MeshShape
from ttkit.sim.tensor.grid import (
    Coordinate,
    Grid,
    MeshDeviceView,
    Owners,
    devices_of,
    grid_over,
    is_inside,
    place_of,
)
from ttkit.sim.tensor.sharding import CoreCoord, CoreGrid
from ttkit.sim.tensor.tensor import register

opened_meshes: list[MeshDevice] = []
fabric_setting = [FabricConfig.DISABLED]


def owners_of(system: System, ids: Sequence[int]) -> Owners | None:
    """Return which host rank drives each of these devices; None where no machine is shared."""
    if not isinstance(system, SharedSystem):
        return None
    hosts = system.host_of
    return Owners(system.host_rank, max(hosts.values()) + 1, tuple(hosts[i] for i in ids))


class MeshDevice:
    """Chips opened together as a mesh.

    `open_mesh_device` returns one; `close_mesh_device` or the end of a `with` block closes it.
    """

    # `ttkit.profiling.one_chip` sets this on its one-chip mesh: collectives need no fabric there.
    is_reference = False
    # On a mesh without values this may be set: new tensors then count under this name, not by chip.
    owner = ""
    used: Counter[Grid | str]
    _numbers = itertools.count()

    def __init__(
        self,
        system: System,
        ids: tuple[int, ...],
        shape: Coordinate,
        parent: MeshDevice | None = None,
        has_values: bool = True,
    ):
        self.system = system
        self.parent = parent
        self.has_values = has_values  # Only a mesh of `without_values` (a dry run) has no values.
        self.is_open = True
        self.fabric: FabricConfig = parent.fabric if parent else fabric_setting[0]
        # These are the ids of all chips in row-major order. A chip that another rank drives has an
        # id that only this process uses.
        self.chips, self._shape = ids, shape
        # Each key is a present or earlier shape of the mesh, because older tensors still refer to
        # the shape that they were made with.
        self._ids_of: dict[Coordinate, tuple[int, ...]] = {}
        self._submeshes: list[MeshDevice] = []
        self._settle()
        self.dram_bytes = system.chip.dram_bytes
        self.programs: set = set()
        self._number = next(self._numbers)
        register(self)

    def __repr__(self) -> str:
        return f"MeshDevice({'x'.join(map(str, self._shape))} grid, {len(self.chips)} devices)"

    def __enter__(self) -> MeshDevice:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    _repr_html_ = drawn_by("mesh:draw_mesh")

    @property
    def shape(self) -> MeshShape:
        """Rows and columns."""
        return MeshShape(self._shape)

    def _settle(self) -> None:
        """Set the owners and the grid; tensors of an earlier shape stay on their chips."""
        self.owners = owners_of(self.system, self.chips)
        self._ids_of[self._shape] = self.chips
        # Tensors on all chips of the mesh refer to this grid.
        self.grid = grid_over(self._shape, None, self.owners)

    def id(self) -> int:
        """Return how many meshes and submeshes were made before this one.

        This is not the id of a chip.
        """
        return self._number

    def get_device_ids(self) -> list[int]:
        """Return the ids of the devices that this process drives, in row-major order."""
        return list(self.ids_over(self.grid))

    def get_num_devices(self) -> int:
        """Return how many chips the mesh has."""
        return len(self.chips)

    @partial(checked, note=True)
    def get_device_id(self, coord: MeshCoordinate, /) -> int:
        """Return the id of the chip at `coord`."""
        place = tuple(coord)
        if not is_inside(place, self._shape):
            refuse(
                f"Device ID requested for MeshCoord {coord!r} not found: the mesh is {self.shape!r}"
            )
        if place not in self.grid.coords:
            refuse(
                f"Cannot get device for remote device at coordinate {coord!r}: host rank "
                f"{self.grid.owner_of(place)} drives it",
                "mesh.get_view().is_local(coordinate) first",
            )
        return self.id_at(place)

    def id_at(self, coordinate: Coordinate, shape: Coordinate | None = None) -> int:
        """Return the id of the chip at a plain (row, column) that is known to be inside the mesh.

        `shape` is the shape of the mesh that the coordinate belongs to, by default the present one.
        """
        return self._ids_of[shape or self._shape][place_of(coordinate, shape or self._shape)]

    def ids_over(self, grid: Grid) -> Sequence[int]:
        """Return the ids of the chips of a grid whose values this process has."""
        # If the grid covers all chips, their ids are known in row-major order.
        if len(grid.coords) == len(self.chips):
            return self._ids_of[grid.mesh_shape]
        return [self.id_at(coordinate, grid.mesh_shape) for coordinate in grid.coords]

    def get_view(self) -> MeshDeviceView:
        """Return a view of the mesh: its shape, and which coordinates are local."""
        return MeshDeviceView(self.grid)

    def get_submeshes(self) -> list[MeshDevice]:
        """Return the submeshes of this mesh that are still open."""
        return list(self._submeshes)

    @partial(checked, note=True)
    def create_submesh(
        self, submesh_shape: MeshShape, offset: MeshCoordinate | None = None
    ) -> MeshDevice:
        """Return a mesh over a rectangle of this one; submeshes may overlap.

        Meshes on the same chip share that chip's memory.

        Raises:
            TTKitError: the rectangle does not fit, has no device, or does not have as many
                dimensions as this mesh.
        """
        self.check_open()
        shape = self._part(submesh_shape, offset)
        start = tuple(offset or (0,) * len(shape))
        if any(o + n > m for o, n, m in zip(start, shape, self._shape)):
            refuse(
                f"Submesh shape {submesh_shape!r} and offset {offset!r} does not fit within parent "
                f"mesh ({self.shape!r})."
            )
        ids = tuple(map(self.id_at, devices_of(shape, self._shape, start)))
        submesh = MeshDevice(self.system, ids, shape, self)
        self._submeshes.append(submesh)
        return submesh

    def _part(self, shape: MeshShape, offset: MeshCoordinate | None) -> Coordinate:
        """Return the shape of a part of this mesh; fail unless dimensions and sizes are valid."""
        if {len(self._shape)} != {each.dims() for each in (shape, offset or shape)}:
            refuse(
                f"Submesh shape {shape!r}, offset and parent mesh {self.shape!r} must have the "
                "same number of dimensions"
            )
        if min(shape) <= 0:
            refuse(f"Invalid submesh shape: {shape!r}. All dimensions must be positive.")
        return tuple(shape)

    @partial(checked, note=True)
    def create_submeshes(self, submesh_shape: MeshShape) -> list[MeshDevice]:
        """Cut the mesh into equal submeshes, and return them in row-major order of their corners.

        Raises:
            TTKitError: the shape does not divide the mesh.
        """
        shape = self._part(submesh_shape, None)
        for axis, (n, m) in enumerate(zip(shape, self._shape)):
            if m % n:
                rule = f"Shape {self.shape!r} is not divisible by submesh shape {submesh_shape!r}"
                asked = f"create_submeshes({submesh_shape!r}) on {self!r}"
                fail(asked, f"{rule} along dimension {axis}")
        corners = itertools.product(*(range(0, m, n) for n, m in zip(shape, self._shape)))
        return [self.create_submesh(submesh_shape, MeshCoordinate(corner)) for corner in corners]

    @partial(checked, name="MeshDevice.reshape", note=True)
    def reshape(self, new_shape: MeshShape) -> None:
        """Give the mesh another shape with the same chips.

        The new shape must be a line, or a grid whose chips are physically connected.
        """
        self.check_open()
        shape = tuple(new_shape)
        count = len(self.chips)
        if math.prod(shape) != count:
            refuse(
                "New shape must have the same number of devices as current shape: "
                f"{math.prod(shape)} and {count}"
            )
        if shape == self._shape:
            return
        if max(shape) == count and max(self._shape) != count:
            self.chips = tuple(map(self.id_at, line_coordinates(self._shape, (0, 0), count)))
        elif max(shape) != count:
            where = {self.system.coordinate_of[device]: device for device in self.chips}
            sides = tuple(len(set(axis)) for axis in zip(*where))
            if shape not in (sides, sides[::-1]):
                refuse(
                    f"Request to reshape to {new_shape!r}, but it is not possible to form a "
                    f"physically connected mesh grid with the {len(where)} opened devices",
                    "open the shape directly",
                )
            order = sorted(where, key=lambda place: place if shape == sides else place[::-1])
            self.chips = tuple(where[place] for place in order)
        self._shape = shape
        self._settle()

    def close(self) -> None:
        """Close the mesh and its submeshes; a second call does nothing.

        The shape and the ids of a closed mesh can still be read, but operations on it raise.
        """
        for submesh in self.get_submeshes():
            submesh.close()
        if self.is_open:
            self.is_open = False
            if self in opened_meshes:
                opened_meshes.remove(self)
                if not opened_meshes:
                    fabric_setting[0] = FabricConfig.DISABLED
            elif self.parent and self in self.parent._submeshes:
                self.parent._submeshes.remove(self)

    def check_open(self) -> None:
        """Raise an error if the mesh has been closed."""
        if not self.is_open:
            cure = "open a mesh with ttnn.open_mesh_device and put the tensors on it"
            refuse(f"{self!r} is closed", cure)

    def arch(self) -> Arch:
        """Return the chip generation."""
        return Arch[self.system.chip.arch]

    @property
    def core_grid(self) -> CoreGrid:
        """The cores of a chip that programs may use."""
        x, y = self.system.chip.core_grid
        return CoreGrid(x=x, y=y)

    def compute_with_storage_grid_size(self) -> CoreCoord:
        """Return the columns and rows of cores for programs; each core has a bank of L1."""
        return CoreCoord(*self.system.chip.core_grid)

    def dram_grid_size(self) -> CoreCoord:
        """Return the grid of a chip's DRAM banks, which is one row."""
        return CoreCoord(int(self.system.chip.dram_banks.value), 1)

    def clear_program_cache(self) -> None:
        """Set the number of counted programs back to 0."""
        self.programs.clear()

    disable_and_clear_program_cache = clear_program_cache

    def num_program_cache_entries(self) -> int:
        """Return how many programs a card would have compiled.

        Calls that differ only in their values share a program.
        """
        return len(self.programs)

    def create_sub_device_manager(
        self, sub_devices: Sequence[SubDevice], local_l1_size: int
    ) -> int:
        """Return the id of a division of each chip's cores; the division changes nothing here."""
        return 0

    # Nothing is compiled, and every operation has ended when it returns.
    enable_program_cache = nothing
    load_sub_device_manager = clear_loaded_sub_device_manager = nothing
    remove_sub_device_manager = nothing
    set_sub_device_stall_group = reset_sub_device_stall_group = nothing


@checked
def compute_distribution_to_mesh_mapping(
    distribution_shape: MeshShape, mesh_shape: MeshShape
) -> list[MeshCoordinate]:
    """Return the device of each part of a distribution.

    A distribution that fits the mesh in every dimension starts at the mesh's corner. Any other
    distribution fills the devices in row-major order.
    """
    return [*map(MeshCoordinate, devices_of(tuple(distribution_shape), tuple(mesh_shape), None))]


# ---------------------------------------------------------------- traces
class MeshTraceId(Tape):
    """A captured run: a tape that keeps its tensors, so that a replay can read their new values."""

    def __init__(self, of: MeshDevice):
        super().__init__(keeps=OPERATIONS, before=_refuse_host_data)
        self.of: MeshDevice | None = of  # A trace that was released has no mesh.


def _refuse_host_data(event: Event) -> None:
    """Refuse a call that moves data between a mesh and the host: a trace cannot contain it."""
    kind = OPERATIONS[event.name].kind if event.name in OPERATIONS else ""
    if kind not in ("write", "read"):
        return
    given = [*event.args, *event.kwargs.values()]
    on_a_mesh = any(tensor.mesh is not None for tensor in event.operands)
    if on_a_mesh or any(isinstance(value, MeshDevice) for value in given):
        what = "Writes" if kind == "write" else "Reads"
        rule = f"{what} are not supported during trace capture"
        cure = "move data before begin_trace_capture or after end_trace_capture"
        fail(describe(event.name, event.args, event.kwargs), rule, cure)


def _check_trace(mesh_device: MeshDevice, trace_id: MeshTraceId) -> None:
    mesh_device.check_open()
    if trace_id.of is not mesh_device:
        rule = f"the trace is not one of {mesh_device!r}"
        refuse(rule, "the id that begin_trace_capture gave, before release_trace")


def _end() -> None:
    """End the capture of a trace; at most one capture runs at a time."""
    running[:] = [each for each in running if not isinstance(each, MeshTraceId)]


@checked
def begin_trace_capture(mesh_device: MeshDevice) -> MeshTraceId:
    """Start to record all operations, on any mesh, for a trace of this mesh; each also runs."""
    mesh_device.check_open()
    _end()  # This ends an earlier capture, which the program did not end itself.
    running.append(trace := MeshTraceId(mesh_device))
    return trace


@checked
def end_trace_capture(mesh_device: MeshDevice, trace_id: MeshTraceId) -> None:
    """Stop recording; the trace can be executed now."""
    _check_trace(mesh_device, trace_id)
    _end()


@checked
def execute_trace(mesh_device: MeshDevice, trace_id: MeshTraceId) -> None:
    """Run the recorded operations again, on the present values of their inputs.

    The result tensors of the recorded calls get the new values.
    """
    _check_trace(mesh_device, trace_id)
    if trace_id in running:
        refuse("the trace is still being captured", "ttnn.end_trace_capture first")
    for event in trace_id.events:
        if event.returned and event.name in OPERATIONS:
            again = tensors_in(OPERATIONS[event.name].call(*event.args, **event.kwargs))
            for captured, fresh in zip(event.results, again):
                captured.rebind(fresh._array)


@checked
def release_trace(mesh_device: MeshDevice, trace_id: MeshTraceId) -> None:
    """Delete the events of a trace; after that, the trace cannot be executed."""
    _check_trace(mesh_device, trace_id)
    trace_id.events.clear()
    trace_id.of = None
