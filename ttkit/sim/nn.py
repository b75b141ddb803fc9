"""Softmax, normalisations, embedding and gated units, on each chip's own shard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ttkit.errors import fail
from ttkit.sim import blocks, dtypes
from ttkit.sim.arguments import describe
from ttkit.sim.binary import aligned
from ttkit.sim.dispatch import common_grid, merged, on_mesh, operation, result
from ttkit.sim.enums import DataType, EmbeddingsType, GeluVariant, Layout
from ttkit.sim.tensor import Tensor
from ttkit.sim.unary import gelu_erf, gelu_tanh, named, sigmoid_of, silu_of

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


def _check_softmax(name: str, tensor: Any, rows_too: bool = False) -> None:
    asked = describe(name, (tensor,))
    if isinstance(tensor, Tensor) and tensor.mesh is None:
        fail(asked, "input_tensor.device() == nullptr, No device found, move input_tensor to device", "ttnn.to_device(tensor, mesh)")
    on_mesh(name, tensor)
    if tensor.layout is not Layout.TILE and not rows_too:
        fail(asked, "Inputs to softmax must be tilized", "ttnn.to_layout(tensor, ttnn.TILE_LAYOUT)")
    if tensor.dtype not in (DataType.FLOAT32, DataType.BFLOAT16, DataType.BFLOAT8_B):
        fail(asked, f"Input tensor must be FLOAT32, BFLOAT16, or BFLOAT8_B, got: DataType::{tensor.dtype.name}", "ttnn.typecast")


def _axis(name: str, tensor: Tensor, dim: int) -> int:
    rank = len(tensor.shard_shape)
    if not -rank <= dim < rank:
        fail(describe(name, (tensor, dim)), f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {dim})")
    return len(tensor.grid.shape) + dim % rank


@operation("softmax")
def softmax(input_tensor: Tensor, dim: int = -1, *, memory_config: Any = None, compute_kernel_config: Any = None, numeric_stable: bool = True) -> Tensor:
    """exp(x) over its sum along `dim` of each shard; always computed from differences to the largest element.

    Raises:
        TTKitError: no such dim, row-major or integer input.
    """
    axis = _axis("softmax", input_tensor, dim) if isinstance(input_tensor, Tensor) else -1
    _check_softmax("softmax", input_tensor)
    return result(input_tensor, softmax_of(input_tensor.array, axis), memory_config=memory_config)


@operation("softmax_in_place")
def softmax_in_place(
    input_tensor: Tensor, dim: int = -1, *, program_config: Any = None, compute_kernel_config: Any = None, numeric_stable: bool = True
) -> Tensor:
    """`softmax` along the last dimension whose result replaces the tensor's values."""
    if isinstance(input_tensor, Tensor):
        rank = len(input_tensor.shard_shape)
        if rank > 4:
            fail(describe("softmax_in_place", (input_tensor, dim)), f"Tensor rank is greater than 4: {rank}", "ttnn.reshape to rank 4, or ttnn.softmax")
        if rank != 4 or dim % rank != rank - 1:
            rule = f"Invalid dimension: {dim}. Currently softmax inplace supports dim -1 of tensors of rank 4"
            fail(describe("softmax_in_place", (input_tensor, dim)), rule, "ttnn.softmax")
    _check_softmax("softmax_in_place", input_tensor)
    return result(input_tensor, softmax_of(input_tensor.array), output=input_tensor)


def scaled_softmax(name: str, tensor: Tensor, scale: float | None, mask: Tensor | None, memory_config: Any, output: Tensor | None) -> Tensor:
    """softmax(scale * x + mask) along the last dimension, with ttnn's demands on the mask: the same batch, one for all heads.

    Row-major values are tilized on the way, but not in place.
    """
    _check_softmax(name, tensor, rows_too=output is None)
    operands = (tensor,) if mask is None else (tensor, mask)
    on_mesh(name, *operands)
    asked = describe(name, operands, {"scale": scale})
    if len(tensor.shard_shape) > 4:
        fail(asked, f"Tensor rank is greater than 4: {len(tensor.shard_shape)}", "ttnn.reshape to rank 4")
    if mask is None:
        if scale is not None:
            fail(asked, "Scale value must not be set when mask is not present", "ttnn.softmax(ttnn.multiply(x, scale))")
        return result(tensor, softmax_of(tensor.array), layout=Layout.TILE, memory_config=memory_config, output=output)
    ours, theirs = (1,) * (4 - len(tensor.padded)) + tensor.padded, mask.padded  # ttnn sees the input, but not the mask, as of rank 4
    if ours[-1] != theirs[-1]:
        fail(asked, f"Input and mask inner dimensions must match, got input: {ours[-1]} vs mask: {theirs[-1]}")
    if ours[0] != theirs[0]:
        fail(asked, f"Input and mask batch sizes must match, got input: {ours[0]} vs mask: {theirs[0]}", "ttnn.repeat the mask, or shard it like the input")
    for i, length in enumerate(theirs[1:-2], 1):
        if length != 1:
            fail(asked, f"Mask intermediate dimension {i} must be 1, got: {length}. This path requires head-uniform masks", "ttnn.add it before ttnn.softmax")
    like, (values, added) = aligned((tensor, mask), lambda: asked)
    scores = (values if scale is None else values * F(scale)) + added
    scores = scores.reshape(scores.shape[: len(like.grid.shape)] + tensor.shard_shape)
    topology = merged(like.mesh.grid, tensor.topology, mask.topology)
    return result(like, softmax_of(scores), dtype=tensor.dtype, layout=Layout.TILE, topology=topology, memory_config=memory_config, output=output)


@operation("scale_mask_softmax")
def scale_mask_softmax(
    input_tensor: Tensor, scale: float | None = None, mask: Tensor | None = None, *, memory_config: Any = None,
    is_causal_mask: bool = False, compute_kernel_config: Any = None, numeric_stable: bool = True,
) -> Tensor:  # fmt: skip
    """softmax(scale * x + mask) along the last dimension of [b, heads, s, n]; the mask is [b, 1, s or 1, n].

    Raises:
        TTKitError: a scale without a mask, a mask of another batch or with heads.
    """
    return scaled_softmax("scale_mask_softmax", input_tensor, scale, mask, memory_config, None)


@operation("scale_mask_softmax_in_place")
def scale_mask_softmax_in_place(
    input_tensor: Tensor, scale: float | None = None, mask: Tensor | None = None, *, program_config: Any = None,
    is_causal_mask: bool = False, compute_kernel_config: Any = None, numeric_stable: bool = False,
) -> Tensor:  # fmt: skip
    """`scale_mask_softmax` whose result replaces the tensor's values."""
    return scaled_softmax("scale_mask_softmax_in_place", input_tensor, scale, mask, None, input_tensor)


def _normalise(
    name: str, tensor: Tensor, epsilon: float, weight: Tensor | None, bias: Tensor | None, residual: Tensor | None, centre: bool, memory_config: Any
) -> Tensor:  # fmt: skip
    operands = tuple(t for t in (tensor, weight, bias, residual) if t is not None)
    asked = describe(name, operands)
    if any(isinstance(t, Tensor) and t.mesh is None for t in operands[1:]) and isinstance(tensor, Tensor) and tensor.mesh is not None:
        fail(asked, "Device Operations expect device tensors as inputs", "ttnn.to_device(tensor, mesh)")
    if not centre and isinstance(tensor, Tensor) and tensor.layout is not Layout.TILE:
        fail(asked, f"ttnn::{name} does not support ROW_MAJOR input tensors. Use TILE layout.", "ttnn.to_layout(tensor, ttnn.TILE_LAYOUT)")
    on_mesh(name, *operands, letters="ABCD")
    if tensor.layout is not Layout.TILE and tensor.shard_shape[-1] % 32:
        rule = f"ROW_MAJOR input requires W ({tensor.shard_shape[-1]}) to be a multiple of tile width (32)"
        fail(asked, rule, "ttnn.to_layout(tensor, ttnn.TILE_LAYOUT)")
    if residual is not None and residual.layout is not Layout.TILE:
        fail(asked, f"Residual tensor must have TILE layout, got: Layout::{residual.layout.name}", "ttnn.to_layout(residual, ttnn.TILE_LAYOUT)")
    if tensor.dtype not in dtypes.FLOATS:
        fail(asked, f"Input tensor must be FLOAT32, BFLOAT16 or BFLOAT8_B, got: DataType::{tensor.dtype.name}", "ttnn.typecast")
    width = tensor.shard_shape[-1]
    for what, vector in (("gamma", weight), ("beta", bias)):
        if vector is not None and (vector.shard_shape[-1] != width and vector.logical_volume() != width):
            rule = f"Input and {what} padded widths must match and {what} logical width must be >= input logical width"
            fail(asked, f"{rule}: {width} and {vector.shard_shape[-1]}", f"shard the {what} like the last dimension of the input")
    for what, vector in (("Gamma", weight), ("Beta", bias)):
        if vector is not None and vector.layout is Layout.ROW_MAJOR and vector.shard_shape[-1] != 32:
            rule = f"{what}'s last padded dim needs to equal tile width and {what.lower()}'s volume needs to align with the input width"
            fail(asked, f"{rule}, got {list(vector.shard_shape)}", "layout=ttnn.TILE_LAYOUT, or reshape it to [n / 32, 32]")
    if residual is not None and residual.shard_shape != tensor.shard_shape:
        rule = f"Input and residual logical and padded shapes must match, got input: {list(tensor.shard_shape)} vs residual: {list(residual.shard_shape)}"
        fail(asked, rule)
    like, arrays = common_grid(operands, lambda: asked)
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
    topology = merged(like.mesh.grid, *(t.topology for t in operands))
    return result(like, normal, dtype=tensor.dtype, layout=tensor.layout, topology=topology, memory_config=memory_config)


def _fits(into: Array, other: Array) -> bool:
    """True where `other` repeats into the shape of `into` without making it longer."""
    return all(b in (1, a) for a, b in zip(into.shape, other.shape, strict=True))


@operation("layer_norm")
def layer_norm(
    input_tensor: Tensor, *, epsilon: float = 1e-12, weight: Tensor | None = None, bias: Tensor | None = None,
    residual_input_tensor: Tensor | None = None, memory_config: Any = None, program_config: Any = None, compute_kernel_config: Any = None,
    recip_tensor: Any = None,
) -> Tensor:  # fmt: skip
    """Each row of the shard less its mean, over its standard deviation, times `weight`, plus `bias`; a residual is added first.

    Args:
        input_tensor: [..., n].
        weight, bias: [n] or [1, n].

    Raises:
        TTKitError: widths that differ.
    """
    return _normalise("layer_norm", input_tensor, epsilon, weight, bias, residual_input_tensor, True, memory_config)


@operation("rms_norm")
def rms_norm(
    input_tensor: Tensor, *, epsilon: float = 1e-12, weight: Tensor | None = None, bias: Tensor | None = None,
    residual_input_tensor: Tensor | None = None, memory_config: Any = None, program_config: Any = None, compute_kernel_config: Any = None,
) -> Tensor:  # fmt: skip
    """Each row of the shard over its root mean square, times `weight`; a residual is added first."""
    return _normalise("rms_norm", input_tensor, epsilon, weight, bias, residual_input_tensor, False, memory_config)


@operation("embedding")
def embedding(
    input_tensor: Tensor, weight: Tensor, *, padding_idx: int | None = None, layout: Layout | None = None,
    embeddings_type: EmbeddingsType = EmbeddingsType.GENERIC, dtype: DataType | None = None, memory_config: Any = None, output_tensor: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Rows of a table: indices [b, s] or [s] and weight [vocabulary, n] give [b, s, n] or [s, n], on each chip from its own shards.

    Indices of a higher rank give [first dimension, last dimension, n], as in ttnn; of dimensions between them, the first index counts.

    Raises:
        TTKitError: indices that are not uint32, a table that is not bfloat16, an index outside of the table.
    """
    asked = describe("embedding", (input_tensor, weight))
    if any(isinstance(t, Tensor) and t.mesh is None for t in (input_tensor, weight)):
        fail(asked, "Device Operations expect device tensors as inputs", "ttnn.to_device(tensor, mesh)")
    on_mesh("embedding", input_tensor, weight)
    if input_tensor.dtype not in (DataType.UINT32, DataType.BFLOAT16):
        fail(asked, f"Input must be UINT32 or BFLOAT16, got {input_tensor.dtype.name}", "dtype=ttnn.uint32")
    if weight.dtype not in (DataType.BFLOAT16, DataType.BFLOAT8_B):
        fail(asked, f"Weights tensor must have BFLOAT16 dtype, got {weight.dtype.name}", "dtype=ttnn.bfloat16")
    front = weight.shard_shape[:-2]
    if any(n != 1 for n in front):
        fail(asked, f"First two dimensions for the weights must be 1 but got {' and '.join(map(str, front))}")
    by_rows = (layout or weight.layout) is Layout.ROW_MAJOR
    if dtype is not None and by_rows and (weight.layout is Layout.TILE or dtype is not DataType.BFLOAT16):
        fail(asked, "Can only typecast output embeddings when producing TILE_LAYOUT output")
    like, (indices, table) = common_grid((input_tensor, weight), lambda: asked)
    lead = len(like.grid.shape)
    rows, width = weight.shard_shape[-2:]
    numbers = indices.astype(np.int64)
    if len(input_tensor.shard_shape) > 2:
        numbers = numbers[(slice(None),) * (lead + 1) + (0,) * (len(input_tensor.shard_shape) - 2)]
    if numbers.size and (numbers.min() < 0 or numbers.max() >= rows):
        fail(asked, f"index {int(numbers.max())} is outside of a table of {rows} rows", "indices below the number of rows")
    flat = table.reshape(table.shape[:lead] + (rows, width))
    if all(n == 1 for n in table.shape[:lead]):
        taken = flat.reshape(rows, width)[numbers]
    else:
        lengths = np.broadcast_shapes(numbers.shape[:lead], table.shape[:lead])
        wide = np.broadcast_to(numbers, lengths + numbers.shape[lead:]).reshape(lengths + (-1, 1))
        taken = np.take_along_axis(np.broadcast_to(flat, lengths + (rows, width)), wide, -2).reshape(lengths + numbers.shape[lead:] + (width,))
        numbers = np.broadcast_to(numbers, lengths + numbers.shape[lead:])
    if padding_idx is not None:
        taken = np.where((numbers == padding_idx)[..., None], F(0), taken)
    topology = merged(like.mesh.grid, input_tensor.topology, weight.topology)
    return result(
        like, taken, dtype=dtype or DataType.BFLOAT16, layout=layout or weight.layout, topology=topology, memory_config=memory_config, output=output_tensor
    )


def _gated(name: str, tensor: Tensor, dim: int, gate: Any, memory_config: Any) -> Tensor:
    on_mesh(name, tensor)
    asked, rank = describe(name, (tensor, dim)), len(tensor.shard_shape)
    if rank != 4:
        fail(asked, f"ShapeBase[] index out of range. 3 not in [-4, {rank})", "a tensor of rank 4")
    if dim not in (-1, 3):
        fail(asked, f"glu-family ops only support the last dimension, got dim={dim}", "dim=-1")
    if tensor.shard_shape[-1] % 64:
        fail(asked, f"Split tensor dimension should be in full tile, got {tensor.shard_shape[-1]}", "a multiple of 64")
    half = tensor.shard_shape[-1] // 2
    return result(tensor, tensor.array[..., :half] * gate(tensor.array[..., half:]), memory_config=memory_config)


def _enter_gated(name: str, gate: Callable[[Array], Array], what: str) -> None:
    def call(input_tensor: Tensor, dim: int = -1, *, memory_config: Any = None) -> Tensor:
        return _gated(name, input_tensor, dim, gate, memory_config)

    named(name, call, f"The first half of the last dimension times the {what} of the second.")


_enter_gated("glu", sigmoid_of, "sigmoid")
_enter_gated("reglu", lambda x: np.maximum(x, 0), "ReLU")
_enter_gated("swiglu", silu_of, "SiLU")


@operation("geglu")
def geglu(input_tensor: Tensor, dim: int = -1, *, memory_config: Any = None, variant: GeluVariant = GeluVariant.Accurate) -> Tensor:
    """The first half of the last dimension times the GELU of the second."""
    return _gated("geglu", input_tensor, dim, gelu_erf if variant is GeluVariant.Accurate else gelu_tanh, memory_config)


@operation("experimental.dropout")
def dropout(
    input_tensor: Tensor, probability: float, scale: float, seed: int, *, use_per_device_seed: bool = True, memory_config: Any = None,
    output_tensor: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Zeros with the given probability, the other elements times `scale`; one seed always drops the same places.

    Args:
        use_per_device_seed: each chip drops other places; without it all chips drop the same.
    """
    on_mesh("dropout", input_tensor)
    asked = describe("dropout", (input_tensor, probability, scale, seed))
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        fail(asked, f"incompatible function arguments: seed {seed!r} is not a whole number from 0 on", kind=TypeError)
    if input_tensor.dtype is not DataType.BFLOAT16:
        rule = f"Dropout operation requires input and output data types to match. Input data type: {input_tensor.dtype.name}, output data type: BFLOAT16"
        fail(asked, rule, "ttnn.typecast(tensor, ttnn.bfloat16)")
    if input_tensor.layout is not Layout.TILE:
        fail(asked, "Dropout operation requires tensor to be in Tile layout when working with non-sharded input tensor", "ttnn.to_layout")
    grid, shape = input_tensor.grid, input_tensor.shard_shape
    chips = [grid.covers.index(c) for c in grid.coords] if use_per_device_seed else [0]
    kept = np.array([np.random.default_rng([int(seed), chip]).random(shape, F) >= F(probability) for chip in chips], bool)
    kept = kept.reshape((grid.shape if use_per_device_seed else (1,) * len(grid.shape)) + shape)
    return result(input_tensor, np.where(kept, input_tensor.array * F(scale), F(0)), memory_config=memory_config, output=output_tensor)
