"""The namespace: its public names are ttnn's, for the part that the simulator covers.

The operations come from the one table, which each module fills; the rest is imported name by name.
"""

# ruff: noqa: F401
import difflib as _difflib
from types import SimpleNamespace as _SimpleNamespace
from typing import Any as _Any

from ttkit.errors import fail as _fail
from ttkit.lazy import drawing as _drawing
from ttkit.sim import hints as _hints
from ttkit.sim import models as _models
from ttkit.sim.collectives import async_forms as _ccl_async
from ttkit.sim.collectives import ccl as _ccl
from ttkit.sim.hints import (
    DispatchCoreConfig,
    MeshEvent,
    QueueId,
    ReadDeviceProfiler,
    SubDevice,
    SubDeviceId,
    SubDeviceManagerId,
    apply_device_delay,
    create_global_semaphore,
    event_synchronize,
    get_arch_name,
    init_device_compute_kernel_config,
    record_event,
    reset_global_semaphore_value,
    wait_for_event,
)
from ttkit.sim.mesh import (
    MeshDevice,
    MeshTraceId,
    begin_trace_capture,
    compute_distribution_to_mesh_mapping,
    end_trace_capture,
    execute_trace,
    release_trace,
)
from ttkit.sim.mesh import opening as _opening
from ttkit.sim.mesh.opening import (
    FabricRouterConfig,
    GetDefaultDevice,
    GetPCIeDeviceID,
    SetDefaultDevice,
    close_device,
    close_mesh_device,
    create_mesh_device,
    distributed_context_barrier,
    distributed_context_get_rank,
    distributed_context_get_size,
    distributed_context_is_initialized,
    get_device_ids,
    get_fabric_config,
    get_num_devices,
    get_num_pcie_devices,
    get_pcie_device_ids,
    init_distributed_context,
    open_device,
    open_mesh_device,
    set_fabric_config,
    synchronize_device,
    using_distributed_env,
)
from ttkit.sim.mesh.opening import SystemMeshDescriptor as _SystemMeshDescriptor
from ttkit.sim.models import cache as _cache
from ttkit.sim.models import experts as _experts
from ttkit.sim.models import heads as _heads
from ttkit.sim.models import norms as _nn
from ttkit.sim.ops import binary as _binary
from ttkit.sim.ops import reductions as _reductions
from ttkit.sim.ops.filling import allocate_tensor_on_device
from ttkit.sim.ops.movement import (
    aggregate_tensor,
    combine_device_tensors,
    distribute_tensor,
    from_host_shards,
    get_device_tensors,
)
from ttkit.sim.ops.operation import OPERATIONS as _OPERATIONS
from ttkit.sim.ranks.sockets import (
    MeshCoreCoord,
    MeshSocket,
    SocketConfig,
    SocketConnection,
    SocketEndpoint,
    SocketMemoryConfig,
    create_socket_pair,
)
from ttkit.sim.tensor.creation import as_tensor, dump_tensor, load_tensor, to_torch
from ttkit.sim.tensor.distribution import (
    ConcatMesh2dToTensor,
    ConcatMeshToTensor,
    CppMeshToTensor,
    CppTensorToMesh,
    MeshToTensor,
    ReplicateTensorToMesh,
    ShardTensor2dMesh,
    ShardTensorToMesh,
    TensorToMesh,
    concat_mesh_to_tensor_composer,
    create_mesh_composer,
    create_mesh_mapper,
    distribute,
    replicate_tensor_to_mesh_mapper,
    shard_tensor_to_mesh_mapper,
)
from ttkit.sim.tensor.enums import (
    ROW_MAJOR_LAYOUT,
    TILE_LAYOUT,
    TILE_SIZE,
    Arch,
    BcastOpDim,
    BcastOpMath,
    BufferType,
    DataType,
    DispatchCoreAxis,
    DispatchCoreType,
    FabricConfig,
    FabricManagerMode,
    FabricReliabilityMode,
    FabricTensixConfig,
    FabricUDMMode,
    GeluVariant,
    Layout,
    MathFidelity,
    ReduceType,
    ShardDistributionStrategy,
    ShardOrientation,
    ShardStrategy,
    StorageType,
    TensorMemoryLayout,
    ThrottleLevel,
    Topology,
    UnaryOpType,
    UnaryWithParam,
    bfloat4_b,
    bfloat8_b,
    bfloat16,
    float32,
    fp8_e4m3,
    int8,
    int32,
    uint8,
    uint16,
    uint32,
)
from ttkit.sim.tensor.grid import MeshDeviceView as _MeshDeviceView
from ttkit.sim.tensor.grid import TensorTopology
from ttkit.sim.tensor.memory import Tile, element_size
from ttkit.sim.tensor.methods import add_to_tensor as _add_to_tensor
from ttkit.sim.tensor.sharding import (
    DRAM_MEMORY_CONFIG,
    L1_BLOCK_SHARDED_MEMORY_CONFIG,
    L1_HEIGHT_SHARDED_MEMORY_CONFIG,
    L1_MEMORY_CONFIG,
    L1_WIDTH_SHARDED_MEMORY_CONFIG,
    CoreCoord,
    CoreGrid,
    CoreRange,
    CoreRangeSet,
    MemoryConfig,
    NdShardSpec,
    ShardSpec,
    create_sharded_memory_config,
    num_cores_to_corerangeset,
    num_cores_to_corerangeset_in_subcoregrids,
)
from ttkit.sim.tensor.tensor import Tensor, is_tensor_storage_on_device
from ttkit.sim.tensor.types import (
    MeshComposerConfig,
    MeshCoordinate,
    MeshCoordinateRange,
    MeshMapperConfig,
    MeshShape,
    PlacementReplicate,
    PlacementShard,
    Rank,
    Shape,
    Size,
)

get_memory_config, is_sharded = Tensor.memory_config, Tensor.is_sharded
globals().update(_hints.RECORDS)
Device = MeshDevice
CloseDevice, CreateDevice = close_device, open_device
GetNumAvailableDevices, GetNumPCIeDevices = get_num_devices, get_num_pcie_devices
_calls = {name: record.call for name, record in _OPERATIONS.items()}
_calls |= {"sub": _calls["subtract"], "mul": _calls["multiply"], "div": _calls["divide"]}
_calls["clip"] = _calls["clamp"]
_calls.pop("to_numpy")  # Its public name is `ttkit.to_numpy`.
globals().update({name: call for name, call in _calls.items() if "." not in name})


def _missing(name: str) -> _Any:
    """Raise for a missing name; name the closest one, and where to add an operation."""
    names = [*_calls, *(name for name in globals() if not name.startswith("_"))]
    close = _difflib.get_close_matches(name, names, 1, 0.5)
    rule = "the simulator has no such name" + (f"; the closest is ttnn.{close[0]}" if close else "")
    cure = (
        "a row in ttkit/sim/ops/unary.py or binary.py, or a function with @operation beside those"
    )
    _fail(f"ttnn.{name}", rule, f"{cure} that are alike (CONTRIBUTING.md)", AttributeError)


def _inner(prefix: str) -> _Any:
    """A namespace in ttnn."""

    class Inner(_SimpleNamespace):
        def __getattr__(self, name: str) -> _Any:
            if name.startswith("_"):
                raise AttributeError(name)
            return _missing(prefix + name)

    calls = {name: call for name, call in _calls.items() if name.startswith(prefix)}
    return Inner(**{name.removeprefix(prefix): call for name, call in calls.items()})


def __getattr__(name: str) -> _Any:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _missing(name)


_ttnn = _SimpleNamespace(
    multi_device=_SimpleNamespace(
        SystemMeshDescriptor=_SystemMeshDescriptor,
        MeshDeviceView=_MeshDeviceView,
        MeshDevice=MeshDevice,
    ),
    tensor=_SimpleNamespace(
        MemoryConfig=MemoryConfig,
        dump_tensor_flatbuffer=dump_tensor,
        load_tensor_flatbuffer=load_tensor,
    ),
    fabric=_SimpleNamespace(FabricConfig=FabricConfig, FabricRouterConfig=FabricRouterConfig),
    operations=_SimpleNamespace(
        point_to_point=_SimpleNamespace(
            p2p_compute_intermediate_tensor_spec=lambda tensor, *ends: tensor.spec
        )
    ),
)
_words = """Arch CloseDevice CreateDevice Device DispatchCoreAxis
DispatchCoreConfig DispatchCoreType GetDefaultDevice GetNumAvailableDevices GetNumPCIeDevices
GetPCIeDeviceID ReadDeviceProfiler SetDefaultDevice SubDevice SubDeviceId SubDeviceManagerId
close_device init_device_compute_kernel_config open_device synchronize_device"""
device = _SimpleNamespace(
    is_blackhole=_opening.is_blackhole,
    is_wormhole_b0=_opening.is_wormhole_b0,
    **{name: globals()[name] for name in _words.split()},
)
cluster = _SimpleNamespace(
    ClusterType=_opening.ClusterType, get_cluster_type=_opening.get_cluster_type
)
transformer, experimental = _inner("transformer."), _inner("experimental.")
kv_cache = _inner("kv_cache.")
model_preprocessing = _SimpleNamespace(
    ParameterDict=_nn.ParameterDict,
    preprocess_linear_bias=_nn.preprocess_linear_bias,
    preprocess_linear_weight=_nn.preprocess_linear_weight,
    preprocess_model_parameters=_nn.preprocess_model_parameters,
)


def get_fallback_function(operation: _Any) -> _Any:
    """Return what computes an operation on the host: here itself, as NumPy computes them all."""
    if operation not in _calls.values():
        _fail("get_fallback_function", f"{operation!r} does not have a golden function", "ttnn.add")
    return operation


def visualize_system_mesh() -> None:
    """Print the machine as a table."""
    _drawing("tables.visualize_system_mesh")()


def visualize_mesh_device(mesh_device: MeshDevice) -> None:
    """Print a mesh as a table."""
    _drawing("tables.visualize_mesh_device")(mesh_device)


def visualize_tensor(tensor: Tensor) -> None:
    """Print a tensor's placement as a table."""
    _drawing("tables.visualize_tensor")(tensor)


_add_to_tensor()
