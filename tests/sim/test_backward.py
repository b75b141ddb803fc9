"""Gradients against the slopes of the formulas, on one chip and on each of eight."""

import warnings

import formulas
import pytest
from formulas import slope

from ttkit import ttnn
from ttkit.dialect import DialectWarning, strict
from ttkit.errors import TTKitError

FLOATS = pytest.mark.parametrize(
    "dtype", [ttnn.float32, ttnn.bfloat16], ids=["float32", "bfloat16"]
)
PAIRS = pytest.mark.parametrize(
    "kinds", [("RR", "RR"), ("S0R", "RR"), ("RR", "RS0"), ("S0R", "RS0")], ids="-".join
)
UNARY = ("relu", "silu", "gelu")


def gradients(function):
    """(grad, *inputs) -> the gradient of each input of an elementwise function."""

    def reference(grad, *inputs):
        return [
            folded(grad * slope(function, *inputs, by=i), x.shape) for i, x in enumerate(inputs)
        ]

    return reference


def folded(values, shape):
    """The sum over the dimensions along which an operand of this shape was repeated."""
    values = values.sum(tuple(range(values.ndim - len(shape))))
    return values.sum(tuple(i for i, n in enumerate(shape) if n < values.shape[i]), keepdims=True)


@FLOATS
@PAIRS
@pytest.mark.parametrize("name", UNARY)
def test_one_operand(mesh, put, check, dtype, kinds, name):
    grad, x = put(mesh, (3, 33, 50), kinds[0], dtype), put(mesh, (3, 33, 50), kinds[1], dtype)
    made = getattr(ttnn, f"{name}_bw")(grad, x)
    assert isinstance(made, list) and len(made) == 1
    check(made, gradients(formulas.UNARY[name]), grad, x)


@PAIRS
def test_gelu_by_tanh(mesh, put, check, kinds):
    grad, x = put(mesh, (33, 50), kinds[0]), put(mesh, (33, 50), kinds[1])
    check(
        ttnn.gelu_bw(grad, x, variant=ttnn.GeluVariant.Tanh), gradients(formulas.gelu_tanh), grad, x
    )


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


@pytest.mark.parametrize("name", ["silu", "gelu"])
def test_into_a_given_tensor(wide, put, check, name):
    grad, x, into = (
        put(wide, (33, 50), "S0R"),
        put(wide, (33, 50), "RS0", low=0.5),
        put(wide, (33, 50), "S0R"),
    )
    assert getattr(ttnn, f"{name}_bw")(grad, x, input_grad=into)[0] is into
    check(into, gradients(formulas.UNARY[name]), grad, x)


S = (1, 1, 32, 64)
REFUSED = {
    "shapes": (
        lambda p: ttnn.relu_bw(p(S), p((1, 1, 32, 32))),
        TTKitError,
        "Invalid subtile broadcast type",
    ),
    "gelu table": (
        lambda p: ttnn.gelu_bw(p(S), p(S), variant=ttnn.GeluVariant.FastLut),
        TTKitError,
        "GELU_BW does not support GeluVariant::FAST_LUT",
    ),
    "gelu shapes": (
        lambda p: ttnn.gelu_bw(p((1, 1, 1, 64)), p(S)),
        TTKitError,
        "to have the same logical shape",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(wide, put, case):
    call, kind, message = REFUSED[case]
    with pytest.raises(kind, match=message):
        call(lambda *args, **options: put(wide, *args, **options))
