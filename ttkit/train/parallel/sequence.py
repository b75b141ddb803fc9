"""Sequence parallelism (Korthikanti 2022, "Reducing activation recomputation in large transformer
models", section 4.2.2): between the layers of a tensor-parallel model, each chip has its shard of
the sequence.

| where                      | without         | with                      |
|----------------------------|-----------------|---------------------------|
| into column-parallel       | f: `broadcast`  | all-gather of the shards  |
| out of row-parallel        | g: `all_reduce` | reduce-scatter            |
| norms, dropout, residuals  | [B, 1, S, E]    | [B, 1, S / tp, E]         |

A ring's all-reduce is a reduce-scatter and an all-gather, so as many bytes are sent, and what lies
between the layers takes 1 / tp of the memory."""

from __future__ import annotations

from ttkit.train.autograd.tensor import Tensor
from ttkit.train.config.layout import Layout, check_divisible
from ttkit.train.parallel.distributed import (
    all_gather,
    all_reduce,
    broadcast,
    reduce_scatter,
    scatter,
)

SEQUENCE = 2  # This is the sequence's dimension in activations [B, 1, S, E].


def enter(x: Tensor, layout: Layout) -> Tensor:
    """Return x [B, 1, S, E], the input of column-parallel matmuls.

    Args:
        x: with sequence parallelism [B, 1, S / tp, E].
    """
    if layout.sequence_parallel:
        return all_gather(x, SEQUENCE, layout.tp_axis)
    return broadcast(x, layout.tp_axis)


def leave(x: Tensor, layout: Layout) -> Tensor:
    """Return the all-reduced output of a row-parallel matmul, [B, 1, S, E]; with sequence
    parallelism its reduce-scattered local shard, [B, 1, S / tp, E].
    """
    if layout.sequence_parallel:
        by = "the TP size (sequence_parallel)"
        check_divisible("the sequence", x.shape()[SEQUENCE], by, layout.tp)
        return reduce_scatter(x, SEQUENCE, layout.tp_axis)
    return all_reduce(x, noop_backward=True, cluster_axis=layout.tp_axis)


def local_part(x: Tensor, layout: Layout) -> Tensor:
    """Return each chip's local shard of a replicated tensor, such as the position vectors."""
    return scatter(x, SEQUENCE, layout.tp_axis) if layout.sequence_parallel else x


def used_on_shards(weight: Tensor, layout: Layout) -> Tensor:
    """Return a weight that each chip uses on its shard of the sequence: backward all-reduces its
    gradient.
    """
    return broadcast(weight, layout.tp_axis) if layout.sequence_parallel else weight
