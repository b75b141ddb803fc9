"""A program on one chip beside the mesh: each bug is named at its line, and right programs pass."""

import re

import numpy as np
import pytest

from tests.profiling.test_traffic import source
from ttkit import TTKitError, check_on_one_chip, ttnn

HEADS, KV_HEADS, SIZE, LENGTH, DIM, HIDDEN = 16, 8, 32, 32, 256, 512
TILES = {"dtype": ttnn.bfloat16, "layout": ttnn.TILE_LAYOUT}


def numbers(*shape):
    """Values of a weight or an activation, the same each time."""
    values = np.random.default_rng(sum(shape)).normal(size=shape)
    return (values / (shape[-2] ** 0.5 if len(shape) == 2 else 1)).astype(np.float32)


def place(mesh, values, dims):
    mapper = ttnn.ShardTensor2dMesh(mesh, tuple(mesh.shape), dims)
    return ttnn.from_torch(values, device=mesh, mesh_mapper=mapper, **TILES)


def fused(chips, bug):
    """The weights of queries, keys and values: each chip's heads side by side."""
    q, k, v = (numbers(DIM, n * SIZE) for n in (HEADS, KV_HEADS, KV_HEADS))
    if bug == "fused":
        return np.concatenate([q, k, v], 1)
    if bug == "kv":  # They are dealt one by one, and those of the queries in blocks.
        heads = k.reshape(DIM, KV_HEADS // chips, chips, SIZE)
        k = heads.swapaxes(1, 2).reshape(k.shape)
    cut = [np.split(each, chips, 1) for each in (q, k, v)]
    return np.concatenate([each for one in zip(*cut, strict=True) for each in one], 1)


def decoder(bug=""):
    """A layer of attention and an MLP: batch along axis 0, tensor-parallel along axis 1."""

    def layer(mesh):
        chips = tuple(mesh.shape)[1]
        x = place(mesh, numbers(2, 1, LENGTH, DIM), (0, None))
        qkv = ttnn.linear(x, place(mesh, fused(chips, bug), (None, 1)))
        heads = {"num_heads": HEADS // chips, "num_kv_heads": KV_HEADS // chips}
        q, k, v = ttnn.experimental.nlp_create_qkv_heads(qkv, **heads, transpose_k_heads=False)
        y = ttnn.transformer.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = ttnn.experimental.nlp_concat_heads(y)
        y = ttnn.linear(y, place(mesh, numbers(HEADS * SIZE, DIM), (None, 0)))
        x = ttnn.add(x, ttnn.all_reduce(y, cluster_axis=1))
        y = ttnn.linear(ttnn.rms_norm(x), place(mesh, numbers(DIM, HIDDEN), (None, 1)))
        if bug == "gathered":  # All of the hidden features are gathered; each chip needs its own.
            y = ttnn.all_gather(y, 3, cluster_axis=1)
        y = ttnn.rms_norm(y) if bug == "not gathered" else ttnn.silu(y)
        down = place(mesh, numbers(HIDDEN, DIM), (None, 1 if bug == "weight" else 0))
        y = ttnn.linear(y, down)
        if bug == "residual":
            y = ttnn.add(y, x)
        if bug == "unfinished":
            return y
        if bug != "forgotten":
            y = ttnn.all_reduce(y, cluster_axis=0 if bug == "axis" else 1)
        if bug == "doubled":
            y = ttnn.all_reduce(y, cluster_axis=1)
        return y if bug == "residual" else ttnn.add(y, x)

    return layer


@pytest.mark.parametrize("shape", [(1, 2), (2, 4), [1, 8]])
def test_the_right_program(shape):
    assert check_on_one_chip(decoder(), shape) == "19 results equal those on one chip"


@pytest.mark.parametrize(
    "bug, line, words",
    [
        ("axis", "return y if", r"given all_reduce \[1, 1, 32, 256\] at .* given add .* S0 R at"),
        (
            "doubled",
            "y = ttnn.all_reduce(y, cluster_axis=1)",
            "297% .* given all_reduce .* S0 R at",
        ),
        ("forgotten", "return y if", "given linear .* S0 P at .* given add .* S0 R at"),
        ("fused", "q, k, v = ttnn.exp", r"given linear \[1, 1, 32, 256\] S0 S3 at"),
        (
            "kv",
            "q, k, v = ttnn.exp",
            r"nlp_create_qkv_heads \[1, 2, 32, 32\] S0 S1 at .* given lin",
        ),
        ("not gathered", "y = ttnn.rms_norm(y)", "given linear .* S0 S3 at"),
        ("unfinished", "", r"result \[1, 1, 32, 256\] S0 P at the end.* given linear .* S0 P at"),
        ("residual", "y = ttnn.add(y, x)", "given linear .* S0 P at .* given add .* S0 R"),
    ],
)
def test_a_bug_is_named_at_its_line(bug, line, words):
    with pytest.raises(TTKitError) as error:
        check_on_one_chip(decoder(bug), (2, 4))
    text = str(error.value)
    assert not line or source(re.search(r" at (\S+:\d+)", text)[1]).startswith(line)
    assert re.search(words, text, re.S)


@pytest.mark.parametrize("bug", ["weight", "gathered"])
def test_shapes_that_do_not_fit_are_refused_by_their_operation(bug):
    with pytest.raises(TTKitError, match=r"^linear\(\[1, 1, 32, "):
        check_on_one_chip(decoder(bug), (2, 4))
