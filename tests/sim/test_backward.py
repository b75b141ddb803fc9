"""Gradients against torch's autograd, on one chip and on each of eight."""

import warnings

import pytest

from ttkit import ttnn
from ttkit.dialect import DialectWarning, strict
from ttkit.errors import TTKitError

FLOATS = pytest.mark.parametrize("dtype", [ttnn.float32, ttnn.bfloat16], ids=["float32", "bfloat16"])
PAIRS = pytest.mark.parametrize("kinds", [("RR", "RR"), ("S0R", "RR"), ("RR", "RS0"), ("S0R", "RS0")], ids="-".join)
UNARY = ("relu", "silu", "gelu")


def function(torch, name):
    return getattr(torch.nn.functional, name)


def gradients(torch, forward, which=None):
    """A function of (grad, *inputs) that gives autograd's gradients of forward(*inputs)."""

    def reference(grad, *inputs):
        leaves = [x.clone().requires_grad_() for x in inputs]
        out = forward(*leaves)
        found = torch.autograd.grad(out, leaves, grad.broadcast_to(out.shape), allow_unused=True)
        return list(found) if which is None else [found[i] for i in which]

    return reference


@FLOATS
@PAIRS
@pytest.mark.parametrize("name", UNARY)
def test_one_operand(mesh, put, check, torch, dtype, kinds, name):
    grad, x = put(mesh, (3, 33, 50), kinds[0], dtype), put(mesh, (3, 33, 50), kinds[1], dtype)
    made = getattr(ttnn, f"{name}_bw")(grad, x)
    assert isinstance(made, list) and len(made) == 1
    check(made, gradients(torch, function(torch, name)), grad, x)


@PAIRS
def test_gelu_by_tanh(mesh, put, check, torch, kinds):
    grad, x = put(mesh, (33, 50), kinds[0]), put(mesh, (33, 50), kinds[1])
    reference = gradients(torch, lambda x: torch.nn.functional.gelu(x, approximate="tanh"))
    check(ttnn.gelu_bw(grad, x, variant=ttnn.GeluVariant.Tanh), reference, grad, x)


def test_older_form_of_gelu(wide, put, check, torch):
    grad, x = put(wide, (33, 50), "S0R"), put(wide, (33, 50))
    with pytest.raises(TypeError, match="approximate"):  # tests run strict
        ttnn.gelu_bw(grad, x, approximate="tanh")
    strict(False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DialectWarning)
        made = ttnn.gelu_bw(grad, x, approximate="tanh")
        with pytest.raises(TTKitError, match="Incorrect approximate mode"):
            ttnn.gelu_bw(grad, x, approximate="fast")
    check(made, gradients(torch, lambda x: torch.nn.functional.gelu(x, approximate="tanh")), grad, x)


@pytest.mark.parametrize("name", ["silu", "gelu"])
def test_into_a_given_tensor(wide, put, check, torch, name):
    grad, x, into = put(wide, (33, 50), "S0R"), put(wide, (33, 50), "RS0", low=0.5), put(wide, (33, 50), "S0R")
    assert getattr(ttnn, f"{name}_bw")(grad, x, input_grad=into)[0] is into
    check(into, gradients(torch, function(torch, name)), grad, x)


S = (1, 1, 32, 64)
REFUSED = {
    "shapes": (lambda p: ttnn.relu_bw(p(S), p((1, 1, 32, 32))), TTKitError, "Invalid subtile broadcast type"),
    "gelu table": (lambda p: ttnn.gelu_bw(p(S), p(S), variant=ttnn.GeluVariant.FastLut), TTKitError, "GELU_BW does not support GeluVariant::FAST_LUT"),
    "gelu shapes": (lambda p: ttnn.gelu_bw(p((1, 1, 1, 64)), p(S)), TTKitError, "to have the same logical shape"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(wide, put, case):
    call, kind, message = REFUSED[case]
    with pytest.raises(kind, match=message):
        call(lambda *args, **options: put(wide, *args, **options))
