"""Attention heads made and joined, and rotary positions, on each chip's own heads and batch."""

from __future__ import annotations

import numpy as np

from ttkit.errors import fail
from ttkit.sim.arguments import describe
from ttkit.sim.attention import of_rank_four
from ttkit.sim.enums import DataType
from ttkit.sim.matmul import product
from ttkit.sim.operation import aligned, each_element, on_mesh, operation, result, together
from ttkit.sim.tensor import Tensor

F = np.float32
Array = np.ndarray


def _heads(array: Array, lead: int, heads: int) -> Array:
    """[..., s, h * d] as [..., h, s, d]."""
    *front, width = array.shape
    return array.reshape([*front, heads, width // heads]).swapaxes(-3, -2)


def _qkv(
    name: str, tensor: Tensor, kv: Tensor | None, heads: int, groups: int | None, transpose: bool
) -> tuple[Tensor, Tensor, Tensor]:
    operands = (tensor,) if kv is None else (tensor, kv)
    on_mesh(name, *operands)
    asked = describe(name, operands, {"num_heads": heads, "num_kv_heads": groups})
    groups = groups or heads
    like, arrays, topology = together(name, operands)
    lead = len(like.grid.shape)
    width = tensor.shard_shape[-1]
    if kv is None:
        if width % (heads + 2 * groups):
            rule = f"Unsupported input shape: the last dimension {width} is not a multiple of"
            rule += f" {heads} query and 2 x {groups} key and value heads"
            fail(asked, rule, "[..., (heads + 2 * key heads) * size]")
        size = width // (heads + 2 * groups)
        parts = np.split(arrays[0], [heads * size, (heads + groups) * size], -1)
    else:
        if width % heads or kv.shard_shape[-1] % (2 * groups):
            rule = f"{width} is not a multiple of {heads} heads, or {kv.shard_shape[-1]} not of"
            rule += f" 2 x {groups}"
            fail(asked, rule)
        parts = [arrays[0], *np.split(arrays[1], 2, -1)]
    if len(tensor.shard_shape) == 4:  # [batch, 1, s, width]
        parts = [
            p.reshape(p.shape[:lead] + (p.shape[lead], p.shape[-2], p.shape[-1])) for p in parts
        ]
    q, k, v = (_heads(p, lead, n) for p, n in zip(parts, (heads, groups, groups), strict=True))
    if transpose:
        k = k.swapaxes(-1, -2)
    made = [result(like, x, dtype=tensor.dtype, topology=topology, owned=False) for x in (q, k, v)]
    return made[0], made[1], made[2]


@operation(
    "transformer.split_query_key_value_and_split_heads",
    "arrange",
    hints="memory_config use_falcon7b_backend",
)
def split_query_key_value_and_split_heads(
    input_tensor: Tensor,
    kv_input_tensor: Tensor | None = None,
    *,
    num_heads: int,
    num_kv_heads: int | None = None,
    transpose_key: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return query, key and value of [batch, s, 3 * heads * size].

    They are [batch, heads, s, size]; the key, by default transposed, [batch, heads, size, s].
    """
    name = "split_query_key_value_and_split_heads"
    if len(input_tensor.shard_shape) != 3:
        rule = "Invalid input tensor: expected 3 dimensions, but found"
        rule += f" {len(input_tensor.shard_shape)}."
        fail(describe(name, (input_tensor,)), rule, "[batch, sequence, width]")
    parts = num_heads + 2 * (num_kv_heads or num_heads) if kv_input_tensor is None else num_heads
    head_size = input_tensor.shard_shape[-1] // parts
    if head_size % 32:
        rule = f"Invalid head size: {head_size}. The head size must be a multiple of the tile"
        rule += " width (32)."
        cure = "adjust the dimensions, or shard by whole heads"
        fail(describe(name, (input_tensor,), {"num_heads": num_heads}), rule, cure)
    return _qkv(name, input_tensor, kv_input_tensor, num_heads, num_kv_heads, transpose_key)


@operation(
    "experimental.nlp_create_qkv_heads", "arrange", hints="kv_tied memory_config output_tensors"
)
def nlp_create_qkv_heads(
    input: Tensor,
    input_kv: Tensor | None = None,
    *,
    num_heads: int,
    num_kv_heads: int | None = None,
    transpose_k_heads: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return query, key and value of [batch, 1, s, (heads + 2 * key heads) * size].

    They are [batch, heads, s, size]; the key by default [batch, heads, size, s].
    """
    name = "nlp_create_qkv_heads"
    if len(input.shard_shape) != 4 or input.shard_shape[1] != 1:
        rule = f"Unsupported input shape {list(input.shard_shape)}: the input sequence length"
        rule += " (dimension 1) is not equal to 1"
        fail(describe(name, (input,)), rule, "[batch, 1, sequence, width]")
    parts = num_heads + 2 * (num_kv_heads or num_heads) if input_kv is None else num_heads
    if input.shard_shape[-1] % parts == 0 and input.shard_shape[-1] // parts % 32:
        rule = f"heads of size {input.shard_shape[-1] // parts}, which ttnn pads to a multiple"
        rule += " of 32, are not simulated"
        cure = "a head size that is a multiple of 32, or shard by whole heads"
        fail(describe(name, (input,), {"num_heads": num_heads}), rule, cure)
    return _qkv(name, input, input_kv, num_heads, num_kv_heads, transpose_k_heads)


def _join(name: str, tensor: Tensor, keep_one: bool) -> Tensor:
    on_mesh(name, tensor)
    if len(tensor.shard_shape) != 4:
        rule = f"Input tensor must have rank 4. Shape: {list(tensor.shard_shape)}"
        fail(describe(name, (tensor,)), rule, "[batch, heads, sequence, size]")
    if not keep_one and tensor.shard_shape[-1] % 32:
        rule = f"Head size must be a multiple of 32 but was found to be {tensor.shard_shape[-1]}."
        cure = "ttnn.experimental.nlp_concat_heads, or a padded head size"
        fail(describe(name, (tensor,)), rule, cure)
    batch, heads, length, size = tensor.shard_shape
    lead = tensor.array.shape[: len(tensor.grid.shape)]
    front = (batch, 1, length) if keep_one else (batch, length)
    return result(tensor, tensor.array.swapaxes(-3, -2).reshape((*lead, *front, heads * size)))


@operation("transformer.concatenate_heads", "arrange", hints="memory_config")
def concatenate_heads(input_tensor: Tensor) -> Tensor:
    """Return [batch, heads, s, size] as [batch, s, heads * size]."""
    return _join("concatenate_heads", input_tensor, False)


@operation("experimental.nlp_concat_heads", "arrange", hints="memory_config")
def nlp_concat_heads(input_tensor: Tensor) -> Tensor:
    """Return [batch, heads, s, size] as [batch, 1, s, heads * size]."""
    return _join("nlp_concat_heads", input_tensor, True)


@operation(
    "experimental.rotary_embedding",
    flops=each_element(3),
    hints="memory_config compute_kernel_config",
)
def rotary_embedding(
    input_tensor: Tensor, cos_cache: Tensor, sin_cache: Tensor, token_index: int | None = None
) -> Tensor:
    """Return x cos + rotate_half(x) sin: the halves of the last dimension are paired.

    Args:
        input_tensor: [batch, heads, s, size].
        cos_cache, sin_cache: [1, 1, positions, size].
        token_index: decode one token: row of the caches for all.

    Returns:
        [batch, heads, s, size] with s rounded up to a multiple of 32, as ttnn gives it; the added
        rows are zero.
    """
    operands = (input_tensor, cos_cache, sin_cache)
    on_mesh("rotary_embedding", *operands)
    asked = describe("rotary_embedding", operands, {"token_index": token_index})
    length, size, cache = (
        input_tensor.shard_shape[-2],
        input_tensor.shard_shape[-1],
        cos_cache.shard_shape,
    )
    width = input_tensor.padded[-1]
    if width != 32 and width % 64:
        rule = f"Input X dimension ({width}) must be either 32 (single tile) or divisible by 64"
        rule += " (rotate_half midpoint must align with a tile boundary)."
        fail(asked, rule, "another head size, or shard by whole heads")
    if size != width:
        rule = f"the halves of a padded last dimension ({size} in {width}) are not simulated"
        fail(asked, rule, "a head size without padding")
    if cache != sin_cache.shard_shape:
        rule = "Cosine and Sine cache dimensions must match. Cos cache dimensions:"
        rule += f" {list(cache)}, Sin cache dimensions: {list(sin_cache.shard_shape)}."
        fail(asked, rule)
    if len(cache) != 4 or cache[:2] != (1, 1) or cos_cache.padded[-1] != width:
        rule = f"Cosine cache dimensions must match input dimensions. Expected (1, 1, {width}),"
        rule += f" but got {list(cache)}."
        fail(asked, rule, "[1, 1, positions, size]")
    if token_index is not None and cache[2] <= token_index:
        rule = f"Cosine cache must cover the token index. Token index: {token_index}, Cos cache"
        rule += f" sequence length: {cache[2]}."
        fail(asked, rule)
    if token_index is None and cache[2] < length:
        rule = "Cosine cache must cover the input sequence length. Input sequence length:"
        rule += f" {length}, Cos cache sequence length: {cache[2]}."
        fail(asked, rule, "a longer cache, or the sequence sharded")
    like, (x, cos, sin), topology = aligned("rotary_embedding", operands)
    rows = slice(0, length) if token_index is None else slice(token_index, token_index + 1)
    turned = np.concatenate([-x[..., size // 2 :], x[..., : size // 2]], -1)
    values = x * cos[..., rows, :] + turned * sin[..., rows, :]
    if length % 32:  # ttnn makes whole tiles of it
        values = np.concatenate([values, np.zeros(values.shape[:-2] + (-length % 32, size), F)], -2)
    values = values.reshape(
        values.shape[: len(like.grid.shape)] + input_tensor.shard_shape[:-2] + values.shape[-2:]
    )
    return result(like, values, dtype=input_tensor.dtype, topology=topology)


@operation(
    "experimental.rotary_embedding_llama",
    flops=each_element(3),
    hints="memory_config compute_kernel_config",
)
def rotary_embedding_llama(
    input_tensor: Tensor,
    cos_cache: Tensor,
    sin_cache: Tensor,
    trans_mat: Tensor,
    *,
    is_decode_mode: bool = False,
) -> Tensor:
    """Return x cos + (x T) sin: the 32 x 32 matrix T pairs neighbours of the last dimension.

    Args:
        input_tensor: [batch, heads, s, size]; [1, batch, heads, size] to decode.
        cos_cache, sin_cache: [1, 1 or heads, positions, size]; [1, batch, 1, size] to decode.
        trans_mat: [1, 1, 32, 32].
    """
    operands = (input_tensor, cos_cache, sin_cache, trans_mat)
    like, (x, cos, sin, matrix), topology = of_rank_four("rotary_embedding_llama", *operands)
    asked = describe("rotary_embedding_llama", operands)
    size, length, lead = (
        input_tensor.shard_shape[-1],
        input_tensor.shard_shape[-2],
        len(like.grid.shape),
    )
    if any(t.dtype is not DataType.BFLOAT16 for t in operands):
        fail(asked, "All input tensors must have dtype = bfloat16", "ttnn.typecast")
    if trans_mat.shard_shape[-2:] != (32, 32):
        rule = "Transformation matrix must have 4th dim equal to TILE_WIDTH, and 3rd too, got"
        rule += f" {list(trans_mat.shard_shape)}"
        fail(asked, rule, "[1, 1, 32, 32]")
    if size % 32:
        fail(asked, f"the head size {size} must be a multiple of 32")
    if cos_cache.shard_shape != sin_cache.shard_shape or cos_cache.shard_shape[-1] != size:
        rule = f"the caches must be [1, 1, positions, {size}], got"
        rule += f" {list(cos_cache.shard_shape)} and {list(sin_cache.shard_shape)}"
        fail(asked, rule)
    if not is_decode_mode and cos_cache.shard_shape[-2] < length:
        rule = f"the caches have {cos_cache.shard_shape[-2]} positions, the input {length}"
        fail(asked, rule, "longer caches, or the sequence sharded")
    tiles = x.reshape(x.shape[:-1] + (size // 32, 32))
    matrix = matrix.reshape(matrix.shape[:lead] + (1,) * (tiles.ndim - lead - 2) + (32, 32))
    turned = product(tiles, matrix, lead)
    turned = turned.reshape(turned.shape[:-2] + (size,))
    rows = slice(0, 1) if is_decode_mode else slice(0, length)
    return result(
        like,
        x * cos[..., rows, :] + turned * sin[..., rows, :],
        dtype=input_tensor.dtype,
        topology=topology,
    )
