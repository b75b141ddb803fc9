"""Mixtures of experts: a router sends each token to a few of many MLPs.

A token chooses its k likeliest experts. With k = 1 the expert's output is multiplied by the
expert's probability (Switch, Fedus 2021). With more, each output is multiplied by the expert's
share of the probability of all k (Mixtral, Jiang 2024). For each sequence of S tokens, an expert
has C = ceil(capacity_factor k S / experts) slots, at most S. So the same tokens get slots, whatever
the sharding of the batch (GShard's groups, Lepikhin 2020). Tokens take slots in their order: no
token depends on a later one. If a chosen expert has no slot left, it adds nothing to the token;
the residual connection still passes the token on.

With expert parallelism each of n data-parallel ranks has 1 / n of the experts. In the table, E is
the number of experts, W the width of the model, and B the number of a chip's sequences:

| step     | a chip's tensor                                                | sent         |
|----------|----------------------------------------------------------------|--------------|
| route    | [B, 1, S, E] probabilities of the experts                      |              |
| dispatch | [B, E, C, W] = slots^T x, of its sequences for all experts     | all-to-all   |
| compute  | [1, E / n, n B C, W], of all sequences for its experts         | all-to-all   |
| combine  | [B, 1, S, W] = (gates slots) y, the sum of the chosen experts  |              |"""

import functools
import math
from collections.abc import Sequence

from ttkit import ttnn
from ttkit.errors import fail
from ttkit.train.autograd import Gradients, Tensor, Value, ops, recorded
from ttkit.train.config.layout import Layout, check_divisible
from ttkit.train.config.settings import TransformerConfig
from ttkit.train.model.modules import Linear, Module, Parameter, uniform
from ttkit.train.parallel.distributed import all_to_all, enter, leave, used_on_shards


def capacity(config: TransformerConfig, length: int) -> int:
    """Return how many slots an expert has for a sequence of `length` tokens.

    Example:
        >>> capacity(TransformerConfig(num_experts=8), 128)
        40
        >>> capacity(TransformerConfig(num_experts=8, capacity_factor=1.1), 200)  # 1.1 * 50
        55
    """
    even = config.experts_per_token * length / config.num_experts
    return min(length, math.ceil(round(config.capacity_factor * even, 6)))


def choices(probs: Value, k: int, numbers: Value) -> Value:
    """Return [B, 1, S, E], float32: 1 for a token's k likeliest experts, and 0 for the others.

    Args:
        probs: [B, 1, S, E], the probabilities of the experts.
        numbers: [1, 1, 1, E], float32, the experts' numbers.
    """
    batch, _, length, experts = probs.shape
    _, found = ttnn.topk(probs, k, dim=-1)
    found = ttnn.typecast(found, ttnn.uint32)  # ttnn cannot reshape a uint16 tensor.
    each = ops.one_hot(ttnn.reshape(found, (batch, 1, 1, length * k)), numbers)
    each = ttnn.reshape(ttnn.typecast(each, ttnn.float32), (batch, length, k, experts))
    return ttnn.reshape(ttnn.sum(each, dim=2, keepdim=True), (batch, 1, length, experts))


def places(chosen: Value, numbers: Value) -> Value:
    """Return [B, S, E, C]: 1 where a token has a slot of an expert, and 0 elsewhere.

    Args:
        chosen: [B, 1, S, E], the result of `choices`.
        numbers: [1, 1, 1, C], float32, the slots' numbers.
    """
    batch, _, length, experts = chosen.shape
    # The turn of the first token that chose an expert is 0, that of the second is 1, and so on. A
    # token that did not choose the expert has turn -1.
    turn = ttnn.cumsum(chosen, 2) * chosen - 1.0
    return ttnn.eq(ttnn.reshape(turn, (batch, length, experts, 1)), numbers)


class Experts(Module):
    """A mixture of experts in place of a block's MLP: a router, and experts without biases.

    With tensor parallelism each chip has its shard of every expert's inner width.

    Args:
        config: the model.
        inner: the inner width of an expert.
        layout: how its weights are sharded.
    """

    def __init__(self, config: TransformerConfig, inner: int, layout: Layout):
        width, count = config.embedding_dim, config.num_experts
        self.config, self.layout = config, layout
        if layout.cp > 1:
            fail(
                f"num_experts {count}",
                f"tokens of a sequence share the slots of an expert, but each of {layout.cp} chips "
                "has only a part of the sequence",
                "enable_cp: false",
            )
        if layout.ep > 1:
            check_divisible("num_experts", count, "the DDP size", layout.dp)
        self.router = Linear(width, count, False, layout)
        wide, start = (1, count, inner, width), uniform(width)
        self.gate = Parameter(wide, start, layout, 2) if config.model_type == "llama" else None
        self.up = Parameter(wide, start, layout, 2)
        self.down = Parameter((1, count, width, inner), uniform(inner), layout, 3)
        # Each forward sets this loss, [1, 1, 1, 1], if `is_balancing` is true.
        self.balance: Value = None
        # This is the gradient of the total loss with respect to `balance`. The backward of
        # `with_balance` sets it, and in a pipeline also the backward of the stage.
        self.balance_grad: Value | float = 0.0
        # `numbers(size)` is a tensor of the numbers from 0 to size - 1, [1, 1, 1, size]. Each size
        # is put on the mesh only once.
        self.numbers = functools.cache(layout.numbers)

    @property
    def is_balancing(self) -> bool:
        """Whether the balance loss counts: only in training, and if its weight is above 0."""
        return self.training and self.config.balance_loss > 0

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output for x [B, 1, S, W], in the same shape.

        With sequence parallelism, the shape is [B, 1, S / tp, W].
        """
        config, layout = self.config, self.layout
        k = config.experts_per_token
        experts = config.num_experts
        weight = used_on_shards(self.router.weight, layout)
        # Each tensor-parallel chip multiplies its own partial outputs by weights that depend on the
        # logits. So each chip has only a part of the logits' gradient, and the backward of `enter`
        # adds the parts.
        logits = enter(ops.linear(x, weight), layout)
        batch, _, length, width = (rows := enter(x, layout)).shape()
        probs = ttnn.softmax(logits.get_value(), dim=-1)
        chosen = choices(probs, k, self.numbers(experts))
        if self.is_balancing:
            logits = self._balanced(logits, probs, chosen)
        if k > 1:  # The gates are a softmax over the chosen experts alone.
            never = (chosen - 1.0) * -ops.MASKED_SCORE
            logits = logits + Tensor(never, False)
        gates = ops.reshape(ops.softmax(logits), (batch, length, experts, 1))

        size = capacity(config, length)
        where = ttnn.typecast(places(chosen, self.numbers(size)), rows.get_value().dtype)
        matrix = batch, 1, length, experts * size
        slots = Tensor(ttnn.transpose(ttnn.reshape(where, matrix), 2, 3), False)
        y = self._computed(ops.reshape(slots @ rows, (batch, experts, size, width)))
        weights = ops.reshape(gates * Tensor(where, False), matrix)
        return leave(weights @ ops.reshape(y, (batch, 1, experts * size, width)), layout)

    def _computed(self, x: Tensor) -> Tensor:
        """Return the experts' outputs for tokens [B, E, C, W]; a chip computes its own experts."""
        axis = self.layout.dp_axis if self.layout.ep > 1 else None
        x = ops.transpose(x if axis is None else all_to_all(x, 0, 1, axis), 0, 1)
        experts, batch, size, width = x.shape()
        x = ops.reshape(x, (1, experts, batch * size, width))
        if self.gate:
            y = ops.silu(ops.linear(x, self.gate)) * ops.linear(x, self.up)
        else:
            y = ops.gelu(ops.linear(x, self.up))
        y = ops.reshape(ops.linear(y, self.down), (experts, batch, size, width))
        y = ops.transpose(y, 0, 1)
        return y if axis is None else all_to_all(y, 1, 0, axis)

    def _balanced(self, logits: Tensor, probs: Value, chosen: Value) -> Tensor:
        """Return the logits; their backward adds the gradient of the balance loss.

        The loss of a sequence (Switch, eq. 4) is alpha E sum_e f_e P_e. Here f_e is expert e's
        share of the choices of all tokens, and P_e is its mean probability. If all experts have
        equal shares, the loss is alpha. The balance loss is the mean over the sequences.
        Each block keeps its own balance loss and does not pass it to the next block, so that blocks
        can be recomputed, and can be on other meshes than the model's loss.
        """
        batch, _, length, experts = probs.shape
        k = self.config.experts_per_token
        scale = self.config.balance_loss * experts / batch
        shares = ttnn.mean(chosen, dim=2, keepdim=True) * (scale / k)
        shares = ttnn.typecast(shares, probs.dtype)
        each = shares * ttnn.mean(probs, dim=2, keepdim=True)
        self.balance = ttnn.sum(each, keepdim=True)

        def backward(grad: Value) -> Gradients:
            # The gradients of all tp chips along the tensor-parallel axis are added later, so each
            # chip contributes 1 / tp of this gradient.
            own = ops.softmax_back(probs, shares) * (1 / (length * self.layout.tp))
            return [grad + own * self.balance_grad]

        return recorded("balanced", logits.get_value(), [logits], backward)


def with_balance(loss: Tensor, layers: Sequence[Experts]) -> Tensor:
    """Return a loss [1, 1, 1, 1] plus the layers' balance losses; backward sets `balance_grad`."""
    if not layers:
        return loss

    def backward(grad: Value) -> Gradients:
        for layer in layers:
            layer.balance_grad = grad
        return [grad]

    value = loss.get_value()
    for layer in layers:
        value = value + layer.balance
    return recorded("with_balance", value, [loss], backward)
