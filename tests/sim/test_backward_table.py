"""Gradients of the other elementwise operations against torch's autograd, on one chip and on each of eight."""

import pytest

from ttkit import ttnn
from ttkit.errors import TTKitError

FLOATS = pytest.mark.parametrize("dtype", [ttnn.float32, ttnn.bfloat16], ids=["float32", "bfloat16"])
PAIRS = pytest.mark.parametrize("kinds", [("RR", "RR"), ("S0R", "RR"), ("RR", "RS0"), ("S0R", "RS0")], ids="-".join)
ONE = "atan tan sinh cosh exp2 erfc relu6 hardsigmoid hardswish softsign tanhshrink rad2deg deg2rad floor ceil trunc frac round sign".split()


def function(torch, name):
    named = {"log_sigmoid": torch.nn.functional.logsigmoid, "max": torch.maximum, "min": torch.minimum, "squared_difference": lambda a, b: (a - b) ** 2}
    return named.get(name) or getattr(torch.nn.functional, name, None) or getattr(torch, name)


def gradients(torch, forward):
    """A function of (grad, *inputs) that gives autograd's gradients of forward(*inputs), in the shape of the grad."""

    def reference(grad, *inputs):
        leaves = [x.broadcast_to(grad.shape).clone().requires_grad_() for x in inputs]
        return list(torch.autograd.grad(forward(*leaves), leaves, grad))

    return reference


@FLOATS
@PAIRS
@pytest.mark.parametrize("name", [*ONE, "log_sigmoid"])
def test_one_operand(mesh, put, check, torch, dtype, kinds, name):
    grad, x = put(mesh, (3, 33, 50), kinds[0], dtype), put(mesh, (3, 33, 50), kinds[1], dtype)
    made = getattr(ttnn, f"{name}_bw")(grad, x)
    assert isinstance(made, list)
    check(made, gradients(torch, function(torch, name)), grad, x, atol=1e-4)


@FLOATS
@PAIRS
@pytest.mark.parametrize("name", ["log2", "log10", "acos", "asin"])
def test_one_operand_in_the_domain(mesh, put, check, torch, dtype, kinds, name):
    grad, x = put(mesh, (33, 50), kinds[0], dtype), ttnn.sigmoid(put(mesh, (33, 50), kinds[1], dtype))
    check(getattr(ttnn, f"{name}_bw")(grad, x), gradients(torch, function(torch, name)), grad, x, atol=1e-3)


@PAIRS
@pytest.mark.parametrize("low, high", [(-1.0, 1.0), (-0.2, 0.7)])
def test_hardtanh(mesh, put, check, torch, kinds, low, high):
    grad, x = put(mesh, (33, 50), kinds[0]), put(mesh, (33, 50), kinds[1])
    check(ttnn.hardtanh_bw(grad, x, min=low, max=high), gradients(torch, lambda x: torch.nn.functional.hardtanh(x, low, high)), grad, x)


@PAIRS
def test_clip_and_rdiv(mesh, put, check, torch, kinds):
    grad, x = put(mesh, (33, 50), kinds[0]), put(mesh, (33, 50), kinds[1], low=0.5)
    check(ttnn.clip_bw(grad, x, 0.6, 1.5), gradients(torch, lambda x: x.clip(0.6, 1.5)), grad, x)
    check(ttnn.rdiv_bw(grad, x, 2.5), gradients(torch, lambda x: 2.5 / x), grad, x, atol=1e-4)
    check(ttnn.rdiv_bw(grad, x, 2.5, rounding_mode="floor"), lambda g: [0 * g], grad)


@FLOATS
@PAIRS
@pytest.mark.parametrize("shape", [(3, 33, 50), (1, 33, 50), (3, 1, 50), (50,)], ids=str)
@pytest.mark.parametrize("name", ["max", "min", "atan2", "squared_difference", "logaddexp"])
def test_two_operands(mesh, put, check, torch, dtype, kinds, shape, name):
    kinds = ("RR", "RR") if shape == (50,) else kinds  # a row as such is the same on every chip
    grad, a, b = put(mesh, (3, 33, 50), "RR", dtype, 0.5), put(mesh, (3, 33, 50), kinds[0], dtype), put(mesh, shape, kinds[1], dtype, 0.5)
    check(getattr(ttnn, f"{name}_bw")(grad, a, b), gradients(torch, function(torch, name)), grad, a, b, atol=1e-4)


@pytest.mark.parametrize("name", ["max", "min"])
def test_equal_operands_share_the_gradient(wide, put, check, name):
    grad, x = put(wide, (33, 50), "S0R"), put(wide, (33, 50), "RS0")
    check(getattr(ttnn, f"{name}_bw")(grad, x, x), lambda g: [g / 2, g / 2], grad)


@FLOATS
@PAIRS
@pytest.mark.parametrize("name", ["fmod", "remainder"])
def test_remainders(mesh, put, check, torch, dtype, kinds, name):
    grad, a, b = put(mesh, (33, 50), "RR", dtype), put(mesh, (33, 50), kinds[0], dtype), put(mesh, (33, 50), kinds[1], dtype, 0.5)
    call, round_ = getattr(ttnn, f"{name}_bw"), {"fmod": torch.trunc, "remainder": torch.floor}[name]
    check(call(grad, a, b), lambda g, a, b: [g, -g * round_(a / b)], grad, a, b)
    check(call(grad, a, 0.7), lambda g: [g], grad)


@FLOATS
@PAIRS
def test_three_operands(mesh, put, check, torch, dtype, kinds):
    grad, a, b = put(mesh, (33, 50), "RR", dtype), put(mesh, (33, 50), kinds[0], dtype), put(mesh, (33, 50), kinds[1], dtype)
    c = put(mesh, (1, 50), kinds[1], dtype, 0.5)
    check(ttnn.addcmul_bw(grad, a, b, c, 0.3), gradients(torch, lambda a, b, c: a + 0.3 * b * c), grad, a, b, c)
    check(ttnn.addcdiv_bw(grad, a, b, c, 0.3), gradients(torch, lambda a, b, c: a + 0.3 * b / c), grad, a, b, c, atol=1e-4)


@PAIRS
@pytest.mark.parametrize("options, mode", [({}, "none"), ({"variant": ttnn.GeluVariant.Tanh}, "tanh"), ({"approximate": "tanh"}, "tanh")], ids=str)
def test_bias_gelu(mesh, put, check, torch, kinds, options, mode):
    grad, a, b = put(mesh, (33, 50), "RR"), put(mesh, (33, 50), kinds[0]), put(mesh, (33, 50), kinds[1])
    gelu = lambda x: torch.nn.functional.gelu(x, approximate=mode)  # noqa: E731
    check(ttnn.bias_gelu_bw(grad, a, b, **options), gradients(torch, lambda a, b: gelu(a + b)), grad, a, b)
    check(ttnn.bias_gelu_bw(grad, a, 0.5, **options), gradients(torch, lambda a: gelu(a + 0.5)), grad, a)


@PAIRS
def test_assign(mesh, put, check, torch, kinds):
    grad, a, b = put(mesh, (33, 50), "RR"), put(mesh, (33, 50), kinds[0], ttnn.bfloat16), put(mesh, (33, 50), kinds[1])
    one, two = ttnn.assign_bw(grad, a), ttnn.assign_bw(grad, a, b, are_required_outputs=[False, True])
    assert one[0].dtype is ttnn.bfloat16 and two[0] is None
    check(one, lambda g: [g], grad)
    check(two, lambda g: [None, g], grad)


@pytest.mark.parametrize("kind", ["RR", "S0R", "RS0"])
@pytest.mark.parametrize("dim", [0, 1])
def test_repeat(mesh, put, check, kind, dim):
    shape, times = [1, 1, 32, 64], [1, 1, 1, 1]
    times[dim] = 3
    whole = [3 if i == dim else n for i, n in enumerate(shape)]
    grad, x = put(mesh, whole, kind), put(mesh, shape)
    check(ttnn.repeat_bw(grad, x, ttnn.Shape(times)), lambda g: [g.sum(dim, keepdim=True)], grad)
    assert ttnn.repeat_bw(x, x, [1, 1, 1, 1]) == []


S, ROWS = (1, 1, 32, 64), ttnn.ROW_MAJOR_LAYOUT
REFUSED = {
    "shapes": (lambda p: ttnn.atan_bw(p(S), p((1, 1, 32, 32))), TTKitError, "Invalid subtile broadcast type"),
    "two shapes": (lambda p: ttnn.max_bw(p(S), p(S), p((1, 1, 32, 32))), TTKitError, "Invalid subtile broadcast type"),
    "number": (lambda p: ttnn.max_bw(p(S), p(S), 2.0), TypeError, "incompatible function arguments: input_tensor_b=2.0 is a float, not Tensor"),
    "rows": (lambda p: ttnn.asin_bw(p(S, layout=ROWS), p(S, layout=ROWS)), TTKitError, "Ternary operation requires tensor to be in Tile layout"),
    "rounding": (lambda p: ttnn.rdiv_bw(p(S), p(S), 2.0, rounding_mode="up"), TTKitError, "Incorrect rounding mode"),
    "limits": (lambda p: ttnn.clip_bw(p(S), p(S)), TTKitError, "Only one of 'min' or 'max' can be None"),
    "mode": (lambda p: ttnn.bias_gelu_bw(p(S), p(S), 1.0, approximate="fast"), TTKitError, "Incorrect approximate mode"),
    "nothing": (lambda p: ttnn.assign_bw(p(S), p(S), p(S), are_required_outputs=[False, False]), TTKitError, "At least one gradient is expected"),
    "assign": (lambda p: ttnn.assign_bw(p(S), p((1, 1, 1, 64))), TTKitError, "does not match output tensor shape"),
    "repeat two": (lambda p: ttnn.repeat_bw(p((2, 3, 32, 64)), p(S), [2, 3, 1, 1]), TTKitError, r"repeat\[1\], \[2\], \[3\] should be 1"),
    "repeat batch": (lambda p: ttnn.repeat_bw(p((4, 1, 32, 64)), p((2, 1, 32, 64)), [2, 1, 1, 1]), TTKitError, r"Input shape\[0\] must be 1 but got 2"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(wide, put, case):
    call, kind, message = REFUSED[case]
    with pytest.raises(kind, match=message):
        call(lambda *args, **options: put(wide, *args, **options))
