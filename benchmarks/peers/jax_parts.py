"""What our peers in JAX share: 8 forced host devices, the parts of a small GPT, and timed AdamW steps.

The GPT: 6 layers, 384 wide, 8 heads, vocabulary 256, float32, GELU by tanh, no dropout, no bias in projections.
Import this before JAX: it says how many devices there are.
"""
import os
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"
import json, resource, time
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P

L, E, HEADS, V = 6, 384, 8, 256
rng = np.random.default_rng(0)


def normal(*shape):
    return rng.standard_normal(shape, dtype=np.float32) * 0.02


def ones_and_zeros(*numbers):
    return {f"{name}{n}": make(E, np.float32) for n in numbers for name, make in (("g", np.ones), ("b", np.zeros))}


def mlp():
    return dict(up=normal(E, 4 * E), down=normal(4 * E, E))


def weights(positions, mlp=mlp):
    block = lambda: dict(qkv=normal(E, 3, E), out=normal(E, E), **mlp(), **ones_and_zeros(1, 2))
    return dict(emb=normal(V, E), pos=normal(positions, E), blocks=[block() for _ in range(L)], **ones_and_zeros(""), head=normal(E, V))


def norm(x, g, b):
    m = x.mean(-1, keepdims=True)
    return (x - m) * jax.lax.rsqrt(((x - m) ** 2).mean(-1, keepdims=True) + 1e-5) * g + b


def heads(a, k, count=HEADS):  # queries, keys and values, each [batch, heads, positions, E / HEADS]
    parts = (jnp.einsum("bse,ef->bsf", a, k["qkv"][:, i]) for i in range(3))
    return [t.reshape(*t.shape[:2], count, E // HEADS).transpose(0, 2, 1, 3) for t in parts]


def side_by_side(t):
    return t.transpose(0, 2, 1, 3).reshape(t.shape[0], t.shape[2], -1)


def causal(q, k, v):
    seen = np.tril(np.ones((q.shape[2], q.shape[2]), bool))
    s = jnp.where(seen, q @ k.swapaxes(-1, -2) / np.sqrt(E // HEADS), -1e9)
    return side_by_side(jax.nn.softmax(s) @ v)


def cross_entropy(p, h, y):
    logits = norm(h, p["g"], p["b"]) @ p["head"]
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[..., None], -1).mean()


def adam(p, m, v, g):
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
    v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)
    return jax.tree.map(lambda p, m, v: p - 3e-4 * m / (jnp.sqrt(v) + 1e-8), p, m, v), m, v


def put(mesh, tree, specs):
    place = lambda a, s: jax.device_put(a, NamedSharding(mesh, s))
    return jax.tree.map(place, tree, specs, is_leaf=lambda n: isinstance(n, np.ndarray))


def begun(mesh, params, specs, state_specs):
    """The weights and both means of their gradients, placed."""
    zeros = jax.tree.map(np.zeros_like, params)
    return [put(mesh, params, specs), put(mesh, zeros, state_specs), put(mesh, zeros, state_specs)]


def report(call, state, x, y):
    """Take 7 steps; print their seconds and losses."""
    times, losses = [], []
    for _ in range(7):
        start = time.perf_counter()
        *state, loss = call(*state, x, y)
        losses.append(float(loss))
        times.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"first": times[0], "step": min(times[1:]), "losses": losses, "peak_MiB": peak}))
