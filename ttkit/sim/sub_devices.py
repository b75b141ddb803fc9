"""Sub-devices, semaphores, events and delays: checked and counted.

Every operation of the simulator has ended when it returns, so nothing waits here.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from ttkit.errors import fail
from ttkit.sim.cores import cores_of
from ttkit.sim.enums import BufferType
from ttkit.sim.grid import is_inside
from ttkit.sim.hints import queue, within
from ttkit.sim.operation import checked
from ttkit.sim.types import MeshCoordinateRange


class SubDevice(NamedTuple):
    """Cores that take part together: a set of ranges for each type of core."""

    cores: Sequence[Any]


class SubDeviceManagerId:
    """A division of chips into sub-devices; None when it has been removed."""

    def __init__(self, division: Sequence[SubDevice] | None):
        self.division = division


def _outside(cores: Any, mesh: Any) -> tuple[int, int] | None:
    """Return the first of these cores that the chip has not."""
    grid = mesh.system.chip.core_grid
    return next((core for core in cores_of(cores) if not is_inside(core, grid)), None)


class SubDevices:
    """What a mesh knows of its sub-devices: one, of all cores, until a manager is loaded."""

    sub_devices: Sequence[Any] = (None,)

    @checked("create_sub_device_manager")
    def create_sub_device_manager(
        self, sub_devices: Sequence[SubDevice], local_l1_size: int
    ) -> SubDeviceManagerId:
        """Return a division, which `load_sub_device_manager` takes.

        Raises:
            TTKitError: no sub-devices, cores that the chip has not or that two of them have.
        """
        asked, sets = "create_sub_device_manager", [c for each in sub_devices for c in each.cores]
        if not sets:
            fail(asked, "sub_device_ids to stall must not be empty", "[ttnn.SubDevice([cores])]")
        for cores in sets:
            if _outside(cores, self):
                rule = f"Tensix cores {cores} specified in sub device must be within device grid"
                x, y = self.system.chip.core_grid  # type: ignore[attr-defined]
                cure = "mesh.compute_with_storage_grid_size()"
                fail(asked, f"{rule} [0-0 - {x - 1}-{y - 1}]", cure)
        for a, b in itertools.combinations(sets, 2):
            if a.subtract(b).num_cores() != a.num_cores():
                rule = f"SubDevices specified for SubDeviceManager intersect: {a} and {b}"
                fail(asked, rule, "each core in one of them")
        return SubDeviceManagerId(tuple(sub_devices))

    @checked("load_sub_device_manager")
    def load_sub_device_manager(self, sub_device_manager_id: SubDeviceManagerId) -> None:
        """Divide the chips in this way."""
        if sub_device_manager_id.division is None:
            rule = "Sub device manager does not exist"
            fail("load_sub_device_manager", rule, "create it again")
        self.sub_devices = sub_device_manager_id.division

    @checked("remove_sub_device_manager")
    def remove_sub_device_manager(self, sub_device_manager_id: SubDeviceManagerId) -> None:
        """Forget a division, which must not be the one in use."""
        if sub_device_manager_id.division is self.sub_devices:
            rule = "Cannot remove active sub device manager"
            fail("remove_sub_device_manager", rule, "clear_loaded_sub_device_manager first")
        sub_device_manager_id.division = None

    def clear_loaded_sub_device_manager(self) -> None:
        """Let each chip be one sub-device again."""
        self.sub_devices = (None,)

    def set_sub_device_stall_group(self, sub_device_ids: Sequence[Any]) -> None:
        """Let the host wait for these only."""
        asked = "set_sub_device_stall_group"
        if not sub_device_ids:
            fail(asked, "sub_device_ids to stall must not be empty", "[ttnn.SubDeviceId(0)]")
        within(asked, self, *sub_device_ids)

    def reset_sub_device_stall_group(self) -> None:
        """Let the host wait for all sub-devices."""


class global_semaphore:
    """A counter in the L1 of cores, at one address on every chip."""

    def __init__(self, cores: Any, value: int):
        self.cores, self.value = cores, value


@checked("create_global_semaphore")
def create_global_semaphore(
    mesh_device: Any, cores: Any, initial_value: int, buffer_type: BufferType = BufferType.L1
) -> global_semaphore:
    """Return a semaphore for the async collectives.

    Raises:
        TTKitError: cores that the chip has not; a buffer that is not in L1.
    """
    asked = "create_global_semaphore"
    if buffer_type is BufferType.DRAM:
        fail(asked, "Global semaphore can only be created for L1 buffer types", "BufferType.L1")
    if core := _outside(cores, mesh_device):
        x, y = mesh_device.system.chip.core_grid
        rule = f"Invalid shard grid: shard core {core} has no L1 bank on this device, which has"
        fail(asked, f"{rule} {x * y} of them", "mesh.compute_with_storage_grid_size()")
    return global_semaphore(cores, initial_value)


@checked("reset_global_semaphore_value")
def reset_global_semaphore_value(global_semaphore: global_semaphore, reset_value: int) -> None:
    """Set the counter."""
    global_semaphore.value = reset_value


class MeshEvent(NamedTuple):
    """A point of a command queue."""

    id: int
    device_id: int
    mesh_cq_id: int
    device_range: MeshCoordinateRange


@checked("record_event")
def record_event(
    mesh_device: Any,
    cq_id: Any = None,
    sub_device_ids: Sequence[Any] = (),
    device_range: MeshCoordinateRange | None = None,
) -> MeshEvent:
    """Return an event that has happened when all that was queued so far has ended."""
    within("record_event", mesh_device, *sub_device_ids)
    whole = device_range or MeshCoordinateRange(mesh_device.shape)
    return MeshEvent(0, 0, queue("record_event", cq_id), whole)


@checked("event_synchronize")
def event_synchronize(mesh_event: MeshEvent) -> None:
    """Let the host wait for an event."""


def wait_for_event(cq_id: Any = None, mesh_event: Any = None) -> None:
    """Let a command queue wait for an event of another one."""
    queue("wait_for_event", cq_id)
    event_synchronize(mesh_event)


def apply_device_delay(
    mesh_device: Any, delays: Sequence[Sequence[int]], *, subdevice_id: Any = None
) -> None:
    """Let each chip wait for so many cycles, a number for each chip."""
    asked, (rows, columns) = "apply_device_delay", mesh_device.shape
    within(asked, mesh_device, subdevice_id)
    if len(delays) != rows:
        fail(asked, f"delays rows ({len(delays)}) must match mesh rows ({rows})")
    for i, row in enumerate(delays):
        if len(row) != columns:
            rule = f"delays cols for row {i} ({len(row)}) must match mesh cols ({columns})"
            fail(asked, rule)
    mesh_device.programs.add(asked)


_default: list[Any] = [None]


def SetDefaultDevice(device: Any = None) -> None:
    """Keep a mesh for programs that ask for it."""
    _default[0] = device


def GetDefaultDevice() -> Any:
    """Return the mesh that `SetDefaultDevice` was given."""
    return _default[0]


def ReadDeviceProfiler(device: Any) -> None:
    """Read nothing: `ttkit.profile` has the calls with their modelled times."""
