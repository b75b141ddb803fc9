"""Caches: what each operation writes, on every chip's own shards, and what it refuses."""

import numpy as np
import pytest

import ttkit
from ttkit import ttnn

RANDOM = np.random.default_rng(3)


def values(*shape):
    """Random values that bfloat16 and bfloat8_b can represent."""
    return RANDOM.integers(-100, 101, shape).astype(np.float32)


def ints(*numbers):
    return np.array(numbers, np.int32)


@pytest.mark.parametrize("dtype", [ttnn.bfloat16, ttnn.float32, ttnn.bfloat8_b])
def test_fill_and_update(box, cut, parts, dtype):
    rows, columns = box.shape
    cache = cut(box, values(4, columns, 64, 32), (None, 1), dtype)
    prompt = cut(box, values(rows, columns, 32, 32), (0, 1), dtype)
    token = cut(box, values(1, columns, 32, 32), (None, 1))
    before, other = parts(cache), ttnn.add(cache, 0.0)
    seen = parts(other)
    assert ttnn.fill_cache(cache, prompt, 2, update_idx=32) is cache
    assert ttnn.update_cache(cache, token, 7, batch_offset=3) is cache
    for old, new, given, one in zip(before, parts(cache), parts(prompt), parts(token)):
        old = old.copy()
        old[2, :, 32:] = given[0]
        old[:, :, 7] = one[0, :, 3:7].swapaxes(0, 1)
        np.testing.assert_array_equal(new, old)
    for old, new in zip(seen, parts(other)):
        np.testing.assert_array_equal(old, new)


def test_names_of_kv_cache(box, cut, parts):
    one, two = (cut(box, np.zeros((2, 1, 64, 32), np.float32)) for _ in range(2))
    prompt = cut(box, values(1, 1, 32, 32))
    ttnn.fill_cache(one, prompt, 1)
    ttnn.kv_cache.fill_cache_for_user_(two, prompt, batch_index=1)
    for a, b in zip(parts(one), parts(two)):
        np.testing.assert_array_equal(a, b)
        assert a[1].any()


def test_an_array_that_others_share_is_not_written_into(box, cut):
    cache, token = cut(box, values(2, 1, 64, 32)), cut(box, values(1, 1, 32, 32))
    shared = ttnn.reshape(cache, (2, 1, 64, 32))
    shown = shared.array.copy()
    ttnn.update_cache(cache, token, 5)
    np.testing.assert_array_equal(shared.array, shown)
    held = cache.array
    kept = held.copy()
    ttnn.update_cache(cache, token, 6)
    np.testing.assert_array_equal(held, kept)
    del held
    written = id(cache.array)
    ttnn.update_cache(cache, token, 7)
    assert id(cache.array) == written  # nothing else refers to it: no copy


def test_a_position_for_each_user(box, cut, parts, on_cores):
    rows = box.shape[0]
    cache = cut(box, values(4 * rows, 2, 64, 32), (0, None), ttnn.bfloat8_b)
    token = on_cores(cut(box, values(1, 4 * rows, 2, 32), (1, None)))
    positions = np.arange(4 * rows, dtype=np.int32) * 3 % 64
    positions[::4] = -1
    before = parts(cache)
    where = cut(box, positions, (0, None))
    ttnn.experimental.paged_update_cache(cache, token, update_idxs_tensor=where)
    for old, new, given, at in zip(before, parts(cache), parts(token), parts(where)):
        old = old.copy()
        for user, position in enumerate(at):
            if position >= 0:
                old[user, :, position] = given[0, user]
        np.testing.assert_array_equal(new, old)
    again = parts(cache)
    here = {ttnn.MeshCoordinate(1, 2)}
    ttnn.experimental.paged_update_cache(cache, token, update_idxs=[63] * 4, mesh_coords=here)
    changed = [not np.array_equal(a, b) for a, b in zip(again, parts(cache))]
    assert changed == [chip == box.shape[1] + 2 for chip in range(len(changed))]


def test_users_share_a_cache(box, cut, parts, on_cores):
    cache, token = cut(box, np.zeros((1, 1, 32, 32), np.float32)), values(1, 2, 1, 32)
    there = on_cores(cut(box, token))
    ttnn.experimental.paged_update_cache(cache, there, update_idxs=[3, 9], share_cache=True)
    for new in parts(cache):
        np.testing.assert_array_equal(new[0, 0, [3, 9]], token[0, :, 0])


def test_pages(box, cut, parts, on_cores):
    rows, columns = box.shape
    keys = cut(box, values(8, columns, 32, 32), (None, 1))
    other = cut(box, values(8, columns, 32, 32), (None, 1))
    pages = np.stack([RANDOM.permutation(8)[:6].reshape(2, 3) for _ in range(rows)])
    pages = pages.reshape(-1, 3).astype(np.int32)
    table = cut(box, pages, (0, None))
    prompt = cut(box, values(1, columns, 80, 32), (None, 1))
    token = on_cores(cut(box, values(1, 2 * rows, columns, 32), (1, 2)))
    positions = cut(box, np.tile(ints(81, 33), rows), (0, None))
    before, twice = parts(keys), parts(other)
    ttnn.experimental.paged_fill_cache(keys, prompt, table, batch_idx=1)
    ttnn.experimental.paged_fused_update_cache(
        keys, token, other, token, update_idxs_tensor=positions, page_table=table
    )
    found = zip(before, twice, parts(keys), parts(other), parts(table), parts(prompt), parts(token))
    for old, second, new, newer, own, given, one in found:
        old, second = old.copy(), second.copy()
        for position in range(80):
            old[own[1, position // 32], :, position % 32] = given[0, :, position]
        for cache in (old, second):
            cache[own[0, 2], :, 81 - 64] = one[0, 0]
            cache[own[1, 1], :, 1] = one[0, 1]
        np.testing.assert_array_equal(new, old)
        np.testing.assert_array_equal(newer, second)


def test_positions_and_pages_repeated_for_each_core(wide, parts, on_cores):
    """Sharded over cores, they are in ttnn once for each core."""
    token = on_cores(ttnn.from_torch(values(1, 2, 1, 32), ttnn.bfloat16, device=wide))
    query = ttnn.to_memory_config(token, ttnn.DRAM_MEMORY_CONFIG)
    # User 0 is skipped, although a page table of UINT16 cannot hold -1.
    table, places, found = np.uint16([[1, 4, 2], [0, 3, 5]]), ints(-1, 33), []
    content = values(6, 1, 32, 32)
    for cores in (1, 4):
        rows = ttnn.from_torch(np.tile(table, (cores, 1)), device=wide)
        at = ttnn.from_torch(np.tile(places, (cores, 1) if cores > 1 else 1), device=wide)
        cache = ttnn.from_torch(content, ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=wide)
        how = {"update_idxs_tensor": at, "page_table": rows}
        ttnn.experimental.paged_update_cache(cache, token, **how)
        decode = ttnn.transformer.paged_scaled_dot_product_attention_decode
        made = decode(query, cache, cache, rows, cur_pos_tensor=at)
        found.append([*parts(cache), *parts(made)])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
    assert not np.array_equal(found[0][0], content)


def test_several_users_fill_their_pages_and_one_is_skipped(box, cut, parts):
    cache = cut(box, np.zeros((4, 1, 32, 32), np.float32))
    prompt = values(2, 1, 32, 32)
    users = cut(box, ints(1, -1))
    table = cut(box, ints(2, 0, 3, 1).reshape(4, 1))
    ttnn.experimental.paged_fill_cache(cache, cut(box, prompt), table, batch_idx_tensor=users)
    for new in parts(cache):
        np.testing.assert_array_equal(new[0], prompt[0])
        assert not new[1:].any()


def test_a_trace_writes_again(box, cut, parts):
    cache, token = cut(box, np.zeros((1, 1, 32, 32), np.float32)), values(1, 1, 1, 32)
    given = cut(box, token)
    trace = ttnn.begin_trace_capture(box)
    ttnn.update_cache(cache, given, 4)
    ttnn.end_trace_capture(box, trace)
    host = ttnn.from_torch(2 * token, dtype=ttnn.bfloat16, layout=ttnn.TILE_LAYOUT)
    ttnn.copy_host_to_device_tensor(host, given)
    ttnn.execute_trace(box, trace)
    for new in parts(cache):
        np.testing.assert_array_equal(new[0, 0, 4], 2 * token[0, 0, 0])


def test_refusals(wide, cut, on_cores):
    cache, token = cut(wide, values(4, 2, 64, 32)), cut(wide, values(1, 2, 32, 32))
    row, one = on_cores(cut(wide, values(1, 4, 2, 32))), cut(wide, values(1, 1, 32, 32))
    table = cut(wide, np.zeros((4, 2), np.int32))
    paged = ttnn.experimental.paged_update_cache
    where = {"page_table": table}
    for phrase, call in {
        "index 64 is out of bounds": lambda: ttnn.update_cache(cache, token, 64),
        "index 1 is out of bounds": lambda: paged(cache, row, update_idxs=[0, 0, 0, 99]),
        "the shapes do not fit together": lambda: paged(cache, row, update_idxs=[0]),
        "Input tensor heads and width (1, 32) must": lambda: ttnn.fill_cache(cache, one, 0),
        "size not equal to one": lambda: ttnn.fill_cache(cache, cache, 0),
        "out of bounds": lambda: paged(
            cache, row, update_idxs_tensor=cut(wide, ints(200, 0, 0, 0)), **where
        ),
    }.items():
        with pytest.raises(ttkit.errors.TTKitError) as error:
            call()
        assert phrase in str(error.value)
