"""Matrix products: vectors, biases, nothing at all, and what is refused."""

import numpy as np
import pytest
from formulas import gelu_tanh
from shards import hint

from ttkit import ttnn
from ttkit.errors import TTKitError


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((6, 5), (5, 7)), ((5,), (5, 7)), ((6, 5), (5,)), ((5,), (5,)), ((2, 6, 5), (5,)),
        ((2, 6, 5), (2, 5, 7)),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("kinds", [("RR", "RR"), ("S0R", "RR"), ("S0R", "RS0")], ids="-".join)
def test_each_chip_has_the_product(mesh, put, check, left, right, kinds):
    a, b = put(mesh, left, kinds[0]), put(mesh, right, kinds[1])
    check(ttnn.matmul(a, b), np.matmul, a, b)


@pytest.mark.parametrize("bias", [(7,), (1, 7), (6, 7), (3, 6, 7), (1, 1, 1, 7)], ids=str)
@pytest.mark.parametrize("kind", ["RR", "S0R", "RS0"])
def test_a_bias_repeats_and_can_raise_the_rank(wide, put, check, bias, kind):
    x, w, c = put(wide, (6, 5), "S0R"), put(wide, (5, 7), "RR"), put(wide, bias, kind)
    made = ttnn.linear(x, w, bias=c, activation="relu")
    check(made, lambda x, w, c: np.maximum(x @ w + c, 0), x, w, c)


@pytest.mark.parametrize("dtype", [ttnn.float32, ttnn.bfloat16], ids=["float32", "bfloat16"])
def test_addmm(wide, put, check, torch, dtype):
    shapes = ((6, 7), "RS0"), ((6, 5), "S0R"), ((5, 7), "RR")
    c, a, b = (put(wide, *each, dtype) for each in shapes)

    def formula(c, a, b, **scales):
        return torch.addmm(*(torch.from_numpy(x) for x in (c, a, b)), **scales).numpy()

    for scales in ({}, {"alpha": 2.0, "beta": 0.5}):
        made = ttnn.addmm(c, a, b, **scales)
        check(made, lambda *x, s=scales: formula(*x, **s), c, a, b, additions=24, roundings=4)
    given = put(wide, (6, 7), "S0S1", dtype)
    assert ttnn.addmm(c, a, b, optional_output_tensor=given) is given
    check(given, formula, c, a, b, additions=24, roundings=4)
    check(ttnn.addmm(a, a, b, beta=0.0), lambda a, b: a @ b, a, b, additions=24, roundings=4)
    whole = put(wide, (6, 7), "RR", ttnn.uint32, low=1)
    refused = {
        "cannot be 0": ((c, a, b), 0),
        "must have shape": ((a, a, b), 1),
        "only": ((whole, a, b), 1),
    }
    for words, (given, alpha) in refused.items():
        with pytest.raises(TTKitError, match=words):
            ttnn.addmm(*given, alpha=alpha)


def test_a_fused_activation_as_a_pair(wide, put, check):
    x, w = put(wide, (32, 32), "S0R"), put(wide, (32, 32))
    pair = [ttnn.UnaryOpType.GELU, True]
    config = hint("MatmulMultiCoreReuseMultiCastProgramConfig", fused_activation=pair)
    for how in ({"program_config": config}, {"activation": pair}):
        check(ttnn.linear(x, w, **how), lambda x, w: gelu_tanh(x @ w), x, w, additions=32)


def test_nothing_gives_zeros(wide, put, check):
    a, b = put(wide, (6, 0), "S0R"), put(wide, (0, 7), "RR")
    check(ttnn.matmul(a, b), np.matmul, a, b)


@pytest.mark.parametrize("bias", [(1, 128), (32,), (33, 64), (3, 24, 64)], ids=str)
def test_biases_that_do_not_fit(wide, put, bias):
    x, w = put(wide, (64, 32), "S0R"), put(wide, (32, 64), "RR")
    with pytest.raises(TTKitError, match="the shapes do not fit together"):
        ttnn.linear(x, w, bias=put(wide, bias, "RR"))


def test_order_of_refusals(wide, put):
    a, b = put(wide, (32, 32), "RR"), put(wide, (32, 32), "RR")
    rows, gone = ttnn.to_layout(a, ttnn.ROW_MAJOR_LAYOUT), ttnn.clone(a)
    ttnn.deallocate(gone)
    for operands, rule in [
        ((rows, ttnn.typecast(b, ttnn.int32)), "must be tilized"),
        ((gone, b), "Input Tensor A is not allocated"), ((a, gone), "Input Tensor B is not allocated"),
        ((a, ttnn.from_device(b)), "Device Operations expect device tensors"),
    ]:  # fmt: skip
        with pytest.raises(TTKitError, match=rule):
            ttnn.matmul(*operands)
    with pytest.raises(TTKitError, match="Input tensor C must be on device"):
        ttnn.linear(a, b, bias=ttnn.from_device(b))


@pytest.mark.parametrize("rows", [16, 32])
def test_a_bias_of_a_whole_tile_gives_its_first_row(wide, put, rows):
    x, w = put(wide, (64, 96), "S0R"), put(wide, (96, 64), "RR")
    bias = put(wide, (rows, 64), "RR")
    found, first = ttnn.linear(x, w, bias=bias), ttnn.slice(bias, [0, 0], [1, 64])
    assert (found.full_array() == ttnn.linear(x, w, bias=first).full_array()).all()
