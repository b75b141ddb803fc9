"""Text from a trained model, a token at a time: keys and values kept in place, so that a step is
the same program each time and can be a trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ttkit import ttnn
from ttkit.convert import from_numpy, to_numpy
from ttkit.errors import fail
from ttkit.train.autograd import Tensor, Value, no_grad
from ttkit.train.distributed import one_copy
from ttkit.train.models import Attention, Transformer
from ttkit.train.ops import NEVER


class Cache:
    """Keys and values of all positions, written one position at a time into tensors of fixed size.

    Which position is written, and what may be seen from it, are tensors too: `move` refreshes them,
    and no shape ever changes.

    Args:
        model: the model; its layout says where the cache lies.
        batch: how many sequences there are, over all data-parallel groups.
        capacity: how many positions there are.
    """

    def __init__(self, model: Transformer, batch: int, capacity: int):
        self.layout, self.batch, self.capacity = model.layout, batch, capacity
        self.dtype = model.layout.dtype or ttnn.float32
        self.rotary = next((block.attention.rotary for block in model.blocks.values()), None)
        self._kept: dict[Attention, tuple[Value, Value]] = {}
        self._inputs = {
            name: self.layout.place(array, dtype=self.dtype)
            for name, array in self._position(0).items()
        }

    def _position(self, position: int) -> dict[str, np.ndarray]:
        """What a position looks like: a one in its row, scores lowered after it, its angles."""
        here = np.zeros((1, 1, self.capacity, 1), np.float32)
        here[0, 0, position] = 1
        unseen = np.where(
            np.arange(self.capacity) > position, np.float32(NEVER), np.float32(0)
        ).reshape(1, 1, 1, -1)
        angles = {} if self.rotary is None else self.rotary.angles(position, 1)
        return {"here": here, "unseen": unseen, **angles}

    def move(self, position: int) -> None:
        """Make ready for a position, from 0.

        Raises:
            TTKitError: there is no such position.
        """
        if not 0 <= position < self.capacity:
            fail(
                "Cache.move",
                f"position {position} of {self.capacity}",
                "a shorter prompt or fewer new tokens, or a longer max_sequence_length",
            )
        for name, array in self._position(position).items():
            host = from_numpy(
                array, dtype=self.dtype, layout=ttnn.TILE_LAYOUT, mesh_mapper=self.layout.mapper()
            )
            ttnn.copy_host_to_device_tensor(host, self._inputs[name])

    def extended(self, attention: Attention, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values [B, groups, 1, d] of this position written beside those of all others,
        [B, groups, capacity, d].
        """
        if attention not in self._kept:
            width = key.shape()[3]
            empty = np.zeros(
                (self.batch, attention.groups * self.layout.tp_size, self.capacity, width),
                np.float32,
            )
            place = lambda: self.layout.place(empty, dtype=self.dtype, tp_dim=1, ddp_dim=0)  # noqa: E731
            self._kept[attention] = place(), place()
        for new, kept in zip((key, value), self._kept[attention]):
            ttnn.copy(ttnn.where(self._inputs["here"], new.get_value(), kept), kept)
        return Tensor(self._kept[attention][0], False), Tensor(self._kept[attention][1], False)

    def unseen(self) -> Value:
        """[1, 1, 1, capacity]: what is added to the scores of positions that come later."""
        return self._inputs["unseen"]

    def tables(self) -> tuple[Value, Value]:
        """cos and sin [1, 1, 1, d] of this position."""
        return self._inputs["cos"], self._inputs["sin"]

    def row(self, table: Tensor) -> Tensor:
        """This position's row [1, 1, 1, E] of a table [1, 1, positions, E]."""
        here = self._inputs["here"]
        value = table.get_value()
        return Tensor(
            ttnn.sum(
                ttnn.multiply(
                    ttnn.slice(value, [0, 0, 0, 0], [1, 1, self.capacity, value.shape[3]]), here
                ),
                dim=2,
                keepdim=True,
            ),
            False,
        )


class Sampler:
    """A model with its cache and a place for the newest tokens: feed tokens, get logits.

    Args:
        model: its weights are there.
        batch: how many sequences go on side by side.
        capacity: how many positions; the model's max_sequence_length unless given.
    """

    def __init__(self, model: Transformer, batch: int = 1, capacity: int | None = None):
        self.model, self.batch, self.position = model, batch, 0
        self.cache = Cache(model, batch, capacity or model.config.max_sequence_length)
        self.ids = model.layout.tokens(np.zeros((batch, 1, 1, 1), np.uint32))
        self.logits: Value = None

    def put(self, tokens: Sequence[int]) -> None:
        """Write the next token of each sequence where `compute` reads it."""
        if len(tokens) != self.batch:
            fail(
                "Sampler.put",
                f"{len(tokens)} tokens for {self.batch} sequences",
                f"{self.batch} tokens, one for each sequence",
            )
        layout = self.model.layout
        array = np.asarray(tokens, np.uint32).reshape(-1, 1, 1, 1)
        host = from_numpy(
            array,
            dtype=ttnn.uint32,
            layout=ttnn.ROW_MAJOR_LAYOUT,
            mesh_mapper=layout.mapper(ddp_dim=0),
        )
        ttnn.copy_host_to_device_tensor(host, self.ids)
        self.cache.move(self.position)
        self.position += 1

    def compute(self) -> None:
        """One step on the devices, nothing read and nothing written from the host: what a trace
        captures.
        """
        with no_grad():
            self.logits = self.model.whole(self.model(self.ids, self.cache)).get_value()

    def read(self) -> np.ndarray:
        """The logits [batch, vocabulary] of the last step."""
        layout = self.model.layout
        if layout.ddp_axis is None or layout.ddp_size == 1:
            found = one_copy(self.logits)
        else:
            dims = [0, 0]
            # copies of the other axis side by side: the first is taken
            dims[1 - layout.ddp_axis] = 3
            composer = ttnn.create_mesh_composer(layout.device, ttnn.MeshComposerConfig(dims))
            found = to_numpy(self.logits, mesh_composer=composer)
        return np.asarray(found, np.float32)[:, 0, -1, : self.model.config.vocab_size]


class Traced:
    """Several samplers, one on each submesh, stepping together by one trace over the mesh that
    the submeshes were cut from.

    Args:
        mesh: the whole mesh.
        samplers: each on a submesh of it.

    Example:
        with Traced(mesh, samplers) as together:
            texts = generate(together, prompts, new_tokens=20)
    """

    def __init__(self, mesh: Any, samplers: Sequence[Sampler]):
        self.mesh, self.samplers = mesh, list(samplers)
        # once outside of the trace: what is made on the host, and compiled, is there afterwards
        for sampler in self.samplers:
            sampler.put([0] * sampler.batch)
            sampler.compute()
            sampler.position = 0
        self._trace = ttnn.begin_trace_capture(mesh, cq_id=0)
        for sampler in self.samplers:
            sampler.compute()
        ttnn.end_trace_capture(mesh, self._trace, cq_id=0)

    def __enter__(self) -> Traced:
        return self

    def __exit__(self, *what: object) -> None:
        ttnn.release_trace(self.mesh, self._trace)

    @property
    def batch(self) -> int:
        """Sequences of all samplers together."""
        return sum(sampler.batch for sampler in self.samplers)

    def put(self, tokens: Sequence[int]) -> None:
        """The next token of each sequence, sampler after sampler."""
        rest = list(tokens)
        for sampler in self.samplers:
            sampler.put(rest[: sampler.batch])
            rest = rest[sampler.batch :]

    def compute(self) -> None:
        """One step on all submeshes."""
        ttnn.execute_trace(self.mesh, self._trace, cq_id=0, blocking=True)

    def read(self) -> np.ndarray:
        """The logits [batch, vocabulary]."""
        return np.concatenate([sampler.read() for sampler in self.samplers])


def choose(
    logits: np.ndarray, temperature: float, top_k: int | None, generator: np.random.Generator
) -> int:
    """A token drawn from softmax(logits / temperature) among the top_k highest; the highest
    where temperature is 0.
    """
    if temperature == 0:
        return int(logits.argmax())
    scaled = logits.astype(np.float64) / temperature
    if top_k is not None and top_k < scaled.size:
        scaled[scaled < np.partition(scaled, -top_k)[-top_k]] = -np.inf
    chances = np.exp(scaled - scaled.max())
    return int(generator.choice(chances.size, p=chances / chances.sum()))


def generate(
    sampler: Sampler | Traced,
    prompts: Sequence[Sequence[int]],
    new_tokens: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    seed: int = 0,
) -> list[list[int]]:
    """Each prompt with `new_tokens` tokens after it.

    Prompts may differ in length; each goes on when its own is over.

    Args:
        sampler: where the model runs; it starts again at position 0.
        prompts: token lists, none empty, as many as the sampler has sequences.
        temperature: 0 always takes the most likely token; above 1 is more adventurous.
        top_k: draw among the k most likely.
        seed: the same seed draws the same text, on every mesh.

    Raises:
        TTKitError: another number of prompts, an empty one, more tokens than the cache has places
        for, or a setting out of range.
    """
    if temperature < 0 or new_tokens < 0 or (top_k is not None and top_k < 1):
        rule = (
            f"temperature {temperature} and new_tokens {new_tokens} are at least 0, "
            f"top_k {top_k} at least 1"
        )
        fail(
            "generate",
            rule,
            "temperature=0 for the most likely token each time, top_k=None for all",
            ValueError,
        )
    if len(prompts) != sampler.batch or not all(len(prompt) for prompt in prompts):
        lengths = [len(prompt) for prompt in prompts]
        fail(
            "generate",
            f"prompts of {lengths} tokens for {sampler.batch} sequences",
            f"{sampler.batch} prompts of one token or more",
        )
    samplers = sampler.samplers if isinstance(sampler, Traced) else [sampler]
    longest, places = max(map(len, prompts)), min(each.cache.capacity for each in samplers)
    if longest + new_tokens - 1 > places:  # the last token is not fed again
        rule = (
            f"{longest} tokens and {new_tokens} new ones, less the last, "
            f"need {longest + new_tokens - 1} positions of {places}"
        )
        fail(
            "generate",
            rule,
            "a shorter prompt or fewer new tokens, or a longer max_sequence_length",
        )
    for each in samplers:
        each.position = 0
    texts = [list(map(int, prompt)) for prompt in prompts]
    ends = [len(prompt) + new_tokens for prompt in prompts]
    generators = [np.random.default_rng([seed, index]) for index in range(len(prompts))]
    for position in range(max(ends) - 1):
        sampler.put([text[position] if position < len(text) else 0 for text in texts])
        sampler.compute()
        if not any(position == len(text) - 1 and len(text) < end for text, end in zip(texts, ends)):
            continue  # all are still inside of their prompts
        for text, end, logits, generator in zip(texts, ends, sampler.read(), generators):
            if position == len(text) - 1 and len(text) < end:
                text.append(choose(logits, temperature, top_k, generator))
    return texts
