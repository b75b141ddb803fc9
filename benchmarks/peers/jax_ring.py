"""JAX on 8 forced host devices: one AdamW step of the small GPT on long sequences, with ring attention over
`ppermute`. `python jax_ring.py`. Prints one JSON line.

2 x 1024 tokens. The sequence is in zig-zag order, so that the causal mask costs half of each later step here, too: the
same products as ttkit's.
"""
from jax_parts import E, HEADS, V, adam, begun, cross_entropy, heads, norm, put, report, rng, side_by_side, weights
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec as P

S, B, CP = 1024, 2, 8
N = S // CP  # positions of a device, in two chunks
mesh = Mesh(np.array(jax.devices()), ("cp",))
mask = np.tril(np.ones((N, N), bool))
chunks = np.arange(S).reshape(2 * CP, -1)
order = np.concatenate([chunks[[i, 2 * CP - 1 - i]].ravel() for i in range(CP)])
params = weights(S)
whole = jax.tree.map(lambda _: P(), params)


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
        h = h + side_by_side(ring(*heads(norm(h, k["g1"], k["b1"]), k))) @ k["out"]
        h = h + jax.nn.gelu(norm(h, k["g2"], k["b2"]) @ k["up"]) @ k["down"]
    return jax.lax.pmean(cross_entropy(p, h, y), "cp")


def step(p, m, v, x, y, places):
    loss, g = jax.value_and_grad(loss_of)(p, x, y, places)
    return *adam(p, m, v, g), loss


spread = P(None, "cp")
jitted = jax.jit(jax.shard_map(step, mesh=mesh, in_specs=(P(), P(), P(), spread, spread, P("cp")), out_specs=(P(), P(), P(), P())))
x, y = (put(mesh, rng.integers(0, V, (B, S))[:, order], spread) for _ in range(2))
places = put(mesh, order, P("cp"))
call = lambda p, m, v, x, y: jitted(p, m, v, x, y, places)
state = begun(mesh, params, whole, whole)
report(call, state, x, y)
