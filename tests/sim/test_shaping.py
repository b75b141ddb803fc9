"""Operations that move elements within a shard: each chip against NumPy, for ranks 0 to 8."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import ROWS, T3000, TILE, compare, laid, many, numbers, opened, places, put, refused

import ttkit
from ttkit import ttnn


@st.composite
def permuted(draw, rank):
    return tuple(d - draw(st.sampled_from([0, rank])) for d in draw(st.permutations(range(rank))))


@many(100)
@given(places(), st.data())
def test_order_and_shape(place, data):
    rank = len(place.shape)
    with laid(place) as (_, t):
        dims = data.draw(permuted(rank))
        compare(ttnn.permute(t, dims), lambda x: x.transpose(dims), t)
        widths = [n for n in (1, 2, 3) if t.logical_volume() % n == 0]
        flat = ttnn.reshape(t, [-1, data.draw(st.sampled_from(widths))])
        compare(flat, lambda x: x.reshape(flat.shape), t)
        at = data.draw(st.integers(-rank - 1, rank))
        compare(ttnn.unsqueeze(t, at), lambda x: np.expand_dims(x, at), t)
        compare(ttnn.squeeze(t), np.squeeze, t)
        if rank:
            a, b = data.draw(st.tuples(*[st.integers(-rank, rank - 1)] * 2))
            compare(ttnn.transpose(t, a, b), lambda x: x.swapaxes(a, b), t)
            compare(ttnn.squeeze(t, a), lambda x: x.squeeze(a) if x.shape[a] == 1 else x, t)
        if rank <= 4:
            compare(ttnn.unsqueeze_to_4D(t), lambda x: x.reshape((1,) * (4 - rank) + x.shape), t)


@many(100)
@given(places(least=1, most=6, sizes=(1, 2, 3, 5)), st.data())
def test_pieces(place, data):
    dim = data.draw(st.integers(-len(place.shape), len(place.shape) - 1))
    size = place.shape[dim]
    with laid(place) as (_, t):
        each = data.draw(st.integers(1, 6))
        for i, piece in enumerate(ttnn.split(t, each, dim)):
            here = range(each * i, min(size, each * (i + 1)))
            compare(piece, lambda x, here=here: np.take(x, here, dim), t)
        sizes = [size - size // 2, size // 2]
        compare(ttnn.split(t, sizes, dim)[1], lambda x: np.split(x, [sizes[0]], dim)[1], t)
        index = []
        for n in place.shape:
            low = data.draw(st.integers(0, n - 1))
            whole = slice(low, data.draw(st.integers(low, n)), data.draw(st.integers(1, 3)))
            ways = [whole, low, low - n, slice(None), slice(-n, None)]
            index.append(data.draw(st.sampled_from(ways)))
        compare(t[tuple(index)], lambda x: x[tuple(index)], t)
        compare(t[..., index[-1]], lambda x: x[..., index[-1]], t)
        plain = [
            i if isinstance(i, slice) else slice(i % n, i % n + 1)
            for i, n in zip(index, place.shape)
        ]
        starts, stops, steps = zip(*(s.indices(n) for s, n in zip(plain, place.shape)))
        made = ttnn.slice(t, list(starts), list(stops), list(steps))
        compare(made, lambda x: x[tuple(plain)], t)


@many(100)
@given(places(least=1, most=6), st.data())
def test_copies(place, data):
    rank = len(place.shape)
    dim = data.draw(st.integers(-rank, rank - 1))
    times = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=rank + 1))
    with laid(place) as (mesh, t):
        repeated = ttnn.repeat(t, times)
        compare(repeated, lambda x: np.tile(x, times), t)
        output = ttnn.zeros_like(repeated)
        assert ttnn.repeat(t, times, optional_output_tensor=output) is output
        np.testing.assert_array_equal(output.full_array(), repeated.full_array())
        often = ttnn.repeat_interleave(t, times[0], dim)
        compare(often, lambda x: np.repeat(x, times[0], dim), t)
        kind = data.draw(st.sampled_from(["same", place.kind]))
        other = put(mesh, place, kind=kind, seed=place.seed + 50)
        compare(ttnn.concat([t, other], dim), lambda x, y: np.concatenate([x, y], dim), t, other)
        ends = [(0, data.draw(st.integers(0, 2))) for _ in range(data.draw(st.integers(1, rank)))]
        every = [(0, 0)] * (rank - len(ends)) + ends
        compare(ttnn.pad(t, ends, 2.0), lambda x: np.pad(x, every, constant_values=2), t)


@many(40)
@given(
    places(least=1, most=4, sizes=(1, 2, 5), dtypes=[ttnn.float32, ttnn.bfloat16, ttnn.int32]),
    st.integers(-3, 3),
)
def test_triangles(place, diagonal):
    with laid(place) as (_, t):
        for ours, theirs in ((ttnn.tril, np.tril), (ttnn.triu, np.triu)):
            made = ours(t, diagonal=diagonal)
            assert made.layout is TILE  # whatever it was
            compare(made, lambda x, f=theirs: f(np.atleast_2d(x), diagonal).reshape(x.shape), t)


@many(60)
@given(places(least=1, most=6, sizes=(1, 2, 3, 5)), st.data())
def test_chunks_stacks_and_expansions(place, data):
    rank, size = len(place.shape), st.integers(1, 6)
    dim, count = data.draw(st.integers(-rank, rank - 1)), data.draw(size)
    with laid(place) as (mesh, t):
        chunks, length = ttnn.chunk(t, count, dim), place.shape[dim]
        compare(ttnn.concat(chunks, dim), lambda x: x, t)
        assert len(chunks) == -(-length // -(-length // count))
        kind = data.draw(st.sampled_from(["same", place.kind]))
        other = put(mesh, place, kind=kind, seed=place.seed + 50)
        compare(ttnn.stack([t, other, t], dim), lambda x, y: np.stack([x, y, x], dim), t, other)
        longer = st.sampled_from([-1, 1, 3])
        bigger = [2, *(n if n > 1 else data.draw(longer) for n in place.shape)]
        shape = [n if n > 0 else 1 for n in bigger]
        compare(ttnn.expand(t, bigger), lambda x: np.broadcast_to(x, shape), t)


def test_what_is_padded_is_rounded_and_goes_where_it_should():
    with opened(T3000) as mesh:
        t = ttkit.from_numpy(numbers((2, 3)), dtype=ttnn.bfloat16, layout=ROWS, device=mesh)
        made = ttkit.to_numpy(ttnn.get_device_tensors(ttnn.pad(t, [(1, 0), (2, 1)], 0.1))[5])
        np.testing.assert_array_equal(made[1:, 2:-1], numbers((2, 3)))
        assert made[0, 0] == np.float32(0.10009765625)  # the bfloat16 nearest 0.1


@pytest.mark.parametrize(
    ("have", "shape", "stored"),
    [
        ((1, 1, 32, 64), (1, 1, 8, 64), (1, 1, 32, 64)),
        ((1, 1, 8, 64), (1, 1, 32, 64), (1, 1, 32, 64)),
        ((1, 1, 64, 64), (1, 2, 8, 64), (1, 2, 32, 64)),
        ((64, 40), (1, 2, 5, 40), (1, 2, 32, 64)),
        ((64,), (1, 1, 2, 64), (1, 1, 32, 64)),
    ],
)
def test_a_shape_within_what_is_stored(have, shape, stored):
    values = np.arange(1, np.prod(have) + 1, dtype=np.float32).reshape(have)
    with opened(T3000) as mesh:
        t = ttnn.from_torch(values, layout=ttnn.TILE_LAYOUT, device=mesh)
        got = ttnn.reshape(t, shape, stored)
        assert tuple(got.padded_shape) == stored
        rows = values.reshape((1,) * (2 - values.ndim) + have)
        whole = np.zeros(t.padded, np.float32)
        whole[tuple(slice(n) for n in rows.shape)] = rows
        want = whole.reshape(stored)[tuple(slice(n) for n in shape)]
        for made in (got, ttnn.reshape(t, ttnn.Shape(shape))):
            for each in ttnn.get_device_tensors(made):
                np.testing.assert_array_equal(ttkit.to_numpy(each), want)


def test_a_result_is_sharded_where_an_operand_is():
    with opened(T3000) as mesh:
        mappers = ttnn.ShardTensorToMesh(mesh, 0), ttnn.ReplicateTensorToMesh(mesh)
        how = ({"device": mesh, "mesh_mapper": mapper} for mapper in mappers)
        cut, copy = (ttkit.from_numpy(numbers((8, 4)), **each) for each in how)
        out = ttnn.concat([copy, cut], 0)
        compare(out, lambda x, y: np.concatenate([x, y]), copy, cut)
        assert out.tensor_topology().placements() == [ttnn.PlacementShard(0)]


def test_row_major_shards_are_counted_as_they_are():
    # in tiles the copy would take 32 times as much: more than a chip has
    with opened(T3000) as mesh:
        thin = ttnn.zeros([1 << 23, 1], ttnn.bfloat16, ROWS, mesh)
        assert list(ttnn.repeat(thin, [1, 30]).shape) == [1 << 23, 30]


def test_refused():
    with opened(T3000) as mesh:
        t = ttkit.from_numpy(numbers((2, 6)), layout=TILE, device=mesh)
        half = ttnn.typecast(t, ttnn.bfloat16)
        refused(lambda: ttnn.reshape(t, [5, -1]), "Invalid arguments to reshape")
        refused(lambda: ttnn.concat([t, half], 0), "same dtype")
        refused(lambda: ttnn.slice(t, [0, 3], [1, 2]), "not less than start 3")
        refused(lambda: t["a":], "incompatible function arguments", TypeError)
        refused(lambda: t[7], "out of bounds for dimension 0 of size 2", IndexError)
        refused(lambda: t[::0], "Step 0 must be positive")
        refused(lambda: t[::-1], "Step -1 must be positive")
        refused(lambda: ttnn.split(t, [1, 2], 0), "must sum exactly")
        refused(lambda: ttnn.pad(t, [(1, 0)], 0), "does not support front padding")


@pytest.mark.parametrize(
    ("layout", "shape", "wanted", "shares"),
    [
        (ttnn.TILE_LAYOUT, (1, 1, 64, 64), (64, 64), True),
        (ttnn.TILE_LAYOUT, (2, 32, 64), (64, 64), True),
        (ttnn.TILE_LAYOUT, (2, 16, 64), (1, 2, 16, 64), True),
        (ttnn.TILE_LAYOUT, (2, 16, 64), (32, 64), False),
        (ttnn.TILE_LAYOUT, (1, 1, 32, 64), (1, 1, 64, 32), False),
        (ttnn.ROW_MAJOR_LAYOUT, (4, 16), (2, 2, 16), True),
        (ttnn.ROW_MAJOR_LAYOUT, (4, 16), (8, 8), False),
        (ttnn.ROW_MAJOR_LAYOUT, (4, 16), (64,), False),
    ],
)
def test_a_buffer_of_a_view_is_given_back_once(wide, put, layout, shape, wanted, shares):
    """As seen on ttnn 0.81.1."""
    x = put(wide, shape, layout=layout)
    view = ttnn.reshape(ttnn.reshape(x, wanted), wanted)
    ttnn.deallocate(view)
    assert x.is_allocated() is not shares
    y = put(wide, shape, layout=layout)
    view = ttnn.reshape(y, wanted)
    ttnn.deallocate(y)
    assert view.is_allocated() and not y.is_allocated()
    if shares:
        refused(lambda: ttnn.add(x, 1.0), "not allocated")


@pytest.mark.parametrize(
    ("shape", "other", "layout", "fits"),
    [
        ((2, 32, 64), (64, 64), TILE, True),
        ((1, 30, 64), (30, 64), TILE, True),
        ((2, 30, 64), (60, 64), TILE, False),
        ((2, 30, 64), (60, 64), ROWS, True),
        ((2, 30, 64), (30, 128), ROWS, False),
        ((1, 1, 64, 64), (1, 1, 32, 128), TILE, False),
    ],
)
def test_a_view_moves_no_element(wide, shape, other, layout, fits):
    values = np.arange(4 * np.prod(shape), dtype=np.float32).reshape(4 * shape[0], *shape[1:])
    mapper = ttnn.ShardTensor2dMesh(wide, (2, 4), (None, 0))
    x = ttkit.from_numpy(values, device=wide, mesh_mapper=mapper, layout=layout)
    if fits:
        compare(ttnn.view(x, other), lambda x: x.reshape(other), x)
    else:
        refused(lambda: ttnn.view(x, other), "needs the same last dimension")
