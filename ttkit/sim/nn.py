"""Normalisations and embedding, on each chip's own shard."""

from __future__ import annotations

import numpy as np

from ttkit.errors import fail
from ttkit.sim import blocks, dtypes
from ttkit.sim.arguments import describe
from ttkit.sim.enums import DataType, Layout
from ttkit.sim.operation import each_element, on_mesh, operation, result, together
from ttkit.sim.tensor import Tensor

F = np.float32
Array = np.ndarray


def _normalise(
    name: str,
    tensor: Tensor,
    epsilon: float,
    weight: Tensor | None,
    bias: Tensor | None,
    residual: Tensor | None,
    centre: bool,
) -> Tensor:
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
