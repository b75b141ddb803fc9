"""Each operation of one operand against its formula, on one chip and on each of eight."""

import formulas
import numpy as np
import pytest

import ttkit
from ttkit import ttnn
from ttkit.sim.unary import UNARY

NAMES = sorted(UNARY)
POSITIVE = {"log", "log10", "log2", "rsqrt", "sqrt", "reciprocal"}
BETWEEN_ONES = {"acos", "asin"}


@pytest.mark.parametrize("kind", ["RR", "S0R", "RS0"])
@pytest.mark.parametrize("name", NAMES)
def test_each_chip_has_the_formulas_values(mesh, put, check, name, kind):
    x = put(mesh, (2, 33, 20), kind, low=0.1 if name in POSITIVE else None)
    if name in BETWEEN_ONES:
        x = ttnn.tanh(x)
    if name == "log1p":
        x = ttnn.abs(x)
    check(getattr(ttnn, name)(x), formulas.UNARY[name], x)


EDGES = [np.inf, -np.inf, np.nan, 0.0, -0.0, 1e38, -1e38, 1e30, -1e30, 1e-30, -1e-30, 1e-40, -1e-40]
EDGES += [100.0, -100.0, 20.0, -20.0, 3.0, -3.0, 1.0, -1.0, 0.5, -0.5]


@pytest.mark.parametrize("name", [*NAMES, "gelu", "sigmoid", "softplus", "elu"])
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


def test_parameters(mesh, put, check):
    x = put(mesh, (3, 32, 40), "RS0")
    check(ttnn.gelu(x), formulas.gelu, x)
    check(ttnn.gelu(x, variant=ttnn.GeluVariant.Tanh), formulas.gelu_tanh, x)
    check(ttnn.leaky_relu(x, negative_slope=0.3), lambda x: formulas.leaky_relu(x, 0.3), x)
    check(ttnn.elu(x, alpha=0.7), lambda x: formulas.elu(x, 0.7), x)
    check(ttnn.softplus(x, beta=2.0, threshold=1.5), lambda x: formulas.softplus(x, 2.0, 1.5), x)
    check(ttnn.hardtanh(x, min_val=-0.5, max_val=0.25), lambda x: np.clip(x, -0.5, 0.25), x)
    check(ttnn.clamp(x, min=-0.5, max=0.25), lambda x: np.clip(x, -0.5, 0.25), x)
