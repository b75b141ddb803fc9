"""Names of ttnn by which programs for one card, and test fixtures, ask for devices."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ttkit.errors import fail
from ttkit.sim import opening, ranks
from ttkit.sim.enums import BufferType, DataType, _Enum
from ttkit.sim.memory import TILE_BYTES, bytes_of
from ttkit.sim.mesh import MeshDevice
from ttkit.sim.tensor import Tensor

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
    name = ranks.visible().name.removesuffix("_torus")
    return ClusterType[_NAMES.get(name, "CUSTOM")]


def using_distributed_env() -> bool:
    """True where several ranks drive the machine."""
    return ranks.binding() is not None


def is_blackhole(device: MeshDevice | None = None) -> bool:
    """True where chips are of the generation Blackhole."""
    return ranks.visible().chip.arch == "BLACKHOLE"


def is_wormhole_b0(device: MeshDevice | None = None) -> bool:
    """True where chips are of the generation Wormhole."""
    return not is_blackhole()


def GetPCIeDeviceID(device_id: int, /) -> int:
    """Return the id of the chip whose PCIe connection reaches this one."""
    cards = [card for card in ranks.visible().cards if device_id in card]
    if not cards:
        fail(f"GetPCIeDeviceID({device_id})", f"Device {device_id} not found", "get_device_ids()")
    return min(cards[0])


def CreateDevice(device_id: int, num_command_queues: int = 1, *args: Any, **how: Any) -> MeshDevice:
    """Open one chip as a 1x1 mesh."""
    return opening.open_device(device_id, *args, **how)


class FabricRouterConfig:
    """Settings of the routers of the fabric."""

    max_packet_payload_size_bytes: int | None = None


def get_memory_view(device: MeshDevice, buffer_type: BufferType) -> SimpleNamespace:
    """Return how many banks of DRAM or L1 a chip has, and the bytes of each."""
    grid = device.compute_with_storage_grid_size()
    banks, size = grid.x * grid.y, device.l1_bytes
    if buffer_type is BufferType.DRAM:
        banks = device.dram_grid_size().x
        size = device.dram_bytes // banks
    return SimpleNamespace(num_banks=banks, total_bytes_per_bank=size)


def is_tensor_storage_on_device(tensor: Tensor) -> bool:
    """True where a tensor lies on a mesh."""
    return tensor.mesh is not None


def element_size(dtype: DataType, /) -> int:
    """Return the bytes of an element; numbers of a block float share an exponent."""
    if dtype in TILE_BYTES:
        fail(f"element_size({dtype!r})", "datum for bfp4, bfp8 is invalid", "Tile.get_tile_size")
    return bytes_of((1,), dtype)
