"""Tokens chosen, with a random stream for each user."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from ttkit.sim.arguments import check
from ttkit.sim.mesh import MeshDevice
from ttkit.sim.models.attention import softmax_of
from ttkit.sim.ops.operation import Operands, each_element, on_mesh, operation
from ttkit.sim.tensor.creation import tensor_from
from ttkit.sim.tensor.enums import DataType, Layout
from ttkit.sim.tensor.tensor import Tensor

Array = np.ndarray
F = np.float32
# Each user of a mesh has a random stream; all chips draw the same number for a user.
_streams: weakref.WeakKeyDictionary[MeshDevice, dict[int, Any]] = weakref.WeakKeyDictionary()


@operation("manual_seed", "arrange")
def manual_seed(
    seeds: int | Tensor = 0,
    *,
    device: MeshDevice | None = None,
    user_ids: int | Tensor | None = None,
) -> Tensor:
    """Set the seed of `sampling`, of all users or of some; return an empty tensor, as ttnn does."""
    tensors = [t for t in (seeds, user_ids) if isinstance(t, Tensor)]
    mesh: Any = on_mesh(*tensors) if tensors else device
    chosen: list[Any] = [
        next(x.shards()) if isinstance(x, Tensor) else x for x in (user_ids, seeds)
    ]
    users, values = map(np.ravel, chosen)
    users = np.arange(32) if user_ids is None else users
    values = values if isinstance(seeds, Tensor) else np.full(users.size, seeds)
    count = f"number of elements. Got seeds volume: {values.size} and user_ids volume: {users.size}"
    check(
        (mesh is None, "Device must be provided when seeds is a uint32_t value.", "device=mesh"),
        (users.size != values.size, f"must have the same {count}"),
    )
    streams = _streams.setdefault(mesh, {})
    for user, value in zip(users.tolist(), values.tolist(), strict=True):
        if value != 2**32 - 1:  # This seed leaves a user's stream as it is.
            streams[user] = np.random.default_rng([value, user])
    return tensor_from(np.zeros(1, np.uint32), device=mesh)


@operation("sampling", flops=each_element(5))
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
    return on.result(chosen, DataType.UINT32, layout=Layout.ROW_MAJOR, output=output_tensor)


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
    on = Operands(input_tensor)
    (array,) = on.arrays
    grows = (array.view(np.int32) >= 0) | (not skip_negative_entries)
    return on.result(array + grows.astype(array.dtype), output=input_tensor)
