"""Compute a mixture of experts, and choose the next token.

Tokens go to the chips that have their experts, matmuls compute there, and the results come back.
"""

import weakref
from typing import Any

import numpy as np

from ttkit.sim.arguments import keywords_of, refuse
from ttkit.sim.collectives import exchanged, places
from ttkit.sim.collectives.async_forms import joined, values_on_all_chips
from ttkit.sim.collectives.ccl import COLLECTIVES, Call, Collective, all_gather, fabric_is_on, run
from ttkit.sim.mesh import MeshDevice
from ttkit.sim.models import F, softmax_of
from ttkit.sim.ops import (
    Array,
    Operands,
    each_element,
    on_mesh,
    operation,
    shaped,
    shaping,
    written,
)
from ttkit.sim.ops.matmul import product, product_flops
from ttkit.sim.tensor import DataType, Layout
from ttkit.sim.tensor.creation import from_torch
from ttkit.sim.tensor.grid import unchanged
from ttkit.sim.tensor.tensor import Tensor


# ---------------------------------------------------------------- to the experts and back
def _experts(call: Call) -> Array:
    """Return the table [experts, chips], which is the same on all chips.

    An entry is 1 where the chip has the expert.
    """
    mapping = call.others[1]
    return values_on_all_chips(mapping).reshape(-1, *mapping.shard_shape[-2:])[0]


def _dispatched(call: Call) -> Array:
    """Return the tokens of all n chips, [1, B n, S, H].

    On each chip, tokens that chose none of that chip's experts are zero.
    """
    tokens, chosen = (joined(call, t) for t in (call.tensor, call.others[0]))
    chips = places(call.mesh.grid, (0, 1))[..., None, None, None, None]
    return np.where(np.take_along_axis(_experts(call)[chosen].any(-2), chips, -1), tokens, 0)


def _combined(call: Call) -> Array:
    """Return the experts' results for each chip's tokens, [K, B, S, H], summed over `call.axes`."""
    metadata, _, once = call.others
    shape = call.mesh._shape
    table = _experts(call)
    made = values_on_all_chips(call.tensor)
    chosen = values_on_all_chips(metadata)[..., 0, :, :, :]
    out = np.zeros((*shape, chosen.shape[-1], *made.shape[-3:]), made.dtype)
    for i, chip in enumerate(np.ndindex(*shape)):
        free: Any = True
        for number, expert in enumerate(np.flatnonzero(table[:, i])):
            hit = (chosen[chip] == expert) & free
            if once:  # Row 0 already has the sum over a chip's experts, so a token takes it once.
                number, free = 0, free & ~hit.any(-1, keepdims=True)
            b, s, k = hit.nonzero()
            out[chip][k, b, s] = made[chip][number, b, s]
    return exchanged(out, shape, call.axes, cut=call.dim, sums=True)


COLLECTIVES |= {
    "all_to_all_dispatch": Collective((fabric_is_on,), _dispatched, unchanged, "all_gather"),
    "all_to_all_combine": Collective((fabric_is_on,), _combined, unchanged, "all_to_all"),
}


@operation("all_to_all_dispatch", "collective")
@keywords_of(all_gather)
def all_to_all_dispatch(
    input_tensor: Tensor,
    expert_indices_tensor: Tensor,
    expert_mapping_tensor: Tensor,
    *,
    output_concat_dim: int | None = 1,
    **how,
) -> list[Tensor]:
    """Send each token to the chips along `cluster_axis` that have an expert chosen by the token.

    Args:
        input_tensor: the tokens of each chip, [B, 1, S, H], row-major.
        expert_indices_tensor: [B, 1, S, K], uint16: the experts of each token.
        expert_mapping_tensor: [1, 1, experts, chips], the same on all chips: 1 where
            the chip has the expert.

    Returns:
        The tokens of all n chips, [1, B n, S, H], with 0 where no token was sent, and the indices
        of all n chips, [1, B n, S, K]. With output_concat_dim=2 both are [1, B, S n, ...].
    """
    dim = output_concat_dim or 1
    tokens, indices = (
        shaping.reshape(t, [1, t.shape[0], t.shape[2], -1])
        for t in (input_tensor, expert_indices_tensor)
    )
    others = (indices, expert_mapping_tensor)
    sent = run(Call("all_to_all_dispatch", tokens, dim=dim, others=others, **how))
    chosen = all_gather(indices, dim, **how)
    sent.topology = chosen.topology = input_tensor.topology
    return [sent, chosen]


@operation("all_to_all_combine", "collective")
@keywords_of(all_gather)
def all_to_all_combine(
    input_tensor: Tensor,
    expert_metadata_tensor: Tensor,
    expert_mapping_tensor: Tensor,
    *,
    local_reduce: bool = False,
    output_shard_dim: int | None = 1,
    **how,
):
    """Send the experts' results back to the chips of the tokens, after `all_to_all_dispatch`.

    Args:
        input_tensor: the results, [experts of the chip, B n, S, H]; [1, ...] with `local_reduce`.
        expert_metadata_tensor: the indices [1, B n, S, K] that `all_to_all_dispatch` returned.

    Returns:
        [K, B, S, H]: for each expert that a token chose, the expert's result; 0 where
        no chip along `cluster_axis` has the expert. With `local_reduce`, the first
        expert of a chip that a token chose gets the chip's sum, and the chip's other
        experts get 0.
    """
    others = (expert_metadata_tensor, expert_mapping_tensor, local_reduce)
    dim = output_shard_dim or 1
    return run(Call("all_to_all_combine", input_tensor, dim, others=others, **how))


# ---------------------------------------------------------------- routing
@operation("moe", flops=each_element(7))
def moe(
    input_tensor: Tensor, expert_mask_tensor: Tensor, topk_mask_tensor: Tensor, k: int = 32
) -> Tensor:
    """Return the weight of expert 0 for each row, [a, b, s, 1].

    The weight is 0 where expert 0 is not among the k best experts.

    Args:
        input_tensor: router logits [a, b, s, experts].
        expert_mask_tensor: [1, 1, 1, experts], -inf where there is no expert.
        topk_mask_tensor: [1, 1, 1, k], 0 for each of the best experts that counts, else -inf.
    """
    on = Operands(input_tensor, expert_mask_tensor, topk_mask_tensor)
    x, experts, best = on.arrays
    scores = x + experts
    order = np.argsort(-scores, -1, kind="stable")[..., :k]
    weights = softmax_of(np.take_along_axis(scores, order, -1) + best)
    return on.result((weights * (order == 0)).sum(-1, keepdims=True))


@operation("moe_expert_token_remap", "arrange")
def moe_expert_token_remap(
    topk_tensor: Tensor,
    expert_mapping_tensor: Tensor,
    expert_metadata_tensor: Tensor,
    *,
    reduction_size: int = 16,
) -> list[Tensor]:
    """Return each chip's scores of its own experts, and which of these experts a token chose.

    The score of an expert is 0 for a token that did not choose the expert.

    Args:
        topk_tensor: scores [1, batch, s, experts].
        expert_mapping_tensor: [1, 1, experts, chips], 1 where a chip has an expert.
        expert_metadata_tensor: the chosen experts of each token, [1, batch, s, n].
        reduction_size: this many tokens share an entry of the second result.

    Returns:
        The scores [1, batch, s, experts of a chip], and [1, 1, tokens / reduction_size, experts of
        a chip], which is 1 where a token chose the expert, else 0.
    """
    on = Operands(topk_tensor, expert_mapping_tensor, expert_metadata_tensor)
    experts, chips = expert_mapping_tensor.shard_shape[-2:]
    grid, own = on.like.grid, experts // chips
    scores, mapping, chosen = on.arrays
    chip = places(grid, tuple(range(len(grid.mesh_shape))))[..., None, None, None, None]
    # `has` is 1 where a chip has an expert: [*chips, 1, 1, 1, experts].
    has = np.take_along_axis(mapping, chip, -1).swapaxes(-1, -2)
    # The stable sort puts the experts of this chip first, in the order of their numbers.
    here = np.argsort(has == 0, -1, kind="stable")[..., :own]
    taken = (chosen[..., None] == here[..., None, :]).any(-2)
    mapped = np.take_along_axis(scores, here, -1) * taken
    any_of = (mapped != 0).reshape((*grid.shape, 1, 1, -1, reduction_size, own)).any(-2)
    return [on.result(mapped), on.result(any_of.astype(np.float32), DataType.UINT16)]


@operation("moe_routing_remap", "arrange")
def moe_routing_remap(
    routing_weights_tensor: Tensor,
    non_zero_weight_size: int,
    expert_parallel_size: int,
    cluster_axis: int,
) -> Tensor:
    """Return on each chip its share of the weights that are not zero; all other weights are zero.

    Args:
        routing_weights_tensor: [1, experts], the same on all chips.
        non_zero_weight_size: how many weights are not zero.
        expert_parallel_size: how many chips along `cluster_axis` share these weights, in order.
    """
    size = expert_parallel_size
    axis = cluster_axis
    on = Operands(routing_weights_tensor)
    (array,) = on.arrays
    if on.like.mesh.shape[axis] != size:
        refuse(f"expert parallel size ({size}) should be the same as size of cluster axis {axis}")
    if non_zero_weight_size % size:
        rule = f"Number of non zero weights ({non_zero_weight_size}) must be evenly divisible by"
        refuse(f"{rule} {size}")
    chip = places(on.like.grid, (axis,))[..., None, None]
    number = np.cumsum(array != 0, -1) - 1
    return on.result(array * (number // (non_zero_weight_size // size) == chip))


@operation("sparse_matmul", "product", flops=product_flops)
def sparse_matmul(
    input_tensor_a: Tensor,
    input_tensor_b: Tensor,
    *,
    sparsity: Tensor,
    is_input_a_sparse: bool = False,
    dtype: DataType | None = None,
) -> Tensor:
    """Return the product with each expert's matrix; it is zero where `sparsity` is zero.

    Args:
        input_tensor_a: [a, b, m, k], or where it is sparse [a, experts, m, k].
        input_tensor_b: [1, experts, k, n].
        sparsity: row-major [a, b, 1, experts], or with is_input_a_sparse [1, 1, a, experts].

    Returns:
        [a, b, 1, experts, m, n], or with is_input_a_sparse [a, experts, m, n].
    """
    on = Operands(input_tensor_a, input_tensor_b, sparsity)
    (*front, m, _), (_, experts, _, n) = (t.shard_shape for t in on.tensors[:2])
    a, b, mask = on.arrays
    if not is_input_a_sparse:
        a = a[..., None, None, :, :]
        front = [*front, 1, experts]
    values = product(a, b, on.lead)
    values = shaped(values, on.lead, *front, m, n)
    values = values * (shaped(mask, on.lead, *front, 1, 1) != 0)
    return on.result(values, dtype)


# ---------------------------------------------------------------- the next token
# Each user of a mesh has a stream of random numbers; all chips draw the same number for a user.
_streams: weakref.WeakKeyDictionary[MeshDevice, dict[int, Any]] = weakref.WeakKeyDictionary()


@operation("manual_seed", "arrange")
def manual_seed(
    seeds: int | Tensor = 0,
    *,
    device: MeshDevice | None = None,
    user_ids: int | Tensor | None = None,
) -> Tensor:
    """Set the seed of `sampling` for all 32 users or for some; return a tensor of one zero."""
    given: Any = [np.arange(32) if user_ids is None else user_ids, seeds]
    tensors = [x for x in given if isinstance(x, Tensor)]
    mesh: Any = on_mesh(*tensors) if tensors else device
    users, values = (np.ravel(next(x.shards()) if isinstance(x, Tensor) else x) for x in given)
    values = np.broadcast_to(values, users.shape)
    streams = _streams.setdefault(mesh, {})
    for user, value in zip(users.tolist(), values.tolist()):
        streams[user] = np.random.default_rng([value, user])
    return from_torch(np.zeros(1, np.uint32), device=mesh)


@operation("sampling", flops=each_element(5))
def sampling(
    input_values_tensor: Tensor,
    input_indices_tensor: Tensor,
    k: Tensor,
    p: Tensor,
    temp: Tensor,
    *,
    seed: int | None = None,
) -> Tensor:
    """Return one token for each user, [1, 1, 1, users], drawn from softmax(values * temp).

    Only the `k` largest values take part, and of these only the fewest whose probabilities add up
    to at least `p`. All chips draw the same random numbers.

    Args:
        input_values_tensor, input_indices_tensor: logits and their tokens, [1, 1, users, n].
        k, p, temp: [users].
        seed: the seed of this call. Without a seed, the call takes the next number of each user's
            stream, which `manual_seed` can set.
    """
    on = Operands(input_values_tensor, input_indices_tensor, k, p, temp)
    users = input_values_tensor.shard_shape[-2]
    streams = _streams.setdefault(on.like.mesh, {}) if seed is None else {}
    for user in range(users):
        streams.setdefault(user, np.random.default_rng([seed or 0, user]))
    drawn = np.array([streams[user].random() for user in range(users)])
    values, tokens, *settings = on.arrays
    draw = np.vectorize(_draw, [np.uint32], signature="(n),(n),(),(),(),()->()")
    chosen = draw(values[..., 0, 0, :, :], tokens[..., 0, 0, :, :], *settings, drawn)
    chosen = chosen[..., None, None, None, :]
    return on.result(chosen, DataType.UINT32, layout=Layout.ROW_MAJOR)


def _draw(values: Array, tokens: Array, most: int, mass: F, factor: F, drawn: float) -> int:
    """Return the token of one user for a random number `drawn` between 0 and 1."""
    order = np.argsort(-values, kind="stable")[: max(most, 1)]
    sums = np.cumsum(softmax_of(values[order] * factor))
    sums = sums[: np.searchsorted(sums, mass) + 1]
    return tokens[order[np.searchsorted(sums, drawn * sums[-1], "right")]]


@operation("plus_one", flops=each_element())
def plus_one(input_tensor: Tensor, skip_negative_entries: bool = False) -> Tensor:
    """Add 1 to each element in place, for example to the positions of a decode step."""
    on = Operands(input_tensor)
    (array,) = on.arrays
    grows = (array.view(np.int32) >= 0) | (not skip_negative_entries)
    return written(on.result(array + grows.astype(array.dtype)), input_tensor)
