"""Tokens and experts chosen: sampling with a random stream for each user, and routing."""

from __future__ import annotations

import math
import weakref
from typing import Any

import numpy as np

from ttkit.sim.arguments import check, describe
from ttkit.sim.attention import softmax_of
from ttkit.sim.ccl_numpy import places
from ttkit.sim.creation import tensor_from
from ttkit.sim.enums import DataType, Layout
from ttkit.sim.matmul import product, product_flops
from ttkit.sim.mesh import MeshDevice
from ttkit.sim.operands import Operands
from ttkit.sim.operation import each_element, on_mesh, operation
from ttkit.sim.tensor import Tensor

Array = np.ndarray
F = np.float32
INTEGERS = (DataType.INT32, DataType.UINT32)
ROWS = Layout.ROW_MAJOR
# The random stream of each user of a mesh; all chips draw the same number for a user.
_streams: weakref.WeakKeyDictionary[MeshDevice, dict[int, Any]] = weakref.WeakKeyDictionary()


# ---------------------------------------------------------------- tokens
@operation("manual_seed", "arrange", hints="sub_core_grids")
def manual_seed(
    seeds: int | Tensor = 0,
    *,
    device: MeshDevice | None = None,
    user_ids: int | Tensor | None = None,
) -> Tensor:
    """Set the seed of `sampling`, of all users or of some; return an empty tensor, as ttnn does."""
    tensors = [t for t in (seeds, user_ids) if isinstance(t, Tensor)]
    mesh: Any = on_mesh("manual_seed", *tensors) if tensors else device
    chosen: list[Any] = [
        next(x.shards()) if isinstance(x, Tensor) else x for x in (user_ids, seeds)
    ]
    users, values = map(np.ravel, chosen)
    users = np.arange(32) if user_ids is None else users
    values = values if isinstance(seeds, Tensor) else np.full(users.size, seeds)
    bad = {t.dtype for t in tensors} - {DataType.UINT32}
    count = f"number of elements. Got seeds volume: {values.size} and user_ids volume: {users.size}"
    check(
        describe("manual_seed", (seeds, user_ids)),
        (mesh is None, "Device must be provided when seeds is a uint32_t value.", "device=mesh"),
        (bad, "Seeds tensor must be of type UINT32.", "dtype=ttnn.uint32"),
        (users.size != values.size, f"must have the same {count}"),
    )
    streams = _streams.setdefault(mesh, {})
    for user, value in zip(users.tolist(), values.tolist(), strict=True):
        if value != 2**32 - 1:  # which leaves a stream as it is
            streams[user] = np.random.default_rng([value, user])
    return tensor_from(np.zeros(1, np.uint32), device=mesh)


@operation("sampling", flops=each_element(5), hints="sub_core_grids")
def sampling(
    input_values_tensor: Tensor,
    input_indices_tensor: Tensor,
    k: Tensor,
    p: Tensor,
    temp: Tensor,
    *,
    seed: int | None = None,
    output_tensor: Tensor | None = None,
) -> Tensor:
    """Return a token of each user [1, 1, 1, users], drawn from softmax(values * temp).

    It is drawn among the `k` largest, and of these among the fewest whose probabilities add up to
    `p`. All chips draw the same random numbers.

    Args:
        input_values_tensor, input_indices_tensor: [1, 1, users, n]: logits, and their tokens.
        k, p, temp: [users].
        seed: of this call; without it the streams that `manual_seed` set go on.
    """
    on = Operands("sampling", input_values_tensor, input_indices_tensor, k, p, temp)
    *_, users, width = input_values_tensor.shard_shape
    kinds, tiles = {t.dtype for t in (input_values_tensor, p, temp)}, width / 32
    some = f"Sampling currently supports between 1 and 32 users (one core per user); got {users}!"
    power = f"Input inner dim ({width}) must yield a power-of-2 number of tiles (Wt = W/32 ="
    on.check(
        (kinds != {DataType.BFLOAT16}, "Only BFLOAT16 is supported for inputs!", "ttnn.typecast"),
        (tiles not in [2**i for i in range(16)], f"{power} {tiles})", "pad with -inf"),
        (users > 32, some),
    )
    streams = _streams.setdefault(on.like.mesh, {}) if seed is None else {}
    for user in range(users):
        streams.setdefault(user, np.random.default_rng([seed or 0, user]))
    drawn = np.array([streams[user].random() for user in range(users)])
    values, tokens, *settings = on.arrays
    draw = np.vectorize(_draw, [np.uint32], signature="(n),(n),(),(),(),()->()")
    chosen = draw(values[..., 0, 0, :, :], tokens[..., 0, 0, :, :], *settings, drawn)
    chosen = chosen[..., None, None, None, :]
    return on.result(chosen, DataType.UINT32, layout=ROWS, output=output_tensor)


def _draw(values: Array, tokens: Array, most: int, mass: F, factor: F, drawn: float) -> int:
    """Return the token of one user for a number between 0 and 1."""
    order = np.argsort(-values, kind="stable")[: max(most, 1)]
    sums = np.cumsum(softmax_of(values[order] * factor))
    sums = sums[: np.searchsorted(sums, mass) + 1]
    return tokens[order[np.searchsorted(sums, drawn * sums[-1], "right")]]


@operation("plus_one", flops=each_element(1))
def plus_one(
    input_tensor: Tensor, sub_core_grids: Any = None, skip_negative_entries: bool = False
) -> Tensor:
    """Add 1 to each element in place, such as the positions of a decode step."""
    on = Operands("plus_one", input_tensor)
    (array,) = on.arrays
    on.check(
        (input_tensor.dtype not in INTEGERS, "Only INT32 and UINT32 is supported for inputs!"),
        (input_tensor.layout is not ROWS, "Only ROW_MAJOR layout is supported for inputs!"),
    )
    grows = (array.view(np.int32) >= 0) | (not skip_negative_entries)
    return on.result(array + grows.astype(array.dtype), output=input_tensor)


# ---------------------------------------------------------------- experts
@operation("moe", flops=each_element(7), hints="memory_config")
def moe(
    input_tensor: Tensor,
    expert_mask_tensor: Tensor,
    topk_mask_tensor: Tensor,
    k: int = 32,
    *,
    output_tensor: Tensor | None = None,
) -> Tensor:
    """Return the weight of expert 0 for each row [a, b, s, 1]: 0 where it is not among the best.

    Args:
        input_tensor: router logits [a, b, s, experts].
        expert_mask_tensor: [1, 1, 1, experts], -inf where there is no expert.
        topk_mask_tensor: [1, 1, 1, 32], 0 for as many of the best as count, else -inf.
        k: 32.
    """
    on = Operands("moe", input_tensor, expert_mask_tensor, topk_mask_tensor)
    width, mask = input_tensor.shard_shape[-1], expert_mask_tensor.shard_shape
    rule = f"Expert mask must be row-broadcastable with last dim == input_shape[-1]. Got {mask}"
    on.check(
        (k != 32, f"K must be equal to 32, pad with -infinity if necessary to get 32, got {k}"),
        (width < 64 or width & (width - 1), f"Input shape inner dim {width} must be a power of 2"),
        (mask != (1, 1, 1, width), rule),
    )
    x, experts, best = on.arrays
    scores = x + experts
    order = np.argsort(-scores, -1, kind="stable")[..., :32]
    weights = softmax_of(np.take_along_axis(scores, order, -1) + best)
    weight = (weights * (order == 0)).sum(-1, keepdims=True)
    return on.result(weight, output=output_tensor)


@operation("moe_expert_token_remap", "arrange", hints="memory_config")
def moe_expert_token_remap(
    topk_tensor: Tensor,
    expert_mapping_tensor: Tensor,
    expert_metadata_tensor: Tensor,
    *,
    reduction_size: int = 16,
) -> list[Tensor]:
    """Return each chip's scores of its own experts, and which of these any token has chosen.

    Args:
        topk_tensor: scores [1, batch, s, experts].
        expert_mapping_tensor: [1, 1, experts, chips], 1 where a chip has an expert.
        expert_metadata_tensor: the chosen experts of each token, [1, batch, s, n].
        reduction_size: so many tokens share an entry of the second result.

    Returns:
        [1, batch, s, experts of a chip], and [1, 1, tokens / reduction_size, experts of a chip].
    """
    name = "moe_expert_token_remap"
    on = Operands(name, topk_tensor, expert_mapping_tensor, expert_metadata_tensor)
    (*_, experts, chips), (_, batch, length, _) = (t.shard_shape for t in on.tensors[1:])
    tokens, grid, own = batch * length, on.like.grid, experts // chips
    rule = f"batch * seq ({tokens}) must be divisible by reduction_size ({reduction_size})"
    on.check((tokens % reduction_size, rule))
    scores, mapping, chosen = on.arrays
    chip = places(grid, tuple(range(len(grid.mesh_shape))))[..., None, None, None, None]
    has = np.take_along_axis(mapping, chip, -1).swapaxes(-1, -2)  # [*chips, 1, 1, 1, experts]
    here = np.argsort(has == 0, -1, kind="stable")[..., :own]  # the experts of this chip
    taken = (chosen[..., None] == here[..., None, :]).any(-2)
    mapped = np.take_along_axis(scores, here, -1) * taken
    any_of = (mapped != 0).reshape((*grid.shape, 1, 1, -1, reduction_size, own)).any(-2)
    return [on.result(mapped), on.result(any_of.astype(F), DataType.UINT16)]


@operation("moe_routing_remap", "arrange", hints="memory_config")
def moe_routing_remap(
    routing_weights_tensor: Tensor,
    non_zero_weight_size: int,
    expert_parallel_size: int,
    cluster_axis: int,
    *,
    optional_output_tensor: Tensor | None = None,
) -> Tensor:
    """Return each chip's share of the weights that are not zero, the others zero.

    Args:
        routing_weights_tensor: [1, experts], the same on all chips.
        non_zero_weight_size: how many are not zero.
        expert_parallel_size: how many chips of `cluster_axis` share them, in order.
    """
    size, axis = expert_parallel_size, cluster_axis
    on = Operands("moe_routing_remap", routing_weights_tensor)
    (array,), like = on.arrays, on.like
    experts, count = array.shape[-1], non_zero_weight_size
    even = f"Number of experts ({experts}) must be evenly divisible by cluster ({size})"
    whole = f"expert parallel size ({size}) should be the same as size of cluster axis {axis}"
    many = f"Number of non zero weights ({count}) must be evenly divisible by {size}"
    on.check(
        (like.layout is not ROWS, "input tensor expected to be row major"),
        (experts % size, even),
        (like.mesh.shape[axis] != size, whole),
        (count % size, many),
    )
    chip = np.reshape([c[axis] for c in like.grid.coords], (*like.grid.shape, 1, 1))
    number = np.cumsum(array != 0, -1) - 1
    own = number // (count // size) == chip
    return on.result(array * own, output=optional_output_tensor)


@operation(
    "sparse_matmul",
    "product",
    flops=product_flops,
    hints="memory_config compute_kernel_config core_grid output_tile global_cb sub_device_id",
)
def sparse_matmul(
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    *,
    sparsity: Tensor,
    program_config: Any,
    nnz: int | None = None,
    is_input_a_sparse: bool = False,
    is_input_b_sparse: bool = True,
    dtype: DataType | None = None,
    optional_output_tensor: Tensor | None = None,
) -> Tensor:
    """Return the products with each expert's matrix; zeros where `sparsity` is zero.

    Args:
        input_tensor_a: [a, b, m, k], or where it is sparse [a, experts, m, k].
        input_tensor_b: [1, experts, k, n].
        sparsity: row-major [a, b, 1, experts], or where `a` is sparse [1, 1, a, experts].

    Returns:
        [a, b, 1, experts, m, n], or where `a` is sparse [a, experts, m, n].
    """
    on = Operands("sparse_matmul", input_tensor_a, input_tensor_b, sparsity)
    (*front, m, _), (_, experts, _, n) = (t.shard_shape for t in on.tensors[:2])
    a, b, mask = on.arrays
    if not is_input_a_sparse:
        a, front = a[..., None, None, :, :], [*front, 1, experts]
    many = math.prod(front)
    dense = not (is_input_a_sparse or is_input_b_sparse)
    on.check(
        (dense, "requires at least one of is_input_a_sparse or is_input_b_sparse to be true"),
        ((nnz or 0) > many, f"nnz ({nnz}) must be less than or equal to the length of all batch"),
    )
    values = product(a, b, on.lead)
    values = values.reshape((*values.shape[: on.lead], *front, m, n))
    values = values * (mask.reshape((*mask.shape[: on.lead], *front, 1, 1)) != 0)
    return on.result(values, dtype, output=optional_output_tensor)
