"""JAX on 8 forced host devices: one AdamW step of a small GPT whose MLPs are mixtures of 8 experts, one on each
device. `python jax_experts.py`. Prints one JSON line.

6 layers, 384 wide, 8 heads, vocabulary 256, 16 x 128 tokens, float32, no dropout, no bias in projections; 2 experts a
token, capacity factor 1.25 for each sequence, tokens in their order, Switch's balance loss 0.01. Dispatch and combine
are products with one-hot matrices and `lax.all_to_all`.
"""
import os
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"
import json, math, time
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

L, E, HEADS, S, V, B, X, K, ALPHA = 6, 384, 8, 128, 256, 16, 8, 2, 0.01
C = math.ceil(1.25 * K * S / X)
mesh = Mesh(np.array(jax.devices()), ("dp",))
rng = np.random.default_rng(0)
mask = np.tril(np.ones((S, S), bool))


def normal(*shape):
    return rng.standard_normal(shape, dtype=np.float32) * 0.02


block = lambda: dict(qkv=normal(E, 3, E), out=normal(E, E), router=normal(E, X), up=normal(X, E, 4 * E), down=normal(X, 4 * E, E),
                     g1=np.ones(E, np.float32), b1=np.zeros(E, np.float32), g2=np.ones(E, np.float32), b2=np.zeros(E, np.float32))
params = dict(emb=normal(V, E), pos=normal(S, E), blocks=[block() for _ in range(L)], g=np.ones(E, np.float32), b=np.zeros(E, np.float32), head=normal(E, V))
spec_block = dict(qkv=P(), out=P(), router=P(), up=P("dp"), down=P("dp"), g1=P(), b1=P(), g2=P(), b2=P())
specs = dict(emb=P(), pos=P(), blocks=[spec_block] * L, g=P(), b=P(), head=P())


def norm(x, g, b):
    m = x.mean(-1, keepdims=True)
    return (x - m) * jax.lax.rsqrt(((x - m) ** 2).mean(-1, keepdims=True) + 1e-5) * g + b


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
        a = norm(h, k["g1"], k["b1"])
        q, kk, v = (jnp.einsum("bse,ef->bsf", a, k["qkv"][:, i]) for i in range(3))
        split = lambda t: t.reshape(*t.shape[:2], HEADS, E // HEADS).transpose(0, 2, 1, 3)
        s = jnp.where(mask, split(q) @ split(kk).swapaxes(-1, -2) / np.sqrt(E // HEADS), -1e9)
        o = (jax.nn.softmax(s) @ split(v)).transpose(0, 2, 1, 3).reshape(*h.shape[:2], -1)
        h = h + o @ k["out"]
        more, even = mixture(norm(h, k["g2"], k["b2"]), k)
        h, balance = h + more, balance + even
    logits = norm(h, p["g"], p["b"]) @ p["head"]
    return jax.lax.pmean(balance - jnp.take_along_axis(jax.nn.log_softmax(logits), y[..., None], -1).mean(), "dp")


def step(p, m, v, x, y):
    loss, g = jax.value_and_grad(loss_of)(p, x, y)
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
    v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)
    return jax.tree.map(lambda p, m, v: p - 3e-4 * m / (jnp.sqrt(v) + 1e-8), p, m, v), m, v, loss


call = jax.jit(jax.shard_map(step, mesh=mesh, in_specs=(specs, specs, specs, P("dp"), P("dp")), out_specs=(specs, specs, specs, P())))
place = lambda tree: jax.tree.map(lambda a, s: jax.device_put(a, NamedSharding(mesh, s)), tree, specs, is_leaf=lambda n: isinstance(n, np.ndarray))
zeros = jax.tree.map(np.zeros_like, params)
x, y = (jax.device_put(rng.integers(0, V, (B, S)), NamedSharding(mesh, P("dp"))) for _ in range(2))
state = place(params), place(zeros), place(zeros)
start = time.perf_counter()
*state, loss = call(*state, x, y)
loss.block_until_ready()
first, times, losses = time.perf_counter() - start, [], [float(loss)]
for _ in range(6):
    start = time.perf_counter()
    *state, loss = call(*state, x, y)
    losses.append(float(loss))
    times.append(time.perf_counter() - start)
print(json.dumps({"first": first, "step": min(times), "losses": losses}))
