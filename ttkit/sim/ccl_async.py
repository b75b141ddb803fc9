"""Async collectives: those of `ccl`, with semaphores and with buffers that the program keeps.

The simulator checks semaphores and writes results into persistent buffers; nothing overlaps. `how`
is what all collectives take: `cluster_axis`, `topology` and `num_links`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ttkit.errors import fail
from ttkit.sim import ccl_checks as checks
from ttkit.sim import hints, matmul, movement, shaping
from ttkit.sim.arguments import taken
from ttkit.sim.ccl import COLLECTIVES, SHORT, _run
from ttkit.sim.ccl_checks import Call
from ttkit.sim.ccl_numpy import gathered
from ttkit.sim.enums import DataType, FabricConfig, Layout, Topology, UnaryWithParam
from ttkit.sim.operation import operation
from ttkit.sim.sub_devices import global_semaphore
from ttkit.sim.tensor import Tensor

# hints
WORKERS = "num_workers_per_link num_buffers_per_channel"
ASYNC = f"subdevice_id barrier_semaphore chunks_per_sync {WORKERS}"


def run(name: str, tensor: Tensor, dim: Any, output: Any = None, *others: Any, **how: Any) -> Any:
    """Carry out a collective of `COLLECTIVES`."""
    return _run(Call(name, tensor, dim=dim, output=output, others=others, **how), {})


# ---------------------------------------------------------------- checks
def semaphores(given: Any, *counts: int) -> None:
    """Check that these are semaphores, and as many as one of `counts`."""
    several = given if isinstance(given, (list, tuple)) else [given]
    for each in several:
        taken("a collective", "semaphore", each, "global_semaphore")
    if counts and len(several) not in counts:
        rule = f"Default implementation requires {counts[0]} semaphores, {len(several)} are given"
        fail("a collective", rule, "ttnn.create_global_semaphore(mesh, cores, 0) for each")


def ruled(rules: Callable[[Call], Any]) -> checks.Check:
    """A check that yields rules, each after what breaks it."""

    def check(call: Call) -> None:
        hints.refuse(call.asked, rules(call))

    return check


@ruled
def _joined(call: Call) -> Any:
    """There are several chips, which links join in a line."""
    shape = call.mesh._shape
    yield call.chips == 1, f"{call.name} op will only work for num_devices > 1, but has 1"
    if call.cluster_axis is None and min(shape) > 1:
        ends = f"src (M0, D{shape[1] - 1}) to dst (M0, D{shape[1]})"
        rule = f"Could not find any forwarding direction from {ends}: name a cluster_axis"
        yield "1D" in call.mesh.fabric.name, rule


@ruled
def _alike(call: Call) -> Any:
    """A persistent buffer is of the tensor's type and layout."""
    for what in ("dtype", "layout") if call.output is not None else ():
        rule = f"Error, Output tensor {what} should be same as input tensor {what}"
        yield getattr(call.output, what) is not getattr(call.tensor, what), rule


@ruled
def _wide(call: Call) -> Any:
    width, chips, last = call.tensor.padded[-1], call.chips, call.dim == call.rank - 1
    rule = f"When reverse_order=true, tensor width ({width}) must be divisible by"
    yield not last and width % (32 * chips), f"{rule} 32*num_devices (32*{chips})"


# ---------------------------------------------------------------- what they are
def here(call: Call, tensor: Tensor) -> np.ndarray:
    """The values on all chips, which must be of this process."""
    if not tensor.grid.local:
        fail(call.asked, "the simulator has no such collective between ranks", "one process")
    return tensor.full_array()


def _reversed(call: Call) -> np.ndarray:
    turned = np.flip(here(call, call.tensor), tuple(call.axes))
    return gathered(turned, call.mesh._shape, call.axes, call.dim)


def spec(base: str, *more: checks.Check, **changes: Any) -> Any:
    """A collective like `base` with checks of its own."""
    return replace(COLLECTIVES[base], checks=(checks.fabric, _joined, *more), **changes)


in_range = checks.dim("ShapeBase[] index out of range. {dim} not in [{least}, {rank})")
_in_range = checks.dim("Dimension input should be in between -{rank} and {last}, has {dim}")
_gathers = (_in_range, checks.enough_links, _alike, checks.result_fits)
_whole = checks.divides("Number of tiles at dimension {dim} must be divisible by ring_size {chips}")
COLLECTIVES |= {
    "all_gather_async": spec("all_gather", *_gathers),
    "strided_all_gather_async": spec("all_gather", *_gathers),
    "all_gather_async_reversed": spec("all_gather", *_gathers, _wide, moves=_reversed),
    "reduce_scatter_minimal_async": spec("reduce_scatter", in_range, checks.enough_links, _whole),
    "all_reduce_async": spec("all_reduce", checks.some_links),
}


def _enter_gather(name: str, hints: str) -> None:
    """Enter one of the operations that gather one tensor."""

    @operation(f"experimental.{name}", "collective", hints=hints)
    def gather(
        input_tensor: Tensor,
        persistent_output_buffer: Any = None,
        dim: Any = None,
        multi_device_global_semaphore: Any = None,
        *,
        persistent_output_tensor: Any = None,
        **how: Any,
    ) -> Any:
        """Return `all_gather` along `cluster_axis`, in a persistent buffer where one is given."""
        buffer, used = persistent_output_buffer, multi_device_global_semaphore
        if isinstance(buffer, int):  # the overload without a buffer
            buffer, dim, used = None, buffer, dim
        semaphores(used, 2)
        return run(name, input_tensor, dim, buffer or persistent_output_tensor, **how)


_more = f"{ASYNC} memory_config mesh_device sub_core_grids use_optimal_ccl_for_llama use_broadcast"
_enter_gather("all_gather_async", _more)
_enter_gather("all_gather_async_reversed", _more)
_enter_gather(
    "strided_all_gather_async", f"memory_config {WORKERS} mm_cores_y mm_block_ht mm_block_wt"
)


@operation(
    "experimental.ring_attention_all_gather_async", "collective", hints=f"{SHORT} mesh_device"
)
def ring_attention_all_gather_async(
    input_tensor: Any,
    persistent_output_buffer: Any,
    dim: int,
    *,
    multi_device_global_semaphore: Any,
    **how: Any,
) -> list[Tensor]:
    """Return `all_gather` of each tensor of a list, as of the keys and of the values."""
    semaphores(multi_device_global_semaphore, 2)
    buffers = persistent_output_buffer or [None] * len(input_tensor)
    pairs = zip(input_tensor, buffers, strict=True)
    return [run("all_gather_async", tensor, dim, buffer, **how) for tensor, buffer in pairs]


@operation(
    "experimental.reduce_scatter_minimal_async",
    "collective",
    hints=f"{ASYNC} memory_config intermediate_memory_config compute_kernel_config",
)
def reduce_scatter_minimal_async(
    input_tensor: Tensor,
    persistent_output_buffers: Any = None,
    dim: Any = None,
    multi_device_global_semaphore: list | tuple | None = None,
    **how: Any,
) -> Any:
    """Return `reduce_scatter`; the second persistent buffer gets the result."""
    semaphores(multi_device_global_semaphore, 3, 2)
    *_, output = persistent_output_buffers or [None]
    return run("reduce_scatter_minimal_async", input_tensor, dim, output, **how)


@operation("experimental.llama_reduce_scatter", "collective", hints="memory_config use_noc1_only")
def llama_reduce_scatter(
    input_tensor: Tensor,
    intermediate_packet_buffer: Tensor,
    dim: int,
    cross_device_semaphore: global_semaphore,
    subdevice_id: Any,
    cluster_axis: int,
    mesh_device: Any,
    **how: Any,
) -> Any:
    """Return `reduce_scatter`, through a buffer of packets."""
    how["cluster_axis"] = cluster_axis
    return run("reduce_scatter_minimal_async", input_tensor, dim, **how)


@operation("experimental.deepseek_moe_reduce_scatter", "collective")
def deepseek_moe_reduce_scatter(
    input_tensors: list[Tensor], output_memory_config: Any, dim: int, **how: Any
) -> Any:
    """Return `reduce_scatter` of eight tensors, which are parts of one along `dim`."""
    name = "deepseek_moe_reduce_scatter"
    if input_tensors[0].mesh.fabric is not FabricConfig.FABRIC_1D_RING:
        rule = f"{name} is hardcoded for tt::tt_fabric::Topology::Ring"
        fail(name, rule, "ttnn.FabricConfig.FABRIC_1D_RING")
    if len(input_tensors) != 8:
        rule = f"{name} requires 8 input tensors, but has {len(input_tensors)}"
        fail(name, rule, "ttnn.split")
    return run("reduce_scatter_minimal_async", shaping.concat(input_tensors, dim), dim, **how)


@operation(
    "experimental.all_reduce_async",
    "collective",
    hints=f"{SHORT} num_devices use_noc1_only use_optimal_ccl_for_llama fp32_dest_acc",
)
def all_reduce_async(
    input_tensor: Tensor,
    buffer_tensor: Tensor | None = None,
    cluster_axis: int | None = None,
    mesh_device: Any = None,
    barrier_semaphores: Any = None,
    rs_global_semaphores: Any = None,
    ag_global_semaphores: Any = None,
    math_op: Any = None,
    *,
    multi_device_global_semaphore: Any = None,
    dtype: DataType | None = None,
    **how: Any,
) -> Any:
    """Return `all_reduce`: with a buffer it takes one semaphore, else `math_op` and three lists."""
    if buffer_tensor is not None:
        semaphores(multi_device_global_semaphore)
    else:
        taken("all_reduce_async", "math_op", math_op, "ReduceType")
        if math_op.name != "Sum":
            rule = f"chips add, and do not take {math_op}"
            fail("all_reduce_async", rule, "ttnn.ReduceType.Sum")
        semaphores(barrier_semaphores or [], 2, 0)
        semaphores(rs_global_semaphores or [], 3, 2, 0)
        semaphores(ag_global_semaphores or [], 2, 0)
    total = run("all_reduce_async", input_tensor, None, cluster_axis=cluster_axis, **how)
    return total if dtype is None else movement.typecast(total, dtype)


# ---------------------------------------------------------------- products
@operation(
    "experimental.all_gather_matmul_async",
    "collective",
    hints=f"{ASYNC} memory_config_ag memory_config_mm compute_kernel_config core_grid",
)
def all_gather_matmul_async(
    input_tensor: Tensor,
    weight_tensor: Tensor,
    persistent_output_buffer: Tensor | None = None,
    dim: Any = None,
    multi_device_global_semaphore: Any = None,
    all_gather_core_grid_offset: Any = None,
    *,
    num_links: Any = None,
    topology: Topology | None = None,
    program_config: Any = None,
    **product: Any,
) -> list[Tensor]:
    """Return the gathered tensor and its product with the weight.

    Args:
        product: bias, transpose_a, transpose_b, dtype and activation, as `linear` takes them.
    """
    if program_config is None:
        rule = "bad optional access: a program_config is needed"
        fail("all_gather_matmul_async", rule, "its grid and blocks")
    semaphores(multi_device_global_semaphore, 2)
    buffer = persistent_output_buffer
    whole = run(
        "all_gather_async", input_tensor, dim, buffer, num_links=num_links, topology=topology
    )
    product["program_config"] = program_config
    return [whole, matmul.linear(whole, weight_tensor, **product)]


@operation("experimental.minimal_matmul", "product", hints="memory_config compute_kernel_config")
def minimal_matmul(
    input_tensor: Any,
    weight_tensor: Tensor,
    *,
    bias_tensor: Tensor | None = None,
    fused_activation: Any = None,
    config: Any = None,
    dtype: DataType | None = None,
) -> Tensor:
    """Return `linear` of [..., M, K] and [K, N]; a list of two tensors is joined along K."""
    a, b = input_tensor, weight_tensor
    a = shaping.concat(a, -1) if isinstance(a, list) else a
    inner, rows = a.shard_shape[-1], b.shard_shape[-2]
    tiled = a.layout is b.layout is Layout.TILE
    rule = f"minimal_matmul inner dimensions must match, got K={inner} and K_w={rows}"
    rules = [
        (not tiled, "minimal_matmul requires TILE layout for activation and weight"),
        (math.prod(b.shard_shape[:-2]) > 1, "minimal_matmul weight must have 1 in all dims < -2"),
        (inner != rows, rule),
    ]
    hints.refuse("minimal_matmul", rules)
    if config is not None:
        hints.refuse("minimal_matmul", hints.blocks(config, b.mesh))
    act = UnaryWithParam(fused_activation) if fused_activation else None
    return matmul.linear(a, b, bias=bias_tensor, activation=act, dtype=dtype)


@operation(
    "experimental.strided_all_gather_minimal_matmul_async",
    "collective",
    hints=f"{WORKERS} memory_config_ag memory_config_mm compute_kernel_config"
    " read_local_slice_from_input",
)
def strided_all_gather_minimal_matmul_async(
    input_tensor: Tensor,
    weight_tensor: Tensor,
    persistent_output_buffer: Any,
    dim: int,
    multi_device_global_semaphore: Any,
    strided_all_gather_core_grid_offset: Any,
    *,
    bias: Any = None,
    fused_activation: Any = None,
    config: Any = None,
    **how: Any,
) -> list[Tensor]:
    """Return the gathered tensor and its product with the weight."""
    semaphores(multi_device_global_semaphore, 2)
    whole = run("all_gather_async", input_tensor, dim, persistent_output_buffer, **how)
    product = minimal_matmul(
        whole, weight_tensor, bias_tensor=bias, fused_activation=fused_activation, config=config
    )
    return [whole, product]
