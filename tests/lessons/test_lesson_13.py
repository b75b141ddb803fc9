"""Lesson 13: its exercise with right and with wrong answers."""

from answers import both

from ttkit import ttnn


def layer(x, mine, axis, rest, free=True, mean=True, add=ttnn.reduce_scatter):
    """One layer of FSDP, with a place for each mistake."""
    w = ttnn.all_gather(mine, 0, cluster_axis=axis)
    y = ttnn.matmul(x, w)
    if free:
        ttnn.deallocate(w)
    dw = ttnn.matmul(x, rest(y), transpose_a=True)
    return add(dw, 0, cluster_axis=axis) * (1 / x.device().shape[axis] if mean else 1)


def divided_first(x, mine, axis, rest):
    dy = rest(ttnn.matmul(x, ttnn.all_gather(mine, 0, cluster_axis=axis)))
    dw = ttnn.matmul(x, dy * (1 / x.device().shape[axis]), transpose_a=True)
    return ttnn.reduce_scatter(dw, 0, cluster_axis=axis)


def reduced(dw, dim, cluster_axis):
    return ttnn.all_reduce(dw, cluster_axis=cluster_axis)


def sliced(dw, dim, cluster_axis):
    return ttnn.mesh_partition(reduced(dw, dim, cluster_axis), dim, cluster_axis=cluster_axis)


test_a_right_answer_passes, test_a_wrong_answer_is_told_where = both(
    {
        "13.layer": (
            [layer, divided_first],
            {
                "the sum of the gradients; expected the mean": lambda *a: layer(*a, mean=False),
                "return only the rows of `mine`": lambda *a: layer(*a, add=reduced),
                "still hold the whole weight: free it": lambda *a: layer(*a, free=False),
                "bytes on links; the budget is": lambda *a: layer(*a, add=sliced),
                "nothing was added": lambda *a: layer(*a, mean=False, add=ttnn.mesh_partition),
                "returned nothing": lambda *a: None,
            },
        )
    }
)
