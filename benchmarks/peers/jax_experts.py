"""JAX on 8 forced host devices: one AdamW step of a small GPT whose MLPs are mixtures of 8 experts, one on each
device. `python jax_experts.py`. Prints one JSON line.

16 x 128 tokens; 2 experts a token, capacity factor 1.25 for each sequence, tokens in their order, Switch's balance
loss 0.01. Dispatch and combine are products with one-hot matrices and `lax.all_to_all`.
"""
from jax_parts import E, V, adam, begun, causal, cross_entropy, heads, norm, normal, put, report, rng, weights
import math
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec as P

S, B, X, K, ALPHA = 128, 16, 8, 2, 0.01
C = math.ceil(1.25 * K * S / X)
mesh = Mesh(np.array(jax.devices()), ("dp",))
params = weights(S, lambda: dict(router=normal(E, X), up=normal(X, E, 4 * E), down=normal(X, 4 * E, E)))
specs = jax.tree.map(lambda a: P("dp") if a.ndim == 3 and a.shape[0] == X else P(), params)


def mixture(h, k):
    probs = jax.nn.softmax(h @ k["router"])
    best, which = jax.lax.top_k(probs, K)
    each = jax.nn.one_hot(which, X)  # [b, s, k, x]
    chosen = each.sum(2)
    gates = (each * (best / best.sum(-1, keepdims=True))[..., None]).sum(2)
    places = jax.nn.one_hot((jnp.cumsum(chosen, 1) * chosen - 1).astype(int), C)  # [b, s, x, c]; of -1 all zeros
    rows = jnp.einsum("bsxc,bse->bxce", places, h)
    rows = jax.lax.all_to_all(rows, "dp", 1, 0, tiled=True)  # [8 b, 1, c, e]
    y = jnp.einsum("bxcf,xfe->bxce", jax.nn.gelu(jnp.einsum("bxce,xef->bxcf", rows, k["up"])), k["down"])
    y = jax.lax.all_to_all(y, "dp", 0, 1, tiled=True)
    balance = ALPHA * X * (chosen.mean(1) / K * probs.mean(1)).sum(-1).mean()
    return jnp.einsum("bsxc,bxce->bse", gates[..., None] * places, y), balance


def loss_of(p, x, y):
    h, balance = p["emb"][x] + p["pos"], 0
    for k in p["blocks"]:
        h = h + causal(*heads(norm(h, k["g1"], k["b1"]), k)) @ k["out"]
        more, even = mixture(norm(h, k["g2"], k["b2"]), k)
        h, balance = h + more, balance + even
    return jax.lax.pmean(balance + cross_entropy(p, h, y), "dp")


def step(p, m, v, x, y):
    loss, g = jax.value_and_grad(loss_of)(p, x, y)
    return *adam(p, m, v, g), loss


data = P("dp")
call = jax.jit(jax.shard_map(step, mesh=mesh, in_specs=(specs, specs, specs, data, data), out_specs=(specs, specs, specs, P())))
state = begun(mesh, params, specs, specs)
x, y = (put(mesh, rng.integers(0, V, (B, S)), data) for _ in range(2))
report(call, state, x, y)
