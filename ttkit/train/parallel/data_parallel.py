"""Data parallelism: the mean of the replicas' gradients, in buckets; and ZeRO (Rajbhandari 2020,
"ZeRO: memory optimizations toward training trillion parameter models"), which shards over n
data-parallel ranks the tensors that each of them would hold in full. Context-parallel chips have
the same weights, too, so ZeRO shards over the chips of both: first along the mesh axis of data
parallelism, then along that of context parallelism.

An all-reduce is a reduce-scatter and an all-gather. Between the two each chip has its shard of the
mean gradient, so it can update its shard of the weights with its shard of the optimizer's state.

| stage | each chip holds a shard of | sent in a step, for weights of W bytes                    |
|-------|----------------------------|-----------------------------------------------------------|
| 0     | nothing                    | all-reduce W                                              |
| 1     | the optimizer's state      | reduce-scatter W, all-gather W: as much as stage 0        |
| 2     | the gradients, too         | reduce-scatter W for each micro-batch, one all-gather W   |
| 3     | the weights, too           | reduce-scatter W for each micro-batch, all-gather W in    |
|       |                            | each forward and in each backward                         |

A weight is sharded along one of its dimensions, in whole tiles. If no dimension divides evenly, as
in a narrow bias, every chip holds the full weight, and its gradients are all-reduced.

Stages 2 and 3 reduce-scatter in `Parameter.add_grad`, once for each micro-batch. Stage 1 does so in
`average_gradients`, once for each step. In every stage `average_gradients` divides the sums by the
number of chips.

There may also be ranks that each have a mesh with a replica of the model. With ZeRO of any stage,
each rank owns some of the parameters: it gets their mean gradients, updates them and sends them to
the other ranks, as PyTorch's ZeroRedundancyOptimizer does. The network between hosts is slow, so it
carries gradients and weights only once in a step.

Small gradients are sent together in buckets, because each collective costs a latency. PyTorch's
DistributedDataParallel does the same (Li 2020, "PyTorch Distributed", section 4.2)."""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from ttkit import ttnn
from ttkit.hardware.chips import ELEMENT_BYTES
from ttkit.train.autograd import Value
from ttkit.train.config.layout import TILE
from ttkit.train.model.modules import Parameter, Parameters
from ttkit.train.parallel.distributed import averaged
from ttkit.waiting import wait_for


def owners(sizes: Sequence[int], ranks: int) -> list[int]:
    """Return the rank that updates each parameter. Parameters are assigned in the order of their
    sizes, the largest first, each to the rank that has the smallest sum of sizes so far.

    Example:
        >>> owners([1, 4, 2, 2], 2)
        [0, 0, 1, 1]
    """
    found = [0] * len(sizes)
    held = [0] * ranks
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        found[i] = held.index(min(held))
        held[found[i]] += sizes[i]
    return found


def average_gradients(parameters: Parameters, bucket_mb: float = 0) -> None:
    """Replace each gradient by its mean over the chips of its mesh that have other tokens.

    Args:
        bucket_mb: the largest size of a bucket of gradients in MB; with 0 each gradient is sent
            alone. These gradients are never put into a bucket: those that ZeRO shards, those of
            experts, and those whose size is not a multiple of 32.
    """
    # The last layer's gradients come first, as backward computes them, and as in PyTorch's
    # DistributedDataParallel. But here backward has ended already, so nothing overlaps with it.
    ready = [each for each in reversed(list(parameters.values())) if each.is_grad_initialized()]
    for bucket in _buckets(ready, bucket_mb * 1e6):
        if len(bucket) == 1:
            _average(bucket[0])
        else:
            _average_bucket(bucket)


def _average(parameter: Parameter) -> None:
    """Replace a gradient by its mean over its mesh; with ZeRO each chip gets a shard of it."""
    layout = parameter.layout
    grad: Value = parameter.get_grad()
    axes = layout.replica_axes
    if parameter.expert:  # The gradient of an expert is already a sum over all replicas' tokens.
        grad, axes = grad * (1 / layout.dp), []
    elif parameter.zero_dim is not None:
        if not parameter.has_sharded_grad:
            grad = parameter.scattered(grad)
        grad, axes = grad * (1 / layout.zero_shards), []
    parameter.set_shard_grad(averaged(grad, *axes))


def _buckets(parameters: list[Parameter], most: float) -> Iterator[list[Parameter]]:
    """Yield lists of parameters whose gradients are sent together.

    Those of one list lie on one mesh. Their gradients have at most `most` bytes in all, unless the
    list has a single parameter.
    """
    bucket: list[Parameter] = []
    size = 0.0
    for parameter in parameters:
        shape = parameter.local_shape
        nbytes = math.prod(shape) * ELEMENT_BYTES[parameter.dtype.name.lower()]
        if parameter.zero_dim is not None or parameter.expert or math.prod(shape) % TILE:
            yield [parameter]
            continue
        if bucket and (bucket[0].layout != parameter.layout or size + nbytes > most):
            yield bucket
            bucket, size = [], 0.0
        bucket.append(parameter)
        size += nbytes
    if bucket:
        yield bucket


def _average_bucket(bucket: list[Parameter]) -> None:
    """Average gradients, joined into one tensor, over the chips of their mesh that have other
    tokens.
    """
    grads: list[Value] = [parameter.get_grad() for parameter in bucket]
    rows = [math.prod(grad.shape) // TILE for grad in grads]
    flat = [ttnn.reshape(grad, (1, 1, n, TILE)) for grad, n in zip(grads, rows)]
    mean = averaged(ttnn.concat(flat, dim=2), *bucket[0].layout.replica_axes)
    for parameter, grad, own in zip(bucket, grads, ttnn.split(mean, rows, dim=2)):
        parameter.set_shard_grad(ttnn.reshape(own, tuple(grad.shape)))


def average_over_ranks(parameters: Parameters, comm) -> None:
    """Average over the ranks the gradients that each mesh has already averaged over its chips.

    All gradients are sent at the same time. If a parameter has an owner, the other ranks remove
    their gradients of the parameter.
    """
    from mpi4py import MPI

    sent = []
    for parameter in parameters.values():
        if parameter.is_grad_initialized():
            array = parameter.gather_grad() * np.float32(1 / comm.size)
            root = parameter.owner
            is_mine = root in (None, comm.rank)
            own = MPI.IN_PLACE if is_mine else array
            request = (
                comm.Iallreduce(own, array) if root is None else comm.Ireduce(own, array, root=root)
            )
            sent.append((request, parameter, array, is_mine))
    for request, parameter, mean, is_mine in sent:
        wait_for("the other ranks", request.Test, sent)
        if is_mine:
            parameter.place_grad(mean)
        else:
            parameter.set_grad(None)


def share_weights(parameters: Parameters, comm) -> None:
    """Send each weight from the rank that has updated it to all other ranks."""
    sent = []
    for parameter in parameters.values():
        is_mine = parameter.owner == comm.rank
        array = parameter.gather() if is_mine else np.empty(parameter.global_shape, np.float32)
        sent.append((comm.Ibcast(array, root=parameter.owner), parameter, array, is_mine))
    for request, parameter, array, is_mine in sent:
        wait_for("the other ranks", request.Test, sent)
        if not is_mine:
            parameter.place(array)
