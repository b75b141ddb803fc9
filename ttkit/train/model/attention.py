"""Causal attention with heads sharded over the tensor-parallel axis, and rotary positions."""

from __future__ import annotations

import functools
from functools import partial
from typing import Any

import numpy as np

from ttkit.backend import constant
from ttkit.train.autograd import Tensor, Value, ops
from ttkit.train.config.layout import Layout, check_divisible
from ttkit.train.config.settings import TransformerConfig
from ttkit.train.model.modules import ColumnParallelLinear, Linear, Module, RowParallelLinear
from ttkit.train.parallel.distributed import enter
from ttkit.train.parallel.ring_attention import ring_attention_sdpa


class Rotary(Module):
    """The angles of rotary positions: pair i of a head rotates by position x theta^(-2i/d), slower
    with rope_scaling.
    """

    def __init__(self, head_width: int, config: TransformerConfig, layout: Layout):
        self.width, self.config, self.layout = head_width, config, layout
        self._tables: dict[tuple[int, int], tuple[Value, Value]] = {}

    def frequencies(self) -> np.ndarray:
        """Return the radians per position of each pair, [d / 2], scaled as in Llama 3.1 if
        rope_scaling is set.
        """
        found = self.config.theta ** -(np.arange(0, self.width, 2) / self.width)
        scaling = self.config.rope_scaling
        if not (scaling and scaling.scaling_factor):
            return found
        # Count the full turns of each pair over the context that the model was trained for.
        turns = scaling.original_context_length * found / (2 * np.pi)
        share = (turns - scaling.low_freq_factor) / (
            scaling.high_freq_factor - scaling.low_freq_factor
        )
        # A slow pair has share 0 and is stretched by the whole factor; a fast one has 1 and stays
        # as it is.
        share = np.clip(share, 0, 1)
        return found * ((1 - share) / scaling.scaling_factor + share)

    def tables(self, start: int, length: int, cp_dim: int | None = None) -> tuple[Value, Value]:
        """Return cos and sin of the positions from `start`, [1, 1, length, d] on the mesh.

        Each angle comes twice, for the two numbers of its pair.

        Args:
            cp_dim: 2 shards the positions over the context-parallel chips.
        """
        if (start, length) not in self._tables:
            shape, device = (1, 1, length, self.width), self.layout.device
            cos, sin = (
                constant(shape, partial(self._table, function, start, length), device)
                for function in (np.cos, np.sin)
            )
            placed = (self.layout.place(table, cp_dim=cp_dim) for table in (cos, sin))
            self._tables = {(start, length): tuple(placed)}  # type: ignore[dict-item]
        return self._tables[start, length]

    def _table(self, function: Any, start: int, length: int) -> np.ndarray:
        angles = np.outer(np.arange(start, start + length), self.frequencies())
        angles = np.repeat(angles, 2, axis=1)[None, None]
        return function(angles).astype(np.float32)  # type: ignore[no-any-return]

    @functools.cached_property
    def turn(self) -> Value:
        """The matrix [1, 1, d, d] that maps a pair (a, b) to (-b, a)."""
        matrix = np.zeros((1, 1, self.width, self.width), np.float32)
        even = np.arange(0, self.width, 2)
        matrix[0, 0, even + 1, even], matrix[0, 0, even, even + 1] = -1, 1
        return self.layout.place(matrix)


class Attention(Module):
    """Causal attention; each device has its part of the heads and of the groups that share keys."""

    def __init__(
        self,
        config: TransformerConfig,
        groups: int,
        has_bias: bool,
        layout: Layout,
        rotary: Rotary | None = None,
    ):
        width, heads = config.embedding_dim, config.num_heads
        check_divisible("embedding_dim", width, "num_heads", heads)
        check_divisible("num_heads", heads, "num_groups", groups)
        self.heads = layout.split(heads, "num_heads")
        self.groups = layout.split(groups, "num_groups")
        inner = width // heads * groups
        self.query = ColumnParallelLinear(width, width, has_bias, layout=layout)
        self.key = ColumnParallelLinear(width, inner, has_bias, layout=layout)
        self.value = ColumnParallelLinear(width, inner, has_bias, layout=layout)
        self.out = RowParallelLinear(width, width, has_bias, layout=layout)
        self.rotary = rotary
        self._masks: dict[int, Value] = {}

    def forward(self, x: Tensor, cache: Any = None) -> Tensor:
        """[B, 1, S, E] -> the same shape.

        Args:
            cache: a `ttkit.train.Sampler`, which has earlier keys and values; it takes those of
                this one token.
        """
        layout = self.query.layout
        x = enter(x, layout)  # One `enter` for the three sums their gradients in one collective.
        q = ops.heads_creation(Linear.forward(self.query, x), self.heads)
        k = ops.heads_creation(Linear.forward(self.key, x), self.groups)
        v = ops.heads_creation(Linear.forward(self.value, x), self.groups)
        if self.rotary:
            whole = q.shape()[2] * layout.cp
            cos, sin = cache.tables if cache else self.rotary.tables(0, whole, 2)
            q, k = (ops.rope(t, cos, sin, self.rotary.turn) for t in (q, k))
        if cache:
            k, v = cache.extended(self, k, v)
        if layout.cp > 1 and not cache:
            y = ring_attention_sdpa(q, k, v, layout)
        else:
            mask = cache.unseen if cache else self._mask(q.shape()[2])
            y = ops.scaled_dot_product_attention(q, k, v, mask)
        return self.out(ops.heads_fusion(y))

    def _mask(self, length: int) -> Value:
        """Return [1, 1, heads / groups * length, length] to add to scores: each query sees the keys
        up to its own position.
        """
        layout = self.query.layout
        if length not in self._masks:
            self._masks = {length: ops.later_keys(length, self.heads // self.groups, layout)}
        return self._masks[length]
