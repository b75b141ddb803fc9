"""Start a program: open meshes of the machine, set the fabric, and join the ranks."""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from ttkit.errors import fail
from ttkit.hardware import SYSTEMS, System
from ttkit.hardware.current import descriptor_in_use
from ttkit.hardware.device_order import device_ids
from ttkit.hardware.systems import Coordinate, RowColumn, outside_fabric
from ttkit.sim import ranks
from ttkit.sim.arguments import refuse
from ttkit.sim.mesh import MeshDevice, fabric_setting, opened_meshes, owners_of
from ttkit.sim.ops import checked
from ttkit.sim.ranks import Rank, SharedSystem, Size, binding, machine, visible
from ttkit.sim.ranks.mpi import World, compare, world
from ttkit.sim.tape import TapeWithoutValues, running
from ttkit.sim.tensor import FabricConfig, MeshCoordinate, MeshShape, enumeration, integers
from ttkit.sim.tensor.grid import MeshDeviceView, grid_over
from ttkit.waiting import settings


class SystemMeshDescriptor(MeshDeviceView):
    """The whole machine: its shape and the ids of all devices, also of those that are not open."""

    def __init__(self) -> None:
        self._system = system = machine()
        owners = owners_of(system, [i for row in system.ids for i in row])
        super().__init__(grid_over(system.shape, None, owners))

    def local_shape(self) -> MeshShape:
        """Return the rows and columns of the part that this rank drives."""
        return MeshShape(self._grid.shape)

    def all_local(self) -> bool:
        """Return whether this rank drives every device."""
        return self._grid.local

    def get_device_id(self, coord: MeshCoordinate) -> int:
        """Return the id of the chip at `coord`."""
        return self._system.ids[coord[0]][coord[1]]


def get_device_ids() -> list[int]:
    """Return the ids of the visible devices that this process drives."""
    system = visible()
    return sorted(
        d
        for d in system.coordinate_of
        if not isinstance(system, SharedSystem) or system.host_of[d] == system.host_rank
    )


@partial(checked, note=True)
def open_mesh_device(
    mesh_shape: MeshShape | None = None,
    offset: MeshCoordinate | None = None,
    physical_device_ids: Sequence[int] = (),
) -> MeshDevice:
    """Open chips of the system as a mesh.

    A shape that fits at `offset` opens as it is. Any other shape opens transposed, and
    begins at (0, 0). One row or one column opens as a line around the rim of the
    system. If the rim is too short or `offset` is not on it, the line goes back and
    forth over all rows.

    Args:
        mesh_shape: [rows, columns]; the whole system when left out.
        offset: the corner to start from.
        physical_device_ids: ids of the chips to open, in this order; `offset` has no effect then.

    Raises:
        TTKitError: the shape has no device or too many, or it fits neither as it is nor transposed.

    Example:
        >>> with open_mesh_device(MeshShape(2, 4)) as mesh:
        ...     mesh.get_device_ids()
        [4, 0, 2, 6, 5, 1, 3, 7]
    """
    system, devices = machine(), visible()
    at = "" if offset is None else f", offset={offset!r}"
    asked = f"open_mesh_device({mesh_shape!r}{at}) on a {system.name}"
    ids = integers(physical_device_ids, asked)
    if ids:
        if mesh_shape is None:
            fail(asked, "Mesh shape must be provided when physical device ids are supplied")
        local = get_device_ids()
        for device in ids:
            if device not in local:
                rule = f"Device index {device} out of range. There are {len(local)} devices"
                fail(asked, f"{rule} available.")
            # The descriptor may leave this device out, which does not matter without a fabric.
            if device not in system.coordinate_of:
                if fabric_setting[0] is not FabricConfig.DISABLED:
                    fail(
                        asked,
                        outside_fabric(device),
                        f"a descriptor with all {devices.num_devices} chips; on a machine whose "
                        "cables were never set up: tt-topology -l mesh",
                    )
                system = devices
        if len(ids) != mesh_shape.mesh_size():
            fail(
                asked,
                f"Shape and values size mismatch; shape mesh_size: {mesh_shape.mesh_size()}, "
                f"values size: {len(ids)}",
            )
        shape = tuple(mesh_shape)
    else:
        shape = tuple(mesh_shape or system.shape)
        ids = device_ids(system, shape, tuple(offset or (0, 0)), asked)
    if fabric_setting[0] is not FabricConfig.DISABLED:
        _check_fabric(devices, ids, asked)
    if binding() is not None:
        world()  # As in ttnn, the ranks connect to each other when they open their meshes.
    mesh = MeshDevice(system, ids, shape)
    opened_meshes.append(mesh)
    return mesh


def beside(system: System, shape: Coordinate) -> MeshDevice:
    """Return a mesh of any machine for a `with` block; the meshes in use do not change.

    Unlike `open_mesh_device`, this function does not change the machine, the fabric or the list of
    open meshes. So a lesson can try a placement and leave the reader's own mesh as it is.

    Example:
        >>> from ttkit.hardware import SYSTEMS
        >>> with beside(SYSTEMS["galaxy"], (8, 4)) as mesh:
        ...     mesh.get_num_devices()
        32
    """
    asked = f"open_mesh_device({MeshShape(shape)!r}) on a {system.name}"
    return MeshDevice(system, device_ids(system, shape, (0, 0), asked), shape)


def _check_fabric(devices: System, ids: Iterable[int], asked: str) -> None:
    """Fail where the fabric cannot join several meshes, or where chips would stay inactive."""
    fabric = fabric_setting[0].name
    here = binding()
    descriptor = descriptor_in_use() if here and fabric.startswith("FABRIC_1D") else None
    if descriptor and len(descriptor.meshes) > 1:
        rule = f"!is_1d_fabric || !is_multi_mesh: {fabric} does not join several meshes"
        fail(asked, rule, "ttnn.FabricConfig.FABRIC_2D")
    remote = {chip for card in devices.cards for chip in card[1:]}
    idle = set(devices.coordinate_of) - set(ids)
    # Opening one chip without a PCIe connector makes all chips active, as measured on
    # cards of two chips. A rank with a binding skips this check, because it cannot know
    # which chips the other ranks open.
    if not here and idle and remote and remote.isdisjoint(ids):
        fail(
            asked,
            f"Fabric is being used but Device {min(idle)} is not active. This may indicate "
            "that the fabric was launched on a subset of the devices available in the system, "
            "which is currently not supported. To launch on a subset of devices, first create "
            "a MeshDevice of the full system size, then create submeshes accordingly.",
            f"open all {devices.num_devices} chips and take submeshes, or TT_VISIBLE_DEVICES for "
            "fewer cards",
        )


# In ttnn this is a context manager; here every mesh closes at the end of its `with` block.
create_mesh_device = open_mesh_device
close_mesh_device = checked(MeshDevice.close, "close_mesh_device")
close_device = checked(MeshDevice.close, "close_device")
# The simulator finishes each operation before it returns, so there is nothing to wait for.
synchronize_device = checked(MeshDevice.check_open, "synchronize_device")


@partial(checked, name="CreateDevice")
def open_device(device_id: int) -> MeshDevice:
    """Open one chip as a 1x1 mesh."""
    return open_mesh_device(MeshShape(1, 1), physical_device_ids=[device_id])


def get_num_devices() -> int:
    """Return how many visible devices this process drives."""
    return len(get_device_ids())


def get_pcie_device_ids() -> list[int]:
    """Return the ids of visible devices with a PCIe connection: one of each card."""
    local = get_device_ids()
    return sorted(chips[0] for chips in visible().cards if chips[0] in local)


def get_num_pcie_devices() -> int:
    """Return how many visible cards this process drives."""
    return len(get_pcie_device_ids())


def GetPCIeDeviceID(device_id: int, /) -> int:
    """Return the id of the chip with the PCIe connection on the given chip's card."""
    return next(chips[0] for chips in visible().cards if device_id in chips)


@checked
def set_fabric_config(config: FabricConfig) -> None:
    """Choose how links forward data, for the meshes opened next.

    Closing the last open mesh sets it back to DISABLED.

    Raises:
        TTKitError: a mesh is still open, and `config` is neither its fabric nor DISABLED.
    """
    if opened_meshes and config is not FabricConfig.DISABLED and config is not fabric_setting[0]:
        rule = f"SetFabricConfig({config.name}) is not allowed while devices are still open"
        refuse(rule, "close the mesh first")
    fabric_setting[0] = config


def get_fabric_config() -> FabricConfig:
    """Return how the links of the meshes opened next will forward data."""
    return fabric_setting[0]


# ---------------------------------------------------------------- distributed context
# A process that MPI did not start has a context only after `init_distributed_context`.
_alone = [False]


def _here() -> World | None:
    """Return all ranks, or None where MPI did not start several."""
    return world() if ranks.world_size() > 1 else None


def init_distributed_context() -> None:
    """Find the other ranks; a second call does nothing. Every rank must make the first call."""
    _alone[0] = True
    _here()


def distributed_context_is_initialized() -> bool:
    """Return whether this process has a context.

    This is true after `init_distributed_context`, and in each of several processes that
    MPI started.
    """
    return _alone[0] or ranks.world_size() > 1


def distributed_context_get_rank() -> Rank:
    """Return the number of this rank."""
    here = _here()
    return Rank(here.rank if here else 0)


def distributed_context_get_size() -> Size:
    """Return how many ranks there are.

    Example:
        >>> distributed_context_get_size()  # This process runs alone.
        Size(1)
    """
    return Size(ranks.world_size())


def distributed_context_barrier() -> None:
    """Wait for all ranks."""
    here = _here()
    if here is None:
        return
    if settings.checks:
        compare("distributed_context_barrier()", range(here.size))
    else:
        here.comm.Barrier()


# ---------------------------------------------------------------- what machine this is
# These are ttnn's kinds of machines. The kit's name of the system, if it has one, stands after `=`.
_CLUSTERS = """INVALID N150=n150 N300=n300 T3K=t3000 GALAXY=galaxy TG P100 P150=p150 P150_X2
P150_X4=quietbox_bh SIMULATOR_WORMHOLE_B0 SIMULATOR_BLACKHOLE N300_2x2 P150_X8=loudbox_bh P300=p300
SIMULATOR_QUASAR BLACKHOLE_GALAXY=galaxy_bh P300_X2=p300_x2 CUSTOM"""
_NAMES = {of: word for word, _, of in (each.partition("=") for each in _CLUSTERS.split())}
ClusterType = enumeration("ClusterType", re.sub(r"=\w+", "", _CLUSTERS))


def get_cluster_type():
    """Return the kind of the machine.

    Example:
        >>> get_cluster_type()
        ClusterType.T3K
    """
    return ClusterType[_NAMES.get(visible().name.removesuffix("_torus"), "CUSTOM")]


def using_distributed_env() -> bool:
    """Return whether several ranks drive the machine."""
    return binding() is not None


def is_blackhole(device: MeshDevice | None = None) -> bool:
    """Return whether chips are of the generation Blackhole."""
    return (device.system if device else visible()).chip.arch == "BLACKHOLE"


def is_wormhole_b0(device: MeshDevice | None = None) -> bool:
    """Return whether chips are of the generation Wormhole."""
    return not is_blackhole(device)


class FabricRouterConfig:
    """Settings of the routers of the fabric."""

    max_packet_payload_size_bytes: int | None = None


# ---------------------------------------------------------------- the default device
_default = [None]


def SetDefaultDevice(device=None) -> None:
    """Set the mesh that `GetDefaultDevice` returns."""
    _default[0] = device


def GetDefaultDevice():
    """Return the mesh that `SetDefaultDevice` was given."""
    return _default[0]


# ---------------------------------------------------------------- without values
@contextmanager
def without_values(shape: RowColumn) -> Iterator[tuple[MeshDevice, TapeWithoutValues]]:
    """Open a mesh without values, of any shape, beside the open meshes; record what runs on it.

    Its tensors have shape, type, placement and bytes, and its memory has no practical limit.
    Operations check their arguments, count memory and record collectives as on any mesh, but they
    compute nothing. So the tape shows within milliseconds what a program would do on many chips.
    Inside the block other tapes record nothing, and `last_plan` does not change.

    Example:
        >>> from ttkit import ttnn
        >>> with without_values((8, 4)) as (mesh, calls):
        ...     x = ttnn.zeros([1 << 20, 1 << 20], layout=ttnn.TILE_LAYOUT, device=mesh)
        ...     y = ttnn.all_gather(x, dim=0, cluster_axis=1)
        >>> y.shape, calls.events[-1].in_use
        (Shape([4194304, 1048576]), 10995116277760)
    """
    # Any system serves, because a dry run makes no plans. Only the check of `num_links` in
    # reduce_scatter reads the links of this system.
    mesh = MeshDevice(SYSTEMS["galaxy"], tuple(range(math.prod(shape))), shape, has_values=False)
    mesh.fabric = FabricConfig.FABRIC_2D
    mesh.dram_bytes = 1 << 62
    others = running[:]
    calls = TapeWithoutValues(mesh)
    running[:] = [calls]
    try:
        yield mesh, calls
    finally:
        running[:] = others
        mesh.is_open = False
