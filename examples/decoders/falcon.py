"""Falcon-7B's decoder, written as for a card: prefill a prompt, then decode token by token.

    python examples/decoders/falcon.py                   two groups of four chips (2x4)
    python examples/decoders/falcon.py --mesh 1x8 --dtype bfloat8_b

Falcon-7B differs from Llama in three things: all query heads share one head of keys and values, so
attention is not cut over chips; attention and MLP read the same normalised token, so a layer has
one norm and one addition; the MLP is gelu between two products.

    x --layer norm--+--[qkv, attention with cache, out]--+--(+ x)
                    +--[up, gelu, down]--all-reduce------+

Each group of chips has users of its own; its chips share the inner features of the MLP, and each
computes the group's attention. Falcon-7B itself is 4544 wide with 71 heads; `--size 7b` runs one
layer of it.
"""

import sys

import numpy as np
from chips import TILE, Chips, Size, angles, causal, matrix, report

from ttkit import ttnn


def random_weights(size, seed=0):
    """The weights of each layer; the inner features are four times as many as the width."""
    numbers = np.random.default_rng(seed)
    return [
        {
            "qkv": matrix(numbers, size.width, size.width + 2 * size.head),
            "out": matrix(numbers, size.width, size.width),
            "up": matrix(numbers, size.width, 4 * size.width),
            "down": matrix(numbers, 4 * size.width, size.width),
            "scale": 1 + numbers.standard_normal(size.width, np.float32) / 10,
            "shift": numbers.standard_normal(size.width, np.float32) / 10,
        }
        for _ in range(size.layers)
    ]


def halves(size):
    """Cosines and sines [positions, head] for heads whose halves are turned into each other."""
    return tuple(np.tile(table[:, ::2], 2) for table in angles(size))


def reference(x, weights, size):
    """The hidden states [users, tokens, width] after all layers, in NumPy on one device."""
    cos, sin = (table[: x.shape[1]] for table in halves(size))

    def rotary(x):
        left, right = np.split(x, 2, axis=-1)
        return x * cos + np.concatenate([-right, left], -1) * sin

    for w in weights:
        y = x - x.mean(-1, keepdims=True)
        y = y / np.sqrt((y * y).mean(-1, keepdims=True) + size.epsilon) * w["scale"] + w["shift"]
        qkv = (y @ w["qkv"]).reshape(*x.shape[:2], size.heads + 2, size.head).swapaxes(1, 2)
        seen = causal(rotary(qkv[:, :-2]), rotary(qkv[:, -2:-1]), qkv[:, -1:])
        up = y @ w["up"]
        up = up / 2 * (1 + np.tanh((2 / np.pi) ** 0.5 * (up + 0.044715 * up**3)))
        x = x + seen.swapaxes(1, 2).reshape(x.shape) @ w["out"] + up @ w["down"]
    return x


class Layer:
    """Attention and MLP beside each other, with a cache of keys and values.

    Args:
        users: how many sequences each group has.
    """

    def __init__(self, chips, w, size, users, dtype):
        self.chips, self.size, self.users = chips, size, users
        self.qkv, self.out = (chips.place(w[n][None, None], dtype=dtype) for n in ("qkv", "out"))
        self.up = chips.place(w["up"][None, None], dim=3, dtype=dtype)
        self.down = chips.place(w["down"][None, None], dim=2, dtype=dtype)
        self.norm = {
            name: chips.place(w[n][None, None, None])
            for name, n in (("weight", "scale"), ("bias", "shift"))
        }
        empty = np.zeros((users, 1, size.positions, size.head), np.float32)
        self.keys, self.values = (chips.place(empty, dtype=dtype) for _ in "kv")

    def __call__(self, x, attend):
        y = ttnn.layer_norm(x, epsilon=self.size.epsilon, **self.norm)
        inner = ttnn.gelu(self.chips.linear(y, self.up))
        mlp = self.chips.add_up(self.chips.linear(inner, self.down))
        seen = self.chips.linear(attend(self, self.chips.linear(y, self.qkv)), self.out)
        return ttnn.add(x, ttnn.add(seen, mlp))

    def prefill(self, qkv, tables, user):
        """Attend from all tokens of one user of each group."""
        q, k, v = ttnn.experimental.nlp_create_qkv_heads(
            qkv, num_heads=self.size.heads, num_kv_heads=1, transpose_k_heads=False
        )
        q, k = (ttnn.experimental.rotary_embedding(t, *tables) for t in (q, k))
        for cache, new in ((self.keys, k), (self.values, v)):
            ttnn.fill_cache(cache, ttnn.typecast(new, cache.dtype), user)
        program = ttnn.SDPAProgramConfig(
            compute_with_storage_grid_size=self.chips.grid, q_chunk_size=TILE, k_chunk_size=TILE
        )
        seen = ttnn.transformer.scaled_dot_product_attention(
            q, k, v, is_causal=True, program_config=program
        )
        return ttnn.experimental.nlp_concat_heads(seen)

    def decode(self, qkv, tables, positions):
        """Attend from one token of every user."""
        q, k, v = ttnn.experimental.nlp_create_qkv_heads_decode(
            qkv,
            num_heads=self.size.heads,
            num_kv_heads=1,
            memory_config=ttnn.L1_HEIGHT_SHARDED_MEMORY_CONFIG,
        )
        q, k = (self._turned(t, *tables) for t in (q, k))
        k, v = (
            ttnn.to_memory_config(t, self.chips.heads_in_l1(self.users, self.size.head))
            for t in (k, v)
        )
        for cache, new in ((self.keys, k), (self.values, v)):
            ttnn.experimental.paged_update_cache(cache, new, update_idxs_tensor=positions)
        seen = self.chips.attend_to_caches(q, self.keys, self.values, positions)
        return ttnn.reshape(seen, (1, 1, self.users, self.size.width))

    def _turned(self, x, cos, sin):
        """Turn the halves of one token's heads: rotary_embedding is for one head a row."""
        x = ttnn.sharded_to_interleaved(x, ttnn.DRAM_MEMORY_CONFIG)
        half = self.size.head // 2
        left, right = x[:, :, :, :half], x[:, :, :, half:]
        other = ttnn.concat([ttnn.neg(right), left], dim=3)
        return ttnn.add(ttnn.mul(x, cos), ttnn.mul(other, sin))


class Decoder:
    """All layers on a mesh.

    Args:
        mesh: an open mesh of two axes.
        weights: as `random_weights` makes them.
        users: how many sequences each group of chips has, at most 32.
        axis: the mesh axis of a group.
        dtype: of weights and caches.
    """

    def __init__(self, mesh, weights, size, users, axis=1, dtype=ttnn.bfloat16):
        self.chips, self.size, self.users = Chips(mesh, axis), size, users
        self.layers = [Layer(self.chips, w, size, users, dtype) for w in weights]
        self.tables = halves(size)

    def _run(self, x, attend):
        placed = self.chips.place(x[:, None], group_dim=0)
        for layer in self.layers:
            placed = layer(placed, attend)
        return self.chips.read_one(placed, 0)[:, 0]

    def prefill(self, x, user):
        """Return the hidden states of a prompt of one user of each group.

        Args:
            x: [groups, tokens, width]; tokens in whole tiles.
        """
        tables = [self.chips.place(t[None, None, : x.shape[1]]) for t in self.tables]
        return self._run(x, lambda layer, qkv: layer.prefill(qkv, tables, user))

    def decode(self, x, position):
        """Return the hidden states of one more token [groups, users, width] of every user."""
        tables = [self.chips.place(t[None, None, position : position + 1]) for t in self.tables]
        positions = self.chips.positions(position, self.users)
        return self._run(x, lambda layer, qkv: layer.decode(qkv, tables, positions))


if __name__ == "__main__":
    report(sys.modules[__name__], {"small": Size(), "7b": Size(4544, 71, layers=1)})
