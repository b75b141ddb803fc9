"""Each operation of two operands, or of an operand and a number, against torch, on one chip and on each of eight."""

import pytest

from ttkit import ttnn
from ttkit.errors import TTKitError

TORCH = {
    "bias_gelu": lambda torch: lambda a, b: torch.nn.functional.gelu(a + b),
    "rsub": lambda torch: lambda a, b: b - a,
    "squared_difference": lambda torch: lambda a, b: (a - b) ** 2,
}
FLOATS = ["add", "atan2", "bias_gelu", "divide", "eq", "fmod", "floor_div", "ge", "gt", "le", "logaddexp", "logical_and", "logical_or", "logical_xor"]
FLOATS += ["lt", "maximum", "minimum", "multiply", "ne", "remainder", "rsub", "squared_difference", "subtract"]
SHAPES = [((2, 33, 20), (2, 33, 20)), ((2, 33, 20), (1, 33, 1)), ((1, 1, 20), (2, 33, 20)), ((4, 2, 8, 8), (8, 8))]


def reference(torch, name):
    if name in TORCH:
        return TORCH[name](torch)
    return torch.floor_divide if name == "floor_div" else getattr(torch, name)


@pytest.mark.parametrize("kinds", [("RR", "RR"), ("S0R", "RR"), ("S0R", "RS0")], ids="-".join)
@pytest.mark.parametrize("name", FLOATS)
def test_each_chip_equals_torch(mesh, put, check, torch, name, kinds):
    a, b = put(mesh, (2, 33, 20), kinds[0]), put(mesh, (2, 33, 20), kinds[1], low=0.5 if name in ("fmod", "floor_div", "remainder") else None)
    check(getattr(ttnn, name)(a, b), reference(torch, name), a, b, atol=2e-4)


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide", "gt", "maximum"])
def test_sizes_of_one_repeat(mesh, put, check, torch, name, shapes):
    a, b = (put(mesh, shape, low=0.5) for shape in shapes)
    check(getattr(ttnn, name)(a, b), reference(torch, name), a, b)


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide", "rsub", "eq", "lt", "pow", "remainder"])
@pytest.mark.parametrize("number", [2, 0.5])
def test_with_a_number(mesh, put, check, torch, name, number):
    x = put(mesh, (2, 32, 20), "RS0", low=0.5)
    function = reference(torch, name)
    check(getattr(ttnn, name)(x, number), lambda x: function(x, torch.tensor(float(number))), x)


def test_python_operators(wide, put, check):
    a, b = put(wide, (32, 64), "S0R"), put(wide, (32, 64), "RS0", low=0.5)
    check((a + b) * 2 - a / b, lambda a, b: (a + b) * 2 - a / b, a, b, atol=1e-4)
    check(1 - a, lambda a: 1 - a, a)
    check(a > b, lambda a, b: a > b, a, b)
    check(a @ ttnn.transpose(b, 0, 1), lambda a, b: a @ b.T, a, b, atol=1e-4)


def test_in_place_replaces_the_first(wide, put, check):
    a, b = put(wide, (32, 64), "S0R"), put(wide, (32, 64), "RS0")
    before = ttnn.clone(a)
    assert ttnn.add_(a, b) is a
    check(a, lambda a, b: a + b, before, b)


def test_fused_activations(wide, put, check):
    a, b = put(wide, (32, 64), "S0R"), put(wide, (32, 64))
    check(ttnn.add(a, b, activations=[ttnn.UnaryWithParam(ttnn.UnaryOpType.RELU)]), lambda a, b: (a + b).relu(), a, b)


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor"])
def test_bits(wide, torch, name):
    a, b = (torch.randint(0, 100, (32, 32), dtype=torch.int32, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
    put = lambda x: ttnn.from_torch(x, layout=ttnn.TILE_LAYOUT, device=wide)  # noqa: E731
    for shard in ttnn.get_device_tensors(getattr(ttnn, name)(put(a), put(b))):
        assert torch.equal(ttnn.to_torch(shard), getattr(torch, name)(a, b))


def test_shapes_that_do_not_fit(wide, put):
    with pytest.raises(TTKitError, match=r"\[2, 32, 64\].*\[3, 32, 64\]"):
        ttnn.add(put(wide, (2, 32, 64)), put(wide, (3, 32, 64)))


def test_where_and_multiply_add(mesh, put, check, torch):
    p, a, b = put(mesh, (2, 32, 20), "S0R"), put(mesh, (2, 32, 20)), put(mesh, (2, 32, 20), "RS0", low=0.5)
    check(ttnn.where(ttnn.gtz(p), a, b), lambda p, a, b: torch.where(p > 0, a, b), p, a, b)
    check(ttnn.addcmul(p, a, b, value=0.5), lambda p, a, b: torch.addcmul(p, a, b, value=0.5), p, a, b)
    check(ttnn.addcdiv(p, a, b, value=0.5), lambda p, a, b: torch.addcdiv(p, a, b, value=0.5), p, a, b)
