"""Each operation of two operands, or of an operand and a number, against torch, on one chip and on each of eight."""

import pytest

from ttkit import ttnn
from ttkit.errors import TTKitError

TORCH = {
    "bias_gelu": lambda torch: lambda a, b: torch.nn.functional.gelu(a + b),
    "rsub": lambda torch: lambda a, b: b - a,
    "squared_difference": lambda torch: lambda a, b: (a - b) ** 2,
}
FLOATS = ["add", "atan2", "bias_gelu", "divide", "eq", "fmod", "ge", "gt", "le", "logaddexp", "logical_and", "logical_or", "logical_xor"]
FLOATS += ["lt", "maximum", "minimum", "multiply", "ne", "remainder", "rsub", "squared_difference", "subtract"]
SHAPES = [((2, 33, 20), (2, 33, 20)), ((2, 33, 20), (1, 33, 1)), ((1, 1, 20), (2, 33, 20)), ((4, 2, 8, 8), (8, 8))]


def reference(torch, name):
    if name in TORCH:
        return TORCH[name](torch)
    return getattr(torch, name)


@pytest.mark.parametrize("kinds", [("RR", "RR"), ("S0R", "RR"), ("S0R", "RS0")], ids="-".join)
@pytest.mark.parametrize("name", FLOATS)
def test_each_chip_equals_torch(mesh, put, check, torch, name, kinds):
    a, b = put(mesh, (2, 33, 20), kinds[0]), put(mesh, (2, 33, 20), kinds[1], low=0.5 if name in ("fmod", "remainder") else None)
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


def test_shapes_that_do_not_fit(wide, put):
    with pytest.raises(TTKitError, match=r"\[2, 32, 64\].*\[3, 32, 64\]"):
        ttnn.add(put(wide, (2, 32, 64)), put(wide, (3, 32, 64)))


def test_where_and_multiply_add(mesh, put, check, torch):
    p, a, b = put(mesh, (2, 32, 20), "S0R"), put(mesh, (2, 32, 20)), put(mesh, (2, 32, 20), "RS0", low=0.5)
    check(ttnn.where(ttnn.gtz(p), a, b), lambda p, a, b: torch.where(p > 0, a, b), p, a, b)
    check(ttnn.addcmul(p, a, b, value=0.5), lambda p, a, b: torch.addcmul(p, a, b, value=0.5), p, a, b)
    check(ttnn.addcdiv(p, a, b, value=0.5), lambda p, a, b: torch.addcdiv(p, a, b, value=0.5), p, a, b)


SPECIAL = {
    "hypot": lambda torch: torch.hypot,
    "ldexp": lambda torch: torch.ldexp,
    "logaddexp2": lambda torch: torch.logaddexp2,
    "xlogy": lambda torch: torch.xlogy,
}


@pytest.mark.parametrize("name", SPECIAL)
def test_the_less_usual_equal_torch(mesh, put, check, torch, name):
    a, b = put(mesh, (2, 33, 20), "S0R", low=0.5), put(mesh, (2, 33, 20), "RS0", low=0.5)
    check(getattr(ttnn, name)(a, b), SPECIAL[name](torch), a, b, atol=2e-4)


TYPES = ["bfloat16", "float32", "bfloat8_b", "int32", "uint32", "uint16", "uint8"]


def of(mesh, torch, dtype, layout=ttnn.TILE_LAYOUT):
    return ttnn.from_torch(torch.full((32, 32), 7.0), dtype=getattr(ttnn, dtype), device=mesh, layout=layout)


@pytest.mark.parametrize(
    ("name", "a", "b", "expected"),
    [
        ("add", "bfloat8_b", "float32", "BFLOAT8_B"), ("add", "uint16", "uint16", "UINT16"), ("add", "int32", "float32", "Mixed dtype"),
        ("add", "uint8", "uint8", "Input tensor A dtype DataType::UINT8"), ("multiply", "int32", 2, "INT32"), ("eq", "uint16", 7, "UINT16"),
        ("maximum", "bfloat16", "float32", "Mixed dtype"), ("hypot", "bfloat16", "int32", "Input tensor B"),
        ("add", "int32", 2.5, "cannot represent the scalar 2.5"), ("add", "uint32", -1, "cannot represent the scalar -1"),
        ("divide", "int32", "int32", "Input tensor A"), ("pow", "int32", 2, "Input tensor A"), ("maximum", "uint8", 1, "Input tensor A"),
        ("add", "uint32", 2**32 - 1, "UINT32"), ("add", "int32", 2**31, "cannot represent"),
    ],
)  # fmt: skip
def test_types_of_results_and_refusals(wide, torch, name, a, b, expected):
    first, second = of(wide, torch, a), of(wide, torch, b) if isinstance(b, str) else b
    if expected.isupper():
        assert getattr(ttnn, name)(first, second).dtype.name == expected
    else:
        with pytest.raises(TTKitError, match=expected):
            getattr(ttnn, name)(first, second)


def test_row_major_with_tiles_gives_tiles(wide, torch):
    rows, tiles = of(wide, torch, "float32", ttnn.ROW_MAJOR_LAYOUT), of(wide, torch, "float32")
    assert [ttnn.add(a, b).layout.name for a in (rows, tiles) for b in (rows, tiles)] == ["ROW_MAJOR", "TILE", "TILE", "TILE"]


def test_a_number_comes_first_where_ttnn_has_it(wide, put, check, torch):
    x = put(wide, (8, 32), "S0R", low=0.5)
    check(2 / x, lambda x: 2 / x, x)
    with pytest.raises(TypeError, match="incompatible function arguments"):
        ttnn.maximum(2, x)


def test_an_output_tensor_speaks_of_the_operands(wide, put, check, torch):
    out, a = put(wide, (8, 32), "RR"), put(wide, (8, 32), "S0R")
    assert ttnn.exp(a, output_tensor=out) is out
    assert out.tensor_topology() == a.tensor_topology()
    check(out, torch.exp, a)
    with pytest.raises(TTKitError, match="the output tensor"):
        ttnn.exp(a, output_tensor=put(wide, (8, 16), "RR"))
