"""Everyday operations on each chip, against their formulas in float64 and against NumPy."""

import functools

import formulas
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import (
    FLOATS,
    INTEGERS,
    KINDS,
    ROWS,
    T3000,
    TILE,
    Place,
    compare,
    laid,
    many,
    numbers,
    opened,
    parts,
    places,
    put,
    refused,
)

import ttkit
from ttkit import ttnn
from ttkit.sim.operation import OPERATIONS

EDGES = [np.inf, -np.inf, np.nan, 0.0, -0.0, 1e38, -1e38, 1e30, -1e30, 1e-30, -1e-30, 1e-40]
EDGES += [-1e-40, 100.0, -100.0, 20.0, -20.0, 3.0, -3.0, 1.0, -1.0, 0.5, -0.5]


def chip(tensor, at=(1, 3)):
    return parts(tensor)[at]


def random(mesh, shape, kind="each", low=None):
    x = put(mesh, Place(T3000, kind, list(shape), ttnn.float32, TILE, 1))
    return x if low is None else ttnn.add(ttnn.abs(x), low)


@pytest.fixture
def wide():
    with opened(T3000) as mesh:
        yield mesh


near = functools.partial(compare, additions=1)


# ---------------------------------------------------------------- one operand
@pytest.mark.parametrize("name", ["gelu", "softplus", "elu"])
def test_special_values(wide, name):
    """Infinities, NaN, signed zeros, large and subnormal values, and where formulas change."""
    values = np.array(EDGES, np.float32).reshape(-1, 1)
    x = ttkit.from_numpy(values, layout=TILE, device=wide)
    with np.errstate(all="ignore"):
        want = np.asarray(formulas.UNARY[name](values.astype(np.float64)), np.float32)
    have = chip(getattr(ttnn, name)(x))
    np.testing.assert_allclose(have, want, **formulas.tolerance())
    np.testing.assert_array_equal(np.signbit(have[want == 0]), np.signbit(want[want == 0]))


def test_parameters(wide):
    x = random(wide, (3, 32, 40))
    near(ttnn.gelu(x), formulas.gelu, x)
    near(ttnn.gelu(x, variant=ttnn.GeluVariant.Tanh), formulas.gelu_tanh, x)
    near(ttnn.leaky_relu(x, 0.3), lambda x: formulas.leaky_relu(x, 0.3), x)
    near(ttnn.leaky_relu(x, negative_slope=2.0), lambda x: formulas.leaky_relu(x, 2.0), x)
    near(ttnn.elu(x), formulas.elu, x)
    near(ttnn.elu(x, alpha=0.7), lambda x: formulas.elu(x, 0.7), x)
    near(ttnn.softplus(x), formulas.softplus, x)
    soft = ttnn.softplus(x, beta=2.0, threshold=1.5)
    near(soft, lambda x: formulas.softplus(x.astype(np.float64), 2.0, 1.5), x)
    near(ttnn.hardtanh(x), lambda x: np.clip(x, -1, 1), x)
    near(ttnn.hardtanh(x, min_val=-0.5, max_val=0.25), lambda x: np.clip(x, -0.5, 0.25), x)
    near(ttnn.round(x), np.round, x)
    near(ttnn.round(x, decimals=1), lambda x: np.round(x, 1), x)
    ties = ttkit.from_numpy(np.float32([[0.5, 1.5, 2.5, -0.5]]), layout=TILE, device=wide)
    assert chip(ttnn.round(ties)).tolist() == [[0, 2, 2, 0]]


@pytest.mark.parametrize("name", ["softplus", "elu", "hardtanh", "round", "leaky_relu"])
def test_whole_numbers_are_refused_and_an_output_is_written(wide, name):
    more = [0.1] if name == "leaky_relu" else []
    call = functools.partial(getattr(ttnn, name))
    whole = ttnn.zeros([32, 32], ttnn.int32, TILE, wide)
    kind = f"UnaryOpType::{name.upper()} does not support integer input dtype DataType::INT32"
    refused(lambda: call(whole, *more), kind)
    x, out = random(wide, (3, 40)), ttnn.zeros([3, 40], ttnn.float32, TILE, wide)
    assert call(x, *more, output_tensor=out) is out
    np.testing.assert_array_equal(chip(out), chip(call(x, *more)))


# ---------------------------------------------------------------- two and three operands
@pytest.mark.parametrize("name", ["isclose", "outer"])
def test_two_operands(wide, name):
    a, b = random(wide, (2, 33, 20), "rows"), random(wide, (2, 33, 20), "columns", 0.5)
    near(getattr(ttnn, name)(a, b), formulas.BINARY[name], a, b)


def test_what_is_close(wide):
    a, much = random(wide, (32, 64)), random(wide, (32, 64), "rows", 0.5)
    b = ttnn.add(a, ttnn.multiply(ttnn.multiply(a, much), 1e-5))  # by more, and by less
    made = ttnn.isclose(a, b)
    near(made, formulas.BINARY["isclose"], a, b)
    assert 0 < chip(made).mean() < 1
    nan = ttnn.full([2, 2], float("nan"), ttnn.float32, TILE, wide)
    assert chip(ttnn.isclose(nan, nan)).max() == 0
    assert chip(ttnn.isclose(nan, nan, equal_nan=True)).min() == 1
    assert ttnn.isclose(ttnn.typecast(a, ttnn.bfloat16), b).dtype is ttnn.bfloat16
    block = ttnn.typecast(a, ttnn.bfloat8_b)
    refused(lambda: ttnn.isclose(a, block), "Mixed dtype")


def test_what_outer_refuses(wide):
    a, b = random(wide, (3,)), random(wide, (5,))
    near(ttnn.outer(a, b), np.outer, a, b)
    scalar, half = random(wide, ()), ttnn.typecast(b, ttnn.bfloat16)
    refused(lambda: ttnn.outer(a, scalar), r"at least 1D, but got shapes [3] and []")
    refused(
        lambda: ttnn.outer(a, half), "inputs must have the same dtype, but got DataType::FLOAT32"
    )
    small = ttnn.typecast(a, ttnn.uint16)
    supported = "supported: BFLOAT16, BFLOAT8_B, FLOAT32, INT32, UINT32"
    refused(lambda: ttnn.outer(small, small), supported)


def test_limits(wide):
    x, low, high = (random(wide, (2, 33, 20), kind) for kind in ("each", "rows", "columns"))
    near(ttnn.clamp(x, min=-0.5, max=0.25), lambda x: np.clip(x, -0.5, 0.25), x)
    near(ttnn.clip(x, -0.5), lambda x: np.maximum(x, -0.5), x)
    near(ttnn.clamp(x, max=0.25), lambda x: np.minimum(x, 0.25), x)
    near(ttnn.clamp(x, low, high), lambda x, a, b: np.minimum(np.maximum(x, a), b), x, low, high)
    out = ttnn.zeros_like(x)
    assert ttnn.clamp(x, 0.0, output_tensor=out) is out
    near(out, lambda x: np.maximum(x, 0), x)
    refused(lambda: ttnn.clamp(x), "Only one of 'min' or 'max' can be None")


COMPARE = ["eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor"]
IN_PLACE = ["add", "subtract", "multiply", "divide", "rsub", "squared_difference", "bias_gelu"]
IN_PLACE += ["ldexp", "logaddexp", "logaddexp2", *COMPARE]


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_replaces_the_first(wide, name):
    a, b = random(wide, (32, 64)), random(wide, (32, 64), "rows", 0.5)
    before, call = ttnn.clone(a), getattr(ttnn, f"{name}_")
    assert call(a, b) is a
    near(a, formulas.BINARY[name], before, b)
    again = ttnn.clone(b)
    call(again, 2.0)
    near(again, lambda b: formulas.BINARY[name](b, 2.0), b)
    relu, kept = [ttnn.UnaryWithParam(ttnn.UnaryOpType.RELU)], ttnn.clone(before)
    call(kept, b, activations=relu)
    near(kept, lambda a, b: np.maximum(formulas.BINARY[name](a, b), 0), before, b)


def test_a_message_names_the_form_in_place(wide):
    a, b = random(wide, (3, 40)), ttnn.zeros([3, 40], ttnn.int32, TILE, wide)
    refused(lambda: ttnn.eq_(a, b), "eq_([3, 40] FLOAT32")
    refused(lambda: ttnn.eq_(a, b), "not supported for binary operation BinaryOpType::EQ,")


def test_what_has_no_form_in_place():
    there = {name[:-1] for name in OPERATIONS if name.endswith("_") and "." not in name}
    assert there == set(IN_PLACE)


# ---------------------------------------------------------------- shapes
@many(60)
@given(places(least=1, most=6, sizes=(1, 2, 3, 5)), st.data())
def test_pieces_and_copies(place, data):
    rank, size = len(place.shape), st.integers(1, 6)
    dim, count = data.draw(st.integers(-rank, rank - 1)), data.draw(size)
    with laid(place) as (mesh, t):
        chunks, length = ttnn.chunk(t, count, dim), place.shape[dim]
        compare(ttnn.concat(chunks, dim), lambda x: x, t)
        assert len(chunks) == -(-length // -(-length // count))
        flat = ttnn.reshape(t, [-1])
        compare(ttnn.view(flat, place.shape), lambda x: x, t)
        times = data.draw(st.integers(1, 3))
        wanted = lambda x: np.repeat(x, times, dim)  # noqa: E731
        compare(ttnn.repeat_interleave(t, times, dim), wanted, t)
        kind = data.draw(st.sampled_from(["same", place.kind]))
        other = put(mesh, place, kind=kind, seed=place.seed + 50)
        compare(ttnn.stack([t, other, t], dim), lambda x, y: np.stack([x, y, x], dim), t, other)
        longer = st.sampled_from([-1, 1, 3])
        bigger = [2, *(n if n > 1 else data.draw(longer) for n in place.shape)]
        shape = [n if n > 0 else 1 for n in bigger]
        compare(ttnn.expand(t, bigger), lambda x: np.broadcast_to(x, shape), t)


TRIANGLES = [ttnn.float32, ttnn.bfloat16, ttnn.int32]


@many(40)
@given(places(least=1, most=4, sizes=(1, 2, 5), dtypes=TRIANGLES), st.integers(-3, 3))
def test_triangles(place, diagonal):
    with laid(place) as (_, t):
        for ours, theirs in ((ttnn.tril, np.tril), (ttnn.triu, np.triu)):
            made = ours(t, diagonal=diagonal)
            assert made.layout is TILE  # whatever it was
            compare(made, lambda x, f=theirs: f(np.atleast_2d(x), diagonal).reshape(x.shape), t)


def test_row_major_shards_are_counted_as_they_are(wide):
    # In tiles the copy would take 32 times as much: more than a chip has.
    thin = ttnn.zeros([1 << 23, 1], ttnn.bfloat16, ROWS, wide)
    assert list(ttnn.expand(thin, [1 << 23, 30]).shape) == [1 << 23, 30]


def test_shapes_that_are_refused(wide):
    t = ttkit.from_numpy(numbers((2, 6)), layout=TILE, device=wide)
    host = ttnn.from_device(t)
    refused(lambda: ttnn.view(host, [12]), "View requires the tensor be stored on device")
    refused(lambda: ttnn.expand(t, [2, 12]), "Only size 1 dimensions can be expanded")
    refused(lambda: ttnn.expand(t, [6]), "Output rank must be >= input rank for expand: 1 and 2")
    refused(lambda: ttnn.expand(t, [-1, 2, 6]), "non-negative")
    refused(lambda: ttnn.chunk(t, 0, 0), "chunks must be greater than 0, but got: 0")
    refused(lambda: ttnn.stack([], 0), "expected a non-empty list of Tensors")


# ---------------------------------------------------------------- folds
SUMMED = [ttnn.float32, ttnn.bfloat16, ttnn.int32]


@many(60)
@given(places(least=1, most=5, sizes=(1, 2, 3, 5), dtypes=SUMMED, layouts=[TILE]), st.data())
def test_along_one_dimension(place, data):
    dim = data.draw(st.integers(-len(place.shape), len(place.shape) - 1))
    keep, back = data.draw(st.booleans()), data.draw(st.booleans())
    terms = 100 if place.dtype in FLOATS else None
    turned = (lambda x: np.flip(x, dim)) if back else (lambda x: x)
    with laid(place) as (_, t):
        sums = lambda x: turned(np.cumsum(turned(x.astype(np.float64)), dim))  # noqa: E731
        compare(ttnn.cumsum(t, dim, reverse_order=back), sums, t, additions=terms)
        product = lambda x: x.prod(dim, keepdims=keep)  # noqa: E731
        compare(ttnn.prod(t, dim, keep), product, t, additions=terms)


def test_what_a_type_is_changes_what_is_added(wide):
    halves = ttkit.from_numpy(np.full((2, 4), 0.75, np.float32), layout=TILE, device=wide)
    first_cast = ttnn.cumsum(halves, 1, dtype=ttnn.int32)
    compare(first_cast, lambda x: np.zeros((2, 4)), halves)
    values = np.full((2, 4), 200, np.int32)
    small = ttkit.from_numpy(values, dtype=ttnn.uint8, layout=TILE, device=wide)
    wide_sums = ttnn.cumsum(small, 1, dtype=ttnn.int32)
    compare(wide_sums, lambda x: np.cumsum(x.astype(int), 1), small)


def test_a_product_of_all(wide):
    x = random(wide, (2, 3, 4))
    compare(ttnn.prod(x), lambda x: x.astype(np.float64).prod(), x, additions=24)
    half = ttnn.typecast(x, ttnn.bfloat4_b)
    refused(lambda: ttnn.prod(half), "for generic reduction - got DataType::BFLOAT4_B")


def test_folds_write_and_refuse(wide):
    t = put(wide, Place(T3000, "each", [3, 40], ttnn.float32, TILE, 5))
    total = ttnn.cumsum(t, 1, out=ttnn.zeros([3, 40], ttnn.float32, TILE, wide))
    compare(total, lambda x: np.cumsum(x, 1), t)
    assert len({v.tobytes() for v in parts(total).values()}) == 8
    freed = ttnn.zeros([3, 40], ttnn.float32, TILE, wide)
    ttnn.deallocate(freed)
    refused(lambda: ttnn.cumsum(t, 1, out=freed), "not allocated on the mesh of the operands")
    refused(lambda: ttnn.cumsum(t, 2), "The requested accumulation axis is 2, while the input")
    refused(lambda: ttnn.prod(t, 2), "expected to be in range of [-2, 1]), got 2")
    host = ttnn.from_device(t)
    refused(lambda: ttnn.prod(host, 0), "Tensor must already be on device")


# ---------------------------------------------------------------- softmax
@pytest.mark.parametrize("kind", KINDS)
def test_softmax_in_place_replaces_the_values(wide, kind):
    x = random(wide, (2, 3, 32, 64), kind)
    same = ttnn.clone(x)
    assert ttnn.softmax_in_place(x) is x
    compare(x, formulas.softmax, same, additions=64)
    refused(lambda: ttnn.softmax_in_place(x, 0), "Invalid dimension: 0. Currently softmax inplace")
    flat = random(wide, (32, 64))
    refused(lambda: ttnn.softmax_in_place(flat), "dim -1 of tensors of rank 4")


# ---------------------------------------------------------------- made by a rule, and moved
STARTS, STEPS = st.integers(-20, 20), st.integers(-4, 4).filter(bool)


@many(50)
@given(STARTS, STARTS, STEPS, st.sampled_from([ttnn.float32, ttnn.bfloat16, ttnn.int32]))
def test_arange(start, end, step, dtype):
    wanted = np.arange(start, end, step)
    if wanted.size:
        made = ttnn.arange(start, end, step, dtype=dtype)
        np.testing.assert_array_equal(ttkit.to_numpy(made), wanted)
    else:
        refused(lambda: ttnn.arange(start, end, step), "lead from start to end")


def test_arange_on_a_mesh_and_by_default(wide):
    made = ttnn.arange(3, device=wide)
    assert made.dtype is ttnn.bfloat16 and made.layout is ROWS
    assert chip(made).tolist() == [0, 1, 2]
    refused(lambda: ttnn.arange(1, 5, 0), "Step must be nonzero")
    refused(lambda: ttnn.arange(1.5), "start=1.5 is a float, not int", TypeError)


@many(40)
@given(places())
def test_empty(place):
    place = place._replace(layout=TILE if place.dtype is ttnn.bfloat8_b else place.layout)
    with laid(place) as (mesh, _):
        made = ttnn.empty(place.shape, place.dtype, place.layout, mesh)
        assert made.shape == place.shape and made.dtype is place.dtype
        copies = [ttnn.PlacementReplicate()] * 2
        assert made.tensor_topology().placements() == copies
    refused(lambda: ttnn.empty([2]), "device=None is not a MeshDevice", TypeError)


def test_empty_block_floats_come_in_tiles(wide):
    rows = lambda: ttnn.empty([2], ttnn.bfloat8_b, ROWS, wide)  # noqa: E731
    refused(rows, "Only TILE layout is supported for BFLOAT8_B dtype")


@many(40)
@given(places(dtypes=FLOATS + INTEGERS))
def test_values_stay(place):
    with laid(place) as (mesh, t):
        compare(ttnn.assign(t), lambda x: x, t)
        into = ttnn.clone(t)
        assert ttnn.assign(t, into) is into
        compare(into, lambda x: x, t)
        used = ttkit.memory(mesh).used
        moved = ttnn.reallocate(t, ttnn.L1_MEMORY_CONFIG)
        assert not t.is_allocated() and ttkit.memory(mesh).used == used
        compare(moved, lambda x: x, into)
        assert moved.memory_config() == ttnn.L1_MEMORY_CONFIG


def test_assign_casts(wide):
    x = random(wide, (3, 40))
    assert ttnn.assign(x, dtype=ttnn.bfloat16, memory_config=None).dtype is ttnn.bfloat16


# ---------------------------------------------------------------- the machine
USABLE = [
    ("FABRIC_1D", (2, 4), "Ring", "Linear"),
    ("FABRIC_1D_RING", (2, 4), None, "Linear"),
    ("FABRIC_1D", (1, 8), None, "Linear"),
    ("FABRIC_1D", (1, 8), "Ring", "Ring"),
    ("FABRIC_1D_RING", (1, 8), None, "Ring"),
    ("FABRIC_1D_RING", (1, 8), "Linear", "Linear"),
]


@pytest.mark.parametrize(("fabric", "shape", "asked", "usable"), USABLE)
def test_a_ring_is_one_where_cables_close_it(fabric, shape, asked, usable):
    ttnn.set_fabric_config(getattr(ttnn.FabricConfig, fabric))
    topology = asked and getattr(ttnn.Topology, asked)
    with ttnn.open_mesh_device(ttnn.MeshShape(*shape)) as mesh:
        x = ttnn.ones([32, 32], layout=TILE, device=mesh)
        assert ttnn.get_usable_topology(x, topology, 1) == getattr(ttnn.Topology, usable)


def test_a_usable_topology_needs_a_fabric_or_a_wish():
    ttnn.set_fabric_config(ttnn.FabricConfig.DISABLED)
    with ttnn.open_mesh_device(ttnn.MeshShape(1, 8)) as mesh:
        x = ttnn.ones([32, 32], layout=TILE, device=mesh)
        assert ttnn.get_usable_topology(x, ttnn.Topology.Torus) == ttnn.Topology.Torus
        refused(lambda: ttnn.get_usable_topology(x), "un-initialized fabric context")
        host = ttnn.from_device(x)
        refused(lambda: ttnn.get_usable_topology(host), "inputs: the tensor is on the host")


def test_one_process_is_not_started_by_mpi():
    assert not ttnn.using_distributed_env()


def test_names_that_stay_away_say_so():
    for name in ("bitwise_and", "floor_div", "glu", "remainder_", "clamp_bw"):
        with pytest.raises(AttributeError, match=f"ttnn.{name}: the simulator has no such name"):
            getattr(ttnn, name)
