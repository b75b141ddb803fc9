"""A Llama decoder, written as for a card: prefill a prompt, then decode token by token.

    python examples/decoders/llama.py                    two groups of four chips (2x4)
    python examples/decoders/llama.py --mesh 1x8 --dtype bfloat8_b
    TTKIT_SYSTEM=galaxy python examples/decoders/llama.py --mesh 8x4

Along one axis of the mesh the chips of a group share heads and inner features (tensor parallel);
along the other, each group has users of its own (data parallel). Between the blocks each chip has a
slice of every token's width, so the norms are distributed: statistics are gathered, then each chip
normalises its slice.

    x --norm--gather--[qkv, attention with cache, out]--scatter--(+ x)
      --norm--gather--[gate, up, down]----------------scatter--(+ x)

It uses what a program for a card uses: program configurations, kernel configurations, sharded
memory in L1 for the heads of a token, asynchronous collectives with their semaphores.
"""

import sys
from dataclasses import dataclass

import chips
import numpy as np
from chips import TILE, Chips, angles, causal, matrix, report

from ttkit import ttnn


@dataclass(frozen=True)
class Size(chips.Size):
    """A model. `heads` and `kv_heads` must be multiples of the chips of a group."""

    heads: int = 16
    kv_heads: int = 8
    inner: int = 1024


def random_weights(size, seed=0):
    """The weights of each layer, [in, out]."""
    numbers = np.random.default_rng(seed)
    kv = size.kv_heads * size.head
    return [
        {
            "q": matrix(numbers, size.width, size.width),
            "k": matrix(numbers, size.width, kv),
            "v": matrix(numbers, size.width, kv),
            "out": matrix(numbers, size.width, size.width),
            "gate": matrix(numbers, size.width, size.inner),
            "up": matrix(numbers, size.width, size.inner),
            "down": matrix(numbers, size.inner, size.width),
            "norm1": 1 + numbers.standard_normal(size.width, np.float32) / 10,
            "norm2": 1 + numbers.standard_normal(size.width, np.float32) / 10,
        }
        for _ in range(size.layers)
    ]


def reference(x, weights, size):
    """The hidden states [users, tokens, width] after all layers, in NumPy on one device."""
    cos, sin = (table[: x.shape[1]] for table in angles(size))

    def norm(x, weight):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + size.epsilon) * weight

    def heads(x, count):
        return x.reshape(*x.shape[:2], count, size.head).swapaxes(1, 2)

    def rotary(x):
        other = np.stack([-x[..., 1::2], x[..., ::2]], -1).reshape(x.shape)
        return x * cos + other * sin

    for w in weights:
        y = norm(x, w["norm1"])
        q, k = rotary(heads(y @ w["q"], size.heads)), rotary(heads(y @ w["k"], size.kv_heads))
        seen = causal(q, k, heads(y @ w["v"], size.kv_heads))
        x = x + seen.swapaxes(1, 2).reshape(x.shape) @ w["out"]
        y = norm(x, w["norm2"])
        gate = y @ w["gate"]
        x = x + (gate / (1 + np.exp(-gate)) * (y @ w["up"])) @ w["down"]
    return x


class Norm:
    """RMS norm of tokens whose width is cut over a group."""

    def __init__(self, chips, weight, epsilon):
        self.chips, self.epsilon = chips, epsilon
        rows = weight.reshape(1, 1, -1, TILE)
        self.weight = chips.place(rows, dim=2, layout=ttnn.ROW_MAJOR_LAYOUT)

    def __call__(self, x):
        how = {"epsilon": self.epsilon, "weight": self.weight}
        if self.chips.tp == 1:
            return ttnn.rms_norm(x, **how)
        statistics = self.chips.gather(ttnn.rms_norm_pre_all_gather(x, dtype=ttnn.bfloat16))
        return ttnn.rms_norm_post_all_gather(x, statistics, **how)


class Attention:
    """Attention whose heads are cut over a group, with a cache of keys and values.

    Args:
        users: how many sequences each group has.
    """

    def __init__(self, chips, w, size, users, dtype):
        self.chips, self.size, self.users = chips, size, users
        self.heads, self.kv_heads = size.heads // chips.tp, size.kv_heads // chips.tp
        # a chip's columns of q, k and v side by side
        parts = [np.split(w[name], chips.tp, axis=1) for name in "qkv"]
        qkv = np.concatenate([part for chip in zip(*parts) for part in chip], axis=1)
        self.qkv = chips.place(qkv[None, None], dim=3, dtype=dtype)
        self.out = chips.place(w["out"][None, None], dim=2, dtype=dtype)
        empty = np.zeros((users, size.kv_heads, size.positions, size.head), np.float32)
        self.keys, self.values = (chips.place(empty, dim=1, dtype=dtype) for _ in "kv")

    def prefill(self, x, rotary, user):
        """Attend from all tokens of one user of each group: [1, 1, tokens, width]."""
        q, k, v = ttnn.experimental.nlp_create_qkv_heads(
            self.chips.linear(x, self.qkv),
            num_heads=self.heads,
            num_kv_heads=self.kv_heads,
            transpose_k_heads=False,
        )
        q, k = (ttnn.experimental.rotary_embedding_llama(t, *rotary) for t in (q, k))
        for cache, new in ((self.keys, k), (self.values, v)):
            ttnn.fill_cache(cache, ttnn.typecast(new, cache.dtype), user)
        program = ttnn.SDPAProgramConfig(
            compute_with_storage_grid_size=self.chips.grid, q_chunk_size=TILE, k_chunk_size=TILE
        )
        seen = ttnn.transformer.scaled_dot_product_attention(
            q, k, v, is_causal=True, program_config=program
        )
        seen = ttnn.experimental.nlp_concat_heads(seen)
        return self.chips.scatter(ttnn.linear(seen, self.out))

    def decode(self, x, rotary, positions):
        """Attend from one token of every user: [1, 1, users, width]."""
        q, k, v = ttnn.experimental.nlp_create_qkv_heads_decode(
            self.chips.linear(x, self.qkv),
            num_heads=self.heads,
            num_kv_heads=self.kv_heads,
            memory_config=ttnn.L1_HEIGHT_SHARDED_MEMORY_CONFIG,
        )
        q, k = (
            ttnn.experimental.rotary_embedding_llama(t, *rotary, is_decode_mode=True)
            for t in (q, k)
        )
        for cache, new in ((self.keys, k), (self.values, v)):
            ttnn.experimental.paged_update_cache(cache, new, update_idxs_tensor=positions)
        seen = self.chips.attend_to_caches(q, self.keys, self.values, positions)
        seen = ttnn.to_memory_config(seen, self.chips.heads_in_l1(self.users, self.size.head))
        seen = ttnn.experimental.nlp_concat_heads_decode(seen, num_heads=self.heads)
        seen = ttnn.sharded_to_interleaved(seen, ttnn.DRAM_MEMORY_CONFIG)
        # a tile of rows comes back, of which the users are the first
        found = self.chips.scatter(ttnn.linear(seen, self.out))
        return found[:, :, : self.users, :]


class GatedMLP:
    """down(silu(gate(x)) * up(x)), the inner features cut over a group."""

    def __init__(self, chips, w, dtype):
        self.chips = chips
        self.gate, self.up = (
            chips.place(w[name][None, None], dim=3, dtype=dtype) for name in ("gate", "up")
        )
        self.down = chips.place(w["down"][None, None], dim=2, dtype=dtype)

    def __call__(self, x):
        gate, up = (self.chips.linear(x, weight) for weight in (self.gate, self.up))
        inner = ttnn.mul(gate, up, input_tensor_a_activations=[ttnn.UnaryOpType.SILU])
        return self.chips.scatter(self.chips.linear(inner, self.down))


class Decoder:
    """All layers on a mesh.

    Args:
        mesh: an open mesh of two axes.
        weights: as `random_weights` makes them.
        users: how many sequences each group of chips has, at most 32.
        axis: the tensor-parallel axis of the mesh.
        dtype: of weights and caches.
    """

    def __init__(self, mesh, weights, size, users, axis=1, dtype=ttnn.bfloat16):
        self.chips, self.size, self.users = Chips(mesh, axis), size, users
        self.layers = [
            (
                Norm(self.chips, w["norm1"], size.epsilon),
                Attention(self.chips, w, size, users, dtype),
                Norm(self.chips, w["norm2"], size.epsilon),
                GatedMLP(self.chips, w, dtype),
            )
            for w in weights
        ]
        self.cos, self.sin = angles(size)
        # row 2i, column 2i+1 and back: turns neighbouring columns into each other
        self.turn = np.zeros((TILE, TILE), np.float32)
        even = np.arange(0, TILE, 2)
        self.turn[even, even + 1], self.turn[even + 1, even] = 1, -1

    def _run(self, x, attend):
        for norm1, attention, norm2, mlp in self.layers:
            x = ttnn.add(x, attend(attention, self.chips.gather(norm1(x))))
            x = ttnn.add(x, mlp(self.chips.gather(norm2(x))))
        return x

    def prefill(self, x, user):
        """Return the hidden states of a prompt of one user of each group.

        Args:
            x: [groups, tokens, width]; tokens in whole tiles.
            user: the user's number in each group: where the cache keeps the prompt.
        """
        tokens = x.shape[1]
        tables = (self.cos[None, None, :tokens], self.sin[None, None, :tokens])
        rotary = [self.chips.place(t) for t in (*tables, self.turn[None, None])]
        placed = self.chips.place(x[:, None], dim=3, group_dim=0)
        placed = self._run(placed, lambda attention, x: attention.prefill(x, rotary, user))
        return self.chips.read(placed, 3, 0)[:, 0]

    def decode(self, x, position):
        """Return the hidden states of one more token of every user.

        Args:
            x: [groups, users, width].
            position: the tokens' place, from 0.
        """
        users, head = self.users, self.size.head
        rows = [np.tile(t[position], (1, users, 1, 1)) for t in (self.cos, self.sin)]
        rotary = [
            ttnn.to_memory_config(self.chips.place(t), self.chips.heads_in_l1(users, width))
            for t, width in (
                *((row, head) for row in rows),
                (np.tile(self.turn, (1, 1, users, 1)), TILE),
            )
        ]
        positions = self.chips.positions(position, users)
        placed = self.chips.place(x[:, None], dim=3, group_dim=0)
        placed = self._run(placed, lambda attention, x: attention.decode(x, rotary, positions))
        return self.chips.read(placed, 3, 0)[:, 0]


if __name__ == "__main__":
    report(sys.modules[__name__], {"small": Size()})
