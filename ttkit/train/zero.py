"""ZeRO (Rajbhandari 2020, "ZeRO: memory optimizations toward training trillion parameter models"):
what data-parallel groups would hold n times, each of the n chips holds a part of.

An all-reduce is a reduce-scatter and an all-gather. Between the two each chip has its part of the
mean gradient, so it can update its part of the weights with its part of the optimizer's state.

| stage | each chip holds a part of | sent in a step, for weights of W bytes                    |
|-------|---------------------------|-----------------------------------------------------------|
| 0     | nothing                   | all-reduce W                                              |
| 1     | the optimizer's state     | reduce-scatter W, all-gather W: as much as stage 0        |
| 2     | and the gradients         | the same; a reduce-scatter for each micro-batch           |
| 3     | and the weights           | and an all-gather W in each forward and in each backward  |

A weight is cut along one of its dimensions, in whole tiles. One that has none that divides, such as
a narrow bias, stays whole on every chip, and its gradients are all-reduced."""

from __future__ import annotations

from collections.abc import Sequence

from ttkit import ttnn
from ttkit.train.autograd import Value
from ttkit.train.distributed import gathered, own_slice, reduce_scattered
from ttkit.train.parallel import TILE, MeshLayout


def cut_dim(shape: Sequence[int], layout: MeshLayout) -> int | None:
    """Return the dimension along which the data-parallel chips share a weight; None if they do not.

    Args:
        shape: of the weight on a chip, [1, 1, out, in].

    Example:
        >>> zero = MeshLayout(ddp_axis=0, ddp_size=8, zero=1)
        >>> cut_dim((1, 1, 256, 64), zero), cut_dim((1, 1, 1, 512), zero)
        (2, 3)
        >>> cut_dim((1, 1, 1, 64), zero)
    """
    if not layout.zero or layout.ddp_size == 1:
        return None
    step = TILE * layout.ddp_size
    return next((dim for dim in (2, 3) if shape[dim] % step == 0), None)


def part(weight: Value, dim: int, layout: MeshLayout) -> Value:
    """Return each chip's part of a weight that all have; nothing is sent."""
    return own_slice(weight, dim, layout.ddp_axis)


def whole(weight: Value, dim: int, layout: MeshLayout) -> Value:
    """Return the weight of which each chip has a part: an all-gather."""
    return gathered(weight, dim, layout.ddp_axis)


def mean_part(grad: Value, dim: int, layout: MeshLayout) -> Value:
    """Return each chip's part of the groups' mean gradient: a reduce-scatter."""
    return ttnn.multiply(reduce_scattered(grad, dim, layout.ddp_axis), 1 / layout.ddp_size)
