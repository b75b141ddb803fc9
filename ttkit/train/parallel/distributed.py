"""Differentiable collectives, the mean of gradients over replicas, and sequence parallelism.

The names are those of ttml.ops.distributed and ttml.core.distributed.

| forward        | backward                                                                      |
|----------------|-------------------------------------------------------------------------------|
| all_reduce     | identity with noop_backward (Megatron's *g*), else all_reduce                 |
| broadcast      | all_reduce; forward is the identity (Megatron's *f*)                          |
| scatter        | all_gather                                                                    |
| reduce_scatter | all_gather                                                                    |
| all_gather     | reduce_scatter, or this device's slice of a gradient that is the same on all  |
| all_to_all     | all_to_all with the dimensions swapped                                        |

`cluster_axis` is the mesh axis along which devices communicate. With None, the default, they
communicate along every axis; all_to_all needs an axis. With an axis of one device, a collective
changes nothing. For the loss, None says that each device has the whole vocabulary.

With sequence parallelism (Korthikanti 2022, "Reducing activation recomputation in large transformer
models", section 4.2.2), each chip has only its shard of the sequence between the layers of a
tensor-parallel model.

| where                      | without         | with                      |
|----------------------------|-----------------|---------------------------|
| into column-parallel       | f: `broadcast`  | all-gather of the shards  |
| out of row-parallel        | g: `all_reduce` | reduce-scatter            |
| norms, dropout, residuals  | [B, 1, S, E]    | [B, 1, S / tp, E]         |

A ring's all-reduce is a reduce-scatter and an all-gather, so as many bytes are sent with sequence
parallelism as without it. The activations between the layers take 1 / tp of the memory."""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum

from ttkit import ttnn
from ttkit.backend import Array, to_numpy
from ttkit.errors import fail
from ttkit.train.autograd import Gradients, Tensor, Value, recorded
from ttkit.train.autograd.ops import MASKED_SCORE, one_hot
from ttkit.train.config.layout import Axis, Layout
from ttkit.train.context import AutoContext, one_token, socket_config


class GradOutputType(Enum):
    """The gradient that backward gives to an all-gather: each device has a partial gradient of its
    own (SHARDED), or all devices have the same one (REPLICATED).
    """

    SHARDED = "sharded"
    REPLICATED = "replicated"


def alone(value: Value, cluster_axis: Axis) -> bool:
    """Return whether `cluster_axis` is None, or an axis with only one device."""
    return cluster_axis is None or value.device().shape[cluster_axis] == 1


def reduced(value: Value, cluster_axis: Axis) -> Value:
    """Return on each device the sum of a ttnn tensor over the devices along an axis."""
    if alone(value, cluster_axis):
        return value
    return ttnn.all_reduce(value, cluster_axis=cluster_axis)


def local_slice(value: Value, dim: int, cluster_axis: Axis) -> Value:
    """Return each device's slice of a ttnn tensor that is the same on all; nothing is sent."""
    layout = value.layout
    # Inside a tile, ttnn can slice in row-major layout only.
    if value.shape[dim] // value.device().shape[cluster_axis] % ttnn.TILE_SIZE:
        value = ttnn.to_layout(value, ttnn.ROW_MAJOR_LAYOUT)
    return ttnn.to_layout(ttnn.mesh_partition(value, dim, cluster_axis=cluster_axis), layout)


def _collective(
    name: str,
    tensor: Tensor,
    forward: Callable[..., Value],
    back: Callable[..., Value],
    cluster_axis: Axis,
    *dims: int,
) -> Tensor:
    """Apply a collective and record its backward, another collective of the same axis.

    Over all devices, slices are cut along the first mesh axis first, so an all-gather joins them
    along the first mesh axis last.

    Args:
        back: the collective of the backward pass, which takes `dims` in reverse order.
    """
    if cluster_axis is None:
        axes = range(tensor.get_value().device().shape.dims())
        for each in reversed(axes) if name == "all_gather" else axes:
            tensor = _collective(name, tensor, forward, back, each, *dims)
        return tensor
    if alone(tensor.get_value(), cluster_axis):
        return tensor
    value = forward(tensor.full(), *dims, cluster_axis=cluster_axis)

    def backward(grad: Value) -> Gradients:
        return [back(grad, *reversed(dims), cluster_axis=cluster_axis)]

    return recorded(name, value, [tensor], backward)


def _same(value: Value, cluster_axis: Axis) -> Value:
    return value


def all_reduce(tensor: Tensor, noop_backward: bool = False, cluster_axis: Axis = None) -> Tensor:
    """Return on each device the sum over all devices.

    Args:
        noop_backward: whether backward passes the gradient unchanged. This is right if each
            device's input is its own partial sum, such as that of a row-parallel matmul. Megatron
            calls this *g*.
    """
    back = _same if noop_backward else ttnn.all_reduce
    return _collective("all_reduce", tensor, ttnn.all_reduce, back, cluster_axis)


def broadcast(tensor: Tensor, cluster_axis: Axis = None) -> Tensor:
    """Return the same tensor; backward all-reduces the gradient. Megatron calls this *f* (Shoeybi
    2019), ttml `broadcast`.

    All devices have the same values, but each device uses them differently from here on, so the
    gradients of all devices are summed."""
    return _collective("broadcast", tensor, _same, ttnn.all_reduce, cluster_axis)


def scatter(tensor: Tensor, dim: int, cluster_axis: Axis = None) -> Tensor:
    """Return each device's slice of a tensor that is the same on all."""
    return _collective("scatter", tensor, local_slice, ttnn.all_gather, cluster_axis, dim)


def reduce_scatter(tensor: Tensor, dim: int, cluster_axis: Axis = None) -> Tensor:
    """Return each device's slice of the sum over the devices."""
    return _collective(
        "reduce_scatter", tensor, ttnn.reduce_scatter, ttnn.all_gather, cluster_axis, dim
    )


def all_gather(
    tensor: Tensor,
    dim: int,
    cluster_axis: Axis = None,
    grad_output_type: GradOutputType = GradOutputType.SHARDED,
) -> Tensor:
    """Return on each device the slices of all devices, joined along `dim`."""
    back = ttnn.reduce_scatter if grad_output_type is GradOutputType.SHARDED else local_slice
    return _collective("all_gather", tensor, ttnn.all_gather, back, cluster_axis, dim)


def all_to_all(tensor: Tensor, in_dim: int, out_dim: int, cluster_axis: int) -> Tensor:
    """Cut each device's tensor along `out_dim` into one part for each device, send the parts, and
    join the received parts along `in_dim`.
    """
    call = ttnn.experimental.all_to_all_async_generic
    return _collective("all_to_all", tensor, call, call, cluster_axis, in_dim, out_dim)


def shifted(value: Value, cluster_axis: int) -> Value:
    """Return on each device the tensor of the device before it; on the first, that of the last.

    All devices send, then all receive, through a pair of sockets that is stored with the mesh. The
    receiving buffer has room for the whole value, so that no device's send waits for another device
    to receive. ttml has small buffers, so there even and odd devices send in turns. On cards the
    fabric must be FABRIC_2D unless a cable joins the ends of the axis, because a socket of ttnn
    needs a route from the last device to the first.
    """
    mesh = value.device()
    shape = tuple(value.device().shape)
    # The size of the buffer in bytes is a power of two, with room for 4 bytes for each element.
    room = 1 << max(16, (4 * value.volume() - 1).bit_length())
    sockets = vars(mesh).setdefault("_ring_sockets", {})
    key = (shape, cluster_axis, room)

    def to(chip):
        place = list(chip)
        place[cluster_axis] = (place[cluster_axis] + 1) % shape[cluster_axis]
        return ttnn.MeshCoordinate(place)

    if key not in sockets:
        config = socket_config(mesh, ttnn.SocketMemoryConfig(ttnn.BufferType.DRAM, room), to)
        sockets[key] = ttnn.create_socket_pair(mesh, mesh, config)
    sender, receiver = sockets[key]
    ttnn.experimental.send_async(value, sender)
    return ttnn.experimental.recv_async(ttnn.empty_like(value), receiver)[0]


def cross_entropy_loss(
    logits: Tensor, targets: Value, numbers: Value, cluster_axis: Axis = None
) -> Tensor:
    """Return each device's mean over tokens of -log softmax(logits)[target], [1, 1, 1, 1], float32.

    Along `cluster_axis` the vocabulary is sharded, and only three numbers a token are sent: the
    highest logit, the sum of exponentials and the target's logit (Shoeybi 2019, section 3).

    Args:
        logits: [B, 1, S, V on this device].
        targets: [B, 1, 1, S], UINT32, row-major.
        numbers: the token of each column of the logits, [1, 1, 1, V on this device].
    """
    value = logits.get_value()
    chosen = one_hot(targets, numbers)
    highest = ttnn.max(value, dim=-1, keepdim=True)
    if not alone(value, cluster_axis):
        all_highest = ttnn.all_gather(highest, 3, cluster_axis=cluster_axis)
        highest = ttnn.max(all_highest, dim=-1, keepdim=True)
    shifted = value - highest
    powers = ttnn.exp(shifted)
    total = reduced(ttnn.sum(powers, dim=-1, keepdim=True), cluster_axis)
    picked = reduced(ttnn.sum(shifted * chosen, dim=-1, keepdim=True), cluster_axis)
    tokens = value.shape[0] * value.shape[2]
    each = ttnn.log(total) - picked
    if each.dtype != ttnn.float32:  # A sum in bfloat16 would keep only 8 significant bits.
        each = ttnn.typecast(each, ttnn.float32)
    loss = ttnn.sum(each, keepdim=True) * (1 / tokens)

    def backward(grad: Value) -> Gradients:
        probs = powers * ttnn.reciprocal(total)
        return [(probs - chosen) * (grad * (1 / tokens))]

    return recorded("cross_entropy_loss", loss, [logits], backward)


def padding_masked(logits: Tensor, numbers: Value, vocab_size: int) -> Tensor:
    """Return logits [B, 1, S, V], lowered in the columns that pad the vocabulary and are no tokens.

    Args:
        numbers: the token of each column of the logits, [1, 1, 1, V on this device].
    """
    lowered = (numbers >= float(vocab_size)) * MASKED_SCORE
    return recorded("padding_masked", logits.get_value() + lowered, [logits], lambda grad: [grad])


def synchronize_gradients(
    parameters: Mapping[str, Tensor], cluster_axes: Sequence[int] | None = None
) -> None:
    """Replace each gradient by its mean over the replicas.

    Without this call the replicas' weights diverge while the loss looks plausible.

    Args:
        parameters: what `model.parameters()` returns.
        cluster_axes: the mesh axes along which the replicas lie; by default the data-parallel axis
            of the parallelism context.

    Raises:
        TTKitError: there is no parallelism context, it has no data-parallel axis (ttml returns
            silently in these two cases), or no parameter has a gradient.
    """
    if cluster_axes is None:
        axis = AutoContext.get_instance().get_parallelism_context().get_ddp_axis()
        if axis is None:
            fail(
                "synchronize_gradients",
                "data parallelism is off, so there is nothing to average",
                "DistributedConfig(enable_ddp=True), cluster_axes=..., or leave the call out",
            )
        cluster_axes = [axis]
    ready = [tensor for tensor in parameters.values() if tensor.is_grad_initialized()]
    if not ready:
        fail(
            "synchronize_gradients",
            f"none of the {len(parameters)} parameters has a gradient: there was no backward(), "
            "or zero_grad() came after it",
            "zero_grad(), then loss.backward(), then synchronize_gradients(...)",
        )
    for tensor in ready:
        tensor.set_grad(averaged(tensor.get_grad(), *cluster_axes))


def averaged(value: Value, *cluster_axes: Axis) -> Value:
    """Return the mean of a tensor over the devices along mesh axes."""
    for axis in cluster_axes:
        if not alone(value, axis):
            value = reduced(value, axis) * (1 / value.device().shape[axis])
    return value


def mean_over_replicas(loss: Tensor, layout: Layout) -> float:
    """Return a loss [1, 1, 1, 1] as a number: its mean over the chips with different tokens."""
    return float(one_copy(averaged(loss.get_value(), *layout.replica_axes)).item())


def one_copy(value: Value) -> Array:
    """Return the array on the first device of this process, which is the whole tensor if the tensor
    is replicated.
    """
    view = value.device().get_view()
    here = next(
        i for i, coord in enumerate(ttnn.MeshCoordinateRange(view.shape())) if view.is_local(coord)
    )
    return to_numpy(ttnn.get_device_tensors(value)[here])


# ------------------------------------------------------------ sequence parallelism
SEQUENCE = 2  # This is the dimension of the sequence in activations, [B, 1, S, E].


def is_cut(layout: Layout) -> bool:
    """Return whether the sequence is sharded between layers. The one token of a sampler is not."""
    return layout.tp_axis is not None and layout.sequence_parallel and not one_token[0]


def enter(x: Tensor, layout: Layout) -> Tensor:
    """Return x [B, 1, S, E], the input of column-parallel matmuls.

    Args:
        x: [B, 1, S, E], or with sequence parallelism each chip's shard, [B, 1, S / tp, E].
    """
    if is_cut(layout):
        return all_gather(x, SEQUENCE, layout.tp_axis)
    return x if layout.tp_axis is None else broadcast(x, layout.tp_axis)


def leave(x: Tensor, layout: Layout) -> Tensor:
    """Return the all-reduced output of a row-parallel matmul, [B, 1, S, E]. With sequence
    parallelism, return each chip's shard of the sum by a reduce-scatter, [B, 1, S / tp, E].
    """
    if is_cut(layout):
        return reduce_scatter(x, SEQUENCE, layout.tp_axis)
    return x if layout.tp_axis is None else all_reduce(x, True, layout.tp_axis)


def gathered(x: Tensor, layout: Layout) -> Tensor:
    """Return on each chip the columns of all tensor-parallel ranks: x [B, 1, S, W / tp] becomes
    [B, 1, S, W]. All chips use the result alike.
    """
    axis = layout.tp_axis
    return x if axis is None else all_gather(x, 3, axis, GradOutputType.REPLICATED)


def local_part(x: Tensor, layout: Layout) -> Tensor:
    """Return each chip's shard of a replicated tensor, such as the position vectors. Without
    sequence parallelism, return the tensor itself.
    """
    return scatter(x, SEQUENCE, layout.tp_axis) if is_cut(layout) else x


def used_on_shards(weight: Tensor, layout: Layout) -> Tensor:
    """Return a weight that each chip uses on its shard of the sequence. With sequence parallelism,
    backward all-reduces the gradient of the weight.
    """
    if layout.sequence_parallel and layout.tp_axis is not None:
        return broadcast(weight, layout.tp_axis)
    return weight
