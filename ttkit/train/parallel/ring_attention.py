"""Ring attention (Liu 2023, "Ring attention with blockwise transformers"): each chip keeps its
queries, and the keys and values are sent around the ring of the context-parallel axis.

A softmax over keys that arrive in shards keeps three running values for each query: the highest
score, the sum of exponentials, and the weighted sum of values (Milakov 2018, "Online normalizer
calculation for softmax"). Backward computes the probabilities again. It needs one stored number for
each query, the logarithm of the sum of exponentials (Dao 2023, "FlashAttention-2"). Keys, values
and their gradients are sent around the ring together.

With a causal mask the sequence lies in `zigzag` order (Zhu 2024, "ring-flash-attention"), so that
all chips do the same work, and no chip computes scores with another chip's keys only to mask them.
Each chip has an early and a late chunk of queries. The table lists the blocks of scores that chip i
computes when it has the keys of chip j; a block without an entry is not computed.

|       | early x early keys | late x early keys | late x late keys | share of scores |
|-------|--------------------|-------------------|------------------|-----------------|
| j = i | masked             | all               | masked           | three quarters  |
| j < i | all                | all               |                  | half            |
| j > i |                    | all               | all              | half            |

All chips run one program. In the last two rows, the block of late queries and early keys is common.
For the other block, `ttnn.where` selects the operands by a mask that differs from chip to chip.

Scores are [keys, queries] here, the transpose of the papers' form. So the queries, which stay on
their chip, are transposed once, and the keys, which arrive at each step, are not transposed."""

import functools
import math
from collections.abc import Sequence

import numpy as np

from ttkit import ttnn
from ttkit.backend import from_numpy
from ttkit.train.autograd import Tensor, Value, recorded
from ttkit.train.autograd.ops import causal_mask, joined, positions, stacked, unstacked
from ttkit.train.config.layout import TILE, Layout, check_divisible
from ttkit.train.context import current_layout
from ttkit.train.parallel.distributed import shifted

Values = Sequence[Value]


@functools.lru_cache(8)
def _constants(layout: Layout, length: int, copies: int) -> Values:
    """Return the causal mask of a chip's own chunk, [1, 1, length, copies * length], and each
    chip's index in the ring, [1, 1, 1, 1].
    """
    place = np.arange(layout.cp, dtype=np.float32).reshape(-1, 1, 1, 1)
    hidden = causal_mask(length, copies, layout, keys_first=True)
    index = from_numpy(
        place,
        dtype=layout.dtype,
        layout=ttnn.TILE_LAYOUT,
        device=layout.device,
        mesh_mapper=layout.mapper(cp_dim=0),
    )
    return hidden, index


def _attend(q: Value, keys: Values, hidden: Value | None = None, sofar: Values = ()) -> Values:
    """Return for each query its highest score and its sum of exponentials, [1, queries], and its
    weighted sum of values, [d, queries].

    Args:
        q: the queries, [d, queries].
        keys: the keys and their values, each [keys, d].
        hidden: a mask that is added to the scores.
        sofar: the same three results for the keys seen before; the new results include them.
    """
    k, v = keys
    scores = _scores(k, q, hidden)
    top = ttnn.max(scores, dim=-2, keepdim=True)
    if sofar:
        top = ttnn.maximum(top, sofar[0])
    powers = ttnn.exp(scores - top)
    sums = [ttnn.sum(powers, dim=-2, keepdim=True), ttnn.matmul(v, powers, transpose_a=True)]
    if sofar:
        # The sums are relative to the highest score. If it has risen, the earlier sums shrink.
        less = ttnn.exp(sofar[0] - top)
        sums = [had * less + new for had, new in zip(sofar[1:], sums)]
    return top, *sums


def _attend_back(keys: Values, rows: Values, hidden: Value | None = None) -> Values:
    """Return the gradients of queries, [d, queries], and of keys and values.

    Args:
        keys: the keys and their values.
        rows: six tensors: the queries, the gradient of their results, the transposes of these two,
            the logarithm of each query's sum of exponentials over all keys, and the dot product of
            each query's result with its gradient.
    """
    (k, v), (q, grad, q_t, grad_t, total, dot) = keys, rows
    probs = ttnn.exp(_scores(k, q_t, hidden) - total)
    dscores = probs * (v @ grad_t - dot)
    return ttnn.matmul(k, dscores, transpose_a=True), dscores @ q, probs @ grad


def _scores(k: Value, q: Value, hidden: Value | None) -> Value:
    scores = k @ q
    return scores if hidden is None else scores + hidden


def _transposed(*values: Value) -> Values:
    return [ttnn.transpose(each, 2, 3) for each in values]


def _chunks(value: Value, count: int) -> Values:
    """Cut a tensor [B, heads, n, d] along n into `count` equal chunks, and return them."""
    length = value.shape[2]
    step = length // count
    return [positions(value, start, start + step) for start in range(0, length, step)]


def _where(mask: Value, yes: Values, no: Values) -> list[Value]:
    return [ttnn.where(mask, a, b) for a, b in zip(yes, no)]


def ring_attention_sdpa(
    query: Tensor, key: Tensor, value: Tensor, layout: Layout | None = None, causal: bool = True
) -> Tensor:
    """Return the attention over a sequence that the chips of the context-parallel axis share.

    Args:
        query: [B, heads, S / cp, d], positions in `zigzag` order.
        key, value: [B, groups, S / cp, d]; heads is a multiple of groups.
        layout: how the tensors lie on the mesh, with cp above 1; by default the layout of the
            AutoContext.
        causal: whether a query sees only the keys up to its own position.

    Returns:
        [B, heads, S / cp, d].
    """
    layout = layout or current_layout()
    _, heads, length, width = query.shape()
    groups, scale = key.shape()[1], 1 / math.sqrt(width)
    # With a causal mask each chip has an early and a late chunk, so that all have equal work.
    count, steps = 1, range(1, layout.cp)
    hidden: Value = None
    place: Value = None
    if causal:
        check_divisible(
            "a chip's sequence", length, f"2 chunks of whole tiles of {TILE}:", 2 * TILE
        )
        count, steps = 2, range(layout.cp)
        hidden, place = _constants(layout, length // 2, heads // groups)

    def row_chunks(rows: Value) -> Values:
        return [stacked(chunk, groups) for chunk in _chunks(rows, count)]

    def key_chunks(*values: Value) -> list[Values]:
        return list(zip(*(_chunks(each, count) for each in values)))

    def shift(*values: Value) -> Values:
        assert layout.cp_axis is not None
        return [shifted(each, layout.cp_axis) for each in values]

    def earlier(step: int) -> Value:
        """Return 1 on chips that now have the keys of a chip with a lower index, 0 on others."""
        return place >= float(step)

    own = k, v = key.get_value(), value.get_value()
    queries = _transposed(*row_chunks(query.get_value() * scale))
    keys = key_chunks(k, v)
    sofar = [_attend(rows, each, hidden) for rows, each in zip(queries, keys)]
    for step in steps:
        if step:
            k, v = shift(k, v)
            keys = key_chunks(k, v)
        sofar[-1] = _attend(queries[-1], keys[0], sofar=sofar[-1])
        if step and causal:
            here = earlier(step)
            rest = _where(here, (queries[0], *keys[0]), (queries[1], *keys[1]))
            more = _attend(rest[0], rest[1:], sofar=_where(here, *sofar))
            sofar = [_where(here, more, sofar[0]), _where(here, sofar[1], more)]
    means = [rows * ttnn.reciprocal(total) for _, total, rows in sofar]
    out = unstacked(_transposed(*means), heads)
    totals = [top + ttnn.log(total) for top, total, _ in sofar]

    def backward(grad: Value) -> list[Value]:
        dot = ttnn.sum(grad * out, dim=-1, keepdim=True)
        grads, dots = map(row_chunks, (grad, dot))
        # Only backward needs this second form of the queries. If forward made it, it would take
        # memory until backward.
        plain = _transposed(*queries)
        rows = list(zip(plain, grads, queries, _transposed(*grads), totals, _transposed(*dots)))
        k, v = own
        keys = key_chunks(k, v)
        first = [_attend_back(*each, hidden) for each in zip(keys, rows)]
        dqs, dks, dvs = map(list, zip(*first))
        dk, dv = joined(dks), joined(dvs)
        for step in steps:
            if step:
                k, v, dk, dv = shift(k, v, dk, dv)
                keys = key_chunks(k, v)
            more, *early = _attend_back(keys[0], rows[-1])
            dqs[-1] = dqs[-1] + more
            dkeys = [early]
            if causal:
                nothing = list(map(ttnn.zeros_like, early))
                dkeys.append(nothing)
            if step and causal:
                here = earlier(step)
                rest = _where(here, (*keys[0], *rows[0]), (*keys[1], *rows[1]))
                more, *other = _attend_back(rest[:2], rest[2:])
                more = more + ttnn.where(here, *dqs)
                dqs = _where(here, (more, dqs[1]), (dqs[0], more))
                both = [d + o for d, o in zip(early, other)]
                dkeys = [_where(here, both, early), _where(here, nothing, other)]
            dk, dv = (d + joined(new) for d, new in zip((dk, dv), zip(*dkeys)))
        # The last shift returns the gradients of keys and values to the chips that own them.
        dk, dv = shift(dk, dv)
        return [unstacked(_transposed(*dqs), heads) * scale, dk, dv]

    return recorded("ring_attention_sdpa", out, [query, key, value], backward)
