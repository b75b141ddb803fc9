"""Heads and positions of one token of each user, on every chip's own heads."""

import numpy as np

import ttkit
from ttkit import ttnn


def test_heads_of_one_token(box, cut, parts):
    """Three users, 4 query heads and 2 key heads on each column."""
    columns, many = box.shape[1], 8 * 32
    fused = np.random.default_rng(2).standard_normal((1, 1, 3, columns * many), np.float32)
    given = cut(box, fused, (None, 3))
    made = ttnn.experimental.nlp_create_qkv_heads_decode(given, num_heads=4, num_kv_heads=2)
    assert all(t.is_sharded() for t in made)
    offset = cut(box, np.arange(columns, dtype=np.int32) % 2, (None, 0))
    some = ttnn.experimental.nlp_create_qkv_heads_decode(
        given, num_heads=4, num_kv_heads=2, batch_offset=offset, slice_size=2
    )
    joined = ttnn.experimental.nlp_concat_heads_decode(made[0], num_heads=4)
    chips = zip(*map(parts, (given, *made, joined, offset, *some)))
    for x, query, key, value, back, first, *slices in chips:
        wanted = np.split(x.reshape(1, 3, 8, 32), (4, 6), 2)
        for got, want, part in zip((query, key, value), wanted, slices):
            np.testing.assert_array_equal(got, want)
            np.testing.assert_array_equal(part, want[:, first[0] : first[0] + 2])
        np.testing.assert_array_equal(back[0, 0, :3], x[0, 0, :, :128])
        assert back.shape == (1, 1, 32, 128) and not back[0, 0, 3:].any()


def test_heads_of_falcon(wide, cut, parts):
    given = cut(wide, np.random.default_rng(2).standard_normal((2, 1, 32, 4672), np.float32))
    made = ttnn.experimental.nlp_create_qkv_heads_falcon7b(given)
    for x, *heads in zip(*map(parts, (given, *made))):
        for got, part in zip(heads, np.split(x, (71 * 64, 72 * 64), -1)):
            np.testing.assert_array_equal(got, part.reshape(2, 32, -1, 64).swapaxes(1, 2))


def test_rotary_positions_of_queries_and_keys_together(box, cut, parts, on_cores):
    random = np.random.default_rng(4)
    shapes = [(1, 3, n * box.shape[1], 64) for n in (4, 2)]
    drawn = [random.standard_normal(shape, np.float32) for shape in shapes]
    query, key = (on_cores(cut(box, values, (None, 2))) for values in drawn)
    rows = [random.standard_normal((1, 3, 1, 64), np.float32) for _ in range(2)]
    cos, sin = (cut(box, np.tile(x, (1, 2, 1, 1))) for x in rows)
    turn = np.zeros((32, 32), np.float32)
    turn[np.arange(1, 32, 2), np.arange(0, 32, 2)] = -1
    turn[np.arange(0, 32, 2), np.arange(1, 32, 2)] = 1
    matrix = cut(box, np.tile(turn, (3, 1))[None, None])
    both = ttnn.experimental.rotary_embedding_llama_fused_qk(query, key, cos, sin, matrix)
    alone = [cut(box, x) for x in rows]
    for tensor, got in zip((query, key), both):
        wanted = ttnn.experimental.rotary_embedding_llama(
            tensor, *alone, matrix, is_decode_mode=True
        )
        assert got.is_sharded() and wanted.is_sharded()
        for a, b, x in zip(*map(parts, (got, wanted, tensor))):
            np.testing.assert_array_equal(a, b)
            pairs = np.stack([-x[..., 1::2], x[..., ::2]], -1).reshape(x.shape)
            cosine, sine = (ttkit.to_numpy(ttnn.get_device_tensors(t)[0]) for t in alone)
            np.testing.assert_allclose(a, x * cosine + pairs * sine, rtol=0.02, atol=0.02)
