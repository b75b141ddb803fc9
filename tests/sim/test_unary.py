"""Each operation of one operand against torch, on one chip and on each of eight."""

import pytest

from ttkit import ttnn
from ttkit.sim.unary import UNARY

# ttnn's name -> what torch calls it, where that is another name; whatever is not listed has ttnn's name in torch
TORCH = {
    "cbrt": lambda x: x.sign() * x.abs().pow(1 / 3),
    "eqz": lambda x: (x == 0).float(),
    "gez": lambda x: (x >= 0).float(),
    "gtz": lambda x: (x > 0).float(),
    "lez": lambda x: (x <= 0).float(),
    "ltz": lambda x: (x < 0).float(),
    "nez": lambda x: (x != 0).float(),
    "identity": lambda x: x,
    "logical_not": lambda x: (x == 0).float(),
    "softsign": lambda x: x / (1 + x.abs()),
    "swish": lambda x: x * x.sigmoid(),
    "tanhshrink": lambda x: x - x.tanh(),
}
IN_FUNCTIONAL = ("hardsigmoid", "hardswish", "mish", "relu6", "silu", "softplus")
POSITIVE = {"log", "log10", "log2", "rsqrt", "sqrt", "reciprocal"}
BETWEEN_ONES = {"acos", "asin"}


def reference(torch, name):
    if name in TORCH:
        return TORCH[name]
    if name == "log_sigmoid":
        return torch.nn.functional.logsigmoid
    return getattr(torch.nn.functional if name in IN_FUNCTIONAL else torch, name)


@pytest.mark.parametrize("kind", ["RR", "S0R", "RS0"])
@pytest.mark.parametrize("name", sorted(UNARY))
def test_each_chip_equals_torch(mesh, put, check, torch, name, kind):
    x = put(mesh, (2, 33, 20), kind, low=0.1 if name in POSITIVE else None)
    if name in BETWEEN_ONES:
        x = ttnn.tanh(x)
    if name == "log1p":
        x = ttnn.abs(x)
    check(getattr(ttnn, name)(x), reference(torch, name), x)


@pytest.mark.parametrize("name", ["exp", "gelu", "sigmoid", "tanh", "silu", "rsqrt"])
def test_bfloat16_is_rounded_as_stored(wide, put, check, torch, name):
    x = put(wide, (32, 64), "S0R", ttnn.bfloat16, low=0.1)
    result = getattr(ttnn, name)(x)
    assert result.dtype is ttnn.bfloat16
    check(result, torch.nn.functional.gelu if name == "gelu" else reference(torch, name), x)
    stored = ttnn.to_torch(ttnn.get_device_tensors(result)[5])
    assert torch.equal(stored, stored.to(torch.bfloat16).to(stored.dtype))


def test_parameters(mesh, put, check, torch):
    functional = torch.nn.functional
    x = put(mesh, (3, 32, 40), "RS0")
    check(ttnn.gelu(x), functional.gelu, x)
    check(ttnn.gelu(x, variant=ttnn.GeluVariant.Tanh), lambda x: functional.gelu(x, approximate="tanh"), x)
