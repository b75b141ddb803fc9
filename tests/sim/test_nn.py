"""Softmax, normalisations, embedding and gated units against their formulas on each chip."""

import hypothesis
import numpy as np
import pytest
from formulas import layer_norm, rms_norm, softmax
from hypothesis import strategies as st

import ttkit
from ttkit import ttnn
from ttkit.errors import TTKitError

FLOATS = pytest.mark.parametrize(
    "dtype", [ttnn.float32, ttnn.bfloat16], ids=["float32", "bfloat16"]
)
KINDS = pytest.mark.parametrize("kind", ["RR", "S0R", "RS0"])
# of the input and of the parameters: replicas with shards and shards with shards, along one axis
# and along both
PAIRS = pytest.mark.parametrize(
    "kinds",
    [("RR", "RR"), ("S0R", "RR"), ("RR", "RS0"), ("S0R", "RS0"), ("RS0", "RS0")],
    ids="-".join,
)


@FLOATS
@KINDS
@pytest.mark.parametrize("dim", [-1, 1, 0])
def test_softmax(mesh, put, check, dtype, kind, dim):
    x = put(mesh, (3, 33, 50), kind, dtype)
    check(ttnn.softmax(x, dim), lambda x: softmax(x, dim), x, additions=50)
    check(
        ttnn.softmax(x, dim=dim, numeric_stable=False), lambda x: softmax(x, dim), x, additions=50
    )


def test_chips_of_the_tests_differ(wide, put, distinct):
    assert [distinct(put(wide, (2, 32), kind)) for kind in ("RR", "S0R", "RS0")] == [1, 2, 4]
    mixed = ttnn.layer_norm(put(wide, (8, 32), "S0R"), weight=put(wide, (1, 32), "RS0"))
    assert distinct(mixed) == 8


def test_softmax_of_huge_values(wide, parts):
    x = ttkit.from_numpy(
        np.float32([[1e30, 0, -1e30, -np.inf]]), layout=ttnn.TILE_LAYOUT, device=wide
    )
    assert parts(ttnn.softmax(x))[0].tolist() == [[1, 0, 0, 0]]


@KINDS
def test_softmax_in_place_replaces_the_values(mesh, put, check, kind):
    x = put(mesh, (2, 3, 32, 64), kind)
    same = ttnn.clone(x)
    assert ttnn.softmax_in_place(x) is x
    check(x, softmax, same, additions=64)


@FLOATS
@PAIRS
@pytest.mark.parametrize("rows", [1, 32])
def test_scale_mask_softmax(mesh, put, check, dtype, kinds, rows):
    x, mask = (
        put(mesh, (2, 3, 32, 64), kinds[0], dtype),
        put(mesh, (2, 1, rows, 64), kinds[1], dtype),
    )
    check(
        ttnn.scale_mask_softmax(x, 0.5, mask),
        lambda x, m: softmax(x * 0.5 + m),
        x,
        mask,
        additions=64,
    )


def test_scale_mask_softmax_in_place(wide, put, check):
    x, mask = put(wide, (2, 3, 32, 64), "S0R"), put(wide, (2, 1, 32, 64))
    same = ttnn.clone(x)
    assert ttnn.scale_mask_softmax_in_place(x, 0.5, mask) is x
    check(x, lambda x, m: softmax(x * 0.5 + m), same, mask, additions=64)


@FLOATS
@PAIRS
@pytest.mark.parametrize("flat", [True, False], ids=["n", "1xn"])
def test_layer_norm(mesh, put, check, dtype, kinds, flat):
    x, residual = put(mesh, (4, 33, 50), kinds[0], dtype), put(mesh, (4, 33, 50), kinds[1], dtype)
    shape = (1, 50) if not flat or kinds[1] != "RR" else (50,)
    gamma, beta = put(mesh, shape, kinds[1], dtype), put(mesh, shape, kinds[1], dtype)

    def reference(x, g, b, r=0):
        return layer_norm(x + r, g, b)

    check(
        ttnn.layer_norm(x, epsilon=1e-5, weight=gamma, bias=beta),
        reference,
        x,
        gamma,
        beta,
        additions=50,
    )
    check(
        ttnn.layer_norm(x, epsilon=1e-5, weight=gamma, bias=beta, residual_input_tensor=residual),
        reference,
        x,
        gamma,
        beta,
        residual,
        additions=50,
    )


@FLOATS
@PAIRS
def test_rms_norm(mesh, put, check, dtype, kinds):
    x, gamma = put(mesh, (4, 33, 64), kinds[0], dtype), put(mesh, (1, 64), kinds[1], dtype)
    check(
        ttnn.rms_norm(x, epsilon=1e-6, weight=gamma),
        lambda x, g: rms_norm(x, g, 1e-6),
        x,
        gamma,
        additions=64,
    )


def test_norm_in_many_blocks_of_rows(wide, put, check):
    x, gamma = put(wide, (700, 256), "S0R"), put(wide, (1, 256), "RS0")
    check(
        ttnn.layer_norm(x, weight=gamma),
        lambda x, g: layer_norm(x, g, 0, 1e-12),
        x,
        gamma,
        additions=256,
    )
    check(ttnn.softmax(x), softmax, x, additions=256)


def test_row_major_gamma_in_sticks_of_32(wide, put, check):
    x, gamma = (
        put(wide, (32, 64), dtype=ttnn.bfloat16),
        put(wide, (2, 32), dtype=ttnn.bfloat16, layout=ttnn.ROW_MAJOR_LAYOUT),
    )
    check(
        ttnn.layer_norm(x, weight=gamma),
        lambda x, g: layer_norm(x, g.reshape(64), 0, 1e-12),
        x,
        gamma,
        additions=64,
    )


@PAIRS
@pytest.mark.parametrize("layout", [ttnn.ROW_MAJOR_LAYOUT, ttnn.TILE_LAYOUT], ids=["rows", "tiles"])
def test_embedding(mesh, put, check, kinds, layout):
    for front in [(), (1, 1)] if kinds[1] == "RR" else [()]:
        table = put(mesh, (*front, 40, 64), kinds[1], ttnn.bfloat16, layout=ttnn.ROW_MAJOR_LAYOUT)
        tokens = put(mesh, (2, 33), kinds[0], ttnn.uint32, 40, layout=ttnn.ROW_MAJOR_LAYOUT)
        out = ttnn.embedding(tokens, table, layout=layout)
        assert out.layout is layout and out.dtype is ttnn.bfloat16
        check(out, lambda i, w: w.reshape(40, 64)[i], tokens, table)


def test_embedding_of_the_padding_is_zero(wide, put, check):
    table, tokens = (
        put(wide, (8, 32), "RS0", ttnn.bfloat16),
        put(wide, (2, 32), "S0R", ttnn.uint32, 8, layout=ttnn.ROW_MAJOR_LAYOUT),
    )
    check(
        ttnn.embedding(tokens, table, padding_idx=3),
        lambda i, w: w[i] * (i != 3)[..., None],
        tokens,
        table,
    )


SHAPES = st.lists(st.integers(1, 40), min_size=2, max_size=4).map(tuple)
MAPPINGS = st.sampled_from(["RR", "S0R", "RS0"])


@hypothesis.settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
@hypothesis.given(shape=SHAPES, kinds=st.tuples(MAPPINGS, MAPPINGS), dim=st.integers(-2, 1))
def test_any_shape(wide, put, check, shape, kinds, dim):
    x, gamma = put(wide, shape, kinds[0]), put(wide, (1, shape[-1]), kinds[1])
    check(ttnn.softmax(x, dim), lambda x: softmax(x, dim), x, additions=50)
    norm, magnified = lambda x, g: layer_norm(x, g, 0, 1e-3), 40 * 32  # by 1 / sqrt(epsilon)
    check(ttnn.layer_norm(x, epsilon=1e-3, weight=gamma), norm, x, gamma, additions=magnified)
    check(
        ttnn.rms_norm(x, epsilon=1e-3, weight=gamma),
        lambda x, g: rms_norm(x, g, 1e-3),
        x,
        gamma,
        additions=40,
    )


def test_layer_norm_of_rows(wide, put, check):
    x, residual = (
        put(wide, (2, 33, 64), "S0R", layout=ttnn.ROW_MAJOR_LAYOUT),
        put(wide, (2, 33, 64), "RS0"),
    )
    out = ttnn.layer_norm(x, residual_input_tensor=residual)
    assert out.layout is ttnn.ROW_MAJOR_LAYOUT
    check(out, lambda x, r: layer_norm(x + r), x, residual, additions=64)


def test_scale_mask_softmax_of_rows_gives_tiles(wide, put, check):
    x = put(wide, (2, 1, 32, 64), "S0R", layout=ttnn.ROW_MAJOR_LAYOUT)
    out = ttnn.scale_mask_softmax(x)
    assert out.layout is ttnn.TILE_LAYOUT
    check(out, softmax, x, additions=256)


@pytest.mark.parametrize("shape", [(2, 1, 33), (2, 1, 1, 33), (2, 3, 33), (1, 1, 1, 1)], ids=str)
def test_embedding_of_higher_ranks(mesh, put, check, shape):
    table, tokens = (
        put(mesh, (8, 32), "RS0", ttnn.bfloat16),
        put(mesh, shape, "S0R", ttnn.uint32, 8, layout=ttnn.ROW_MAJOR_LAYOUT),
    )
    check(
        ttnn.embedding(tokens, table),
        lambda i, w: w[i.reshape(shape[0], -1, shape[-1])[:, 0]],
        tokens,
        table,
    )


@KINDS
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


def test_dropout_at_its_ends_and_into_a_tensor(wide, put, check):
    x, into = put(wide, (2, 32), "S0R", ttnn.bfloat16), put(wide, (2, 32), "S0R", ttnn.bfloat16)
    check(ttnn.experimental.dropout(x, 0.0, 1.0, 0), lambda x: x, x)
    assert ttnn.experimental.dropout(x, 1.0, 3.0, 0, output_tensor=into) is into
    check(into, lambda x: 0 * x, x)


T, ROWS = ttnn.TILE_LAYOUT, ttnn.ROW_MAJOR_LAYOUT
REFUSED = {
    "dim": (
        lambda p: ttnn.softmax(p((32, 64)), 7),
        r"Dimension out of range \(expected to be in range of \[-2, 1\], but got 7\)",
    ),
    "row-major": (
        lambda p: ttnn.softmax(p((32, 64), layout=ROWS)),
        "Inputs to softmax must be tilized",
    ),
    "integers": (
        lambda p: ttnn.softmax(p((32, 64), dtype=ttnn.uint32, low=3)),
        "must be FLOAT32, BFLOAT16, or BFLOAT8_B, got: DataType::UINT32",
    ),
    "scale alone": (
        lambda p: ttnn.scale_mask_softmax(p((1, 1, 32, 64)), 0.5),
        "Scale value must not be set when mask is not present",
    ),
    "rms rows": (
        lambda p: ttnn.rms_norm(p((32, 64), layout=ROWS)),
        "ttnn::rms_norm does not support ROW_MAJOR input tensors. Use TILE layout",
    ),
    "norm rows": (
        lambda p: ttnn.layer_norm(p((32, 50), layout=ROWS)),
        r"ROW_MAJOR input requires W \(50\) to be a multiple of tile width",
    ),
    "residual rows": (
        lambda p: ttnn.layer_norm(p((32, 64)), residual_input_tensor=p((32, 64), layout=ROWS)),
        "Residual tensor must have TILE layout",
    ),
    "host table": (
        lambda p: ttnn.embedding(p((1, 32), dtype=ttnn.uint32, low=3), p((8, 32)).cpu()),
        "Device Operations expect device tensors",
    ),
    "dropout type": (
        lambda p: ttnn.experimental.dropout(p((32, 64)), 0.1, 1.0, 0),
        "requires input and output data types to match",
    ),
    "dropout rows": (
        lambda p: ttnn.experimental.dropout(
            p((32, 64), dtype=ttnn.bfloat16, layout=ROWS), 0.1, 1.0, 0
        ),
        "to be in Tile layout",
    ),
    "mask batch": (
        lambda p: ttnn.scale_mask_softmax(p((2, 1, 32, 64)), 0.5, p((1, 1, 32, 64))),
        "batch sizes must match, got input: 2 vs mask: 1",
    ),
    "mask heads": (
        lambda p: ttnn.scale_mask_softmax(p((1, 2, 32, 64)), 0.5, p((1, 2, 32, 64))),
        "intermediate dimension 1 must be 1, got: 2",
    ),
    "mask rank": (
        lambda p: ttnn.scale_mask_softmax(p((32, 64)), 0.5, p((32, 64))),
        "batch sizes must match, got input: 1 vs mask: 32",
    ),
    "gamma": (
        lambda p: ttnn.layer_norm(p((32, 64)), weight=p((1, 96))),
        "gamma padded widths must match",
    ),
    "gamma rows": (
        lambda p: ttnn.rms_norm(p((32, 64)), weight=p((64,), layout=ROWS)),
        "Gamma's last padded dim needs to equal tile width",
    ),
    "residual": (
        lambda p: ttnn.layer_norm(p((32, 64)), residual_input_tensor=p((64, 64))),
        "Input and residual logical and padded shapes must match",
    ),
    "table type": (
        lambda p: ttnn.embedding(p((1, 32), dtype=ttnn.uint32, low=3), p((8, 32))),
        "Weights tensor must have BFLOAT16 dtype",
    ),
    "table rank": (
        lambda p: ttnn.embedding(
            p((1, 32), dtype=ttnn.uint32, low=3), p((2, 8, 32), dtype=ttnn.bfloat16)
        ),
        "must be 1 but got 2",
    ),
    "index": (
        lambda p: ttnn.embedding(
            p((1, 32), dtype=ttnn.uint32, low=999), p((2, 32), dtype=ttnn.bfloat16)
        ),
        "outside of a table of 2 rows",
    ),
}


def test_dropout_refuses_a_negative_seed(wide, put):
    with pytest.raises(TypeError, match="incompatible function arguments: seed -1"):
        ttnn.experimental.dropout(put(wide, (32, 64), dtype=ttnn.bfloat16), 0.1, 1.0, -1)


@pytest.mark.parametrize("case", REFUSED)
def test_refused(wide, put, case):
    call, message = REFUSED[case]
    with pytest.raises(TTKitError, match=message):
        call(lambda *args, **options: put(wide, *args, **options))
