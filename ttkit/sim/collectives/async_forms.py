"""Async collectives, and those that move parts of shards between neighbours.

The async forms are those of `ccl` with semaphores and with buffers that the program keeps. Here
nothing overlaps: a semaphore changes nothing, and a persistent buffer gets the result. `how` is
what all collectives take: `cluster_axis`, `topology` and `num_links`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ttkit.errors import fail
from ttkit.sim.collectives.ccl import (
    COLLECTIVES,
    Call,
    Collective,
    all_gather,
    all_reduce,
    along,
    dim_in_range,
    fabric_is_on,
    reduce_scatter,
    run,
)
from ttkit.sim.collectives.ccl_numpy import gathered, scattered
from ttkit.sim.ops import matmul, movement, shaping
from ttkit.sim.ops.operation import operation
from ttkit.sim.tensor import quirks
from ttkit.sim.tensor.enums import DataType, UnaryWithParam
from ttkit.sim.tensor.memory import bytes_of
from ttkit.sim.tensor.tensor import Tensor

Array = np.ndarray


# ---------------------------------------------------------------- with buffers of the program
def _enter_gather(name: str) -> None:
    """Enter one of the operations that gather one tensor."""

    @operation(f"experimental.{name}", "collective")
    def gather(
        input_tensor: Tensor,
        persistent_output_buffer: Any = None,
        dim: Any = None,
        multi_device_global_semaphore: Any = None,
        *,
        persistent_output_tensor: Any = None,
        mesh_device: Any = None,
        **how: Any,
    ) -> Any:
        """Return `all_gather` along `cluster_axis`, in a persistent buffer where one is given."""
        buffer = persistent_output_buffer
        if isinstance(buffer, int):  # In the form without a buffer, the second argument is `dim`.
            buffer, dim = None, buffer
        whole = all_gather(
            input_tensor, dim, output_tensor=buffer or persistent_output_tensor, **how
        )
        if "reversed" not in name:
            return whole
        chips = whole.shape[dim] // input_tensor.shape[dim]
        return shaping.concat(shaping.chunk(whole, chips, dim)[::-1], dim)


for _name in ("all_gather_async", "all_gather_async_reversed", "strided_all_gather_async"):
    _enter_gather(_name)


@operation("experimental.ring_attention_all_gather_async", "collective")
def ring_attention_all_gather_async(
    input_tensor: Any,
    persistent_output_buffer: Any,
    dim: int,
    *,
    multi_device_global_semaphore: Any,
    mesh_device: Any = None,
    **how: Any,
) -> list[Tensor]:
    """Return `all_gather` of each tensor of a list, as of the keys and of the values."""
    buffers = persistent_output_buffer or [None] * len(input_tensor)
    pairs = zip(input_tensor, buffers, strict=True)
    return [all_gather(tensor, dim, output_tensor=buffer, **how) for tensor, buffer in pairs]


@operation("experimental.reduce_scatter_minimal_async", "collective")
def reduce_scatter_minimal_async(
    input_tensor: Tensor,
    persistent_output_buffers: Any = None,
    dim: Any = None,
    multi_device_global_semaphore: list | tuple | None = None,
    **how: Any,
) -> Any:
    """Return `reduce_scatter`; the second persistent buffer gets the result."""
    *_, output = persistent_output_buffers or [None]
    return reduce_scatter(input_tensor, dim, output_tensor=output, **how)


@operation("experimental.llama_reduce_scatter", "collective")
def llama_reduce_scatter(
    input_tensor: Tensor,
    intermediate_packet_buffer: Tensor,
    dim: int,
    cross_device_semaphore: Any,
    subdevice_id: Any,
    cluster_axis: int,
    mesh_device: Any,
    **how: Any,
) -> Any:
    """Return `reduce_scatter`, through a buffer of packets."""
    return reduce_scatter(input_tensor, dim, cluster_axis=cluster_axis, **how)


@operation("experimental.deepseek_moe_reduce_scatter", "collective")
def deepseek_moe_reduce_scatter(
    input_tensors: list[Tensor], output_memory_config: Any, dim: int, **how: Any
) -> Any:
    """Return `reduce_scatter` of eight tensors, which are parts of one along `dim`."""
    return reduce_scatter(shaping.concat(input_tensors, dim), dim, **how)


@operation("experimental.all_reduce_async", "collective")
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
    if math_op is not None and math_op.name != "Sum":
        rule = f"chips add, and do not take {math_op}"
        fail("all_reduce_async", rule, "ttnn.ReduceType.Sum")
    total = all_reduce(input_tensor, cluster_axis=cluster_axis, **how)
    return total if dtype is None else movement.typecast(total, dtype)


# ---------------------------------------------------------------- beside a matmul
@operation("experimental.all_gather_matmul_async", "collective")
def all_gather_matmul_async(
    input_tensor: Tensor,
    weight_tensor: Tensor,
    persistent_output_buffer: Tensor | None = None,
    dim: Any = None,
    multi_device_global_semaphore: Any = None,
    all_gather_core_grid_offset: Any = None,
    *,
    num_links: Any = None,
    topology: Any = None,
    program_config: Any = None,
    **product: Any,
) -> list[Tensor]:
    """Return the gathered tensor and its product with the weight.

    Args:
        product: bias, transpose_a, transpose_b, dtype and activation, as `linear` takes them.
    """
    product["program_config"] = program_config
    how: Any = {"num_links": num_links, "topology": topology}
    whole = all_gather(input_tensor, dim, output_tensor=persistent_output_buffer, **how)
    return [whole, matmul.linear(whole, weight_tensor, **product)]


@operation("experimental.minimal_matmul", "product")
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
    if inner != rows:
        rule = f"minimal_matmul inner dimensions must match, got K={inner} and K_w={rows}"
        fail("minimal_matmul", rule, "another sharded dimension")
    act = UnaryWithParam(fused_activation) if fused_activation else None
    return matmul.linear(a, b, bias=bias_tensor, activation=act, dtype=dtype)


@operation("experimental.strided_all_gather_minimal_matmul_async", "collective")
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
    whole = all_gather(input_tensor, dim, output_tensor=persistent_output_buffer, **how)
    act = fused_activation
    return [whole, minimal_matmul(whole, weight_tensor, bias_tensor=bias, fused_activation=act)]


# ---------------------------------------------------------------- how parts of shards move
def here(call: Call, tensor: Tensor) -> Array:
    """Return the values on all chips; this process must drive all of them."""
    if not tensor.grid.local:
        fail(call.asked, "the simulator has no such collective between ranks", "one process")
    return tensor.full_array()


def joined(call: Call, tensor: Tensor, dim: int) -> Array:
    return gathered(here(call, tensor), call.mesh._shape, call.axes, dim)


def _windows(call: Call) -> Array:
    """Join the shards along the dimension; each chip keeps a window of it.

    Windows are equal parts of `many` rows from `first` on (of all, where it is None), with `left`
    and `right` rows of their neighbours. Beyond the ends there are zeros, or the last row again.
    """
    first, many, left, right, mode = call.others
    shape, rows = call.mesh._shape, joined(call, call.tensor, call.dim)
    at = len(shape) + call.dim
    size = (many or rows.shape[at]) // call.chips
    starts = first + size * np.arange(call.chips)
    wanted = np.add.outer(starts, np.arange(-left, size + right)).ravel()
    found = rows.take(wanted, at, mode="clip")
    if mode == "zeros":
        np.moveaxis(found, at, 0)[(wanted < 0) | (wanted >= rows.shape[at])] = 0
    return scattered(found, len(shape), call.axes, [shape[a] for a in call.axes], call.dim)


def _exchanged(call: Call) -> Any:
    into, cut = call.others
    size, rank = call.tensor.shard_shape[cut], call.rank
    if not (0 <= into < rank and 0 <= cut < rank and into != cut):
        rule = f"in_dim out of range, or out_dim: {into}, {cut} are not two dims from 0 to"
        fail(call.asked, f"{rule} {rank - 1}", "two of the shard's dimensions")
    if size % call.chips:
        rule = f"AllToAllAsync: input tensor dimension {cut} must be divisible by num_devices"
        fail(call.asked, f"{rule} {call.chips}", "another out_dim, or ttnn.pad first")
    return along("exchanged", call, into, cut)


IN_RANGE = dim_in_range("ShapeBase[] index out of range. {dim} not in [{least}, {rank})")
COLLECTIVES |= {
    "all_to_all_async": Collective((fabric_is_on,), _exchanged, quirks.unchanged, "all_to_all"),
    "slice_reshard_async": Collective(
        (fabric_is_on, IN_RANGE), _windows, quirks.unchanged, "all_to_all"
    ),
    "neighbor_pad_async": Collective(
        (fabric_is_on, IN_RANGE), _windows, quirks.unchanged, "all_gather"
    ),
}


# ---------------------------------------------------------------- parts of shards
@operation("experimental.all_to_all_async_generic", "collective")
def all_to_all_async_generic(
    input_tensor: Tensor,
    in_dim: int,
    out_dim: int,
    *,
    persistent_output_buffer: Any = None,
    **how: Any,
) -> Any:
    """Cut each shard along `out_dim`, a part for each chip; join what arrives along `in_dim`.

    Example: [1, 1, 32, 256] on 4 chips, in_dim=2, out_dim=3: [1, 1, 128, 64].
    """
    how |= {"output": persistent_output_buffer, "others": (in_dim, out_dim)}
    return run(Call("all_to_all_async", input_tensor, **how))


@operation("experimental.all_to_all_async", "collective")
def all_to_all_async(
    input_tensor: Tensor,
    persistent_intermediate_buffer: Tensor,
    persistent_output_buffer: Tensor,
    in_dim: int,
    out_dim: int,
    multi_device_global_semaphore: Any,
    **how: Any,
) -> Any:
    """Do what `all_to_all_async_generic` does over all chips, into a buffer."""
    how["persistent_output_buffer"] = persistent_output_buffer
    return all_to_all_async_generic(input_tensor, in_dim, out_dim, **how)


@operation("experimental.slice_reshard_async", "collective")
def slice_reshard_async(
    input_tensor: Tensor,
    dim: int,
    output_dim_offset: int,
    output_dim_shape: int,
    cluster_axis: int,
    final_semaphore: Any,
    barrier_semaphore: Any,
    **how: Any,
) -> Any:
    """Keep rows of the joined shards from `output_dim_offset` on, an equal part on each chip."""
    window = (output_dim_offset, output_dim_shape, 0, 0, "zeros")
    return run(Call("slice_reshard_async", input_tensor, cluster_axis, dim, others=window, **how))


@operation("experimental.neighbor_pad_async", "collective")
def neighbor_pad_async(
    input_tensor: Tensor,
    dim: Any,
    padding_left: Any,
    padding_right: Any,
    padding_mode: str,
    cluster_axis: Any,
    neighbor_semaphore: Any,
    barrier_semaphore: Any,
    *,
    num_links: Any = None,
    persistent_output_buffer: Any = None,
    **how: Any,
) -> Any:
    """Put rows of a chip's neighbours around its shard, along one or two dims.

    At the ends of the line there are zeros, or with "replicate" the shard's own border.
    """
    links = num_links or [None] * len(dim)
    rows = zip(dim, padding_left, padding_right, cluster_axis, links, strict=True)
    for i, (at, left, right, axis, count) in enumerate(rows, 1):
        how["output"] = persistent_output_buffer if i == len(dim) else None
        how["others"] = (0, None, left, right, padding_mode)
        call = Call("neighbor_pad_async", input_tensor, axis, at, num_links=count, **how)
        border = [*input_tensor.shard_shape]
        border[at] = max(left, right)
        call.nbytes = bytes_of(tuple(border), input_tensor.dtype)
        input_tensor = run(call)
    return input_tensor
