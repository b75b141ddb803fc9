"""The simulator's `ttnn`: the public names of this module are names of ttnn.

The operations come from the table `OPERATIONS`, which the modules of the simulator fill. `_HELD`
lists the other names by module.
"""

import contextlib as _contextlib
from collections import abc as _abc
from copy import copy as _copy
from pkgutil import resolve_name as _resolve_name
from types import SimpleNamespace as _SimpleNamespace
from typing import Any as _Any

from ttkit import errors as _errors
from ttkit.lazy import attach as _attach
from ttkit.sim import hints as _hints
from ttkit.sim.mesh import opening as _opening
from ttkit.sim.models import norms as _norms
from ttkit.sim.ops import OPERATIONS as _OPERATIONS
from ttkit.sim.signatures import CLASSES as _CLASSES
from ttkit.sim.tape import tape as _tape
from ttkit.sim.tensor import grid as _grid
from ttkit.sim.tensor.tensor import Tensor as _Tensor

# When one of these modules is imported, it enters its operations into `OPERATIONS`.
for _name in "models.experts models.heads ops.complex ops.gradients".split():
    _resolve_name(f"ttkit.sim.{_name}")
# Each line has a module and names that this module defines.
_HELD = """
hints                DispatchCoreConfig ReadDeviceProfiler SubDevice SubDeviceId apply_device_delay
hints                create_global_circular_buffer create_global_semaphore event_synchronize
hints                get_arch_name get_global_semaphore_address
hints                init_device_compute_kernel_config record_event
hints                reset_global_semaphore_value wait_for_event
mesh                 MeshDevice MeshTraceId begin_trace_capture
mesh                 compute_distribution_to_mesh_mapping end_trace_capture execute_trace
mesh                 release_trace
mesh.opening         FabricRouterConfig GetDefaultDevice GetPCIeDeviceID SetDefaultDevice
mesh.opening         close_device close_mesh_device create_mesh_device distributed_context_barrier
mesh.opening         distributed_context_get_rank distributed_context_get_size
mesh.opening         distributed_context_is_initialized get_device_ids get_fabric_config
mesh.opening         get_num_devices get_num_pcie_devices get_pcie_device_ids
mesh.opening         init_distributed_context open_device open_mesh_device set_fabric_config
mesh.opening         synchronize_device using_distributed_env
models.norms         create_group_norm_input_mask create_group_norm_weight_bias_rm
models.norms         create_group_norm_input_negative_mask dram_group_norm_params_from_torch
ops.filling          allocate_tensor_on_device
ops.golden           get_golden_function
ops.movement         aggregate_tensor combine_device_tensors distribute_tensor from_host_shards
ops.movement         get_device_tensors
ops.reductions       LossReductionMode
ranks                Rank Size
ranks.sockets        MeshCoreCoord MeshSocket SocketConfig SocketConnection SocketEndpoint
ranks.sockets        SocketMemoryConfig create_socket_pair
tensor               Arch BcastOpDim BcastOpMath BufferType DataType DispatchCoreAxis
tensor               DispatchCoreType FabricConfig FabricManagerMode FabricReliabilityMode
tensor               FabricTensixConfig FabricUDMMode GeluVariant Layout MathFidelity
tensor               MeshCoordinate MeshCoordinateRange MeshShape PlacementReplicate PlacementShard
tensor               ROW_MAJOR_LAYOUT ReduceType Shape ShardDistributionStrategy ShardOrientation
tensor               ShardShapeAlignment ShardStrategy StorageType TILE_LAYOUT TILE_SIZE
tensor               TensorMemoryLayout
tensor               TensorTopology ThrottleLevel Topology UnaryOpType UnaryWithParam bfloat16
tensor               bfloat4_b bfloat8_b float32 int32 int8 uint16 uint32 uint8
tensor.creation      as_tensor dump_tensor load_tensor to_torch
tensor.distribution  ConcatMesh2dToTensor ConcatMeshToTensor CppMeshToTensor CppTensorToMesh
tensor.distribution  MeshComposerConfig MeshMapperConfig MeshToTensor ReplicateTensorToMesh
tensor.distribution  ShardTensor2dMesh ShardTensorToMesh TensorToMesh
tensor.distribution  concat_mesh_to_tensor_composer create_mesh_composer create_mesh_mapper
tensor.distribution  distribute replicate_tensor_to_mesh_mapper shard_tensor_to_mesh_mapper
tensor.sharding      CoreCoord CoreGrid CoreRange CoreRangeSet DRAM_MEMORY_CONFIG
tensor.sharding      L1_BLOCK_SHARDED_MEMORY_CONFIG L1_HEIGHT_SHARDED_MEMORY_CONFIG
tensor.sharding      L1_MEMORY_CONFIG L1_WIDTH_SHARDED_MEMORY_CONFIG MemoryConfig NdShardSpec
tensor.sharding      ShardSpec TensorSpec create_sharded_memory_config num_cores_to_corerangeset
tensor.sharding      num_cores_to_corerangeset_in_subcoregrids
tensor.dtypes        Tile element_size
tensor.tensor        Tensor is_tensor_storage_on_device
"""
_load, _names, _ = _attach(__name__, _HELD, "ttkit.sim")
for _name in _names():
    _load(_name)
# Each of these is another name for the object that is named after `=`.
_ALIASES = """CloseDevice=close_device CreateDevice=open_device Device=MeshDevice
DeviceComputeKernelConfig=WormholeComputeKernelConfig GetNumAvailableDevices=get_num_devices
GetNumPCIeDevices=get_num_pcie_devices clip=clamp div=divide div_=divide_ mul=multiply
mul_=multiply_ sub=subtract sub_=subtract_"""
# Programs of December 2025 use the keys. The values are the names of the same objects in ttnn
# 0.81.1.
_OLDER = {"LayerNormDistributedDefaultProgramConfig": "LayerNormDefaultProgramConfig"}
get_memory_config = _Tensor.memory_config
is_sharded = _Tensor.is_sharded
_calls = {name: record.call for name, record in _OPERATIONS.items()}
_calls.pop("to_numpy")  # Its public name is `ttkit.to_numpy`.
globals().update(_hints.RECORDS | {name: call for name, call in _calls.items() if "." not in name})
for _alias in _ALIASES.split():
    _name, _other = _alias.split("=")
    globals()[_name] = globals()[_other]


def _missing(name: str, among: _abc.Iterable[str]) -> _Any:
    """Raise an AttributeError with the closest name and with the place to add an operation."""
    if name.rpartition(".")[2].startswith("_"):
        raise AttributeError(f"module 'ttnn' has no attribute {name!r}")
    rule = (
        f"the simulator has no such name{_errors.nearest(name, among, '; the closest is ttnn.{}')}"
    )
    cure = (
        "a row in ttkit/sim/ops/unary.py or binary.py, or a function with @operation beside those"
    )
    _errors.fail(
        f"ttnn.{name}", rule, f"{cure} that are alike (docs/architecture.md)", AttributeError
    )


class _Space(_SimpleNamespace):
    """A namespace in ttnn."""

    def __init__(self, prefix: str, members: dict[str, _Any]):
        super().__init__(**members)
        self._prefix = prefix

    def __getattr__(self, name: str) -> _Any:
        known = [self._prefix + each for each in vars(self) if not each.startswith("_")]
        return _missing(self._prefix + name, [*known, *_calls])


def _inner(prefix: str) -> _Space:
    """Return the operations of a namespace."""
    inside = [name for name in _calls if name.startswith(prefix)]
    return _Space(prefix, {name.removeprefix(prefix): _calls[name] for name in inside})


def __getattr__(name: str) -> _Any:
    newer = _OLDER.get(name, "")
    if newer and _errors.older_form(f"ttnn.{name}", f"ttnn.{newer}"):
        return globals()[newer]
    return _missing(name, [*_calls, *(each for each in globals() if not each.startswith("_"))])


# ---------------------------------------------------------------- namespaces in ttnn
_known = vars(_opening) | vars(_norms) | vars(_grid) | vars(_hints) | globals()
# ttnn makes objects of these classes from lists, tuples and numbers. So a parameter of such a class
# also takes lists, tuples and numbers, and the class is not checked.
_converted = ("CoreCoord", "Shape", "UnaryWithParam")
_classes = {name: each for name, each in globals().items() if isinstance(each, type)}
_CLASSES.update({name: (each,) for name, each in _classes.items() if name not in _converted})


def _space(prefix: str, names: str) -> _Space:
    """Return a namespace with these names, which are separated by spaces."""
    return _Space(prefix, {name: _known[name] for name in names.split()})


device = _space(
    "device.",
    """Arch CloseDevice CreateDevice Device DispatchCoreAxis DispatchCoreConfig DispatchCoreType
    GetDefaultDevice GetNumAvailableDevices GetNumPCIeDevices GetPCIeDeviceID ReadDeviceProfiler
    SetDefaultDevice SubDevice SubDeviceId close_device init_device_compute_kernel_config
    is_blackhole is_wormhole_b0 open_device synchronize_device""",
)
cluster = _space("cluster.", "ClusterType get_cluster_type")
model_preprocessing = _space(
    "model_preprocessing.",
    """ParameterDict preprocess_linear_bias preprocess_linear_weight
    preprocess_model_parameters""",
)

transformer = _inner("transformer.")
experimental = _inner("experimental.")
kv_cache = _inner("kv_cache.")
_known["p2p_compute_intermediate_tensor_spec"] = lambda tensor, *ends: tensor.spec
# These are names of `ttnn._ttnn`, each after its namespaces. If an object has another name in this
# module, that name stands after `=`.
_INSIDE = """
device.SubDeviceId fabric.FabricConfig fabric.FabricRouterConfig global_semaphore.global_semaphore
multi_device.MeshDevice multi_device.MeshDeviceView multi_device.SystemMeshDescriptor
operations.ccl.Topology
operations.experimental.ccl_experimental.GlobalSemaphoreArg=global_semaphore
operations.point_to_point.p2p_compute_intermediate_tensor_spec
tensor.MemoryConfig tensor.Tensor tensor.dump_tensor_flatbuffer=dump_tensor
tensor.load_tensor_flatbuffer=load_tensor"""
_ttnn = _Space("_ttnn.", {})
for _each in _INSIDE.split():
    _path, _sign, _other = _each.partition("=")
    *_spaces, _name = _path.split(".")
    _where = _ttnn
    for _part in _spaces:
        _where = vars(_where).setdefault(_part, _Space(f"_ttnn.{_part}.", {}))
    vars(_where)[_name] = _known[_other or _name]


def get_fallback_function(operation: _Any) -> _Any:
    """Return the function that computes an operation on the host.

    In the simulator NumPy computes all operations, so it is the operation itself.
    """
    return operation


_last_trace: list[_Any] = []


@_contextlib.contextmanager
def _trace() -> _abc.Iterator[_Any]:
    """Record the operations of a `with` block.

    `tracer.visualize` prints them, inside the block or after it.
    """
    with _tape() as calls:
        _last_trace[:] = [calls]
        yield calls


def _visualize(*tensors: _Any, **how: _Any) -> None:
    """Print the operations that the last trace has recorded, as a table."""
    if not _last_trace:
        _errors.fail(
            "ttnn.tracer.visualize", "nothing was traced", "with ttnn.tracer.trace(): first"
        )
    print(_resolve_name("ttkit.profiling:Profile")(_last_trace[0]).summary())


tracer = _Space(
    "tracer.", {"trace": _trace, "visualize": _visualize, "disable_tracing": _last_trace.clear}
)
# The fields of a configuration change nothing here.
CONFIG_PATH = CONFIG_OVERRIDES = None
Config = _copy
CONFIG = _SimpleNamespace(enable_fast_runtime_mode=True, enable_logging=False, report_name=None)


def manage_config(name: str, value: _Any) -> _Any:
    """Return the context of a `with` block in which ttnn would have another configuration."""
    return _contextlib.nullcontext()


def pearson_correlation_coefficient(expected: _Any, actual: _Any) -> float:
    """Return the correlation of two results, which is `ttkit.pcc`."""
    return _resolve_name("ttkit:pcc")(expected, actual)


def visualize_system_mesh() -> None:
    """Print the machine as a table."""
    _resolve_name("ttkit.visualize.tables:print_table")("system mesh")


def visualize_mesh_device(mesh_device: _Any) -> None:
    """Print a mesh as a table."""
    _resolve_name("ttkit.visualize.tables:print_table")("mesh device", mesh_device)


def visualize_tensor(tensor: _Tensor) -> None:
    """Print a tensor's placement as a table."""
    _resolve_name("ttkit.visualize.tables:print_table")("tensor", tensor)
