"""Gradients of operations on each element, against torch's."""

import formulas
import numpy as np
import pytest

import ttkit
from ttkit import ttnn
from ttkit.errors import TTKitError
from ttkit.sim.ops.gradients import FORWARD

THREE = "addcdiv addcmul lerp where".split()
TWO = """add addalpha assign atan2 bias_gelu div fmod hypot ldexp logaddexp logaddexp2 max min mul remainder
rsub squared_difference sub subalpha xlogy""".split()
WITH_NUMBER = "addalpha addcdiv addcmul div_no_nan pow rdiv rpow subalpha".split()
NUMBERS = {name: [1.5] for name in WITH_NUMBER}
NUMBERS["threshold"] = [0.5, 2.0]
POSITIVE = """acosh erfinv fmod log log10 log2 logit logiteps
pow remainder rpow rsqrt sqrt xlogy""".split()


def of_torch(torch, name):
    """Return torch's function of an operation."""
    own = {
        "addalpha": lambda a, b, c: a + c * b, "subalpha": lambda a, b, c: a - c * b,
        "addcdiv": lambda a, b, c, v: a + v * b / c, "addcmul": lambda a, b, c, v: a + v * b * c,
        "assign": lambda a, b: a + b, "div_no_nan": torch.div, "rdiv": lambda a, b: b / a,
        "fill": lambda a: a * 0, "fill_zero": lambda a: a * 0, "rpow": torch.pow,
        "squared_difference": lambda a, b: (a - b) ** 2,
        "log_sigmoid": torch.nn.functional.logsigmoid,
        "bias_gelu": lambda a, b: torch.nn.functional.gelu(a + b),
        "where": lambda c, a, b: torch.where(c != 0, a, b) + 0 * c,
        "logiteps": torch.logit,
    }  # fmt: skip
    return own.get(name) or getattr(torch, name, None) or getattr(torch.nn.functional, name)


@pytest.mark.parametrize("dtype", [ttnn.float32, ttnn.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("name", FORWARD)
def test_as_torch_has_them(mesh, put, check, torch, name, dtype):
    kinds, numbers = ["S0R", "RS0", "RR"], NUMBERS.get(name, [])
    kinds = kinds[: 3 if name in THREE else 2 if name in TWO else 1]
    low = 0.3 if name in POSITIVE else None
    grad, *x = (put(mesh, (3, 33, 20), kind, dtype, low=low) for kind in ("RS0", *kinds))
    if name in ("acos", "acosh", "asin", "atanh", "erfinv", "log1p", "logit", "logiteps"):
        x = [ttnn.add(x[0], 1.0) if name == "acosh" else ttnn.multiply(x[0], 0.2)]

    def reference(grad, *values):
        leaves = [torch.tensor(value, requires_grad=True) for value in values]
        of_torch(torch, name)(*leaves, *numbers).backward(torch.tensor(grad))
        return [leaf.grad.numpy() for leaf in leaves][name == "where" :]

    # The slope of erf's polynomial errs by 1e-5; near pi / 2 that of tan changes within a step.
    terms = {"erfinv": 20000}.get(name, 150 if name in ("erf", "erfc", "tan") else 32)
    check(getattr(ttnn, f"{name}_bw")(grad, *x, *numbers), reference, grad, *x, additions=terms)


@pytest.mark.parametrize(
    ("name", "x", "slope"),
    [
        ("abs", 0.0, 0.0), ("relu6", 0.0, 0.0), ("relu6", 6.0, 0.0), ("floor", 2.0, 0.0),
        ("frac", 1.0, 1.0), ("square", 0.0, 0.0), ("log", 0.0, np.inf), ("sign", 0.0, 0.0),
        ("hardshrink", 0.5, 0.0), ("hardsigmoid", 3.0, 0.0), ("max", 2.0, 0.5), ("round", 0.5, 0.0),
        ("log", 2.0**-40, 2.0**40), ("sqrt", 2.0**-40, 2.0**19), ("reciprocal", 2.0**-30, -(2.0**60)),
        ("add", 2.0**60, 1.0), ("mul", 2.0**60, 2.0**60), ("mul", 2.0**-60, 2.0**-60),
    ],
)  # fmt: skip
def test_at_edges_and_jumps(wide, name, x, slope):
    """As torch has them: the flatter side, and half of a tie."""
    one, at = (ttnn.full([1, 1], v, ttnn.float32, ttnn.TILE_LAYOUT, wide) for v in (1.0, x))
    made = getattr(ttnn, f"{name}_bw")(one, *[at] * (1 + (name in TWO)))
    assert ttkit.to_numpy(ttnn.get_device_tensors(made[0])[0]).item() == slope


def test_keywords_and_outputs(wide, put, check):
    grad, x, into = (put(wide, (2, 32), "S0R") for _ in range(3))
    check(
        ttnn.elu_bw(grad, x, alpha=0.5), lambda g, x: g * np.where(x > 0, 1, np.exp(x) / 2), grad, x
    )
    check(ttnn.clamp_bw(grad, x, -0.5), lambda g, x: g * (x >= -0.5), grad, x)
    check(ttnn.clip_bw(grad, x, -0.5, 0.5), lambda g, x: g * (abs(x) <= 0.5), grad, x)
    kept = {"hardtanh": {"min": -0.5, "max": 0.5}, "logiteps": {"eps": 0.25}}
    for name, how in kept.items():  # The gradient is 0 beyond the limits.
        x = ttnn.full_like(grad, 0.8)
        check(getattr(ttnn, f"{name}_bw")(grad, x, **how), lambda g: 0 * g, grad)
    made = ttnn.leaky_relu_bw(grad, ttnn.neg(x), negative_slope=0.25)
    check(made, lambda g: g / 4, grad)
    assert ttnn.sqrt_bw(grad, ttnn.abs(x), input_grad=into)[0] is into
    with pytest.raises(TTKitError, match="does not have other_grad"):
        ttnn.add_bw(grad, x, x, other_grad=into)
    with pytest.raises(TTKitError, match="Invalid subtile broadcast type"):
        ttnn.relu_bw(grad, put(wide, (2, 16)))

    made = ttnn.gelu_bw(grad, x, variant=ttnn.GeluVariant.Tanh)
    check(made, lambda g, x: g * formulas.slope(formulas.gelu_tanh, x), grad, x)
