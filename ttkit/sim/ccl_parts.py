"""Collectives that move parts of shards: all-to-all, tokens to experts and back, borders.

All but all-to-all run in one process; `how` is what those of `ccl_async` take.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ttkit.errors import fail
from ttkit.sim import quirks, shaping
from ttkit.sim.ccl import COLLECTIVES, SHORT, _along
from ttkit.sim.ccl_async import here, in_range, ruled, run, semaphores, spec
from ttkit.sim.ccl_checks import Call
from ttkit.sim.ccl_numpy import gathered, reduced, scattered
from ttkit.sim.enums import Layout
from ttkit.sim.memory import bytes_of
from ttkit.sim.operation import operation
from ttkit.sim.sub_devices import global_semaphore
from ttkit.sim.tensor import Tensor

Array = np.ndarray


# ---------------------------------------------------------------- checks
@ruled
def _exchanged(call: Call) -> Any:
    """The chips divide the dimension that they cut, and the result is of whole tiles."""
    (into, cut), n, rank = call.others, call.chips, call.rank
    rule = f"in_dim out of range, or out_dim: {into}, {cut} are not two dims from 0 to {rank - 1}"
    yield not (0 <= into < rank and 0 <= cut < rank and into != cut), rule
    size, least = call.tensor.shard_shape[cut], {rank - 1: 32, rank - 2: 16}.get(cut, 1)
    rule = f"AllToAllAsync: input tensor dimension {cut} must be divisible by num_devices {n}"
    yield size % n, rule
    words = "doesn't support padding" if cut == rank - 1 else "support only 0 or 16 padding"
    tiled = call.tensor.layout is Layout.TILE
    yield tiled and size // n % least, f"{cut} dimension {words}, so must be divisible by {least}"


@ruled
def _by_rows(call: Call) -> Any:
    yield call.tensor.layout is Layout.TILE, "Unsupported input tensor layout Layout::TILE."


@ruled
def _inside(call: Call) -> Any:
    size = call.others[3]
    yield call.dim, f"neighbor pad currently only supports sharding dim 0, provided {call.dim}"
    yield size % call.chips, "Output dim shape must be divisible by num devices on cluster axis"


@ruled
def _bordered(call: Call) -> Any:
    (*_, left, right, mode), dim = call.others, call.dim
    rule = f"Error, neighbor pad only supports padding non-last dim, provided dim={dim}"
    yield dim == call.rank - 1, f"{rule} for rank-{call.rank} tensor"
    border = list(call.tensor.shard_shape)
    rule = f"One of the padding values {left} or {right} exceeds the shape of the input tensor"
    yield max(left, right) > border[dim], f"{rule} in that dim"
    yield mode not in ("zeros", "replicate"), f"Unsupported padding mode {mode}."
    border[dim] = max(left, right)
    call.nbytes = bytes_of(tuple(border), call.tensor.dtype)


@ruled
def _routed(call: Call) -> Any:
    """Tokens, indices and the table of experts fit together."""
    indices, mapping, *_ = call.others
    what = "concat" if call.name == "all_to_all_dispatch" else "shard"
    yield call.dim not in (1, 2), f"Output {what} dimension must be 1 or 2, got {call.dim}"
    yield call.tensor.layout is Layout.TILE, "Input tensor must be in row major layout"
    yield indices.dtype.name != "UINT16", "Indices tensor must be uint16"
    (experts, chips), many = mapping.shard_shape[-2:], call.mesh.get_num_devices()
    rule = f"Experts {experts} must be evenly divisible by devices: {chips} of {many}"
    yield experts % many or chips != many, rule


@ruled
def _together(call: Call) -> Any:
    a, b = call.tensor.shard_shape, call.others[0].shard_shape
    rule = "Input and indices tensor must have the same shape for all dimensions except the last"
    yield a[:-1] != b[:-1], f"{rule}. Mismatch: {list(a)} and {list(b)}"


# ---------------------------------------------------------------- how values move
def _gathered(call: Call, tensor: Tensor, dim: int) -> Array:
    return gathered(here(call, tensor), call.mesh._shape, call.axes, dim)


def _windows(call: Call) -> Array:
    """Join the shards along `into`; each chip keeps a window of dimension `cut`.

    Windows are equal parts of `many` rows from `first` on (of all, where it is None), with `left`
    and `right` rows of their neighbours. Beyond the ends there are zeros, or the last row again.
    """
    into, cut, first, many, left, right, mode = call.others
    shape, rows = call.mesh._shape, _gathered(call, call.tensor, into)
    at = len(shape) + cut
    size = (many or rows.shape[at]) // call.chips
    starts = first + size * np.arange(call.chips)
    wanted = np.add.outer(starts, np.arange(-left, size + right)).ravel()
    found = rows.take(wanted, at, mode="clip")
    if mode == "zeros":
        np.moveaxis(found, at, 0)[(wanted < 0) | (wanted >= rows.shape[at])] = 0
    return scattered(found, len(shape), call.axes, [shape[a] for a in call.axes], cut)


def _experts(call: Call) -> Array:
    """[E, D]: 1 where chip D has expert E; the same on all chips."""
    mapping = call.others[1]
    return here(call, mapping).reshape(-1, *mapping.shard_shape[-2:])[0]


def _dispatched(call: Call) -> Array:
    """Tokens [1, B n, S, H] of which a chip has those that chose one of its experts."""
    tokens, chosen = (_gathered(call, t, call.dim) for t in (call.tensor, call.others[0]))
    chips = np.arange(call.mesh.get_num_devices()).reshape(*call.mesh._shape, 1, 1, 1, 1)
    sent = np.take_along_axis(_experts(call)[chosen].any(-2), chips, -1)
    return np.where(sent, tokens, 0)


def _combined(call: Call) -> Array:
    """What the experts made of a chip's own tokens, [K, B, S, H]: the sum of all chips' rows."""
    metadata, _, once = call.others
    shape, table, made = call.mesh._shape, _experts(call), here(call, call.tensor)
    chosen = here(call, metadata)[..., 0, :, :, :]
    out = np.zeros((*shape, chosen.shape[-1], *made.shape[-3:]), made.dtype)
    for i, chip in enumerate(np.ndindex(*shape)):
        free: Any = True
        for number, expert in enumerate(np.flatnonzero(table[:, i])):
            hit = (chosen[chip] == expert) & free
            if once:  # what a chip's experts add up to stands in the row of the first
                number, free = 0, free & ~hit.any(-1, keepdims=True)
            b, s, k = hit.nonzero()
            out[chip][k, b, s] = made[chip][number, b, s]
    return reduced(out, shape, call.axes, call.dim)


def _part(plan: str, moves: Any, *own: Any) -> Any:
    return spec("all_gather", *own, plan=plan, moves=moves, label=quirks.unchanged)


COLLECTIVES |= {
    "all_to_all_async": _part(
        "all_to_all", lambda call: _along("exchanged", call, *call.others), _exchanged
    ),
    "slice_reshard_async": _part("all_to_all", _windows, in_range, _by_rows, _inside),
    "neighbor_pad_async": _part("all_gather", _windows, in_range, _by_rows, _bordered),
    "all_to_all_dispatch": _part("all_gather", _dispatched, _routed, _together),
    "all_to_all_combine": _part("all_to_all", _combined, _routed),
}


# ---------------------------------------------------------------- the operations
@operation("experimental.all_to_all_async_generic", "collective", hints=SHORT)
def all_to_all_async_generic(
    input_tensor: Tensor,
    in_dim: int,
    out_dim: int,
    *,
    persistent_output_buffer: Any = None,
    **how: Any,
) -> Any:
    """Cut each shard along `out_dim`, a part for each chip; join what arrives along `in_dim`.

    Example: [1, 1, 32, 256] on 4 chips, in_dim=2, out_dim=3: [1, 1, 128, 64].
    """
    dims = (in_dim, out_dim)
    return run("all_to_all_async", input_tensor, None, persistent_output_buffer, *dims, **how)


@operation("experimental.all_to_all_async", "collective", hints=SHORT)
def all_to_all_async(
    input_tensor: Tensor,
    persistent_intermediate_buffer: Tensor,
    persistent_output_buffer: Tensor,
    in_dim: int,
    out_dim: int,
    multi_device_global_semaphore: Any,
    **how: Any,
) -> Any:
    """Do what `all_to_all_async_generic` does over all chips, into a buffer."""
    semaphores(multi_device_global_semaphore)
    how["persistent_output_buffer"] = persistent_output_buffer
    return all_to_all_async_generic(input_tensor, in_dim, out_dim, **how)


@operation("experimental.slice_reshard_async", "collective", hints="memory_config")
def slice_reshard_async(
    input_tensor: Tensor,
    dim: int,
    output_dim_offset: int,
    output_dim_shape: int,
    cluster_axis: int,
    final_semaphore: global_semaphore,
    barrier_semaphore: global_semaphore,
    **how: Any,
) -> Any:
    """Keep rows of the joined shards from `output_dim_offset` on, an equal part on each chip."""
    window = (dim, dim, output_dim_offset, output_dim_shape, 0, 0, "zeros")
    how["cluster_axis"] = cluster_axis
    return run("slice_reshard_async", input_tensor, dim, None, *window, **how)


@operation("experimental.neighbor_pad_async", "collective", hints="memory_config")
def neighbor_pad_async(
    input_tensor: Tensor,
    dim: Any,
    padding_left: Any,
    padding_right: Any,
    padding_mode: str,
    cluster_axis: Any,
    neighbor_semaphore: Any,
    barrier_semaphore: Any,
    *,
    num_links: Any = None,
    persistent_output_buffer: Any = None,
    **how: Any,
) -> Any:
    """Put rows of a chip's neighbours around its shard, along one or two dims.

    At the ends of the line there are zeros, or with "replicate" the shard's own border.
    """
    if not neighbor_semaphore:
        rule = "neighbor_semaphore must not be empty"
        fail("neighbor_pad_async", rule, "a semaphore for each dim")
    semaphores([*neighbor_semaphore, *barrier_semaphore])
    links = num_links or [None] * len(dim)
    rows = zip(dim, padding_left, padding_right, cluster_axis, links, strict=True)
    for i, (at, left, right, axis, count) in enumerate(rows, 1):
        output = persistent_output_buffer if i == len(dim) else None
        window = (at, at, 0, None, left, right, padding_mode)
        how |= {"cluster_axis": axis, "num_links": count}
        input_tensor = run("neighbor_pad_async", input_tensor, at, output, *window, **how)
    return input_tensor


@operation("all_to_all_dispatch", "collective", hints=SHORT)
def all_to_all_dispatch(
    input_tensor: Tensor,
    expert_indices_tensor: Tensor,
    expert_mapping_tensor: Tensor,
    *,
    output_tensors: Any = None,
    output_concat_dim: Any = None,
    **how: Any,
) -> list[Tensor]:
    """Send each token to the chips along `cluster_axis` that have an expert which it chose.

    Args:
        input_tensor: [B, 1, S, H] of each chip, row-major.
        expert_indices_tensor: [B, 1, S, K], uint16: the experts of each token.
        expert_mapping_tensor: [1, 1, E, D], the same on all chips: 1 where chip D has expert E.

    Returns:
        Tokens [1, B n, S, H], 0 where none was sent, and all indices [1, B n, S, K]; with
        output_concat_dim=2, [1, B, S n, ...].
    """
    dim, (first, second) = output_concat_dim or 1, output_tensors or (None, None)
    tokens, indices = (
        shaping.reshape(t, [1, t.shape[0], t.shape[2], -1])
        for t in (input_tensor, expert_indices_tensor)
    )
    mapping = expert_mapping_tensor
    sent = run("all_to_all_dispatch", tokens, dim, first, indices, mapping, **how)
    chosen = run("all_gather_async", indices, dim, second, **how)
    sent.topology = chosen.topology = input_tensor.topology
    return [sent, chosen]


@operation("all_to_all_combine", "collective", hints=SHORT)
def all_to_all_combine(
    input_tensor: Tensor,
    expert_metadata_tensor: Tensor,
    expert_mapping_tensor: Tensor,
    *,
    local_reduce: bool = False,
    output_shard_dim: Any = None,
    output_tensor: Any = None,
    **how: Any,
) -> Any:
    """Send what experts made of tokens back to the tokens' chips: after `all_to_all_dispatch`.

    Args:
        input_tensor: [experts of the chip, B n, S, H]; [1, ...] with `local_reduce`.
        expert_metadata_tensor: [1, B n, S, K], from `all_to_all_dispatch`.

    Returns:
        [K, B, S, H]: for each of a token's choices the expert's row; 0 where no chip along
        `cluster_axis` has the expert.
    """
    others = (expert_metadata_tensor, expert_mapping_tensor, local_reduce)
    dim = output_shard_dim or 1
    return run("all_to_all_combine", input_tensor, dim, output_tensor, *others, **how)
