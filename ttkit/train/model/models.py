"""GPT and Llama from a transformer_config, on one device or sharded over a mesh.

The initial weights are the same on every mesh, bit for bit. The results differ only by rounding,
because a sharded model adds in another order. The model is sharded as in Megatron (Shoeybi 2019):
the matrices of queries, keys and values and the first MLP matrix are cut by columns, and the matrix
after them is cut by rows. One all-reduce follows each such pair. The vocabulary is sharded, too."""

from collections.abc import Callable
from functools import cached_property, partial

import numpy as np

from ttkit.backend import Array, constant
from ttkit.errors import fail
from ttkit.train.autograd import Tensor, Value, ops, recompute
from ttkit.train.config.layout import TILE, Layout, check_divisible, in_tiles
from ttkit.train.config.settings import TransformerConfig
from ttkit.train.context import current_layout
from ttkit.train.model.experts import Experts, with_balance
from ttkit.train.model.modules import (
    TABLE,
    ColumnParallelLinear,
    Dropout,
    LayerNorm,
    Linear,
    Module,
    Parameter,
    RMSNorm,
    RowParallelLinear,
    normal,
    uniform,
)
from ttkit.train.parallel.distributed import (
    cross_entropy_loss,
    enter,
    gathered,
    leave,
    local_part,
    padding_masked,
)
from ttkit.train.parallel.ring_attention import ring_attention_sdpa


class Rotary(Module):
    """The angles of rotary positions: pair i of a head rotates by position x theta^(-2i/d).

    With rope_scaling, slow pairs rotate even more slowly.
    """

    def __init__(self, head_width: int, config: TransformerConfig, layout: Layout):
        self.width = head_width
        self.config = config
        self.layout = layout
        self._tables: dict[tuple[int, int], tuple[Value, Value]] = {}

    def frequencies(self) -> Array:
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
        # A slow pair has share 0, and its frequency is divided by the whole factor. A fast pair has
        # share 1 and does not change.
        share = np.clip(share, 0, 1)
        return found * ((1 - share) / scaling.scaling_factor + share)

    def tables(self, start: int, length: int, cp_dim: int | None = None) -> tuple[Value, Value]:
        """Return cos and sin of the angles from position `start` on, [1, 1, length, d] on the mesh.

        Each angle comes twice, for the two numbers of its pair.

        Args:
            cp_dim: with 2 the positions are sharded over the context-parallel chips.
        """

        def table(function) -> Value:
            def values() -> Array:
                angles = np.outer(np.arange(start, start + length), self.frequencies())
                turned: Array = function(np.repeat(angles, 2, axis=1)[None, None])
                return turned.astype(np.float32)

            array = constant((1, 1, length, self.width), values, self.layout.device)
            return self.layout.place(array, cp_dim=cp_dim)

        if (start, length) not in self._tables:
            self._tables = {(start, length): (table(np.cos), table(np.sin))}
        return self._tables[start, length]

    @cached_property
    def turn(self) -> Value:
        """The matrix [1, 1, d, d] that maps a pair (a, b) to (-b, a)."""
        matrix = np.zeros((1, 1, self.width, self.width), np.float32)
        even = np.arange(0, self.width, 2)
        matrix[0, 0, even + 1, even] = -1
        matrix[0, 0, even, even + 1] = 1
        return self.layout.place(matrix)


class Attention(Module):
    """Causal attention; each tensor-parallel device has some of the heads and their keys."""

    def __init__(
        self,
        config: TransformerConfig,
        groups: int,
        has_bias: bool,
        layout: Layout,
        rotary: Rotary | None,
    ):
        width = config.embedding_dim
        heads = config.num_heads
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
        self.keeps_scores = config.attention == "stored"

    def forward(self, x: Tensor, cache=None) -> Tensor:
        """Return the attention's output for x [B, 1, S, E], in the same shape.

        Args:
            cache: a `ttkit.train.Sampler`, which has the keys and values of earlier tokens. Then x
                is one token, and the cache gets its key and value, too.
        """
        layout = self.query.layout
        # The three matmuls share one `enter`, so one collective sums their gradients.
        x = enter(x, layout)
        q = ops.heads_creation(Linear.forward(self.query, x), self.heads)
        k = ops.heads_creation(Linear.forward(self.key, x), self.groups)
        v = ops.heads_creation(Linear.forward(self.value, x), self.groups)
        if self.rotary:
            cos, sin = cache.tables if cache else self.rotary.tables(0, q.shape()[2] * layout.cp, 2)
            q, k = (ops.rope(t, cos, sin, self.rotary.turn) for t in (q, k))
        if cache:
            k, v = cache.extended(self, k, v)
            y = ops.scaled_dot_product_attention(q, k, v, cache.unseen)
        elif layout.cp > 1:
            y = ring_attention_sdpa(q, k, v, layout)
        elif self.keeps_scores:
            mask = ops.causal_mask(q.shape()[2], self.heads // self.groups, layout)
            y = ops.scaled_dot_product_attention(q, k, v, mask)
        else:
            y = ops.causal_attention(q, k, v, layout)
        return self.out(ops.heads_fusion(y))


class Vocabulary(Module):
    """The token table and the head, both sharded along the vocabulary. If they are tied, they are
    the same parameter.

    Args:
        vocab_size: the number of tokens. The table is padded with rows of zeros to whole tiles on
            each device.
        has_table, has_head: a pipeline stage that has only one end of the model sets one of them to
            False. Tied weights are then on two stages, and the stages add their gradients.
    """

    def __init__(
        self,
        vocab_size: int,
        width: int,
        tied: bool,
        layout: Layout,
        has_table: bool,
        has_head: bool,
    ):
        self.layout = layout
        self.vocab_size = vocab_size
        self.padded = in_tiles(vocab_size, TILE * layout.tp)
        shape = (1, 1, vocab_size, width)
        if has_table:
            self.table = Parameter(shape, normal(), layout, 2, self.padded)
        if has_head and tied and has_table:
            self.head = self.table
        elif has_head:
            start = normal() if tied else uniform(width)
            self.head = Parameter(shape, start, layout, 2, self.padded)
            self.head.copy_of = TABLE if tied else ""

    @cached_property
    def numbers(self) -> Value:
        """The token of each column of a device's logits, [1, 1, 1, V on this device]."""
        return self.layout.numbers(self.padded, 3)

    def embed(self, ids: Value) -> Tensor:
        """Return tokens [B, 1, 1, S] as vectors [B, 1, S, E].

        A device adds zeros for a token whose row it does not have.
        """
        numbers = self.numbers if self.layout.tp > 1 else None
        return leave(ops.embedding(ids, self.table, numbers), self.layout)

    def logits(self, x: Tensor) -> Tensor:
        """Return the logits [B, 1, S, V on this device] for x [B, 1, S, E]."""
        y = ops.linear(enter(x, self.layout), self.head)
        if self.padded > self.vocab_size:
            y = padding_masked(y, self.numbers, self.vocab_size)
        return y

    def loss(self, logits: Tensor, targets: Value) -> Tensor:
        """Return each device's mean cross-entropy; `targets` are token ids [B, 1, 1, S]."""
        return cross_entropy_loss(logits, targets, self.numbers, self.layout.tp_axis)


def mlp_width(config: TransformerConfig) -> int:
    """Return the inner width of the MLP: `intermediate_dim` if it is given.

    The default is 4 times the width. For Llama it is 8/3 of the width, rounded up to a multiple of
    256.
    """
    width = config.embedding_dim
    default = -(-(8 * width // 3) // 256) * 256 if config.model_type == "llama" else 4 * width
    return config.intermediate_dim or default


def norm_of(config: TransformerConfig, layout: Layout) -> LayerNorm | RMSNorm:
    """Return a norm over the model's width: GPT's layer norm or Llama's RMS norm."""
    kind = RMSNorm if config.model_type == "llama" else LayerNorm
    return kind(config.embedding_dim, layout=layout)


class Block(Module):
    """A transformer block: x = x + attention(norm(x)), then x = x + MLP(norm(x)).

    GPT's MLP is a matmul, GELU and a second matmul. Llama's MLP is SwiGLU (Shazeer 2020). Llama has
    no biases, and its attention has rotary positions and grouped keys.
    """

    def __init__(self, config: TransformerConfig, layout: Layout, rotary: Rotary | None):
        width = config.embedding_dim
        inner = mlp_width(config)
        groups = config.num_groups if rotary else config.num_heads
        bias = config.bias and not rotary
        self.norm1 = norm_of(config, layout)
        self.attention = Attention(config, groups, bias, layout, rotary)
        self.norm2 = norm_of(config, layout)
        self.experts = Experts(config, inner, layout) if config.num_experts else None
        self.gate = None
        if not self.experts:
            if rotary:
                self.gate = ColumnParallelLinear(width, inner, False, layout=layout)
            self.up = ColumnParallelLinear(width, inner, bias, layout=layout)
            self.down = RowParallelLinear(inner, width, bias, layout=layout)
        self.dropout = Dropout(config.dropout_prob)

    def forward(self, x: Tensor, cache=None) -> Tensor:
        """Return the block's output for x [B, 1, S, E], in the same shape."""
        x = x + self.dropout(self.attention(self.norm1(x), cache))
        y = self.norm2(x)
        return x + self.dropout(self.experts(y) if self.experts else self.mlp(y))

    def mlp(self, x: Tensor) -> Tensor:
        """Return the MLP's output for x [B, 1, S, E], in the same shape."""
        if self.gate:
            x = enter(x, self.gate.layout)
            y = ops.silu(ops.linear(x, self.gate.weight)) * ops.linear(x, self.up.weight)
        else:
            y = ops.gelu(self.up(x))
        return self.down(y)  # type: ignore[no-any-return]


def _again(block: Block) -> Callable[[Tensor], Tensor]:
    """Wrap a block so that it drops the same elements in every call."""
    first = block.dropout.calls

    def run(x: Tensor) -> Tensor:
        reached = block.dropout.calls
        block.dropout.calls = first
        y = block(x)
        # Other micro-batches may have advanced the counter since the first call, and the counter
        # must not go back.
        block.dropout.calls = max(reached, block.dropout.calls)
        return y

    return run


class Transformer(Module):
    """A decoder-only transformer, from tokens to logits: table, blocks, a last norm, head.

    GPT-2 (Radford 2019) has learned positions, layer norms and GELU by tanh. Llama (Touvron 2023)
    has rotary positions, RMS norms, SwiGLU, grouped keys and no biases.

    Args:
        config: the model.
        layout: how its weights are sharded; the AutoContext's layout unless given.
        blocks: the blocks of a pipeline stage; all blocks unless given. The first stage has the
            table, and the last stage has the head.

    Example:
        >>> from ttkit.train.config.settings import TransformerConfig
        >>> config = TransformerConfig(
        ...     num_heads=2, embedding_dim=32, num_blocks=1, vocab_size=64, max_sequence_length=32
        ... )
        >>> model = Transformer(config, Layout())
        >>> sum(int(np.prod(p.global_shape)) for p in model.parameters().values())
        17888
    """

    def __init__(
        self, config: TransformerConfig, layout: Layout | None = None, blocks: range | None = None
    ):
        self.config = config
        self.layout = layout or current_layout()
        width = config.embedding_dim
        mine = range(config.num_blocks) if blocks is None else blocks
        self.is_first = mine.start == 0
        self.is_last = mine.stop == config.num_blocks
        if self.is_first or self.is_last:
            self.vocabulary = Vocabulary(
                config.vocab_size, width, config.is_tied, self.layout, self.is_first, self.is_last
            )
        self.rotary = self.position = None
        if config.model_type == "llama":
            self.rotary = Rotary(width // config.num_heads, config, self.layout)
        elif self.is_first:
            shape = (1, 1, config.max_sequence_length, width)
            self.position = Parameter(shape, normal(), self.layout)
        self.blocks = {index: Block(config, self.layout, self.rotary) for index in mine}
        if self.is_last:
            self.norm = norm_of(config, self.layout)
        self.dropout = Dropout(config.dropout_prob)
        for index, block in self.blocks.items():
            # The seed depends on the block's index in the whole model, so a pipeline stage drops
            # the same elements as the whole model.
            block.dropout.seed = index + 1
        self.parameters()  # This call gives each parameter its name.

    def dropouts(self) -> list[Dropout]:
        """Return the dropouts of the embedding and of each block."""
        return [self.dropout, *(block.dropout for block in self.blocks.values())]

    def embed(self, ids: Value, cache=None) -> Tensor:
        """Return tokens [B, 1, 1, S] as vectors [B, 1, S, E]; a GPT adds those of the positions."""
        x = self.vocabulary.embed(ids)
        if self.position:
            if cache:
                here = Tensor(cache.here, False) @ self.position
            else:
                here = self._first_rows(self.position, ids.shape[-1] * self.layout.cp)
            x = x + local_part(here, self.layout)
        return self.dropout(x)

    def _first_rows(self, table: Tensor, length: int) -> Tensor:
        """Return the first rows of the table of positions, [1, 1, length, E]."""
        most = self.config.max_sequence_length
        if length > most:
            fail(
                "GPT",
                f"a sequence of {length} tokens for a model with max_sequence_length {most}",
                "a shorter sequence, or a longer max_sequence_length",
            )
        if length == most and self.layout.cp == 1:
            return table
        # A matmul with one-hot rows selects the rows of the table, because each context-parallel
        # chip needs the rows of its own positions.
        first = partial(np.eye, length, most, dtype=np.float32)
        rows = constant((length, most), first, self.layout.device)[None, None]
        return Tensor(self.layout.place(rows, cp_dim=2), False) @ table

    def forward(self, ids, cache=None) -> Tensor:
        """Return the logits [B, 1, S, V on this device] for tokens [B, 1, 1, S].

        A pipeline stage after the first takes [B, 1, S, E] in place of tokens. A stage before the
        last returns [B, 1, S, E] in place of logits."""
        x = self.embed(ids, cache) if self.is_first else ids
        sparing = self.config.runner_type == "memory_efficient" and self.training
        for block in self.blocks.values():
            x = recompute(_again(block), x) if sparing else block(x, cache)
        return self.vocabulary.logits(self.norm(x)) if self.is_last else x

    def loss(self, logits: Tensor, targets: Value) -> Tensor:
        """Return the mean cross-entropy of the tokens on each device, [1, 1, 1, 1].

        In training, the experts' balance losses of the last forward are added.
        """
        return with_balance(self.vocabulary.loss(logits, targets), self.experts())

    def experts(self) -> list[Experts]:
        """Return the mixtures of experts whose balance loss counts; outside training, none does."""
        found = [block.experts for block in self.blocks.values()]
        return [layer for layer in found if layer and layer.is_balancing]

    def whole(self, logits: Tensor) -> Tensor:
        """Return the logits [B, 1, S, V] of the whole vocabulary on every device.

        The columns of padding come last.
        """
        return gathered(logits, self.layout)


create_model = Transformer  # The model's parameters do not have values yet.
