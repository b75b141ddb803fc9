"""Shapes and inputs of the rows: the same numbers for every worker, drawn with the peers' seed
in the peers' order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

HIDDEN, FFN, TOKENS = 4544, 18176, 256  # the MLP of Falcon-7B, as in peers/jax_mesh.py
# a block of GPT-2 small; the batch is split over 2 rows of chips, the heads over 4 columns
WIDTH, HEADS, SEQUENCE, BATCH = 768, 12, 1024, 2
EPSILON = 1e-5
KIB = {"4k": 4, "256k": 256, "64m": 65536}  # a collective's bytes over all 8 devices together
GIB_SHAPE = (16384, 16384)  # float32: 1 GiB


def mlp() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """w1 [HIDDEN, FFN], w2 [FFN, HIDDEN] and x [TOKENS, HIDDEN]."""
    rng = np.random.default_rng(0)
    w1 = rng.standard_normal((HIDDEN, FFN), dtype=np.float32)
    w1 *= np.float32(0.02)
    w2 = rng.standard_normal((FFN, HIDDEN), dtype=np.float32)
    w2 *= np.float32(0.02)
    return w1, w2, rng.standard_normal((TOKENS, HIDDEN), dtype=np.float32)


def collective(size: str) -> np.ndarray:
    """One row for each of 8 devices, [8, n]: what peers/jax_mesh.py draws for this size."""
    rng = np.random.default_rng(0)
    for name, kib in KIB.items():
        x = rng.standard_normal((8, max(1, kib * 1024 // 32)), dtype=np.float32)
        if name == size:
            return x
    raise KeyError(size)


def small() -> tuple[np.ndarray, np.ndarray]:
    """Two arrays [8 * 32, 32]: one 32 x 32 shard for each of 8 devices."""
    rng = np.random.default_rng(0)
    return rng.standard_normal((256, 32), dtype=np.float32), rng.standard_normal(
        (256, 32), dtype=np.float32
    )


def gpt2_block() -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """x [BATCH, SEQUENCE, WIDTH] and the block's parameters; weights are [in, out]."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, dtype=np.float32) * np.float32(0.02)

    params = {name: normal(WIDTH, WIDTH) for name in ("wq", "wk", "wv", "wo")}
    params |= {name: normal(WIDTH) for name in ("bq", "bk", "bv", "bo")}
    params |= {
        "w1": normal(WIDTH, 4 * WIDTH),
        "b1": normal(4 * WIDTH),
        "w2": normal(4 * WIDTH, WIDTH),
        "b2": normal(WIDTH),
    }
    params |= {
        "gain1": 1 + normal(WIDTH),
        "shift1": normal(WIDTH),
        "gain2": 1 + normal(WIDTH),
        "shift2": normal(WIDTH),
    }
    return rng.standard_normal((BATCH, SEQUENCE, WIDTH), dtype=np.float32), params


# of peers/jax_gpt.py and peers/torch_gpt.py
GPT = {"blocks": 6, "width": 384, "heads": 8, "sequence": 128, "vocabulary": 256, "batch": 16}
LONG = GPT | {"sequence": 1024, "batch": 2}
EXPERTS = 8  # one on each device


class Trained(NamedTuple):
    """A row of training: the mesh, the strategies' axes, what is shared beside, the model, and the
    peer's program.
    """

    shape: tuple[int, int]
    axes: dict[str, int]
    shares: dict[str, Any] = {}  # noqa: RUF012  # fields of a Layout
    model: dict[str, int] = GPT
    experts: int = 0
    peer: str = "jax_gpt.py"


TRAINED = {
    "dp8": Trained((8, 1), {"dp": 0}),
    "tp8": Trained((1, 8), {"tp": 1}),
    "dp2tp4": Trained((2, 4), {"dp": 0, "tp": 1}),
    "zero2": Trained((8, 1), {"dp": 0}, {"zero": 2}, peer="jax_layouts.py"),
    "sp8": Trained((1, 8), {"tp": 1}, {"sequence_parallel": True}, peer="jax_layouts.py"),
    "cp8": Trained((1, 8), {"cp": 1}, model=LONG, peer="jax_ring.py"),
    "ep8": Trained((8, 1), {"dp": 0}, {"ep": 8}, experts=EXPERTS, peer="jax_experts.py"),
}


def trained(row: Trained) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """The first weights [in, out], as the peer draws them, by this kit's names, and tokens and
    targets [batch, sequence].
    """
    gpt, experts = row.model, row.experts
    rng, width, size = np.random.default_rng(0), gpt["width"], (gpt["batch"], gpt["sequence"])

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, dtype=np.float32) * 0.02

    found = {
        "vocabulary.table": normal(gpt["vocabulary"], width),
        "position": normal(gpt["sequence"], width),
    }
    for i in range(gpt["blocks"]):
        qkv, block = normal(width, 3, width), f"blocks.{i}"
        found |= {
            f"{block}.attention.{name}.weight": qkv[:, j]
            for j, name in enumerate(("query", "key", "value"))
        }
        found[f"{block}.attention.out.weight"] = normal(width, width)
        if experts:
            found[f"{block}.experts.router.weight"] = normal(width, experts)
            found[f"{block}.experts.up"] = normal(experts, width, 4 * width)
            found[f"{block}.experts.down"] = normal(experts, 4 * width, width)
        else:
            found[f"{block}.up.weight"] = normal(width, 4 * width)
            found[f"{block}.down.weight"] = normal(4 * width, width)
    found["vocabulary.head"] = normal(width, gpt["vocabulary"])
    tokens, targets = (rng.integers(0, gpt["vocabulary"], size) for _ in range(2))
    return found, tokens, targets


# of the decoder: the four groups of a Galaxy's chips have a user each
DECODER = {"width": 512, "heads": 16, "kv_heads": 8, "inner": 1024, "layers": 8, "positions": 256}
USERS, PROMPT = 4, 128
