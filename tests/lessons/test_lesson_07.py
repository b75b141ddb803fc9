"""The exercises of lesson 07: right answers, and wrong ones that are told what is wrong."""

import numpy as np
import pytest
from answers import right, wrong
from machine import strict_with_fabric

import ttkit
from ttkit import lessons, ttnn
from ttkit.errors import TTKitError
from ttkit.lessons.lesson_07 import CHECKS, find, left_out, loss_bytes, train_gpt, wrong_gradients
from ttkit.lessons.megatron import cuts, heads, passes


@pytest.fixture(autouse=True)
def as_in_a_lesson():
    with strict_with_fabric():
        yield


def place(mesh, array, dim=None):
    mapper = (
        ttnn.ReplicateTensorToMesh(mesh) if dim is None else ttnn.ShardTensorToMesh(mesh, dim=dim)
    )
    return ttkit.from_numpy(array, device=mesh, layout=ttnn.TILE_LAYOUT, mesh_mapper=mapper)


def parts(mesh, x, gate, up, down):
    x, gate, up, down = (
        place(mesh, x),
        place(mesh, gate, 1),
        place(mesh, up, 1),
        place(mesh, down, 0),
    )
    return ttnn.matmul(ttnn.multiply(ttnn.silu(ttnn.matmul(x, gate)), ttnn.matmul(x, up)), down)


def swiglu(*given):
    return ttnn.all_reduce(parts(*given), cluster_axis=1)


def scattered_by_columns(*given):
    part = ttnn.reduce_scatter(parts(*given), dim=-1, cluster_axis=1)
    return ttnn.all_gather(part, dim=-1, cluster_axis=1)


def in_another_order(mesh, x, gate, up, down):
    """Which chip has which hidden feature does not matter."""
    order = np.random.default_rng(7).permutation(len(down))
    return swiglu(mesh, x, *(np.ascontiguousarray(w[:, order]) for w in (gate, up)), down[order])


def gathered_between(mesh, x, gate, up, down):
    x, gate, up = place(mesh, x), place(mesh, gate, 1), place(mesh, up, 1)
    hidden = ttnn.multiply(ttnn.silu(ttnn.matmul(x, gate)), ttnn.matmul(x, up))
    return ttnn.matmul(ttnn.all_gather(hidden, dim=1, cluster_axis=1), place(mesh, down))


def summed_twice(*given):
    summand = parts(*given)
    once, twice = (ttnn.all_reduce(summand, cluster_axis=1) for _ in range(2))
    return ttnn.multiply(ttnn.add(once, twice), 0.5)


def everything_everywhere(mesh, x, gate, up, down):
    x, gate, up, down = (place(mesh, array) for array in (x, gate, up, down))
    return ttnn.matmul(ttnn.multiply(ttnn.silu(ttnn.matmul(x, gate)), ttnn.matmul(x, up)), down)


def silu_on_the_other(mesh, x, gate, up, down):
    return swiglu(mesh, x, up, gate, down)


def another(hidden):
    """The MLP with other hidden features, of x @ gate and x @ up."""

    def swiglu(mesh, x, gate, up, down):
        x = place(mesh, x)
        features = hidden(ttnn.matmul(x, place(mesh, gate, 1)), ttnn.matmul(x, place(mesh, up, 1)))
        return ttnn.all_reduce(ttnn.matmul(features, place(mesh, down, 0)), cluster_axis=1)

    return swiglu


def in_one_product(mesh, x, gate, up, down):
    """Each device has its columns of gate beside those of up."""
    pairs = zip(*(np.split(each, mesh.shape[1], 1) for each in (gate, up)))
    both = np.concatenate([part for pair in pairs for part in pair], 1)
    hidden = ttnn.matmul(place(mesh, x), place(mesh, both, 1))
    rows, columns = hidden.shape
    gated = ttnn.silu(ttnn.slice(hidden, [0, 0], [rows, columns // 2]))
    hidden = ttnn.multiply(gated, ttnn.slice(hidden, [0, columns // 2], [rows, columns]))
    return ttnn.all_reduce(ttnn.matmul(hidden, place(mesh, down, 0)), cluster_axis=1)


def of_256_rows(mesh, x, gate, up, down):
    """The sizes of the first call, hard-coded."""
    output = swiglu(mesh, x, gate, up, down)
    return ttnn.slice(output, [0, 0], [256, 96])


def of_so_many(features=None, outputs=None):
    """Other sizes of the first call, hard-coded."""

    def answer(mesh, x, gate, up, down):
        x = place(mesh, x)
        x = ttnn.slice(x, [0, 0], [x.shape[0], features]) if features else x
        hidden = ttnn.multiply(
            ttnn.silu(ttnn.matmul(x, place(mesh, gate, 1))), ttnn.matmul(x, place(mesh, up, 1))
        )
        output = ttnn.all_reduce(ttnn.matmul(hidden, place(mesh, down, 0)), cluster_axis=1)
        return ttnn.slice(output, [0, 0], [output.shape[0], outputs]) if outputs else output

    return answer


def gate_on_the_host(mesh, x, gate, up, down):
    gated = place(mesh, np.asarray(silu(x @ gate), np.float32), 1)
    hidden = ttnn.multiply(gated, ttnn.matmul(place(mesh, x), place(mesh, up, 1)))
    return ttnn.all_reduce(ttnn.matmul(hidden, place(mesh, down, 0)), cluster_axis=1)


def local(mesh, dy, w):
    return ttnn.matmul(place(mesh, dy, 1), place(mesh, w, 1), transpose_b=True)


def backward(*given):
    return ttnn.all_reduce(local(*given), cluster_axis=1)


def in_two_halves(*given):
    return ttnn.all_gather(
        ttnn.reduce_scatter(local(*given), dim=1, cluster_axis=1), dim=1, cluster_axis=1
    )


def in_four_dimensions(*given):
    dx = backward(*given)
    return ttnn.reshape(dx, [1, 1, *dx.shape])


def halves_of_rows(*given):
    return ttnn.all_gather(
        ttnn.reduce_scatter(local(*given), dim=0, cluster_axis=1), dim=0, cluster_axis=1
    )


def transposed_before(mesh, dy, w):
    rows = place(mesh, np.ascontiguousarray(w.T), 0)
    return ttnn.all_reduce(ttnn.matmul(place(mesh, dy, 1), rows), cluster_axis=1)


def on_the_host(mesh, dy, w):
    return place(
        mesh,
        np.sum([ttkit.to_numpy(t) for t in ttnn.get_device_tensors(local(mesh, dy, w))], axis=0),
    )


def replicated(mesh, array):
    return place(mesh, np.asarray(array, np.float32))


def silu(t):
    return t / (1 + np.exp(-t))


def swiglu_on_the_host(mesh, x, gate, up, down):
    return replicated(mesh, (silu(x @ gate) * (x @ up)) @ down)


def hidden_on_the_host(mesh, x, gate, up, down):
    """The hidden features come from NumPy; only the last product is the mesh's."""
    hidden = place(mesh, np.asarray(silu(x @ gate) * (x @ up), np.float32), 1)
    return ttnn.all_reduce(ttnn.matmul(hidden, place(mesh, down, 0)), cluster_axis=1)


def swiglu_summed_on_the_host(*given):
    shards = ttnn.get_device_tensors(parts(*given))
    return replicated(given[0], np.sum([ttkit.to_numpy(t) for t in shards], axis=0))


def reduced_before_silu(mesh, x, gate, up, down):
    """Right, with a second collective that nobody needs."""
    ttnn.all_reduce(ttnn.matmul(place(mesh, x), place(mesh, gate, 1)), cluster_axis=1)
    return swiglu(mesh, x, gate, up, down)


def gathered_and_added(mesh, dy, w):
    rows, columns = len(dy), len(w)
    every = ttnn.all_gather(local(mesh, dy, w), dim=0, cluster_axis=1)
    total = ttnn.slice(every, [0, 0], [rows, columns])
    for i in range(1, mesh.shape[1]):
        part = ttnn.slice(every, [rows * i, 0], [rows * (i + 1), columns])
        total = ttnn.add(total, part)
    return total


def summed_and_summed(*given):
    return ttnn.all_reduce(backward(*given), cluster_axis=1)


def half_of_two(*given):
    return ttnn.multiply(ttnn.add(backward(*given), backward(*given)), 0.5)


def for_four_chips(*given):
    """The sum of a mean, hard-coded for the first mesh of the check."""
    return ttnn.multiply(backward(*given), 4 / given[0].shape[1])


RIGHT = [
    ("07.swiglu", swiglu),
    ("07.swiglu", in_one_product),
    ("07.swiglu", another(lambda a, b: b * (a * ttnn.sigmoid(a)))),
    ("07.swiglu", of_so_many()),
    ("07.swiglu", in_another_order),
    ("07.swiglu", scattered_by_columns),
    ("07.backward", backward),
    ("07.backward", in_two_halves),
    ("07.backward", halves_of_rows),
    ("07.backward", transposed_before),
    ("07.backward", in_four_dimensions),
]
WRONG = [
    ("07.swiglu", another(lambda a, b: ttnn.gelu(a) * b), "this is gelu; silu is asked for"),
    ("07.swiglu", another(lambda a, b: ttnn.relu(a) * b), "this is relu; silu is asked for"),
    ("07.swiglu", another(lambda a, b: ttnn.silu(a * b)), "silu is on the product of both"),
    ("07.swiglu", another(lambda a, b: ttnn.silu(a) + b), "both are added"),
    ("07.swiglu", another(lambda a, b: ttnn.silu(a)), "x @ up is missing"),
    ("07.swiglu", another(lambda a, b: ttnn.silu(a) * a), "gate is used twice"),
    ("07.swiglu", another(lambda a, b: ttnn.hardswish(a) * b), r"1x4.* element"),
    ("07.swiglu", another(lambda a, b: ttnn.mish(a) * b), r"1x4.* element"),
    ("07.swiglu", another(lambda a, b: ttnn.silu(ttnn.silu(a)) * b), r"1x4.* element"),
    ("07.swiglu", lambda *given: ttnn.add(swiglu(*given), 0.1), r"1x4.* element"),
    ("07.swiglu", of_256_rows, "your swiglu stopped with|the shape should be"),
    ("07.swiglu", of_so_many(features=32), r"your swiglu stopped with|1x3"),
    ("07.swiglu", of_so_many(outputs=96), r"1x3.* the shape should be \[192, 192\]"),
    (
        "07.swiglu",
        lambda mesh, x, gate, up, down: swiglu(mesh, x, gate, np.flipud(gate).copy(), down),
        r"on MeshDevice\(1x4.* element",
    ),
    ("07.swiglu", gate_on_the_host, "3 products on the mesh should lead to your tensor, 2 did"),
    (
        "07.swiglu",
        lambda mesh, *given: ttnn.multiply(swiglu(mesh, *given), 1 / mesh.shape[1]),
        "4 times too small: a sum is asked for",
    ),
    ("07.swiglu", parts, "partial sum only"),
    ("07.swiglu", gathered_between, "down is .* you cut nothing"),
    ("07.swiglu", summed_twice, "you called all_reduce, all_reduce; one all_reduce is enough"),
    ("07.swiglu", everything_everywhere, "gate is .* you cut nothing"),
    ("07.swiglu", silu_on_the_other, "the silu is on x @ up; it belongs on x @ gate"),
    ("07.swiglu", swiglu_on_the_host, "not done on the devices.*NumPy did it on the host"),
    ("07.swiglu", hidden_on_the_host, "3 products on the mesh should lead to your tensor, 1 did"),
    ("07.swiglu", swiglu_summed_on_the_host, "your sum over the devices was made on the host"),
    ("07.swiglu", reduced_before_silu, "you called all_reduce, all_reduce; one all_reduce"),
    (
        "07.swiglu",
        lambda *given: ttnn.all_reduce(swiglu(*given), cluster_axis=1),
        "4 times too large: the sum was made twice",
    ),
    (
        "07.backward",
        lambda mesh, dy, w: replicated(mesh, dy @ w.T),
        "not done on the devices.*NumPy did it on the host",
    ),
    ("07.backward", gathered_and_added, "you called all_gather; one all_reduce is enough"),
    ("07.backward", summed_and_summed, "4 times too large: the sum was made twice"),
    ("07.backward", half_of_two, "you called all_reduce, all_reduce; one all_reduce is enough"),
    (
        "07.backward",
        lambda *given: ttnn.multiply(backward(*given), 1 / given[0].shape[1]),
        "4 times too small: a sum is asked for",
    ),
    ("07.backward", for_four_chips, r"on MeshDevice\(1x3 .* element"),
    ("07.backward", local, "partial sum only"),
    ("07.backward", on_the_host, "made on the host"),
    (
        "07.backward",
        lambda mesh, dy, w: ttnn.matmul(place(mesh, dy), place(mesh, w), transpose_b=True),
        "dy is .* you cut nothing",
    ),
    (
        "07.backward",
        lambda mesh, dy, w: ttnn.matmul(place(mesh, dy, 1), place(mesh, w, 0), transpose_b=True),
        "your backward stopped with|w is .* you cut dimension 0",
    ),
]


test_a_right_answer_passes = right(RIGHT)
test_a_wrong_answer_is_told_why = wrong(WRONG)


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
    assert "MLP, rows: 0.0" in repr(page) and "0: right" in page._repr_html_()


def test_f_is_there_again_after_the_block():
    from ttkit.train import modules

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


def test_a_pass_goes_one_of_two_ways():
    with pytest.raises(TTKitError, match="forwards or backwards"):
        passes("sideways")


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
