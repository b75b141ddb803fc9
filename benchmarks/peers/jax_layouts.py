"""JAX on 8 forced host devices: one AdamW step of the small GPT on layouts that share more; 16 x 128 tokens.

`python jax_layouts.py zero2|sp8`, with shard_map and explicit collectives:
zero2: 8 replicas; gradients are reduce-scattered, each device steps its part, weights are gathered.
sp8: as Megatron with sequence parallelism: all-gather into the products, reduce-scatter out of them.
"""
from jax_parts import HEADS, L, V, adam, begun, causal, cross_entropy, heads, norm, put, report, rng, weights
import sys
import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec as P

S, B = 128, 16
SP = sys.argv[1] == "sp8"
TP = 8 if SP else 1
mesh = Mesh(np.array(jax.devices()[:8]), ("x",))
params = weights(S)
spec_block = dict(qkv=P(None, None, "x"), out=P("x", None), up=P(None, "x"), down=P("x", None), g1=P(), b1=P(), g2=P(), b2=P())
split_specs = dict(emb=P(), pos=P(), blocks=[spec_block] * L, g=P(), b=P(), head=P())
first = lambda array: P("x") if array.shape[0] % 8 == 0 else P()
specs = split_specs if SP else jax.tree.map(lambda _: P(), params)
state_specs = split_specs if SP else jax.tree.map(first, params)
gather = lambda h: jax.lax.all_gather(h, "x", axis=1, tiled=True) if SP else h
scatter = lambda h: jax.lax.psum_scatter(h, "x", scatter_dimension=1, tiled=True) if SP else h


def own(array, axis=0):
    size = array.shape[axis] // 8
    return jax.lax.dynamic_slice_in_dim(array, jax.lax.axis_index("x") * size, size, axis)


def loss_of(p, x, y):
    h = p["emb"][x] + p["pos"]
    if SP:  # each device its part of the sequence
        h, y = own(h, 1), own(y, 1)
    for k in p["blocks"]:
        h = h + scatter(causal(*heads(gather(norm(h, k["g1"], k["b1"])), k, HEADS // TP)) @ k["out"])
        h = h + scatter(jax.nn.gelu(gather(norm(h, k["g2"], k["b2"])) @ k["up"]) @ k["down"])
    return cross_entropy(p, h, y) / 8


def reduced(g, spec):
    if SP:  # what lies whole on all devices was used on parts of the sequence
        return g if "x" in spec else jax.lax.psum(g, "x")
    return jax.lax.psum_scatter(g, "x", tiled=True) if "x" in spec else jax.lax.psum(g, "x")


def step(p, m, v, x, y):
    loss, g = jax.value_and_grad(loss_of)(p, x, y)
    g = jax.tree.map(reduced, g, state_specs)
    part = p if SP else jax.tree.map(lambda a, spec: own(a) if "x" in spec else a, p, state_specs)
    part, m, v = adam(part, m, v, g)
    if not SP:
        part = jax.tree.map(lambda a, spec: jax.lax.all_gather(a, "x", tiled=True) if "x" in spec else a, part, state_specs)
    return part, m, v, jax.lax.psum(loss, "x")


data = P() if SP else P("x")
call = jax.jit(jax.shard_map(step, mesh=mesh, in_specs=(specs, state_specs, state_specs, data, data),
                             out_specs=(specs, state_specs, state_specs, P()), check_vma=False))
state = begun(mesh, params, specs, state_specs)
x, y = (put(mesh, rng.integers(0, V, (B, S)), data) for _ in range(2))
report(call, state, x, y)
