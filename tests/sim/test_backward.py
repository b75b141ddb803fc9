"""Gradients against the slopes of the formulas, on one chip and on each of eight."""

import warnings

import formulas
import numpy as np
import pytest
from formulas import slope

from ttkit import ttnn
from ttkit.dialect import DialectWarning, strict
from ttkit.errors import TTKitError

FLOATS = pytest.mark.parametrize("dtype", [ttnn.float32, ttnn.bfloat16], ids=["float32", "bfloat16"])
PAIRS = pytest.mark.parametrize("kinds", [("RR", "RR"), ("S0R", "RR"), ("RR", "RS0"), ("S0R", "RS0")], ids="-".join)
# the formulas' names; those of the third row need positive values
UNARY = {
    **dict.fromkeys("relu silu sigmoid tanh exp neg abs square sin cos erf expm1 gelu softplus leaky_relu elu".split()),
    **dict.fromkeys("atan sinh cosh exp2 erfc relu6 hardsigmoid hardswish log_sigmoid softsign tanhshrink".split()),
    **dict.fromkeys("log sqrt rsqrt reciprocal log1p log2 log10".split(), 0.5),
}


# A bfloat16 lies on a corner of these, where a central difference is the mean of two slopes.
CORNERS = {"hardsigmoid": lambda x: (np.abs(x) < 3) / 6, "hardswish": lambda x: np.where(np.abs(x) < 3, x / 3 + 0.5, x >= 3)}
PAIRED = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}


def gradients(function):
    """(grad, *inputs) -> the gradient of each input of an elementwise function."""

    def reference(grad, *inputs):
        return [folded(grad * slope(function, *inputs, by=i), x.shape) for i, x in enumerate(inputs)]

    return reference


def folded(values, shape):
    """The sum over the dimensions along which an operand of this shape was repeated."""
    values = values.sum(tuple(range(values.ndim - len(shape))))
    return values.sum(tuple(i for i, n in enumerate(shape) if n < values.shape[i]), keepdims=True)


@FLOATS
@PAIRS
@pytest.mark.parametrize("name", UNARY)
def test_one_operand(mesh, put, check, dtype, kinds, name):
    grad, x = put(mesh, (3, 33, 50), kinds[0], dtype), put(mesh, (3, 33, 50), kinds[1], dtype, UNARY[name])
    made = getattr(ttnn, f"{name}_bw")(grad, x)
    assert isinstance(made, list) and len(made) == 1
    check(made, (lambda g, x: g * CORNERS[name](x)) if name in CORNERS else gradients(formulas.UNARY[name]), grad, x)


@FLOATS
@PAIRS
@pytest.mark.parametrize("name", ["acos", "asin", "tan"])
def test_one_operand_below_one(mesh, put, check, dtype, kinds, name):
    grad, x = put(mesh, (33, 50), kinds[0], dtype), ttnn.sigmoid(put(mesh, (33, 50), kinds[1], dtype))
    check(getattr(ttnn, f"{name}_bw")(grad, x), gradients(formulas.UNARY[name]), grad, x)


@pytest.mark.parametrize("name, options", [("softplus", {"beta": 2.0, "threshold": 1.5}), ("leaky_relu", {"negative_slope": 0.3}), ("elu", {"alpha": 0.7})])
def test_one_operand_and_numbers(wide, put, check, name, options):
    grad, x = put(wide, (33, 50), "S0R"), put(wide, (33, 50), "RS0")
    check(getattr(ttnn, f"{name}_bw")(grad, x, **options), gradients(lambda x: formulas.UNARY[name](x, **options)), grad, x)


@PAIRS
def test_gelu_by_tanh(mesh, put, check, kinds):
    grad, x = put(mesh, (33, 50), kinds[0]), put(mesh, (33, 50), kinds[1])
    check(ttnn.gelu_bw(grad, x, variant=ttnn.GeluVariant.Tanh), gradients(formulas.gelu_tanh), grad, x)


def test_older_form_of_gelu(wide, put, check):
    grad, x = put(wide, (33, 50), "S0R"), put(wide, (33, 50))
    with pytest.raises(TypeError, match="approximate"):  # tests run strict
        ttnn.gelu_bw(grad, x, approximate="tanh")
    strict(False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DialectWarning)
        made = ttnn.gelu_bw(grad, x, approximate="tanh")
        with pytest.raises(TTKitError, match="Incorrect approximate mode"):
            ttnn.gelu_bw(grad, x, approximate="fast")
    check(made, gradients(formulas.gelu_tanh), grad, x)


@pytest.mark.parametrize("name", ["silu", "tanh", "exp", "sqrt", "rsqrt", "neg", "gelu"])
def test_into_a_given_tensor(wide, put, check, name):
    grad, x, into = put(wide, (33, 50), "S0R"), put(wide, (33, 50), "RS0", low=0.5), put(wide, (33, 50), "S0R")
    assert getattr(ttnn, f"{name}_bw")(grad, x, input_grad=into)[0] is into
    check(into, gradients(formulas.UNARY[name]), grad, x)


def test_names_without_input_grad_refuse_it(wide, put):
    x = put(wide, (32, 32))
    for name in ("relu", "sigmoid", "log", "square"):
        with pytest.raises(TypeError):
            getattr(ttnn, f"{name}_bw")(x, x, input_grad=x)


@FLOATS
@PAIRS
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
def test_two_operands(mesh, put, check, dtype, kinds, name):
    grad, a, b = put(mesh, (33, 50), "RR", dtype), put(mesh, (33, 50), kinds[0], dtype), put(mesh, (33, 50), kinds[1], dtype, 0.5)
    call = getattr(ttnn, f"{name}_bw")
    check(call(grad, a, b), gradients(PAIRED[name]), grad, a, b)
    first = call(grad, a, b, are_required_outputs=[True, False])
    assert first[1] is None
    check(first[:1], lambda *x: gradients(PAIRED[name])(*x)[:1], grad, a, b)
    assert call(grad, a, b, are_required_outputs=[False, False]) == [None, None]


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
def test_operand_and_number(wide, put, check, name):
    grad, a = put(wide, (33, 50), "S0R"), put(wide, (33, 50), "RS0")
    check(getattr(ttnn, f"{name}_bw")(grad, a, 2.5), gradients(lambda a: PAIRED[name](a, 2.5)), grad, a)


@PAIRS
@pytest.mark.parametrize("shape", [(1, 1, 33, 50), (1, 1, 1, 50), (1, 50), (2, 1, 33, 1)], ids=str)
def test_mul_adds_up_where_an_operand_repeated(mesh, put, check, kinds, shape):
    grad, a, b = put(mesh, (2, 3, 33, 50), kinds[0]), put(mesh, (2, 3, 33, 50), kinds[1]), put(mesh, shape, kinds[1])
    check(ttnn.mul_bw(grad, a, b), gradients(np.multiply), grad, a, b, additions=2 * 3 * 33)
    check(ttnn.mul_bw(grad, b, a), gradients(np.multiply), grad, b, a, additions=2 * 3 * 33)


@PAIRS
@pytest.mark.parametrize("exponent", [3.0, 1.5, 1.0, 0.0])
def test_pow(mesh, put, check, kinds, exponent):
    grad, x = put(mesh, (33, 50), kinds[0]), put(mesh, (33, 50), kinds[1], low=0.5)
    check(ttnn.pow_bw(grad, x, exponent), gradients(lambda x: x**exponent), grad, x)


@PAIRS
@pytest.mark.parametrize("low, high", [(-0.5, 0.5), (None, 0.2), (0.1, None)])
def test_clamp(mesh, put, check, kinds, low, high):
    grad, x = put(mesh, (33, 50), kinds[0]), put(mesh, (33, 50), kinds[1])
    check(ttnn.clamp_bw(grad, x, low, high), gradients(lambda x: np.clip(x, low, high)), grad, x)


def test_clamp_between_tensors(wide, put, check):
    grad, x, low, high = put(wide, (33, 50)), put(wide, (33, 50), "S0R"), put(wide, (33, 50)), put(wide, (33, 50), "RS0", low=0.1)
    reference = lambda g, x, low, high: g * ((x >= low) & (x <= high))  # noqa: E731
    check(ttnn.clamp_bw(grad, x, low, high), reference, grad, x, low, high)


@PAIRS
def test_where(mesh, put, check, kinds):
    grad, a, b, c = (put(mesh, (33, 50), kind) for kind in (kinds[0], kinds[1], "RR", "RR"))
    check(ttnn.where_bw(grad, ttnn.gtz(a), b, c), lambda g, a: [g * (a > 0), g * (a <= 0)], grad, a)
    assert ttnn.where_bw(grad, a, b, c, are_required_outputs=[False, True])[0] is None


@PAIRS
@pytest.mark.parametrize("dim", [0, 3, -2])
def test_concat(mesh, put, check, kinds, dim):
    shapes = [[2, 3, 32, 64], [2, 3, 32, 64]]
    shapes[1][dim] = 32
    whole = list(shapes[0])
    whole[dim] += 32
    grad, a, b = put(mesh, whole, kinds[0]), put(mesh, shapes[0], kinds[1]), put(mesh, shapes[1], kinds[1])
    check(ttnn.concat_bw(grad, a, b, dim), lambda g: np.split(g, [shapes[0][dim]], dim), grad)
    assert ttnn.concat_bw(grad, a, b, dim, are_required_outputs=[True, False])[1] is None


@PAIRS
@pytest.mark.parametrize("batch", [1, 2])
def test_embedding(mesh, put, check, kinds, batch):
    indices = put(mesh, (batch, 32), kinds[0], ttnn.uint32, 8, layout=ttnn.ROW_MAJOR_LAYOUT)
    table = put(mesh, (8, 64), "RR", ttnn.bfloat16, layout=ttnn.ROW_MAJOR_LAYOUT)
    grad = put(mesh, (1, 1, 32 * batch, 64), kinds[1], ttnn.bfloat16)
    out = ttnn.embedding_bw(indices, table, grad)
    assert isinstance(out, ttnn.Tensor) and out.layout is ttnn.TILE_LAYOUT
    check(out, lambda i, g: (np.arange(8)[:, None] == i.ravel()) @ g, indices, grad, additions=32 * batch)


S, ROWS = (1, 1, 32, 64), ttnn.ROW_MAJOR_LAYOUT
REFUSED = {
    "sub repeats": (lambda p: ttnn.sub_bw(p(S), p(S), p((1, 1, 1, 64))), TTKitError, "does not match the broadcasted output shape"),
    "shapes": (lambda p: ttnn.relu_bw(p(S), p((1, 1, 32, 32))), TTKitError, "Invalid subtile broadcast type"),
    "rows": (lambda p: ttnn.asin_bw(p(S, layout=ROWS), p(S, layout=ROWS)), TTKitError, "Ternary operation requires tensor to be in Tile layout"),
    "rounding": (lambda p: ttnn.div_bw(p(S), p(S), p(S), rounding_mode="up"), TTKitError, "Incorrect rounding mode"),
    "power": (lambda p: ttnn.pow_bw(p(S), p(S), -1.0), TTKitError, "negative exponents are not supported"),
    "limits": (lambda p: ttnn.clamp_bw(p(S), p(S)), TTKitError, "Only one of 'min' or 'max' can be None"),
    "gelu table": (lambda p: ttnn.gelu_bw(p(S), p(S), variant=ttnn.GeluVariant.FastLut), TTKitError, "GELU_BW does not support GeluVariant::FAST_LUT"),
    "gelu shapes": (lambda p: ttnn.gelu_bw(p((1, 1, 1, 64)), p(S)), TTKitError, "to have the same logical shape"),
    "concat rank": (lambda p: ttnn.concat_bw(p((32, 64)), p((32, 32)), p((32, 32)), 1), TTKitError, "concat_bw expects rank-4 tensors, got grad rank 2"),
    "concat sizes": (lambda p: ttnn.concat_bw(p(S), p(S), p(S), 3), TTKitError, "do not make"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(wide, put, case):
    call, kind, message = REFUSED[case]
    with pytest.raises(kind, match=message):
        call(lambda *args, **options: put(wide, *args, **options))
