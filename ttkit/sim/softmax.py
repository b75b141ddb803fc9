"""Softmax, with a scale and a mask or without, on each chip's own shard."""

from __future__ import annotations

import numpy as np

from ttkit.errors import fail
from ttkit.sim import blocks
from ttkit.sim.arguments import describe
from ttkit.sim.enums import DataType, Layout
from ttkit.sim.operation import aligned, each_element, on_mesh, operation, result
from ttkit.sim.tensor import Tensor

F = np.float32
Array = np.ndarray


def _softmax_rows(rows: Array, out: Array) -> None:
    np.subtract(rows, np.maximum.reduce(rows, -1, keepdims=True), out=out)
    np.exp(out, out=out)
    out *= np.reciprocal(np.add.reduce(out, -1, keepdims=True))


def softmax_of(array: Array, axis: int = -1) -> Array:
    """Softmax of float32 values along an axis, in blocks of rows."""
    if axis in (-1, array.ndim - 1):
        return blocks.rowwise(_softmax_rows, array)
    return blocks.rowwise(_softmax_rows, array.swapaxes(axis, -1)).swapaxes(axis, -1)


def _check_softmax(name: str, tensor: Tensor, rows_too: bool = False) -> None:
    asked = describe(name, (tensor,))
    if tensor.mesh is None:
        rule = "input_tensor.device() == nullptr, No device found, move input_tensor to device"
        fail(asked, rule, "ttnn.to_device(tensor, mesh)")
    on_mesh(name, tensor)
    if tensor.layout is not Layout.TILE and not rows_too:
        fail(asked, "Inputs to softmax must be tilized", "ttnn.to_layout(tensor, ttnn.TILE_LAYOUT)")
    if tensor.dtype not in (DataType.FLOAT32, DataType.BFLOAT16, DataType.BFLOAT8_B):
        rule = "Input tensor must be FLOAT32, BFLOAT16, or BFLOAT8_B, got:"
        rule += f" DataType::{tensor.dtype.name}"
        fail(asked, rule, "ttnn.typecast")


def _axis(name: str, tensor: Tensor, dim: int) -> int:
    rank = len(tensor.shard_shape)
    if not -rank <= dim < rank:
        rule = f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but"
        rule += f" got {dim})"
        fail(describe(name, (tensor, dim)), rule)
    return len(tensor.grid.shape) + dim % rank


@operation(
    "softmax", flops=each_element(5), hints="memory_config compute_kernel_config numeric_stable"
)
def softmax(input_tensor: Tensor, dim: int = -1) -> Tensor:
    """Return exp(x) over its sum along `dim` of each shard, without overflow.

    Raises:
        TTKitError: no such dim, row-major or integer input.
    """
    axis = _axis("softmax", input_tensor, dim)
    _check_softmax("softmax", input_tensor)
    return result(input_tensor, softmax_of(input_tensor.array, axis))


@operation(
    "softmax_in_place",
    flops=each_element(5),
    hints="program_config compute_kernel_config numeric_stable",
)
def softmax_in_place(input_tensor: Tensor, dim: int = -1) -> Tensor:
    """`softmax` along the last of four dimensions, whose result replaces the tensor's values."""
    asked, rank = describe("softmax_in_place", (input_tensor, dim)), len(input_tensor.shard_shape)
    if rank > 4:
        rule = f"Tensor rank is greater than 4: {rank}"
        fail(asked, rule, "ttnn.reshape to rank 4, or ttnn.softmax")
    if rank != 4 or dim % rank != rank - 1:
        rule = f"Invalid dimension: {dim}. Currently softmax inplace supports dim -1 of tensors"
        fail(asked, f"{rule} of rank 4", "ttnn.softmax")
    _check_softmax("softmax_in_place", input_tensor)
    return result(input_tensor, softmax_of(input_tensor.array), output=input_tensor)


def scaled_softmax(
    name: str, tensor: Tensor, scale: float | None, mask: Tensor | None, output: Tensor | None
) -> Tensor:
    """Return softmax(scale * x + mask); ttnn's mask has the same batch and is one for all heads.

    Row-major values are tilized on the way, but not in place.
    """
    _check_softmax(name, tensor, rows_too=output is None)
    operands = (tensor,) if mask is None else (tensor, mask)
    on_mesh(name, *operands)
    asked = describe(name, operands, {"scale": scale})
    if len(tensor.shard_shape) > 4:
        rule = f"Tensor rank is greater than 4: {len(tensor.shard_shape)}"
        fail(asked, rule, "ttnn.reshape to rank 4")
    if mask is None:
        if scale is not None:
            rule = "Scale value must not be set when mask is not present"
            fail(asked, rule, "ttnn.softmax(ttnn.multiply(x, scale))")
        return result(tensor, softmax_of(tensor.array), layout=Layout.TILE, output=output)
    # ttnn sees the input, but not the mask, as of rank 4.
    ours, theirs = (1,) * (4 - len(tensor.padded)) + tensor.padded, mask.padded
    if ours[-1] != theirs[-1]:
        rule = f"Input and mask inner dimensions must match, got input: {ours[-1]} vs mask:"
        rule += f" {theirs[-1]}"
        fail(asked, rule)
    if ours[0] != theirs[0]:
        rule = f"Input and mask batch sizes must match, got input: {ours[0]} vs mask: {theirs[0]}"
        fail(asked, rule, "ttnn.repeat the mask, or shard it like the input")
    for i, length in enumerate(theirs[1:-2], 1):
        if length != 1:
            rule = f"Mask intermediate dimension {i} must be 1, got: {length}. This path"
            rule += " requires head-uniform masks"
            fail(asked, rule, "ttnn.add it before ttnn.softmax")
    like, (values, added), topology = aligned(name, (tensor, mask))
    scores = (values if scale is None else values * F(scale)) + added
    scores = scores.reshape(scores.shape[: len(like.grid.shape)] + tensor.shard_shape)
    return result(
        like,
        softmax_of(scores),
        dtype=tensor.dtype,
        layout=Layout.TILE,
        topology=topology,
        output=output,
    )


@operation(
    "scale_mask_softmax",
    flops=each_element(7),
    hints="memory_config is_causal_mask compute_kernel_config numeric_stable",
)
def scale_mask_softmax(
    input_tensor: Tensor, scale: float | None = None, mask: Tensor | None = None
) -> Tensor:
    """Return softmax(scale * x + mask) of [b, heads, s, n]; the mask is [b, 1, s or 1, n].

    Raises:
        TTKitError: a scale without a mask, a mask of another batch or with heads.
    """
    return scaled_softmax("scale_mask_softmax", input_tensor, scale, mask, None)


@operation(
    "scale_mask_softmax_in_place",
    flops=each_element(7),
    hints="program_config is_causal_mask compute_kernel_config numeric_stable",
)
def scale_mask_softmax_in_place(
    input_tensor: Tensor, scale: float | None = None, mask: Tensor | None = None
) -> Tensor:
    """`scale_mask_softmax` whose result replaces the tensor's values."""
    return scaled_softmax("scale_mask_softmax_in_place", input_tensor, scale, mask, input_tensor)
