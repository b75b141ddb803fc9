"""Gradient buckets: small gradients are sent together, because each collective costs a latency.

PyTorch's DistributedDataParallel does the same (Li 2020, "PyTorch Distributed", section 4.2)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from ttkit import ttnn
from ttkit.hardware.chips import ELEMENT_BYTES
from ttkit.train.autograd import Value
from ttkit.train.distributed import averaged
from ttkit.train.parallel import TILE
from ttkit.train.parameter import Parameter


def average_in_buckets(parameters: Iterable[Parameter], bucket_bytes: float) -> None:
    """Replace gradients by their means over the chips that have other tokens, an all-reduce a
    bucket; those that ZeRO cuts, of experts, or whose size is no multiple of 32 are sent alone.

    Args:
        bucket_bytes: the largest bucket; a larger gradient is sent alone.
    """
    alone: list[Parameter] = []
    fit: list[Parameter] = []
    # the backward makes the last layer's gradients first, so they can be sent first, under the rest
    for parameter in reversed(list(parameters)):
        grad = parameter.get_grad()
        if grad is None:
            continue
        plain = parameter.cut is None and not parameter.expert
        (fit if plain and math.prod(grad.shape) % TILE == 0 else alone).append(parameter)
    for parameter in alone:
        parameter.average_grad()
    for bucket in _buckets(fit, bucket_bytes):
        grads = [parameter.get_grad() for parameter in bucket]
        for parameter, mean in zip(bucket, _averaged(grads, bucket[0].layout.replica_axes)):
            parameter.set_own_grad(mean)


def _buckets(parameters: list[Parameter], bucket_bytes: float) -> Iterator[list[Parameter]]:
    """Yield parameters that follow each other, of one mesh and type, up to the size of a bucket."""
    bucket: list[Parameter] = []
    size = 0.0
    for parameter in parameters:
        nbytes = math.prod(parameter.local_shape) * ELEMENT_BYTES[parameter.dtype.name.lower()]
        alike = bucket and (bucket[0].layout, bucket[0].dtype) == (
            parameter.layout,
            parameter.dtype,
        )
        if bucket and (not alike or size + nbytes > bucket_bytes):
            yield bucket
            bucket, size = [], 0.0
        bucket.append(parameter)
        size += nbytes
    if bucket:
        yield bucket


def _averaged(grads: list[Value], axes: list[int]) -> list[Value]:
    """Return the means of tensors over the chips along mesh axes, sent as one."""
    if len(grads) == 1:
        return [averaged(grads[0], *axes)]
    rows = [math.prod(grad.shape) // TILE for grad in grads]
    flat = [ttnn.reshape(grad, (1, 1, n, TILE)) for grad, n in zip(grads, rows)]
    mean = averaged(ttnn.concat(flat, dim=2), *axes)
    found, start = [], 0
    for grad, n in zip(grads, rows):
        own = ttnn.slice(mean, [0, 0, start, 0], [1, 1, start + n, TILE])
        found.append(ttnn.reshape(own, tuple(grad.shape)))
        start += n
    return found
