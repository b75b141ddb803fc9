"""Each operation of one operand against its formula, on one chip and on eight."""

import formulas
import numpy as np
import pytest

import ttkit
from ttkit import ttnn
from ttkit.errors import TTKitError
from ttkit.sim.ops.unary import UNARY

GATED = {"geglu": "gelu", "glu": "sigmoid", "reglu": "relu", "swiglu": "silu"}
NAMES = sorted(UNARY.keys() - {"alt_complex_rotate90", "bitwise_not", "erfinv", *GATED})
POSITIVE = {"log", "log10", "log2", "rsqrt", "sqrt", "reciprocal"}
BETWEEN_ONES = {"acos", "asin", "atanh", "logit"}


@pytest.mark.parametrize("kind", ["RR", "S0R", "RS0"])
@pytest.mark.parametrize("name", NAMES)
def test_each_chip_has_the_formulas_values(mesh, put, check, name, kind):
    x = put(mesh, (2, 33, 20), kind, low=0.1 if name in POSITIVE else None)
    if name in BETWEEN_ONES:
        x = ttnn.sigmoid(x) if name == "logit" else ttnn.tanh(x)
    if name in ("acosh", "log1p"):
        x = ttnn.add(ttnn.abs(x), 1.5)
    check(getattr(ttnn, name)(x), formulas.UNARY[name], x)


@pytest.mark.parametrize(
    ("name", "keywords", "formula"),
    [
        ("round", {"decimals": 2}, lambda x: np.round(x, 2)),
        ("elu", {"alpha": 0.5}, lambda x: np.where(x > 0, x, 0.5 * np.expm1(x))),
        ("celu", {"alpha": 0.5}, lambda x: np.where(x > 0, x, 0.5 * np.expm1(2 * x))),
        ("hardtanh", {"min_val": -0.5, "max_val": 0.25}, lambda x: np.clip(x, -0.5, 0.25)),
        ("logit", {"eps": 0.25}, lambda x: formulas.UNARY["logit"](np.clip(x, 0.25, 0.75))),
        ("selu", {"scale": 2.0, "alpha": 0.5}, lambda x: np.where(x > 0, 2 * x, np.expm1(x))),
        ("alt_complex_rotate90", {}, lambda x: formulas.rotated(x, np.full(10, np.pi / 2))),
        ("softplus", {"beta": 2.0, "threshold": 1.0}, lambda x: np.where(2 * x > 1, x, np.log1p(np.exp(2 * x)) / 2)),
    ],
)  # fmt: skip
def test_keywords(mesh, put, check, name, keywords, formula):
    x = put(mesh, (2, 33, 20), "S0R")
    check(getattr(ttnn, name)(x, **keywords), formula, x)


def test_erfinv(mesh, put, check, torch):
    x = ttnn.divide(put(mesh, (2, 33, 20), "S0R", low=2.0), 8.0)
    check(ttnn.erfinv(x), lambda x: torch.erfinv(torch.tensor(x)).numpy(), x, additions=20000)


@pytest.mark.parametrize("name", sorted(GATED))
@pytest.mark.parametrize("dim", [-1, 3])
def test_gated(mesh, put, check, name, dim):
    x = put(mesh, (2, 1, 33, 64), "S0R")
    gate = formulas.UNARY[GATED[name]]
    check(getattr(ttnn, name)(x, dim), lambda x: x[..., :32] * gate(x[..., 32:]), x)


EDGES = [np.inf, -np.inf, np.nan, 0.0, -0.0, 1e38, -1e38, 1e30, -1e30, 1e-30, -1e-30, 1e-40, -1e-40]
EDGES += [100.0, -100.0, 20.0, -20.0, 3.0, -3.0, 1.0, -1.0, 0.5, -0.5]


@pytest.mark.parametrize("name", NAMES)
def test_special_values(wide, parts, name):
    """Infinities, NaN, signed zeros, large and subnormal values, and where formulas change."""
    values = np.array(EDGES, np.float32).reshape(-1, 1)
    x = ttkit.from_numpy(values, layout=ttnn.TILE_LAYOUT, device=wide)
    with np.errstate(all="ignore"):
        want = np.asarray(formulas.UNARY[name](values.astype(np.float64)), np.float32)
    for have in parts(getattr(ttnn, name)(x)):
        np.testing.assert_allclose(have, want, **formulas.tolerance())
        signed = (want == 0) & (name not in ("relu", "relu6"))  # the larger of 0 and -0.0 is either
        np.testing.assert_array_equal(np.signbit(have[signed]), np.signbit(want[signed]))


@pytest.mark.parametrize("name", ["exp", "gelu", "sigmoid", "tanh", "silu", "rsqrt"])
def test_bfloat16_is_rounded_as_stored(wide, put, check, parts, name):
    x = put(wide, (32, 64), "S0R", ttnn.bfloat16, low=0.1)
    result = getattr(ttnn, name)(x)
    assert result.dtype is ttnn.bfloat16
    check(result, formulas.UNARY[name], x)
    np.testing.assert_array_equal(parts(result)[5], formulas.bfloat16(parts(result)[5]))


def test_gelu_by_tanh(mesh, put, check):
    x = put(mesh, (3, 32, 40), "RS0")
    check(ttnn.gelu(x), formulas.gelu, x)
    check(ttnn.gelu(x, variant=ttnn.GeluVariant.Tanh), formulas.gelu_tanh, x)


def test_whole_numbers_are_refused_and_an_output_is_written(wide, put, parts):
    with pytest.raises(
        TTKitError, match="UnaryOpType::SOFTPLUS does not support integer input dtype"
    ):
        ttnn.softplus(ttnn.zeros([32, 32], ttnn.int32, ttnn.TILE_LAYOUT, wide))
    x, out = put(wide, (3, 40)), ttnn.zeros([3, 40], ttnn.float32, ttnn.TILE_LAYOUT, wide)
    assert ttnn.softplus(x, output_tensor=out) is out
    np.testing.assert_array_equal(parts(out)[3], parts(ttnn.softplus(x))[3])
