"""Collectives that move parts of shards: all-to-all, tokens to experts and back, borders.

They take the parameters of their tables, as those of `ccl_async`, and run in one process.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ttkit.errors import fail
from ttkit.sim import shaping
from ttkit.sim.arguments import taken
from ttkit.sim.ccl import COLLECTIVES
from ttkit.sim.ccl_async import Given, entered, here, in_range, ruled, run, semaphores, spec
from ttkit.sim.ccl_checks import Call
from ttkit.sim.ccl_numpy import gathered, scattered
from ttkit.sim.enums import Layout, Topology
from ttkit.sim.memory import bytes_of

Array = np.ndarray
SIGNATURES = {
    "experimental.all_to_all_async": """input_tensor persistent_intermediate_buffer
        persistent_output_buffer in_dim out_dim multi_device_global_semaphore * num_links=
        memory_config= topology= subdevice_id=""",
    "experimental.all_to_all_async_generic": """input_tensor in_dim out_dim *
        persistent_output_buffer= num_links= memory_config= topology= subdevice_id=
        cluster_axis=""",
    "experimental.slice_reshard_async": """input_tensor dim output_dim_offset output_dim_shape
        cluster_axis final_semaphore barrier_semaphore * num_links= memory_config= topology=""",
    "experimental.neighbor_pad_async": """input_tensor dim padding_left padding_right padding_mode
        cluster_axis neighbor_semaphore barrier_semaphore * num_links= memory_config= topology=
        persistent_output_buffer=""",
    "all_to_all_dispatch": """input_tensor expert_indices_tensor expert_mapping_tensor *
        cluster_axis= output_tensors= num_links= topology= memory_config= subdevice_id=
        output_concat_dim=""",
    "all_to_all_combine": """input_tensor expert_metadata_tensor expert_mapping_tensor *
        local_reduce= output_shard_dim= cluster_axis= subdevice_id= memory_config=
        output_tensor= num_links= topology=""",
}


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
    size = call.others[1]
    rule = "Output dim shape must be divisible by num devices on cluster axis"
    yield size % call.chips, rule


@ruled
def _bordered(call: Call) -> Any:
    (left, right, mode), dim = call.others, call.dim
    rule = f"Error, neighbor pad only supports padding non-last dim, provided dim={dim}"
    yield dim == call.rank - 1, f"{rule} for rank-{call.rank} tensor"
    rule = f"One of the padding values {left} or {right} exceeds the shape of the input tensor"
    yield max(left, right) > call.tensor.shard_shape[dim], f"{rule} in that dim"
    yield mode not in ("zeros", "replicate"), f"Unsupported padding mode {mode}."
    border = list(call.tensor.shard_shape)
    border[dim] = max(left, right)
    call.nbytes = bytes_of(tuple(border), call.tensor.dtype)


@ruled
def _routed(call: Call) -> Any:
    """Tokens, indices and the table of experts fit together."""
    indices, mapping, *_ = call.others
    yield call.tensor.layout is Layout.TILE, "Input tensor must be in row major layout"
    yield indices.dtype.name != "UINT16", "Indices tensor must be uint16"
    experts, chips = mapping.shard_shape[-2:]
    rule = f"Experts {experts} must be evenly divisible by devices: {chips} of"
    many = call.mesh.get_num_devices()
    yield experts % many or chips != many, f"{rule} {many}"


@ruled
def _together(call: Call) -> Any:
    a, b = call.tensor.shard_shape, call.others[0].shard_shape
    rule = "Input and indices tensor must have the same shape for all dimensions except the last"
    yield a[:-1] != b[:-1], f"{rule}. Mismatch: {list(a)} and {list(b)}"


# ---------------------------------------------------------------- how values move
def _gathered(call: Call, dim: int, tensor: Any = None) -> Array:
    return gathered(here(call, tensor), call.mesh._shape, call.axes, dim)


def _cut(call: Call, array: Array, dim: int) -> Array:
    """Each chip's part of `dim` of values that all chips along the axes have."""
    shape = call.mesh._shape
    return scattered(array, len(shape), call.axes, [shape[a] for a in call.axes], dim)


def _exchange(call: Call) -> Array:
    into, cut = call.others
    return _cut(call, _gathered(call, into), cut)


def _rows(rows: Array, at: Array, dim: int, zeros: bool = True) -> Array:
    """These rows; outside are zeros, or the border again."""
    chosen = rows.take(at, dim, mode="clip")
    if zeros:
        np.moveaxis(chosen, dim, 0)[(at < 0) | (at >= rows.shape[dim])] = 0
    return chosen


def _sliced(call: Call) -> Array:
    start, size = call.others
    rows, dim = _gathered(call, call.dim), len(call.mesh._shape) + call.dim
    return _cut(call, _rows(rows, np.arange(start, start + size), dim), call.dim)


def _padded(call: Call) -> Array:
    """Each chip's shard between rows of its neighbours: a window of all chips' rows."""
    left, right, mode = call.others
    dim, size = len(call.mesh._shape) + call.dim, call.tensor.shard_shape[call.dim]
    rows = _gathered(call, call.dim)
    at = np.arange(-left, size + right) + size * np.arange(call.chips)[:, None]
    windows = [_rows(rows, each, dim, mode == "zeros") for each in at]
    return np.concatenate(windows, call.axes[0])


def _owned(call: Call, mapping: Any) -> Any:
    """Yield each chip with the experts that it has."""
    table = here(call, mapping)
    for i, chip in enumerate(np.ndindex(*call.mesh._shape)):
        yield chip, np.flatnonzero(table[chip][0, 0, :, i])


def _dispatched(call: Call) -> Array:
    """Tokens [1, B n, S, H] of which a chip has those that chose one of its experts."""
    indices, mapping = call.others
    shape = call.mesh._shape
    lead = len(shape)
    tokens, chosen = (_gathered(call, call.dim, t) for t in (call.tensor, indices))
    tokens, chosen = (np.broadcast_to(x, shape + x.shape[lead:]) for x in (tokens, chosen))
    out = np.moveaxis(tokens, lead + 1, lead).copy()
    for chip, experts in _owned(call, mapping):
        out[chip][0, ~np.isin(chosen[chip][:, 0], experts).any(-1)] = 0
    return out


def _combined(call: Call) -> Array:
    """What the experts made of a chip's own tokens: [K, B, S, H]."""
    metadata, mapping, reduced = call.others
    values, chosen = here(call), here(call, metadata)
    front = [1 if a in call.axes else n for a, n in enumerate(call.mesh._shape)]
    out = np.zeros((*front, chosen.shape[-1], *values.shape[-3:]), values.dtype)
    for chip, experts in _owned(call, mapping):
        line = tuple(i % n for i, n in zip(chip, front, strict=True))
        free = np.ones((*chosen[chip].shape[1:3], 1), bool)
        for i, expert in enumerate(experts):
            hit = (chosen[chip][0] == expert) & free
            free &= not reduced or ~hit.any(-1, keepdims=True)
            b, s, k = np.nonzero(hit)
            out[line][k, b, s] = values[chip][0 if reduced else i, b, s]
    return _cut(call, out, call.dim)


SPECS: Any = {
    "all_to_all_async": ("all_to_all", _exchange, _exchanged),
    "slice_reshard_async": ("all_to_all", _sliced, in_range, _by_rows, _inside),
    "neighbor_pad_async": ("all_gather", _padded, in_range, _by_rows, _bordered),
    "all_to_all_dispatch": ("all_gather", _dispatched, _routed, _together),
    "all_to_all_combine": ("all_to_all", _combined, _routed),
}
for _name, (_plan, _moves, *_checks) in SPECS.items():
    _made = spec(
        "all_gather", *_checks, plan=_plan, moves=_moves, label=lambda c: c.tensor.topology
    )
    COLLECTIVES[_name] = _made


# ---------------------------------------------------------------- the operations
def _all_to_all(g: Given) -> Any:
    """Cut each shard along `out_dim`, a part for each chip; join what arrives along `in_dim`.

    Example: [1, 1, 32, 256] on 4 chips, in_dim=2, out_dim=3: [1, 1, 128, 64].
    """
    return run(g, "all_to_all_async", None, g.persistent_output_buffer, g.in_dim, g.out_dim)


def _buffered(g: Given) -> Any:
    """Do what `all_to_all_async_generic` does over all chips, into a buffer."""
    semaphores(g, [g.multi_device_global_semaphore])
    if g.persistent_intermediate_buffer.shape != g.persistent_output_buffer.shape:
        rule = f"Intermediate buffer shape {g.persistent_intermediate_buffer.shape} must match"
        fail(g.asked, f"{rule} expected shape {g.persistent_output_buffer.shape}", "equal shapes")
    if g.topology is Topology.Linear:
        fail(g.asked, "topology: Topology::Linear, but chips send around a ring", "Topology.Ring")
    return _all_to_all(g)


def _slice_reshard(g: Given) -> Any:
    """Keep rows of the joined shards from `output_dim_offset` on, an equal part on each chip."""
    semaphores(g, [g.final_semaphore, g.barrier_semaphore])
    if g.dim:
        rule = "Error, neighbor pad currently only supports sharding dim 0, provided"
        fail(g.asked, f"{rule} {g.dim}", "dim=0")
    return run(g, "", None, None, g.output_dim_offset, g.output_dim_shape)


def _neighbor_pad(g: Given) -> Any:
    """Put rows of a chip's neighbours around its shard, along one or two dims.

    At the ends of the line there are zeros, or with "replicate" the shard's own border.
    """
    lists, links = ("dim", "padding_left", "padding_right", "cluster_axis"), g.num_links
    for what in lists:
        taken(g.asked, what, getattr(g, what), "list | tuple")
        if len(getattr(g, what)) != len(g.dim):
            rule = f"{what} size ({len(getattr(g, what))}) must match dim size ({len(g.dim)})"
            fail(g.asked, rule, "one number for each dim")
    if not g.neighbor_semaphore:
        fail(g.asked, "neighbor_semaphore must not be empty", "a semaphore for each dim")
    semaphores(g, [*g.neighbor_semaphore, *g.barrier_semaphore])
    rows = list(zip(*(getattr(g, what) for what in lists), strict=True))
    for i, row in enumerate(rows):
        g.dim, left, right, g.cluster_axis = row
        g.num_links = links and links[i]
        buffer = g.persistent_output_buffer if row is rows[-1] else None
        g.input_tensor = run(g, "", None, buffer, left, right, g.padding_mode)
    return g.input_tensor


def _one_or_two(g: Given, what: str, dim: int | None) -> int:
    if dim not in (None, 1, 2):
        fail(g.asked, f"{what} dimension must be 1 or 2, got {dim}", "1, the tokens' batch")
    return dim or 1


def _dispatch(g: Given) -> Any:
    """Send each token to the chips along `cluster_axis` that have an expert which it chose.

    Args:
        input_tensor: [B, 1, S, H] of each chip, row-major.
        expert_indices_tensor: [B, 1, S, K], uint16: the experts of each token.
        expert_mapping_tensor: [1, 1, E, D], the same on all chips: 1 where chip D has expert E.

    Returns:
        Tokens [1, B n, S, H], 0 where none was sent, and all indices [1, B n, S, K]; with
        output_concat_dim=2, [1, B, S n, ...].
    """
    indices, g.dim = g.expert_indices_tensor, _one_or_two(g, "Output concat", g.output_concat_dim)
    g.dim = 0 if g.dim == 1 else 2
    outputs = g.output_tensors or (None, None)
    tokens = run(g, "", None, outputs[0], indices, g.expert_mapping_tensor)
    chosen = run(g, "all_gather_async", indices)
    batch, _, *rest = chosen.shard_shape
    chosen = shaping.reshape(chosen, [1, batch, *rest])
    if outputs[1] is not None:
        outputs[1].rebind(chosen.array)
    chosen.topology = tokens.topology
    return [tokens, outputs[1] or chosen]


def _combine(g: Given) -> Any:
    """Send what experts made of tokens back to the tokens' chips: after `all_to_all_dispatch`.

    Args:
        input_tensor: [experts of the chip, B n, S, H]; [1, ...] with `local_reduce`.
        expert_metadata_tensor: [1, B n, S, K], from `all_to_all_dispatch`.

    Returns:
        [K, B, S, H]: for each of a token's choices the expert's row; 0 where no chip along
        `cluster_axis` has the expert.
    """
    g.dim = _one_or_two(g, "Output shard", g.output_shard_dim)
    others = (g.expert_metadata_tensor, g.expert_mapping_tensor, bool(g.local_reduce))
    return run(g, "", None, g.output_tensor, *others)


BODIES = (_buffered, _all_to_all, _slice_reshard, _neighbor_pad, _dispatch, _combine)
for (_name, _text), _body in zip(SIGNATURES.items(), BODIES, strict=True):
    entered(_name, _body, _text)
