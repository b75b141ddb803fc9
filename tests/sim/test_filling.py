"""Tensors made of a rule."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from places import (
    FLOATS,
    INTEGERS,
    ROWS,
    T3000,
    TILE,
    compare,
    laid,
    many,
    opened,
    parts,
    places,
    refused,
)

import ttkit
from ttkit import ttnn


@many(80)
@given(places(), st.sampled_from([0, 1, 2.5, 7, np.float32(1.5), np.int64(3)]))
def test_one_value_everywhere(place, value):
    place = place._replace(layout=TILE if place.dtype is ttnn.bfloat8_b else place.layout)
    with laid(place) as (mesh, like):
        kept = np.int64(value) if place.dtype in INTEGERS else value
        wanted = {"zeros": 0, "ones": 1, "full": kept}
        for name, number in wanted.items():
            given = [value] if name == "full" else []
            made = getattr(ttnn, name)(place.shape, *given, place.dtype, place.layout, mesh)
            assert (
                made.dtype is place.dtype
                and made.layout is place.layout
                and len(parts(made)) == mesh.get_num_devices()
            )
            compare(made, lambda x, n=number: np.full(place.shape, n), made)
            beside = getattr(ttnn, f"{name}_like")(like, *given)
            assert (
                beside.tensor_topology() == like.tensor_topology() and beside.layout is like.layout
            )
            compare(beside, lambda x, n=number: np.full_like(x, n), like)
        assert ttnn.empty_like(like).shape == place.shape
        into = ttnn.add(like, like) if place.dtype in FLOATS else ttnn.clone(like)
        assert ttnn.full([1], value, optional_tensor=into) is into
        compare(into, lambda x: np.full_like(x, kept), like)


def test_large_whole_numbers_and_minus_zero():
    with opened(T3000) as mesh:
        number = 2**24 + 1  # no float32
        like = ttnn.zeros([2], ttnn.int32, ROWS, mesh)
        for made in (
            ttnn.full([2], number, ttnn.int32, ROWS, mesh),
            ttnn.full_like(like, number),
            ttnn.full([2], number, optional_tensor=like),
        ):
            assert parts(made)[1, 3].tolist() == [number, number]
        assert parts(ttnn.full([2], -1, ttnn.uint32, ROWS, mesh))[0, 0].tolist() == [2**32 - 1] * 2
        assert np.signbit(ttkit.to_numpy(ttnn.full([2], -0.0))).all()


def test_refused():
    with opened(T3000) as mesh:
        refused(lambda: ttnn.zeros([-1], device=mesh), "-1", TypeError)
        refused(lambda: ttnn.ones([2], "float32"), "is a str, not DataType", TypeError)
        refused(lambda: ttnn.full([2], True), "fill_value must be a number", TypeError)
        freed = ttnn.zeros([2], device=mesh)
        ttnn.deallocate(freed)
        refused(lambda: ttnn.full([2], 1.0, optional_tensor=freed), "not allocated")
