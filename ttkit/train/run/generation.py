"""Text from a trained model, one token at a time, with a cache of keys and values."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ttkit import ttnn
from ttkit.errors import fail
from ttkit.train.autograd import Tensor, Value, no_grad
from ttkit.train.autograd.ops import MASKED_SCORE
from ttkit.train.context import one_token
from ttkit.train.model.models import Attention, Transformer
from ttkit.train.parallel.distributed import all_gather, one_copy


class Sampler:
    """A model with a cache of keys and values. `feed` computes one position, and `logits` returns
    its logits.

    Keys and values are written one position at a time into tensors that have room for all
    positions. The mask of later positions is a tensor, too. So no shape changes, and each position
    runs the same programs.

    Args:
        model: a model with values. Its layout determines how the cache is sharded.
        batch: how many sequences are generated at once, on all data-parallel replicas together.
    """

    def __init__(self, model: Transformer, batch: int = 1):
        self.model, self.batch = model, batch
        axes = tuple((name, axis) for name, axis in model.layout.axes or () if name != "cp")
        # A position is one token, so context-parallel chips have no sequence to shard: all of them
        # compute the same token.
        self.layout = replace(model.layout, cp=1, axes=axes)
        self.capacity = model.config.max_sequence_length
        self.position = 0
        self._kept: dict[Attention, tuple[Value, ...]] = {}

    def extended(self, attention: Attention, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Write the keys and values of this position, [B, groups, 1, d], into the cache. Return
        those of all positions, [B, groups, capacity, d].
        """
        if attention not in self._kept:
            groups = attention.groups * self.layout.tp
            empty = np.zeros((self.batch, groups, self.capacity, key.shape()[3]), np.float32)
            self._kept[attention] = tuple(
                self.layout.place(empty, tp_dim=1, dp_dim=0) for _ in range(2)
            )
        keys, values = kept = self._kept[attention]
        for new, cache in zip((key, value), kept):
            # `update_cache` expects the sequences of the batch in dimension 2.
            ttnn.update_cache(cache, ttnn.permute(new.get_value(), (2, 1, 0, 3)), self.position)
        return Tensor(keys, False), Tensor(values, False)

    def feed(self, position: int, tokens: Sequence[int]) -> None:
        """Compute one position, given its token in each sequence.

        This sets three tensors that the model reads. `here`, [1, 1, 1, capacity], is 1 at the
        position and 0 elsewhere. `unseen`, of the same shape, is added to the scores and hides
        later positions. With rotary positions, `tables` are cos and sin, each [1, 1, 1, d]."""
        positions = np.arange(self.capacity).reshape(1, 1, 1, -1)
        unseen = np.where(positions > position, np.float32(MASKED_SCORE), np.float32(0))
        self.position = position
        self.unseen = self.layout.place(unseen)
        self.here = self.layout.place((positions == position).astype(np.float32))
        self.tables = self.model.rotary.tables(position, 1) if self.model.rotary else None
        ids = self.layout.tokens(np.asarray(tokens).reshape(-1, 1, 1, 1))
        one_token[0] = True
        try:
            with no_grad():
                logits = self.model.whole(self.model(ids, self))
                if self.layout.dp_axis is not None:
                    logits = all_gather(logits, 0, self.layout.dp_axis)
                self._logits = logits.get_value()
        finally:
            one_token[0] = False

    def logits(self) -> np.ndarray:
        """Return the logits [batch, vocabulary] of the last position."""
        found = np.asarray(one_copy(self._logits), np.float32)
        return found[:, 0, -1, : self.model.config.vocab_size]


def choose(
    logits: np.ndarray, temperature: float, top_k: int | None, generator: np.random.Generator
) -> int:
    """Draw a token from softmax(logits / temperature), among the `top_k` tokens with the highest
    logits if `top_k` is given. If the temperature is 0, return the token with the highest logit.
    """
    if temperature == 0:
        return int(logits.argmax())
    scaled = logits.astype(np.float64) / temperature
    if top_k is not None and top_k < scaled.size:
        scaled[scaled < np.partition(scaled, -top_k)[-top_k]] = -np.inf
    probs = np.exp(scaled - scaled.max())
    return int(generator.choice(probs.size, p=probs / probs.sum()))


def generate(
    sampler: Sampler,
    prompts: Sequence[Sequence[int]],
    new_tokens: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    seed: int = 0,
) -> list[list[int]]:
    """Continue each prompt by `new_tokens` tokens; prompts may differ in length.

    Args:
        sampler: the model with its cache. It starts again at position 0.
        prompts: one list of tokens for each sequence of the sampler; no list may be empty.
        temperature: with 0 the most likely token is always taken; above 1 the distribution is
            flatter.
        top_k: draw only among the k most likely tokens; by default among all.
        seed: the same seed draws the same text, on every mesh.

    Raises:
        TTKitError: the text would need more positions than the model has.
    """
    lengths = list(map(len, prompts))
    # The last new token is not fed to the model, so it needs no position in the cache.
    needed = max(lengths) + new_tokens - 1
    capacity = sampler.capacity
    if needed > capacity:
        fail(
            "generate",
            f"{max(lengths)} tokens and {new_tokens} new ones, less the last, "
            f"need {needed} positions of {capacity}",
            "a shorter prompt or fewer new tokens, or a longer max_sequence_length",
        )
    texts = [list(map(int, prompt)) for prompt in prompts]
    generators = [np.random.default_rng([seed, index]) for index in range(len(prompts))]
    for position in range(needed):
        sampler.feed(position, [text[position] if position < len(text) else 0 for text in texts])
        growing = [index for index, text in enumerate(texts) if position == len(text) - 1]
        logits = sampler.logits() if growing else np.empty(0)
        for index in growing:
            texts[index].append(choose(logits[index], temperature, top_k, generators[index]))
    return [text[: length + new_tokens] for text, length in zip(texts, lengths)]
