"""Softmax, attention, heads and positions against formulas, on one chip and on each of eight."""

from functools import partial

import numpy as np
import pytest
from formulas import attention, causal, join_heads, softmax, split_heads

import ttkit
from ttkit import ttnn
from ttkit.errors import TTKitError

B16 = ttnn.bfloat16
KINDS = pytest.mark.parametrize("kind", ["RR", "S0R", "RS0"])
FLOATS = pytest.mark.parametrize("dtype", [ttnn.float32, ttnn.bfloat16], ids=str)
# queries, and keys with values
PAIRS = pytest.mark.parametrize(
    "kinds", [("RR", "RR"), ("S0R", "RR"), ("RR", "RS0"), ("S0R", "RS0")], ids="-".join
)
SDPA = ttnn.transformer.scaled_dot_product_attention


@PAIRS
@pytest.mark.parametrize("length, groups", [(32, 4), (40, 1), (300, 2)])
def test_causal(mesh, put, check, kinds, length, groups):
    q = put(mesh, (2, 4, length, 32), kinds[0], B16)
    k, v = (put(mesh, (2, groups, length, 32), kinds[1], B16) for _ in range(2))
    mask = causal(length)
    check(SDPA(q, k, v), lambda *qkv: attention(*qkv, mask), q, k, v, additions=length)


def test_causal_in_float32(wide, put, check):
    q, k, v = (put(wide, (1, 2, 300, 32), kind) for kind in ("S0R", "RR", "RS0"))
    check(SDPA(q, k, v), lambda q, k, v: attention(q, k, v, causal(300)), q, k, v, additions=300)


@PAIRS
@pytest.mark.parametrize("queries, keys", [(32, 64), (160, 320)])
def test_not_causal(mesh, put, check, kinds, queries, keys):
    q = put(mesh, (1, 4, queries, 64), kinds[0], B16)
    k, v = (put(mesh, (1, 2, keys, 64), kinds[1], B16) for _ in range(2))
    made = SDPA(q, k, v, is_causal=False, scale=0.3)
    check(made, lambda *qkv: attention(*qkv, scale=0.3), q, k, v, additions=keys)


@PAIRS
@pytest.mark.parametrize(
    "front, length", [((1, 1), 32), ((2, 1), 32), ((1, 4), 160), ((2, 4), 160)], ids=str
)
def test_mask(mesh, put, check, kinds, front, length):
    q = put(mesh, (2, 4, length, 32), kinds[0], B16)
    k, v = (put(mesh, (2, 2, length, 32), "RR", B16) for _ in range(2))
    mask = put(mesh, (*front, length, length), kinds[1], B16)
    made = SDPA(q, k, v, attn_mask=mask, is_causal=False)
    check(made, attention, q, k, v, mask, additions=length)


@pytest.mark.parametrize("past", [True, False])
@pytest.mark.parametrize("length, window", [(32, 5), (600, 40), (600, 300)])
def test_window(wide, put, check, past, length, window):
    q, k, v = (put(wide, (1, 2, length, 32), "S0R", B16) for _ in range(3))
    behind = np.arange(length)[:, None] - np.arange(length)
    seen = (behind >= 0) & (behind < window) if past else np.abs(behind) <= window // 2
    mask = np.where(seen, 0, -np.inf)
    made = SDPA(q, k, v, is_causal=past, sliding_window_size=window)
    check(made, lambda *qkv: attention(*qkv, mask), q, k, v, additions=length)


def cut(x, heads, groups, transpose):
    """Heads of 32 from [queries, keys, values] in the last dimension; keys perhaps transposed."""
    parts = np.split(x, [heads * 32, (heads + groups) * 32], -1)
    q, k, v = map(split_heads, parts, (heads, groups, groups))
    return q, k.swapaxes(2, 3) if transpose else k, v


@KINDS
@pytest.mark.parametrize("transpose, groups", [(True, None), (False, 2), (True, 1)])
def test_making_heads(mesh, put, check, kind, transpose, groups):
    width = (4 + 2 * (groups or 4)) * 32
    x = put(mesh, (2, 40, width), kind, B16)
    how = {"num_heads": 4, "num_kv_heads": groups}
    split = ttnn.transformer.split_query_key_value_and_split_heads
    made = split(x, **how, transpose_key=transpose)
    assert isinstance(made, tuple)
    check(made, lambda x: cut(x, 4, groups or 4, transpose), x)
    x = put(mesh, (2, 1, 40, width), kind, B16)
    made = ttnn.experimental.nlp_create_qkv_heads(x, **how, transpose_k_heads=transpose)
    check(made, lambda x: cut(x, 4, groups or 4, transpose), x)


@pytest.mark.parametrize("kinds", [("S0R", "RR"), ("RR", "RS0"), ("S0R", "RS0")], ids="-".join)
def test_making_heads_of_two_tensors(wide, put, check, kinds):
    x, kv = put(wide, (2, 1, 32, 128), kinds[0]), put(wide, (2, 1, 32, 128), kinds[1])

    def reference(x, kv):
        return cut(np.concatenate([x, kv], -1), 4, 2, True)

    made = ttnn.experimental.nlp_create_qkv_heads(x, kv, num_heads=4, num_kv_heads=2)
    for ours, place in zip(made, range(3), strict=True):
        check(ours, lambda *a, i=place: reference(*a)[i], x, kv)


@KINDS
def test_joining_heads(mesh, put, check, kind):
    x = put(mesh, (2, 3, 33, 64), kind, B16)
    check(ttnn.transformer.concatenate_heads(x), lambda x: join_heads(x)[:, 0], x)
    check(ttnn.experimental.nlp_concat_heads(x), join_heads, x)


@FLOATS
@pytest.mark.parametrize("kind", ["RR", "S0R"])
def test_softmax_in_place(mesh, put, check, dtype, kind):
    given = put(mesh, (2, 3, 32, 64), kind, dtype)
    of_rows, of_all = put(mesh, (2, 1, 1, 64), "RR", dtype), put(mesh, (1, 1, 32, 64), "RR", dtype)
    for call, scale, mask in (
        (lambda x, m: ttnn.transformer.attention_softmax_(x, head_size=64, attention_mask=m), 1 / 8, of_rows),
        (lambda x, m: ttnn.scale_mask_softmax_in_place(x, 0.5, m), 0.5, of_rows),
        (lambda x, m: ttnn.scale_causal_mask_hw_dims_softmax_in_place(
            x, 0.5, m, program_config=ttnn.SoftmaxDefaultProgramConfig()), 0.5, of_all),
        (lambda x, m: ttnn.softmax_in_place(x, dim=-1, numeric_stable=False), 1, ttnn.zeros_like(of_all)),
    ):  # fmt: skip
        x = ttnn.clone(given)
        assert call(x, mask) is x
        check(x, lambda x, m, s=scale: softmax(x * s + m), given, mask, additions=64)


@FLOATS
@pytest.mark.parametrize("kind", ["RR", "S0R"])
def test_softmax_with_a_mask(mesh, put, check, dtype, kind):
    x, mask = put(mesh, (2, 3, 32, 64), kind, dtype), put(mesh, (2, 1, 1, 64), "RR", dtype)
    before = ttnn.clone(x)
    scaled = ttnn.scale_mask_softmax(x, 0.5, mask, numeric_stable=True)
    check(scaled, lambda x, m: softmax(x * 0.5 + m), before, mask, additions=64)
    # Whether the mask is causal is a hint: its shape says to which rows it belongs.
    how = {"head_size": 64, "attention_mask": mask, "causal_mask": True}
    divided = ttnn.transformer.attention_softmax(x, **how)
    check(divided, lambda x, m: softmax(x / 8 + m), before, mask, additions=64)
    check(x, lambda x: x, before)


@FLOATS
@PAIRS
@pytest.mark.parametrize("token", [None, 5])
def test_rotary_by_halves(mesh, put, check, dtype, kinds, token):
    x = put(mesh, (2, 3, 32, 64), kinds[0], dtype)
    cos, sin = (put(mesh, (1, 1, 96, 64), kinds[1], dtype) for _ in range(2))

    def reference(x, cos, sin):
        rows = slice(0, 32) if token is None else slice(token, token + 1)
        turned = np.concatenate([-x[..., 32:], x[..., :32]], -1)
        return x * cos[..., rows, :] + turned * sin[..., rows, :]

    check(ttnn.experimental.rotary_embedding(x, cos, sin, token), reference, x, cos, sin)


def test_rotary_gives_whole_tiles(wide, put, parts):
    x, cache = put(wide, (1, 3, 20, 64), "S0R"), put(wide, (1, 1, 32, 64))
    out = ttnn.experimental.rotary_embedding(x, cache, cache)
    assert list(out.shape) == [1, 3, 32, 64]
    assert not parts(out)[7][:, :, 20:].any()


@PAIRS
@pytest.mark.parametrize("heads", [1, 3])
def test_rotary_by_neighbours(mesh, put, check, kinds, heads):
    x = put(mesh, (2, 3, 32, 64), kinds[0], B16)
    kind = kinds[1] if heads == 1 else "RR"
    cos, sin = (put(mesh, (1, heads, 96, 64), kind, B16) for _ in range(2))
    pairs = np.zeros((1, 1, 32, 32), np.float32)
    pairs[..., range(0, 32, 2), range(1, 32, 2)] = 1
    pairs[..., range(1, 32, 2), range(0, 32, 2)] = -1
    matrix = ttkit.from_numpy(pairs, dtype=B16, layout=ttnn.TILE_LAYOUT, device=mesh)

    def reference(x, cos, sin):
        turned = np.stack([-x[..., 1::2], x[..., ::2]], -1).reshape(x.shape)
        return x * cos[..., :32, :] + turned * sin[..., :32, :]

    check(ttnn.experimental.rotary_embedding_llama(x, cos, sin, matrix), reference, x, cos, sin)


def test_rotary_by_neighbours_of_one_token(wide, put, check, on_cores):
    x = put(wide, (1, 8, 4, 32), "S0R", B16)
    cos, sin = (put(wide, (1, 8, 1, 32), kind, B16) for kind in ("RR", "RS0"))
    one = np.eye(32, dtype=np.float32)[None, None]
    eye = ttkit.from_numpy(one, dtype=B16, layout=ttnn.TILE_LAYOUT, device=wide)
    turn = partial(ttnn.experimental.rotary_embedding_llama, is_decode_mode=True)
    with pytest.raises(TTKitError, match="Expect input_tensor to be sharded"):
        turn(x, cos, sin, eye)
    out = turn(on_cores(x), cos, sin, eye)
    check(out, lambda x, cos, sin: x * cos + x * sin, x, cos, sin)


# ---------------------------------------------------------------- softmax
@FLOATS
@KINDS
@pytest.mark.parametrize("dim", [-1, 1, 0])
def test_softmax(mesh, put, check, dtype, kind, dim):
    x = put(mesh, (3, 33, 50), kind, dtype)
    for made in (ttnn.softmax(x, dim), ttnn.softmax(x, dim=dim, numeric_stable=False)):
        check(made, lambda x: softmax(x, dim), x, additions=50)


def test_softmax_of_huge_values(wide, parts):
    huge = np.float32([[1e30, 0, -1e30, -np.inf]])
    x = ttkit.from_numpy(huge, layout=ttnn.TILE_LAYOUT, device=wide)
    assert parts(ttnn.softmax(x))[0].tolist() == [[1, 0, 0, 0]]


Q, ROTARY = (1, 4, 64, 32), ttnn.experimental.rotary_embedding


def masked(q, k, v, mask, **how):
    return SDPA(q, k, v, attn_mask=mask, **how or {"is_causal": False})


REFUSED = [
    (SDPA, (Q, (1, 4, 64, 64), (1, 4, 64, 64)), "do not fit together"),
    (SDPA, ((2, 4, 64, 32), Q, Q), r"K tensor batch size \(1\) must equal B \(2\)"),
    (masked, (Q, Q, Q, (1, 2, 64, 64)), "the shapes do not fit together"),
    (partial(masked, is_causal=True), (Q, Q, Q, (1, 1, 64, 64)), "cannot both be present"),
    (SDPA, (Q, (1, 3, 64, 32), (1, 3, 64, 32)), r"divisible by K num_heads. Got Q: \d+, K: 3"),
    (ttnn.transformer.concatenate_heads, ((3, 32, 64),), "not enough values to unpack"),
    (ROTARY, ((1, 3, 64, 64), *[(1, 1, 32, 64)] * 2), "32 positions do not cover the 64 of the"),
]


@pytest.mark.parametrize("call, shapes, message", REFUSED)
def test_refused(wide, put, call, shapes, message):
    with pytest.raises(TTKitError, match=message):
        call(*(put(wide, shape, dtype=B16) for shape in shapes))
