"""Attention heads made and joined, and rotary positions, on each chip's own heads and batch."""

from __future__ import annotations

import numpy as np

from ttkit.dialect import is_strict
from ttkit.errors import fail
from ttkit.sim.arguments import check, describe
from ttkit.sim.attention import of_rank_four
from ttkit.sim.cache import looked_up, numbers
from ttkit.sim.dtypes import BLOCK_FLOATS
from ttkit.sim.enums import BufferType, DataType, Layout, TensorMemoryLayout
from ttkit.sim.matmul import product
from ttkit.sim.operation import each_element, on_mesh, operands, operation, result, spread
from ttkit.sim.sharding import MemoryConfig
from ttkit.sim.tensor import Tensor

Array = np.ndarray
Three = tuple[Tensor, Tensor, Tensor]
A_USER_ON_A_CORE = MemoryConfig(TensorMemoryLayout.HEIGHT_SHARDED, BufferType.L1)


# ---------------------------------------------------------------- heads
def _parts(x: Array, heads: int, groups: int) -> list[Array]:
    """Return [..., (heads + 2 * groups) * size] as query, keys and values [..., n, size]."""
    x = x.reshape((*x.shape[:-1], heads + 2 * groups, -1))
    return np.split(x, (heads, heads + groups), -2)


def _split(
    name: str,
    tensors: tuple[Tensor, Tensor | None],
    rank: int,
    heads: int,
    groups: int | None,
    transpose: bool,
) -> Three:
    """Return query, key and value of one tensor, or of one for queries and one for the others."""
    asked, like, arrays, topology = operands(name, *tensors)
    tensor, groups, lead = tensors[0], groups or heads, len(like.grid.shape)
    shape = tensor.shard_shape
    if len(shape) != rank or (rank == 4 and shape[1] != 1):
        form = "[batch, sequence, width]" if rank == 3 else "[batch, 1, sequence, width]"
        fail(asked, f"Invalid input tensor: expected {rank} dimensions, got {list(shape)}", form)
    given = [x for x in arrays if x is not None]
    x = np.concatenate(spread(given, lead), -1) if len(given) > 1 else given[0]
    many, width = heads + 2 * groups, x.shape[-1]
    if width % many or width // many % 32:
        rule = f"Invalid head size: {width} columns over {heads} query and 2 x {groups} key and"
        rule += " value heads. The head size must be a multiple of the tile width (32)."
        fail(asked, rule, "another size, or shard by whole heads")
    x = x.reshape((*x.shape[:lead], shape[0], shape[-2], width))
    q, k, v = (part.swapaxes(-3, -2) for part in _parts(x, heads, groups))
    k = k.swapaxes(-1, -2) if transpose else k
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
) -> Three:
    """Return query, key and value of [batch, s, (heads + 2 * key heads) * size].

    They are [batch, heads, s, size]; the key, by default transposed, [batch, heads, size, s].
    """
    name, given = "split_query_key_value_and_split_heads", (input_tensor, kv_input_tensor)
    return _split(name, given, 3, num_heads, num_kv_heads, transpose_key)


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
) -> Three:
    """Return query, key and value of [batch, 1, s, (heads + 2 * key heads) * size].

    They are [batch, heads, s, size]; the key by default [batch, heads, size, s].
    """
    name, given = "nlp_create_qkv_heads", (input, input_kv)
    return _split(name, given, 4, num_heads, num_kv_heads, transpose_k_heads)


@operation("experimental.nlp_create_qkv_heads_falcon7b", "arrange", hints="memory_config")
def nlp_create_qkv_heads_falcon7b(input: Tensor) -> Three:
    """Return query, key and value of [batch, 1, s, 73 * 64]: 71 query heads share one key head."""
    asked, width = describe("nlp_create_qkv_heads_falcon7b", (input,)), input.shard_shape[-1]
    check(asked, (width != 73 * 64, "Unsupported input shape", "[batch, 1, s, 4672]"))
    return nlp_create_qkv_heads(input, num_heads=71, num_kv_heads=1, transpose_k_heads=False)


@operation(
    "experimental.nlp_create_qkv_heads_decode",
    "arrange",
    hints="output_tensors overlap_qk_coregrid",
)
def nlp_create_qkv_heads_decode(
    input_tensor: Tensor,
    *,
    num_heads: int,
    num_kv_heads: int | None = None,
    batch_offset: Tensor | None = None,
    slice_size: int | None = None,
    memory_config: MemoryConfig | None = None,
) -> Three:
    """Return query, key and value of one token of each user, one user on a core.

    Args:
        input_tensor: [1, 1, users, (heads + 2 * key heads) * size].
        batch_offset, slice_size: only so many users, from this one on; the offset is a tensor [1].
        memory_config: as ttnn does, the results are height-sharded in L1 whatever it says.

    Returns:
        [1, users, heads, size], and twice [1, users, key heads, size].
    """
    name = "nlp_create_qkv_heads_decode"
    asked, like, (x, offset), topology = operands(name, input_tensor, batch_offset)
    (*front, users, width), groups = input_tensor.shard_shape, num_kv_heads or num_heads
    many, lead = num_heads + 2 * groups, len(like.grid.shape)
    whole = f"Input shape {width} must be divisible by num_heads + 2*num_kv_heads = {many}"
    check(
        asked,
        (input_tensor.layout is not Layout.TILE, "Only tile layout is supported for input tensor"),
        (input_tensor.dtype in BLOCK_FLOATS, "Unsupported data format", "ttnn.bfloat16"),
        (front != [1, 1] or users > 32, f"Unsupported input shape = {input_tensor.shape}"),
        (width % many, whole, "shard by whole heads"),
        (width // many % 32, f"Physical shard shape (32, {width // many}) must be tile sized!"),
    )
    if slice_size is not None:
        first = numbers(offset, 0, lead) + np.arange(slice_size)
        x = looked_up(x[..., 0, 0, :, :], lead, first)[..., None, None, :, :]
    parts = _parts(x[..., 0, :, :, :], num_heads, groups)
    made = [result(like, part, topology=topology, owned=False) for part in parts]
    for tensor in made:
        tensor.plain_memory_config = A_USER_ON_A_CORE
    return made[0], made[1], made[2]


@operation("experimental.nlp_concat_heads_decode", "arrange", hints="memory_config sub_core_grids")
def nlp_concat_heads_decode(
    input_tensor: Tensor, *, num_heads: int, output_tensor: Tensor | None = None
) -> Tensor:
    """Return [1, users, heads, size] as [1, 1, 32, num_heads * size]; rows without a user are 0."""
    asked, _, (x,), _ = operands("nlp_concat_heads_decode", input_tensor)
    (_, users, _, size), loose = x.shape[-4:], is_strict() and not input_tensor.is_sharded()
    check(
        asked,
        (loose, "Input tensor must be sharded", "HEIGHT_SHARDED, one user on a core"),
        (size % 32, "head_dim must be multiple of TILE_WIDTH"),
        (num_heads > 32 or users > 32, f"num_heads {num_heads} and users {users} are at most 32"),
    )
    joined = np.zeros((*x.shape[:-4], 1, 1, 32, num_heads, size), np.float32)
    joined[..., 0, 0, :users, :, :] = x[..., 0, :, :num_heads, :]
    made = result(input_tensor, joined.reshape((*joined.shape[:-2], -1)), output=output_tensor)
    made.plain_memory_config = MemoryConfig(TensorMemoryLayout.WIDTH_SHARDED, BufferType.L1)
    return made


def _join(name: str, tensor: Tensor, keep_one: bool) -> Tensor:
    on_mesh(name, tensor)
    if len(tensor.shard_shape) != 4:
        rule = f"Input tensor must have rank 4. Shape: {list(tensor.shard_shape)}"
        fail(describe(name, (tensor,)), rule, "[batch, heads, sequence, size]")
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


# ---------------------------------------------------------------- positions
def _check_caches(asked: object, operands: tuple[Tensor, ...], rows: int, step: int) -> None:
    """Check that the cosines and sines are of each position and each column of the input."""
    width, cos, sin = operands[0].shard_shape[-1], *(t.shard_shape for t in operands[1:3])
    if width % step and width != 32:
        rule = f"Input X dimension ({width}) must be either 32 or divisible by {step}"
        fail(asked, rule, "another head size, or shard by whole heads")
    if cos != sin or len(cos) != 4 or cos[-1] != width:
        rule = "Cosine and Sine cache dimensions must match, and match input dimensions. Expected"
        rule += f" (1, 1, positions, {width}), but got {list(cos)} and {list(sin)}."
        fail(asked, rule)
    if cos[2] < rows:
        rule = f"Cosine cache must cover the input: {rows} positions, the cache has {cos[2]}."
        fail(asked, rule, "longer caches, or the sequence sharded")


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
    like, (x, cos, sin), topology = of_rank_four("rotary_embedding", *operands)
    length, size = input_tensor.shard_shape[-2:]
    rows = slice(0, length) if token_index is None else slice(token_index, token_index + 1)
    _check_caches(describe("rotary_embedding", operands), operands, rows.stop, 64)
    turned = np.concatenate([-x[..., size // 2 :], x[..., : size // 2]], -1)
    values = x * cos[..., rows, :] + turned * sin[..., rows, :]
    if length % 32:  # ttnn makes whole tiles of it
        more = np.zeros((*values.shape[:-2], -length % 32, size), np.float32)
        values = np.concatenate([values, more], -2)
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
    others, rows = (cos_cache, sin_cache, trans_mat), input_tensor.shard_shape[-2]
    return _turned("rotary_embedding_llama", input_tensor, others, 1 if is_decode_mode else rows)


def _turned(
    name: str, tensor: Tensor, others: tuple[Tensor, ...], rows: int, users: slice = slice(None)
) -> Tensor:
    """Return x cos + (x T) sin, with cosines and sines of the first rows of some users.

    Of many copies of the matrix T, one on each core, the first counts.
    """
    given = (tensor, *others)
    like, (x, cos, sin, matrix), topology = of_rank_four(name, *given)
    asked, shape = describe(name, given), list(matrix.shape[-4:])
    _check_caches(asked, given, rows, 32)
    wide, rule = {t.dtype for t in given} != {DataType.BFLOAT16}, "Transformation matrix must have"
    whole = shape[-1] == 32 and shape[-2] % 32 == 0
    check(
        asked,
        (wide, "All input tensors must have dtype = bfloat16", "ttnn.typecast"),
        (not whole, f"{rule} 4th dim equal to TILE_WIDTH, got {shape}", "[1, 1, 32, 32]"),
    )
    cos, sin = (t[..., users, :rows, :] for t in (cos, sin))
    tiles, one = x.reshape((*x.shape[:-1], -1, 32)), matrix[..., :1, :1, None, :32, :]
    values = x * cos + product(tiles, one, len(like.grid.shape)).reshape(x.shape) * sin
    made = result(like, values, dtype=tensor.dtype, topology=topology)
    made.plain_memory_config = tensor.plain_memory_config
    return made


@operation(
    "experimental.rotary_embedding_llama_fused_qk",
    flops=each_element(3),
    hints="compute_kernel_config",
)
def rotary_embedding_llama_fused_qk(
    q_input_tensor: Tensor,
    k_input_tensor: Tensor,
    cos_cache: Tensor,
    sin_cache: Tensor,
    trans_mat: Tensor,
) -> tuple[Tensor, Tensor]:
    """Do `rotary_embedding_llama` to decode, for queries and keys.

    Args:
        q_input_tensor, k_input_tensor: [1, users, heads, size].
        cos_cache, sin_cache: [1, 2 * users, 1 or 32, size]: a row for each query, then each key.
        trans_mat: [1, 1, 32, 32], or one for each core.
    """
    name, pair = "rotary_embedding_llama_fused_qk", (q_input_tensor, k_input_tensor)
    loose, users = is_strict() and not all(t.is_sharded() for t in pair), pair[0].shard_shape[1]
    rows = [pair[1].shard_shape[1], cos_cache.shard_shape[1]]
    many = "Cos and Sin must have the batch size of Q, which is that of K, twice"
    check(
        describe(name, pair),
        (loose, "Q input tensor must be HEIGHT_SHARDED.", "one user on a core"),
        (rows != [users, 2 * users], f"{many}: {users}, {rows}", "twice the same rows"),
    )
    others = (cos_cache, sin_cache, trans_mat)
    query = _turned(name, pair[0], others, 1, slice(users))
    return query, _turned(name, pair[1], others, 1, slice(users, None))
