"""Tensors made of a rule."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import INTEGERS, ROWS, T3000, TILE, compare, laid, many, opened, parts, places, refused

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
            assert made.dtype is place.dtype
            assert made.layout is place.layout
            assert len(parts(made)) == mesh.get_num_devices()
            compare(made, lambda x, n=number: np.full(place.shape, n), made)
            beside = getattr(ttnn, f"{name}_like")(like, *given)
            assert beside.tensor_topology() == like.tensor_topology()
            assert beside.layout is like.layout
            compare(beside, lambda x, n=number: np.full_like(x, n), like)
        assert ttnn.empty_like(like).shape == place.shape


def test_large_whole_numbers_and_minus_zero():
    with opened(T3000) as mesh:
        number = 2**24 + 1  # no float32
        like = ttnn.zeros([2], ttnn.int32, ROWS, mesh)
        for made in (ttnn.full([2], number, ttnn.int32, ROWS, mesh), ttnn.full_like(like, number)):
            assert parts(made)[1, 3].tolist() == [number, number]
        assert parts(ttnn.full([2], -1, ttnn.uint32, ROWS, mesh))[0, 0].tolist() == [2**32 - 1] * 2
        assert np.signbit(ttkit.to_numpy(ttnn.full([2], -0.0))).all()


def test_refused():
    with opened(T3000) as mesh:
        refused(lambda: ttnn.zeros([-1], device=mesh), "-1", TypeError)
        refused(lambda: ttnn.ones([2], "float32"), "is a str, not DataType", TypeError)


STARTS, STEPS = st.integers(-20, 20), st.integers(-4, 4).filter(bool)


@many(50)
@given(STARTS, STARTS, STEPS, st.sampled_from([ttnn.float32, ttnn.bfloat16, ttnn.int32]))
def test_arange(start, end, step, dtype):
    wanted = np.arange(start, end, step)
    made = ttnn.arange(start, end, step, dtype=dtype)
    np.testing.assert_array_equal(ttkit.to_numpy(made), wanted)


def test_arange_on_a_mesh_and_by_default():
    with opened(T3000) as mesh:
        made = ttnn.arange(3, device=mesh)
        assert made.dtype is ttnn.bfloat16 and made.layout is ROWS
        assert parts(made)[1, 3].tolist() == [0, 1, 2]
        refused(lambda: ttnn.arange(1, 5, 0), "division by zero")
        refused(lambda: ttnn.arange(1.5), "end=1.5 is a float, not int", TypeError)


@many(40)
@given(places())
def test_empty(place):
    with laid(place) as (mesh, _):
        made = ttnn.empty(place.shape, place.dtype, place.layout, mesh)
        assert made.shape == place.shape and made.dtype is place.dtype


@pytest.mark.parametrize("kind", ["RR", "S0R", "RS0"])
@pytest.mark.parametrize("per_device", [True, False])
def test_dropout(mesh, put, parts, kind, per_device):
    x = put(mesh, (64, 96), kind, ttnn.bfloat16, 0.5)
    drop = ttnn.experimental.dropout
    made, again, other = (
        drop(x, 0.25, 2.0, seed, use_per_device_seed=per_device) for seed in (7, 7, 8)
    )
    seen = set()
    for before, after, same, differs in zip(*map(parts, (x, made, again, other)), strict=True):
        dropped = after == 0
        assert np.array_equal(after, same) and not np.array_equal(dropped, differs == 0)
        assert abs(dropped.mean() - 0.25) < 0.03
        assert np.array_equal(after, np.where(dropped, 0, before * 2))
        seen.add(dropped.tobytes())
    assert len(seen) == (mesh.get_num_devices() if per_device else 1)


def test_dropout_at_its_ends(wide, put, check):
    x = put(wide, (2, 32), "S0R", ttnn.bfloat16)
    check(ttnn.experimental.dropout(x, 0.0, 1.0, 0), lambda x: x, x)
    check(ttnn.experimental.dropout(x, 1.0, 3.0, 0), lambda x: 0 * x, x)
