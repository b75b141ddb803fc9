"""Reductions of each chip's shard against NumPy on that shard."""

import functools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import (
    FLOATS,
    INTEGERS,
    ROWS,
    T3000,
    TILE,
    Place,
    compare,
    laid,
    many,
    numbers,
    opened,
    places,
    put,
    refused,
)

import ttkit
from ttkit import ttnn
from ttkit.errors import TTKitError


def exactly(function):
    """A function of the values in float64."""
    return lambda x: function(x.astype(np.float64))


@pytest.mark.filterwarnings("ignore:Degrees of freedom", "ignore:invalid value")
@many(150)
@given(places(sizes=(1, 2, 3, 5), dtypes=[ttnn.float32, ttnn.bfloat16]), st.data())
def test_sums_and_statistics(place, data):
    rank = len(place.shape)
    some = st.lists(st.integers(0, max(rank - 1, 0)), unique=True, max_size=rank)
    dims = data.draw(st.one_of(st.none(), some))
    dims = dims if dims is None else [d - data.draw(st.sampled_from([0, rank])) for d in dims]
    keep = data.draw(st.booleans())
    # no dimensions mean all, as in torch
    axes = {"axis": tuple(dims) if dims else None, "keepdims": keep}
    terms = max(1000, math.prod(place.shape))
    with laid(place) as (_, t):
        over = dims[0] if dims and len(dims) == 1 else dims
        for name in ("sum", "mean", "max", "min", "var", "std"):
            more = {"ddof": 1} if name in ("var", "std") else {}
            wanted = exactly(lambda x, name=name, how=axes | more: getattr(x, name)(**how))
            compare(getattr(ttnn, name)(t, over, keep), wanted, t, additions=terms)


@many(80)
@given(
    places(least=1, most=5, sizes=(1, 2, 3, 5), dtypes=FLOATS + INTEGERS, layouts=[TILE]), st.data()
)
def test_along_one_dimension(place, data):
    dim = data.draw(st.integers(-len(place.shape), len(place.shape) - 1))
    keep, terms = data.draw(st.booleans()), 100 if place.dtype in FLOATS else None
    with laid(place) as (_, t):
        compare(ttnn.max(t, dim), lambda x: x.max(dim), t)
        compare(ttnn.argmax(t, dim, keep), lambda x: x.argmax(dim, keepdims=keep), t)
        k, largest = data.draw(st.integers(0, place.shape[dim])), data.draw(st.booleans())
        values, indices = ttnn.topk(t, k, dim, largest)
        wide = place.dtype is ttnn.float32
        assert indices.dtype is (ttnn.uint32 if wide else ttnn.uint16)
        best = np.arange(-1, -k - 1, -1) if largest else np.arange(k)
        compare(values, lambda x: np.take(np.sort(x, dim), best, dim), t)
        compare(values, lambda x, i: np.take_along_axis(x, i.astype(int), dim), t, indices)
        compare(ttnn.sort(t, dim)[0], lambda x: np.sort(x, dim), t)
        if place.dtype in (ttnn.float32, ttnn.bfloat16, ttnn.int32):
            sums = exactly(lambda x: np.cumsum(x, dim))
            compare(ttnn.cumsum(t, dim), sums, t, additions=terms)
            back = exactly(lambda x: np.flip(np.cumsum(np.flip(x, dim), dim), dim))
            compare(ttnn.cumsum(t, dim, reverse_order=True), back, t, additions=terms)
            made = ttnn.prod(t, dim, keep)
            running = exactly(lambda x: np.cumprod(x, dim, dtype=x.dtype))
            compare(ttnn.cumprod(t, dim), running, t, additions=terms)
            compare(made, lambda x: x.prod(dim, keepdims=keep), t, additions=terms)
            made = ttnn.prod(t, output_tensor=ttnn.prod(t, dim, True), dims=[dim])
            compare(made, lambda x: x.prod(dim, keepdims=True), t, additions=terms)


def test_what_a_type_is_changes_what_is_added():
    with opened(T3000) as mesh:
        halves = ttkit.from_numpy(np.full((2, 4), 0.75, np.float32), layout=TILE, device=mesh)
        # cast first, then added
        compare(ttnn.cumsum(halves, 1, dtype=ttnn.int32), lambda x: np.zeros((2, 4)), halves)
        how = {"dtype": ttnn.uint8, "layout": TILE, "device": mesh}
        small = ttkit.from_numpy(np.full((2, 4), 200, np.int32), **how)
        sums = ttnn.cumsum(small, 1, dtype=ttnn.int32)
        compare(sums, lambda x: np.cumsum(x.astype(int), 1), small)
        place = Place(T3000, "each", [3, 40], ttnn.float32, ROWS, 5)
        rows = put(mesh, place)
        compare(ttnn.argmax(rows), lambda x: x.argmax(), rows)


@pytest.mark.filterwarnings("ignore:Mean of empty slice", "ignore:invalid value")
def test_of_nothing():
    with opened(T3000) as mesh:
        t = ttkit.from_numpy(np.zeros((0, 3), np.float32), device=mesh, layout=TILE)
        compare(ttnn.sum(t, 0), exactly(lambda x: x.sum(0)), t)
        compare(ttnn.mean(t, 0), exactly(lambda x: x.mean(0)), t)
        refused(lambda: ttnn.max(t, 0), "Invalid arguments to max")


def test_refused():
    with opened(T3000) as mesh:
        t = ttkit.from_numpy(numbers((2, 6)), layout=TILE, device=mesh)
        whole = ttnn.typecast(t, ttnn.int32)
        refused(lambda: ttnn.sum(t, 2), "Dimension out of range")
        refused(lambda: ttnn.sum(t, [0, -2]), "duplicate value in 'axis'")
        refused(lambda: ttnn.argmax(t), "dim parameter must be specified")
        refused(lambda: ttnn.sum(ttnn.from_device(t), 0), "Input tensor A must be on device")
        refused(lambda: ttnn.mean(whole, 0), "does not support inputs of type DataType::INT32")
        refused(lambda: ttnn.cumsum(t, 2), "Dimension out of range")


@pytest.mark.parametrize(("name", "error"), [("l1_loss", np.abs), ("mse_loss", np.square)])
def test_losses(wide, put, check, name, error):
    a, b, kinds = put(wide, (2, 33, 20), "S0R"), put(wide, (2, 33, 20)), ttnn.LossReductionMode
    for kind, fold in ((kinds.NONE, np.array), (kinds.MEAN, np.mean), (kinds.SUM, np.sum)):
        made = getattr(ttnn, name)(a, b, reduction=kind)
        check(made, lambda a, b, fold=fold: np.array(fold(error(a - b))), a, b, additions=1320)


def test_fast_reduce(box, cut, check):
    values = np.random.default_rng(1).standard_normal((4, box.shape[1], 30, 64), np.float32)
    x = cut(box, values, (None, 1))

    def total(values, dims):
        return np.pad(values.sum(dims, keepdims=True), [(0, 0)] * 2 + [(0, 2), (0, 0)])

    for dims in ((0,), (1,), (0, 1)):
        got = ttnn.experimental.fast_reduce_nc(x, dims=list(dims))
        check(got, functools.partial(total, dims=dims), x, additions=8)
    halves = ttnn.experimental.deepseek_moe_fast_reduce_nc(x, 0, split_size=32)
    check(halves, lambda v: np.split(total(v, 0), 2, -1), x, additions=8)


def test_scatter_add_and_gather_equal_a_loop(box, cut, check):
    random = np.random.default_rng(6)
    rows = box.shape[0]
    x = cut(box, random.standard_normal((4 * rows, 64), np.float32), (0, None), ttnn.float32)
    places = cut(box, random.integers(0, 64, (3, 8)).astype(np.int32))
    values = random.standard_normal((4, 9 * box.shape[1]), np.float32)
    source = cut(box, values, (None, 1), ttnn.float32)

    def along(dim, kept=1):
        def formula(into, index, values):
            out = into.copy()
            for i, j in np.ndindex(index.shape):
                at = (i, index[i, j]) if dim == 1 else (index[i, j], j)
                out[at] = kept * out[at] + values[i, j]
            return out

        return formula

    for dim, index in ((1, places), (0, cut(box, random.integers(0, 4, (3, 8)).astype(np.int32)))):
        flat = [ttnn.to_layout(each, ttnn.ROW_MAJOR_LAYOUT) for each in (x, index, source)]
        check(ttnn.scatter_add(flat[0], dim, *flat[1:]), along(dim), *flat, additions=64)
        check(ttnn.scatter(flat[0], dim, *flat[1:]), along(dim, 0), *flat)
        with pytest.raises(TypeError, match="amin"):
            ttnn.scatter(flat[0], dim, *flat[1:], reduce="amin")
        far = ttnn.add(flat[1], 64)
        with pytest.raises(TTKitError, match="is not one of 0 to"):
            ttnn.scatter_add(flat[0], dim, far, flat[2])

        def taken(values, index, dim=dim):
            values = values[:, : index.shape[1]] if dim == 0 else values[: index.shape[0]]
            return np.take_along_axis(values, index, dim)

        check(ttnn.gather(x, dim, index), taken, x, index)
        with pytest.raises(TTKitError, match="is out of bounds"):
            ttnn.gather(x, dim, ttnn.sub(index, 64))
