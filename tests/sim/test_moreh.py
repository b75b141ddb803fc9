"""Products and softmax of the moreh family against torch, on one chip and on each of eight."""

import pytest

from ttkit import ttnn
from ttkit.dialect import strict
from ttkit.errors import TTKitError

B16 = ttnn.bfloat16
PAIRS = pytest.mark.parametrize("kinds", [("RR", "RR"), ("S0R", "RR"), ("RR", "RS0"), ("S0R", "RS0")], ids="-".join)
KINDS = pytest.mark.parametrize("kind", ["RR", "S0R", "RS0"])
FLOATS = pytest.mark.parametrize("dtype", [ttnn.float32, B16], ids=["float32", "bfloat16"])


def gradients(torch, forward):
    def reference(grad, *inputs):
        leaves = [x.clone().requires_grad_() for x in inputs]
        return list(torch.autograd.grad(forward(*leaves), leaves, grad))

    return reference


@PAIRS
@pytest.mark.parametrize(
    "a, b", [((33, 50), (50, 40)), ((2, 3, 33, 50), (50, 40)), ((2, 1, 33, 50), (1, 3, 50, 40)), ((2, 3, 33, 50), (2, 3, 50, 40))], ids=str
)
def test_matmul(mesh, put, check, kinds, a, b):
    x, y = put(mesh, a, kinds[0], B16), put(mesh, b, kinds[1], B16)
    check(ttnn.moreh_matmul(x, y), lambda x, y: x @ y, x, y, atol=0.1)


@PAIRS
def test_matmul_transposed_with_a_bias(mesh, put, check, kinds):
    x, y, bias, into = put(mesh, (50, 33), kinds[0], B16), put(mesh, (40, 50), kinds[1], B16), put(mesh, (1, 40), dtype=B16), put(mesh, (33, 40), dtype=B16)
    made = ttnn.moreh_matmul(x, y, transpose_input=True, transpose_other=True, bias=bias, output=into)
    assert made is into
    check(made, lambda x, y, b: x.T @ y.T + b, x, y, bias, atol=0.1)


@PAIRS
@pytest.mark.parametrize("bias", [None, (1, 40), (1, 1)])
def test_linear(mesh, put, check, torch, kinds, bias):
    x, w = put(mesh, (2, 3, 33, 50), kinds[0], B16), put(mesh, (40, 50), kinds[1], B16)
    b = None if bias is None else put(mesh, bias, kinds[1], B16)
    check(ttnn.moreh_linear(x, w, bias=b), lambda x, w, b: torch.nn.functional.linear(x, w) + (0 if b is None else b), x, w, b, atol=0.1)


@PAIRS
@pytest.mark.parametrize("bias", [(1, 40), (1, 1)])
def test_linear_backward(mesh, put, check, torch, kinds, bias):
    grad, x, w = put(mesh, (2, 3, 33, 40), kinds[0], B16), put(mesh, (2, 3, 33, 50), kinds[1], B16), put(mesh, (40, 50), dtype=B16)
    into = [put(mesh, shape, dtype=B16) for shape in ((2, 3, 33, 50), (40, 50), bias)]
    made = ttnn.moreh_linear_backward(grad, x, w, input_grad=into[0], weight_grad=into[1], bias_grad=into[2])
    assert all(a is b for a, b in zip(made, into, strict=True))
    b = put(mesh, bias, dtype=B16)
    check(made, gradients(torch, lambda x, w, b: x @ w.T + b), grad, x, w, b, atol=0.5)
    assert ttnn.moreh_linear_backward(grad, x, w, are_required_outputs=[False, False, True], bias_grad=into[2])[:2] == [None, None]


@PAIRS
@pytest.mark.parametrize("a, b", [((33, 50), (50, 40)), ((2, 3, 33, 50), (50, 40)), ((2, 1, 33, 50), (1, 3, 50, 40))], ids=str)
def test_matmul_backward(mesh, put, check, torch, kinds, a, b):
    shape = torch.broadcast_shapes(a[:-2], b[:-2]) + (33, 40)
    grad, x, y = put(mesh, shape, dtype=B16), put(mesh, a, kinds[0], B16), put(mesh, b, kinds[1], B16)
    into = [put(mesh, a, dtype=B16), put(mesh, b, dtype=B16)]
    made = ttnn.moreh_matmul_backward(grad, x, y, input_a_grad=into[0], input_b_grad=into[1])
    assert made[0] is into[0] and made[1] is into[1]
    check(made, gradients(torch, torch.matmul), grad, x, y, atol=0.5)
    assert ttnn.moreh_matmul_backward(grad, x, y, are_required_outputs=[False, False]) == [None, None]


@FLOATS
@KINDS
@pytest.mark.parametrize("dim", [0, 2])
def test_softmax(mesh, put, check, dtype, kind, dim):
    x = put(mesh, (3, 33, 50), kind, dtype)
    check(ttnn.moreh_softmax(x, dim), lambda x: x.softmax(dim), x)
    check(ttnn.moreh_logsoftmax(x, dim), lambda x: x.log_softmax(dim), x)


@FLOATS
@PAIRS
@pytest.mark.parametrize("dim", [0, 2])
def test_logsoftmax_backward(mesh, put, check, torch, dtype, kinds, dim):
    strict(dtype is B16)  # a card takes no float32 here
    grad, x = put(mesh, (3, 33, 50), kinds[0], dtype), put(mesh, (3, 33, 50), kinds[1], dtype)
    y = ttnn.moreh_logsoftmax(x, dim)
    check(ttnn.moreh_logsoftmax_backward(y, grad, dim), lambda y, g: g - y.exp() * g.sum(dim, keepdim=True), y, grad)
    if dtype is ttnn.float32:
        check([ttnn.moreh_logsoftmax_backward(y, grad, dim)], gradients(torch, lambda x: x.log_softmax(dim)), grad, x, atol=1e-4)


A, B, C, ROWS, F32 = (32, 64), (64, 96), (96, 64), ttnn.ROW_MAJOR_LAYOUT, ttnn.float32
REFUSED = {
    "type": (lambda p: ttnn.moreh_matmul(p(A, dtype=F32), p(B)), TTKitError, r"moreh_matmul input only supports specific data types. \[BFLOAT16\]"),
    "other type": (lambda p: ttnn.moreh_matmul(p(A), p(B, dtype=F32)), TTKitError, "moreh_matmul other only supports specific data types"),
    "layout": (lambda p: ttnn.moreh_matmul(p(A, layout=ROWS), p(B)), TTKitError, "moreh_matmul input only supports TILE layout"),
    "k": (lambda p: ttnn.moreh_matmul(p(A), p((32, 96))), TTKitError, "k must be the same. input_k 64, other_k 32"),
    "batch": (lambda p: ttnn.moreh_matmul(p((2, *A)), p((3, *B))), TTKitError, "one of dim must be one. 2th dim input_dim 2, other_dim 3"),
    "bias rank": (lambda p: ttnn.moreh_linear(p(A), p(C), bias=p((96,))), TTKitError, r"bias rank 1 must be 2 \(tilized\)"),
    "bias width": (lambda p: ttnn.moreh_matmul(p(A), p(B), bias=p((1, 64))), TTKitError, "bias_w must be one or the same as other_n. bias_w 64, other_n 96"),
    "output": (lambda p: ttnn.moreh_matmul(p(A), p(B), output=p(A)), TTKitError, "n must be the same. other_n 96, output_n 64"),
    "input_grad": (lambda p: ttnn.moreh_linear_backward(p((32, 96)), p(A), p(C)), TTKitError, "input_grad tensor should not be std::nullopt"),
    "sizes": (lambda p: ttnn.moreh_linear_backward(p(A), p(A), p(A), are_required_outputs=[True]), TTKitError, "are_required_outputs size must be 3"),
    "grad shape": (
        lambda p: ttnn.moreh_linear_backward(p((32, 96)), p(A), p(C), are_required_outputs=[True, False, False], input_grad=p((32, 96))),
        TTKitError,
        "both tensors should be the same shape",
    ),
    "a": (lambda p: ttnn.moreh_matmul_backward(p((32, 96)), p(A), p(B)), TTKitError, "Input gradient is marked required but not provided"),
    "b": (lambda p: ttnn.moreh_matmul_backward(p((32, 96)), p(A), p(B), input_a_grad=p(A)), TTKitError, "Other gradient is marked required"),
    "softmax rows": (lambda p: ttnn.moreh_softmax(p(A, layout=ROWS), 1), TTKitError, "Inputs to softmax must be tilized"),
    "softmax type": (lambda p: ttnn.moreh_softmax(p(A, dtype=ttnn.uint32, low=3), 1), TTKitError, "Received: DataType::UINT32"),
    "softmax dim": (lambda p: ttnn.moreh_logsoftmax(p(A), 2), TTKitError, "dim 2 should be less than output tensor rank 2"),
    "softmax -1": (lambda p: ttnn.moreh_softmax(p(A), -1), TypeError, "incompatible function arguments"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(wide, put, case):
    call, kind, message = REFUSED[case]
    with pytest.raises(kind, match=message):
        call(lambda *args, **options: put(wide, *args, **{"dtype": B16, **options}))
