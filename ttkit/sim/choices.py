"""Tokens and experts chosen: sampling with a random stream for each user, and routing."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from ttkit.sim.arguments import check, describe
from ttkit.sim.attention import softmax_of
from ttkit.sim.creation import tensor_from
from ttkit.sim.enums import DataType, Layout
from ttkit.sim.matmul import product
from ttkit.sim.mesh import MeshDevice
from ttkit.sim.operation import each_element, on_mesh, operation, result, together
from ttkit.sim.tensor import Tensor

Array = np.ndarray
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
    asked, many = describe("manual_seed", (seeds, user_ids)), isinstance(seeds, Tensor)
    mesh = on_mesh("manual_seed", *tensors) if tensors else device
    bad = {(t.dtype, t.layout) for t in tensors} - {(DataType.UINT32, ROWS)}
    users, values = (
        next(x.shards()).ravel().tolist() if isinstance(x, Tensor) else x for x in (user_ids, seeds)
    )
    lone = many and isinstance(user_ids, int)
    users = list(range(32)) if users is None else np.ravel(users).tolist()
    values = values if many else [values] * len(users)
    count = f"Got seeds volume: {len(values)} and user_ids volume: {len(users)}"
    differ = user_ids is not None and len(users) != len(values)
    check(
        asked,
        (mesh is None, "Device must be provided when seeds is a uint32_t value.", "device=mesh"),
        (lone, "Seeds were provided as a tensor, so user_ids must not be provided as a scalar."),
        (bad, "Seeds tensor must be of type UINT32. Seeds tensor must have ROW_MAJOR layout."),
        (
            differ,
            f"Seeds tensor and User IDs tensor must have the same number of elements. {count}",
        ),
    )
    kept: dict[int, Any] = _streams.setdefault(mesh, {})  # type: ignore[arg-type]
    for user, value in zip(users, values, strict=False):
        kept[user] = np.random.default_rng([value, user])
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
    operands = (input_values_tensor, input_indices_tensor, k, p, temp)
    mesh, asked = on_mesh("sampling", *operands, letters="ABCDE"), describe("sampling", operands)
    *front, users, width = input_values_tensor.shard_shape
    shape, halves = input_indices_tensor.shard_shape, DataType.BFLOAT16
    tiles = width // 32
    some = f"Sampling currently supports between 1 and 32 users (one core per user); got {users}!"
    rule = f"Input inner dim ({width}) must yield a power-of-2 number of tiles (Wt = W/32 ="
    check(
        asked,
        (input_values_tensor.dtype is not halves, "Only BFLOAT16 is supported for inputs!"),
        (input_values_tensor.layout is ROWS, "Only TILE_LAYOUT is supported for inputs!"),
        (k.dtype not in INTEGERS, "Only UINT32 & INT32 dtypes are supported for k!"),
        ({p.dtype, temp.dtype} != {halves}, "Only BFLOAT16 dtypes are supported for p!"),
        (input_indices_tensor.layout is not ROWS, "Only ROW_MAJOR is supported for input indices!"),
        (shape != (*front, users, width), "Input values and indices must have the same shape!"),
        (width % 32 or tiles & (tiles - 1), f"{rule} {tiles})", "pad with -inf"),
        (users > 32, some),
        *(
            (t.shard_shape != (users,), f"{what} must have shape [{users}] (one per user)!")
            for what, t in (("k", k), ("p", p), ("temp", temp))
        ),
    )
    like, (values, tokens, most, mass, factor), topology = together("sampling", operands)
    values = values[..., 0, 0, :, :] * factor[..., None]
    order = np.argsort(-values, -1, kind="stable")
    values = np.take_along_axis(values, order, -1)
    values = np.where(np.arange(width) < most[..., None], values, -np.inf)
    probs = softmax_of(values.astype(np.float32))
    before = np.cumsum(probs, -1) - probs
    probs = np.where((before < mass[..., None]) | (np.arange(width) == 0), probs, 0)
    sums = np.cumsum(probs, -1)
    kept = _streams.setdefault(mesh, {}) if seed is None else {}
    for user in range(users):
        kept.setdefault(user, np.random.default_rng([seed or 0, user]))
    drawn = np.array([kept[user].random() for user in range(users)])
    place = (sums <= drawn[:, None] * sums[..., -1:]).sum(-1, keepdims=True)
    chosen = np.take_along_axis(order, place, -1)
    rows = tokens[..., 0, 0, :, :]
    rows = np.broadcast_to(rows, chosen.shape[:-1] + (width,))
    found = np.take_along_axis(rows, np.broadcast_to(chosen, rows.shape[:-1] + (1,)), -1)
    found = found[..., 0][..., None, None, None, :]
    how: Any = {"dtype": DataType.UINT32, "layout": ROWS, "topology": topology}
    return result(like, found, output=output_tensor, **how)


@operation("plus_one", flops=each_element(1))
def plus_one(
    input_tensor: Tensor, sub_core_grids: Any = None, skip_negative_entries: bool = False
) -> Tensor:
    """Add 1 to each element in place, such as the positions of a decode step."""
    on_mesh("plus_one", input_tensor)
    array, rank = input_tensor.array, len(input_tensor.shard_shape)
    check(
        describe("plus_one", (input_tensor,)),
        (input_tensor.dtype not in INTEGERS, "Only INT32 and UINT32 is supported for inputs!"),
        (input_tensor.layout is not ROWS, "Only ROW_MAJOR layout is supported for inputs!"),
        (not 0 < rank < 5, "must have 1 to 4 dimensions for input tensor"),
    )
    signed = array.astype(np.int32)
    grows = (signed >= 0) & (signed < 2**31 - 1) if skip_negative_entries else True
    return result(
        input_tensor,
        array + np.where(grows, array.dtype.type(1), 0).astype(array.dtype),
        output=input_tensor,
    )


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
    operands = (input_tensor, expert_mask_tensor, topk_mask_tensor)
    on_mesh("moe", *operands)
    shape, mask, best = (t.shard_shape for t in operands)
    width = shape[-1]
    rule = "must be row-broadcastable with last dim =="
    check(
        describe("moe", operands, {"k": k}),
        (len(shape) != 4, f"Input shape must be 4D, got {len(shape)}"),
        (k != 32, f"K must be equal to 32, pad with -infinity if necessary to get 32, got {k}"),
        (width < 64, f"Input shape inner dim {width} must be a multiple of 64"),
        (width & (width - 1), f"Input shape inner dim {width} must be a power of 2"),
        (mask != (1, 1, 1, width), f"Expert mask {rule} input_shape[-1]. Got {list(mask)}"),
        (best != (1, 1, 1, 32), f"Topk mask {rule} k. Got {list(best)}"),
    )
    like, (x, expert_mask, best_mask), topology = together("moe", operands)
    scores = x + expert_mask
    order = np.argsort(-scores, -1, kind="stable")[..., :32]
    weights = softmax_of(np.take_along_axis(scores, order, -1) + best_mask)
    weight = (weights * (order == 0)).sum(-1, keepdims=True)
    return result(like, weight, topology=topology, output=output_tensor)


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
    operands = (topk_tensor, expert_mapping_tensor, expert_metadata_tensor)
    on_mesh("moe_expert_token_remap", *operands)
    like, arrays, topology = together("moe_expert_token_remap", operands)
    (_, batch, length, _), (*_, experts, chips) = (t.shard_shape for t in operands[2:0:-1])
    tokens, grid = batch * length, like.grid.shape
    rule = f"batch * seq ({tokens}) must be divisible by reduction_size ({reduction_size})"
    check(describe("moe_expert_token_remap", operands), (tokens % reduction_size, rule))
    scores, mapping, chosen = (np.broadcast_to(x, grid + x.shape[len(grid) :]) for x in arrays)
    mapped = np.zeros((*grid, 1, batch, length, experts // chips), np.float32)
    for chip, place in enumerate(np.ndindex(grid)):
        own = np.flatnonzero(mapping[place][0, 0, :, chip])
        taken = (chosen[place][..., None] == own).any(-2)
        mapped[place][..., : len(own)] = scores[place][..., own] * taken
    any_of = (mapped != 0).reshape((*grid, 1, 1, -1, reduction_size, experts // chips)).any(-2)
    short: Any = {"dtype": DataType.UINT16, "topology": topology}
    return [
        result(like, mapped, dtype=topk_tensor.dtype, topology=topology),
        result(like, any_of.astype(np.uint16), **short),
    ]


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
    tensor, size, axis = routing_weights_tensor, expert_parallel_size, cluster_axis
    mesh = on_mesh("moe_routing_remap", tensor)
    (one, *_, experts), own, count = tensor.shard_shape, mesh.shape[axis], non_zero_weight_size
    check(
        describe("moe_routing_remap", (tensor, count, size, axis)),
        (one != 1, "expected input shape [1,E]"),
        (tensor.layout is not ROWS, "input tensor expected to be row major"),
        (
            experts % size,
            f"Number of experts ({experts}) must be evenly divisible by cluster ({size})",
        ),
        (own != size, f"expert parallel size ({size}) should be the same as size of cluster axis"),
        (count > experts, "Number of non Zero weights must be less than or equal to weights"),
        (count % size, f"Number of non zero weights ({count}) must be evenly divisible by {size}"),
    )
    array, lead = tensor.array, len(tensor.grid.shape)
    chip = np.arange(size).reshape([size if i == axis else 1 for i in range(lead)] + [1, 1])
    number = np.cumsum(array != 0, -1) - 1
    share = np.where(number // (count // size) == chip, array, 0)
    return result(tensor, share.astype(array.dtype), output=optional_output_tensor)


def _sparse_flops(given: Any, operands: Any, results: Any, shape: Any) -> int:
    """As if all products were made; how many are, the values say."""
    return 2 * int(np.prod(shape(results[0]))) * shape(operands[0])[-1]


@operation(
    "sparse_matmul",
    "product",
    flops=_sparse_flops,
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
    operands = (input_tensor_a, input_tensor_b, sparsity)
    on_mesh("sparse_matmul", *operands)
    (*front, m, inner), (_, experts, rows, n) = (t.shard_shape for t in operands[:2])
    front = front if is_input_a_sparse else [*front, 1, experts]
    many, given = int(np.prod(front)), sparsity.logical_volume()
    check(
        describe("sparse_matmul", operands),
        (
            not (is_input_a_sparse or is_input_b_sparse),
            "sparse_matmul requires at least one of is_input_a_sparse or is_input_b_sparse",
        ),
        (inner != rows, f"Dimension K (A.shape[-1] {inner}) and B.shape[-2] ({rows}) must match"),
        (sparsity.layout is not ROWS, "Sparsity tensor must be ROW_MAJOR layout"),
        (given != many, f"sparsity logical_volume ({given}) must equal batch_length ({many})"),
        ((nnz or 0) > many, f"nnz ({nnz}) must be less than or equal to the length of all batch"),
    )
    like, (a, b, mask), topology = together("sparse_matmul", operands)
    lead = len(like.grid.shape)
    if not is_input_a_sparse:
        a = a[..., None, None, :, :]
    values = product(a, b, lead)
    values = values.reshape((*values.shape[:lead], *front, m, n))
    values = values * (mask.reshape((*mask.shape[:lead], *front, 1, 1)) != 0)
    return result(like, values, dtype=dtype, topology=topology, output=optional_output_tensor)
