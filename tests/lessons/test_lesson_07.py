"""The exercises of lesson 07: right answers, and wrong ones that are told what is wrong; its
rules are those of torch, where torch is.
"""

import pytest
from answers import both, put

import ttkit
from course.lesson_07 import DTENSOR_SENDS, PRODUCTS, counted
from ttkit import ttnn


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
    if "Partial" in (a, b):
        return "Partial" if "Replicate" in (a, b) else None
    if (a, b) == ("Shard(0)", "Shard(1)"):
        return None
    cuts_sum = (a == "Shard(1)", b == "Shard(0)")
    if any(cuts_sum):
        return "Partial" if all(cuts_sum) or "Replicate" in (a, b) else None
    return a if b == "Replicate" else b


def mean(x, source, target):
    moved = redistribute(x, source, target)
    return ttnn.multiply(moved, 1 / 4) if source == "Partial" else moved


def from_the_end(x, source, target):
    """With negative dimensions, and without the axis of a mesh of one row."""
    dim = int((source + target).partition("(")[2][:1] or 0) - 2
    if source == "Replicate":
        return ttnn.mesh_partition(x, dim, 1)
    if source == "Partial":
        return ttnn.all_reduce(x) if target == "Replicate" else ttnn.reduce_scatter(x, dim)
    return ttnn.all_gather(x, dim)


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


test_a_right_answer_passes, test_a_wrong_answer_is_told_where = both(
    {
        "07.product": (
            [product, by_rules],
            {
                "product('Shard(1)', 'Shard(0)'): it is Partial, not 'Replicate'": forgets_partial,
                "it is None, not 'Replicate': each device would multiply numbers": always,
                "not 'Shard(0)': a replica can be cut without sending": lambda a, b: (
                    b if a == "Replicate" else product(a, b)
                ),
                "it is Replicate, not None": lambda a, b: None,
                "each device multiplies its partial sum": other_than(
                    ("Partial", "Replicate"), None
                ),
                "must be summed first": other_than(("Partial", "Partial"), "Partial"),
                "not by all columns": other_than(("Shard(0)", "Shard(1)"), "Shard(0)"),
            },
        ),
        "07.redistribute": (
            [redistribute, from_the_end, reduces_twice],
            {
                "the budget is": sums_whole,
                "each device has the first device's part": other_move("Replicate", first_rows),
                "each device cut its own partial sum": other_move(
                    "Partial", lambda x, dim: ttnn.mesh_partition(x, dim=dim, cluster_axis=1)
                ),
                "Partial, Replicate, device 4 at (0, 0): element": mean,
                "that is the mean": mean,
                "each device still has its partial sum": believes_the_sum,
                "the shape should be [128, 256], but is [512, 256]": gathers_a_sum,
                "the devices computed nothing: NumPy did it on the host": through_the_host,
                "Replicate, Shard(0)": lambda x, source, target: x,
            },
        ),
    }
)


@pytest.mark.long
def test_the_products_are_those_that_torch_makes_without_sending(torch):
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, init_device_mesh
    from torch.distributed.tensor.debug import CommDebugMode

    placements = {"Replicate": Replicate(), "Shard(0)": Shard(0), "Shard(1)": Shard(1)}
    placements["Partial"] = Partial()
    shapes = {"Shard(0)": (32, 128), "Shard(1)": (128, 32)}  # of a device
    # collectives do nothing: what is asked is which are called
    torch.distributed.init_process_group("fake", rank=0, world_size=4)
    try:
        mesh, found = init_device_mesh("cpu", (4,)), {}
        for a, first in placements.items():
            for b, second in placements.items():
                x, y = (
                    DTensor.from_local(torch.ones(shapes.get(name, (128, 128))), mesh, [each])
                    for name, each in ((a, first), (b, second))
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


@pytest.mark.long
def test_what_a_dtensor_sends_is_what_the_lesson_asks(torch):
    """The answers of the guess 07.placement."""
    from torch.distributed.tensor import DTensor, Partial, Replicate, init_device_mesh
    from torch.distributed.tensor.debug import CommDebugMode

    torch.distributed.init_process_group("fake", rank=0, world_size=4)
    try:
        mesh = init_device_mesh("cpu", (4,))
        product = DTensor.from_local(torch.ones(128, 256), mesh, [Partial()])
        bias = DTensor.from_local(torch.ones(256), mesh, [Replicate()])
        with CommDebugMode() as adding:
            added = product + bias
        with CommDebugMode() as curving:
            torch.nn.functional.gelu(added)
    finally:
        torch.distributed.destroy_process_group()
    assert (counted(adding), counted(curving).removeprefix("1 x ")) == DTENSOR_SENDS
    assert added.to_local()[0, 0] == 1.25  # each rank adds a quarter of the bias
