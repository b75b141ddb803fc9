"""JAX on 8 forced host devices: one AdamW step of the GPT of jax_gpt.py on layouts that share more.

`python jax_layouts.py zero2|sp8`, with shard_map and explicit collectives:
zero2: 8 replicas; gradients are reduce-scattered, each device steps its part, weights are gathered.
sp8: as Megatron with sequence parallelism: all-gather into the products, reduce-scatter out of them.
"""
import os
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"
import json, sys, time
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

L, E, HEADS, S, V, B = 6, 384, 8, 128, 256, 16
SP = sys.argv[1] == "sp8"
TP = 8 if SP else 1
mesh = Mesh(np.array(jax.devices()[:8]), ("x",))
rng = np.random.default_rng(0)
mask = np.tril(np.ones((S, S), bool))


def normal(*shape):
    return rng.standard_normal(shape, dtype=np.float32) * 0.02


block = lambda: dict(qkv=normal(E, 3, E), out=normal(E, E), up=normal(E, 4 * E), down=normal(4 * E, E),
                     g1=np.ones(E, np.float32), b1=np.zeros(E, np.float32), g2=np.ones(E, np.float32), b2=np.zeros(E, np.float32))
params = dict(emb=normal(V, E), pos=normal(S, E), blocks=[block() for _ in range(L)], g=np.ones(E, np.float32), b=np.zeros(E, np.float32), head=normal(E, V))
spec_block = dict(qkv=P(None, None, "x"), out=P("x", None), up=P(None, "x"), down=P("x", None), g1=P(), b1=P(), g2=P(), b2=P())
split_specs = dict(emb=P(), pos=P(), blocks=[spec_block] * L, g=P(), b=P(), head=P())
first = lambda array: P("x") if array.shape[0] % 8 == 0 else P()
specs = split_specs if SP else jax.tree.map(lambda _: P(), params)
state_specs = split_specs if SP else jax.tree.map(first, params)
gather = lambda h: jax.lax.all_gather(h, "x", axis=1, tiled=True) if SP else h
scatter = lambda h: jax.lax.psum_scatter(h, "x", scatter_dimension=1, tiled=True) if SP else h


def norm(x, g, b):
    m = x.mean(-1, keepdims=True)
    return (x - m) * jax.lax.rsqrt(((x - m) ** 2).mean(-1, keepdims=True) + 1e-5) * g + b


def loss_of(p, x, y):
    h = p["emb"][x] + p["pos"]
    if SP:  # each device its part of the sequence
        h = jax.lax.dynamic_slice_in_dim(h, jax.lax.axis_index("x") * (S // 8), S // 8, 1)
        y = jax.lax.dynamic_slice_in_dim(y, jax.lax.axis_index("x") * (S // 8), S // 8, 1)
    for k in p["blocks"]:
        a = gather(norm(h, k["g1"], k["b1"]))
        q, kk, v = (jnp.einsum("bse,ef->bsf", a, k["qkv"][:, i]) for i in range(3))
        split = lambda t: t.reshape(*t.shape[:2], HEADS // TP, E // HEADS).transpose(0, 2, 1, 3)
        s = jnp.where(mask, split(q) @ split(kk).swapaxes(-1, -2) / np.sqrt(E // HEADS), -1e9)
        o = (jax.nn.softmax(s) @ split(v)).transpose(0, 2, 1, 3).reshape(*a.shape[:2], -1)
        h = h + scatter(o @ k["out"])
        h = h + scatter(jax.nn.gelu(gather(norm(h, k["g2"], k["b2"])) @ k["up"]) @ k["down"])
    logits = norm(h, p["g"], p["b"]) @ p["head"]
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[..., None], -1).mean() / 8


def own(array):
    size = array.shape[0] // 8
    return jax.lax.dynamic_slice_in_dim(array, jax.lax.axis_index("x") * size, size)


def reduced(g, spec):
    if SP:  # what lies whole on all devices was used on parts of the sequence
        return g if "x" in spec else jax.lax.psum(g, "x")
    return jax.lax.psum_scatter(g, "x", tiled=True) if "x" in spec else jax.lax.psum(g, "x")


def step(p, m, v, x, y):
    loss, g = jax.value_and_grad(loss_of)(p, x, y)
    g = jax.tree.map(reduced, g, state_specs)
    part = p if SP else jax.tree.map(lambda a, spec: own(a) if "x" in spec else a, p, state_specs)
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
    v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)
    part = jax.tree.map(lambda p, m, v: p - 3e-4 * m / (jnp.sqrt(v) + 1e-8), part, m, v)
    if not SP:
        part = jax.tree.map(lambda a, spec: jax.lax.all_gather(a, "x", tiled=True) if "x" in spec else a, part, state_specs)
    return part, m, v, jax.lax.psum(loss, "x")


data = P() if SP else P("x")
call = jax.jit(jax.shard_map(step, mesh=mesh, in_specs=(specs, state_specs, state_specs, data, data),
                             out_specs=(specs, state_specs, state_specs, P()), check_vma=False))
put = lambda tree, to: jax.tree.map(lambda a, s: jax.device_put(a, NamedSharding(mesh, s)), tree, to, is_leaf=lambda n: isinstance(n, np.ndarray))
zeros = jax.tree.map(np.zeros_like, params)
x, y = (jax.device_put(rng.integers(0, V, (B, S)), NamedSharding(mesh, data)) for _ in range(2))
state = put(params, specs), put(zeros, state_specs), put(zeros, state_specs)
start = time.perf_counter()
*state, loss = call(*state, x, y)
loss.block_until_ready()
first_s, times = time.perf_counter() - start, []
for _ in range(6):
    start = time.perf_counter()
    *state, loss = call(*state, x, y)
    loss.block_until_ready()
    times.append(time.perf_counter() - start)
print(json.dumps({"first": first_s, "step": min(times), "loss": float(loss)}))
