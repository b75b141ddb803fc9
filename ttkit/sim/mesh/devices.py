"""Names of ttnn by which programs for one card, and test fixtures, ask for devices."""

from __future__ import annotations

from typing import Any

from ttkit.errors import fail
from ttkit.sim.mesh import opening
from ttkit.sim.mesh.mesh import MeshDevice
from ttkit.sim.ranks import part_of_mesh
from ttkit.sim.tensor.enums import _Enum
from ttkit.sim.tensor.tensor import Tensor

# kinds of machines, and this kit's name of each
CLUSTERS = """INVALID N150=n150 N300=n300 T3K=t3000 GALAXY=galaxy TG P100 P150=p150 P150_X2
P150_X4=quietbox_bh SIMULATOR_WORMHOLE_B0 SIMULATOR_BLACKHOLE N300_2x2 P150_X8=loudbox_bh P300=p300
SIMULATOR_QUASAR BLACKHOLE_GALAXY=galaxy_bh P300_X2=p300_x2 CUSTOM""".split()
_NAMES = {of: word for word, _, of in (cluster.partition("=") for cluster in CLUSTERS)}
ClusterType: Any = _Enum(  # type: ignore[call-arg]
    "ClusterType", [cluster.partition("=")[0] for cluster in CLUSTERS], start=0, module=__name__
)


def get_cluster_type() -> Any:
    """Return the kind of the machine, as ClusterType.T3K.

    Example:
        >>> get_cluster_type()
        ClusterType.T3K
    """
    name = part_of_mesh.visible().name.removesuffix("_torus")
    return ClusterType[_NAMES.get(name, "CUSTOM")]


def using_distributed_env() -> bool:
    """True where several ranks drive the machine."""
    return part_of_mesh.binding() is not None


def is_blackhole(device: MeshDevice | None = None) -> bool:
    """True where chips are of the generation Blackhole."""
    return part_of_mesh.visible().chip.arch == "BLACKHOLE"


def is_wormhole_b0(device: MeshDevice | None = None) -> bool:
    """True where chips are of the generation Wormhole."""
    return not is_blackhole()


def GetPCIeDeviceID(device_id: int, /) -> int:
    """Return the id of the chip whose PCIe connection reaches this one."""
    cards = [card for card in part_of_mesh.visible().cards if device_id in card]
    if not cards:
        fail(f"GetPCIeDeviceID({device_id})", f"Device {device_id} not found", "get_device_ids()")
    return min(cards[0])


def CreateDevice(device_id: int, num_command_queues: int = 1, *args: Any, **how: Any) -> MeshDevice:
    """Open one chip as a 1x1 mesh."""
    return opening.open_device(device_id, *args, **how)


class FabricRouterConfig:
    """Settings of the routers of the fabric."""

    max_packet_payload_size_bytes: int | None = None


def is_tensor_storage_on_device(tensor: Tensor) -> bool:
    """True where a tensor lies on a mesh."""
    return tensor.mesh is not None


_default: list[Any] = [None]


def SetDefaultDevice(device: Any = None) -> None:
    """Keep a mesh for programs that ask for it."""
    _default[0] = device


def GetDefaultDevice() -> Any:
    """Return the mesh that `SetDefaultDevice` was given."""
    return _default[0]
