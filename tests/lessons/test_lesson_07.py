"""Lesson 07: its exercises with right and with wrong answers, its pictures, and the silent bug."""

import numpy as np
import pytest
from answers import both, cut, everywhere, put
from machine import strict_with_fabric
from visualize.test_chart import svg_of

import ttkit
from course.lesson_07 import (
    CHECKS,
    cuts,
    find,
    heads,
    left_out,
    loss_bytes,
    passes,
    train_gpt,
    wrong_gradients,
)
from ttkit import lessons, ttnn
from ttkit.errors import TTKitError


@pytest.fixture(autouse=True)
def as_in_a_lesson():
    with strict_with_fabric():
        yield


def whole(mesh, array):
    return put(mesh, array, everywhere(mesh))


def columns(mesh, array):
    return put(mesh, array, cut(mesh, 1))


def rows(mesh, array):
    return put(mesh, array, cut(mesh, 0))


def parts(mesh, x, gate, up, down, hidden=lambda a, b: ttnn.silu(a) * b):
    x = whole(mesh, x)
    return hidden(x @ columns(mesh, gate), x @ columns(mesh, up)) @ rows(mesh, down)


def swiglu(*given, **how):
    return ttnn.all_reduce(parts(*given, **how), cluster_axis=1)


def another(hidden):
    """The MLP with other hidden features, of x @ gate and x @ up."""
    return lambda *given: swiglu(*given, hidden=hidden)


def in_two_halves(*given):
    part = ttnn.reduce_scatter(parts(*given), dim=-1, cluster_axis=1)
    return ttnn.all_gather(part, dim=-1, cluster_axis=1)


def in_one_product(mesh, x, gate, up, down):
    """Each device has its columns of gate beside those of up."""
    pairs = zip(*(np.split(each, mesh.shape[1], 1) for each in (gate, up)))
    both = np.concatenate([part for pair in pairs for part in pair], 1)
    hidden = whole(mesh, x) @ columns(mesh, both)
    height, width = hidden.shape
    a = ttnn.slice(hidden, [0, 0], [height, width // 2])
    b = ttnn.slice(hidden, [0, width // 2], [height, width])
    return ttnn.all_reduce(ttnn.silu(a) * b @ rows(mesh, down), cluster_axis=1)


def gathered_between(mesh, x, gate, up, down):
    x = whole(mesh, x)
    hidden = ttnn.silu(x @ columns(mesh, gate)) * (x @ columns(mesh, up))
    return ttnn.all_gather(hidden, dim=1, cluster_axis=1) @ whole(mesh, down)


def local(mesh, dy, w):
    return ttnn.matmul(columns(mesh, dy), columns(mesh, w), transpose_b=True)


def backward(*given):
    return ttnn.all_reduce(local(*given), cluster_axis=1)


def transposed_before(mesh, dy, w):
    product = columns(mesh, dy) @ rows(mesh, np.ascontiguousarray(w.T))
    return ttnn.all_reduce(product, cluster_axis=1)


def in_four_dimensions(*given):
    dx = backward(*given)
    return ttnn.reshape(dx, [1, 1, *dx.shape])


test_a_right_answer_passes, test_a_wrong_answer_is_told_where = both(
    {
        "07.swiglu": (
            [swiglu, in_two_halves, in_one_product],
            {
                "this is gelu; silu is asked for": another(lambda a, b: ttnn.gelu(a) * b),
                "the silu is on x @ up": another(lambda a, b: a * ttnn.silu(b)),
                "silu is on the product of both": another(lambda a, b: ttnn.silu(a * b)),
                "both are added": another(lambda a, b: ttnn.silu(a) + b),
                "gate is used twice": another(lambda a, b: ttnn.silu(a) * a),
                "device 4 at (0, 0): element [0, 0] should be": another(
                    lambda a, b: ttnn.mish(a) * b
                ),
                "the sum over the devices is missing": parts,
                "4 times too large": lambda *given: ttnn.all_reduce(swiglu(*given)),
                "4 times too small": lambda mesh, *given: swiglu(mesh, *given) * 0.25,
                "yours got": gathered_between,
                "you called all_reduce, all_reduce: 1 collective would do": lambda *given: (
                    swiglu(*given) * 0.5 + swiglu(*given) * 0.5
                ),
            },
        ),
        "07.backward": (
            [backward, transposed_before, in_four_dimensions],
            {
                "the sum over the devices is missing": local,
                "4 times too large": lambda *given: ttnn.all_reduce(backward(*given)),
                "4 times too small": lambda *given: backward(*given) * 0.25,
                "MeshDevice(1x3": lambda mesh, *given: backward(mesh, *given) * (4 / mesh.shape[1]),
                "NumPy did it on the host": lambda mesh, dy, w: whole(mesh, dy @ w.T),
                "nothing was sent": lambda mesh, dy, w: ttnn.matmul(
                    whole(mesh, dy), whole(mesh, w), transpose_b=True
                ),
            },
        ),
    }
)


# ---------------------------------------------------------------- the silent bug
@pytest.fixture(scope="module")
def runs():
    ttkit.strict()
    lessons.tidy()
    found = {"one chip": train_gpt(chips=1, steps=8)}
    for without in ("nothing", "every f", "the MLP's f"):
        found[without] = train_gpt(chips=4, without=without, steps=8)
    ttkit.strict(False)
    return found


def test_with_every_f_four_chips_train_as_one(runs):
    np.testing.assert_allclose(runs["nothing"].losses, runs["one chip"].losses, rtol=1e-3)
    assert max(runs["nothing"].apart.values()) == 0
    assert max(wrong_gradients(runs["one chip"], runs["nothing"]).values()) < 1e-2


@pytest.mark.parametrize("without", ["every f", "the MLP's f"])
def test_without_f_copies_differ_and_the_first_gradient_is_wrong(runs, without):
    assert runs[without].losses[-1] < runs[without].losses[0]  # the loss falls
    assert max(runs[without].apart.values()) > 0.01
    wrong = wrong_gradients(runs["one chip"], runs[without])
    assert wrong["table of tokens"] > 0.5
    assert (wrong["MLP, columns"] > 0.01) == (without == "every f")
    assert wrong["logits"] < 0.01


def test_the_checks_say_what_they_find(runs):
    titles = {(without, c): find(runs, without, c).title for without in runs for c in CHECKS}
    for without in ("every f", "the MLP's f"):
        assert "the loss falls, to" in titles[without, CHECKS[0]]
        for check in CHECKS[1:]:
            assert f"{without} left out: this check finds the fault" in titles[without, check]
    for check in CHECKS[1:]:
        assert "all layers are right" in titles["nothing", check]
    page = find(runs, "the MLP's f", CHECKS[2])
    assert "MLP, rows: 0.0" in repr(page) and "0: right" in svg_of(page._repr_html_())


def test_f_is_there_again_after_the_block():
    from ttkit.train.model import modules

    before = modules.enter
    with left_out("the MLP's f"):
        assert modules.enter is not before
    assert modules.enter is before
    with pytest.raises(TTKitError, match="one of nothing, every f, the MLP's f"):
        with left_out("g"):
            pass


# ---------------------------------------------------------------- the pictures
@pytest.mark.parametrize(
    ("way", "f", "g", "says"),
    [
        ("forwards", True, True, "y is the whole sum on every chip. g is an all-reduce."),
        ("forwards", False, True, "y is the whole sum on every chip. g is an all-reduce."),
        ("forwards", True, False, "y is a partial sum on each chip. Nothing is sent."),
        ("backwards", True, True, "dx is the whole sum on every chip. f is an all-reduce."),
        ("backwards", False, True, "dx is a partial sum on each chip. Nothing is sent."),
    ],
)
def test_a_pass_says_where_the_sum_is_made(way, f, g, says):
    picture = passes(way, 4, f, g)
    assert says in repr(picture)
    assert bool(picture.alarm) == ("partial" in says)
    end, kind = ("y", "dx")[way == "backwards"], "partial" if picture.alarm else "whole"
    assert repr(picture).endswith(f"{end} ({kind})")
    page = picture._repr_html_()
    assert ("no f" in page) == (not f) and ("no g" in page) == (not g)
    assert page.count("chip 3: ") == 5 and "1/4 of the features" in page


def test_heads_are_shared_out_whole():
    assert "chip 1: heads 4, 5, 6, 7" in repr(heads(8, 2))
    assert "head 3: its columns of query" in heads(4, 4)._repr_html_()
    with pytest.raises(TTKitError, match="num_heads must be divisible"):
        heads(6, 4)


def test_three_numbers_a_token_send_less_than_all_logits():
    few, many = loss_bytes(vocabulary=2048), loss_bytes(vocabulary=4096)
    assert few["three numbers"] == many["three numbers"] < few["all logits"]
    assert many["all logits"] == 2 * few["all logits"]


def test_the_two_cuts_are_drawn_with_and_without_the_sum():
    columns, rows = cuts()
    assert "the columns of w are cut" in repr(columns) and "a partial sum" in repr(rows)
    assert repr(cuts(added=True)[0]) == repr(columns) and repr(cuts(added=True)[1]) != repr(rows)
