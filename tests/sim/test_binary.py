"""Each operation of two operands, or of one and a number, against its formula on each chip."""

import numpy as np
import pytest
from formulas import BINARY, gelu, gelu_tanh, tolerance

import ttkit
from ttkit import ttnn
from ttkit.errors import TTKitError
from ttkit.sim.ops.binary import IN_PLACE, ONLY_WHOLE

POSITIVE = {"hypot", "ldexp", "logaddexp2", "xlogy"}  # They are tested on positive numbers.
# Of a tensor and a number.
WITH_NUMBER = {*"floor_div heaviside leaky_relu pow prelu rdiv relu_max relu_min rpow".split()}
FLOATS = sorted(BINARY.keys() - POSITIVE - WITH_NUMBER)
SHAPES = [
    ((2, 33, 20), (2, 33, 20)),
    ((2, 33, 20), (1, 33, 1)),
    ((1, 1, 20), (2, 33, 20)),
    ((4, 2, 8, 8), (8, 8)),
]


@pytest.mark.parametrize("kinds", [("RR", "RR"), ("S0R", "RR"), ("S0R", "RS0")], ids="-".join)
@pytest.mark.parametrize("name", FLOATS)
def test_each_chip_has_the_formulas_values(mesh, put, check, name, kinds):
    low = 0.5 if name in ("fmod", "remainder") else None
    a, b = put(mesh, (2, 33, 20), kinds[0]), put(mesh, (2, 33, 20), kinds[1], low=low)
    check(getattr(ttnn, name)(a, b), BINARY[name], a, b)


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide", "gt", "maximum"])
def test_sizes_of_one_repeat(mesh, put, check, name, shapes):
    a, b = (put(mesh, shape, low=0.5) for shape in shapes)
    check(getattr(ttnn, name)(a, b), BINARY[name], a, b)


@pytest.mark.parametrize(
    "name",
    [*"add subtract multiply divide div_no_nan rsub eq lt remainder".split(), *sorted(WITH_NUMBER)],
)
@pytest.mark.parametrize("number", [2, 0.5])
def test_with_a_number(mesh, put, check, name, number):
    x = put(mesh, (2, 32, 20), "RS0", low=0.5)
    check(getattr(ttnn, name)(x, number), lambda x: BINARY[name](x, number), x)


EDGES = [np.inf, -np.inf, np.nan, 0.0, -0.0, 1e38, -1e38, 1e-40, -1e-40, 1.0, -1.0, 3.0, -3.0]
ANY = sorted({*FLOATS} - {"bias_gelu", "fmod", "logaddexp", "remainder"})


@pytest.mark.parametrize("name", ANY)
def test_special_values(wide, parts, name):
    """Each with each: infinite, no number, zeros with their signs, large, subnormal, equal."""
    first, second = np.meshgrid(np.float32(EDGES), np.float32(EDGES))
    a, b = (ttkit.from_numpy(x, layout=ttnn.TILE_LAYOUT, device=wide) for x in (first, second))
    with np.errstate(all="ignore"):
        want = np.float32(BINARY[name](first.astype(np.float64), second.astype(np.float64)))
    for have in parts(getattr(ttnn, name)(a, b)):
        np.testing.assert_allclose(have, want, **tolerance())
        signed = (want == 0) & (name not in ("maximum", "minimum"))  # either zero is the larger
        np.testing.assert_array_equal(np.signbit(have[signed]), np.signbit(want[signed]))


def test_python_operators(wide, put, check):
    a, b = put(wide, (32, 64), "S0R"), put(wide, (32, 64), "RS0", low=0.5)
    check((a + b) * 2 - a / b, lambda a, b: (a + b) * 2 - a / b, a, b)
    check(1 - a, lambda a: 1 - a, a)
    check(a > b, lambda a, b: a > b, a, b)
    check(a @ ttnn.transpose(b, 0, 1), lambda a, b: a @ b.T, a, b, additions=64)


@pytest.mark.parametrize("name", sorted(IN_PLACE))
def test_in_place_replaces_the_first(wide, put, check, name):
    a, b = put(wide, (32, 64), "S0R"), put(wide, (32, 64), "RS0", low=0.5)
    before, call = ttnn.clone(a), getattr(ttnn, f"{name}_")
    assert call(a, b) is a
    check(a, BINARY[name], before, b)
    again = ttnn.clone(b)
    call(again, 2.0)
    check(again, lambda b: BINARY[name](b, 2.0), b)
    whole = ttnn.zeros([32, 64], ttnn.int32, ttnn.TILE_LAYOUT, wide)
    with pytest.raises(TTKitError, match=rf"{name}_\(\[32, 64\] FLOAT32"):
        call(a, whole)


def test_limits(mesh, put, check):
    x, low, high = (put(mesh, (2, 33, 20), kind) for kind in ("RR", "S0R", "RS0"))
    check(ttnn.clamp(x, min=-0.5, max=0.25), lambda x: np.clip(x, -0.5, 0.25), x)
    # Sixteen elements share an exponent: that of the result, where no 8 is left.
    row = np.tile(np.float32([8, -8, 0.3, -0.3]), (32, 8))
    near = ttkit.from_numpy(row, dtype=ttnn.bfloat8_b, device=x.device(), layout=ttnn.TILE_LAYOUT)
    kept = ttkit.to_numpy(ttnn.get_device_tensors(ttnn.clamp(near, min=-0.35, max=0.4))[0])
    np.testing.assert_allclose(kept[0, :2], [0.4, -0.35], atol=2**-8)
    check(ttnn.clip(x, -0.5), lambda x: np.maximum(x, -0.5), x)
    check(ttnn.clamp(x, low, high), lambda x, a, b: np.minimum(np.maximum(x, a), b), x, low, high)


def test_fused_activations(wide, put, check):
    a, b = put(wide, (32, 64), "S0R"), put(wide, (32, 64))
    relu = [ttnn.UnaryWithParam(ttnn.UnaryOpType.RELU)]
    check(ttnn.add(a, b, activations=relu), lambda a, b: np.maximum(a + b, 0), a, b)


@pytest.mark.parametrize("pair", [tuple, list])
def test_activations_with_a_parameter(wide, put, check, pair):
    """GELU with True is `gelu`'s fast mode, by tanh."""
    a, b, kind = put(wide, (32, 64), "S0R"), put(wide, (32, 64)), ttnn.UnaryOpType.GELU
    for fast, formula in ((True, gelu_tanh), (False, gelu)):
        first = ttnn.multiply(a, b, input_tensor_a_activations=[pair((kind, fast))])
        check(first, lambda a, b, f=formula: f(a) * b, a, b)
        after = ttnn.multiply(a, b, activations=[ttnn.UnaryWithParam(kind, fast)])
        check(after, lambda a, b, f=formula: f(a * b), a, b)


@pytest.mark.parametrize("name", ["div", "divide"])
def test_rounded_quotients(wide, put, check, parts, torch, name):
    a, b = put(wide, (32, 64), "S0R"), put(wide, (1, 64), low=0.1)
    divide = getattr(ttnn, name)
    for mode, formula in ((None, np.array), ("floor", np.floor), ("trunc", np.trunc)):
        check(divide(a, b, rounding_mode=mode), lambda a, b, f=formula: f(a / b), a, b)
        check(divide(a, 0.25, rounding_mode=mode), lambda a, f=formula: f(a / 0.25), a)
        for got, x in zip(parts(divide(a, 0.25, rounding_mode=mode)), parts(a)):
            of_torch = torch.div(torch.from_numpy(x), 0.25, rounding_mode=mode)
            np.testing.assert_array_equal(got, of_torch.numpy())
    halved = divide(a, b, rounding_mode="floor", activations=[ttnn.UnaryOpType.RELU])
    check(halved, lambda a, b: np.maximum(np.floor(a / b), 0), a, b)


def test_shapes_that_do_not_fit(wide, put):
    with pytest.raises(TTKitError, match=r"\[2, 32, 64\].*\[3, 32, 64\]"):
        ttnn.add(put(wide, (2, 32, 64)), put(wide, (3, 32, 64)))


def test_where_and_multiply_add(mesh, put, check):
    p, a = put(mesh, (2, 32, 20), "S0R"), put(mesh, (2, 32, 20))
    b = put(mesh, (2, 32, 20), "RS0", low=0.5)
    check(ttnn.where(ttnn.gtz(p), a, b), lambda p, a, b: np.where(p > 0, a, b), p, a, b)
    check(ttnn.addcmul(p, a, b, value=0.5), lambda p, a, b: p + 0.5 * a * b, p, a, b)
    check(ttnn.addcdiv(p, a, b, value=0.5), lambda p, a, b: p + 0.5 * a / b, p, a, b)
    check(ttnn.lerp(p, a, b), lambda p, a, b: p + b * (a - p), p, a, b)
    check(ttnn.mac(p, 2.0, b), lambda p, b: 2 * p + b, p, b)
    check(ttnn.addalpha(p, a, 0.5), lambda p, a: p + a / 2, p, a)
    check(ttnn.subalpha(p, a, alpha=0.5), lambda p, a: p - a / 2, p, a)
    check(ttnn.threshold(p, 0.5, 2.0), lambda p: np.where(p > 0.5, p, 2), p)
    check(ttnn.polyval(p, [3.0, 0.0, 1.0]), lambda p: 3 * p**2 + 1, p)
    check(ttnn.nextafter(p, a), lambda p, a: np.nextafter(*np.float32([p, a])), p, a)
    check(ttnn.leaky_relu(p, 0.5), lambda p: np.where(p < 0, p / 2, p), p)


@pytest.mark.parametrize("chosen", ["S0R", "RS0", "S0S1"])
@pytest.mark.parametrize("other", ["RR", "S0R", "S0S1"])
def test_where_with_one_condition_for_each_chip(mesh, put, check, chosen, other):
    p, a, b = put(mesh, (1, 1), chosen), put(mesh, (32, 20), "S0S1"), put(mesh, (32, 20), other)
    check(ttnn.where(ttnn.gtz(p), a, b), lambda p, a, b: np.where(p > 0, a, b), p, a, b)


@pytest.mark.parametrize("name", sorted(POSITIVE))
def test_the_less_usual(mesh, put, check, name):
    a, b = put(mesh, (2, 33, 20), "S0R", low=0.5), put(mesh, (2, 33, 20), "RS0", low=0.5)
    check(getattr(ttnn, name)(a, b), BINARY[name], a, b)


@pytest.mark.parametrize("name", sorted(ONLY_WHOLE.keys() - {"bitwise_left_shift"}))
def test_whole_numbers_only(wide, put, check, name):
    a, b = (put(wide, (2, 33, 20), kind, ttnn.uint32, low=90) for kind in ("S0R", "RS0"))
    check(getattr(ttnn, name)(a, b), ONLY_WHOLE[name], a, b)
    with pytest.raises(TTKitError, match="not supported for ttnn"):
        getattr(ttnn, name)(put(wide, (2, 32)), put(wide, (2, 32)))


def test_bits(wide, put, check):
    a = put(wide, (2, 33, 20), "S0R", ttnn.uint32, low=90)
    check(ttnn.bitwise_left_shift(a, 3), lambda a: 8 * a, a)
    check(ttnn.bitwise_not(a), lambda a: 2**32 - 1 - a, a)
    check(ttnn.fill(a, 3), lambda a: 0 * a + 3, a)


def of(mesh, dtype, layout=ttnn.TILE_LAYOUT):
    sevens, dtype = np.full((32, 32), 7, np.float32), getattr(ttnn, dtype)
    return ttkit.from_numpy(sevens, dtype=dtype, device=mesh, layout=layout)


@pytest.mark.parametrize(
    ("name", "a", "b", "expected"),
    [
        ("add", "bfloat8_b", "float32", "BFLOAT8_B"), ("add", "uint16", "uint16", "UINT16"), ("add", "int32", "float32", "not supported for ttnn"),
        ("add", "uint8", "uint8", "UINT8"), ("multiply", "int32", 2, "INT32"), ("eq", "uint16", 7, "UINT16"),
        ("maximum", "bfloat16", "float32", "BFLOAT16"), ("hypot", "bfloat16", "int32", "not supported for ttnn"),
        ("add", "int32", 2.5, "cannot represent the scalar 2.5"), ("add", "uint32", -1, "cannot represent the scalar -1"),
        ("divide", "int32", "int32", "Input tensor A"), ("pow", "int32", 2, "Input tensor A"), ("maximum", "uint8", 1, "UINT8"),
        ("add", "uint32", 2**32 - 1, "UINT32"), ("add", "int32", 2**31, "cannot represent the scalar 2147483648"),
    ],
)  # fmt: skip
def test_types_of_results_and_refusals(wide, name, a, b, expected):
    first, second = of(wide, a), of(wide, b) if isinstance(b, str) else b
    if expected.isupper():
        assert getattr(ttnn, name)(first, second).dtype.name == expected
    else:
        with pytest.raises(TTKitError, match=expected):
            getattr(ttnn, name)(first, second)


def test_row_major_with_tiles_gives_tiles(wide):
    rows, tiles = of(wide, "float32", ttnn.ROW_MAJOR_LAYOUT), of(wide, "float32")
    made = [ttnn.add(a, b).layout.name for a in (rows, tiles) for b in (rows, tiles)]
    assert made == ["ROW_MAJOR", "TILE", "TILE", "TILE"]


def test_a_number_comes_first_where_ttnn_has_it(wide, put, check):
    x = put(wide, (8, 32), "S0R", low=0.5)
    check(2 / x, lambda x: 2 / x, x)
    with pytest.raises(TypeError, match="incompatible function arguments"):
        ttnn.maximum(2, x)


def test_an_output_tensor_speaks_of_the_operands(wide, put, check):
    out, a = put(wide, (8, 32), "RR"), put(wide, (8, 32), "S0R")
    assert ttnn.exp(a, output_tensor=out) is out
    assert out.tensor_topology() == a.tensor_topology()
    check(out, np.exp, a)
    with pytest.raises(TTKitError, match="the output tensor"):
        ttnn.exp(a, output_tensor=put(wide, (8, 16), "RR"))


def test_bcast(box, cut, check):
    columns = box.shape[1]
    values = np.random.default_rng(1).standard_normal((2, columns, 64, 96), np.float32)
    a = cut(box, values, (None, 1))
    for dim, shape in (("H", (2, 1, 1, 96)), ("W", (1, 1, 64, 1)), ("HW", (1, 1, 1, 1))):
        shape = (shape[0], columns if shape[0] > 1 else 1, *shape[2:])
        b = np.random.default_rng(2).standard_normal(shape, np.float32)
        b = cut(box, b, (None, 1 if shape[0] > 1 else None))
        for name, function in (("ADD", np.add), ("SUB", np.subtract), ("MUL", np.multiply)):
            how = (getattr(ttnn.BcastOpMath, name), getattr(ttnn.BcastOpDim, dim))
            check(ttnn.bcast(a, b, *how), function, a, b)


@pytest.mark.parametrize("name", "real imag angle conj isreal is_imag polar".split())
def test_complex_numbers(mesh, put, check, name):
    x, y = (ttnn.relu(put(mesh, (2, 33, 20), kind)) for kind in ("S0R", "RS0"))  # Half are 0.
    own = {"is_imag": lambda z: z.real == 0, "polar": lambda z: z.real * np.exp(1j * z.imag)}

    def reference(x, y):
        z = (own.get(name) or getattr(np, name))(x + 1j * y)
        return [z.real, z.imag] if np.iscomplexobj(z) else z.astype(float)

    made = getattr(ttnn, name.replace("isreal", "is_real"))(ttnn.complex_tensor(x, y))
    check(made, reference, x, y)
    with pytest.raises(TypeError, match="operand is no complex tensor"):
        ttnn.angle(x)
