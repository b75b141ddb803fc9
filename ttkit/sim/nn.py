"""Softmax, normalisations and embedding, on each chip's own shard."""

from __future__ import annotations

import numpy as np

from ttkit.errors import fail
from ttkit.sim import blocks, dtypes
from ttkit.sim.arguments import describe
from ttkit.sim.enums import DataType, Layout
from ttkit.sim.operation import aligned, each_element, on_mesh, operation, result, together
from ttkit.sim.tensor import Tensor

F = np.float32
Array = np.ndarray


# ---------------------------------------------------------------- softmax
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


# ---------------------------------------------------------------- norms and tables
def _normalise(
    name: str, tensor: Tensor, epsilon: float, weight: Tensor | None, bias: Tensor | None, residual: Tensor | None, centre: bool
) -> Tensor:  # fmt: skip
    operands = tuple(t for t in (tensor, weight, bias, residual) if t is not None)
    asked = describe(name, operands)
    if any(t.mesh is None for t in operands[1:]) and tensor.mesh is not None:
        rule = "Device Operations expect device tensors as inputs"
        fail(asked, rule, "ttnn.to_device(tensor, mesh)")
    if not centre and tensor.layout is not Layout.TILE:
        rule = f"ttnn::{name} does not support ROW_MAJOR input tensors. Use TILE layout."
        fail(asked, rule, "ttnn.to_layout(tensor, ttnn.TILE_LAYOUT)")
    on_mesh(name, *operands, letters="ABCD")
    if tensor.layout is not Layout.TILE and tensor.shard_shape[-1] % 32:
        rule = f"ROW_MAJOR input requires W ({tensor.shard_shape[-1]}) to be a multiple of tile"
        rule += " width (32)"
        fail(asked, rule, "ttnn.to_layout(tensor, ttnn.TILE_LAYOUT)")
    if residual is not None and residual.layout is not Layout.TILE:
        rule = f"Residual tensor must have TILE layout, got: Layout::{residual.layout.name}"
        fail(asked, rule, "ttnn.to_layout(residual, ttnn.TILE_LAYOUT)")
    if tensor.dtype not in dtypes.FLOATS:
        rule = "Input tensor must be FLOAT32, BFLOAT16 or BFLOAT8_B, got:"
        rule += f" DataType::{tensor.dtype.name}"
        fail(asked, rule, "ttnn.typecast")
    width = tensor.shard_shape[-1]
    for what, vector in (("gamma", weight), ("beta", bias)):
        if vector is not None and (
            vector.shard_shape[-1] != width and vector.logical_volume() != width
        ):
            rule = f"Input and {what} padded widths must match and {what} logical width must be"
            rule += " >= input logical width"
            rule = f"{rule}: {width} and {vector.shard_shape[-1]}"
            fail(asked, rule, f"shard the {what} like the last dimension of the input")
    for what, vector in (("Gamma", weight), ("Beta", bias)):
        if (
            vector is not None
            and vector.layout is Layout.ROW_MAJOR
            and vector.shard_shape[-1] != 32
        ):
            rule = f"{what}'s last padded dim needs to equal tile width and {what.lower()}'s"
            rule += " volume needs to align with the input width"
            rule = f"{rule}, got {list(vector.shard_shape)}"
            fail(asked, rule, "layout=ttnn.TILE_LAYOUT, or reshape it to [n / 32, 32]")
    if residual is not None and residual.shard_shape != tensor.shard_shape:
        rule = "Input and residual logical and padded shapes must match, got input:"
        rule += f" {list(tensor.shard_shape)} vs residual: {list(residual.shard_shape)}"
        fail(asked, rule)
    like, arrays, topology = together(name, operands)
    taken = iter(arrays)
    values = next(taken)
    lead, rank = len(like.grid.shape), len(tensor.shard_shape)

    def row(vector: Tensor | None) -> Array | None:
        if vector is None:
            return None
        array = next(taken)
        if vector.logical_volume() != width:  # of a tile, the first row counts
            array = array[..., :1, :]
        return array.reshape(array.shape[:lead] + (1,) * (rank - 1) + (width,))

    gamma, beta = row(weight), row(bias)
    if residual is not None:
        values = values + next(taken)
    scale, tiny = F(1 / width), F(epsilon)

    def rows(block: Array, out: Array) -> None:
        if centre:
            np.subtract(block, np.add.reduce(block, -1, keepdims=True) * scale, out=out)
        else:
            np.copyto(out, block)
        power = np.einsum("ij,ij->i", out, out)
        power *= scale
        power += tiny
        np.sqrt(power, out=power)
        out *= np.reciprocal(power)[:, None]

    normal = blocks.rowwise(rows, values)
    if gamma is not None:
        normal = np.multiply(normal, gamma, out=normal) if _fits(normal, gamma) else normal * gamma
    if beta is not None:
        normal = np.add(normal, beta, out=normal) if _fits(normal, beta) else normal + beta
    return result(like, normal, dtype=tensor.dtype, layout=tensor.layout, topology=topology)


def _fits(into: Array, other: Array) -> bool:
    """True where `other` repeats into the shape of `into` without making it longer."""
    return all(b in (1, a) for a, b in zip(into.shape, other.shape, strict=True))


@operation(
    "layer_norm",
    flops=each_element(7),  # the four of a variance; divide, weight, bias
    hints="memory_config program_config compute_kernel_config recip_tensor",
)
def layer_norm(
    input_tensor: Tensor,
    *,
    epsilon: float = 1e-12,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    residual_input_tensor: Tensor | None = None,
) -> Tensor:
    """Return each row less its mean, over its standard deviation, times `weight`, plus `bias`.

    A residual is added first.

    Args:
        input_tensor: [..., n].
        weight, bias: [n] or [1, n].

    Raises:
        TTKitError: widths that differ.
    """
    return _normalise(
        "layer_norm", input_tensor, epsilon, weight, bias, residual_input_tensor, True
    )


@operation(
    "rms_norm",
    flops=each_element(4),
    hints="memory_config program_config compute_kernel_config",
)
def rms_norm(
    input_tensor: Tensor,
    *,
    epsilon: float = 1e-12,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    residual_input_tensor: Tensor | None = None,
) -> Tensor:
    """Return each row over its root mean square, times `weight`; a residual is added first."""
    return _normalise("rms_norm", input_tensor, epsilon, weight, bias, residual_input_tensor, False)


@operation("embedding", "arrange", moves="part", hints="embeddings_type memory_config")
def embedding(
    input_tensor: Tensor,
    weight: Tensor,
    *,
    padding_idx: int | None = None,
    layout: Layout | None = None,
    dtype: DataType | None = None,
    output_tensor: Tensor | None = None,
) -> Tensor:
    """Return rows of a table: indices [b, s] or [s] of a weight [vocabulary, n] give [..., n].

    Indices of a higher rank give [first dimension, last dimension, n], as in ttnn; of dimensions
    between them, the first index counts.

    Raises:
        TTKitError: indices that are not uint32, a table that is not bfloat16, an index outside of
            the table.
    """
    asked = describe("embedding", (input_tensor, weight))
    if any(t.mesh is None for t in (input_tensor, weight)):
        rule = "Device Operations expect device tensors as inputs"
        fail(asked, rule, "ttnn.to_device(tensor, mesh)")
    on_mesh("embedding", input_tensor, weight)
    if input_tensor.dtype not in (DataType.UINT32, DataType.BFLOAT16):
        rule = f"Input must be UINT32 or BFLOAT16, got {input_tensor.dtype.name}"
        fail(asked, rule, "dtype=ttnn.uint32")
    if weight.dtype not in (DataType.BFLOAT16, DataType.BFLOAT8_B):
        rule = f"Weights tensor must have BFLOAT16 dtype, got {weight.dtype.name}"
        fail(asked, rule, "dtype=ttnn.bfloat16")
    front = weight.shard_shape[:-2]
    if any(n != 1 for n in front):
        rule = "First two dimensions for the weights must be 1 but got"
        rule += f" {' and '.join(map(str, front))}"
        fail(asked, rule)
    by_rows = (layout or weight.layout) is Layout.ROW_MAJOR
    if (
        dtype is not None
        and by_rows
        and (weight.layout is Layout.TILE or dtype is not DataType.BFLOAT16)
    ):
        fail(asked, "Can only typecast output embeddings when producing TILE_LAYOUT output")
    like, (indices, table), topology = together("embedding", (input_tensor, weight))
    lead = len(like.grid.shape)
    rows, width = weight.shard_shape[-2:]
    numbers = indices.astype(np.int64)
    if len(input_tensor.shard_shape) > 2:
        numbers = numbers[(slice(None),) * (lead + 1) + (0,) * (len(input_tensor.shard_shape) - 2)]
    if numbers.size and (numbers.min() < 0 or numbers.max() >= rows):
        rule = f"index {int(numbers.max())} is outside of a table of {rows} rows"
        fail(asked, rule, "indices below the number of rows")
    flat = table.reshape(table.shape[:lead] + (rows, width))
    if all(n == 1 for n in table.shape[:lead]):
        taken = flat.reshape(rows, width)[numbers]
    else:
        lengths = np.broadcast_shapes(numbers.shape[:lead], table.shape[:lead])
        wide = np.broadcast_to(numbers, lengths + numbers.shape[lead:]).reshape(lengths + (-1, 1))
        taken = np.take_along_axis(
            np.broadcast_to(flat, lengths + (rows, width)), wide, -2
        ).reshape(lengths + numbers.shape[lead:] + (width,))
        numbers = np.broadcast_to(numbers, lengths + numbers.shape[lead:])
    if padding_idx is not None:
        taken = np.where((numbers == padding_idx)[..., None], F(0), taken)
    return result(
        like,
        taken,
        dtype=dtype or DataType.BFLOAT16,
        layout=layout or weight.layout,
        topology=topology,
        output=output_tensor,
    )
