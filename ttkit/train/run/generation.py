"""Text from a trained model, one token at a time, with keys and values kept in place."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ttkit import ttnn
from ttkit.errors import fail
from ttkit.train.autograd import Tensor, Value, no_grad
from ttkit.train.autograd.ops import MASKED_SCORE
from ttkit.train.model.models import Attention, Transformer
from ttkit.train.parallel.distributed import all_gather, one_copy


class Sampler:
    """A model with its cache: feed tokens, read logits.

    Keys and values of all positions are written one position at a time into tensors of fixed size.
    What is visible from a position is a tensor too, and no shape ever changes, so each position
    runs the same programs.

    Args:
        model: a model with values; its layout says where the cache lies.
        batch: how many sequences are generated at once, over all data-parallel replicas.
    """

    def __init__(self, model: Transformer, batch: int = 1):
        self.model, self.batch = model, batch
        axes = tuple((name, axis) for name, axis in model.layout.axes or () if name != "cp")
        # A position is one token, so the context-parallel chips have nothing to shard and all
        # compute it.
        self.layout = replace(model.layout, cp=1, axes=axes)
        self.capacity = model.config.max_sequence_length
        self.position = 0
        self._kept: dict[Attention, tuple[Value, ...]] = {}

    def extended(self, attention: Attention, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Write this position's keys and values [B, groups, 1, d]; return those of all positions,
        [B, groups, capacity, d].
        """
        if attention not in self._kept:
            groups = attention.groups * self.layout.tp
            empty = np.zeros((self.batch, groups, self.capacity, key.shape()[3]), np.float32)
            self._kept[attention] = tuple(
                self.layout.place(empty, tp_dim=1, dp_dim=0) for _ in range(2)
            )
        keys, values = kept = self._kept[attention]
        for new, cache in zip((key, value), kept):
            # `update_cache` takes the sequences in dimension 2.
            row = ttnn.permute(new.get_value(), (2, 1, 0, 3))
            ttnn.update_cache(cache, row, self.position)
        return Tensor(keys, False), Tensor(values, False)

    def feed(self, position: int, tokens: Sequence[int]) -> None:
        """Compute one position, given its token in each sequence.

        From it on there are tensors that depend on the position: `here`, [1, 1, 1, capacity], is 1
        at it, `unseen`, of that shape, hides later positions when it is added to the scores, and
        with rotary positions `tables` are cos and sin, [1, 1, 1, d]."""
        positions = np.arange(self.capacity).reshape(1, 1, 1, -1)
        unseen = np.where(positions > position, np.float32(MASKED_SCORE), np.float32(0))
        self.position, self.unseen = position, self.layout.place(unseen)
        self.here = self.layout.place((positions == position).astype(np.float32))
        self.tables = self.model.rotary.tables(position, 1) if self.model.rotary else None
        ids = self.layout.tokens(np.asarray(tokens).reshape(-1, 1, 1, 1))
        with no_grad():
            whole = self.model.whole(self.model(ids, self))
            self._logits = all_gather(whole, 0, self.layout.dp_axis).get_value()

    def logits(self) -> np.ndarray:
        """Return the logits [batch, vocabulary] of the last position."""
        found = np.asarray(one_copy(self._logits), np.float32)
        return found[:, 0, -1, : self.model.config.vocab_size]


def choose(
    logits: np.ndarray, temperature: float, top_k: int | None, generator: np.random.Generator
) -> int:
    """Draw a token from softmax(logits / temperature) among the top_k highest; take the highest if
    temperature is 0.
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
        sampler: the model; it starts again at position 0.
        prompts: token lists, none empty, as many as the sampler has sequences.
        temperature: 0 always takes the most likely token; above 1 flattens the distribution.
        top_k: draw among the k most likely.
        seed: the same seed draws the same text, on every mesh.

    Raises:
        TTKitError: more tokens than the model has positions for.
    """
    lengths = [len(prompt) for prompt in prompts]
    # The last token is never fed, so it needs no slot in the cache.
    needed, capacity = max(lengths) + new_tokens - 1, sampler.capacity
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
