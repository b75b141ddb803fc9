"""Attention of later queries, on every chip's own users and heads, against float64."""

import formulas
import numpy as np
import pytest

import ttkit
from ttkit import ttnn

RANDOM = np.random.default_rng(5)
F32 = ttnn.float32


def normal(*shape):
    return RANDOM.standard_normal(shape, np.float32)


def attention(q, k, v, seen, scale=None):
    """[heads, s, d] of key heads [groups, n, d], where `seen` [heads, s, n] or less is true."""
    q, k, v = (x[None].astype(np.float64) for x in (q, k, v))
    return formulas.attention(q, k, v, np.where(seen, 0, -np.inf), scale)[0]


@pytest.mark.parametrize("window", [None, 5])
@pytest.mark.parametrize("listed", [False, True])
def test_one_token_of_each_user(box, cut, parts, window, listed):
    rows, columns = box.shape
    users = 3 if listed else 3 * rows
    over = None if listed else 0
    query = cut(box, normal(1, users, 4 * columns, 32), (None if listed else 1, 2), F32)
    key, value = (cut(box, normal(users, 2 * columns, 64, 32), (over, 1), F32) for _ in range(2))
    positions = np.tile(np.array([40, 0, 17], np.int32), users // 3)
    where = cut(box, positions, (over, None))
    how = {"cur_pos": positions.tolist()} if listed else {"cur_pos_tensor": where}
    how |= {"sliding_window_size": window, "scale": 0.3}
    got = ttnn.transformer.scaled_dot_product_attention_decode(query, key, value, **how)
    assert list(got.shape) == [1, 3, 4, 32]
    for new, q, k, v, at in zip(parts(got), *map(parts, (query, key, value, where))):
        for user in range(3):
            behind = at[user] - np.arange(64)
            seen = (behind >= 0) & (behind < (window or 64))
            wanted = attention(q[0, user][:, None], k[user], v[user], seen, 0.3)
            np.testing.assert_allclose(new[0, user], wanted[:, 0], rtol=1e-4, atol=1e-5)


def test_masks_and_skipped_users(box, cut, parts):
    query = cut(box, normal(1, 2, 4, 32), (None, None), F32)
    key, value = (cut(box, normal(2, 1, 32, 32), (None, None), F32) for _ in range(2))
    seen = RANDOM.random((2, 4, 32)) < 0.5
    mask = np.where(seen, 0, -1e9).astype(np.float32)
    decode = ttnn.transformer.scaled_dot_product_attention_decode
    for shape in ((1, 2, 4, 32), (2, 1, 4, 32)):
        masked = {"is_causal": False, "attn_mask": cut(box, mask.reshape(shape))}
        got = decode(query, key, value, **masked)
        for new, q, k, v in zip(parts(got), *map(parts, (query, key, value))):
            for user in range(2):
                wanted = attention(q[0, user][:, None], k[user], v[user], seen[user][:, None])
                np.testing.assert_allclose(new[0, user], wanted[:, 0], rtol=1e-4, atol=1e-5)
    skipped = parts(decode(query, key, value, cur_pos=[-1, 3]))
    assert not any(x[0, 0].any() for x in skipped) and all(x[0, 1].any() for x in skipped)
    assert not any(x.any() for x in parts(decode(query, key, value, cur_pos=[-1, -1])))
    shared = decode(query, key, value, cur_pos=[3, 3])
    one = [ttnn.slice(each, (0,) * 4, (1, 1, 32, 32)) for each in (key, value)]
    first = decode(query, *one, cur_pos=[3, 3], share_cache=True)
    for a, b in zip(parts(shared), parts(first)):
        np.testing.assert_allclose(a[0, 0], b[0, 0], rtol=1e-6)


def test_pages_and_chunks_equal_whole_caches(box, cut, parts):
    rows, columns = box.shape
    size, users, length = 32, 2 * rows, 128
    keys, values = (normal(users, 2 * columns, length, size) for _ in range(2))
    order = np.stack([RANDOM.permutation(8) for _ in range(rows)]).astype(np.int32)
    pages = np.zeros((2, 8 * rows, 2 * columns, 32, size), np.float32)
    for row in range(rows):
        for user in range(2):
            for page in range(4):
                place = row * 8 + order[row][user * 4 + page]
                part = slice(32 * page, 32 * page + 32)
                for kept, given in zip(pages, (keys, values)):
                    kept[place] = given[2 * row + user, :, part]
    table = cut(box, order.reshape(-1, 4), (0, None))
    key, value = (cut(box, x, (0, 1), F32) for x in pages)
    whole = [cut(box, x, (0, 1), F32) for x in (keys, values)]
    query = cut(box, normal(1, users, 4 * columns, size), (1, 2), F32)
    positions = cut(box, np.tile(np.array([70, 5], np.int32), rows), (0, None))
    decode = ttnn.transformer.scaled_dot_product_attention_decode
    paged = ttnn.transformer.paged_scaled_dot_product_attention_decode
    one = decode(query, *whole, cur_pos_tensor=positions)
    two = paged(query, key, value, table, cur_pos_tensor=positions)
    for a, b in zip(parts(one), parts(two)):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    prompt = normal(users, 4 * columns, length, size)
    full = ttnn.transformer.scaled_dot_product_attention(cut(box, prompt, (0, 1), F32), *whole)
    later = cut(box, prompt[:, :, 64:], (0, 1), F32)
    start = {"chunk_start_idx_tensor": cut(box, np.array([64], np.int32))}
    for how in ({"chunk_start_idx": 64}, start):
        chunk = ttnn.transformer.chunked_scaled_dot_product_attention(
            later, key, value, table, **how
        )
        for a, b in zip(parts(full), parts(chunk)):
            np.testing.assert_allclose(a[:, :, 64:], b, rtol=1e-4, atol=1e-5)


def test_a_layer_decoded_token_by_token_equals_a_full_forward(box, cut, parts, on_cores):
    """Grouped heads over columns, users over rows; prefill of 32 tokens, then 16 steps."""
    rows, columns = box.shape
    heads, groups, size, width, prefill, steps = 4, 2, 32, 64, 32, 16
    many = (heads + 2 * groups) * size
    weight = cut(box, normal(1, 1, width, columns * many) * 0.2, (None, 3))
    inputs = normal(rows, 1, prefill + steps, width)
    whole, first = (cut(box, inputs[:, :, :n], (0, None)) for n in (prefill + steps, prefill))
    split = {"num_heads": heads, "num_kv_heads": groups}

    def full(x):
        product = ttnn.matmul(x, weight)
        made = ttnn.experimental.nlp_create_qkv_heads(product, transpose_k_heads=False, **split)
        joined = ttnn.transformer.scaled_dot_product_attention(*made)
        return ttnn.experimental.nlp_concat_heads(joined), made[1:]

    wanted, _ = full(whole)
    got, kept = full(first)
    caches = [cut(box, np.zeros((1, groups, 64, size), np.float32)) for _ in kept]
    for cache, part in zip(caches, kept):
        ttnn.fill_cache(cache, part, 0)
    at = cut(box, np.array([prefill], np.int32))
    outputs = [parts(got)]
    for step in range(prefill, prefill + steps):
        token = cut(box, inputs[:, :, step : step + 1], (0, None))
        query, *new = ttnn.experimental.nlp_create_qkv_heads_decode(
            ttnn.matmul(token, weight), **split
        )
        for cache, part in zip(caches, new):
            ttnn.experimental.paged_update_cache(cache, part, update_idxs_tensor=at)
        found = ttnn.transformer.scaled_dot_product_attention_decode(
            query, *caches, cur_pos_tensor=at
        )
        joined = ttnn.experimental.nlp_concat_heads_decode(on_cores(found), num_heads=heads)
        outputs.append([x[:, :, :1] for x in parts(joined)])
        ttnn.plus_one(at)
    for chip, want in enumerate(parts(wanted)):
        have = np.concatenate([shards[chip] for shards in outputs], 2)
        np.testing.assert_allclose(have, want, rtol=0.03, atol=0.03)


@pytest.mark.parametrize("name, groups", [("attn_matmul", 1), ("group_attn_matmul", 2)])
def test_products_of_each_user(box, cut, check, name, groups):
    columns = box.shape[1]
    a = cut(box, normal(1, 4 * columns, 32, 64), (None, 1), F32)
    b = cut(box, normal(32, groups, 64, 96), (None, None), F32)
    got = getattr(ttnn.experimental, name)(a, b, compute_with_storage_grid_size=None)

    def formula(x, y):
        return np.einsum("ahuk,uhkn->ahun", x, np.repeat(y, 4 // groups, 1))

    check(got, formula, a, b, additions=512)
    output = ttnn.zeros_like(got)
    into = "output_tensor" if name == "attn_matmul" else "optional_output_tensor"
    how = {"compute_with_storage_grid_size": None, into: output}
    assert getattr(ttnn.experimental, name)(a, b, **how) is output
    np.testing.assert_array_equal(output.full_array(), got.full_array())


def test_refused(wide, cut):
    query, key = cut(wide, normal(1, 2, 4, 32)), cut(wide, normal(2, 2, 64, 32))
    for given in [3], []:
        with pytest.raises(ttkit.TTKitError, match=f"{len(given)} positions for 2 users"):
            ttnn.transformer.scaled_dot_product_attention_decode(query, key, key, cur_pos=given)
    table, far = cut(wide, np.full((2, 2), 9, np.int32)), cut(wide, np.array([3, 3], np.int32))
    paged = ttnn.transformer.paged_scaled_dot_product_attention_decode
    with pytest.raises(ttkit.TTKitError, match="index 9 is out of bounds"):
        paged(query, key, key, table, cur_pos_tensor=far)
