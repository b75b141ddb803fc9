"""Tokens and experts chosen, on every chip's own shards."""

import numpy as np

from ttkit import ttnn

RANDOM = np.random.default_rng(11)
ROWS = ttnn.ROW_MAJOR_LAYOUT


def normal(*shape):
    return RANDOM.standard_normal(shape, np.float32)


def settings(cut, mesh, k, p, temp, users=2):
    """The k, p and temperature of each user."""
    floats = [cut(mesh, np.full(users, x, np.float32), layout=ROWS) for x in (p, temp)]
    return [cut(mesh, np.full(users, k, np.uint32)), *floats]


def test_one_token_is_the_largest(box, cut, parts):
    rows = box.shape[0]
    logits = cut(box, normal(rows, 1, 2, 64), (0, None))
    tokens = RANDOM.permutation(2000)[: rows * 128].reshape(rows, 1, 2, 64).astype(np.int32)
    tokens = cut(box, tokens, (0, None))
    for k, p in ((1, 0.9), (32, 0.0)):
        got = ttnn.sampling(logits, tokens, *settings(cut, box, k, p, 1.0))
        assert got.dtype == ttnn.uint32 and list(got.shape) == [1, 1, 1, 2]
        for new, x, names in zip(*map(parts, (got, logits, tokens))):
            best = x[0, 0].argmax(-1)
            np.testing.assert_array_equal(new[0, 0, 0], names[0, 0][[0, 1], best])


def test_draws_follow_the_distribution_and_the_seed(wide, cut, parts):
    logits = np.full((1, 1, 2, 64), -20, np.float32)
    logits[..., :4] = np.log([0.5, 0.25, 0.15, 0.1])
    tokens = cut(wide, np.tile(np.arange(64, dtype=np.int32), (1, 1, 2, 1)))
    logits = cut(wide, logits)
    how = settings(cut, wide, 32, 0.85, 1.0)

    def draw(**options):
        found = parts(ttnn.sampling(logits, tokens, *how, **options))
        assert all(np.array_equal(found[0], x) for x in found)  # the same on every chip
        return found[0].ravel()

    ttnn.manual_seed(7, device=wide)
    drawn = np.array([draw() for _ in range(400)])
    ttnn.manual_seed(7, device=wide)
    assert np.array_equal(drawn[:20], [draw() for _ in range(20)])
    assert np.array_equal(draw(seed=3), draw(seed=3))
    shares = np.bincount(drawn.ravel(), minlength=64) / drawn.size
    # 0.1 lies outside of the 0.85 that count
    np.testing.assert_allclose(shares[:4], np.array([0.5, 0.25, 0.15, 0]) / 0.9, atol=0.06)
    assert not np.array_equal(drawn[:, 0], drawn[:, 1])
    cold = settings(cut, wide, 32, 1.0, 8.0)
    assert set(parts(ttnn.sampling(logits, tokens, *cold, seed=1))[0].ravel()) == {0}
    users = cut(wide, np.array([1], np.uint32))
    ttnn.manual_seed(7, device=wide)
    ttnn.manual_seed(cut(wide, np.array([9], np.uint32)), user_ids=users)
    other = np.array([draw() for _ in range(20)])
    assert np.array_equal(other[:, 0], drawn[:20, 0])
    assert not np.array_equal(other[:, 1], drawn[:20, 1])


def test_plus_one(box, cut, parts):
    positions = cut(box, np.arange(box.shape[0], dtype=np.int32) - 1, (0, None))
    before = parts(positions)
    assert ttnn.plus_one(positions, skip_negative_entries=True) is positions
    for old, new in zip(before, parts(positions)):
        np.testing.assert_array_equal(new, old + (old >= 0))
    ttnn.plus_one(positions)
    for old, new in zip(before, parts(positions)):
        np.testing.assert_array_equal(new, old + (old >= 0) + 1)


def test_weight_of_the_first_expert(box, cut, check):
    logits = np.stack([RANDOM.permutation(64) for _ in range(32 * box.shape[0])]) / 16
    logits = cut(box, logits.reshape(-1, 1, 32, 64).astype(np.float32), (0, None))
    mask, best = np.zeros((1, 1, 1, 64), np.float32), np.full((1, 1, 1, 32), -1e9, np.float32)
    mask[..., 8:], best[..., :2] = -1e9, 0

    def formula(x):
        x = x[..., :8]
        weights = np.where(x >= np.sort(x, -1)[..., -2:-1], np.exp(x), 0)
        return (weights / weights.sum(-1, keepdims=True))[..., :1]

    check(ttnn.moe(logits, cut(box, mask), cut(box, best), 32), formula, logits, roundings=2)


def test_experts_of_each_chip(box, cut, parts):
    chips, experts, tokens = box.get_num_devices(), 64, 32
    scores = RANDOM.integers(1, 99, (1, 2, 16, experts)).astype(np.float32)
    chosen = np.stack([RANDOM.permutation(experts)[:4] for _ in range(tokens)])
    owner = RANDOM.permutation(np.repeat(np.arange(chips), experts // chips))
    mapping = (owner[:, None] == np.arange(chips)).astype(np.uint16)[None, None]
    numbers = cut(box, chosen.reshape(1, 2, 16, 4).astype(np.uint16))
    given = cut(box, scores, layout=ROWS), cut(box, mapping), numbers
    mapped, any_of = ttnn.moe_expert_token_remap(*given, reduction_size=16)
    for chip, (new, some) in enumerate(zip(parts(mapped), parts(any_of))):
        own = np.flatnonzero(owner == chip)
        taken = (chosen[:, :, None] == own).any(1)
        np.testing.assert_array_equal(
            new.reshape(tokens, -1), scores.reshape(tokens, -1)[:, own] * taken
        )
        np.testing.assert_array_equal(some.reshape(2, -1), taken.reshape(2, 16, -1).any(1))


def test_weights_of_each_chip(box, cut, parts):
    weights = np.zeros((1, 64), np.float32)
    places = np.sort(RANDOM.permutation(64)[:16])
    weights[0, places] = np.arange(1, 17)
    for axis, size in enumerate(box.shape):
        got = ttnn.moe_routing_remap(cut(box, weights, layout=ROWS), 16, size, axis)
        for chip, new in enumerate(parts(got)):
            part = np.unravel_index(chip, tuple(box.shape))[axis]
            wanted = np.zeros_like(weights)
            own = places[part * 16 // size : (part + 1) * 16 // size]
            wanted[0, own] = weights[0, own]
            np.testing.assert_array_equal(new, wanted)


def test_products_of_the_chosen_experts(box, cut, check):
    b = cut(box, normal(1, 4, 64, 96), dtype=ttnn.float32)
    for sparse, front, given in (
        ({}, (2, 3), (2, 3, 1, 4)),
        ({"is_input_a_sparse": True, "is_input_b_sparse": False}, (2, 4), (1, 1, 2, 4)),
        ({"is_input_a_sparse": True}, (1, 4), (1, 1, 1, 4)),
    ):
        made = (*front, 1, 1) if sparse else (*front, 1, 4, 1, 1)
        a = cut(box, normal(*front, 32 * box.shape[0], 64), (2, None), dtype=ttnn.float32)
        kept = (RANDOM.random(given) < 0.5).astype(np.float32)
        got = ttnn.sparse_matmul(
            a, b, sparsity=cut(box, kept, layout=ROWS), program_config=None, **sparse
        )

        shaped = kept.reshape(made)

        def formula(x, y, kept=shaped, sparse=sparse):
            return (x if sparse else x[:, :, None, None]) @ y * kept

        check(got, formula, a, b, additions=512)
