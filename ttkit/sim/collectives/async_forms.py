"""`mesh_partition`, all-to-all, compositions of collectives, and the async forms of collectives.

An async form is a row of `FORMS`: a plain collective that also takes semaphores, and buffers that
the program has allocated. In the simulator nothing overlaps: a semaphore changes nothing, and a
persistent output buffer gets the result.
"""

import inspect
from itertools import zip_longest

import numpy as np

from ttkit.sim.arguments import keywords_of, refuse
from ttkit.sim.collectives import exchanged, partitioned, places
from ttkit.sim.collectives.ccl import (
    COLLECTIVES,
    Call,
    Collective,
    all_gather,
    all_reduce,
    along,
    dim_in_range,
    divides,
    fabric_is_on,
    reduce_scatter,
    run,
)
from ttkit.sim.ops import Array, Operands, axis_of, matmul, movement, operation, shaping, written
from ttkit.sim.tensor import DataType, Layout, Topology
from ttkit.sim.tensor.grid import after_partition, unchanged
from ttkit.sim.tensor.tensor import Tensor


# ---------------------------------------------------------------- compositions
@keywords_of(all_gather)
def gather_reversed(input_tensor: Tensor, dim: int, **how):
    """Return `all_gather` with the shards in the opposite order."""
    whole = all_gather(input_tensor, dim, **how)
    chips = whole.shape[dim] // input_tensor.shape[dim]
    return shaping.concat(shaping.chunk(whole, chips, dim)[::-1], dim)


@keywords_of(all_gather)
def gather_each(
    input_tensor: list[Tensor], persistent_output_buffer: list[Tensor] | None, dim: int, **how
) -> list[Tensor]:
    """Return `all_gather` of each tensor, for example of the keys and of the values.

    Args:
        persistent_output_buffer: one buffer for the result of each tensor. A chip does not write
            its own shard into the buffer, so that part of the buffer keeps its earlier values.
    """
    made = []
    for tensor, buffer in zip_longest(input_tensor, persistent_output_buffer or ()):
        whole = inspect.unwrap(all_gather)(tensor, dim, **how)
        if buffer is not None:
            axis = axis_of(tensor, dim)
            on = Operands(buffer, whole)
            shape = whole.shard_shape
            sender = np.arange(shape[axis]) // tensor.shard_shape[axis]
            receiver = places(on.like.grid, (how["cluster_axis"],))
            ahead = (1,) * len(shape)
            behind = (1,) * (len(shape) - axis - 1)
            own = receiver.reshape(receiver.shape + ahead) == sender.reshape(-1, *behind)
            whole = written(on.result(np.where(own, *on.arrays)), buffer)
        made.append(whole)
    return made


@keywords_of(reduce_scatter)
def join_and_scatter(input_tensors: list[Tensor], dim: int, **how):
    """Join tensors along `dim`, and return `reduce_scatter` of the joined tensor."""
    return reduce_scatter(shaping.concat(input_tensors, dim), dim, **how)


@keywords_of(all_reduce)
def add_up(input_tensor: Tensor, *, math_op=None, dtype: DataType | None = None, **how):
    """Return `all_reduce`, converted to `dtype` where one is given."""
    if math_op is not None and math_op.name != "Sum":
        refuse(f"this collective only adds; it does not support {math_op}", "ttnn.ReduceType.Sum")
    total = all_reduce(input_tensor, **how)
    return total if dtype is None else movement.typecast(total, dtype)


@keywords_of(matmul.linear)
def gather_and_multiply(
    input_tensor: Tensor,
    weight_tensor: Tensor,
    dim: int,
    *,
    cluster_axis: int | None = None,
    num_links: int | None = None,
    topology: Topology | None = None,
    fused_activation=None,
    **product,
) -> list[Tensor]:
    """Return the gathered tensor, and its product with the weight as `linear` computes it."""
    whole = all_gather(
        input_tensor, dim, cluster_axis=cluster_axis, num_links=num_links, topology=topology
    )
    product["activation"] = fused_activation or product.get("activation")
    return [whole, matmul.linear(whole, weight_tensor, **product)]


@operation("experimental.minimal_matmul", "product")
def minimal_matmul(
    input_tensor,
    weight_tensor: Tensor,
    *,
    bias_tensor: Tensor | None = None,
    fused_activation=None,
    dtype: DataType | None = None,
) -> Tensor:
    """Return `linear` of [..., M, K] and [K, N]; a list of two tensors is joined along K."""
    whole = shaping.concat(input_tensor, -1) if isinstance(input_tensor, list) else input_tensor
    return matmul.linear(
        whole, weight_tensor, bias=bias_tensor, activation=fused_activation, dtype=dtype
    )


# ---------------------------------------------------------------- parts of shards
def whole_tiles(call: Call) -> None:
    tensor, dim = call.tensor, call.dim
    size = tensor.shard_shape[dim] // call.chips
    if call.chips > 1 and tensor.layout is Layout.TILE and dim >= call.rank - 2 and size % 32:
        side = "width" if dim == call.rank - 1 else "height"
        rule = f"Can only slice tilized tensor with {side} begin index aligned to tiles"
        refuse(f"{rule}: parts of {size}", "a row-major tensor, or parts of 32")


def values_on_all_chips(tensor: Tensor) -> Array:
    """Return the values on all chips; this process must drive all of them."""
    if not tensor.grid.local:
        refuse("the simulator has no such collective between ranks", "one process")
    return tensor.full_array()


def joined(call: Call, tensor: Tensor) -> Array:
    """Return the shards of all chips along the call's axes, joined along its dimension."""
    return exchanged(values_on_all_chips(tensor), call.mesh._shape, call.axes, call.dim)


EVEN = "input shape {shape!r} must be divisible by cluster axis size {chips}"
COLLECTIVES |= {
    "mesh_partition": Collective(
        (dim_in_range, divides(EVEN), whole_tiles),
        lambda call: partitioned(call.tensor, call.axes, call.dim),
        after_partition,
        "",
    ),
    "all_to_all_async": Collective(
        (fabric_is_on,),
        lambda call: along(call, *(axis_of(call.tensor, dim) for dim in call.others)),
        unchanged,
        "all_to_all",
    ),
}


@operation("mesh_partition", "arrange", moves="part")
def mesh_partition(input_tensor: Tensor, dim: int, cluster_axis: int | None = None) -> Tensor:
    """Cut `dim` into a part for each chip along `cluster_axis`; each chip keeps its own part.

    The parts are in the order of the chips. Nothing is sent.

    Raises:
        TTKitError: the number of chips does not divide the dimension, or a part ends inside a tile.
    """
    return run(Call("mesh_partition", input_tensor, dim, cluster_axis=cluster_axis))


@keywords_of(all_gather)
def all_to_all(input_tensor: Tensor, in_dim: int, out_dim: int, **how) -> Tensor:
    """Cut each shard along `out_dim`, send each chip a part, and join the parts along `in_dim`.

    Example: with in_dim=2 and out_dim=3, [1, 1, 32, 256] on 4 chips gives [1, 1, 128, 64].
    """
    return run(Call("all_to_all_async", input_tensor, others=(in_dim, out_dim), **how))


# ---------------------------------------------------------------- the table
# An async form takes the parameters of ttnn's function. The function here gets those that it names.
# Other parameters, such as a semaphore, change nothing, with two exceptions: an output buffer gets
# the result, and a parameter of `signatures.CHANGE_VALUES` is refused.
FORMS = {
    "all_gather_async strided_all_gather_async": all_gather,
    "all_gather_async_reversed": gather_reversed,
    "ring_attention_all_gather_async": gather_each,
    "all_gather_matmul_async strided_all_gather_minimal_matmul_async": gather_and_multiply,
    "reduce_scatter_minimal_async llama_reduce_scatter": reduce_scatter,
    "deepseek_moe_reduce_scatter": join_and_scatter,
    "all_reduce_async": add_up,
    "all_to_all_async_generic all_to_all_async": all_to_all,
}


for _names, _plain in FORMS.items():
    for _name in _names.split():
        operation(f"experimental.{_name}", "collective")(inspect.unwrap(_plain))
