"""Attention of one new token against torch, on one chip and on each of eight."""

import pytest

from ttkit import ttnn
from ttkit.dialect import strict
from ttkit.errors import TTKitError

B16 = ttnn.bfloat16
DECODE = ttnn.transformer.scaled_dot_product_attention_decode
# queries, and keys with values
PAIRS = pytest.mark.parametrize("kinds", [("RR", "RR"), ("S0R", "RR"), ("RR", "RS0"), ("S0R", "RS0")], ids="-".join)


def by_torch(torch, positions=None, mask=None, scale=None, window=None):
    """One user after the other, over the keys up to the position."""

    def reference(q, k, v, *others):
        last = positions if positions is not None else [int(n) for n in others[0].flatten()] if others else [k.shape[2] - 1] * q.shape[1]
        outs = []
        for user, position in enumerate(last):
            first = 0 if window is None else max(0, position - window + 1)
            kk, vv = (x[user, :, first : position + 1].repeat_interleave(q.shape[2] // k.shape[1], 0) for x in (k, v))
            outs.append(torch.nn.functional.scaled_dot_product_attention(q[0, user][:, None], kk, vv, scale=scale)[:, 0])
        return torch.stack(outs)[None]

    return reference


def tensors(put, mesh, kinds, heads=4, groups=2, keys=64, dtype=B16):
    q = put(mesh, (1, 3, heads, 32), kinds[0], dtype)
    return q, *(put(mesh, (3, groups, keys, 32), kinds[1], dtype) for _ in range(2))


@pytest.fixture
def placed(put, torch):
    """The query's dim 0 is 1, so a sharded one must be cut along its heads' batch: built from parts of rank 3."""

    def make(mesh, kinds, **options):
        heads, dtype = options.get("heads", 4), options.get("dtype", B16)
        q = ttnn.reshape(put(mesh, (3, heads, 32), kinds[0], dtype), [1, 3, heads, 32])
        return q, *tensors(put, mesh, ("RR", kinds[1]), **options)[1:]

    return make


@PAIRS
@pytest.mark.parametrize("groups", [4, 2, 1])
@pytest.mark.parametrize("positions", [[0, 31, 63], [5, 5, 40]])
def test_positions(mesh, placed, check, torch, kinds, groups, positions):
    q, k, v = placed(mesh, kinds, groups=groups)
    check(DECODE(q, k, v, cur_pos=positions), by_torch(torch, positions), q, k, v)


@PAIRS
@pytest.mark.parametrize("kind", ["RR", "S0R", "RS0"])
def test_positions_of_each_chip(mesh, placed, put, check, torch, kinds, kind):
    q, k, v = placed(mesh, kinds)
    positions = put(mesh, (3,), kind, ttnn.uint32, 64, layout=ttnn.ROW_MAJOR_LAYOUT)
    check(DECODE(q, k, v, cur_pos_tensor=positions), by_torch(torch), q, k, v, positions)


def test_scale_and_window(wide, placed, check, torch):
    q, k, v = placed(wide, ("S0R", "RS0"))
    check(DECODE(q, k, v, cur_pos=[3, 20, 63], scale=0.3, sliding_window_size=10), by_torch(torch, [3, 20, 63], scale=0.3, window=10), q, k, v)


def test_user_that_is_left_out(wide, placed, torch):
    q, k, v = placed(wide, ("RR", "RR"))
    positions = ttnn.from_torch(torch.tensor([3, -1, 5], dtype=torch.int32), dtype=ttnn.int32, device=wide)
    out = ttnn.to_torch(ttnn.get_device_tensors(DECODE(q, k, v, cur_pos_tensor=positions))[0])
    assert not out[0, 1].any() and out[0, 0].any() and out[0, 2].any()


@PAIRS
@pytest.mark.parametrize("users", [1, 3])
def test_mask(mesh, placed, put, check, torch, kinds, users):
    q, k, v = placed(mesh, kinds)
    mask = put(mesh, (users, 1, 4, 64), kinds[1], B16)

    def reference(q, k, v, mask):
        k, v = (x.repeat_interleave(2, 1) for x in (k, v))
        scores = (q[0][:, :, None] @ k.transpose(2, 3))[:, :, 0] / 32**0.5 + mask[:, 0]
        return (scores.softmax(-1)[:, :, None] @ v)[:, :, 0][None]

    check(DECODE(q, k, v, is_causal=False, attn_mask=mask), reference, q, k, v, mask)
    check(DECODE(q, k, v, is_causal=False), by_torch(torch), q, k, v)


def test_same_as_the_last_row_of_attention(wide, put, check, torch):
    q, k, v = (put(wide, (1, 2, 64, 32), "S0R", B16) for _ in range(3))
    whole = ttnn.transformer.scaled_dot_product_attention(q, k, v)
    last = ttnn.reshape(ttnn.slice(q, [0, 0, 63, 0], [1, 2, 64, 32]), [1, 1, 2, 32])
    made = DECODE(last, k, v, cur_pos=[63])
    check(made, lambda w: w[:, :, 63][None], whole)


def test_float32_outside_of_strict(wide, placed, check, torch):
    strict(False)
    q, k, v = placed(wide, ("S0R", "RS0"), dtype=ttnn.float32)
    check(DECODE(q, k, v, cur_pos=[0, 31, 63]), by_torch(torch, [0, 31, 63]), q, k, v)


Q, K, ROWS = (1, 2, 8, 32), (2, 1, 64, 32), ttnn.ROW_MAJOR_LAYOUT
AT = {"cur_pos": [3, 5]}
REFUSED = {
    "query rows": (lambda p: DECODE(p(Q, layout=ROWS), p(K), p(K), **AT), TTKitError, "interleaved ROW_MAJOR Q is not supported"),
    "key rows": (lambda p: DECODE(p(Q), p(K, layout=ROWS), p(K), **AT), TTKitError, "Inputs to SDPA must be tilized except for Q"),
    "type": (lambda p: DECODE(*(p(s, dtype=ttnn.float32) for s in (Q, K, K)), **AT), TTKitError, "Unsupported data type DataType::FLOAT32"),
    "dim 0": (lambda p: DECODE(p((2, 2, 8, 32)), p(K), p(K), **AT), TTKitError, "Q tensor batch size must be 1 for decode mode but got 2"),
    "rank": (lambda p: DECODE(p((2, 8, 32)), p(K), p(K), **AT), TTKitError, "Q must have rank 4"),
    "batch": (lambda p: DECODE(p(Q), p((3, 1, 64, 32)), p((3, 1, 64, 32)), **AT), TTKitError, r"K tensor batch size \(3\) must equal B \(2\)"),
    "size": (lambda p: DECODE(p((1, 2, 8, 64)), p(K), p(K), **AT), TTKitError, r"K tensor hidden dimension \(32\) must equal Q"),
    "lengths": (lambda p: DECODE(p(Q), p(K), p((2, 1, 32, 32)), **AT), TTKitError, "K and V tensors must have the same sequence length. K: 64, V: 32"),
    "chunk": (lambda p: DECODE(p(Q), *[p((2, 1, 40, 32))] * 2, **AT), TTKitError, "the maximum calculated k_chunk_size is: 8"),
    "groups": (lambda p: DECODE(p(Q), *[p((2, 3, 64, 32))] * 2, **AT), TTKitError, "multiple of K heads, but got 8 and 3"),
    "no positions": (lambda p: DECODE(p(Q), p(K), p(K)), TTKitError, "cur_pos needs one position per user"),
    "far": (lambda p: DECODE(p(Q), p(K), p(K), cur_pos=[3, 64]), TTKitError, "cur_pos must be <= K sequence dim"),
    "negative": (lambda p: DECODE(p(Q), p(K), p(K), cur_pos=[3, -1]), TypeError, "incompatible function arguments"),
    "few positions": (lambda p: DECODE(p(Q), p(K), p(K), cur_pos_tensor=p((1,), dtype=ttnn.uint32, low=9)), TTKitError, "at least one position per batch"),
    "host": (lambda p: DECODE(p(Q), p(K).cpu(), p(K), **AT), TTKitError, "Device Operations expect device tensors as inputs"),
    "mask and causal": (lambda p: DECODE(p(Q), p(K), p(K), attn_mask=p((2, 1, 8, 64)), **AT), TTKitError, "must not be provided when is_causal=True"),
    "mask heads": (lambda p: DECODE(p(Q), p(K), p(K), is_causal=False, attn_mask=p((2, 1, 1, 64))), TTKitError, "same number of heads in mask as in Q"),
    "mask keys": (lambda p: DECODE(p(Q), p(K), p(K), is_causal=False, attn_mask=p((2, 1, 8, 32))), TTKitError, "same sequence length in mask as in K"),
    "shared": (lambda p: DECODE(p(Q), p(K), p(K), share_cache=True, **AT), TTKitError, "shared caches are not simulated"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(wide, put, case):
    call, kind, message = REFUSED[case]
    with pytest.raises(kind, match=message):
        call(lambda *args, **options: put(wide, *args, **{"dtype": B16, **options}))
