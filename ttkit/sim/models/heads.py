"""Split and join attention heads, and apply rotary position embeddings (RoPE), on each chip."""

from collections.abc import Iterable

import numpy as np

from ttkit.sim.arguments import refuse
from ttkit.sim.models.cache import needs_shards, numbers
from ttkit.sim.ops import (
    Array,
    Operands,
    each_element,
    in_whole_tiles,
    looked_up,
    operation,
    shaped,
    spread,
)
from ttkit.sim.ops.matmul import product
from ttkit.sim.tensor.sharding import (
    L1_HEIGHT_SHARDED_MEMORY_CONFIG,
    L1_WIDTH_SHARDED_MEMORY_CONFIG,
    MemoryConfig,
)
from ttkit.sim.tensor.tensor import Tensor

Three = tuple[Tensor, Tensor, Tensor]


# ---------------------------------------------------------------- heads
def _parts(x: Array, heads: int, groups: int) -> list[Array]:
    """Return [..., (heads + 2 * groups) * size] as query, keys and values [..., n, size]."""
    x = shaped(x, -1, heads + 2 * groups, -1)
    return np.split(x, (heads, heads + groups), -2)


def _three(on: Operands, parts: Iterable[Array]) -> Three:
    return tuple(on.result(part, rearranged=True) for part in parts)  # type: ignore[return-value]


@operation(
    "transformer.split_query_key_value_and_split_heads experimental.nlp_create_qkv_heads", "arrange"
)
def split_heads(
    input_tensor: Tensor,
    kv_input_tensor: Tensor | None = None,
    *,
    num_heads: int,
    num_kv_heads: int | None = None,
    transpose_key: bool = True,
    transpose_k_heads: bool = True,
) -> Three:
    """Return query, key and value of [batch, s, (heads + 2 * key heads) * size].

    The query is [batch, heads, s, size] and the value [batch, key heads, s, size]. The key is by
    default transposed: [batch, key heads, size, s].

    Args:
        input_tensor: [batch, s, ...], or [batch, 1, s, ...].
        kv_input_tensor: keys and values, where the first tensor has queries only.
        transpose_key, transpose_k_heads: whether the key is transposed. Each of the two operations
            has one of these names.
    """
    on = Operands(input_tensor, kv_input_tensor)
    groups = num_kv_heads or num_heads
    x, more = on.arrays
    if more is not None:
        x = np.concatenate(spread(on.arrays, on.lead), -1)
    shape = on.tensors[0].shard_shape
    x = shaped(x, on.lead, shape[0], shape[-2], x.shape[-1])
    q, k, v = (part.swapaxes(-3, -2) for part in _parts(x, num_heads, groups))
    transpose = transpose_key and transpose_k_heads
    return _three(on, (q, k.swapaxes(-1, -2) if transpose else k, v))


@operation("experimental.nlp_create_qkv_heads_falcon7b", "arrange")
def nlp_create_qkv_heads_falcon7b(input: Tensor) -> Three:
    """Return query, key and value of [batch, 1, s, 73 * 64]: 71 query heads share one key head."""
    return split_heads(input, num_heads=71, num_kv_heads=1, transpose_key=False)


@operation("experimental.nlp_create_qkv_heads_decode", "arrange")
def nlp_create_qkv_heads_decode(
    input_tensor: Tensor,
    *,
    num_heads: int,
    num_kv_heads: int | None = None,
    batch_offset: Tensor | None = None,
    slice_size: int | None = None,
    memory_config: MemoryConfig | None = None,
) -> Three:
    """Return query, key and value of one token of each user; each core has one user.

    Args:
        input_tensor: [1, 1, users, (heads + 2 * key heads) * size].
        batch_offset: the number of the first user to take, a tensor [1].
        slice_size: how many users to take; without it all users are taken.
        memory_config: has no effect; as in ttnn, the results are always height-sharded in L1.

    Returns:
        The query [1, users, heads, size], and key and value [1, users, key heads, size].
    """
    on = Operands(input_tensor, batch_offset)
    x, offset = on.arrays
    if slice_size is not None:
        first = numbers(offset, 0, on.lead) + np.arange(slice_size)
        x = looked_up(x[..., 0, 0, :, :], on.lead, first)[..., None, None, :, :]
    made = _three(on, _parts(x[..., 0, :, :, :], num_heads, num_kv_heads or num_heads))
    for tensor in made:
        tensor.plain_memory_config = L1_HEIGHT_SHARDED_MEMORY_CONFIG
    return made


@operation("experimental.nlp_concat_heads_decode", "arrange")
def nlp_concat_heads_decode(input_tensor: Tensor, *, num_heads: int) -> Tensor:
    """Return [1, users, heads, size] as [1, 1, 32, num_heads * size]; rows without a user are 0."""
    needs_shards(input_tensor)
    on = Operands(input_tensor)
    x = on.arrays[0][..., :num_heads, :]
    rows = [(0, 0)] * (x.ndim - 3) + [(0, 32 - x.shape[-3]), (0, 0), (0, 0)]
    made = on.result(shaped(np.pad(x, rows), on.lead, 1, 1, 32, -1), rearranged=True)
    made.plain_memory_config = L1_WIDTH_SHARDED_MEMORY_CONFIG
    return made


def _joined(tensor: Tensor, *one: int) -> Tensor:
    on = Operands(tensor)
    _, heads, length, size = tensor.shard_shape
    x = on.arrays[0].swapaxes(-3, -2)
    return on.result(shaped(x, -3, *one, length, heads * size), rearranged=True)


@operation("transformer.concatenate_heads", "arrange")
def concatenate_heads(input_tensor: Tensor) -> Tensor:
    """Return [batch, heads, s, size] as [batch, s, heads * size]."""
    return _joined(input_tensor)


@operation("experimental.nlp_concat_heads", "arrange")
def nlp_concat_heads(input_tensor: Tensor) -> Tensor:
    """Return [batch, heads, s, size] as [batch, 1, s, heads * size]."""
    return _joined(input_tensor, 1)


# ---------------------------------------------------------------- positions
def _check_caches(cos: Array, rows: int) -> None:
    """Check that there is a row of cosines for each position of the input."""
    if cos.shape[-2] < rows:
        rule = f"the cosines of {cos.shape[-2]} positions do not cover the {rows} of the input"
        refuse(rule, "longer caches, or the sequence sharded")


@operation("experimental.rotary_embedding", flops=each_element(3))
def rotary_embedding(
    input_tensor: Tensor, cos_cache: Tensor, sin_cache: Tensor, token_index: int | None = None
) -> Tensor:
    """Return x cos + rotate_half(x) sin: the halves of the last dimension are paired.

    Args:
        input_tensor: [batch, heads, s, size].
        cos_cache, sin_cache: [1, 1, positions, size].
        token_index: the row of the caches that all rows of the input use, to decode one token.

    Returns:
        [batch, heads, s, size] with s rounded up to a multiple of 32, as ttnn gives it; the added
        rows are zero.
    """
    on = Operands(input_tensor, cos_cache, sin_cache)
    length, size = input_tensor.shard_shape[-2:]
    rows = slice(0, length) if token_index is None else slice(token_index, token_index + 1)
    x, cos, sin = on.arrays
    _check_caches(cos, rows.stop)
    turned = np.concatenate([-x[..., size // 2 :], x[..., : size // 2]], -1)
    values = x * cos[..., rows, :] + turned * sin[..., rows, :]
    # As in ttnn, the result consists of whole tiles.
    return on.result(in_whole_tiles(values) if length % 32 else values)


@operation("experimental.rotary_embedding_llama", flops=each_element(3))
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
    others = (cos_cache, sin_cache, trans_mat)
    rows = input_tensor.shard_shape[-2]
    if is_decode_mode:
        needs_shards(input_tensor)
    return _turned(input_tensor, others, 1 if is_decode_mode else rows)


def _turned(
    tensor: Tensor, others: tuple[Tensor, ...], rows: int, users: slice = slice(None)
) -> Tensor:
    """Return x cos + (x T) sin, with cosines and sines of the first rows of some users.

    Where there are many copies of the matrix T, one for each core, the first copy is used.
    """
    on = Operands(tensor, *others)
    x, cos, sin, matrix = on.arrays
    _check_caches(cos, rows)
    cos, sin = (t[..., users, :rows, :] for t in (cos, sin))
    tiles = shaped(x, -1, -1, 32)
    one = matrix[..., :1, :1, None, :32, :]
    made = on.result(x * cos + product(tiles, one, on.lead).reshape(x.shape) * sin)
    made.plain_memory_config = tensor.plain_memory_config
    return made


@operation("experimental.rotary_embedding_llama_fused_qk", flops=each_element(3))
def rotary_embedding_llama_fused_qk(
    q_input_tensor: Tensor,
    k_input_tensor: Tensor,
    cos_cache: Tensor,
    sin_cache: Tensor,
    trans_mat: Tensor,
) -> tuple[Tensor, Tensor]:
    """Apply `rotary_embedding_llama` in decode mode to queries and to keys.

    Args:
        q_input_tensor, k_input_tensor: [1, users, heads, size].
        cos_cache, sin_cache: [1, 2 * users, 1 or 32, size]; first the users' rows for the queries,
            then those for the keys.
        trans_mat: [1, 1, 32, 32], or one for each core.
    """
    needs_shards(q_input_tensor)
    needs_shards(k_input_tensor)
    users = q_input_tensor.shard_shape[1]
    others = (cos_cache, sin_cache, trans_mat)
    query = _turned(q_input_tensor, others, 1, slice(users))
    return query, _turned(k_input_tensor, others, 1, slice(users, None))
