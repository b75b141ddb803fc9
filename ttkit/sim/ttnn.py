"""The namespace: its public names are exactly ttnn's, for the part of ttnn that the simulator covers.

The operations come from the table in which each of these modules enters its own; the rest is imported name by name.
"""

# ruff: noqa: F401
from types import SimpleNamespace as _SimpleNamespace

from ttkit.sim import attention as _attention
from ttkit.sim import backward as _backward
from ttkit.sim import binary as _binary
from ttkit.sim import ccl as _ccl
from ttkit.sim import creation as _creation
from ttkit.sim import filling as _filling
from ttkit.sim import matmul as _matmul
from ttkit.sim import movement as _movement
from ttkit.sim import nn as _nn
from ttkit.sim import preprocessing as _preprocessing
from ttkit.sim import quotients as _quotients
from ttkit.sim import reductions as _reductions
from ttkit.sim import shaping as _shaping
from ttkit.sim import ternary as _ternary
from ttkit.sim import unary as _unary
from ttkit.sim.context import (
    Rank,
    distributed_context_allgather_int,
    distributed_context_barrier,
    distributed_context_get_rank,
    distributed_context_get_size,
    distributed_context_is_initialized,
    distributed_context_local_to_world_rank,
    distributed_context_recv_bytes,
    distributed_context_send_bytes,
    distributed_context_subcontext_count,
    distributed_context_subcontext_id,
    distributed_context_subcontext_size,
    distributed_context_subcontext_sizes,
    distributed_context_world_rank,
    distributed_context_world_size,
    init_distributed_context,
    using_distributed_env,
)
from ttkit.sim.creation import as_tensor, is_tensor_storage_on_device, to_torch
from ttkit.sim.dispatch import OPERATIONS as _OPERATIONS
from ttkit.sim.distribution import (
    ConcatMesh2dToTensor,
    ConcatMeshToTensor,
    CppMeshToTensor,
    CppTensorToMesh,
    MeshToTensor,
    ReplicateTensorToMesh,
    ReplicateTensorToMeshWrapper,
    ShardTensor2dMesh,
    ShardTensorToMesh,
    TensorToMesh,
    aggregate_tensor,
    compute_distribution_to_mesh_mapping,
    concat_mesh_to_tensor_composer,
    create_mesh_composer,
    create_mesh_mapper,
    distribute,
    distribute_tensor,
    replicate_tensor_to_mesh_mapper,
    shard_tensor_to_mesh_mapper,
)
from ttkit.sim.enums import (
    DRAM_MEMORY_CONFIG,
    L1_MEMORY_CONFIG,
    ROW_MAJOR_LAYOUT,
    TILE_LAYOUT,
    TILE_SIZE,
    Arch,
    BufferType,
    DataType,
    EmbeddingsType,
    FabricConfig,
    FabricManagerMode,
    FabricReliabilityMode,
    FabricTensixConfig,
    FabricUDMMode,
    GeluVariant,
    Layout,
    MathFidelity,
    MemoryConfig,
    SigmoidMode,
    StorageType,
    TensorMemoryLayout,
    Topology,
    UnaryOpType,
    UnaryWithParam,
    bfloat4_b,
    bfloat8_b,
    bfloat16,
    float32,
    int8,
    int32,
    uint8,
    uint16,
    uint32,
)
from ttkit.sim.mesh import MeshDevice
from ttkit.sim.mesh import MeshDeviceView as _MeshDeviceView
from ttkit.sim.opening import SystemMeshDescriptor as _SystemMeshDescriptor
from ttkit.sim.opening import (
    close_device,
    close_mesh_device,
    create_mesh_device,
    get_device_ids,
    get_fabric_config,
    get_num_devices,
    get_num_pcie_devices,
    manage_device,
    open_device,
    open_mesh_device,
    set_fabric_config,
    synchronize_device,
)
from ttkit.sim.printing import set_printoptions
from ttkit.sim.shaping import get_item as _get_item
from ttkit.sim.shards import combine_device_tensors, from_host_shards, get_device_tensors
from ttkit.sim.sockets import (
    CoreCoord,
    MeshCoreCoord,
    MeshSocket,
    SocketConfig,
    SocketConnection,
    SocketEndpoint,
    SocketMemoryConfig,
    create_socket_pair,
)
from ttkit.sim.sockets import recv_async as _recv_async
from ttkit.sim.sockets import send_async as _send_async
from ttkit.sim.tensor import Tensor
from ttkit.sim.trace import MeshTraceId, begin_trace_capture, end_trace_capture, execute_trace, release_trace
from ttkit.sim.types import (
    MeshComposerConfig,
    MeshCoordinate,
    MeshCoordinateRange,
    MeshMapperConfig,
    MeshShape,
    PlacementReplicate,
    PlacementShard,
    Shape,
    TensorTopology,
)

_ELSEWHERE = ("recv_async", "send_async", "to_numpy")  # under ttnn.experimental; ours, behind ttkit.to_numpy
globals().update({name: call for name, call in _OPERATIONS.items() if "." not in name and name not in _ELSEWHERE})
sub, mul, div = (_OPERATIONS[name] for name in ("subtract", "multiply", "divide"))


def _within(prefix: str) -> dict[str, object]:
    return {name.removeprefix(prefix): call for name, call in _OPERATIONS.items() if name.startswith(prefix)}


_ttnn = _SimpleNamespace(multi_device=_SimpleNamespace(SystemMeshDescriptor=_SystemMeshDescriptor, MeshDeviceView=_MeshDeviceView, MeshDevice=MeshDevice))
device = _SimpleNamespace(Arch=Arch)
transformer = _SimpleNamespace(**_within("transformer."))
experimental = _SimpleNamespace(**_within("experimental."), recv_async=_recv_async, send_async=_send_async)
model_preprocessing = _SimpleNamespace(
    ParameterDict=_preprocessing.ParameterDict,
    ParameterList=_preprocessing.ParameterList,
    preprocess_embedding_weight=_preprocessing.preprocess_embedding_weight,
    preprocess_layernorm_parameter=_preprocessing.preprocess_layernorm_parameter,
    default_preprocessor=_preprocessing.default_preprocessor,
    make_parameter_dict=_preprocessing.make_parameter_dict,
    preprocess_linear_bias=_preprocessing.preprocess_linear_bias,
    preprocess_linear_weight=_preprocessing.preprocess_linear_weight,
    preprocess_model_parameters=_preprocessing.preprocess_model_parameters,
)


def visualize_system_mesh() -> None:
    """Print the machine as a table."""
    from ttkit.visualize.tables import visualize_system_mesh

    visualize_system_mesh()


def visualize_mesh_device(mesh_device: MeshDevice) -> None:
    """Print a mesh as a table."""
    from ttkit.visualize.tables import visualize_mesh_device

    visualize_mesh_device(mesh_device)


def visualize_tensor(tensor: Tensor) -> None:
    """Print a tensor's placement as a table."""
    from ttkit.visualize.tables import visualize_tensor

    visualize_tensor(tensor)


def _operators() -> None:
    """Let tensors be added, multiplied, compared and indexed with Python's operators, as ttnn's can."""
    table = _OPERATIONS
    swap = lambda f: lambda a, b: f(b, a)  # noqa: E731
    pairs = {"add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide"}
    for word, name in pairs.items():
        setattr(Tensor, f"__{word}__", lambda a, b, f=table[name]: f(a, b))
        setattr(Tensor, f"__r{word}__", swap(table[name]))
    for word in ("eq", "ne", "lt", "le", "gt", "ge"):
        setattr(Tensor, f"__{word}__", lambda a, b, f=table[word]: f(a, b))
    setattr(Tensor, "__matmul__", lambda a, b: table["matmul"](a, b))  # noqa: B010
    setattr(Tensor, "__getitem__", _get_item)  # noqa: B010


_operators()
