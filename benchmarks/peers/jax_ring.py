"""JAX on 8 forced host devices: one AdamW step of the GPT of jax_gpt.py on long sequences, with ring attention over `ppermute`. Prints one JSON line.

6 layers, 384 wide, 8 heads, vocabulary 256, 2 x 1024 tokens, float32, GELU by tanh, no dropout, no bias in projections.
The sequence is in zig-zag order, so that the causal mask costs half of each later step here, too: the same products as ttkit's.
"""
import os
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"
import json, resource, time
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

L, E, HEADS, S, V, B, CP = 6, 384, 8, 1024, 256, 2, 8
N = S // CP  # positions of a device, in two chunks
mesh = Mesh(np.array(jax.devices()), ("cp",))
rng = np.random.default_rng(0)
mask = np.tril(np.ones((N, N), bool))
chunks = np.arange(S).reshape(2 * CP, -1)
order = np.concatenate([chunks[[i, 2 * CP - 1 - i]].ravel() for i in range(CP)])


def normal(*shape):
    return rng.standard_normal(shape, dtype=np.float32) * 0.02


block = lambda: dict(qkv=normal(E, 3, E), out=normal(E, E), up=normal(E, 4 * E), down=normal(4 * E, E),
                     g1=np.ones(E, np.float32), b1=np.zeros(E, np.float32), g2=np.ones(E, np.float32), b2=np.zeros(E, np.float32))
params = dict(emb=normal(V, E), pos=normal(S, E), blocks=[block() for _ in range(L)], g=np.ones(E, np.float32), b=np.zeros(E, np.float32), head=normal(E, V))


def norm(x, g, b):
    m = x.mean(-1, keepdims=True)
    return (x - m) * jax.lax.rsqrt(((x - m) ** 2).mean(-1, keepdims=True) + 1e-5) * g + b


def attend(q, k, v, seen=None):
    s = q @ k.swapaxes(-1, -2)
    s = s if seen is None else jnp.where(seen, s, -1e9)
    top = jax.lax.stop_gradient(s.max(-1, keepdims=True))
    p = jnp.exp(s - top)
    return top, p.sum(-1, keepdims=True), p @ v


def merged(a, b):
    top = jnp.maximum(a[0], b[0])
    x, y = jnp.exp(a[0] - top), jnp.exp(b[0] - top)
    return top, a[1] * x + b[1] * y, a[2] * x + b[2] * y


def ring(q, k, v):
    here, half, q = jax.lax.axis_index("cp"), N // 2, q / np.sqrt(E // HEADS).astype(np.float32)
    halves = lambda t: (t[:, :, :half], t[:, :, half:])
    early, late = zip(*map(halves, attend(q, k, v, mask)))
    q0, q1 = halves(q)

    def one(carried, step):
        k, v, early, late = carried
        k, v = (jax.lax.ppermute(t, "cp", [(i, (i + 1) % CP) for i in range(CP)]) for t in (k, v))
        (k0, k1), (v0, v1), before = halves(k), halves(v), here >= step
        late = merged(late, attend(q1, k0, v0))
        top, *sums = attend(*(jnp.where(before, a, b) for a, b in ((q0, q1), (k0, k1), (v0, v1))))
        late = merged(late, (jnp.where(before, -1e9, top), *sums))
        early = merged(early, (jnp.where(before, top, -1e9), *sums))
        return (k, v, early, late), None

    (_, _, early, late), _ = jax.lax.scan(one, (k, v, early, late), jnp.arange(1, CP))
    return jnp.concatenate([rows / total for _, total, rows in (early, late)], axis=2)


def loss_of(p, x, y, places):
    h = p["emb"][x] + p["pos"][places]
    for k in p["blocks"]:
        a = norm(h, k["g1"], k["b1"])
        split = lambda t: t.reshape(*t.shape[:2], HEADS, E // HEADS).transpose(0, 2, 1, 3)
        q, kk, v = (split(jnp.einsum("bse,ef->bsf", a, k["qkv"][:, i])) for i in range(3))
        h = h + ring(q, kk, v).transpose(0, 2, 1, 3).reshape(*h.shape[:2], -1) @ k["out"]
        h = h + jax.nn.gelu(norm(h, k["g2"], k["b2"]) @ k["up"]) @ k["down"]
    logits = norm(h, p["g"], p["b"]) @ p["head"]
    return jax.lax.pmean(-jnp.take_along_axis(jax.nn.log_softmax(logits), y[..., None], -1).mean(), "cp")


def step(p, m, v, x, y, places):
    loss, g = jax.value_and_grad(loss_of)(p, x, y, places)
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
    v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)
    return jax.tree.map(lambda p, m, v: p - 3e-4 * m / (jnp.sqrt(v) + 1e-8), p, m, v), m, v, loss


spread = P(None, "cp")
jitted = jax.jit(jax.shard_map(step, mesh=mesh, in_specs=(P(), P(), P(), spread, spread, P("cp")), out_specs=(P(), P(), P(), P())))
place = lambda tree: jax.tree.map(lambda a: jax.device_put(a, NamedSharding(mesh, P())), tree)
zeros = jax.tree.map(np.zeros_like, params)
x, y = (jax.device_put(rng.integers(0, V, (B, S))[:, order], NamedSharding(mesh, spread)) for _ in range(2))
places = jax.device_put(order, NamedSharding(mesh, P("cp")))
call = lambda p, m, v, x, y: jitted(p, m, v, x, y, places)
state = place(params), place(zeros), place(zeros)
start = time.perf_counter()
*state, loss = call(*state, x, y)
loss.block_until_ready()
first, times = time.perf_counter() - start, []
for _ in range(6):
    start = time.perf_counter()
    *state, loss = call(*state, x, y)
    loss.block_until_ready()
    times.append(time.perf_counter() - start)
print(json.dumps({"first": first, "step": min(times), "loss": float(loss), "peak_MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
