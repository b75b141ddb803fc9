"""Attention of one new token to the keys and values of those before it, for a batch of users on each chip."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ttkit.dialect import is_strict
from ttkit.errors import fail
from ttkit.sim.arguments import describe
from ttkit.sim.dispatch import common_grid, merged, on_mesh, operation, result
from ttkit.sim.enums import DataType, Layout
from ttkit.sim.nn import softmax_of
from ttkit.sim.tensor import Tensor

F = np.float32
Array = np.ndarray
NEVER = F(-1e9)  # stands for a score that must not count
NAME = "scaled_dot_product_attention_decode"


def _check(asked: object, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool) -> None:
    if q.layout is not Layout.TILE:
        fail(asked, "ROW_MAJOR Q is only supported when Q is HEIGHT_SHARDED in L1; interleaved ROW_MAJOR Q is not supported", "ttnn.to_layout to tiles")
    if k.layout is not Layout.TILE or v.layout is not Layout.TILE:
        fail(asked, "Inputs to SDPA must be tilized except for Q", "ttnn.to_layout(tensor, ttnn.TILE_LAYOUT)")
    taken = (DataType.BFLOAT16, DataType.BFLOAT8_B, DataType.BFLOAT4_B, *(() if is_strict() else (DataType.FLOAT32,)))
    for tensor in (q, k, v):
        if tensor.dtype not in taken:
            fail(asked, f"Unsupported data type DataType::{tensor.dtype.name}.", "ttnn.typecast(tensor, ttnn.bfloat16)")
    for what, tensor in (("Q", q), ("K", k), ("V", v)):
        if len(tensor.shard_shape) != 4:
            fail(asked, f"{what} must have rank 4, got {list(tensor.shard_shape)}", "query [1, batch, heads, size], keys [batch, key heads, keys, size]")
    (one, batch, heads, size), (users, groups, keys, width) = q.shard_shape, k.shard_shape
    if one != 1:
        fail(asked, f"Q tensor batch size must be 1 for decode mode but got {one}", "[1, batch, heads, size]")
    if users != batch:
        fail(asked, f"K tensor batch size ({users}) must equal B ({batch})", "shard dim 1 of the query and dim 0 of keys and values over the same chips")
    if width != size:
        fail(asked, f"K tensor hidden dimension ({width}) must equal Q tensor hidden dimension ({size})")
    if v.shard_shape[2] != keys:
        fail(asked, f"K and V tensors must have the same sequence length. K: {keys}, V: {v.shard_shape[2]}")
    if v.shard_shape != k.shard_shape:
        fail(asked, f"K and V must have one shape. Got K: {list(k.shard_shape)}, V: {list(v.shard_shape)}")
    if keys % 32:
        fail(asked, f"Chunk size must be multiple of 32, but the maximum calculated k_chunk_size is: {keys & -keys}", "room for a multiple of 32 keys")
    if not groups or heads % groups:
        fail(asked, f"GQA expects Q to have a multiple of K heads, but got {heads} and {groups}", "shard query and key heads over the same chips")
    if mask is None:
        return
    if is_causal:
        fail(asked, "attn_mask must not be provided when is_causal=True. Pass is_causal=False to use an explicit mask.")
    if len(mask.shard_shape) != 4:
        fail(asked, f"ShapeBase[] index out of range. 2 not in [-4, {len(mask.shard_shape)})", "a mask [batch or 1, 1, heads, keys]")
    if mask.shard_shape[2] != heads:
        fail(asked, f"Expect same number of heads in mask as in Q, got {mask.shard_shape[2]} and {heads}", "a mask [batch or 1, 1, heads, keys]")
    if mask.shard_shape[3] != keys:
        fail(asked, f"Expect same sequence length in mask as in K, got {mask.shard_shape[3]} and {keys}")
    if mask.shard_shape[0] not in (1, batch) or mask.shard_shape[1] != 1:
        fail(asked, f"a mask of shape {list(mask.shard_shape)} does not fit {batch} users", "a mask [batch or 1, 1, heads, keys]")


def _positions(asked: object, given: Any, tensor: Tensor | None, array: Array | None, lead: int, batch: int, keys: int) -> Array:
    """The last key that each user may see: [..., batch], leading axes over the chips."""
    if tensor is not None and array is not None:
        if tensor.logical_volume() < batch:
            rule = f"cur_pos tensor must have at least one position per batch ({batch}), got shape {tensor.shape!r}"
            fail(asked, rule, "one position for each user, sharded like the batch")
        last = array.reshape(array.shape[:lead] + (-1,))[..., :batch].astype(np.int64)
    else:
        numbers = list(given)
        if any(isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 0 for n in numbers):
            fail(asked, f"incompatible function arguments: cur_pos={numbers} must hold whole numbers from 0 on", kind=TypeError)
        if len(numbers) < batch:
            rule = f"vector::_M_range_check: __n (which is {len(numbers)}) >= this->size() (which is {len(numbers)}): cur_pos needs one position per user"
            fail(asked, rule, f"{batch} positions, or is_causal=False")
        last = np.array(numbers[:batch], np.int64).reshape((1,) * lead + (batch,))
    if last.max(initial=0) >= keys:
        fail(asked, f"cur_pos must be <= K sequence dim: {int(last.max())} of {keys}", "a longer cache")
    return last


@operation(f"transformer.{NAME}")
def scaled_dot_product_attention_decode(
    input_tensor_q: Tensor, input_tensor_k: Tensor, input_tensor_v: Tensor, *, is_causal: bool = True, attn_mask: Tensor | None = None,
    cur_pos: Any = (), cur_pos_tensor: Tensor | None = None, attention_sink: Any = None, scale: float | None = None,
    sliding_window_size: int | None = None, memory_config: Any = None, program_config: Any = None, compute_kernel_config: Any = None,
    share_cache: bool | None = None,
) -> Tensor:  # fmt: skip
    """softmax(q k^T * scale) v for one token of each user, over the keys up to and including its own position.

    Args:
        input_tensor_q: [1, batch, heads, size].
        input_tensor_k, input_tensor_v: [batch, key heads, keys, size]: caches, filled up to the position.
        cur_pos, cur_pos_tensor: the position of each user's token; a tensor may differ from chip to chip, and -1 in it leaves a user out (zeros).
        attn_mask: [batch or 1, 1, heads, keys], added to the scores; only without `is_causal`, which then sees all keys.
        sliding_window_size: only the last so many keys count.

    Returns:
        [1, batch, heads, size].
    """
    q, k, v = input_tensor_q, input_tensor_k, input_tensor_v
    others = [t for t in (attn_mask, cur_pos_tensor) if t is not None]
    operands = (q, k, v, *others)
    asked = describe(NAME, operands, {"is_causal": is_causal, "cur_pos": list(cur_pos)})
    if any(isinstance(t, Tensor) and t.mesh is None for t in operands):
        fail(asked, "Device Operations expect device tensors as inputs", "ttnn.to_device(tensor, mesh)")
    on_mesh(NAME, *operands, letters="QKVMP")
    _check(asked, q, k, v, attn_mask, is_causal)
    if attention_sink is not None or share_cache:
        fail(asked, "attention sinks and shared caches are not simulated", "one cache for each user")
    like, arrays = common_grid(operands, lambda: asked)
    lead, (_, batch, heads, size), (_, groups, keys, _) = len(like.grid.shape), q.shard_shape, k.shard_shape
    x = arrays[0].reshape(arrays[0].shape[:lead] + (batch, groups, heads // groups, size))
    scores = np.matmul(x * F(1 / math.sqrt(size) if scale is None else scale), arrays[1].swapaxes(-1, -2))
    empty = None
    if is_causal:
        last = _positions(asked, cur_pos, cur_pos_tensor, arrays[-1] if cur_pos_tensor is not None else None, lead, batch, keys)
        behind = last[..., None] - np.arange(keys)
        hidden = (behind < 0) | (behind >= sliding_window_size) if sliding_window_size else behind < 0
        scores = np.where(hidden[..., None, None, :], NEVER, scores)
        empty = (last < 0)[..., None, None, None]
    elif attn_mask is not None:
        mask = arrays[3]
        scores = scores + mask.reshape(mask.shape[: lead + 1] + (groups, heads // groups, keys))
    values = np.matmul(softmax_of(scores), arrays[2])
    if empty is not None and empty.any():
        values = np.where(empty, F(0), values)
    values = values.reshape(values.shape[:lead] + (1, batch, heads, size))
    topology = merged(like.mesh.grid, *(t.topology for t in operands))
    return result(like, values, dtype=q.dtype, topology=topology, memory_config=memory_config)
