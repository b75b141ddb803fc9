"""Tokens and experts chosen: sampling with a random stream for each user, and routing."""

from __future__ import annotations

import math
import weakref
from typing import Any

import numpy as np

from ttkit.sim.arguments import check, describe
from ttkit.sim.attention import softmax_of
from ttkit.sim.creation import tensor_from
from ttkit.sim.enums import DataType, Layout
from ttkit.sim.matmul import product
from ttkit.sim.mesh import MeshDevice
from ttkit.sim.operation import each_element, on_mesh, operands, operation, result
from ttkit.sim.tensor import Tensor

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
    asked, many = describe("manual_seed", (seeds, user_ids)), isinstance(seeds, Tensor)
    mesh: Any = on_mesh("manual_seed", *tensors) if tensors else device
    bad = {t.dtype for t in tensors} - {DataType.UINT32}
    lone = many and isinstance(user_ids, int)
    chosen: list[Any] = [
        next(x.shards()).ravel() if isinstance(x, Tensor) else x for x in (user_ids, seeds)
    ]
    users = np.arange(32) if user_ids is None else np.atleast_1d(chosen[0])
    values = chosen[1] if many else np.full(len(users), seeds)
    count = f"number of elements. Got seeds volume: {values.size} and user_ids volume: {users.size}"
    check(
        asked,
        (mesh is None, "Device must be provided when seeds is a uint32_t value.", "device=mesh"),
        (lone, "Seeds were provided as a tensor, so user_ids must not be provided as a scalar."),
        (bad, "Seeds tensor must be of type UINT32.", "dtype=ttnn.uint32"),
        (user_ids is not None and len(users) != len(values), f"must have the same {count}"),
    )
    streams = _streams.setdefault(mesh, {})
    for user, value in zip(users.tolist(), values.tolist(), strict=False):
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
    given = (input_values_tensor, input_indices_tensor, k, p, temp)
    asked, like, arrays, topology = operands("sampling", *given)
    *_, users, width = input_values_tensor.shard_shape
    kinds, tiles = {t.dtype for t in (input_values_tensor, p, temp)}, width / 32
    some = f"Sampling currently supports between 1 and 32 users (one core per user); got {users}!"
    power = f"Input inner dim ({width}) must yield a power-of-2 number of tiles (Wt = W/32 ="
    alike = input_values_tensor.shard_shape == input_indices_tensor.shard_shape
    check(
        asked,
        (kinds != {DataType.BFLOAT16}, "Only BFLOAT16 is supported for inputs!", "ttnn.typecast"),
        (not alike, "Input values and indices must have the same shape!"),
        (tiles not in [2**i for i in range(16)], f"{power} {tiles})", "pad with -inf"),
        (users > 32, some),
        *(
            (t.shard_shape != (users,), f"{what} must have shape [{users}] (one per user)!")
            for what, t in (("k", k), ("p", p), ("temp", temp))
        ),
    )
    values, tokens, most, mass, factor = arrays
    values, rank = values[..., 0, 0, :, :] * factor[..., None], np.arange(width)
    order = np.argsort(-values, -1, kind="stable")
    values = np.take_along_axis(values, order, -1)
    probs = softmax_of(np.where(rank < most[..., None], values, F(-np.inf)))
    before = np.cumsum(probs, -1) - probs
    sums = np.cumsum(probs * ((before < mass[..., None]) | (rank == 0)), -1)
    streams = _streams.setdefault(like.mesh, {}) if seed is None else {}
    for user in range(users):
        streams.setdefault(user, np.random.default_rng([seed or 0, user]))
    drawn = np.array([streams[user].random() for user in range(users)])[:, None]
    place = (sums <= drawn * sums[..., -1:]).sum(-1, keepdims=True)
    chosen = np.take_along_axis(order, place, -1)
    rows, chosen = np.broadcast_arrays(tokens[..., 0, 0, :, :], chosen)
    found = np.take_along_axis(rows, chosen[..., :1], -1).swapaxes(-1, -2)[..., None, None, :, :]
    how: Any = {"dtype": DataType.UINT32, "layout": ROWS, "topology": topology}
    return result(like, found, output=output_tensor, **how)


@operation("plus_one", flops=each_element(1))
def plus_one(
    input_tensor: Tensor, sub_core_grids: Any = None, skip_negative_entries: bool = False
) -> Tensor:
    """Add 1 to each element in place, such as the positions of a decode step."""
    asked, _, (array,), _ = operands("plus_one", input_tensor)
    check(
        asked,
        (input_tensor.dtype not in INTEGERS, "Only INT32 and UINT32 is supported for inputs!"),
        (input_tensor.layout is not ROWS, "Only ROW_MAJOR layout is supported for inputs!"),
        (len(input_tensor.shard_shape) > 4, "must have 1 to 4 dimensions for input tensor"),
    )
    signed = array.view(np.int32)
    grows = (signed >= 0) & (signed < 2**31 - 1) | (not skip_negative_entries)
    return result(input_tensor, array + grows.astype(array.dtype), output=input_tensor)


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
    given = (input_tensor, expert_mask_tensor, topk_mask_tensor)
    asked, like, (x, expert_mask, best_mask), topology = operands("moe", *given)
    (*_, width), mask, best = (t.shard_shape for t in given)
    rule = "must be row-broadcastable with last dim =="
    check(
        asked,
        (k != 32, f"K must be equal to 32, pad with -infinity if necessary to get 32, got {k}"),
        (width < 64 or width & (width - 1), f"Input shape inner dim {width} must be a power of 2"),
        (mask != (1, 1, 1, width), f"Expert mask {rule} input_shape[-1]. Got {list(mask)}"),
        (best != (1, 1, 1, 32), f"Topk mask {rule} k. Got {list(best)}"),
    )
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
    given = (topk_tensor, expert_mapping_tensor, expert_metadata_tensor)
    asked, like, arrays, topology = operands("moe_expert_token_remap", *given)
    (*_, experts, chips), (_, batch, length, _) = (t.shard_shape for t in given[1:])
    tokens, grid, own = batch * length, like.grid.shape, experts // chips
    rule = f"batch * seq ({tokens}) must be divisible by reduction_size ({reduction_size})"
    check(asked, (tokens % reduction_size, rule))
    scores, mapping, chosen = (np.broadcast_to(x, grid + x.shape[len(grid) :]) for x in arrays)
    mapped = np.zeros((*grid, 1, batch, length, own), F)
    for place, coordinate in zip(np.ndindex(grid), like.grid.coords, strict=True):
        chip = np.ravel_multi_index(coordinate, like.grid.mesh_shape)
        here = np.flatnonzero(mapping[place][0, 0, :, chip])
        taken = (chosen[place][..., None] == here).any(-2)
        mapped[place][..., : len(here)] = scores[place][..., here] * taken
    any_of = (mapped != 0).reshape((*grid, 1, 1, -1, reduction_size, own)).any(-2)
    reduced = result(like, any_of.astype(F), dtype=DataType.UINT16, topology=topology)
    return [result(like, mapped, dtype=topk_tensor.dtype, topology=topology), reduced]


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
    asked, like, (array,), _ = operands("moe_routing_remap", tensor)
    experts, count = tensor.shard_shape[-1], non_zero_weight_size
    even = f"Number of experts ({experts}) must be evenly divisible by cluster ({size})"
    own = f"expert parallel size ({size}) should be the same as size of cluster axis {axis}"
    many = f"Number of non zero weights ({count}) must be evenly divisible by {size}"
    check(
        asked,
        (tensor.layout is not ROWS, "input tensor expected to be row major"),
        (experts % size, even),
        (like.mesh.shape[axis] != size, own),
        (count % size, many),
    )
    chip = np.reshape([c[axis] for c in like.grid.coords], (*like.grid.shape, 1, 1))
    number = np.cumsum(array != 0, -1) - 1
    return result(
        tensor, array * (number // (count // size) == chip), output=optional_output_tensor
    )


def _sparse_flops(given: Any, operands: Any, results: Any, shape: Any) -> int:
    """As if all products were made; how many are, the values say."""
    return 2 * math.prod(shape(results[0])) * shape(operands[0])[-1]


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
    given = (input_tensor_a, input_tensor_b, sparsity)
    asked, like, (a, b, mask), topology = operands("sparse_matmul", *given)
    (*front, m, inner), (_, experts, rows, n) = (t.shard_shape for t in given[:2])
    front = front if is_input_a_sparse else [*front, 1, experts]
    many, volume, lead = math.prod(front), sparsity.logical_volume(), len(like.grid.shape)
    dense = not (is_input_a_sparse or is_input_b_sparse)
    check(
        asked,
        (dense, "requires at least one of is_input_a_sparse or is_input_b_sparse to be true"),
        (inner != rows, f"Dimension K (A.shape[-1] {inner}) and B.shape[-2] ({rows}) must match"),
        (volume != many, f"sparsity logical_volume ({volume}) must equal batch_length ({many})"),
        ((nnz or 0) > many, f"nnz ({nnz}) must be less than or equal to the length of all batch"),
    )
    if not is_input_a_sparse:
        a = a[..., None, None, :, :]
    values = product(a, b, lead)
    values = values.reshape((*values.shape[:lead], *front, m, n))
    values = values * (mask.reshape((*mask.shape[:lead], *front, 1, 1)) != 0)
    return result(like, values, dtype=dtype, topology=topology, output=optional_output_tensor)
