"""Norms of rows and of images, embedding, and parameters of torch modules.

The parameters are those of `ttnn.model_preprocessing`.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ttkit.sim import blocks
from ttkit.sim.arguments import refuse
from ttkit.sim.ops import (
    Array,
    Operands,
    checked,
    each_element,
    in_whole_tiles,
    looked_up,
    operation,
    shaped,
    written,
)
from ttkit.sim.tensor import DataType, Layout
from ttkit.sim.tensor.creation import from_torch, to_torch
from ttkit.sim.tensor.dtypes import widened
from ttkit.sim.tensor.tensor import Tensor

F = np.float32


def _weighted(on: Operands, normal: Array) -> Array:
    """Return rows times the weight plus the bias; these last two operands may be None."""
    width = normal.shape[-1]
    for array, apply in zip(on.arrays[-2:], (np.multiply, np.add)):
        if array is None:
            continue
        # Only the first row of a tile holds the vector.
        if math.prod(array.shape[on.lead :]) != width:
            array = array[..., :1, :]
        ones = (1,) * (normal.ndim - on.lead - 1)
        array = shaped(array, on.lead, *ones, width)
        longer = np.broadcast_shapes(array.shape, normal.shape) != normal.shape
        normal = apply(normal, array, out=None if longer else normal)
    return normal


def _added(on: Operands) -> Array:
    """Return the first operand, plus the residual (the second operand) if there is one."""
    x, residual = on.arrays[:2]
    return x if residual is None else x + residual  # type: ignore[no-any-return]


def _enter_norm(name: str, centre: bool, flops: int) -> None:
    def call(
        input_tensor: Tensor,
        *,
        epsilon: float = 1e-12,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        residual_input_tensor: Tensor | None = None,
    ) -> Tensor:
        """Return each row divided by its root mean square, times `weight`, plus `bias`.

        A layer norm first subtracts the mean of each row from the row.

        Args:
            input_tensor: [..., n].
            weight, bias: [n] or [1, n].
            residual_input_tensor: a tensor of the input's shape, which is added to the input first.

        Raises:
            TTKitError: the input, `weight` and `bias` differ in width.
        """
        on = Operands(input_tensor, residual_input_tensor, weight, bias)
        scale = 1 / input_tensor.shard_shape[-1]

        def rows(block: Array, out: Array) -> None:
            if centre:
                np.subtract(block, np.add.reduce(block, -1, keepdims=True) * scale, out=out)
            else:
                np.copyto(out, block)
            power = np.einsum("ij,ij->i", out, out)
            power *= scale
            power += epsilon
            np.sqrt(power, out=power)
            out *= np.reciprocal(power)[:, None]

        return on.result(_weighted(on, blocks.by_blocks(rows, _added(on), of_rows=True)))

    operation(name, flops=each_element(flops))(call)


_enter_norm("layer_norm", True, 7)
_enter_norm("rms_norm", False, 4)


# ---------------------------------------------------------------- rows cut over several chips
def _enter_halves(norm: str, tiles: int) -> None:
    """Enter the two halves of a norm; each statistic of the rows is in the first column of a tile.

    The first half returns the sum of the squares of each row; for a layer norm, it also returns the
    sum of each row. If the input is sharded over cores, ttnn's kernels return means in bfloat16
    instead of sums; for a layer norm, the mean of the row then comes first. These kernels also
    write the sum of input and residual into the input.
    """

    def pre(
        input_tensor: Tensor,
        *,
        dtype: DataType = DataType.BFLOAT16,
        residual_input_tensor: Tensor | None = None,
    ) -> Tensor:
        """Return statistics of each chip's part of the rows, the first half of a norm.

        Column 0 has the sum of the squares; for layer_norm, column 32 has the sum of the elements.
        An input that is sharded over cores gives means instead. For rms_norm, column 0 has the mean
        of the squares; for layer_norm, column 0 has the mean of the elements and column 32 the mean
        of the squares.

        Args:
            residual_input_tensor: a tensor of the input's shape, which is added to the input first.
                If the input is sharded, the sum is written into the input.

        Returns:
            [..., s, 32], or for layer_norm [..., s, 64], to gather along the last dimension.
        """
        on = Operands(input_tensor, residual_input_tensor)
        x = _added(on)
        sharded = input_tensor.is_sharded()
        if sharded and residual_input_tensor is not None:
            x = written(on.result(x), input_tensor).array
        of_squares = np.einsum("...i,...i->...", x, x)
        found = of_squares[..., None] if tiles == 1 else np.stack([of_squares, x.sum(-1)], -1)
        if sharded:
            found = found[..., ::-1] / x.shape[-1]
            dtype = DataType.BFLOAT16
        statistics = np.zeros((*found.shape, 32), F)
        statistics[..., 0] = found
        return on.result(statistics.reshape(*x.shape[:-1], tiles * 32), dtype)

    def post(
        input_tensor: Tensor,
        stats: Tensor,
        *,
        epsilon: float = 1e-12,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        dtype: DataType | None = None,
    ) -> Tensor:
        """Return each chip's part of the rows, normalised with the statistics of the whole rows.

        Args:
            stats: the gathered results of the first half.
            weight, bias: this chip's part, [n] or [1, 1, n / 32, 32].
        """
        on = Operands(input_tensor, stats, weight, bias)
        x, statistics, *_ = on.arrays
        means = shaped(statistics, -1, -1, tiles, 32)[..., 0].mean(-2)
        means = means[..., ::-1] if input_tensor.is_sharded() else means / x.shape[-1]
        power = means[..., :1] + epsilon
        centred = x
        if tiles > 1:
            mean = means[..., 1:]
            power, centred = power - mean * mean, x - mean
        return on.result(_weighted(on, centred * np.reciprocal(np.sqrt(power))), dtype)

    operation(f"{norm}_pre_all_gather", flops=each_element(2))(pre)
    operation(f"{norm}_post_all_gather", flops=each_element(4))(post)


_enter_halves("rms_norm", 1)
_enter_halves("layer_norm", 2)


# ---------------------------------------------------------------- images
@operation("group_norm", flops=each_element(7))
def group_norm(
    input_tensor: Tensor,
    *,
    num_groups: int,
    epsilon: float = 1e-12,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    core_grid=None,
    dtype: DataType | None = None,
    output_layout: Layout | None = None,
) -> Tensor:
    """Normalize each group of channels of [n, 1, h * w, c] to mean 0 and standard deviation 1.

    Args:
        weight, bias: what `create_group_norm_weight_bias_rm` returned, [1, 1, rows, 32].
        core_grid: the grid of cores. The channels of `weight` and `bias` lie on one core, or they
            are cut over as many cores as the grid has rows or columns.
    """
    on = Operands(input_tensor, weight, bias)
    x, *vectors = on.arrays
    channels, axes = x.shape[-1], (-4, -3, -1)
    groups = shaped(x, -1, num_groups, -1)
    deviation = np.sqrt(groups.var(axes, keepdims=True) + epsilon)
    normal = ((groups - groups.mean(axes, keepdims=True)) / deviation).reshape(x.shape)
    cuts = (1, core_grid.y, core_grid.x) if core_grid else (1,)
    for i, vector in enumerate(vectors, 1):
        if vector is None:
            continue
        flat = shaped(vector, on.lead, -1)
        # On each core the channels are padded with zeros to whole tiles. So the length and the
        # places of the zeros tell over how many cores a vector is cut.
        for cores in cuts:
            own = channels // cores
            if flat.shape[-1] == cores * -(-channels // (32 * cores)) * 32:
                parts = shaped(flat, on.lead, cores, -1)
                if not parts[..., own:].any():
                    break
        else:
            rule = f"{flat.shape[-1]} values of a vector are not {channels} on the grid's cores"
            refuse(rule, "ttnn.create_group_norm_weight_bias_rm and core_grid")
        on.arrays[i] = shaped(parts[..., :own], on.lead, 1, channels)
    return on.result(_weighted(on, normal), dtype, layout=output_layout)


@operation("batch_norm", flops=each_element(7))
def batch_norm(
    input: Tensor,
    *,
    running_mean=None,
    running_var=None,
    training: bool = False,
    eps: float = 1e-05,
    momentum: float = 0.1,
    weight=None,
    bias=None,
) -> Tensor:
    """Normalise each channel of [n, c, h, w] with its running mean and variance.

    Args:
        running_mean, running_var, weight, bias: tensors [1, c, 1, 1]. Only training may leave out
            the first two.
        training: whether mean and variance are those of the input. The running ones, if given, then
            move towards them by the fraction `momentum`.
    """
    on = Operands(input, running_mean, running_var, weight, bias)
    x, mean, variance, gamma, beta = on.arrays
    if training:
        mean, variance = (f(x, (-4, -2, -1), keepdims=True) for f in (np.mean, np.var))
        for running, found in ((running_mean, mean), (running_var, variance)):
            if running is not None:
                written(on.result(running.array * (1 - momentum) + found * momentum), running)
    normal = (x - mean) / np.sqrt(variance + eps)
    normal = normal if gamma is None else normal * gamma
    return on.result(normal if beta is None else normal + beta)


@checked
def create_group_norm_weight_bias_rm(input_tensor, num_channels, num_cores_x):
    """Cut a torch vector over cores, pad each part to whole tiles, and return [1, 1, rows, 32]."""
    from torch.nn.functional import pad

    parts = input_tensor.reshape(num_cores_x, -1)
    return pad(parts, (0, -parts.shape[1] % 32)).reshape(1, 1, -1, 32)


@checked
def create_group_norm_input_mask(
    num_channel, num_groups, num_cores_across_channel, data_type=DataType.BFLOAT16
):
    """Return a mask [1, groups, 32, n] with 1 in the columns of each group.

    Columns are counted from the tile in which the group begins.
    """
    size = num_channel // num_groups
    starts = np.arange(num_groups)[:, None] * size % (num_channel // num_cores_across_channel) % 32
    columns = np.arange(starts.max() + size)
    within = (columns >= starts) & (columns < starts + size)
    mask = in_whole_tiles(np.repeat(within[None, :, None], 32, 2))
    return from_torch(mask, data_type, layout=Layout.TILE)


@checked
def create_group_norm_input_negative_mask(
    num_channel, num_groups, num_cores_across_channel, data_type=DataType.BFLOAT16
):
    """Return 0 where the mask of `create_group_norm_input_mask` has 1, and 1 elsewhere."""
    mask = create_group_norm_input_mask(num_channel, num_groups, num_cores_across_channel)
    return from_torch(1 - to_torch(mask), data_type, layout=Layout.TILE)


@checked
def dram_group_norm_params_from_torch(
    torch_params,
    channels_per_device,
    groups_per_device,
    device,
    core_grid=None,
    return_mask=True,
    dtype=DataType.BFLOAT16,
):
    """Return a torch vector or a list as `group_norm` takes it; `return_mask` adds the mask."""

    def placed(vector):
        return from_torch(vector.reshape(1, 1, -1, 32), dtype, device=device)

    listed = isinstance(torch_params, list)
    vectors = [*map(placed, torch_params)] if listed else placed(torch_params)
    if not return_mask:
        return vectors
    columns = (core_grid or device.core_grid).x
    while channels_per_device % (32 * columns) or groups_per_device % columns:
        columns -= 1
    mask = create_group_norm_input_mask(channels_per_device, groups_per_device, columns, dtype)
    return vectors, mask.to(device)


# ---------------------------------------------------------------- embedding
@operation("embedding", "arrange", moves="part")
def embedding(
    input_tensor: Tensor,
    weight: Tensor,
    *,
    layout: Layout | None = None,
    dtype: DataType | None = None,
) -> Tensor:
    """Return rows of a table: indices [b, s] or [s] of a weight [vocabulary, n] give [..., n].

    Indices [b, 1, 1, s] give [b, s, n], as in ttnn.

    Raises:
        TTKitError: an index is beyond the end of the table.
    """
    on = Operands(input_tensor, weight, narrow=True)
    rank = len(input_tensor.shard_shape)
    indices, table = on.arrays
    numbers = indices.astype(np.int64)
    if rank > 2:
        numbers = shaped(numbers, on.lead + 1, input_tensor.shard_shape[-1])
    table = shaped(table, on.lead, *weight.shard_shape[-2:])
    taken = widened(looked_up(table, on.lead, numbers))
    return on.result(taken, dtype or DataType.BFLOAT16, layout=layout or weight.layout)


# ---------------------------------------------------------------- parameters of torch modules
class ParameterDict(dict):  # type: ignore[type-arg]
    """Parameters by name, also as attributes: `parameters.dense.weight`."""

    def __getattr__(self, name: str):
        if name in self:
            return self[name]
        names = ", ".join(map(str, self)) or "none"
        raise AttributeError(f"no parameter {name!r}; there are {names}")


def preprocess_linear_weight(weight, *, dtype: DataType, **how):
    """Return a torch weight [out, in] as a ttnn tensor [in, out] in tiles."""
    return from_torch(weight.T.contiguous(), dtype, layout=Layout.TILE, **how)


def preprocess_linear_bias(bias, *, dtype: DataType, **how):
    """Return a torch bias [out] as a ttnn tensor [1, out] in tiles."""
    return from_torch(bias.reshape((1, -1)), dtype, layout=Layout.TILE, **how)


def preprocess_model_parameters(
    *,
    initialize_model: Callable[[], Any],
    custom_preprocessor: Callable[[Any, str], dict[str, Any]] | None = None,
    device=None,
):
    """Return the parameters of a torch module as ttnn tensors by the module's own names.

    Weights of Linear become [in, out] and their biases [1, out]; vectors of LayerNorm become
    [1, n]. All these are in tiles. All other parameters are row-major in their own shape. Floats
    become bfloat16. A ModuleList becomes a list. A Sequential becomes a dict with number keys. A
    module without parameters is left out, except in a ModuleList. Inside `ttnn.distribute(mapper)`,
    that mapper cuts all tensors.

    Args:
        initialize_model: a function that makes the module.
        custom_preprocessor: a function of a module and its name, such as "layers.0.dense". The
            tensors that it returns become the module's parameters; if it returns an empty dict, the
            rules above hold.
        device: the mesh for the tensors; without it they stay on the host.
    """
    import torch

    def converted(module, path):
        if isinstance(module, torch.nn.ModuleList):
            return [converted(child, [*path, str(i)]) for i, child in enumerate(module)]
        if custom_preprocessor and (own := custom_preprocessor(module, ".".join(path))):
            return ParameterDict(own)
        made = ParameterDict()
        usual = ("weight", "bias")
        for name, values in module.named_parameters(recurse=False):
            kind = DataType.BFLOAT16 if values.is_floating_point() else None
            make: Callable = from_torch
            if isinstance(module, torch.nn.Linear) and name == "weight":
                make = preprocess_linear_weight
            elif isinstance(module, (torch.nn.Linear, torch.nn.LayerNorm)) and name in usual:
                make = preprocess_linear_bias
            made[name] = make(values, dtype=kind, device=device)
        for name, child in module.named_children():
            inner = converted(child, [*path, name])
            if inner:
                made[int(name) if name.isdigit() else name] = inner
        return made

    return converted(initialize_model(), [])
