"""GPT and Llama from a transformer_config, on one device or cut over a mesh: the same first
weights, bit for bit, and the same results within rounding, because a cut model adds in another
order.

The cut is Megatron's (Shoeybi 2019): queries, keys, values and the first MLP matrix by columns, the
next matrix by rows, one all-reduce after each pair; the vocabulary in parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ttkit import ttnn
from ttkit.errors import fail
from ttkit.train import ops
from ttkit.train.autograd import Tensor, Value, recompute
from ttkit.train.config import TransformerConfig
from ttkit.train.distributed import (
    GradOutputType,
    all_gather,
    all_reduce,
    broadcast,
    cross_entropy_loss,
    without_padding,
)
from ttkit.train.modules import (
    ColumnParallelLinear,
    Dropout,
    LayerNorm,
    Layout,
    Module,
    Parameter,
    RMSNorm,
    RowParallelLinear,
    current_layout,
    normal,
    uniform,
)

TILE = 32


class Vocabulary(Module):
    """The token table and the head, each device with its part of the vocabulary; one parameter
    for both where they are tied.

    Args:
        vocab_size: how many tokens there are. The table is filled up with zeros to whole tiles on
        each device. parts: "both", or "table" or "head" for a stage of a pipeline that has one end
        of the model.
    """

    def __init__(
        self, vocab_size: int, width: int, tied: bool, layout: Layout, parts: str = "both"
    ):
        step = TILE * layout.tp_size
        self.layout, self.vocab_size, self.padded = (
            layout,
            vocab_size,
            -(-vocab_size // step) * step,
        )
        shape = (1, 1, vocab_size, width)
        if parts != "head" or tied:
            self.table = Parameter(shape, normal(), layout, 2, self.padded)
        if parts != "table" and not tied:
            self.head = Parameter(shape, uniform(width), layout, 2, self.padded)
        self.tied = tied
        self._numbers: Value = None

    def numbers(self) -> Value:
        """Which token each column of a device's logits stands for, [1, 1, 1, V on this device],
        float32: exact up to 2^24.
        """
        if self._numbers is None:
            row = np.arange(self.padded, dtype=np.float32).reshape(1, 1, 1, -1)
            self._numbers = self.layout.place(
                row, dtype=ttnn.float32, tp_dim=3 if self.layout.tp_size > 1 else None
            )
        return self._numbers

    def embed(self, ids: Value) -> Tensor:
        """[B, 1, 1, S] tokens -> [B, 1, S, E]: zeros from the devices that have not the token,
        summed.
        """
        return all_reduce(
            ops.embedding(ids, self.table, self.numbers()),
            noop_backward=True,
            cluster_axis=self.layout.tp_axis,
        )

    def logits(self, x: Tensor) -> Tensor:
        """[B, 1, S, E] -> [B, 1, S, V on this device]."""
        y = ops.linear(broadcast(x, self.layout.tp_axis), self.table if self.tied else self.head)
        return (
            y
            if self.padded == self.vocab_size
            else without_padding(y, self.numbers(), self.vocab_size)
        )

    def loss(self, logits: Tensor, targets: Value) -> Tensor:
        """The mean cross-entropy of this device's tokens [B, 1, 1, S]."""
        return cross_entropy_loss(logits, targets, self.numbers(), self.layout.tp_axis)


class Rotary(Module):
    """The angles of rotary positions: pair i of a head turns by position x theta^(-2i/d), slower
    where long contexts ask for it.
    """

    def __init__(self, head_width: int, config: TransformerConfig, layout: Layout):
        if head_width % 2:
            rule = (
                f"embedding_dim {config.embedding_dim} / num_heads {config.num_heads} = "
                f"{head_width} is odd"
            )
            fail(
                "Rotary",
                f"{rule}, and positions turn pairs of a head's numbers",
                "an even width of a head",
            )
        self.width, self.config, self.layout = head_width, config, layout
        self._tables: dict[int, tuple[Value, Value]] = {}
        self._turn: Value = None

    def frequencies(self) -> np.ndarray:
        """Radians per position of each pair, [d / 2]; scaled as Llama 3.1 does where
        rope_scaling is given.
        """
        found = self.config.theta ** -(np.arange(0, self.width, 2) / self.width)
        scaling = self.config.rope_scaling
        if not (scaling and scaling.scaling_factor):
            return found
        # of each pair, over the context it was trained for
        turns = scaling.original_context_length * found / (2 * np.pi)
        share = (turns - scaling.low_freq_factor) / (
            scaling.high_freq_factor - scaling.low_freq_factor
        )
        # 0: slow, stretched by the whole factor; 1: fast, left as it is
        share = np.clip(share, 0, 1)
        return found * ((1 - share) / scaling.scaling_factor + share)

    def angles(self, start: int, length: int) -> dict[str, np.ndarray]:
        """cos and sin, [1, 1, length, d], of the positions from `start`; each angle stands
        twice, for the pair that it turns.
        """
        turned = np.repeat(
            np.outer(np.arange(start, start + length), self.frequencies()), 2, axis=1
        )[None, None]
        return {"cos": np.cos(turned).astype(np.float32), "sin": np.sin(turned).astype(np.float32)}

    def turn(self) -> Value:
        """[1, 1, d, d], which takes a pair (a, b) to (-b, a)."""
        if self._turn is None:
            matrix, even = (
                np.zeros((1, 1, self.width, self.width), np.float32),
                np.arange(0, self.width, 2),
            )
            matrix[0, 0, even + 1, even], matrix[0, 0, even, even + 1] = -1, 1
            self._turn = self._place(matrix)
        return self._turn

    def tables(self, length: int) -> tuple[Value, Value]:
        """The angles of positions 0 to length, on the mesh."""
        if length not in self._tables:
            found = self.angles(0, length)
            self._tables = {length: (self._place(found["cos"]), self._place(found["sin"]))}
        return self._tables[length]

    def _place(self, array: np.ndarray) -> Value:
        return self.layout.place(array, dtype=self.layout.dtype or ttnn.float32)


class Attention(Module):
    """Causal attention; each device has its part of the heads, and of the groups that share
    keys.
    """

    def __init__(
        self,
        config: TransformerConfig,
        groups: int,
        has_bias: bool,
        layout: Layout,
        rotary: Rotary | None = None,
    ):
        width, heads = config.embedding_dim, config.num_heads
        if width % heads:
            fail(
                "Attention",
                f"embedding_dim {width} does not divide into num_heads {heads}: "
                f"{width} % {heads} = {width % heads}",
                "num_heads that does",
            )
        if heads % groups:
            rule = (
                f"num_heads {heads} does not divide into num_groups {groups}: "
                f"{heads} % {groups} = {heads % groups}"
            )
            fail(
                "Attention",
                rule,
                "num_groups that does; each group of heads shares its keys and values",
            )
        self.heads, self.groups = (
            layout.split(heads, "num_heads"),
            layout.split(groups, "num_groups"),
        )
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
            cache: keys and values of the tokens before these, where this one token's go:
            `ttkit.train.generation.Cache`.
        """
        x = broadcast(x, self.query.layout.tp_axis)
        q, k = (
            ops.heads_creation(self._of(self.query, x), self.heads),
            ops.heads_creation(self._of(self.key, x), self.groups),
        )
        v = ops.heads_creation(self._of(self.value, x), self.groups)
        if self.rotary:
            cos, sin = cache.tables() if cache else self.rotary.tables(q.shape()[2])
            q, k = (ops.rope(t, cos, sin, self.rotary.turn()) for t in (q, k))
        if cache:
            k, v = cache.extended(self, k, v)
        mixed = ops.scaled_dot_product_attention(
            q, k, v, cache.unseen() if cache else self._mask(q)
        )
        return self.out(ops.heads_fusion(mixed))

    @staticmethod
    def _of(layer: ColumnParallelLinear, x: Tensor) -> Tensor:
        # x was broadcast once for the three, so its gradient is summed once
        return ops.linear(x, layer.weight, layer.bias)

    def _mask(self, q: Tensor) -> Value:
        length = q.shape()[2]
        if length not in self._masks:
            self._masks = {
                length: ops.causal_mask(length, self.heads // self.groups, q.get_value())
            }
        return self._masks[length]


class GPTBlock(Module):
    """x + attention(norm(x)), then x + MLP(norm(x))."""

    def __init__(self, config: TransformerConfig, layout: Layout, rotary: None = None):
        width = config.embedding_dim
        self.norm1 = LayerNorm(width, layout=layout)
        self.attention = Attention(config, config.num_heads, config.bias, layout)
        self.norm2 = LayerNorm(width, layout=layout)
        inner = config.intermediate_dim or 4 * width
        self.up = ColumnParallelLinear(width, inner, config.bias, layout=layout)
        self.down = RowParallelLinear(inner, width, config.bias, layout=layout)
        self.dropout = Dropout(config.dropout_prob)

    def forward(self, x: Tensor, cache: Any = None) -> Tensor:
        """[B, 1, S, E] -> the same shape."""
        x = ops.add(x, self.dropout(self.attention(self.norm1(x), cache)))
        return ops.add(x, self.dropout(self.down(ops.gelu(self.up(self.norm2(x))))))


def llama_width(width: int) -> int:
    """The inner width of Llama's MLP where the configuration does not say: 8/3 of the width, up
    to a multiple of 256.
    """
    return -(-(8 * width // 3) // 256) * 256


class LlamaBlock(Module):
    """As GPT's, with RMS norms, rotary positions, grouped keys and SwiGLU (Shazeer 2020)."""

    def __init__(self, config: TransformerConfig, layout: Layout, rotary: Rotary):
        width = config.embedding_dim
        inner = config.intermediate_dim or llama_width(width)
        self.norm1 = RMSNorm(width, layout=layout)
        self.attention = Attention(config, config.num_groups, False, layout, rotary)
        self.norm2 = RMSNorm(width, layout=layout)
        self.gate = ColumnParallelLinear(width, inner, False, layout=layout)
        self.up = ColumnParallelLinear(width, inner, False, layout=layout)
        self.down = RowParallelLinear(inner, width, False, layout=layout)
        self.dropout = Dropout(config.dropout_prob)

    def forward(self, x: Tensor, cache: Any = None) -> Tensor:
        """[B, 1, S, E] -> the same shape."""
        x = ops.add(x, self.dropout(self.attention(self.norm1(x), cache)))
        y = broadcast(self.norm2(x), self.gate.layout.tp_axis)
        gated = ops.mul(ops.silu(ops.linear(y, self.gate.weight)), ops.linear(y, self.up.weight))
        return ops.add(x, self.dropout(self.down(gated)))


def _again(block: GPTBlock | LlamaBlock) -> Callable[[Tensor], Tensor]:
    """A block that drops the same elements each time that it is called."""
    first = block.dropout.calls

    def run(x: Tensor) -> Tensor:
        reached, block.dropout.calls = block.dropout.calls, first
        y = block(x)
        # other micro-batches may have been here since
        block.dropout.calls = max(reached, block.dropout.calls)
        return y

    return run


class Transformer(Module):
    """Tokens to logits: the table, the blocks, a last norm, the head.

    Args:
        config: the model.
        layout: where it lies; the AutoContext's unless given.
        blocks: which blocks to have, for a stage of a pipeline; all unless given. The first stage
        has the table, the last one the head.

    Example:
        >>> from ttkit.train.config import TransformerConfig
        >>> config = TransformerConfig(num_heads=2, embedding_dim=32, num_blocks=1, vocab_size=64, max_sequence_length=32)
        >>> sum(int(np.prod(p.global_shape)) for p in GPT(config, Layout()).parameters().values())
        17888
    """

    block: type[GPTBlock] | type[LlamaBlock]

    def __init__(
        self, config: TransformerConfig, layout: Layout | None = None, blocks: range | None = None
    ):
        self.config, self.layout = config, layout or current_layout()
        width, every = config.embedding_dim, range(config.num_blocks)
        mine = every if blocks is None else blocks
        self.is_first, self.is_last = mine.start == 0, mine.stop == config.num_blocks
        if self.is_first or self.is_last:
            parts = (
                "both" if self.is_first and self.is_last else "table" if self.is_first else "head"
            )
            self.vocabulary = Vocabulary(
                config.vocab_size, width, config.is_tied, self.layout, parts
            )
        rotary = self.ends(width)
        self.blocks: dict[int, GPTBlock | LlamaBlock] = {
            index: self.block(config, self.layout, rotary) for index in mine
        }  # type: ignore[arg-type]
        if self.is_last:
            self.norm = (
                LayerNorm(width, layout=self.layout)
                if rotary is None
                else RMSNorm(width, layout=self.layout)
            )
        self.dropout = Dropout(config.dropout_prob)
        for index, block in self.blocks.items():
            # by its place in the whole model, so that a stage of a pipeline drops the same
            block.dropout.seed = index + 1
        self.parameters()  # which names them

    def ends(self, width: int) -> Rotary | None:
        """Make what is at the start beside the table; give what all blocks share."""
        raise NotImplementedError

    def dropouts(self) -> list[Dropout]:
        """Where elements are dropped."""
        return [self.dropout, *(block.dropout for block in self.blocks.values())]

    def embed(self, ids: Value, cache: Any = None) -> Tensor:
        """[B, 1, 1, S] tokens -> [B, 1, S, E]."""
        return self.dropout(self.vocabulary.embed(ids))

    def forward(self, ids: Any, cache: Any = None) -> Tensor:
        """Tokens [B, 1, 1, S] -> logits [B, 1, S, V on this device]; a later stage takes [B, 1,
        S, E], an earlier one gives that.
        """
        x = self.embed(ids, cache) if self.is_first else ids
        sparing = self.config.runner_type == "memory_efficient" and self.training
        for block in self.blocks.values():
            x = recompute(_again(block), x) if sparing else block(x, cache)
        return self.vocabulary.logits(self.norm(x)) if self.is_last else x

    def loss(self, logits: Tensor, targets: Value) -> Tensor:
        """The mean cross-entropy of the tokens on each device, [1, 1, 1, 1]."""
        return self.vocabulary.loss(logits, targets)

    def whole(self, logits: Tensor) -> Tensor:
        """Logits [B, 1, S, V] of the whole vocabulary on every device, padding at the end."""
        return all_gather(logits, 3, self.layout.tp_axis, GradOutputType.REPLICATED)


class GPT(Transformer):
    """GPT-2's architecture (Radford 2019): learned positions, layer norms, GELU by tanh."""

    block = GPTBlock

    def ends(self, width: int) -> None:
        """The table of positions."""
        if self.is_first:
            self.position = Parameter(
                (1, 1, self.config.max_sequence_length, width), normal(), self.layout
            )

    def embed(self, ids: Value, cache: Any = None) -> Tensor:
        """[B, 1, 1, S] tokens -> [B, 1, S, E], with the vectors of their positions."""
        length, most = ids.shape[-1], self.config.max_sequence_length
        if length > most:
            fail(
                "GPT",
                f"a sequence of {length} tokens for a model with max_sequence_length {most}",
                "a shorter sequence, or a longer max_sequence_length",
            )
        here = cache.row(self.position) if cache else ops.rows(self.position, 0, length)
        return self.dropout(ops.add(self.vocabulary.embed(ids), here))


class Llama(Transformer):
    """Llama's architecture (Touvron 2023): rotary positions, RMS norms, SwiGLU, grouped keys, no
    biases.
    """

    block = LlamaBlock

    def ends(self, width: int) -> Rotary:
        """The angles, which all blocks share."""
        return Rotary(width // self.config.num_heads, self.config, self.layout)


def create_model(
    config: TransformerConfig, layout: Layout | None = None, blocks: range | None = None
) -> Transformer:
    """The model that a transformer_config describes, without values until `init_weights` or a
    checkpoint gives them.
    """
    return {"gpt2": GPT, "llama": Llama}[config.model_type](config, layout, blocks)
