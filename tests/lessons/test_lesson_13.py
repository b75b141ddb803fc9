"""The exercises of lesson 13: right answers, and wrong ones that are told what is wrong; its
rules are those of torch, where torch is.
"""

import numpy as np
import pytest
from answers import put, right, wrong
from machine import strict_with_fabric

import ttkit
from ttkit import ttnn
from ttkit.lessons.lesson_13 import PRODUCTS


@pytest.fixture(autouse=True)
def as_in_a_lesson():
    with strict_with_fabric():
        yield


def product(a, b):
    return PRODUCTS.get((a, b))


def redistribute(x, source, target):
    if source == "Replicate":
        return ttnn.mesh_partition(x, dim=int(target[6]), cluster_axis=1)
    if source == "Partial":
        return (
            ttnn.all_reduce(x, cluster_axis=1)
            if target == "Replicate"
            else ttnn.reduce_scatter(x, dim=int(target[6]), cluster_axis=1)
        )
    return ttnn.all_gather(x, dim=int(source[6]), cluster_axis=1)


def sums_whole(x, source, target):
    if source == "Partial" and target != "Replicate":
        return ttnn.mesh_partition(
            ttnn.all_reduce(x, cluster_axis=1), dim=int(target[6]), cluster_axis=1
        )
    return redistribute(x, source, target)


def believes_the_sum(x, source, target):
    return x if (source, target) == ("Partial", "Replicate") else redistribute(x, source, target)


def gathers_a_sum(x, source, target):
    return (
        ttnn.all_gather(x, dim=0, cluster_axis=1)
        if (source, target) == ("Partial", "Replicate")
        else redistribute(x, source, target)
    )


def one_dimension(x, source, target):
    return redistribute(x, source, target.replace("1", "0"))


def forgets_partial(a, b):
    return "Replicate" if (a, b) == ("Shard(1)", "Shard(0)") else product(a, b)


def always(a, b):
    return product(a, b) or "Replicate"


def through_the_host(x, source, target):
    """NumPy cuts the replica; nothing is sent, and the chips do nothing."""
    if source != "Replicate":
        return redistribute(x, source, target)
    mesh, dim = x.device(), int(target[6])
    whole = ttkit.to_numpy(ttnn.get_device_tensors(x)[0])
    return put(mesh, whole, ttnn.ShardTensorToMesh(mesh, dim=dim))


def reduces_twice(x, source, target):
    if (source, target) != ("Partial", "Replicate"):
        return redistribute(x, source, target)
    part = ttnn.reduce_scatter(x, dim=0, cluster_axis=1)
    return ttnn.all_gather(part, dim=0, cluster_axis=1)


def by_rules(a, b):
    """With rules, not a table: each operand's summed dimension."""
    if "Partial" in (a, b) or (a, b) == ("Shard(0)", "Shard(1)"):
        return None
    cuts_sum = (a == "Shard(1)", b == "Shard(0)")
    if any(cuts_sum):
        return "Partial" if all(cuts_sum) or "Replicate" in (a, b) else None
    return a if b == "Replicate" else b


def as_torch(a, b):
    """A partial sum times a replica is a partial sum."""
    return "Partial" if {a, b} == {"Partial", "Replicate"} else product(a, b)


def mean(x, source, target):
    moved = redistribute(x, source, target)
    return ttnn.multiply(moved, 1 / 4) if source == "Partial" else moved


def with_addition(x, source, target):
    """Through the host, and then once more on the devices, so that an operation led to it."""
    return ttnn.add(through_the_host(x, source, target), 0.0)


def with_a_clone(*given):
    return ttnn.clone(redistribute(*given))


def in_another_layout(*given):
    return ttnn.to_layout(redistribute(*given), ttnn.ROW_MAJOR_LAYOUT)


def turned_twice(x, source, target):
    """Cuts the other dimension of the transpose."""
    other = str.maketrans("01", "10")
    moved = redistribute(ttnn.transpose(x, 0, 1), source.translate(other), target.translate(other))
    return ttnn.transpose(moved, 0, 1)


def called_twice(*given):
    return [redistribute(*given) for _ in range(2)][1]


def from_the_end(x, source, target):
    """With negative dimensions, and without the axis of a mesh of one row."""
    dim = int((source + target).partition("(")[2][:1] or 0) - 2
    if source == "Replicate":
        return ttnn.mesh_partition(x, dim, 1)
    if source == "Partial":
        return ttnn.all_reduce(x) if target == "Replicate" else ttnn.reduce_scatter(x, dim)
    return ttnn.all_gather(x, dim)


def looks_at_it(x, source, target):
    assert x.shape[0] > 0 and repr(x)
    return redistribute(x, source, target)


def other_than(pair, answer):
    return lambda a, b: answer if (a, b) == pair else product(a, b)


def other_move(source, move):
    """Another move from a source to a shard."""

    def answer(x, origin, target):
        if origin != source or target == "Replicate":
            return redistribute(x, origin, target)
        return move(x, int(target[6]))

    return answer


def first_rows(x, dim):
    size = x.shape[dim] // x.device().shape[1]
    return x[:size] if dim == 0 else x[:, :size]


RIGHT = [
    ("13.product", product),
    ("13.product", as_torch),
    ("13.redistribute", looks_at_it),
    ("13.redistribute", from_the_end),
    ("13.product", lambda a, b: product(a, b) and f" {product(a, b).lower()} "),
    ("13.product", lambda a, b: product(a, b) and np.str_(product(a, b).replace("(", "( "))),
    ("13.product", by_rules),
    ("13.redistribute", redistribute),
]
WRONG = [
    (
        "13.product",
        forgets_partial,
        r"a is Shard\(1\) and b is Shard\(0\): a @ b is Partial, your answer is 'Replicate'",
    ),
    ("13.product", always, "do not belong together|summed first"),
    (
        "13.product",
        lambda a, b: b if a == "Replicate" else product(a, b),
        r"a is Replicate and b is Shard\(0\): a @ b is Partial, .* cut where it lies",
    ),
    (
        "13.product",
        lambda a, b: product(a, b) if a != b or a == "Replicate" else a,
        r"a is Shard\(0\) and b is Shard\(0\): .* so None; your answer is",
    ),
    ("13.product", lambda a, b: None, "a @ b is Replicate, your answer is None"),
    ("13.product", other_than(("Partial", "Replicate"), "Replicate"), "must be summed first"),
    ("13.product", other_than(("Replicate", "Partial"), "Shard(0)"), "must be summed first"),
    (
        "13.product",
        other_than(("Shard(0)", "Shard(1)"), "Shard(0)"),
        "its rows by its columns only, not by all columns, so None",
    ),
    ("13.product", lambda a, b: product(a, b) or "None", "as text, or None, .* answer is 'None'"),
    ("13.product", lambda a, b: np.ones(2), "a placement as text, or None, is asked for"),
    (
        "13.redistribute",
        lambda *given: ttnn.multiply(redistribute(*given), 1.0),
        "it is right, but one operation is enough: multiply can go",
    ),
    ("13.redistribute", with_a_clone, "one operation is enough: clone can go"),
    ("13.redistribute", in_another_layout, "one operation is enough: to_layout can go"),
    ("13.redistribute", turned_twice, "one operation is enough: transpose, transpose can go"),
    ("13.redistribute", called_twice, "one operation is enough: mesh_partition can go"),
    ("13.product", lambda a, b: product(a, b) and f"it is {product(a, b)}", "answer is 'it is Rep"),
    ("13.product", lambda a, b: product(a, b) or "none", "a placement as text, or None"),
    ("13.redistribute", with_addition, r"to_numpy went through the host; the chips can do"),
    ("13.redistribute", other_move("Replicate", first_rows), "has the part of the first one"),
    (
        "13.redistribute",
        other_move("Partial", lambda x, dim: ttnn.mesh_partition(x, dim=dim, cluster_axis=1)),
        r"from Partial to Shard\(0\): each device cut its own partial sum; nothing was added",
    ),
    (
        "13.redistribute",
        mean,
        "from Partial to Replicate: that is the mean, 1/4 of the sum",
    ),
    (
        "13.redistribute",
        sums_whole,
        r"from Partial to Shard\(0\) is right, but you called all_reduce; the budget is reduce_scatter",
    ),
    (
        "13.redistribute",
        believes_the_sum,
        "from Partial to Replicate: each device still has its partial sum",
    ),
    (
        "13.redistribute",
        gathers_a_sum,
        r"from Partial to Replicate: each device should have \[128, 256\], has \[512, 256\]",
    ),
    ("13.redistribute", through_the_host, "the move was not done on the devices"),
    (
        "13.redistribute",
        reduces_twice,
        "you called reduce_scatter, all_gather; the budget is all_reduce",
    ),
    ("13.redistribute", lambda x, source, target: x, "each device should have"),
    ("13.redistribute", one_dimension, r"from Replicate to Shard\(1\): each device should have"),
]


test_a_right_answer_passes = right(RIGHT)
test_a_wrong_answer_is_told_why = wrong(WRONG)


def test_the_products_are_those_that_torch_makes_without_sending(torch):
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh
    from torch.distributed.tensor.debug import CommDebugMode

    placements = {"Replicate": Replicate(), "Shard(0)": Shard(0), "Shard(1)": Shard(1)}
    # collectives do nothing: what is asked is which are called
    torch.distributed.init_process_group("fake", rank=0, world_size=4)
    try:
        mesh, found = init_device_mesh("cpu", (4,)), {}
        for a, first in placements.items():
            for b, second in placements.items():
                x, y = (
                    distribute_tensor(torch.ones(128, 128), mesh, [each], src_data_rank=None)
                    for each in (first, second)
                )
                with CommDebugMode() as seen:
                    result = x @ y
                if not seen.get_total_counts():
                    found[a, b] = str(result.placements[0])
    finally:
        torch.distributed.destroy_process_group()
    # as torch prints them
    short = {"Replicate": "R", "Shard(0)": "S(0)", "Shard(1)": "S(1)", "Partial": "P(sum)"}
    assert found == {pair: short[result] for pair, result in PRODUCTS.items()}
